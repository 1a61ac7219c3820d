/**
 * Qwen2, Qwen3 and Qwen3.5, with experts, beside towers for pictures, and with linear attention (gated delta nets) in most layers.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ qwen.py at 03173d5 and qwen3vl.py 06e514f; qwen.py and qwenvl.py of
 * Tippach/Franken-Llama 1774451, without the layers that predict further tokens. Tests compare with llama.cpp v0.5.0.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { greatestCommonDivisor } from '../../formats/codecs/elements.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { arrayMember, type Json } from '../huggingface/json.js';
import {
  areStacked,
  checkSparse,
  type Draft,
  decoderDefaults,
  layerTypes,
  type ModelClass,
  never,
  readExperts,
  rotatedOf,
  siluSettings,
} from '../huggingface/reading.js';
import { ropeSections } from '../huggingface/rope.js';
import type { Row, RowsOf, TensorTable, ViewOf } from '../huggingface/tensors.js';
import type { DecoderGraph } from '../onnx/families.js';
import type { RowWindow } from '../recipe.js';
import { readLabels } from './bert.js';
import { nextName, nextRows } from './glm.js';
import {
  attention,
  embedding,
  feedForward,
  finalNorm,
  head,
  headNorms,
  norms,
  onlyIn,
  plusOne,
  qwenExperts,
  sharedExperts,
  turnedExperts,
  viewFrom,
  withBias,
  withoutHead,
  withPrefix,
} from './rows.js';

const qwen2Defaults = decoderDefaults([4096, 22016, 32], [32, 32], 32768);
const qwen3Defaults = { ...qwen2Defaults, head_dim: 128 };
const qwen2moeDefaults = decoderDefaults([2048, 5632, 24], [16, 16], 32768, {
  moe_intermediate_size: 1408,
  shared_expert_intermediate_size: 5632,
  num_experts: 60,
  num_experts_per_tok: 4,
});
const qwen2vlDefaults = decoderDefaults([8192, 29568, 80], [64, 8], 32768, { rms_norm_eps: 1e-5, rope_theta: 1e6 });
const longContext = { max_position_embeddings: 128000, rope_theta: 5e5 };

/** Attention of Qwen2, whose queries, keys and values have biases. */
const qwen2Attention = [...withBias(attention.slice(0, 3)), ...attention.slice(3)];
const qwen2Layer = [...norms, ...qwen2Attention, ...feedForward];

const qwen2Graph: DecoderGraph = { kind: 'decoder', modelType: 'qwen2', switchesWindow: true };
const qwen3Graph: DecoderGraph = { ...qwen2Graph, modelType: 'qwen3', headNorms: 'each' };

/** Numbers of WebLLM's libraries. */
const tiedFine = { rms_norm_eps: 1e-6, tie_word_embeddings: true };

const qwen2: ModelClass = {
  architecture: 'qwen2',
  traits: { pairs: 'halves' },
  classes: { Qwen2ForCausalLM: qwen2Defaults, Qwen2Model: qwen2Defaults },
  writesPooling: true,
  only: siluSettings,
  scaling: ['linear', 'yarn'],
  slides: never,
  table: {
    // Of the architectures whose transformers class has no bias here, llama.cpp adds that of this one alone.
    outside: [embedding, finalNorm, { ...head, bias: 'optional' }],
    layer: qwen2Layer,
    rename: withPrefix,
  },
  webllm: {
    Qwen2ForCausalLM: {
      modelType: 'qwen2',
      attention: 'c_attn',
      biases: true,
      fixed: { hidden_act: ['silu'], use_sliding_window: [false] },
      settings: ({ sizes, numbers: { rope_theta, tie_word_embeddings }, work }) => ({
        hidden_act: 'silu',
        ...sizes,
        rope_theta,
        tie_word_embeddings,
        dtype: 'float32',
        ...work,
      }),
      libraries: [
        ['Qwen2.5-0.5B-Instruct', 'qwen2', [896, 4864, 24], [14, 2, 64], 151936, 1000000, tiedFine],
        ['Qwen2.5-1.5B-Instruct', 'qwen2', [1536, 8960, 28], [12, 2, 128], 151936, 1000000, tiedFine],
        ['Qwen2.5-3B-Instruct', 'qwen2', [2048, 11008, 36], [16, 2, 128], 151936, 1000000, tiedFine],
        ['Qwen2.5-7B-Instruct', 'qwen2', [3584, 18944, 28], [28, 4, 128], 152064, 1000000, { rms_norm_eps: 1e-6 }],
      ],
    },
  },
  mlx: { qwen2: {} },
  onnx: { Qwen2ForCausalLM: qwen2Graph, Qwen2Model: qwen2Graph },
};

