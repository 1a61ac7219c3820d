/** Hunyuan. Reference: github.com/ggml-org/llama.cpp, conversion/hunyuan.py at 051139f. Tests compare with llama.cpp v0.5.0. */
import { unsupportedConfig } from '../huggingface/errors.js';
import { type Draft, decoderDefaults, type ModelClass, siluSettings } from '../huggingface/reading.js';
import { ropeKeys, setting } from '../huggingface/rope.js';
import { attention, embedding, feedForward, finalNorm, norms, withBias, withoutHead } from './rows.js';

/** Context of models whose rotary base is scaled by alpha. Their config.json has another. */
const dynamicContext = 256 * 1024;

/** Keys of the rotary embedding, whose base grows by alpha in place of other scaling. */
function hunyuanRope({ rope, sizes: { head }, keys }: Draft) {
  if (rope.type !== 'dynamic' && rope.type !== 'xdrope') return ropeKeys(rope, ['linear', 'yarn']);
  const [alpha, base] = [setting(rope, 'alpha') ?? 50, keys['rope.freq_base'] as number];
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

export const hunyuanDense: ModelClass = {
  architecture: 'hunyuan-dense',
  traits: { pairs: 'halves', normsRotated: true },
  classes: { HunYuanDenseV1ForCausalLM: decoderDefaults([4096, 11008, 32], [32], 2048, { rms_norm_eps: 1e-5 }) },
  preTokenizers: { 'deepseek-v3': 'hunyuan-dense' },
  roleIds: (config, ends) => ({ eos: config.get('eod_token_id'), eot: ends.length > 1 ? ends[0] : undefined }),
  only: { ...siluSettings, use_qk_norm: [true], use_cla: [false] },
  details(draft) {
    const { config } = draft;
    if ((config.maybeWhole('num_experts') ?? 1) > 1)
      unsupportedConfig('num_experts is more than 1; Hunyuan models with experts are not supported');
    const isTied = config.maybeFlag('tie_word_embeddings') === true;
    return {
      keys: hunyuanRope(draft),
      table: {
        // The converter leaves out a head that is the embedding.
        ...(isTied ? { outside: [embedding, finalNorm], rename: withoutHead } : {}),
        layer: [
          ...norms,
          ...withBias(attention, 'stated'),
          { from: 'self_attn.query_layernorm', to: 'attn_q_norm', shape: ['head'] },
          { from: 'self_attn.key_layernorm', to: 'attn_k_norm', shape: ['head'] },
          ...feedForward,
        ],
      },
    };
  },
  mlx: { hunyuan_v1_dense: { head: 'tied' } },
};
