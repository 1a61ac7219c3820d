/**
 * Hyperparameters of a model: numbers of config.json under names of this package, and the GGUF keys that they become.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a and gguf-py/gguf/gguf_writer.py at 0024aa7.
 */
import type { GgufKey } from '../../formats/gguf/pairs.js';

/** Hyperparameters of a model. Undefined ones are not written. */
export interface Hyper {
  layers: number;
  context: number;
  hidden: number;
  feedForward?: number;
  /** Rows of the feed-forward part of each layer, where layers differ. */
  layerFeedForward?: readonly number[];
  heads: number;
  keyHeads?: number;
  /** Heads of keys in each layer, where layers differ. */
  layerKeyHeads?: readonly number[];
  /** Tokens that a short convolution sees. */
  convolved?: number;
  /** Linear attention: tokens that its convolution sees, elements of a key, heads of keys and of values, elements of all values. */
  stateConvolved?: number;
  stateSize?: number;
  stateGroups?: number;
  stateHeads?: number;
  stateInner?: number;
  /** True if the steps of states, and what goes in and out of them, have norms. */
  normsSteps?: boolean;
  /** True if attention has a rotary embedding. */
  rotates?: boolean;
  /** True for each layer with linear attention. */
  recurrentLayers?: readonly boolean[];
  /** Each n-th layer has full attention. */
  fullStep?: number;
  /** Elements of a head that turn by each coordinate of a position. */
  ropeSections?: readonly number[];
  lateRopeSections?: readonly number[];
  /** Layers that also add what a layer of the vision tower has found. */
  deepstackLayers?: number;
  ropeType?: string;
  ropeFactor?: number;
  ropeContext?: number;
  yarnExtFactor?: number;
  yarnAttentionFactor?: number;
  yarnBetaFast?: number;
  yarnBetaSlow?: number;
  /** Factor of long contexts for Phi-3. */
  attentionFactor?: number;
  theta?: number;
  localTheta?: number;
  rmsEpsilon?: number;
  normEpsilon?: number;
  experts?: number;
  usedExperts?: number;
  expertFeedForward?: number;
  /** Groups that experts are divided into, and those that a token uses. */
  expertGroups?: number;
  usedGroups?: number;
  /** Rows of the experts that all tokens pass, together, and the number of these experts. */
  sharedFeedForward?: number;
  sharedExperts?: number;
  /** Layers without experts, before those with some. */
  denseLayers?: number;
  /** Each n-th layer has experts. */
  expertStep?: number;
  /** Function that turns scores into shares: 1 is a softmax, 2 a sigmoid. */
  gating?: number;
  /** Function that turns scores into shares, for architectures that state it before other keys. */
  earlyGating?: number;
  /** Factor of the shares of experts, and true if they are divided by their sum. */
  expertScale?: number;
  normalizesExperts?: boolean;
  /** Layers behind the last one that predict further tokens. */
  nextLayers?: number;
  /** Numbers of experts, for architectures that state them behind other keys. */
  lateExperts?: number;
  lateUsedExperts?: number;
  /** Elements of a head, if the config states it. */
  head?: number;
  /** Latent attention: elements of the compressed queries, and of the compressed keys and values. */
  queryRank?: number;
  latentRank?: number;
  /** Elements of a head in layers with a window, and those that turn there, where layers differ. */
  windowHead?: number;
  windowRopeDimensions?: number;
  /** Layers at the end that take keys and values of earlier ones. */
  sharedLayers?: number;
  /** Elements of each token's inputs of a layer. */
  perLayer?: number;
  /** States of a token, and the one that passes a layer. */
  altupInputs?: number;
  activeInput?: number;
  /** For each layer, standard deviations above the mean that a gate has to reach; -Infinity for all gates. */
  sparsity?: readonly number[];
  /** Elements of a head's key and value, as the cache holds them. */
  keyLength?: number;
  valueLength?: number;
  /** Elements of a head's key and value once they are restored. */
  restoredKey?: number;
  restoredValue?: number;
  vocabulary?: number;
  ropeDimensions?: number;
  attentionCap?: number;
  finalCap?: number;
  window?: number;
  /** True for each layer that sees a window only. */
  windowLayers?: readonly boolean[];
  /** Each n-th layer sees the whole text, and the others a window. */
  globalStep?: number;
  causal?: boolean;
  /** Names of the outputs of a classifier. */
  labels?: readonly string[];
  /** Activation of the feed-forward part. */
  activation?: string;
  /** Layers of the decoder behind an encoder, and the token that its texts begin with. */
  decoderLayers?: number;
  decoderStart?: number;
  /** Number of buckets of relative positions, as T5 has them. */
  buckets?: number;
  /** Addend of the norms, for architectures that state it before other keys. */
  earlyNormEpsilon?: number;
  /** Type of the scaling that is written behind the other keys. */
  lateRopeType?: string;
  lateRopeFactor?: number;
  lateRopeContext?: number;
  yarnLogMultiplier?: number;
  temperatureScale?: number;
  /** Factor of attention scores, of the embedding, of what each layer adds, and of logits. */
  attentionScale?: number;
  embeddingScale?: number;
  residualScale?: number;
  logitScale?: number;
  /** Bound of queries, keys and values. */
  clamp?: number;
  /** Name of the order of rows in the matrix of queries, keys and values. */
  layout?: string;
  /** True if a layer adds its attention and its feed-forward part to the same states. */
  parallel?: boolean;
  /** Addend of the norms, for architectures that state it behind other keys. */
  lateNormEpsilon?: number;
  /** 1 mean, 2 the first token, 3 the last one. */
  pooling?: number;
  /** Inputs and outputs of the layers behind the pooling. */
  secondDenseInputs?: number;
  secondDenseOutputs?: number;
  thirdDenseInputs?: number;
  thirdDenseOutputs?: number;
}

