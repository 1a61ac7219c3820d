/**
 * Gemma 1 to 4, Gemma 3n, whose layers mix four states of a token, and EmbeddingGemma.
 * Reference: github.com/ggml-org/llama.cpp, conversion/gemma.py at 061b8c5 and src/models/gemma4.cpp 06e514f; conversion/gemma.py and
 * src/models/gemma3n.cpp of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { positive } from '../huggingface/config.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { member } from '../huggingface/json.js';
import {
  allBut,
  type Details,
  type Draft,
  decoderDefaults,
  decoderSettings,
  type ModelClass,
  never,
  noteOtherwise,
  readExperts,
  type Settings,
  windowLayers,
} from '../huggingface/reading.js';
import { madeTensor } from '../huggingface/rope.js';
import type { Row, TensorTable } from '../huggingface/tensors.js';
import type { DecoderGraph } from '../onnx/families.js';
import type { Traits } from '../traits.js';
import {
  attention,
  embedding,
  feedForward,
  finalNorm,
  headNorms,
  norms,
  onlyIn,
  plusOne,
  withoutHead,
  withPrefix,
} from './rows.js';

/** Norms before and behind attention and the feed-forward part. */
const gemmaNorms: readonly Row[] = [
  { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
  { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
  { from: 'pre_feedforward_layernorm', to: 'ffn_norm', shape: ['hidden'] },
  { from: 'post_feedforward_layernorm', to: 'post_ffw_norm', shape: ['hidden'] },
];

/** Embedding and last norm. The head is the embedding. */
const gemmaOutside = plusOne([embedding, finalNorm]);

const gemmaSettings: Settings = {
  ...decoderSettings,
  hidden_activation: ['gelu_pytorch_tanh'],
  attention_bias: [false],
};

const gemma2Defaults = decoderDefaults([2304, 9216, 26], [8, 4, 256], 8192, {
  query_pre_attn_scalar: 256,
  sliding_window: 4096,
  tie_word_embeddings: true,
});
const localTheta = { rope_theta: 1e6, rope_local_base_freq: 10000 };
const gemma3Defaults = { ...gemma2Defaults, max_position_embeddings: 131072, ...localTheta };

/** Settings and numbers of WebLLM's libraries. */
const webllmActs = {
  hidden_act: ['gelu_pytorch_tanh', 'gelu'],
  hidden_activation: ['gelu_pytorch_tanh', null],
};
const tiedFine = { rms_norm_eps: 1e-6, tie_word_embeddings: true };

const gemmaTraits: Traits = { pairs: 'halves', gate: 'geluTanh', scalesEmbedding: true };

const gemma: ModelClass = {
  architecture: 'gemma',
  traits: gemmaTraits,
  classes: {
    GemmaForCausalLM: decoderDefaults([3072, 24576, 28], [16, 16, 256], 8192, { tie_word_embeddings: true }),
  },
  roleIds: () => ({ eot: 107 }),
  only: { ...decoderSettings, attention_bias: [false] },
  scaling: [],
  theta: 'usual',
  slides: never,
  table: {
    outside: gemmaOutside,
    layer: plusOne([...norms, ...attention, ...feedForward]),
    rename: withoutHead,
  },
  details({ config, sizes: { head } }) {
    // The classes of Hugging Face compute both names with the approximation by tanh.
    const act = config.get('hidden_activation') ?? config.get('hidden_act');
    if (act !== undefined && act !== 'gelu_pytorch_tanh' && act !== 'gelu')
      unsupportedConfig(`hidden_act is ${show(act)}; llama.cpp computes Gemma with "gelu_pytorch_tanh" only`);
    return { keys: { 'attention.key_length': head, 'attention.value_length': head } };
  },
  webllm: {
    GemmaForCausalLM: {
      modelType: 'gemma',
      attention: 'qkv_proj',
      normAdd: 1,
      anyVocabulary: true,
      fixed: { ...webllmActs, attention_bias: [false] },
      settings: ({ based, work }) => ({
        ...based,
        attention_bias: false,
        hidden_activation: 'gelu_pytorch_tanh',
        ...work,
      }),
      libraries: [['gemma-2b-it', 'gemma_instruction', [2048, 16384, 18], [8, 1, 256], 256000, 10000, tiedFine]],
    },
  },
  mlx: { gemma: { head: 'tied' } },
  onnx: { GemmaForCausalLM: { kind: 'decoder', modelType: 'gemma', isGemma: true, scaling: [] } },
};

/** Fails if the scale of attention differs from llama.cpp's. Its largest models use another divisor. */
function checkAttentionScale({ config, sizes: { heads, hidden, head, layers } }: Draft, largestLayers: number): void {
  const scalar = config.maybePositive('query_pre_attn_scalar');
  const taken = layers === largestLayers ? hidden / heads : head;
  if (scalar !== undefined && scalar !== taken)
    unsupportedConfig(`query_pre_attn_scalar is ${scalar}; llama.cpp computes this model with ${taken}`);
}

/** The graph of Gemma 2. */
const gemma2Graph: DecoderGraph = {
  kind: 'decoder',
  modelType: 'gemma2',
  norms: 'around',
  isGemma: true,
  scaling: ['linear'],
  slides: allBut(2),
  only: { use_bidirectional_attention: [false] },
};

const gemma2: ModelClass = {
  architecture: 'gemma2',
  traits: { ...gemmaTraits, slides: allBut(2), largest: 46, attentionCap: 50, finalCap: 30 },
  classes: { Gemma2ForCausalLM: { ...gemma2Defaults, attn_logit_softcapping: 50, final_logit_softcapping: 30 } },
  only: gemmaSettings,
  scaling: ['linear'],
  // The converter of llama.cpp does not write the base. Its runtime uses 10000.
  theta: 'other',
  slides: allBut(2),
  table: {
    outside: gemmaOutside,
    layer: plusOne([...gemmaNorms, ...attention, ...feedForward]),
    rename: withoutHead,
  },
  details(draft) {
    const { config } = draft;
    checkAttentionScale(draft, 46);
    const capOf = (name: string) =>
      config.maybePositive(name) ?? unsupportedConfig(`${name} is null; llama.cpp computes Gemma 2 with a cap`);
    return {
      keys: {
        attn_logit_softcapping: capOf('attn_logit_softcapping'),
        final_logit_softcapping: capOf('final_logit_softcapping'),
        'attention.sliding_window': config.whole('sliding_window'),
      },
    };
  },
  webllm: {
    Gemma2ForCausalLM: {
      modelType: 'gemma2',
      attention: 'qkv_proj',
      moreNorms: ['pre_feedforward_layernorm', 'post_feedforward_layernorm'],
      normAdd: 1,
      anyVocabulary: true,
      fixed: {
        ...webllmActs,
        attention_bias: [false],
        final_logit_softcapping: [30],
        query_pre_attn_scalar: [256],
      },
      settings: ({ based, stated, work }) => ({
        ...based,
        attention_bias: false,
        hidden_activation: 'gelu_pytorch_tanh',
        ...stated('attn_logit_softcapping', 'final_logit_softcapping', 'query_pre_attn_scalar', 'sliding_window'),
        ...work,
      }),
      libraries: [
        ['gemma-2-2b-it', 'gemma_instruction', [2304, 9216, 26], [8, 4, 256], 256000, 10000, tiedFine],
        ['gemma-2-9b-it', 'gemma_instruction', [3584, 14336, 42], [16, 8, 256], 256000, 10000, tiedFine],
      ],
    },
  },
  mlx: { gemma2: { head: 'tied' } },
  onnx: { Gemma2ForCausalLM: gemma2Graph },
};

const gemma3Table: TensorTable = {
  outside: gemmaOutside,
  layer: plusOne([...gemmaNorms, ...attention, ...headNorms, ...feedForward]),
  rename: withoutHead,
};

/** A language model beside towers in mlx-lm, in the names of transformers before and since its version 5. */
const mlxBesideTowers = {
  embedding: 'language_model.model.embed_tokens',
  output: 'language_model.lm_head',
  unused: /^(vision_tower|multi_modal_projector|audio_tower|embed_audio|embed_vision)\./,
  rename: (name: string) =>
    name
      .replace(/^model\.language_model\./, 'language_model.model.')
      .replace(/^lm_head\./, 'language_model.lm_head.')
      .replace(/^model\.(?=vision_tower|multi_modal_projector|audio_tower|embed_)/, ''),
};

const gemma3: ModelClass = {
  architecture: 'gemma3',
  traits: { ...gemmaTraits, slides: allBut(6), localBase: 10000, largest: 62 },
  classes: { Gemma3ForCausalLM: gemma3Defaults, Gemma3ForConditionalGeneration: gemma3Defaults },
  only: { ...gemmaSettings, sliding_window_pattern: [6] },
  scaling: ['linear'],
  slides: allBut(6),
  table: gemma3Table,
  longEmbedding: true,
  details(draft) {
    const { config, rope } = draft;
    checkAttentionScale(draft, 62);
    if (config.get('attn_logit_softcapping') !== undefined)
      unsupportedConfig('attn_logit_softcapping is set; llama.cpp computes Gemma 3 without it');
    return {
      keys: {
        'rope.freq_base_swa': rope.localTheta,
        final_logit_softcapping: config.maybePositive('final_logit_softcapping'),
        'attention.sliding_window': config.whole('sliding_window'),
      },
    };
  },
  mlx: { gemma3_text: {}, gemma3: { head: 'tied', ...mlxBesideTowers } },
  onnx: {
    Gemma3ForCausalLM: { ...gemma2Graph, modelType: 'gemma3_text', headNorms: 'each', slides: allBut(6) },
  },
};

/** EmbeddingGemma: each token sees the others on both sides. Its embedding lacks the prefix of the model. */
const embeddingGemma: ModelClass = {
  ...gemma3,
  architecture: 'gemma-embedding',
  traits: undefined,
  classes: { Gemma3TextModel: gemma3Defaults },
  writesPooling: true,
  only: { ...gemma3.only, use_bidirectional_attention: [true] },
  table: { ...gemma3Table, rename: (name) => withoutHead(withPrefix(name)) },
  details(draft) {
    if (draft.config.stated('sliding_window') === undefined) badConfig('sliding_window is missing');
    return gemma3.details?.(draft) ?? {};
  },
};

// --------------------------------------------------------------------------------------------------------- inputs of each layer

/** Rows of the inputs that each token has for each layer, of `width` elements. */
const perLayerRows = (width: number): Row[] => [
  { from: 'per_layer_input_gate', to: 'inp_gate', shape: [width, 'hidden'] },
  { from: 'per_layer_projection', to: 'proj', shape: ['hidden', width] },
  { from: 'post_per_layer_input_norm', to: 'post_norm', shape: ['hidden'] },
];

/** Rows outside of layers for these inputs. @param vocabulary tokens with inputs */
const perLayerOutside = (width: number, layers: number, vocabulary: number): Row[] => [
  { from: 'model.embed_tokens_per_layer', to: 'per_layer_token_embd', shape: [vocabulary, width * layers] },
  { from: 'model.per_layer_model_projection', to: 'per_layer_model_proj', shape: [width * layers, 'hidden'] },
  { from: 'model.per_layer_projection_norm', to: 'per_layer_proj_norm', shape: [width] },
];

/** Numbers that llama.cpp computes Gemma 3n with, whatever the file says. */
const fixed = { ownLayers: 20, perLayer: 256, laurel: 64, inputs: 4, sparseLayers: 10, finalCap: 30 } as const;

/** The share of a sparse layer's gates that become 0, and the number of standard deviations above the mean that this is, as a float32. */
const [sparsity, deviations] = [0.95, Math.fround(1.6448533535)];

const sparsityOf = (layer: number) => (layer < fixed.sparseLayers ? sparsity : 0);

const { inputs, laurel } = fixed;

/** Rows of Gemma 3n. The matrices between the first state and the others are stacked. */
const stateOutside: readonly Row[] = [
  { from: 'model.altup_projections.#', to: 'altup_proj', shape: ['hidden', 'hidden'], count: inputs - 1 },
  {
    from: 'model.altup_unembed_projections.#',
    to: 'altup_unembd_proj',
    shape: ['hidden', 'hidden'],
    count: inputs - 1,
  },
];
const stateRows: readonly Row[] = [
  { from: 'altup.correction_coefs', to: 'altup_correct_coef', shape: [inputs, inputs] },
  { from: 'altup.correct_output_scale', to: 'altup_correct_scale', whole: '.weight', shape: ['hidden'] },
  { from: 'altup.prediction_coefs', to: 'altup_predict_coef', shape: [inputs * inputs, inputs] },
  { from: 'altup.modality_router', to: 'altup_router', shape: [inputs, 'hidden'] },
  { from: 'altup.router_norm', to: 'altup_router_norm', shape: ['hidden'] },
  { from: 'laurel.linear_left', to: 'laurel_l', shape: [laurel, 'hidden'] },
  { from: 'laurel.linear_right', to: 'laurel_r', shape: ['hidden', laurel] },
  { from: 'laurel.post_laurel_norm', to: 'laurel_post_norm', shape: ['hidden'] },
];

const gemma3nDefaults = decoderDefaults([2048, 16384, 35], [8, 2, 256], 32768, {
  ...localTheta,
  sliding_window: 512,
  vocab_size_per_layer_input: 262144,
  num_kv_shared_layers: 15,
  tie_word_embeddings: true,
});

const gemma3n: ModelClass = {
  architecture: 'gemma3n',
  classes: { Gemma3nForCausalLM: gemma3nDefaults, Gemma3nForConditionalGeneration: gemma3nDefaults },
  only: {
    ...gemmaSettings,
    altup_num_inputs: [inputs],
    altup_active_idx: [0],
    altup_correct_scale: [true],
    laurel_rank: [laurel],
    hidden_size_per_layer_input: [fixed.perLayer],
    final_logit_softcapping: [fixed.finalCap],
  },
  decoder({ config }) {
    // All layers have the same number of rows in their feed-forward parts.
    const stated = config.get('intermediate_size');
    if (!Array.isArray(stated)) return { feedForward: config.whole('intermediate_size') };
    const layers = config.whole('num_hidden_layers');
    const [first] = stated as unknown[];
    if (stated.length !== layers || typeof first !== 'number' || !Number.isInteger(first) || first < 1)
      return badConfig(`intermediate_size has to be ${layers} whole numbers, got ${show(stated)}`);
    const other = stated.findIndex((rows) => rows !== first);
    if (other >= 0)
      unsupportedConfig(
        `intermediate_size[${other}] is ${show(stated[other])}; llama.cpp computes all layers with ${first}`,
      );
    return { feedForward: first };
  },
  slides: allBut(5),
  scaling: [],
  outward({ key, rowsOf }) {
    const [scales, rows] = [key('activation_sparsity_scale'), key('feed_forward_length')];
    return {
      intermediate_size: rows,
      num_kv_shared_layers: key('attention.shared_kv_layers'),
      vocab_size_per_layer_input: rowsOf('per_layer_token_embd.weight'),
      hidden_size_per_layer_input: key('embedding_length_per_layer_input'),
      activation_sparsity_pattern: Array.isArray(scales)
        ? scales.map((scale) => (scale === -Infinity ? 0 : sparsity))
        : undefined,
      ...{ altup_num_inputs: key('altup.num_inputs'), altup_active_idx: key('altup.active_idx') },
      ...{ altup_correct_scale: true, laurel_rank: rowsOf('blk.0.laurel_l.weight') },
    };
  },
  details(draft) {
    const { config, rope, sizes, embeddingRows } = draft;
    const { layers, vocabulary } = sizes;
    // The first layers, and no others, have the sparsity that llama.cpp computes.
    const pattern =
      config.get('activation_sparsity_pattern') ?? Array.from({ length: layers }, (_, i) => sparsityOf(i));
    if (!Array.isArray(pattern) || pattern.length !== layers)
      return badConfig(`activation_sparsity_pattern has to be an array of ${layers} numbers, got ${show(pattern)}`);
    const dense = pattern.findIndex((share: unknown, i) => share !== sparsityOf(i));
    if (dense >= 0)
      unsupportedConfig(
        `activation_sparsity_pattern[${dense}] is ${show(pattern[dense])}; llama.cpp computes ${sparsityOf(dense)} there`,
      );
    const sharedLayers = config.whole('num_kv_shared_layers', undefined, 0);
    if (layers - sharedLayers !== fixed.ownLayers)
      unsupportedConfig(
        `num_kv_shared_layers is ${sharedLayers} of ${layers} layers; llama.cpp computes keys in the first ${fixed.ownLayers} layers only`,
      );
    const perLayerVocabulary = config.whole('vocab_size_per_layer_input', vocabulary);
    if (perLayerVocabulary > vocabulary)
      badConfig(`vocab_size_per_layer_input ${perLayerVocabulary} is more than vocab_size ${vocabulary}`);
    const ofLayers = <T>(ofLayer: (layer: number) => T) => Array.from({ length: layers }, (_, i) => ofLayer(i));
    return {
      keys: {
        'rope.freq_base_swa': rope.localTheta,
        feed_forward_length: ofLayers(() => sizes.feedForward),
        final_logit_softcapping: fixed.finalCap,
        'attention.sliding_window': config.whole('sliding_window'),
        'altup.active_idx': 0,
        'altup.num_inputs': inputs,
        embedding_length_per_layer_input: fixed.perLayer,
        'attention.shared_kv_layers': sharedLayers,
        // A layer without sparsity lets all gates pass.
        activation_sparsity_scale: ofLayers((i) => (i < fixed.sparseLayers ? deviations : -Infinity)),
        'attention.sliding_window_pattern': ofLayers(allBut(5)),
      },
      // Both embeddings may lack rows for pictures and sound at their ends, which get rows of zeros.
      table: {
        outside: [
          {
            ...embedding,
            shape: [Math.min(embeddingRows ?? vocabulary, vocabulary), 'hidden'],
            filledTo: 'vocabulary',
          },
          finalNorm,
          ...perLayerOutside(fixed.perLayer, layers, perLayerVocabulary).map(
            (row): Row => (row.to === 'per_layer_token_embd' ? { ...row, filledTo: 'vocabulary' } : row),
          ),
          ...stateOutside,
        ],
        layer: [
          ...[...gemmaNorms, ...attention, ...headNorms, ...feedForward],
          ...[...perLayerRows(fixed.perLayer), ...stateRows],
        ],
        rename: withoutHead,
      },
    };
  },
};

// ------------------------------------------------------------------------------------------------------------------------ Gemma 4

/** Attention in some layers. */
interface AttentionSizes {
  readonly keyHeads: number;
  readonly head: number;
  /** True if keys are the values, too, before their norms. */
  readonly keysAreValues: boolean;
}

/** Attention of a kind. Folders may hold keys and values of layers that do not use them. */
function attentionRows(heads: number, { keyHeads, head, keysAreValues }: AttentionSizes, areOptional: boolean): Row[] {
  const optional = areOptional ? ({ optional: true } as const) : {};
  const values: Row = { from: 'self_attn.v_proj', to: 'attn_v', shape: [keyHeads * head, 'hidden'], ...optional };
  return [
    { from: 'self_attn.q_proj', to: 'attn_q', shape: [heads * head, 'hidden'] },
    { from: 'self_attn.k_proj', to: 'attn_k', shape: [keyHeads * head, 'hidden'], ...optional },
    ...(keysAreValues ? [] : [values]),
    { from: 'self_attn.o_proj', to: 'attn_output', shape: ['hidden', heads * head] },
    { from: 'self_attn.q_norm', to: 'attn_q_norm', shape: [head] },
    { from: 'self_attn.k_norm', to: 'attn_k_norm', shape: [head], ...optional },
  ];
}

const expertRows: readonly Row[] = [
  { from: 'router.proj', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
  { from: 'router.scale', to: 'ffn_gate_inp.scale', whole: '', shape: ['hidden'] },
  { from: 'router.per_expert_scale', to: 'ffn_down_exps.scale', whole: '', shape: ['experts'] },
  {
    from: 'experts.gate_up_proj',
    to: 'ffn_gate_up_exps',
    whole: '.weight',
    shape: ['experts', '2 expertFeedForward', 'hidden'],
  },
  {
    from: 'experts.down_proj',
    to: 'ffn_down_exps',
    whole: '.weight',
    shape: ['experts', 'hidden', 'expertFeedForward'],
  },
  { from: 'pre_feedforward_layernorm_2', to: 'pre_ffw_norm_2', shape: ['hidden'] },
  { from: 'post_feedforward_layernorm_1', to: 'post_ffw_norm_1', shape: ['hidden'] },
  { from: 'post_feedforward_layernorm_2', to: 'post_ffw_norm_2', shape: ['hidden'] },
];

/** Frequency factor so large that the rotation rounds to 0 in float32. */
const still = 1e30;

const gemma4Defaults = {
  ...gemma3Defaults,
  num_hidden_layers: 30,
  sliding_window: 512,
  global_head_dim: 512,
  num_kv_shared_layers: 0,
  hidden_size_per_layer_input: 256,
  vocab_size_per_layer_input: 262144,
};

const assistantDefaults = {
  ...gemma4Defaults,
  ...{ num_hidden_layers: 4, num_kv_shared_layers: 4, hidden_size_per_layer_input: 0 },
  backbone_hidden_size: 1536,
};

/** Gemma 4 in mlx-lm. */
const mlxGemma4 = {
  head: 'tied',
  experts: { block: 'layers\\.\\d+', stack: 'experts.switch_glu' },
  precise: /\.router\.proj$/,
  plain: /\.per_layer_model_projection$/,
} as const;

/** Gemma 4 that takes pictures and sound without towers, as small projections. */
const unified = 'Gemma4UnifiedForConditionalGeneration';

/** Layers with a window and those without differ in the sizes of their heads. */
const gemma4: ModelClass = {
  architecture: 'gemma4',
  classes: {
    Gemma4ForCausalLM: gemma4Defaults,
    Gemma4ForConditionalGeneration: gemma4Defaults,
    [unified]: gemma4Defaults,
  },
  only: gemmaSettings,
  longEmbedding: true,
  outward({ key, has, rowsOf, rope: { divisors } }) {
    const [windows, counts, rows] = ['sliding_window_pattern', 'head_count_kv', 'feed_forward_length'].map((name) =>
      key(name === 'feed_forward_length' ? name : `attention.${name}`),
    );
    const isLocal = Array.isArray(windows) ? windows : [];
    const full = isLocal.indexOf(false);
    const [headLength, localLength] = [key('attention.key_length'), key('attention.key_length_swa')];
    const turned = divisors?.filter((one) => one === 1).length ?? 0;
    return {
      ...{ head_dim: localLength, global_head_dim: headLength },
      num_key_value_heads: Array.isArray(counts) ? counts[isLocal.indexOf(true)] : counts,
      num_global_key_value_heads: Array.isArray(counts) ? counts[full] : undefined,
      attention_k_eq_v: full >= 0 && rowsOf(`blk.${full}.attn_v.weight`) === undefined,
      intermediate_size: Array.isArray(rows) ? rows[0] : rows,
      use_double_wide_mlp: Array.isArray(rows),
      num_kv_shared_layers: key('attention.shared_kv_layers'),
      hidden_size_per_layer_input: key('embedding_length_per_layer_input') ?? 0,
      vocab_size_per_layer_input: rowsOf('per_layer_token_embd.weight'),
      ...{ enable_moe_block: has(/\.ffn_gate_inp\./), top_k_experts: key('expert_used_count') },
      rope_parameters: {
        full_attention: {
          ...{ rope_type: 'proportional', rope_theta: key('rope.freq_base') },
          partial_rotary_factor: (2 * turned) / Number(headLength),
        },
        sliding_attention: { rope_type: 'default', rope_theta: key('rope.freq_base_swa') },
      },
      ...{ rope_theta: undefined, rope_scaling: undefined, rope_local_base_freq: undefined },
    };
  },
  details: (draft) => readGemma4(draft),
  mlx: { gemma4_text: mlxGemma4, gemma4: { ...mlxGemma4, ...mlxBesideTowers } },
};

/** @param drafts true for a model whose layers all read the keys and values of the one that it drafts for */
function readGemma4(draft: Draft, drafts = false): Details {
  const { config, sizes, rope, names: stored } = draft;
  const { layers, heads, keyHeads, head, feedForward: rows } = sizes;
  const isLocal = windowLayers(draft, (i) => (i + 1) % 6 !== 0 && i < layers - 1);
  // Read the sizes of attention in layers with a window and in those without.
  const globalHead = config.whole('global_head_dim', 512);
  if (globalHead % 2 !== 0) badConfig(`global_head_dim is ${globalHead}; the rotary embedding takes pairs`);
  const keysAreValues = config.maybeFlag('attention_k_eq_v') ?? false;
  const globalKeyHeads = config.maybeWhole('num_global_key_value_heads');
  // llama.cpp's converter writes the number of heads alone, whatever the flag says.
  if (!keysAreValues && globalKeyHeads !== undefined && globalKeyHeads !== keyHeads)
    unsupportedConfig(
      `num_global_key_value_heads is ${globalKeyHeads} without attention_k_eq_v; the converter writes it for models with it only`,
    );
  const kinds = [
    { attends: { keyHeads, head, keysAreValues: false }, isIn: (i: number) => isLocal[i] === true },
    {
      attends: { keyHeads: globalKeyHeads ?? keyHeads, head: globalHead, keysAreValues },
      isIn: (i: number) => isLocal[i] !== true,
    },
  ];
  // Layers at the end take the keys and values of earlier ones.
  const shared = (config.maybeWhole('num_kv_shared_layers', 0) ?? 0) || (drafts ? layers : 0);
  if (drafts && shared !== layers)
    unsupportedConfig(`num_kv_shared_layers is ${shared}; llama.cpp computes drafts with ${layers}, all layers`);
  if (!drafts && shared >= layers) badConfig(`num_kv_shared_layers ${shared} leaves none of ${layers} layers`);
  const isShared = (layer: number) => layer >= layers - shared;
  const isWide = config.maybeFlag('use_double_wide_mlp') ?? false;
  const rowsOfLayer = (layer: number) => (isWide && isShared(layer) ? 2 : 1) * rows;
  const allRows = Array.from({ length: layers }, (_, i) => rowsOfLayer(i));
  const perLayer = config.maybeWhole('hidden_size_per_layer_input', 0) ?? 0;
  // Read the experts.
  const hasExperts = config.maybeFlag('enable_moe_block') ?? config.stated('num_experts') !== undefined;
  const rowsKey =
    config.stated('expert_intermediate_size') === undefined ? 'moe_intermediate_size' : 'expert_intermediate_size';
  const names = { used: 'top_k_experts', rows: rowsKey };
  const experts = hasExperts ? readExperts(config, 'num_experts', names) : undefined;
  const finalCap = config.maybePositive('final_logit_softcapping');
  // The first pairs of a head in full attention turn, and the others stay.
  if (rope.type !== 'proportional')
    unsupportedConfig(`${rope.where}.full_attention.rope_type is ${show(rope.type)}; it has to be proportional`);
  const share = positive(`${rope.where}.partial_rotary_factor`, member(rope.settings, 'partial_rotary_factor'));
  if (share === undefined || share > 1)
    return badConfig(`${rope.where}.full_attention.partial_rotary_factor is ${show(share)}`);
  const turned = Math.floor((globalHead * share) / 2);
  const divisors = Array.from({ length: globalHead / 2 }, (_, i) => (i < turned ? 1 : still));
  const perLayerVocabulary = perLayer === 0 ? 0 : config.whole('vocab_size_per_layer_input', sizes.vocabulary);
  // A model that drafts takes the states of the other one, and gives them for the next token.
  const other = drafts ? config.whole('backbone_hidden_size') : 0;
  if (drafts && (perLayer > 0 || hasExperts))
    unsupportedConfig('a model that drafts has experts, or inputs for each layer; llama.cpp computes it without');
  if (other === sizes.hidden)
    unsupportedConfig(`backbone_hidden_size is hidden_size, ${other}; llama.cpp loads models with other ones alone`);
  if (drafts && stored.some((name) => masked.test(name))) noteOtherwise(draft, 'gemma4-assistant', maskedNote);
  const projections: readonly Row[] = [
    { from: 'pre_projection', to: 'nextn.pre_projection', shape: ['hidden', 2 * other] },
    { from: 'post_projection', to: 'nextn.post_projection', shape: [other, 'hidden'] },
  ];
  return {
    keys: {
      ...experts?.keys,
      ...(drafts ? { embedding_length_out: other, nextn_predict_layers: layers } : {}),
      feed_forward_length: isWide ? allRows : rows,
      'attention.head_count_kv':
        globalKeyHeads === undefined ? keyHeads : isLocal.map((one) => (one ? keyHeads : globalKeyHeads)),
      'rope.freq_base_swa': rope.localTheta,
      'attention.key_length': globalHead,
      'attention.value_length': globalHead,
      final_logit_softcapping: finalCap,
      'attention.sliding_window': config.whole('sliding_window'),
      'attention.shared_kv_layers': shared,
      embedding_length_per_layer_input: perLayer,
      'attention.sliding_window_pattern': isLocal,
      'attention.key_length_swa': head,
      'attention.value_length_swa': head,
      'rope.dimension_count': globalHead,
      'rope.dimension_count_swa': head,
    },
    sizes: experts?.sizes ?? {},
    table: {
      outside: [
        ...[embedding, finalNorm],
        ...(perLayer === 0 ? [] : perLayerOutside(perLayer, layers, perLayerVocabulary)),
        ...(drafts ? projections : []),
      ],
      layer: [
        ...gemmaNorms,
        ...kinds.flatMap(({ attends, isIn }) => [
          ...onlyIn(attentionRows(heads, attends, false), (layer) => isIn(layer) && !isShared(layer)),
          ...onlyIn(
            attentionRows(heads, attends, true).filter(({ optional }) => !drafts || optional !== true),
            (layer) => isIn(layer) && isShared(layer),
          ),
        ]),
        ...[...new Set(allRows)].flatMap((count) => {
          const resized = feedForward.map((row) => ({
            ...row,
            shape: row.shape.map((size) => (size === 'feedForward' ? count : size)),
          }));
          return onlyIn(resized, (layer) => rowsOfLayer(layer) === count);
        }),
        { from: 'layer_scalar', to: 'layer_output_scale', whole: '.weight', shape: [1] },
        ...(perLayer === 0 ? [] : perLayerRows(perLayer)),
        ...(hasExperts ? expertRows : []),
      ],
      rename: (name) => (drafts && masked.test(name) ? undefined : withoutHead(name)),
    },
    made: () => [madeTensor('rope_freqs.weight', divisors)],
  };
}

/** Centroids of the tokens, which choose those that the head computes. */
const masked = /^masked_embedding\./;
const maskedNote = 'the head computes all tokens: the centroids that choose some of them are left out';

/** Small models that draft the tokens of Gemma 4, beside which they run (--model-draft). */
const gemma4Assistant: ModelClass = {
  architecture: 'gemma4-assistant',
  classes: { Gemma4AssistantForCausalLM: assistantDefaults, Gemma4UnifiedAssistantForCausalLM: assistantDefaults },
  only: gemmaSettings,
  longEmbedding: true,
  details: (draft) => readGemma4(draft, true),
};

export const gemmaFamily: readonly ModelClass[] = [
  gemma,
  gemma2,
  gemma3,
  embeddingGemma,
  gemma3n,
  gemma4,
  gemma4Assistant,
];
