/** Hunyuan, dense and with experts. Reference: github.com/ggml-org/llama.cpp, conversion/hunyuan.py at 051139f. Tests compare with llama.cpp v0.5.0. */
import { show } from '../../core/show.js';
import type { Config } from '../huggingface/config.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { areStacked, type Draft, decoderDefaults, type ModelClass, siluSettings } from '../huggingface/reading.js';
import { ropeKeys, setting } from '../huggingface/rope.js';
import type { Row } from '../huggingface/tensors.js';
import {
  attention,
  embedding,
  feedForward,
  finalNorm,
  norms,
  qwenExperts,
  sharedExperts,
  withBias,
  withoutHead,
} from './rows.js';

/** Context of models whose rotary base is scaled by alpha. Their config.json has another. */
const dynamicContext = 256 * 1024;

/** Keys of the rotary embedding, whose base grows by alpha in place of other scaling. */
function hunyuanRope({ rope, sizes: { head }, keys }: Draft, usualAlpha: number) {
  if (rope.type !== 'dynamic' && rope.type !== 'xdrope') return ropeKeys(rope, ['linear', 'yarn']);
  const [alpha, base] = [setting(rope, 'alpha') ?? usualAlpha, keys['rope.freq_base'] as number];
  const grown = {
    'rope.freq_base': base * alpha ** (head / (head - 2)),
    'rope.scaling.type': 'none',
    'rope.scaling.factor': 1,
  };
  if (rope.type === 'xdrope') return grown;
  const context = keys.context_length;
  if (base !== 10000 || (context !== dynamicContext && context !== dynamicContext / 8))
    unsupportedConfig(
      `rope_theta is ${base} and max_position_embeddings ${context}; known are 10000 with ${dynamicContext / 8} or ${dynamicContext}`,
    );
  return { ...grown, 'rope.scaling.original_context_length': dynamicContext, context_length: dynamicContext };
}

/** Norms of queries and keys, behind the rotation. */
const rotatedNorms: readonly Row[] = [
  { from: 'self_attn.query_layernorm', to: 'attn_q_norm', shape: ['head'] },
  { from: 'self_attn.key_layernorm', to: 'attn_k_norm', shape: ['head'] },
];

/** The head, which the converter leaves out where it is the embedding. */
const headOf = ({ config }: Draft) =>
  config.maybeFlag('tie_word_embeddings') === true ? { outside: [embedding, finalNorm], rename: withoutHead } : {};

const hunyuanDense: ModelClass = {
  architecture: 'hunyuan-dense',
  traits: { pairs: 'halves', normsRotated: true },
  classes: { HunYuanDenseV1ForCausalLM: decoderDefaults([4096, 11008, 32], [32], 2048, { rms_norm_eps: 1e-5 }) },
  preTokenizers: { 'deepseek-v3': 'hunyuan-dense' },
  roleIds: (config, ends) => ({ eos: config.get('eod_token_id'), eot: ends.length > 1 ? ends[0] : undefined }),
  only: { ...siluSettings, use_qk_norm: [true], use_cla: [false] },
  details(draft) {
    const { config } = draft;
    if ((config.maybeWhole('num_experts') ?? 1) > 1)
      unsupportedConfig('num_experts is more than 1; the class of models with experts is HunYuanMoEV1ForCausalLM');
    return {
      keys: hunyuanRope(draft, 50),
      table: {
        ...headOf(draft),
        layer: [...norms, ...withBias(attention, 'stated'), ...rotatedNorms, ...feedForward],
      },
    };
  },
  mlx: { hunyuan_v1_dense: { head: 'tied' } },
};

/** A number that config.json may state for each layer; llama.cpp has one for all. */
function ofAllLayers(config: Config, name: string): number | undefined {
  const value = config.get(name);
  const list: readonly unknown[] = Array.isArray(value) ? value : [value];
  const other = list.find((one) => one !== list[0]);
  if (other !== undefined) unsupportedConfig(`${name} is ${show(value)}; llama.cpp has one number for all layers`);
  const [first] = list;
  if (first === undefined || (typeof first === 'number' && Number.isInteger(first) && first > 0)) return first;
  return badConfig(`${name} has to be a whole number above 0, got ${show(first)}`);
}

/** Each layer has experts, and a part that all tokens pass. */
const hunyuanMoe: ModelClass = {
  architecture: 'hunyuan-moe',
  classes: { HunYuanMoEV1ForCausalLM: decoderDefaults([4096, 3072, 32], [32, 8], 32768, { rms_norm_eps: 1e-5 }) },
  preTokenizers: { qwen2: 'hunyuan' },
  only: { ...siluSettings, use_qk_norm: [true], use_cla: [false], use_mixed_mlp_moe: [true] },
  details(draft) {
    const { config, sizes } = draft;
    const { feedForward: rows } = sizes;
    const [used, shared] = [ofAllLayers(config, 'moe_topk'), ofAllLayers(config, 'num_shared_expert') ?? 1];
    const experts = ofAllLayers(config, 'num_experts') ?? badConfig('num_experts is missing');
    if (used === undefined || used > experts) badConfig(`moe_topk is ${show(used)}, and num_experts ${experts}`);
    const expertRows = ofAllLayers(config, 'moe_intermediate_size') ?? rows;
    if (expertRows !== rows || shared !== 1)
      unsupportedConfig(
        `moe_intermediate_size is ${expertRows}, num_shared_expert ${shared}; llama.cpp takes ${rows} (intermediate_size) and 1 only`,
      );
    return {
      keys: {
        ...hunyuanRope(draft, 1000),
        expert_count: experts,
        expert_used_count: used,
        expert_feed_forward_length: rows,
        expert_shared_feed_forward_length: rows,
        expert_shared_count: shared,
      },
      sizes: { experts, expertFeedForward: rows, sharedFeedForward: rows },
      table: {
        ...headOf(draft),
        layer: [
          ...norms,
          ...withBias(attention, 'stated'),
          ...rotatedNorms,
          { from: 'mlp.gate.wg', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
          ...qwenExperts(areStacked(draft)).slice(1),
          ...sharedExperts('mlp.shared_mlp'),
        ],
      },
    };
  },
};

export const hunyuanFamily: readonly ModelClass[] = [hunyuanDense, hunyuanMoe];
