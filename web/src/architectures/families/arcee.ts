/** Arcee. Reference: github.com/ggml-org/llama.cpp, conversion/arcee.py at 7bca1fd. Tests compare with llama.cpp v0.5.0. */
import { decoderDefaults, decoderSettings, type ModelClass } from '../huggingface/reading.js';
import { llamaKeys } from './llama.js';
import { feedForward, llamaAttention, norms, withoutBias } from './rows.js';

export const arcee: ModelClass = {
  architecture: 'arcee',
  traits: { pairs: 'neighbors', gate: 'reluSquared' },
  classes: { ArceeForCausalLM: decoderDefaults([2560, 18432, 32], [32], 4096, { rms_norm_eps: 1e-5 }) },
  usesLlamaConverter: true,
  writesPooling: true,
  // llama.cpp loads no biases of outputs and of the feed-forward part.
  only: { ...decoderSettings, hidden_act: ['relu2'], attention_bias: [false], mlp_bias: [false] },
  scaling: ['linear', 'yarn', 'llama3'],
  table: { layer: [...norms, ...llamaAttention.map(withoutBias), ...feedForward.slice(1)] },
  details: (draft) => ({ keys: llamaKeys(draft) }),
};