/** A key of an architecture: its name without the architecture, unless it is the tokenizer's, its type, and the hyperparameter or the value. */
type HyperKey = readonly [
  name: string,
  type: 'u32' | 'f32' | 'bool' | 'string' | 'bool[]' | 'i32[]' | 'f32[]' | 'string[]',
  from: keyof Hyper | boolean,
];

// Keys that several architectures have.
const blockCount: HyperKey = ['block_count', 'u32', 'layers'];
const contextLength: HyperKey = ['context_length', 'u32', 'context'];
const embeddingLength: HyperKey = ['embedding_length', 'u32', 'hidden'];
const feedForwardLength: HyperKey = ['feed_forward_length', 'u32', 'feedForward'];
const headCount: HyperKey = ['attention.head_count', 'u32', 'heads'];
const headCountKv: HyperKey = ['attention.head_count_kv', 'u32', 'keyHeads'];
const rmsEpsilon: HyperKey = ['attention.layer_norm_rms_epsilon', 'f32', 'rmsEpsilon'];
const normEpsilon: HyperKey = ['attention.layer_norm_epsilon', 'f32', 'normEpsilon'];
const lateNormEpsilon: HyperKey = ['attention.layer_norm_epsilon', 'f32', 'lateNormEpsilon'];
const parallel: HyperKey = ['use_parallel_residual', 'bool', 'parallel'];
const convKernel: HyperKey = ['ssm.conv_kernel', 'u32', 'stateConvolved'];
const stateSize: HyperKey = ['ssm.state_size', 'u32', 'stateSize'];
const groupCount: HyperKey = ['ssm.group_count', 'u32', 'stateGroups'];
const timeStepRank: HyperKey = ['ssm.time_step_rank', 'u32', 'stateHeads'];
const innerSize: HyperKey = ['ssm.inner_size', 'u32', 'stateInner'];
const pooling: HyperKey = ['pooling_type', 'u32', 'pooling'];
const finalCap: HyperKey = ['final_logit_softcapping', 'f32', 'finalCap'];
const expertScale: HyperKey = ['expert_weights_scale', 'f32', 'expertScale'];
const normalizesExperts: HyperKey = ['expert_weights_norm', 'bool', 'normalizesExperts'];
const expertStep: HyperKey = ['interleave_moe_layer_step', 'u32', 'expertStep'];
const yarnLogMultiplier: HyperKey = ['rope.scaling.yarn_log_multiplier', 'f32', 'yarnLogMultiplier'];
const vocabulary: HyperKey = ['vocab_size', 'u32', 'vocabulary'];
const ropeDimensions: HyperKey = ['rope.dimension_count', 'u32', 'ropeDimensions'];
const window: HyperKey = ['attention.sliding_window', 'u32', 'window'];
const theta: HyperKey = ['rope.freq_base', 'f32', 'theta'];
/** Flags that the converter sets before it reads the tokenizer, whose own flag takes that place. */
const flag = (role: 'bos' | 'eos' | 'sep', value: boolean): HyperKey => [
  `tokenizer.ggml.add_${role}_token`,
  'bool',
  value,
];
const windowLayers: HyperKey = ['attention.sliding_window_pattern', 'bool[]', 'windowLayers'];
const lateRopeType: HyperKey = ['rope.scaling.type', 'string', 'lateRopeType'];
const lateRopeFactor: HyperKey = ['rope.scaling.factor', 'f32', 'lateRopeFactor'];
const sharedLayers: HyperKey = ['attention.shared_kv_layers', 'u32', 'sharedLayers'];
const perLayer: HyperKey = ['embedding_length_per_layer_input', 'u32', 'perLayer'];
const logitScale: HyperKey = ['logit_scale', 'f32', 'logitScale'];
const expertFeedForward: HyperKey = ['expert_feed_forward_length', 'u32', 'expertFeedForward'];
const sharedFeedForward: HyperKey = ['expert_shared_feed_forward_length', 'u32', 'sharedFeedForward'];
const sharedExperts: HyperKey = ['expert_shared_count', 'u32', 'sharedExperts'];
const denseLayers: HyperKey = ['leading_dense_block_count', 'u32', 'denseLayers'];
const deepstackLayers: HyperKey = ['n_deepstack_layers', 'u32', 'deepstackLayers'];

