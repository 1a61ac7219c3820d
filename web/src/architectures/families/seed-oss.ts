/** Seed-OSS. Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7. Tests compare with llama.cpp v0.5.0. */
import { decoderDefaults, type ModelClass, siluSettings } from '../huggingface/reading.js';
import { attention, feedForward, normsBetween, withBias } from './rows.js';

export const seedOss: ModelClass = {
  architecture: 'seed_oss',
  traits: { pairs: 'halves', normsBetween: true },
  classes: {
    SeedOssForCausalLM: decoderDefaults([4096, 27648, 64], [80, 8, 128], 524288, { attention_bias: true }),
  },
  only: { ...siluSettings, mlp_bias: [false] },
  scaling: ['linear', 'yarn'],
  table: { layer: [...normsBetween, ...withBias(attention, 'optional'), ...feedForward] },
  mlx: { seed_oss: {} },
};
