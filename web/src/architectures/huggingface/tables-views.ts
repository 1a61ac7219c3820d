/**
 * Tensors of architectures whose matrices are stored transposed, or whose parts lie apart.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7, conversion/ gpt2.py 5535795, deepseek.py 01a723d,
 * gpt_oss.py 2984e6e; llama4.py of Tippach/Franken-Llama 1774451.
 */
import type { ElementView } from '../../formats/format.js';
import {
  attention,
  feedForward,
  finalNorm,
  headNorms,
  layerPrefix,
  norms,
  onlyIn,
  outsideDecoder,
  separateExperts,
  sharedExperts,
  withBias,
  withoutHead,
} from './tables.js';
import type { Row, Sizes, TensorTable, ViewOf } from './tensors.js';

/** Columns of a matrix as rows. */
function transposed(rows: number, columns: number): ElementView {
  const dims = [
    [columns, 1],
    [rows, columns],
  ] as const;
  return { offset: 0, dims };
}

/** A matrix that is stored with its inputs as rows. */
function turned(from: string, to: string, [inputs, outputs]: readonly [keyof Sizes, keyof Sizes]): Row {
  const view: ViewOf = (sizes) => transposed(sizes[inputs], sizes[outputs]);
  return { from, to, shape: [inputs, outputs], as: [outputs, inputs], view, bias: 'always' };
}