const rope: readonly HyperKey[] = [
  ['rope.scaling.type', 'string', 'ropeType'],
  ['rope.scaling.factor', 'f32', 'ropeFactor'],
  ['rope.scaling.original_context_length', 'u32', 'ropeContext'],
  ['rope.scaling.yarn_ext_factor', 'f32', 'yarnExtFactor'],
  ['rope.scaling.yarn_attn_factor', 'f32', 'yarnAttentionFactor'],
  ['rope.scaling.yarn_beta_fast', 'f32', 'yarnBetaFast'],
  ['rope.scaling.yarn_beta_slow', 'f32', 'yarnBetaSlow'],
  ['rope.dimension_sections', 'i32[]', 'ropeSections'],
  theta,
  ['rope.freq_base_swa', 'f32', 'localTheta'],
];

const headLengths: readonly HyperKey[] = [
  ['attention.key_length', 'u32', 'head'],
  ['attention.value_length', 'u32', 'head'],
];

/** Keys of most architectures, in the writing order of llama.cpp's converter. */
const common: readonly HyperKey[] = [
  blockCount,
  contextLength,
  embeddingLength,
  feedForwardLength,
  ['feed_forward_length', 'i32[]', 'layerFeedForward'],
  headCount,
  headCountKv,
  ['attention.head_count_kv', 'i32[]', 'layerKeyHeads'],
  ...rope,
  rmsEpsilon,
  normEpsilon,
  ['expert_count', 'u32', 'experts'],
  ['expert_used_count', 'u32', 'usedExperts'],
  ['expert_group_count', 'u32', 'expertGroups'],
  ['expert_group_used_count', 'u32', 'usedGroups'],
  ['expert_gating_func', 'u32', 'earlyGating'],
  ...headLengths,
];

