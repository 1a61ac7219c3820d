/**
 * OLMo 1 to 3, and OLMoE.
 * Reference: github.com/ggml-org/llama.cpp, conversion/olmo.py at 051139f. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { unsupportedConfig } from '../huggingface/errors.js';
import { allBut, type ModelClass, readExperts, siluSettings, threeOfFourWindows } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { llamaDefaults } from './llama.js';
import {
  attention,
  embedding,
  feedForward,
  head,
  lateNorms,
  llamaAttention,
  norms,
  qwenExperts,
  withoutBias,
} from './rows.js';

const olmo: ModelClass = {
  architecture: 'olmo',
  traits: { pairs: 'neighbors', isCentered: true, hasBareNorms: true },
  classes: { OlmoForCausalLM: llamaDefaults },
  preTokenizers: { 'gpt-2': 'olmo' },
  only: { ...siluSettings, attention_bias: [false] },
  decoder: { normEpsilon: 1e-5 },
  scaling: ['linear', 'yarn'],
  table: { outside: [embedding, head], layer: [...llamaAttention.map(withoutBias), ...feedForward] },
  details: ({ config }) => ({ keys: { 'attention.clamp_kqv': config.maybePositive('clip_qkv') } }),
};

/** Attention whose queries and keys have norms over all heads. */
const normedAttention: readonly Row[] = [
  ...attention,
  { from: 'self_attn.q_norm', to: 'attn_q_norm', shape: ['queries'] },
  { from: 'self_attn.k_norm', to: 'attn_k_norm', shape: ['keys'] },
];

const olmo2Defaults = { ...llamaDefaults, rms_norm_eps: 1e-5 };

/** OLMo 2 and 3. The latter has windows, whose layers have no scaling of the rotary embedding. */
const olmo2: ModelClass = {
  architecture: 'olmo2',
  traits: { pairs: 'halves', slides: allBut(4), localBase: 0 },
  classes: {
    Olmo2ForCausalLM: olmo2Defaults,
    Olmo3ForCausalLM: { ...olmo2Defaults, rope_theta: 5e5, sliding_window: 4096 },
  },
  preTokenizers: { 'smaug-bpe': 'dbrx' },
  only: { ...siluSettings, attention_bias: [false] },
  decoder: { plainHeads: true },
  scaling: ['linear', 'yarn'],
  table: { layer: [...lateNorms, ...normedAttention, ...feedForward] },
  details: (draft) => ({ keys: threeOfFourWindows(draft) }),
  mlx: { olmo2: {}, olmo3: {} },
  onnx: { Olmo2ForCausalLM: { kind: 'decoder', modelType: 'olmo2', norms: 'behind', headNorms: 'all' } },
};

const olmoe: ModelClass = {
  mlx: { olmoe: { experts: { block: 'mlp' } } },
  architecture: 'olmoe',
  traits: { pairs: 'halves', normalizesShares: false },
  classes: { OlmoeForCausalLM: {} },
  preTokenizers: { 'gpt-2': 'olmo' },
  only: { ...siluSettings, attention_bias: [false], norm_topk_prob: [false] },
  decoder: { plainHeads: true },
  scaling: ['linear', 'yarn'],
  table: { layer: [...norms, ...normedAttention, ...qwenExperts(false)] },
  details({ config, sizes, keys }) {
    if (config.get('clip_qkv') !== undefined)
      unsupportedConfig(`clip_qkv is ${show(config.get('clip_qkv'))}; llama.cpp computes OLMoE without it`);
    const { keys: counts, sizes: experts } = readExperts(config, 'num_experts');
    if (sizes.keyHeads !== sizes.heads)
      unsupportedConfig(`num_key_value_heads is ${sizes.keyHeads}; llama.cpp computes OLMoE with ${sizes.heads} only`);
    const epsilon = keys['attention.layer_norm_rms_epsilon'];
    if (epsilon !== 1e-5) unsupportedConfig(`rms_norm_eps is ${epsilon}; the converter writes 0.00001 for OLMoE`);
    return { keys: counts, sizes: { ...experts, expertFeedForward: sizes.feedForward } };
  },
};

export const olmoFamily: readonly ModelClass[] = [olmo, olmo2, olmoe];
