/** BitNet. Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7. Tests compare with llama.cpp v0.5.0. */
import { type ModelClass, noteOtherwise, siluSettings } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { attention, embedding, feedForward, finalNorm, norms, withoutHead } from './rows.js';

/** Names of norms in the first models. */
const oldNames: Readonly<Record<string, string>> = {
  'self_attn.inner_attn_ln': 'self_attn.attn_sub_norm',
  'mlp.ffn_layernorm': 'mlp.ffn_sub_norm',
};

/** BitNet, whose products are rounded to three values, and have a norm before the last one of each part. The head is the embedding. */
export const bitnet: ModelClass = {
  architecture: 'bitnet',
  classes: { BitnetForCausalLM: {}, BitNetForCausalLM: {} },
  // The converter states no activation, and llama.cpp takes silu then.
  only: { ...siluSettings, attention_bias: [false], tie_word_embeddings: [true] },
  decoder: { plainHeads: true },
  scaling: [],
  table: {
    outside: [embedding, finalNorm],
    layer: [
      ...norms,
      ...[...attention, ...feedForward].map((row): Row => ({ ...row, ternary: true })),
      { from: 'self_attn.attn_sub_norm', to: 'attn_sub_norm', shape: ['hidden'] },
      { from: 'mlp.ffn_sub_norm', to: 'ffn_sub_norm', shape: ['feedForward'] },
    ],
    rename: (name) => {
      const old = Object.keys(oldNames).find((part) => name.endsWith(`.${part}.weight`));
      return withoutHead(old === undefined ? name : name.replace(old, oldNames[old] as string));
    },
  },
  details(draft) {
    const text =
      'BitNet rounds the inputs of its products to 8 bits, which llama.cpp does for blocks of some types only, so that logits differ from those ' +
      'of transformers';
    noteOtherwise(draft, 'bitnet', text);
    return { keys: { 'rope.scaling.type': 'linear', 'rope.scaling.factor': 1 } };
  },
};
