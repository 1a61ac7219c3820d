/**
 * RWKV 7, whose layers mix each token with the one before, and keep a matrix of states for each head.
 * Reference: github.com/ggml-org/llama.cpp, conversion/rwkv.py at 32e9e04, src/models/ rwkv7.cpp and rwkv7-base.cpp; for the folders
 * fla-org/flash-linear-attention at 0315a70, fla/models/rwkv7/ and fla/layers/rwkv7.py. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { type ModelClass, vocabularyOf } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { anyLength } from './mamba.js';

/** Uses of a token and the one before it, each with shares of its own, in the order of llama.cpp. */
const mixes = ['r', 'w', 'k', 'v', 'a', 'g'];

/** Names of folders in place of others, as llama.cpp's converter replaces them one after the other. */
const renames: readonly (readonly [from: RegExp | string, to: string])[] = [
  ['.blocks.', '.layers.'],
  ['ffn', 'feed_forward'],
  [/self_attn|attn/, 'attention'],
  ['time_mixer.', ''],
  ['_lora.lora.0.weight', '1'],
  ['_lora.lora.2.weight', '2'],
  ['_lora.lora.2.bias', '0'],
  [/feed_forward_norm/, 'ln2'],
  ['attention_norm', 'ln1'],
  ['g_norm', 'ln_x'],
  [/\.r_proj\b/, '.receptance'],
  [/\.k_proj\b/, '.key'],
  [/\.v_proj\b/, '.value'],
  [/\.o_proj\b/, '.output'],
  ['layers.0.pre_norm', 'pre_ln'],
  ['model.norm.', 'model.ln_out.'],
  [/^lm_head\./, 'head.'],
];

/** The epsilon of the norm of heads in llama.cpp. */
const headEpsilon = 64e-5;

/** The elements of a narrow matrix that the others are made of, by the rule of the first models. */
const ranks = [
  ['lora_rank_decay', 'decay_low_rank_dim', 0.5, 1.8],
  ['lora_rank_iclr', 'a_low_rank_dim', 0.5, 1.8],
  ['lora_rank_value_residual_mix', 'v_low_rank_dim', 0.5, 1.3],
  ['lora_rank_gate', 'gate_low_rank_dim', 0.8, 0.6],
] as const;

