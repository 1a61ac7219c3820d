// The language models beside towers.

import type { DecoderCase, Refusal } from '../decoder-cases.js';
import {
  attention,
  biases,
  common,
  experts,
  five,
  gated,
  headNorms,
  heads,
  type Keys,
  llamaKeys,
  norms,
  outside,
  permuted,
  prefix,
  router,
  separate,
  usualTable,
} from '../decoder-tables.js';
import { add, type Decoder, multiply, silu, softmax, turnedOf } from '../forward.js';
import { within } from './latent.js';

const sections = { rope_scaling: { type: 'mrope', mrope_section: [2, 3, 3] } };
/** Keys of decoders whose positions have three coordinates. @param pairs those of a head that turn by each */
const rotated = (pairs: readonly number[], ...more: Keys) => common(['rope.dimension_sections', pairs], ...more);

const qwen2vl: DecoderCase = {
  name: 'Qwen2-VL',
  hugging: 'Qwen2VLForConditionalGeneration',
  architecture: 'qwen2vl',
  config: sections,
  keys: rotated([2, 3, 3, 0]),
  table: usualTable(norms + attention + biases + gated),
  // llama.cpp v0.5.0 does not read the addend of the norms for this architecture (src/models/qwen2vl.cpp ends in a lost fall-through).
  model: { headName: 'lm_head.weight', epsilon: 0 },
};

/** llama.cpp turns pairs that lie beyond three times these by nothing, so that a text is exact only with sections that reach over all. */
const interleaved = [3, 3, 2, 0];

const qwen3vl: DecoderCase = {
  name: 'Qwen3-VL',
  hugging: 'Qwen3VLForConditionalGeneration',
  architecture: 'qwen3vl',
  config: {
    head_dim: 16,
    rope_scaling: { rope_type: 'default', mrope_section: [3, 3, 2], mrope_interleaved: true },
    vision_config: { deepstack_visual_indexes: [0, 2] },
  },
  keys: rotated(interleaved, ...heads, ['n_deepstack_layers', 2]),
  table: usualTable(norms + attention + headNorms + gated),
  model: { headName: 'lm_head.weight' },
};

const qwen3vlmoe: DecoderCase = {
  ...qwen3vl,
  name: 'Qwen3-VL with experts',
  hugging: 'Qwen3VLMoeForConditionalGeneration',
  architecture: 'qwen3vlmoe',
  config: {
    ...qwen3vl.config,
    num_experts: 5,
    num_experts_per_tok: 2,
    moe_intermediate_size: 48,
    norm_topk_prob: true,
  },
  keys: rotated(interleaved, ...heads, ...five, ['expert_feed_forward_length', 48], ['n_deepstack_layers', 2]),
  table: usualTable(`${norms}${attention}${headNorms}
      mlp.gate.weight           ffn_gate_inp.weight   5x64
      mlp.experts.gate_up_proj  ffn_gate_exps.weight  5x64x96  np=5x64x96[:,:,0:48]T   as=5x48x64
      mlp.experts.gate_up_proj  ffn_up_exps.weight    5x64x96  np=5x64x96[:,:,48:96]T  as=5x48x64
      mlp.experts.down_proj     ffn_down_exps.weight  5x48x64  np=5x48x64T             as=5x64x48`),
  model: {
    headName: 'lm_head.weight',
    grow(read, p, x) {
      const scores = [...read.linear(`${p}mlp.gate`, x)];
      const best = [...scores.keys()].sort((a, b) => scores[b]! - scores[a]!).slice(0, 2);
      const shares = softmax(best.map((e) => scores[e]!));
      const experts = best.map((e, i) => {
        const name = `${p}mlp.experts.gate_up_proj`;
        const inner = multiply(silu(turnedOf(read, name, e, x, 0, 1, 48)), turnedOf(read, name, e, x, 48, 1, 48));
        return turnedOf(read, `${p}mlp.experts.down_proj`, e, inner).map((v) => v * shares[i]!);
      });
      return experts.reduce(add);
    },
  },
};

/** SmolVLM and LLaVA have the layers of Llama. */
const llama: DecoderCase = {
  name: 'LLaVA',
  hugging: 'LlavaForConditionalGeneration',
  architecture: 'llama',
  keys: common(...llamaKeys),
  table: usualTable(norms + permuted + gated),
  model: { headName: 'lm_head.weight' },
};

const thinker = within('thinker.', {
  prefix,
  outside,
  layer: `${norms}${attention}${headNorms}`,
});
const thinkerModel: Partial<Decoder> = {
  embedding: 'thinker.model.embed_tokens.weight',
  prefix: 'thinker.model.layers.',
  headName: 'thinker.lm_head.weight',
  norms: { final: 'thinker.model.norm' },
};
const thirds = { rope_scaling: { rope_type: 'default', mrope_section: [3, 3, 2] } };

const cases: readonly DecoderCase[] = [
  qwen2vl,
  { ...qwen2vl, name: 'Qwen2.5-VL', hugging: 'Qwen2_5_VLForConditionalGeneration' },
  qwen3vl,
  qwen3vlmoe,
  { ...llama, name: 'SmolVLM', hugging: 'SmolVLMForConditionalGeneration' },
  llama,
  {
    name: 'Qwen3-ASR',
    hugging: 'Qwen3ASRForConditionalGeneration',
    architecture: 'qwen3vl',
    config: { thinker_config: { text_config: { head_dim: 16, ...thirds } } },
    keys: common(...heads, ['rope.dimension_sections', [3, 3, 2, 0]], ['n_deepstack_layers', 0]),
    table: { ...thinker, layer: thinker.layer + gated },
    model: thinkerModel,
  },
  {
    name: 'Qwen3-Omni',
    hugging: 'Qwen3OmniMoeForConditionalGeneration',
    architecture: 'qwen3vlmoe',
    config: {
      thinker_config: {
        text_config: {
          head_dim: 16,
          num_experts: 5,
          num_experts_per_tok: 2,
          moe_intermediate_size: 48,
          norm_topk_prob: true,
          ...thirds,
        },
      },
    },
    keys: common(
      ...heads,
      ...five,
      ['rope.dimension_sections', [3, 3, 2, 0]],
      ['n_deepstack_layers', 0],
      ['expert_feed_forward_length', 48],
    ),
    table: {
      ...thinker,
      layer: thinker.layer + separate(5, 48) + router,
    },
    model: { ...thinkerModel, usedExperts: 2, experts },
  },
];

const refusals: readonly Refusal[] = [
  ['Qwen2-VL', { rope_scaling: { type: 'mrope' } }, /mrope_section has to be up to 4 whole numbers/, 'BAD_FILE'],
  ['Qwen2-VL', { rope_scaling: { type: 'mrope', mrope_section: [4, 4, 4] } }, /turns more than 16/, 'BAD_FILE'],
  ['Qwen2-VL', { rope_scaling: { type: 'dynamic', mrope_section: [2, 3, 3] } }, /"dynamic"/],
  ['Qwen2-VL', { hidden_act: 'gelu' }, /hidden_act is "gelu"/],
  ['Qwen3-VL', { attention_bias: true }, /attention_bias is true/],
  ['Qwen3-VL with experts', { mlp_only_layers: [1] }, /mlp_only_layers/],
  ['Qwen3-VL with experts', { num_experts: 2 ** 30 }, /has the shape|too few/, 'BAD_FILE'],
  ['LLaVA', { text_config: { model_type: 'qwen2' } }, /the text model of LLaVA is "qwen2"/],
];

export const besideTowers = { cases, refusals };
