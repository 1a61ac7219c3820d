/**
 * Reads the keys of config.json that most architectures share, and checks settings that llama.cpp has no key for.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a.
 */
import type { Note } from '../../core/note.js';
import { show } from '../../core/show.js';
import type { Recipe } from '../recipe.js';
import type { Config, Rope } from './config.js';
import { badFolderFile, unsupported } from './errors.js';
import type { Hyper, KeyedArchitecture } from './hyper.js';
import { setting } from './rope.js';
import type { Sizes, TensorTable } from './tensors.js';
import type { EncoderTokenizer } from './tokenizer-input.js';

const file = 'config.json';

/** A model as its config.json describes it. */
export interface Model {
  /** Name of the architecture in llama.cpp. */
  readonly architecture: KeyedArchitecture;
  readonly hyper: Hyper;
  readonly sizes: Sizes;
  readonly table: TensorTable;
  /** Computes the tensors that the folder does not hold. Call it after the sizes have been checked. */
  readonly made: () => readonly Recipe[];
  /** The tokenizer, for encoders. */
  readonly encoder?: EncoderTokenizer;
  /** True if the head is the embedding; undefined if config.json does not say. */
  readonly tied: boolean | undefined;
  /** True if the embedding may have more rows than the vocabulary. The extra rows are left out. */
  readonly longEmbedding?: true;
  readonly notes: readonly Note[];
}

/** Inputs of each reader of an architecture. */
export interface Read {
  readonly config: Config;
  readonly rope: Rope;
  readonly notes: Note[];
  /** Names of the folder's tensors. */
  readonly names: readonly string[];
  /** True if weights of the folder are codes with scales. */
  readonly isCoded: boolean;
  /** Rows of the embedding, in place of a missing vocab_size. */
  readonly embeddingRows: number | undefined;
}

/** Zero for sizes that an architecture lacks. */
export const none = {
  experts: 0,
  expertFeedForward: 0,
  twoExpertFeedForward: 0,
  sharedFeedForward: 0,
  twoSharedFeedForward: 0,
  positions: 0,
  storedPositions: 0,
  labels: 0,
  buckets: 0,
  threeHidden: 0,
  convolved: 0,
  tokenTypes: 0,
  twoQueries: 0,
};

/** Sizes of experts. */
export function expertSizes(experts: number, expertFeedForward: number, sharedFeedForward = 0) {
  return {
    experts,
    expertFeedForward,
    twoExpertFeedForward: 2 * expertFeedForward,
    sharedFeedForward,
    twoSharedFeedForward: 2 * sharedFeedForward,
  };
}

/** True if the experts of a layer are stacked in one tensor. */
export function areStacked({ names }: Read): boolean {
  return names.some((name) => name.endsWith('.mlp.experts.gate_up_proj'));
}

export function vocabularyOf({ config, embeddingRows }: Read): number {
  return config.maybeWhole('vocab_size') ?? embeddingRows ?? badFolderFile(file, 'vocab_size is missing');
}

/** Differences of a decoder from Llama. */
interface DecoderWish {
  /** Key of the addend of LayerNorms, or the addend, in place of that of RMS norms. */
  readonly normEpsilon?: string | number;
  /** Key of the addend of RMS norms, or the addend. @defaultValue 'rms_norm_eps' */
  readonly rmsEpsilon?: string | number;
  /** Numbers in place of those under the usual keys. */
  readonly layers?: number;
  readonly hidden?: number;
  readonly heads?: number;
  readonly keyHeads?: number;
  readonly feedForward?: number;
  readonly context?: number;
  readonly theta?: number;
  /** True if heads have hidden_size / num_attention_heads elements, regardless of head_dim. */
  readonly plainHeads?: true;
  /** True if each head has keys and values of its own. */
  readonly ownKeys?: true;
}

/** Numbers and sizes of a decoder. The length of a head is written only if config.json or the architecture states it. */
export function decoder(read: Read, wish: DecoderWish = {}): { readonly hyper: Hyper; readonly sizes: Sizes } {
  // Read and check the sizes.
  const { config, rope } = read;
  const { normEpsilon, rmsEpsilon = 'rms_norm_eps' } = wish;
  const layers = wish.layers ?? config.whole('num_hidden_layers');
  const hidden = wish.hidden ?? config.whole('hidden_size');
  const heads = wish.heads ?? config.whole('num_attention_heads');
  const keyHeads = wish.ownKeys === true ? heads : (wish.keyHeads ?? config.whole('num_key_value_heads', heads));
  if (heads % keyHeads !== 0)
    badFolderFile(file, `num_attention_heads ${heads} is not a multiple of num_key_value_heads ${keyHeads}`);
  const given = wish.plainHeads === true ? undefined : config.maybeWhole('head_dim');
  if (given === undefined && hidden % heads !== 0)
    badFolderFile(
      file,
      `hidden_size ${hidden} is not a multiple of num_attention_heads ${heads}, and head_dim is missing`,
    );
  const head = given ?? hidden / heads;
  if (head % 2 !== 0) badFolderFile(file, `a head has ${head} elements; the rotary embedding takes pairs`);
  const feedForward = wish.feedForward ?? config.whole('intermediate_size');
  // Collect the numbers for the metadata and the sizes for the tables.
  return {
    hyper: {
      layers,
      hidden,
      heads,
      keyHeads,
      feedForward,
      context: wish.context ?? config.whole('max_position_embeddings'),
      ...(normEpsilon === undefined
        ? { rmsEpsilon: typeof rmsEpsilon === 'number' ? rmsEpsilon : config.positive(rmsEpsilon) }
        : { normEpsilon: typeof normEpsilon === 'number' ? normEpsilon : config.positive(normEpsilon) }),
      theta: wish.theta ?? rope.theta ?? config.positive('rope_theta'),
      ...(given === undefined ? {} : { head }),
    },
    sizes: {
      layers,
      hidden,
      twoHidden: 2 * hidden,
      heads,
      keyHeads,
      head,
      feedForward,
      vocabulary: vocabularyOf(read),
      queries: heads * head,
      keys: keyHeads * head,
      together: (heads + 2 * keyHeads) * head,
      twoFeedForward: 2 * feedForward,
      ...none,
    },
  };
}