const qwen3Table: TensorTable = { layer: [...norms, ...attention, ...headNorms, ...feedForward], rename: withPrefix };

/**
 * The text that Qwen's rerankers were trained with. llama.cpp puts the query and the document into it.
 * Reference: the model cards of huggingface.co/Qwen/Qwen3-Reranker-0.6B and the larger ones.
 */
const rerankTemplate =
  '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. ' +
  'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n' +
  '<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n' +
  '<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n';
const ranks = {
  keys: { pooling_type: 4, 'classifier.output_labels': ['yes', 'no'] },
  templates: { rerank: rerankTemplate },
} as const;

const qwen3: ModelClass = {
  ...qwen2,
  architecture: 'qwen3',
  classes: {
    Qwen3ForCausalLM: qwen3Defaults,
    Qwen3Model: qwen3Defaults,
    StepVLForConditionalGeneration: qwen3Defaults,
  },
  only: { ...siluSettings, attention_bias: [false] },
  table: qwen3Table,
  details({ answers, config }) {
    if (answers === undefined) return {};
    // A reranker compares the logits of two tokens, whose rows are all that it needs of its head.
    const windows: RowsOf = () => answers.map((id) => [id, 1] as const);
    const answer = { to: 'cls.output', shape: [2, 'hidden'], windows } as const;
    const isTied = config.maybeFlag('tie_word_embeddings') === true;
    const rows: RowsOf = ({ vocabulary }) => [[0, vocabulary]];
    const whole = { to: embedding.to, shape: embedding.shape, windows: rows };
    const outside: Row[] = isTied
      ? [{ ...embedding, shares: [whole, answer] }, finalNorm]
      : [embedding, finalNorm, { ...head, shares: [answer] }];
    return { ...ranks, table: { ...qwen3Table, outside, ...(isTied ? { rename: rankerName } : {}) } };
  },
  webllm: {
    Qwen3ForCausalLM: {
      modelType: 'qwen3',
      attention: 'c_attn',
      headNorms: true,
      fixed: { hidden_act: ['silu'], attention_bias: [false], use_sliding_window: [false] },
      settings: ({ sizes, numbers: { rope_theta, tie_word_embeddings }, work }) => ({
        hidden_act: 'silu',
        attention_bias: false,
        ...sizes,
        rope_theta,
        tie_word_embeddings,
        dtype: 'float32',
        weight_block_size: null,
        ...work,
      }),
      libraries: [
        ['Qwen3-0.6B', 'qwen2', [1024, 3072, 28], [16, 8, 128], 151936, 1000000, tiedFine],
        ['Qwen3-1.7B', 'qwen2', [2048, 6144, 28], [16, 8, 128], 151936, 1000000, tiedFine],
        ['Qwen3-4B', 'qwen2', [2560, 9728, 36], [32, 8, 128], 151936, 1000000, tiedFine],
        ['Qwen3-8B', 'qwen2', [4096, 12288, 36], [32, 8, 128], 151936, 1000000, { rms_norm_eps: 1e-6 }],
      ],
    },
  },
  mlx: { qwen3: {} },
  onnx: { Qwen3ForCausalLM: qwen3Graph, Qwen3Model: qwen3Graph },
};

/** Names of a ranker whose head is its embedding. */
const rankerName = (name: string) => {
  const own = withoutHead(name);
  return own === undefined ? undefined : withPrefix(own);
};

/** Qwen3 with a classifier. One output is the difference of two, of which llama.cpp takes shares. */
const qwen3Classifier: ModelClass = {
  ...qwen3,
  classes: { Qwen3ForSequenceClassification: qwen3Defaults },
  traits: undefined,
  ties: false,
  details(draft) {
    const { keys, count } = readLabels(draft);
    const row: Row = { from: 'score', to: 'cls.output', shape: [count, 'hidden'] };
    const outside = [embedding, finalNorm, count === 1 ? { ...row, filledTo: 2 } : row];
    const table = { ...qwen3Table, outside, rename: rankerName };
    return count === 1 ? { ...ranks, table } : { keys: { ...keys, pooling_type: 4 }, table };
  },
  webllm: {},
  mlx: {},
  onnx: {},
};

