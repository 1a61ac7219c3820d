/** MiniCPM 1 and 4. Reference: github.com/ggml-org/llama.cpp, conversion/minicpm.py at 7bca1fd and in Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0. */
import { show } from '../../core/show.js';
import { unsupportedConfig } from '../huggingface/errors.js';
import { decoderDefaults, type ModelClass, siluSettings } from '../huggingface/reading.js';
import { longFactors, wholeSetting } from '../huggingface/rope.js';
import { feedForward, llamaAttention, norms, withoutBias } from './rows.js';

export const minicpm: ModelClass = {
  architecture: 'minicpm',
  classes: { MiniCPMForCausalLM: decoderDefaults([2304, 5760, 40], [36], 4096, { rms_norm_eps: 1e-5 }) },
  only: { ...siluSettings, attention_bias: [false] },
  details(draft) {
    const { config, rope, sizes } = draft;
    const { hidden, head, layers, positions = 0 } = sizes;
    if (rope.type !== undefined && rope.type !== 'longrope')
      unsupportedConfig(`${rope.where}.rope_type is ${show(rope.type)}; it can be longrope here`);
    // llama.cpp's converter writes no factor of attention, which differs from 1 for contexts beyond the first one.
    const original = wholeSetting(rope, 'original_max_position_embeddings') ?? positions;
    if (original !== positions)
      unsupportedConfig(
        `original_max_position_embeddings is ${original} and max_position_embeddings ${positions}; llama.cpp takes equal ones only`,
      );
    const { tensors } = longFactors(rope, head, positions, original);
    return {
      keys: {
        'rope.scaling.type': rope.type,
        embedding_scale: config.positive('scale_emb', 1),
        residual_scale: config.positive('scale_depth', 1) / Math.sqrt(layers),
        logit_scale: hidden / config.positive('dim_model_base', 1),
      },
      made: () => tensors,
      table: { layer: [...norms, ...llamaAttention.map(withoutBias), ...feedForward] },
    };
  },
};