export const gpt2: TensorTable = {
  layerPrefix: 'h.',
  outside: [
    { from: 'wte', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
    { from: 'wpe', to: 'position_embd', shape: ['positions', 'hidden'] },
    { ...finalNorm, from: 'ln_f', bias: 'always' },
    { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'], optional: true },
  ],
  layer: [
    { from: 'ln_1', to: 'attn_norm', shape: ['hidden'], bias: 'always' },
    { from: 'ln_2', to: 'ffn_norm', shape: ['hidden'], bias: 'always' },
    turned('attn.c_attn', 'attn_qkv', ['hidden', 'threeHidden']),
    turned('attn.c_proj', 'attn_output', ['hidden', 'hidden']),
    turned('mlp.c_fc', 'ffn_up', ['hidden', 'feedForward']),
    turned('mlp.c_proj', 'ffn_down', ['feedForward', 'hidden']),
  ],
  // Masks of old files.
  rename: (name) => (/\.attn\.(bias|masked_bias)$/.test(name) ? undefined : name.replace(/^transformer\./, '')),
};

/**
 * Gates or ups of all experts, in columns of one tensor [experts, inputs, 2 · outputs].
 * @param first the first column
 * @param step columns from one to the next
 */
const columnsOfExperts =
  (first: (outputs: number) => number, step: number): ViewOf =>
  ({ experts, hidden, expertFeedForward: outputs }) => {
    const width = 2 * outputs;
    const dims = [
      [experts, hidden * width],
      [outputs, step],
      [hidden, width],
    ] as const;
    return { offset: first(outputs), dims };
  };

const downOfExperts: ViewOf = ({ experts, hidden, expertFeedForward: inputs }) => {
  const dims = [
    [experts, inputs * hidden],
    [hidden, 1],
    [inputs, hidden],
  ] as const;
  return { offset: 0, dims };
};

/** Experts that are stored with their inputs as rows. @param gate the gates' columns. @param up those of the ups */
const turnedExperts = (name: string, gate: ViewOf, up: ViewOf): Row[] => [
  {
    from: `${name}.gate_up_proj`,
    to: '',
    whole: '.weight',
    shape: ['experts', 'hidden', 'twoExpertFeedForward'],
    shares: [
      { to: 'ffn_gate_exps', shape: ['experts', 'expertFeedForward', 'hidden'], view: gate },
      { to: 'ffn_up_exps', shape: ['experts', 'expertFeedForward', 'hidden'], view: up },
    ],
  },
  {
    from: `${name}.down_proj`,
    to: 'ffn_down_exps',
    whole: '.weight',
    shape: ['experts', 'expertFeedForward', 'hidden'],
    as: ['experts', 'hidden', 'expertFeedForward'],
    view: downOfExperts,
  },
];

/** Qwen3-VL with experts, which are stored with their inputs as rows. */
export const qwen3vlmoe: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    ...norms,
    ...attention,
    ...headNorms,
    { from: 'mlp.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
    ...turnedExperts(
      'mlp.experts',
      columnsOfExperts(() => 0, 1),
      columnsOfExperts((outputs) => outputs, 1),
    ),
  ],
};

/** @param hasExperts true for layers with experts in the place of a dense part */
export const llama4 = (hasExperts: (layer: number) => boolean): TensorTable => ({
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    ...norms,
    ...attention,
    ...onlyIn(
      feedForward.map((row) => ({ ...row, from: row.from.replace('mlp', 'feed_forward') })),
      (layer) => !hasExperts(layer),
    ),
    ...onlyIn(
      [
        { from: 'feed_forward.router', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
        ...turnedExperts(
          'feed_forward.experts',
          columnsOfExperts(() => 0, 1),
          columnsOfExperts((outputs) => outputs, 1),
        ),
        ...sharedExperts('feed_forward.shared_expert'),
      ],
      hasExperts,
    ),
  ],
});

/** Every second bias of each expert. */
const everySecond =
  (offset: 0 | 1): ViewOf =>
  ({ experts, expertFeedForward: outputs }) => {
    const dims = [
      [experts, 2 * outputs],
      [outputs, 2],
    ] as const;
    return { offset, dims };
  };

/** Every second row of each expert, in the usual order of inputs and outputs. */
const everySecondRow =
  (first: 0 | 1): ViewOf =>
  ({ experts, hidden, expertFeedForward: outputs }) => {
    const dims = [
      [experts, 2 * outputs * hidden],
      [outputs, 2 * hidden],
      [hidden, 1],
    ] as const;
    return { offset: first * hidden, dims };
  };

/** Experts of gpt-oss in MXFP4. */
const codedExperts: readonly Row[] = [
  {
    from: 'mlp.experts.gate_up_proj',
    to: '',
    whole: '.weight',
    shape: ['experts', 'twoExpertFeedForward', 'hidden'],
    shares: [
      { to: 'ffn_gate_exps', shape: ['experts', 'expertFeedForward', 'hidden'], view: everySecondRow(0) },
      { to: 'ffn_up_exps', shape: ['experts', 'expertFeedForward', 'hidden'], view: everySecondRow(1) },
    ],
  },
  {
    from: 'mlp.experts.down_proj',
    to: 'ffn_down_exps',
    whole: '.weight',
    shape: ['experts', 'hidden', 'expertFeedForward'],
  },
];

/** gpt-oss, whose gates and ups take turns. @param coded true if its experts are in MXFP4 */
export const gptOss = (coded: boolean): TensorTable => ({
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
    { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
    ...withBias(attention, 'always'),
    { from: 'self_attn.sinks', to: 'attn_sinks', whole: '.weight', shape: ['heads'] },
    { from: 'mlp.router', to: 'ffn_gate_inp', shape: ['experts', 'hidden'], bias: 'always' },
    ...(coded
      ? codedExperts
      : turnedExperts(
          'mlp.experts',
          columnsOfExperts(() => 0, 2),
          columnsOfExperts(() => 1, 2),
        )),
    {
      from: 'mlp.experts.gate_up_proj_bias',
      to: '',
      whole: '.bias',
      shape: ['experts', 'twoExpertFeedForward'],
      shares: [
        { to: 'ffn_gate_exps', shape: ['experts', 'expertFeedForward'], view: everySecond(0) },
        { to: 'ffn_up_exps', shape: ['experts', 'expertFeedForward'], view: everySecond(1) },
      ],
    },
    { from: 'mlp.experts.down_proj_bias', to: 'ffn_down_exps', whole: '.bias', shape: ['experts', 'hidden'] },
  ],
});

/** Sizes of latent attention. */
export interface Latent {
  /** Elements of the compressed queries; undefined if queries are not compressed. */
  readonly queryRank: number | undefined;
  readonly rank: number;
  /** Elements of a head's key without and with a rotary embedding, and of its value. */
  readonly plain: number;
  readonly rotated: number;
  readonly value: number;
}

/** Keys and values of each head in one matrix, of which llama.cpp wants the keys transposed. */
const latentKeys = ({ rank, plain, value }: Latent): Pick<Row, 'shares'> => {
  const each = (plain + value) * rank;
  const keys: ViewOf = ({ heads }) => {
    const dims = [
      [heads, each],
      [rank, 1],
      [plain, rank],
    ] as const;
    return { offset: 0, dims };
  };
  const values: ViewOf = ({ heads }) => {
    const dims = [
      [heads, each],
      [value * rank, 1],
    ] as const;
    return { offset: plain * rank, dims };
  };
  return {
    shares: [
      { to: 'attn_k_b', shape: ['heads', rank, plain], view: keys },
      { to: 'attn_v_b', shape: ['heads', value, rank], view: values },
    ],
  };
};

/** Latent attention of DeepSeek. */
function latentAttention(heads: number, latent: Latent): Row[] {
  const { queryRank, rank, plain, rotated, value } = latent;
  const queries = heads * (plain + rotated);
  const own: Row[] =
    queryRank === undefined
      ? [{ from: 'self_attn.q_proj', to: 'attn_q', shape: [queries, 'hidden'] }]
      : [
          { from: 'self_attn.q_a_proj', to: 'attn_q_a', shape: [queryRank, 'hidden'] },
          { from: 'self_attn.q_a_layernorm', to: 'attn_q_a_norm', shape: [queryRank] },
          { from: 'self_attn.q_b_proj', to: 'attn_q_b', shape: [queries, queryRank] },
        ];
  return [
    ...own,
    { from: 'self_attn.kv_a_proj_with_mqa', to: 'attn_kv_a_mqa', shape: [rank + rotated, 'hidden'] },
    { from: 'self_attn.kv_a_layernorm', to: 'attn_kv_a_norm', shape: [rank] },
    { from: 'self_attn.kv_b_proj', to: '', shape: [heads * (plain + value), rank], ...latentKeys(latent) },
    { from: 'self_attn.o_proj', to: 'attn_output', shape: ['hidden', heads * value] },
  ];
}

/**
 * @param layers those of the model; further ones, which predict further tokens, are left out
 * @param dense layers without experts at the beginning
 * @param tied true if the head is the embedding
 */
export const deepseek2 = (
  layers: number,
  heads: number,
  latent: Latent,
  {
    dense,
    hasShared,
    corrects,
    tied,
  }: Readonly<Record<'hasShared' | 'corrects' | 'tied', boolean>> & { dense: number },
): TensorTable => ({
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    ...norms,
    ...latentAttention(heads, latent),
    ...onlyIn(feedForward, (layer) => layer < dense),
    ...onlyIn(
      [
        { from: 'mlp.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
        ...(corrects
          ? ([
              { from: 'mlp.gate.e_score_correction_bias', to: 'exp_probs_b', whole: '.bias', shape: ['experts'] },
            ] as const)
          : []),
        ...separateExperts,
        ...(hasShared ? sharedExperts('mlp.shared_experts') : []),
      ],
      (layer) => layer >= dense,
    ),
  ],
  rename: (name) => {
    const layer = /^model\.layers\.(\d+)\./.exec(name)?.[1];
    if (layer !== undefined && Number(layer) >= layers) return undefined;
    return tied ? withoutHead(name) : name;
  },
});