// ------------------------------------------------------------------------------------------------------------------------ experts

const expertRows = { rows: 'moe_intermediate_size' };

/** The number of experts under either of its keys. */
function qwenExpertCounts({ config }: Draft) {
  const isOther = config.stated('num_experts') === undefined && config.stated('num_local_experts') !== undefined;
  return readExperts(config, isOther ? 'num_local_experts' : 'num_experts', expertRows);
}

/** Keys and sizes of experts, of which all tokens share one. */
function withSharedExpert({ config }: Draft, { keys, sizes }: ReturnType<typeof readExperts>) {
  const sharedFeedForward = config.whole('shared_expert_intermediate_size');
  return {
    keys: { ...keys, expert_shared_feed_forward_length: sharedFeedForward },
    sizes: { ...sizes, sharedFeedForward },
  };
}

/** Experts in mlx-lm. */
const mlxExperts = { block: 'mlp' };

/** Experts with one that all tokens pass, whose share has a gate. */
const mixture = (draft: Draft): Row[] => [
  ...qwenExperts(areStacked(draft)),
  { from: 'mlp.shared_expert_gate', to: 'ffn_gate_inp_shexp', shape: [1, 'hidden'] },
  ...sharedExperts('mlp.shared_expert'),
];

const qwen2moe: ModelClass = {
  ...qwen2,
  architecture: 'qwen2moe',
  traits: { pairs: 'halves', normalizesShares: false },
  classes: { Qwen2MoeForCausalLM: qwen2moeDefaults },
  writesPooling: undefined,
  only: { norm_topk_prob: [false], qkv_bias: [true], ...siluSettings },
  details(draft) {
    checkSparse(draft);
    const table = { layer: [...norms, ...qwen2Attention, ...mixture(draft)], rename: withPrefix };
    return { ...withSharedExpert(draft, qwenExpertCounts(draft)), table };
  },
  mlx: { qwen2_moe: { head: 'own', experts: mlxExperts } },
};

const qwen3moe: ModelClass = {
  ...qwen3,
  architecture: 'qwen3moe',
  classes: {
    Qwen3MoeForCausalLM: decoderDefaults([2048, 6144, 24], [32, 4], 32768, {
      moe_intermediate_size: 768,
      num_experts: 128,
      num_experts_per_tok: 8,
    }),
  },
  writesPooling: undefined,
  only: { ...siluSettings, attention_bias: [false], norm_topk_prob: [true] },
  details(draft) {
    const { config, notes } = draft;
    checkSparse(draft);
    const counts = qwenExpertCounts(draft);
    if (config.get('norm_topk_prob') === undefined) {
      const text = 'norm_topk_prob is missing in config.json; llama.cpp normalizes the weights of the chosen experts';
      notes.push(noteOf('normalizesExperts', {}, text));
    }
    const layer = [...norms, ...attention, ...headNorms, ...qwenExperts(areStacked(draft))];
    return { ...counts, table: { layer, rename: withPrefix } };
  },
  mlx: { qwen3_moe: { experts: mlxExperts, precise: /\.mlp\.gate$/ } },
};

// ------------------------------------------------------------------------------------------------------------- beside towers

/** Keys of positions with several coordinates, and the number of layers that take more than the last output of the tower. */
function visionKeys({ config, rope, sizes }: Draft, hasDeepstack: boolean) {
  const vision = config.get('vision_config') as Json | undefined;
  return {
    'rope.dimension_sections': ropeSections(rope, sizes.head),
    n_deepstack_layers: hasDeepstack ? arrayMember(vision, 'deepstack_visual_indexes').length : undefined,
  };
}

const qwen2vl: ModelClass = {
  ...qwen2,
  architecture: 'qwen2vl',
  traits: undefined,
  classes: { Qwen2VLForConditionalGeneration: qwen2vlDefaults, Qwen2_5_VLForConditionalGeneration: qwen2vlDefaults },
  writesPooling: undefined,
  scaling: ['mrope', 'linear', 'yarn'],
  // llama.cpp reads a bias of the head of this architecture, and does not add it.
  table: { layer: qwen2Layer, rename: withPrefix },
  details: (draft) => ({ keys: visionKeys(draft, false) }),
};