const llamaKeys: readonly HyperKey[] = [...common, vocabulary, ropeDimensions];

const gemma3Keys: readonly HyperKey[] = [...common, finalCap, window];

const pooled: readonly HyperKey[] = [...common, pooling];

const encoder: readonly HyperKey[] = [
  ['attention.layer_norm_epsilon', 'f32', 'earlyNormEpsilon'],
  ...common,
  ['attention.causal', 'bool', 'causal'],
  pooling,
  ['classifier.output_labels', 'string[]', 'labels'],
];

const graniteKeys: readonly HyperKey[] = [
  ...llamaKeys,
  ['attention.scale', 'f32', 'attentionScale'],
  ['embedding_scale', 'f32', 'embeddingScale'],
  ['residual_scale', 'f32', 'residualScale'],
  logitScale,
];

/** Keys of Gemma 1, which Gemma 2 begins with. */
const gemmaKeys: readonly HyperKey[] = [
  contextLength,
  embeddingLength,
  blockCount,
  feedForwardLength,
  headCount,
  headCountKv,
  ...rope,
  rmsEpsilon,
  ...headLengths,
];

/** Keys of Granite's experts and states. */
const graniteStates: readonly HyperKey[] = [
  sharedFeedForward,
  convKernel,
  stateSize,
  groupCount,
  innerSize,
  timeStepRank,
  ['rope.scaling.finetuned', 'bool', 'rotates'],
];

const mambaKeys: readonly HyperKey[] = [
  contextLength,
  embeddingLength,
  feedForwardLength,
  headCount,
  blockCount,
  convKernel,
  innerSize,
  stateSize,
  timeStepRank,
];

/** Keys of Phi-3, which Phi with experts begins with. */
const phiKeys: readonly HyperKey[] = [
  contextLength,
  ['rope.scaling.original_context_length', 'u32', 'ropeContext'],
  embeddingLength,
  feedForwardLength,
  blockCount,
  headCount,
  headCountKv,
  rmsEpsilon,
  ropeDimensions,
  theta,
  window,
];

/** Keys of linear attention. */
const linear: readonly HyperKey[] = [
  convKernel,
  stateSize,
  groupCount,
  timeStepRank,
  innerSize,
  ['attention.recurrent_layers', 'bool[]', 'recurrentLayers'],
  ['full_attention_interval', 'u32', 'fullStep'],
  ropeDimensions,
  ['rope.dimension_sections', 'i32[]', 'lateRopeSections'],
];

/** Keys of T5. @param layers those about the decoder's layers. @param start those about its texts */
const t5Keys = (layers: readonly HyperKey[], start: readonly HyperKey[]): readonly HyperKey[] => [
  contextLength,
  embeddingLength,
  feedForwardLength,
  blockCount,
  ...layers,
  headCount,
  ...headLengths,
  normEpsilon,
  ['attention.relative_buckets_count', 'u32', 'buckets'],
  rmsEpsilon,
  ...start,
];

