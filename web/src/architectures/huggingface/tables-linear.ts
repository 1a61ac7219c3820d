/**
 * Tensors of models whose layers have linear attention (gated delta nets) in three of four.
 * Reference: github.com/Tippach/Franken-Llama 1774451, conversion/qwen.py; names as in gguf-py/gguf/tensor_mapping.py there.
 */
import { greatestCommonDivisor } from '../../formats/codecs/elements.js';
import type { RowWindow } from '../recipe.js';
import {
  attention,
  feedForward,
  headNorms,
  layerPrefix,
  norms,
  onlyIn,
  outsideDecoder,
  plusOne,
  qwenExperts,
  sharedExperts,
} from './tables.js';
import type { Row, RowsOf, TensorTable, ViewOf } from './tensors.js';

/** Sizes of linear attention. */
export interface Linear {
  readonly keyHeads: number;
  readonly valueHeads: number;
  /** Elements of a head's key and value. */
  readonly key: number;
  readonly value: number;
  /** Tokens that its convolution sees. */
  readonly convolved: number;
}

/** Windows of equal length that cover others. */
function evenly(windows: readonly RowWindow[]): readonly RowWindow[] {
  const unit = windows.reduce((common, [, rows]) => greatestCommonDivisor(common, rows), 0);
  return windows.flatMap(([first, rows]) =>
    Array.from({ length: rows / unit }, (_, i) => [first + i * unit, unit] as const),
  );
}

/** The heads of values of each key, in the order of llama.cpp: the first one of each key, then the second one of each. */
function valueOrder({ keyHeads, valueHeads }: Linear): number[] {
  const each = valueHeads / keyHeads;
  return Array.from({ length: valueHeads }, (_, i) => (i % keyHeads) * each + Math.floor(i / keyHeads));
}

/** Rows of values, of some rows each, behind `from` rows that stay in their place. */
const orderedRows =
  (linear: Linear, rows: number, from = 0): RowsOf =>
  () => {
    const values = valueOrder(linear).map((head) => [from + head * rows, rows] as const);
    return evenly(from === 0 ? values : [[0, from], ...values]);
  };

/** A tensor whose rows change places. */
const ordered = (row: Row, to: string, windows: RowsOf): Row => ({
  ...row,
  to: '',
  shares: [{ to, shape: row.as ?? row.shape, windows }],
});

/** Columns of values in the order of llama.cpp. */
const orderedColumns =
  ({ keyHeads, valueHeads, value }: Linear): ViewOf =>
  ({ hidden }) => {
    const each = valueHeads / keyHeads;
    const dims = [
      [hidden, valueHeads * value],
      [each, value],
      [keyHeads, each * value],
      [value, 1],
    ] as const;
    return { offset: 0, dims };
  };

/** Queries, keys, values and gates of each head of keys in one matrix. */
function together({ keyHeads, valueHeads, key, value }: Linear): Row {
  const values = (valueHeads / keyHeads) * value;
  const each = 2 * key + 2 * values;
  const parts = (first: number, rows: number) =>
    Array.from({ length: keyHeads }, (_, h) => [h * each + first, rows] as const);
  const all = keyHeads * each;
  return {
    from: 'linear_attn.in_proj_qkvz',
    to: '',
    shape: [all, 'hidden'],
    shares: [
      {
        to: 'attn_qkv',
        shape: [2 * keyHeads * key + valueHeads * value, 'hidden'],
        windows: () => evenly([...parts(0, key), ...parts(key, key), ...parts(2 * key, values)]),
      },
      {
        to: 'attn_gate',
        shape: [valueHeads * value, 'hidden'],
        windows: () => evenly(parts(2 * key + values, values)),
      },
    ],
  };
}

