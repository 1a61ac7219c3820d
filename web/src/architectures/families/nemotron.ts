/** Nemotron. Reference: github.com/ggml-org/llama.cpp, conversion/nemotron.py at 003ebfc. Tests compare with llama.cpp v0.5.0. */
import { decoderDefaults, type ModelClass, rotatedOf } from '../huggingface/reading.js';
import { setting } from '../huggingface/rope.js';
import { attention, embedding, feedForward, finalNorm, head, norms, plusOne, withBias } from './rows.js';

export const nemotron: ModelClass = {
  architecture: 'nemotron',
  traits: { pairs: 'halves', isCentered: true, gate: 'reluSquared' },
  classes: {
    NemotronForCausalLM: decoderDefaults([6144, 24576, 32], [48], 4096, {
      norm_eps: 1e-5,
      partial_rotary_factor: 0.5,
      hidden_act: 'relu2',
    }),
  },
  roleIds: () => ({ pad: 0, unk: 1 }),
  only: { hidden_act: ['relu2'] },
  decoder: { normEpsilon: 'norm_eps' },
  scaling: ['linear'],
  table: {
    outside: plusOne([embedding, { ...finalNorm, bias: 'always' }, head]),
    layer: [
      ...plusOne(withBias(norms)),
      ...withBias(attention, 'stated'),
      ...withBias(feedForward.slice(1), 'optional'),
    ],
  },
  details(draft) {
    const { config, rope, sizes, keys } = draft;
    const factor = config.maybePositive('factor') ?? setting(rope, 'factor');
    return {
      keys: {
        // The converter takes the same number for norms of two kinds.
        'attention.layer_norm_rms_epsilon': keys['attention.layer_norm_epsilon'],
        vocab_size: sizes.vocabulary,
        'rope.dimension_count': rotatedOf(draft, 0.5, [sizes.hidden, sizes.heads]),
        'rope.scaling.type': factor === undefined ? 'none' : 'linear',
        'rope.scaling.factor': factor,
      },
    };
  },
  mlx: { nemotron: {} },
};