/** Keys by architecture. Some have an order of their own. */
const entries = {
  llama: llamaKeys,
  smollm3: llamaKeys,
  qwen2: pooled,
  qwen3: pooled,
  qwen3moe: [...common, expertFeedForward],
  qwen2vl: common,
  qwen3vl: [...common, deepstackLayers],
  qwen3vlmoe: [...common, expertFeedForward, deepstackLayers],
  gemma: gemmaKeys,
  gemma2: [...gemmaKeys, ['attn_logit_softcapping', 'f32', 'attentionCap'], finalCap, window],
  gemma3: gemma3Keys,
  'gemma-embedding': [
    ...gemma3Keys,
    ['dense_2_feat_in', 'u32', 'secondDenseInputs'],
    ['dense_2_feat_out', 'u32', 'secondDenseOutputs'],
    ['dense_3_feat_in', 'u32', 'thirdDenseInputs'],
    ['dense_3_feat_out', 'u32', 'thirdDenseOutputs'],
    pooling,
  ],
  gemma3n: [
    ...gemma3Keys,
    ['altup.active_idx', 'u32', 'activeInput'],
    ['altup.num_inputs', 'u32', 'altupInputs'],
    perLayer,
    sharedLayers,
    ['activation_sparsity_scale', 'f32[]', 'sparsity'],
    windowLayers,
  ],
  gemma4: [
    ...gemma3Keys,
    sharedLayers,
    perLayer,
    windowLayers,
    ['attention.key_length_swa', 'u32', 'windowHead'],
    ['attention.value_length_swa', 'u32', 'windowHead'],
    expertFeedForward,
    ropeDimensions,
    ['rope.dimension_count_swa', 'u32', 'windowRopeDimensions'],
  ],
  mistral3: [...llamaKeys, yarnLogMultiplier, ['attention.temperature_scale', 'f32', 'temperatureScale']],
  granite: [...graniteKeys, ...graniteStates],
  granitemoe: [...graniteKeys, ...graniteStates],
  granitehybrid: [...graniteKeys, ...graniteStates],
  mamba: [...mambaKeys, rmsEpsilon, ['ssm.dt_b_c_rms', 'bool', 'normsSteps']],
  mamba2: [...mambaKeys, groupCount, rmsEpsilon],
  'falcon-h1': [...mambaKeys, groupCount, rmsEpsilon, vocabulary, headCountKv, ...headLengths, theta],
  qwen2moe: [...common, expertFeedForward, sharedFeedForward],
  qwen3next: [...common, expertFeedForward, sharedFeedForward, ...linear],
  qwen35: [...common, ...linear],
  qwen35moe: [...common, expertFeedForward, sharedFeedForward, ...linear],
  olmoe: common,
  glm4moe: [
    ...common,
    ropeDimensions,
    expertFeedForward,
    sharedExperts,
    denseLayers,
    ['expert_gating_func', 'u32', 'gating'],
    expertScale,
    normalizesExperts,
    ['nextn_predict_layers', 'u32', 'nextLayers'],
  ],
  gpt2: [blockCount, contextLength, embeddingLength, feedForwardLength, headCount, normEpsilon],
  llama4: [...llamaKeys, expertStep, expertFeedForward, window],
  'gpt-oss': [...common, window, expertFeedForward],
  deepseek2: [
    ...common,
    denseLayers,
    vocabulary,
    ['attention.q_lora_rank', 'u32', 'queryRank'],
    ['attention.kv_lora_rank', 'u32', 'latentRank'],
    ['attention.key_length', 'u32', 'keyLength'],
    ['attention.value_length', 'u32', 'valueLength'],
    ['attention.key_length_mla', 'u32', 'restoredKey'],
    ['attention.value_length_mla', 'u32', 'restoredValue'],
    expertFeedForward,
    sharedExperts,
    expertScale,
    normalizesExperts,
    ropeDimensions,
    yarnLogMultiplier,
  ],
  'ernie4_5-moe': [
    ...common,
    ['expert_count', 'u32', 'lateExperts'],
    ['expert_used_count', 'u32', 'lateUsedExperts'],
    expertStep,
    denseLayers,
    expertFeedForward,
    sharedExperts,
    sharedFeedForward,
  ],
  olmo: [...common, lateNormEpsilon, ['attention.clamp_kqv', 'f32', 'clamp']],
  olmo2: [...common, window, windowLayers],
  glm4: [...common, ropeDimensions],
  chatglm: [
    contextLength,
    embeddingLength,
    feedForwardLength,
    blockCount,
    headCount,
    headCountKv,
    rmsEpsilon,
    ropeDimensions,
    flag('bos', false),
    theta,
  ],
  falcon: [
    contextLength,
    ['tensor_data_layout', 'string', 'layout'],
    embeddingLength,
    feedForwardLength,
    blockCount,
    headCount,
    headCountKv,
    normEpsilon,
    theta,
  ],
  starcoder2: common,
  bitnet: [...common, lateRopeType, lateRopeFactor],
  stablelm: [
    contextLength,
    embeddingLength,
    blockCount,
    feedForwardLength,
    ropeDimensions,
    headCount,
    headCountKv,
    parallel,
    normEpsilon,
  ],
  gptneox: [
    contextLength,
    embeddingLength,
    blockCount,
    feedForwardLength,
    ropeDimensions,
    headCount,
    parallel,
    normEpsilon,
  ],
  phi2: [
    contextLength,
    embeddingLength,
    feedForwardLength,
    blockCount,
    headCount,
    headCountKv,
    normEpsilon,
    ropeDimensions,
    flag('bos', false),
  ],
  'command-r': [...common, logitScale, lateRopeType],
  cohere2: [...common, logitScale, window, vocabulary, ropeDimensions, lateRopeType],
  exaone4: [...common, vocabulary, window, windowLayers],
  'hunyuan-dense': [
    ...common,
    lateRopeType,
    lateRopeFactor,
    ['rope.scaling.original_context_length', 'u32', 'lateRopeContext'],
  ],
  ernie4_5: common,
  nemotron: [...common, vocabulary, lateNormEpsilon, ropeDimensions, lateRopeType, lateRopeFactor],
  seed_oss: common,
  lfm2: [...common, vocabulary, ['shortconv.l_cache', 'u32', 'convolved']],
  phi3: phiKeys,
  phimoe: [...phiKeys, ['expert_used_count', 'u32', 'lateUsedExperts'], ['expert_count', 'u32', 'lateExperts']],
  bert: encoder,
  'jina-bert-v2': encoder,
  'jina-bert-v3': encoder,
  'nomic-bert': encoder,
  'modern-bert': [
    ...encoder,
    window,
    ['attention.sliding_window_pattern', 'u32', 'globalStep'],
    lateRopeType,
    vocabulary,
    ['hidden_activation', 'string', 'activation'],
    flag('bos', true),
    flag('eos', true),
    flag('sep', true),
  ],
  t5encoder: t5Keys([], []),
  t5: t5Keys([['decoder_block_count', 'u32', 'decoderLayers']], [['decoder_start_token_id', 'u32', 'decoderStart']]),
} as const satisfies Readonly<Record<string, readonly HyperKey[]>>;

/** Architectures with keys, in llama.cpp's spelling. */
export type KeyedArchitecture = keyof typeof entries;

/** Keys before those of `general`: the converter writes them while it walks over the tensors. */
const early: readonly HyperKey[] = [['rope.scaling.attn_factor', 'f32', 'attentionFactor']];

function keysOf(list: readonly HyperKey[], architecture: string, hyper: Hyper): GgufKey[] {
  return list.flatMap(([name, type, from]) => {
    const value = typeof from === 'boolean' ? from : hyper[from];
    const prefix = name.startsWith('tokenizer.') ? '' : `${architecture}.`;
    return value === undefined ? [] : [{ name: prefix + name, type, value } as GgufKey];
  });
}

/** The keys of a model up to its tokenizer, in writing order. */
export function modelKeys(architecture: KeyedArchitecture, name: string | undefined, hyper: Hyper): GgufKey[] {
  return [
    { name: 'general.architecture', type: 'string', value: architecture },
    ...keysOf(early, architecture, hyper),
    { name: 'general.type', type: 'string', value: 'model' },
    ...(name === undefined || name === '' ? [] : [{ name: 'general.name', type: 'string', value: name } as const]),
    ...keysOf(entries[architecture], architecture, hyper),
  ];
}