/** Tensors of linear attention that all models have. `moves` is true if heads of values change places. */
function linearAttention(linear: Linear, moves: boolean): Row[] {
  const { keyHeads, valueHeads, key, value, convolved } = linear;
  const channels = 2 * keyHeads * key + valueHeads * value;
  const decay: Row = { from: 'linear_attn.A_log', to: 'ssm_a', whole: '', shape: [valueHeads], negativeExp: true };
  const step: Row = { from: 'linear_attn.dt_bias', to: 'ssm_dt', whole: '.bias', shape: [valueHeads] };
  const convolution: Row = {
    from: 'linear_attn.conv1d',
    to: 'ssm_conv1d',
    shape: [channels, 1, convolved],
    as: [channels, convolved],
  };
  const output: Row = { from: 'linear_attn.out_proj', to: 'ssm_out', shape: ['hidden', valueHeads * value] };
  const norm: Row = { from: 'linear_attn.norm', to: 'ssm_norm', shape: [value] };
  if (!moves) return [decay, step, convolution, norm, output];
  return [
    ordered(decay, 'ssm_a', orderedRows(linear, 1)),
    ordered(step, 'ssm_dt', orderedRows(linear, 1)),
    ordered(convolution, 'ssm_conv1d', orderedRows(linear, value, 2 * keyHeads * key)),
    norm,
    { ...output, as: output.shape, view: orderedColumns(linear) },
  ];
}

/** Projections of Qwen3.5, a tensor each. */
function apart(linear: Linear, moves: boolean): Row[] {
  const { keyHeads, valueHeads, key, value } = linear;
  const keys = 2 * keyHeads * key;
  const rows = (from: string, to: string, count: number, windows: RowsOf): Row => {
    const row: Row = { from: `linear_attn.${from}`, to, shape: [count, 'hidden'] };
    return moves ? ordered(row, to, windows) : row;
  };
  return [
    rows('in_proj_qkv', 'attn_qkv', keys + valueHeads * value, orderedRows(linear, value, keys)),
    rows('in_proj_z', 'attn_gate', valueHeads * value, orderedRows(linear, value)),
    rows('in_proj_b', 'ssm_beta', valueHeads, orderedRows(linear, 1)),
    rows('in_proj_a', 'ssm_alpha', valueHeads, orderedRows(linear, 1)),
  ];
}

/** Full attention, whose queries come with gates. */
const gatedAttention: readonly Row[] = [
  { from: 'self_attn.q_proj', to: 'attn_q', shape: ['twoQueries', 'hidden'] },
  ...attention.slice(1),
  ...plusOne(headNorms),
];

const layerNorms = plusOne([
  norms[0] as Row,
  { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
]);

const mixture = (stacked: boolean): Row[] => [
  ...qwenExperts(stacked),
  { from: 'mlp.shared_expert_gate', to: 'ffn_gate_inp_shexp', shape: [1, 'hidden'] },
  ...sharedExperts('mlp.shared_expert'),
];

/** Leaves out the layers that predict further tokens. */
const withoutMore = (name: string) => (/^(model\.)?mtp\./.test(name) ? undefined : name);

function tableOf(layer: readonly Row[]): TensorTable {
  return { layerPrefix, outside: plusOne(outsideDecoder), layer, rename: withoutMore };
}

/** @param isLinear true for layers with linear attention */
export const qwen3next = (linear: Linear, isLinear: (layer: number) => boolean, stacked: boolean): TensorTable =>
  tableOf([
    ...layerNorms,
    ...onlyIn(gatedAttention, (layer) => !isLinear(layer)),
    ...onlyIn(
      [
        together(linear),
        { from: 'linear_attn.in_proj_ba', to: 'ssm_ba', shape: [2 * linear.valueHeads, 'hidden'] },
        ...linearAttention(linear, false),
      ],
      isLinear,
    ),
    ...mixture(stacked),
  ]);

/** @param experts undefined without experts; else true if they are stacked */
export const qwen35 = (
  linear: Linear,
  isLinear: (layer: number) => boolean,
  experts: boolean | undefined,
): TensorTable => {
  const moves = linear.keyHeads !== linear.valueHeads;
  return tableOf([
    ...layerNorms,
    ...onlyIn(gatedAttention, (layer) => !isLinear(layer)),
    ...onlyIn([...apart(linear, moves), ...linearAttention(linear, moves)], isLinear),
    ...(experts === undefined ? feedForward : mixture(experts)),
  ]);
};
