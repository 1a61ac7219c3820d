/**
 * Tensors of models with selective state spaces: Mamba, Mamba 2, Falcon-H1, and Granite with layers of Mamba 2.
 * Reference: github.com/Tippach/Franken-Llama 1774451, conversion/ mamba.py, falcon_h1.py and granite.py.
 */
import {
  attention,
  embedding,
  feedForward,
  finalNorm,
  head,
  layerPrefix,
  llamaAttention,
  norms,
  onlyIn,
  outsideDecoder,
} from './tables.js';
import { graniteMoe } from './tables-experts.js';
import type { Row, TensorTable } from './tensors.js';

/** Sizes of a selective state space. */
export interface StateSpace {
  /** Elements of all channels. */
  readonly inner: number;
  /** Elements of a channel's state. */
  readonly state: number;
  /** Tokens that its convolution sees. */
  readonly convolved: number;
  /** Mamba: elements that the steps of all channels are made of. Mamba 2: heads. */
  readonly steps: number;
  /** Groups of heads that share their inputs and outputs of states; 1 in Mamba. */
  readonly groups: number;
}

/** Names of the model and its layers; the head is the embedding. */
function table(layer: readonly Row[], tied: boolean): TensorTable {
  return {
    layerPrefix: 'backbone.layers.',
    outside: [
      { from: 'backbone.embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
      { ...finalNorm, from: 'backbone.norm_f' },
      { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'], optional: true },
    ],
    layer,
    rename(name) {
      const own = name.replace(/^model\.(?=backbone|lm_head)/, '');
      return tied && own === 'lm_head.weight' ? undefined : own;
    },
  };
}

const layerNorm: Row = { from: 'norm', to: 'attn_norm', shape: ['hidden'] };

export const mamba = ({ inner, state, convolved, steps }: StateSpace, tied: boolean): TensorTable =>
  table(
    [
      layerNorm,
      { from: 'mixer.A_log', to: 'ssm_a', whole: '', shape: [inner, state], negativeExp: true },
      { from: 'mixer.D', to: 'ssm_d', whole: '', shape: [inner] },
      { from: 'mixer.conv1d', to: 'ssm_conv1d', shape: [inner, 1, convolved], as: [inner, convolved], bias: 'always' },
      { from: 'mixer.in_proj', to: 'ssm_in', shape: [2 * inner, 'hidden'] },
      { from: 'mixer.x_proj', to: 'ssm_x', shape: [steps + 2 * state, inner] },
      { from: 'mixer.dt_proj', to: 'ssm_dt', shape: [inner, steps], bias: 'always' },
      { from: 'mixer.out_proj', to: 'ssm_out', shape: ['hidden', inner] },
    ],
    tied,
  );

/** Tensors of Mamba 2 under a prefix. */
function mamba2Rows(prefix: string, { inner, state, convolved, steps: heads, groups }: StateSpace): Row[] {
  const channels = inner + 2 * groups * state;
  return [
    { from: `${prefix}A_log`, to: 'ssm_a', whole: '', shape: [heads], as: [heads, 1], negativeExp: true },
    { from: `${prefix}D`, to: 'ssm_d', whole: '', shape: [heads], as: [heads, 1] },
    { from: `${prefix}dt_bias`, to: 'ssm_dt', whole: '.bias', shape: [heads] },
    {
      from: `${prefix}conv1d`,
      to: 'ssm_conv1d',
      shape: [channels, 1, convolved],
      as: [channels, convolved],
      bias: 'always',
    },
    { from: `${prefix}in_proj`, to: 'ssm_in', shape: [inner + channels + heads, 'hidden'] },
    { from: `${prefix}norm`, to: 'ssm_norm', shape: [inner], as: [groups, inner / groups] },
    { from: `${prefix}out_proj`, to: 'ssm_out', shape: ['hidden', inner] },
  ];
}

export const mamba2 = (space: StateSpace, tied: boolean): TensorTable =>
  table([layerNorm, ...mamba2Rows('mixer.', space)], tied);

/** Factors of Falcon-H1, which become parts of its weights. */
export interface FalconFactors {
  readonly embedding: number;
  readonly head: number;
  readonly gate: number;
  readonly down: number;
  readonly key: number;
  readonly attentionIn: number;
  readonly attentionOut: number;
  readonly stateIn: number;
  readonly stateOut: number;
  /** Rows of the gate, the channels, the inputs and the outputs of states, and the steps. */
  readonly states: readonly number[];
}

/** One number for each of some rows; undefined if it is 1. */
function rowsOf(rows: readonly (readonly [count: number, factor: number])[]): Float32Array<ArrayBuffer> | undefined {
  if (rows.every(([, factor]) => factor === 1)) return undefined;
  return Float32Array.from(rows.flatMap(([count, factor]) => new Array<number>(count).fill(factor)));
}

/** Falcon-H1, whose layers add what attention and Mamba 2 make of the same states. @param keys rows of all keys. @param normed true if the outputs of states have norms */
export const falconH1 = (space: StateSpace, keys: number, factors: FalconFactors, normed: boolean): TensorTable => {
  const { inner, state, steps, groups } = space;
  const [gate, channels, ins, outs, step] = factors.states as [number, number, number, number, number];
  const times: Readonly<Record<string, Partial<Row>>> = {
    token_embd: { factor: factors.embedding },
    output: { factor: factors.head },
    ffn_gate: { factor: factors.gate },
    ffn_down: { factor: factors.down },
    attn_q: { factor: factors.attentionIn },
    attn_k: { factor: factors.key, rowFactors: rowsOf([[keys, factors.attentionIn]]) },
    attn_v: { factor: factors.attentionIn },
    attn_output: { factor: factors.attentionOut },
    ssm_out: { factor: factors.stateOut },
    ssm_in: {
      factor: factors.stateIn,
      rowFactors: rowsOf([
        [inner, gate],
        [inner, channels],
        [groups * state, ins],
        [groups * state, outs],
        [steps, step],
      ]),
    },
  };
  const withFactors = (row: Row): Row => ({ ...row, ...times[row.to] });
  return {
    layerPrefix,
    outside: [embedding, { ...finalNorm, from: 'model.final_layernorm' }, head].map(withFactors),
    layer: [
      { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
      // llama.cpp reads this norm under a name without an ending.
      { from: 'pre_ff_layernorm.weight', to: 'ffn_norm', whole: '', shape: ['hidden'] },
      ...attention.map(withFactors),
      ...mamba2Rows('mamba.', space)
        .filter(({ to }) => normed || to !== 'ssm_norm')
        .map(withFactors),
      ...feedForward.map((row) => withFactors({ ...row, from: row.from.replace('mlp.', 'feed_forward.') })),
    ],
  };
};

/** Gate and up in one matrix, and down, of a part that all tokens pass. */
const denseTogether: readonly Row[] = [
  {
    from: 'shared_mlp.input_linear',
    to: '',
    shape: ['twoSharedFeedForward', 'hidden'],
    shares: [
      {
        to: 'ffn_gate',
        shape: ['sharedFeedForward', 'hidden'],
        windows: ({ sharedFeedForward }) => [[0, sharedFeedForward]],
      },
      {
        to: 'ffn_up',
        shape: ['sharedFeedForward', 'hidden'],
        windows: ({ sharedFeedForward }) => [[sharedFeedForward, sharedFeedForward]],
      },
    ],
  },
  { from: 'shared_mlp.output_linear', to: 'ffn_down', shape: ['hidden', 'sharedFeedForward'] },
];

/**
 * @param space undefined if no layer has Mamba 2
 * @param attends true for layers with attention
 * @param hasExperts false if the part that all tokens pass is the only one
 */
export const graniteHybrid = (
  space: StateSpace | undefined,
  attends: (layer: number) => boolean,
  hasExperts: boolean,
): TensorTable => {
  const isAttention = ({ to }: Row) => llamaAttention.some((row) => row.to === to);
  const { layer, ...rest } = graniteMoe(true);
  const grown = hasExperts ? layer.filter((row) => !isAttention(row) && !norms.includes(row)) : denseTogether;
  return {
    ...rest,
    outside: outsideDecoder,
    layer: [
      ...norms,
      ...onlyIn(llamaAttention, attends),
      ...(space === undefined ? [] : onlyIn(mamba2Rows('mamba.', space), (one) => !attends(one))),
      ...grown,
    ],
  };
};