/** A name in a model that also speaks, of which the language model that thinks is taken. */
const thinkerName = (name: string) =>
  /^(talker|code2wav)\./.test(name) ? undefined : withPrefix(name.replace(/^thinker\./, ''));

const qwen3vl: ModelClass = {
  ...qwen3,
  architecture: 'qwen3vl',
  traits: undefined,
  classes: {
    Qwen3VLForConditionalGeneration: { ...qwen3Defaults, ...longContext },
    // Beside a tower for sound.
    Qwen3ASRForConditionalGeneration: { ...qwen3Defaults, ...longContext },
  },
  table: { ...qwen3Table, rename: thinkerName },
  writesPooling: undefined,
  scaling: ['mrope', 'linear', 'yarn'],
  details: (draft) => ({ keys: visionKeys(draft, true) }),
};

/** Qwen3-VL with experts, which are stored with their inputs as rows. */
const qwen3vlmoe: ModelClass = {
  ...qwen3vl,
  architecture: 'qwen3vlmoe',
  classes: {
    Qwen3VLMoeForConditionalGeneration: { ...qwen2moeDefaults, ...longContext },
  },
  only: { ...siluSettings, attention_bias: [false], norm_topk_prob: [true] },
  table: {
    layer: [
      ...norms,
      ...attention,
      ...headNorms,
      { from: 'mlp.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
      ...turnedExperts('mlp.experts'),
    ],
  },
  details(draft) {
    const { config } = draft;
    checkSparse(draft);
    const key = config.stated('num_local_experts') === undefined ? 'num_experts' : 'num_local_experts';
    const { keys, sizes } = readExperts(config, key, expertRows);
    return { keys: { ...visionKeys(draft, true), ...keys }, sizes };
  },
};

/** The language model of Qwen3-Omni that thinks, without its voice. */
const qwen3omni: ModelClass = {
  ...qwen3vlmoe,
  classes: {
    Qwen3OmniMoeForConditionalGeneration: {
      ...qwen2moeDefaults,
      ...longContext,
      num_experts: 128,
      num_experts_per_tok: 8,
      moe_intermediate_size: 768,
    },
  },
  roleTokens: [['bos', '<|im_end|>']],
  endToken: '<|im_end|>',
  details(draft) {
    checkSparse(draft);
    const { keys, sizes } = readExperts(draft.config, 'num_experts', expertRows);
    const layer = [...norms, ...attention, ...headNorms, ...qwenExperts(areStacked(draft))];
    const sections = { ...visionKeys(draft, false), n_deepstack_layers: 0 };
    return { keys: { ...sections, ...keys }, sizes, table: { layer, rename: thinkerName } };
  },
};

// ----------------------------------------------------------------------------------------------------------- linear attention

/** Sizes of linear attention. */
interface Linear {
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

/** Rows of values, of some rows each, in the order of llama.cpp: the first one of each key, then the second one of each. `from` rows stay before them. */
function orderedRows({ keyHeads, valueHeads }: Linear, rows: number, from = 0): RowsOf {
  const each = valueHeads / keyHeads;
  const order = Array.from({ length: valueHeads }, (_, i) => (i % keyHeads) * each + Math.floor(i / keyHeads));
  const values = order.map((valueHead) => [from + valueHead * rows, rows] as const);
  return () => evenly(from === 0 ? values : [[0, from], ...values]);
}

/** A tensor whose rows change places. */
const ordered = (row: Row, to: string, windows: RowsOf): Row => ({
  ...row,
  to: '',
  shares: [{ to, shape: row.as ?? row.shape, windows }],
});

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
  // Put the columns of values into the order of llama.cpp.
  const each = valueHeads / keyHeads;
  const columns: ViewOf = ({ hidden }) =>
    viewFrom(0, [hidden, valueHeads * value], [each, value], [keyHeads, each * value], [value, 1]);
  return [
    ordered(decay, 'ssm_a', orderedRows(linear, 1)),
    ordered(step, 'ssm_dt', orderedRows(linear, 1)),
    ordered(convolution, 'ssm_conv1d', orderedRows(linear, value, 2 * keyHeads * key)),
    norm,
    { ...output, as: output.shape, view: columns },
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
  { from: 'self_attn.q_proj', to: 'attn_q', shape: ['2 queries', 'hidden'] },
  ...attention.slice(1),
  ...plusOne(headNorms),
];

const linearNorms = plusOne([
  norms[0] as Row,
  { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
]);

/** The table of a model. @param rows those of linear attention. @param rest those of the feed-forward part */
function linearTable(
  { isLinear, next }: ReturnType<typeof readLinear>,
  rows: readonly Row[],
  rest: readonly Row[],
): TensorTable {
  const layers = isLinear.length - next;
  return {
    outside: plusOne([embedding, finalNorm, head]),
    layer: [
      ...linearNorms,
      ...onlyIn(gatedAttention, (layer) => isLinear[layer] !== true),
      ...onlyIn(rows, (layer) => isLinear[layer] === true),
      ...rest,
      ...onlyIn(plusOne(nextRows), (layer) => layer >= layers),
    ],
    rename(name) {
      const own = name.replace(/^model\.(?=mtp\.)/, '');
      return next === 0 && own.startsWith('mtp.') ? undefined : nextName(own, layers);
    },
  };
}

/** Sizes, keys and layers of linear attention. */
function readLinear(draft: Draft) {
  const { config, sizes } = draft;
  const linear: Linear = {
    keyHeads: config.whole('linear_num_key_heads'),
    valueHeads: config.whole('linear_num_value_heads'),
    key: config.whole('linear_key_head_dim'),
    value: config.whole('linear_value_head_dim'),
    convolved: config.whole('linear_conv_kernel_dim'),
  };
  const { keyHeads, valueHeads, key, value } = linear;
  if (valueHeads % keyHeads !== 0)
    badConfig(`linear_num_value_heads ${valueHeads} is not a multiple of linear_num_key_heads ${keyHeads}`);
  // llama.cpp has one size of states.
  if (key !== value)
    unsupportedConfig(
      `linear_key_head_dim is ${key} and linear_value_head_dim ${value}; llama.cpp takes equal ones only`,
    );
  // Each n-th layer has full attention, and the others linear attention.
  const step = config.whole('full_attention_interval', 4);
  const isLinear = Array.from({ length: sizes.layers }, (_, i) => (i + 1) % step !== 0);
  const types = layerTypes(draft, sizes.layers);
  const other = (types ?? []).findIndex((type, i) => type !== (isLinear[i] ? 'linear_attention' : 'full_attention'));
  if (other >= 0)
    unsupportedConfig(
      `layer_types[${other}] is ${show(types?.[other])}; llama.cpp computes every ${step}. layer with full attention`,
    );
  // A layer behind the last one, with full attention, may predict a further token.
  const next = Number(draft.names.some((name) => /^(model\.)?mtp\.fc\./.test(name)));
  if (draft.names.some((name) => /^(model\.)?mtp\.layers\.[1-9]/.test(name)))
    unsupportedConfig(
      'several layers predict further tokens; llama.cpp has inputs of its own for each, and the folder for the first one only',
    );
  if (next > 0) isLinear.push(false);
  const keys = {
    block_count: sizes.layers + next,
    nextn_predict_layers: next === 0 ? undefined : next,
    'ssm.conv_kernel': linear.convolved,
    'ssm.state_size': key,
    'ssm.group_count': keyHeads,
    'ssm.time_step_rank': valueHeads,
    'ssm.inner_size': value * valueHeads,
    'attention.recurrent_layers': types === undefined ? undefined : isLinear,
    full_attention_interval: step,
    'rope.dimension_count': rotatedOf(draft, 0.25),
  };
  return { linear, isLinear, next, keys, sizes: { layers: sizes.layers + next } };
}

const linearDefaults = {
  linear_conv_kernel_dim: 4,
  linear_key_head_dim: 128,
  linear_value_head_dim: 128,
  linear_num_key_heads: 16,
  linear_num_value_heads: 32,
  head_dim: 256,
  partial_rotary_factor: 0.25,
  full_attention_interval: 4,
};
const qwen3nextDefaults = decoderDefaults([2048, 5632, 48], [16, 2], 32768, {
  ...linearDefaults,
  moe_intermediate_size: 512,
  shared_expert_intermediate_size: 512,
  num_experts: 512,
  num_experts_per_tok: 10,
});
const qwen35Defaults = decoderDefaults([4096, 12288, 32], [16, 4], 32768, linearDefaults);
const qwen35moeDefaults = { ...qwen3nextDefaults, num_hidden_layers: 40, num_experts: 256, num_experts_per_tok: 8 };

const linearModel = {
  only: { hidden_act: ['silu'], attention_bias: [false], attn_output_gate: [true], use_sliding_window: [false] },
  scaling: ['linear', 'yarn'],
} as const;

/** Vectors to which mlx-lm adds 1, and layers that it leaves out. */
const mlxLinear = {
  plusOne: /\.(input_layernorm|post_attention_layernorm|q_norm|k_norm)\.weight$|(^|\.)model\.norm\.weight$/,
  unused: /(^|\.)mtp\./,
};

/** Experts in mlx-lm, with the router and the gate of the shared one in 8 bits. */
const mlxMixture = { experts: mlxExperts, precise: /\.(mlp\.gate|shared_expert_gate)$/ };

/** Qwen3.5 in mlx-lm. */
const mlxQwen35 = {
  ...mlxLinear,
  embedding: 'language_model.model.embed_tokens',
  output: 'language_model.lm_head',
  unused: /(^|\.)mtp\.|^(model\.visual|vision_tower)\./,
  uncast: /\.A_log$/,
  rename(name: string) {
    if (/^(model\.visual|vision_tower|language_model)\./.test(name)) return name;
    return name
      .replace(/^model\.language_model\./, 'language_model.model.')
      .replace(/^(?!language_model\.)/, 'language_model.');
  },
};

const qwen3next: ModelClass = {
  ...linearModel,
  architecture: 'qwen3next',
  classes: { Qwen3NextForCausalLM: qwen3nextDefaults },
  only: { ...linearModel.only, norm_topk_prob: [true] },
  decoder: ({ config }) => ({ feedForward: config.whole('intermediate_size', 1) }),
  details(draft) {
    checkSparse(draft);
    const read = readLinear(draft);
    const { linear, keys, sizes } = read;
    const experts = withSharedExpert(draft, readExperts(draft.config, 'num_experts', expertRows));
    const rows: Row[] = [
      together(linear),
      { from: 'linear_attn.in_proj_ba', to: 'ssm_ba', shape: [2 * linear.valueHeads, 'hidden'] },
      ...linearAttention(linear, false),
    ];
    return {
      keys: { ...keys, ...experts.keys },
      sizes: { ...sizes, ...experts.sizes },
      table: linearTable(read, rows, mixture(draft)),
    };
  },
  mlx: { qwen3_next: { ...mlxLinear, ...mlxMixture } },
};

/** Keys and the table of Qwen3.5. */
function readQwen35(draft: Draft, rest: readonly Row[]) {
  const read = readLinear(draft);
  const { linear, keys, sizes: counts } = read;
  const moves = linear.keyHeads !== linear.valueHeads;
  const sections = ropeSections(draft.rope, keys['rope.dimension_count'], [11, 11, 10]);
  return {
    keys: { ...keys, 'rope.dimension_sections': sections },
    sizes: counts,
    table: linearTable(read, [...apart(linear, moves), ...linearAttention(linear, moves)], rest),
  };
}

const qwen35: ModelClass = {
  ...linearModel,
  architecture: 'qwen35',
  classes: { Qwen3_5ForCausalLM: qwen35Defaults, Qwen3_5ForConditionalGeneration: qwen35Defaults },
  details: (draft) => readQwen35(draft, feedForward),
  mlx: { qwen3_5: mlxQwen35 },
};

const qwen35moe: ModelClass = {
  ...qwen3next,
  architecture: 'qwen35moe',
  classes: { Qwen3_5MoeForCausalLM: qwen35moeDefaults, Qwen3_5MoeForConditionalGeneration: qwen35moeDefaults },
  details(draft) {
    checkSparse(draft);
    const { keys, sizes, table } = readQwen35(draft, mixture(draft));
    const experts = withSharedExpert(draft, readExperts(draft.config, 'num_experts', expertRows));
    return { keys: { ...keys, ...experts.keys }, sizes: { ...sizes, ...experts.sizes }, table };
  },
  mlx: { qwen3_5_moe: { ...mlxQwen35, ...mlxMixture } },
};

export const qwenFamily: readonly ModelClass[] = [
  ...[
    qwen2,
    qwen3,
    qwen3Classifier,
    qwen2moe,
    qwen3moe,
    qwen2vl,
    qwen3vl,
    qwen3vlmoe,
    qwen3omni,
    qwen3next,
    qwen35,
    qwen35moe,
  ],
];