export const rwkv7: ModelClass = {
  architecture: 'rwkv7',
  classes: { RWKV7ForCausalLM: {}, Rwkv7ForCausalLM: {} },
  only: { hidden_act: ['sqrelu'], norm_first: [true], norm_bias: [true], attn: [null], tie_word_embeddings: [false] },
  numbers(read) {
    const { config } = read;
    const [layers, hidden] = [config.whole('num_hidden_layers'), config.whole('hidden_size')];
    const [epsilon, head] = [
      config.maybePositive('layer_norm_epsilon') ?? config.positive('norm_eps'),
      config.maybeWhole('head_size') ?? config.whole('head_dim'),
    ];
    if (hidden % head !== 0) badConfig(`hidden_size ${hidden} is not a multiple of the ${head} elements of a head`);
    if (head !== 64 && head !== 128)
      unsupportedConfig(`a head has ${head} elements; llama.cpp computes heads of 64 and 128 alone`);
    if (Math.fround(head * epsilon) !== Math.fround(headEpsilon))
      unsupportedConfig(`heads are normed with an addend of ${show(head * epsilon)}; llama.cpp adds ${headEpsilon}`);
    const heads = hidden / head;
    const feedForward = config.maybeWhole('intermediate_size') ?? 4 * hidden;
    const keys = {
      block_count: layers,
      context_length: anyLength,
      embedding_length: hidden,
      feed_forward_length: feedForward,
      'attention.head_count': 0,
      'attention.layer_norm_epsilon': epsilon,
      'wkv.head_size': head,
    };
    const all = { queries: hidden, keys: hidden, together: 3 * hidden, feedForward };
    return { keys, sizes: { ...all, layers, hidden, heads, keyHeads: heads, head, vocabulary: vocabularyOf(read) } };
  },
  details({ config, sizes, names }) {
    const { hidden } = sizes;
    const rankOf = ([name, other, power, factor]: (typeof ranks)[number]) =>
      config.maybeWhole(name) ??
      config.maybeWhole(other) ??
      32 * Math.max(1, Math.round((hidden ** power * factor) / 32));
    const [decay, iclr, residual, gate] = ranks.map(rankOf) as [number, number, number, number];
    const isTurned = !names.some((name) => name.includes('_lora.lora'));
    const isJoined = names.some((name) => name.endsWith('.x_x'));
    const from = (name: string) => ({ from: `attention.${name}`, whole: '.weight' as const, squeezed: true as const });
    /** A matrix [rows, columns] of llama.cpp, which the first models store transposed. */
    const matrix = (name: string, rows: number, columns: number): Row => ({
      ...from(name),
      to: `time_mix_${name}`,
      shape: isTurned ? [columns, rows] : [rows, columns],
      ...(isTurned
        ? {
            as: [rows, columns],
            view: () => ({
              offset: 0,
              dims: [
                [rows, 1],
                [columns, rows],
              ] as const,
            }),
          }
        : {}),
    });
    const vector = (name: string, shape: Row['shape'] = ['hidden']): Row => {
      return { ...from(name), to: `time_mix_${name}`, shape, as: ['hidden'] };
    };
    const low = (name: string, rank: number): Row[] => [
      vector(`${name}0`),
      matrix(`${name}1`, rank, hidden),
      matrix(`${name}2`, hidden, rank),
    ];
    const square = (name: string): Row => ({
      from: `attention.${name}`,
      to: `time_mix_${name}`,
      shape: ['hidden', 'hidden'],
    });
    const isFirst = (layer: number) => layer === 0;
    // The first layer has no values before it. llama.cpp reads matrices there, and does not use them: the converter takes those of the rates.
    const dummies = low('a', iclr).map((row): Row => {
      const share = { shape: row.as ?? row.shape, ...(row.view && { view: row.view }) };
      const targets = [row.to, row.to.replace('_a', '_v')];
      return { ...row, only: isFirst, shares: targets.map((to) => ({ ...share, to })) };
    });
    const lerp = { to: 'time_mix_lerp_fused', whole: '.weight', squeezed: true } as const;
    const norm = (name: string, to: string): Row => ({ from: name, to, shape: ['hidden'], bias: 'always' });
    return {
      keys: {
        'attention.decay_lora_rank': decay,
        'attention.iclr_lora_rank': iclr,
        'attention.value_residual_mix_lora_rank': residual,
        'attention.gate_lora_rank': gate,
      },
      templates: { default: 'rwkv-world' },
      table: {
        outside: [
          { from: 'model.embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
          norm('model.pre_ln', 'token_embd_norm'),
          norm('model.ln_out', 'output_norm'),
          { from: 'head', to: 'output', shape: ['vocabulary', 'hidden'] },
        ],
        layer: [
          norm('ln1', 'attn_norm'),
          norm('ln2', 'attn_norm_2'),
          ...low('w', decay),
          ...low('a', iclr).map((row): Row => ({ ...row, only: (layer) => layer > 0 })),
          ...dummies,
          ...low('v', residual).map((row): Row => ({ ...row, only: (layer) => layer > 0 })),
          matrix('g1', gate, hidden),
          matrix('g2', hidden, gate),
          isJoined
            ? { ...lerp, from: 'attention.x_x', shape: [6, 'hidden'], as: [6, 1, 1, 'hidden'] }
            : { ...lerp, from: 'attention.x_#', shape: [1, 1, 'hidden'], count: 6 },
          vector('k_k'),
          vector('k_a'),
          vector('r_k', ['heads', 'head']),
          ...['key', 'value', 'receptance', 'output'].map(square),
          norm('attention.ln_x', 'time_mix_ln'),
          { from: 'feed_forward.x_k', to: 'channel_mix_lerp_k', whole: '.weight', shape: ['hidden'], squeezed: true },
          { from: 'feed_forward.key', to: 'channel_mix_key', shape: ['feedForward', 'hidden'] },
          { from: 'feed_forward.value', to: 'channel_mix_value', shape: ['hidden', 'feedForward'] },
        ],
        rename(given) {
          const name = renames.reduce((all, [one, other]) => all.replace(one, other), given);
          // Some folders have matrices of the first layer that nothing uses.
          if (/\.layers\.0\.attention\.v[012]$/.test(name)) return undefined;
          return name.replace(/\.attention\.x_([rwkvag])$/, (_, mix: string) => `.attention.x_${mixes.indexOf(mix)}`);
        },
      },
    };
  },
};
