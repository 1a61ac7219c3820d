/** EXAONE 4. Reference: github.com/ggml-org/llama.cpp, conversion/exaone.py at 051139f. Tests compare with llama.cpp v0.5.0. */
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { allBut, decoderDefaults, type ModelClass, siluSettings, threeOfFourWindows } from '../huggingface/reading.js';
import { attention, feedForward, headNorms, lateNorms } from './rows.js';

export const exaone4: ModelClass = {
  architecture: 'exaone4',
  traits: { pairs: 'halves', slides: allBut(4), rotatesWindowsOnly: true },
  classes: {
    Exaone4ForCausalLM: decoderDefaults([4096, 16384, 32], [32, 32], 2048, {
      rms_norm_eps: 1e-5,
      sliding_window: 4096,
    }),
  },
  preTokenizers: { 'gpt-2': 'exaone4' },
  only: siluSettings,
  scaling: ['linear', 'yarn', 'llama3'],
  llama3Factor: 16,
  table: { layer: [...lateNorms, ...attention, ...headNorms, ...feedForward] },
  details(draft) {
    const { config, sizes } = draft;
    const { layers, vocabulary } = sizes;
    const window = config.maybeWhole('sliding_window');
    // Without layer_types, letters such as LLLG say which layers have a window, or a number n that all but each n-th have one.
    const pattern = window === undefined ? undefined : (config.get('sliding_window_pattern') ?? 4);
    const isText = typeof pattern === 'string' && pattern.length > 0;
    const isStep = typeof pattern === 'number' && Number.isInteger(pattern) && pattern > 0;
    if (pattern !== undefined && !isText && !isStep)
      badConfig(`sliding_window_pattern has to be letters or a whole number, got ${show(pattern)}`);
    const slidesIn = isText ? (i: number) => pattern[i % pattern.length] === 'L' : allBut(isStep ? pattern : 4);
    const keys = threeOfFourWindows(draft, slidesIn);
    // llama.cpp decides by the number of layers, whatever the file says.
    const slides = layers === 64;
    if ((window !== undefined) !== slides)
      unsupportedConfig(
        `sliding_window is ${show(window)}; llama.cpp computes ${layers} layers ${slides ? 'with' : 'without'} one`,
      );
    return { keys: { ...keys, vocab_size: vocabulary } };
  },
  mlx: { exaone4: {} },
};
