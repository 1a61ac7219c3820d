/** EXAONE 4, and EXAONE with experts. Reference: github.com/ggml-org/llama.cpp, conversion/exaone.py at 051139f. Tests compare with llama.cpp v0.5.0. */
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import type { Keys } from '../huggingface/keys.js';
import {
  allBut,
  areStacked,
  type Draft,
  decoderDefaults,
  type ModelClass,
  readExperts,
  siluSettings,
  threeOfFourWindows,
} from '../huggingface/reading.js';
import { nextName, nextRows } from './glm.js';
import { attention, feedForward, headNorms, lateNorms, norms, onlyIn, qwenExperts, sharedExperts } from './rows.js';

/** The window and its layers. */
function windowKeys(draft: Draft): Keys {
  const { config } = draft;
  const window = config.maybeWhole('sliding_window');
  // Without layer_types, letters such as LLLG say which layers have a window, or a number n that all but each n-th have one.
  const pattern = window === undefined ? undefined : (config.get('sliding_window_pattern') ?? 4);
  const isText = typeof pattern === 'string' && pattern.length > 0;
  const isStep = typeof pattern === 'number' && Number.isInteger(pattern) && pattern > 0;
  if (pattern !== undefined && !isText && !isStep)
    badConfig(`sliding_window_pattern has to be letters or a whole number, got ${show(pattern)}`);
  const slidesIn = isText ? (i: number) => pattern[i % pattern.length] === 'L' : allBut(isStep ? pattern : 4);
  return threeOfFourWindows(draft, slidesIn);
}

const exaone4: ModelClass = {
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
    const { layers, vocabulary } = draft.sizes;
    const keys = windowKeys(draft);
    const window = keys['attention.sliding_window'];
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

/** A dense part in the first layers and in those that predict further tokens, and experts in the others. */
const exaoneMoe: ModelClass = {
  ...exaone4,
  architecture: 'exaone-moe',
  traits: undefined,
  classes: Object.fromEntries(
    ['ExaoneMoEForCausalLM', 'ExaoneMoeForCausalLM'].map((name) => [
      name,
      {
        ...exaone4.classes.Exaone4ForCausalLM,
        first_k_dense_replace: 1,
        moe_intermediate_size: 1024,
        num_experts: 64,
        num_experts_per_tok: 8,
        num_shared_experts: 1,
        norm_topk_prob: true,
        routed_scaling_factor: 2.5,
        scoring_func: 'sigmoid',
      },
    ]),
  ),
  preTokenizers: {},
  only: { ...siluSettings, scoring_func: ['sigmoid'], n_group: [1], topk_group: [1], num_nextn_predict_layers: [0, 1] },
  scaling: ['llama3'],
  details(draft) {
    const { config, sizes, names } = draft;
    const { layers, vocabulary } = sizes;
    const { keys, sizes: counts } = readExperts(config, 'num_experts', { rows: 'moe_intermediate_size' });
    const shared = config.whole('num_shared_experts');
    const dense = config.whole('first_k_dense_replace', 0, 0);
    const types = config.get('mlp_layer_types');
    if (Array.isArray(types) && types.some((type, i) => i < layers && (type === 'dense') !== i < dense))
      unsupportedConfig(
        `mlp_layer_types is ${show(types)}; llama.cpp computes experts in all but the first ${dense} layers`,
      );
    const next = config.maybeWhole('num_nextn_predict_layers', 0) ?? 0;
    const rows = (counts.expertFeedForward ?? 0) * shared;
    // Folders have the correction beside the router, or within it.
    const correction = ['mlp.gate.e_score_correction_bias', 'mlp.e_score_correction_bias'].find((own) =>
      names.some((name) => name.endsWith(`.${own}`)),
    );
    const windows = windowKeys(draft);
    if (windows['attention.sliding_window'] === undefined)
      unsupportedConfig('sliding_window is null; llama.cpp computes this architecture with a window only');
    const isRouted = (layer: number) => layer >= dense && layer < layers;
    return {
      keys: {
        ...windows,
        ...keys,
        block_count: layers + next,
        vocab_size: vocabulary,
        expert_gating_func: 2,
        expert_group_count: config.maybeWhole('n_group'),
        expert_group_used_count: config.maybeWhole('topk_group'),
        expert_shared_count: shared,
        expert_shared_feed_forward_length: rows,
        expert_weights_scale: config.positive('routed_scaling_factor'),
        expert_weights_norm: config.maybeFlag('norm_topk_prob'),
        leading_dense_block_count: dense,
        nextn_predict_layers: next,
        'rope.scaling.type': 'none',
      },
      sizes: { ...counts, layers: layers + next, sharedFeedForward: rows },
      table: {
        layer: [
          ...norms,
          ...attention,
          ...headNorms,
          ...onlyIn(feedForward, (layer) => !isRouted(layer)),
          ...onlyIn(
            [
              ...qwenExperts(areStacked(draft)),
              ...(correction === undefined
                ? []
                : [{ from: correction, to: 'exp_probs_b', whole: '.bias', shape: ['experts'] } as const]),
              ...sharedExperts('mlp.shared_experts'),
            ],
            isRouted,
          ),
          ...onlyIn(nextRows, (layer) => layer >= layers),
        ],
        // The layer that predicts a further token has a name of its own.
        rename: (name) => nextName(name, layers),
      },
    };
  },
};

export const exaoneFamily: readonly ModelClass[] = [exaone4, exaoneMoe];
