/**
 * Command R, Aya and Command R7B: one norm for attention and feed-forward part.
 * Reference: github.com/ggml-org/llama.cpp, conversion/command_r.py at 00487aa. Tests compare with llama.cpp v0.5.0.
 */
import { unsupportedConfig } from '../huggingface/errors.js';
import { allBut, decoderDefaults, type ModelClass, siluSettings, threeOfFourWindows } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { attention, embedding, feedForward, finalNorm, norms } from './rows.js';

const cohereDefaults = decoderDefaults([8192, 22528, 40], [64], 8192, {
  layer_norm_eps: 1e-5,
  logit_scale: 0.0625,
  tie_word_embeddings: true,
});

/** Norms of queries and keys of each head of the largest model. */
const normsOfAllHeads: readonly Row[] = [
  { from: 'self_attn.q_norm', to: 'attn_q_norm', shape: ['heads', 'head'] },
  { from: 'self_attn.k_norm', to: 'attn_k_norm', shape: ['keyHeads', 'head'] },
];

const commandR: ModelClass = {
  architecture: 'command-r',
  traits: { pairs: 'neighbors', isCentered: true, isParallel: true },
  classes: { CohereForCausalLM: cohereDefaults },
  preTokenizers: { smollm: 'command-r', starcoder: 'command-r' },
  only: { ...siluSettings, attention_bias: [false] },
  decoder: { normEpsilon: 'layer_norm_eps', plainHeads: true },
  scaling: [],
  details({ config, sizes, keys }) {
    // llama.cpp expects norms of queries and keys in the largest model, Command R+, whatever the file says.
    const hasHeadNorms = config.maybeFlag('use_qk_norm') ?? false;
    if (hasHeadNorms !== sizes.layers >= 64)
      unsupportedConfig(
        `use_qk_norm is ${hasHeadNorms}; llama.cpp computes ${sizes.layers} layers with ${!hasHeadNorms} only`,
      );
    return {
      keys: {
        context_length: config.maybeWhole('model_max_length') ?? keys.context_length,
        logit_scale: config.positive('logit_scale'),
        'rope.scaling.type': 'none',
      },
      table: {
        outside: [embedding, finalNorm],
        layer: [...norms.slice(0, 1), ...attention, ...(hasHeadNorms ? normsOfAllHeads : []), ...feedForward],
      },
    };
  },
  mlx: { cohere: { head: 'tied' } },
};

const cohere2: ModelClass = {
  architecture: 'cohere2',
  traits: {
    pairs: 'neighbors',
    isCentered: true,
    isParallel: true,
    slides: allBut(4),
    rotatesWindowsOnly: true,
  },
  classes: { Cohere2ForCausalLM: { ...cohereDefaults, sliding_window: 4096 } },
  preTokenizers: { smollm: 'command-r', starcoder: 'command-r' },
  only: { ...siluSettings, attention_bias: [false], sliding_window_pattern: [4] },
  decoder: { normEpsilon: 'layer_norm_eps' },
  scaling: [],
  table: { outside: [embedding, finalNorm], layer: [...norms.slice(0, 1), ...attention, ...feedForward] },
  details(draft) {
    const { config, sizes } = draft;
    const window = config.whole('sliding_window');
    threeOfFourWindows(draft);
    const dimensions = Math.floor(config.positive('rotary_pct', 1) * Math.floor(sizes.hidden / sizes.heads));
    if (dimensions !== sizes.head)
      unsupportedConfig(`${dimensions} of ${sizes.head} elements of a head turn; llama.cpp turns all of them`);
    return {
      keys: {
        logit_scale: config.positive('logit_scale'),
        'attention.sliding_window': window,
        vocab_size: sizes.vocabulary,
        'rope.dimension_count': dimensions,
        'rope.scaling.type': 'none',
      },
    };
  },
  mlx: { cohere2: { head: 'tied' } },
};

export const cohereFamily: readonly ModelClass[] = [commandR, cohere2];