/** Fails if config.json lists layers that differ from those that llama.cpp computes. */
export function checkLayers({ config }: Read, layers: number, sliding: (layer: number) => boolean): void {
  const types = config.get('layer_types');
  if (types === undefined) return;
  if (!Array.isArray(types) || types.length !== layers)
    badFolderFile(file, `layer_types has to be an array of ${layers} names, got ${show(types)}`);
  const other = (types as unknown[]).findIndex(
    (type, i) => type !== (sliding(i) ? 'sliding_attention' : 'full_attention'),
  );
  if (other >= 0)
    unsupported(file, `layer_types[${other}] is ${show((types as unknown[])[other])}; llama.cpp computes it otherwise`);
}

/** True for each layer with a window. `otherwise` tells for a config without layer_types. */
export function windowLayers({ config }: Read, layers: number, otherwise: (layer: number) => boolean): boolean[] {
  const types = config.get('layer_types');
  if (types === undefined) return Array.from({ length: layers }, (_, i) => otherwise(i));
  if (!Array.isArray(types) || types.length !== layers)
    badFolderFile(file, `layer_types has to be an array of ${layers} names, got ${show(types)}`);
  return (types as unknown[]).map((type, i) => {
    if (type === 'sliding_attention' || type === 'full_attention') return type === 'sliding_attention';
    return unsupported(file, `layer_types[${i}] is ${show(type)}; it can be sliding_attention or full_attention`);
  });
}

export const never = () => false;

export function tiedIn(config: Config): boolean | undefined {
  return config.maybeFlag('tie_word_embeddings');
}

/**
 * Elements of a head that the rotary embedding turns: an even number of at least 2.
 * @param elements those of all heads together, as converters that round once count them, or of one head
 */
export function rotatedOf({ config, rope }: Read, elements: number, heads: number, otherwise?: number): number {
  const share = setting(rope, 'partial_rotary_factor') ?? config.positive('partial_rotary_factor', otherwise);
  const rotated = Math.floor(Math.floor(share * elements) / heads);
  if (share > 1 || rotated < 2 || rotated % 2 !== 0)
    badFolderFile(file, `partial_rotary_factor ${share} turns ${rotated} elements of a head; they have to be pairs`);
  return rotated;
}

/** Checks settings common to all decoders. */
export function checkDecoder({ config }: Read, bothSides = false): void {
  config.only('partial_rotary_factor', 1);
  config.only('use_sliding_window', false);
  if (!bothSides) config.only('use_bidirectional_attention', false);
}

/** Checks settings common to Gemma since its second version. */
export function checkGemma(read: Read, bothSides = false): void {
  checkDecoder(read, bothSides);
  read.config.only('hidden_activation', 'gelu_pytorch_tanh');
  read.config.only('attention_bias', false);
}

/** The table with biases of attention required or forbidden as config.json states. */
export function biased(config: Config, table: TensorTable): TensorTable {
  const flag = config.maybeFlag('attention_bias');
  if (flag === undefined) return table;
  const layer = table.layer.map((row) =>
    row.to.startsWith('attn_') && row.bias === 'optional'
      ? ({ ...row, bias: flag ? 'always' : 'never' } as const)
      : row,
  );
  return { ...table, layer };
}

/** Fails unless each layer has experts. */
export function checkSparse({ config }: Read): void {
  config.only('decoder_sparse_step', 1);
  const dense = config.get('mlp_only_layers');
  if (Array.isArray(dense) && dense.length > 0)
    unsupported(file, `mlp_only_layers is ${show(dense)}; llama.cpp computes experts in every layer`);
}

/** A model with experts in each layer, of which all tokens share one. */
export function withSharedExpert({ config }: Read, model: Model, [experts, usedExperts]: [number, number]): Model {
  const expertFeedForward = config.whole('moe_intermediate_size');
  const sharedFeedForward = config.whole('shared_expert_intermediate_size');
  return {
    ...model,
    hyper: { ...model.hyper, experts, usedExperts, expertFeedForward, sharedFeedForward },
    sizes: { ...model.sizes, ...expertSizes(experts, expertFeedForward, sharedFeedForward) },
  };
}

export function expertCounts(
  config: Config,
  key: string,
  usedKey = 'num_experts_per_tok',
): [experts: number, used: number] {
  const [experts, used] = [config.whole(key), config.whole(usedKey)];
  if (used > experts) badFolderFile(file, `${usedKey} ${used} is more than ${key} ${experts}`);
  return [experts, used];
}
