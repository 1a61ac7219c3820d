/**
 * Describes classes of models, and reads a config.json by such a description.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a.
 */
import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import type { KnownModels } from '../../formats/known-models.js';
import type { GraphFacts } from '../onnx/families.js';
import type { Recipe } from '../recipe.js';
import type { Traits } from '../traits.js';
import type { WebllmFamily } from '../webllm/families.js';
import type { Config, Rope } from './config.js';
import { badConfig, unsupportedConfig } from './errors.js';
import type { Json } from './json.js';
import type { KeyName, Keys } from './keys.js';
import type { FileFacts } from './outward-config.js';
import { llama3Factors, ropeKeys, setting } from './rope.js';
import type { Row, Sizes, TensorTable } from './tensors.js';
import type { EncoderTokenizer, TokenizerFacts } from './tokenizer-input.js';

/** A model as its config.json describes it. */
export interface Model {
  /** Name of the architecture in llama.cpp. */
  readonly architecture: string;
  readonly keys: Keys;
  readonly sizes: Sizes;
  readonly table: TensorTable;
  /** Computes the tensors that the folder does not hold. Call it after the sizes have been checked. */
  readonly made: () => readonly Recipe[];
  /** Facts of its class about its tokenizer and its pooling. */
  readonly facts: TokenizerFacts & Pick<ModelClass, 'writesPooling'>;
  /** The tokenizer, for encoders. */
  readonly encoder?: EncoderTokenizer | undefined;
  /** True if the head is the embedding; undefined if config.json does not say. */
  readonly tied: boolean | undefined;
  /** True if the embedding may have more rows than the vocabulary. The extra rows are left out. */
  readonly longEmbedding?: true | undefined;
  /** Chat templates besides those of the folder, by name. */
  readonly templates?: Readonly<Record<string, string>>;
  readonly notes: readonly Note[];
}

/** A folder while its config.json is read. */
export interface Read {
  readonly config: Config;
  readonly rope: Rope;
  readonly notes: Note[];
  /** Names of the folder's tensors. */
  readonly names: readonly string[];
  /** Numbers that the folder holds as tensors of one element, those of activations, by their names. */
  readonly scalars?: ReadonlyMap<string, number>;
  /** True if weights of the folder are codes with scales. */
  readonly isCoded: boolean;
  /** Rows of the embedding, in place of a missing vocab_size. */
  readonly embeddingRows: number | undefined;
  /** The tokens `yes` and `no` of a reranker. Undefined for other models. */
  readonly answers?: readonly [yes: number, no: number] | undefined;
}

/** Keys and sizes of a model. */
export interface Numbers {
  readonly keys: Keys;
  readonly sizes: Sizes;
}

/** A folder whose usual numbers are known. */
export type Draft = Read & Numbers;

/** Settings of config.json with the values that llama.cpp computes. Others are refused. */
export type Settings = Readonly<Record<string, readonly unknown[]>>;

/** Places of the numbers of a decoder in config.json, and numbers in place of those under the usual keys. */
interface DecoderNumbers {
  /** Key of the addend of LayerNorms, or the addend, in place of that of RMS norms. */
  readonly normEpsilon?: string | number;
  /** Key of the addend of RMS norms, or the addend. @defaultValue 'rms_norm_eps' */
  readonly rmsEpsilon?: string | number;
  readonly layers?: number;
  readonly hidden?: number;
  readonly heads?: number;
  readonly keyHeads?: number;
  /** Elements of a head, in place of head_dim. */
  readonly head?: number;
  readonly feedForward?: number;
  readonly context?: number;
  readonly theta?: number;
  /** True if heads have hidden_size / num_attention_heads elements, regardless of head_dim. */
  readonly plainHeads?: true;
  /** True if each head has keys and values of its own. */
  readonly ownKeys?: true;
}

/** All else that a class reads. Keys and sizes are added to the usual ones. */
export type Details = Partial<Omit<Model, 'notes' | 'sizes' | 'facts'> & { readonly sizes: Partial<Sizes> }>;

/**
 * A class of models. Without further members it has the sizes of Llama under the keys that Llama has in config.json, and its tensors outside of
 * layers. State in any case the rows of layers, settings such as hidden_act that llama.cpp computes in one way (`only`), kinds of `scaling`, and
 * in `details` the keys that most converters add: vocab_size and rope.dimension_count.
 */
export interface ModelClass extends TokenizerFacts {
  /**
   * Names that config.json may have under `architectures`, with the values of keys that it may lack: those of the class that Hugging Face
   * reads it with.
   */
  readonly classes: Readonly<Record<string, Json>>;
  /** Name of the architecture in llama.cpp. */
  readonly architecture: string;
  /** Settings that llama.cpp computes. */
  readonly only?: Settings;
  /** Where the numbers of a decoder stand. */
  readonly decoder?: DecoderNumbers | ((read: Read) => DecoderNumbers);
  /** Reads the numbers of a model that is no decoder of the usual kind. */
  readonly numbers?: (read: Read) => Numbers;
  /** Kinds of scaling of the rotary embedding that llama.cpp has for it. Undefined if they are not checked. */
  readonly scaling?: readonly string[];
  /** The factor of Llama 3's scaling, if the file states none. @defaultValue 8 */
  readonly llama3Factor?: number;
  /** Treatment of the base of the rotary embedding: `usual` has to be 10000, and `other` is written if it is not. Written by default. */
  readonly theta?: 'usual' | 'other';
  /** Layers with a window as llama.cpp computes them. Undefined if layer_types is not checked. */
  readonly slides?: (layer: number) => boolean;
  readonly table?: TensorTable;
  /** Keys that are left out. */
  readonly lacks?: readonly KeyName[];
  /** False if tie_word_embeddings does not count. */
  readonly ties?: false;
  readonly encoder?: EncoderTokenizer;
  readonly longEmbedding?: true;
  /** Classes for which WebLLM has libraries, by their names in config.json. Classes that spread another one share its entries. */
  readonly webllm?: Readonly<Record<string, WebllmFamily>>;
  /** Models that mlx-lm loads, by the `model_type` of config.json. Classes that spread another one share them, too. */
  readonly mlx?: KnownModels;
  /**
   * Graphs for transformers.js: of decoders by their names in config.json, of encoders by what the names of their classes have before the head.
   * Classes that spread another one share them, too.
   */
  readonly onnx?: Readonly<Record<string, GraphFacts>>;
  readonly details?: (draft: Draft) => Details;
  /**
   * Names of config.json that follow from a file in another way than for most classes, or for this class alone; undefined if the file is of
   * another class.
   */
  readonly outward?: (facts: FileFacts, className: string) => Json | undefined;
  /** True if llama.cpp's converter writes the pooling of modules.json. */
  readonly writesPooling?: true | undefined;
  /** Traits that running it needs beyond the metadata; undefined if its outputs cannot be computed here. */
  readonly traits?: Traits | undefined;
}

/** Settings of all decoders with a rotary embedding of whole heads. */
export const decoderSettings: Settings = {
  partial_rotary_factor: [1],
  use_sliding_window: [false],
  use_bidirectional_attention: [false],
};

/** Settings of the most usual decoders. */
export const siluSettings: Settings = { ...decoderSettings, hidden_act: ['silu'] };

/** Values of keys of most decoders, if config.json lacks them, by short names. @param more further ones, by their names in config.json */
export function decoderDefaults(
  sizes: readonly [hidden: number, feedForward: number, layers: number],
  heads: readonly [heads: number, keyHeads?: number, head?: number],
  context: number,
  more: Json = {},
): Json {
  const [hidden_size, intermediate_size, num_hidden_layers] = sizes;
  const [num_attention_heads, num_key_value_heads, head_dim] = heads;
  return {
    hidden_size,
    intermediate_size,
    num_hidden_layers,
    num_attention_heads,
    num_key_value_heads,
    head_dim,
    max_position_embeddings: context,
    rms_norm_eps: 1e-6,
    rope_theta: 10000,
    ...more,
  };
}

export const never = () => false;

/** True for each layer but every n-th one. */
export const allBut = (step: number) => (layer: number) => (layer + 1) % step !== 0;

/** Rows of the embedding. */
export function vocabularyOf({ config, embeddingRows }: Read): number {
  return config.maybeWhole('vocab_size') ?? embeddingRows ?? badConfig('vocab_size is missing');
}

/** Numbers of a decoder. The length of a head is written only if config.json or the architecture states it. */
function decoderNumbers(read: Read, wish: DecoderNumbers = {}): Numbers {
  // Read and check the sizes.
  const { config, rope } = read;
  const { normEpsilon, rmsEpsilon = 'rms_norm_eps' } = wish;
  const layers = wish.layers ?? config.whole('num_hidden_layers');
  const hidden = wish.hidden ?? config.whole('hidden_size');
  const heads = wish.heads ?? config.whole('num_attention_heads');
  const keyHeads = wish.ownKeys === true ? heads : (wish.keyHeads ?? config.whole('num_key_value_heads', heads));
  if (heads % keyHeads !== 0)
    badConfig(`num_attention_heads ${heads} is not a multiple of num_key_value_heads ${keyHeads}`);
  const given = wish.head ?? (wish.plainHeads === true ? undefined : config.maybeWhole('head_dim'));
  if (given === undefined && hidden % heads !== 0)
    badConfig(`hidden_size ${hidden} is not a multiple of num_attention_heads ${heads}, and head_dim is missing`);
  const head = given ?? hidden / heads;
  if (head % 2 !== 0) badConfig(`a head has ${head} elements; the rotary embedding takes pairs`);
  const feedForward = wish.feedForward ?? config.whole('intermediate_size');
  const positions = wish.context ?? config.whole('max_position_embeddings');
  const numberOf = (from: string | number) => (typeof from === 'number' ? from : config.positive(from));
  // Collect the numbers for the metadata and the sizes for the tables.
  return {
    keys: {
      block_count: layers,
      embedding_length: hidden,
      'attention.head_count': heads,
      'attention.head_count_kv': keyHeads,
      feed_forward_length: feedForward,
      context_length: positions,
      ...(normEpsilon === undefined
        ? { 'attention.layer_norm_rms_epsilon': numberOf(rmsEpsilon) }
        : { 'attention.layer_norm_epsilon': numberOf(normEpsilon) }),
      'rope.freq_base': wish.theta ?? rope.theta ?? config.positive('rope_theta'),
      'attention.causal': config.maybeFlag('is_causal') === false ? false : undefined,
      'attention.key_length': given,
      'attention.value_length': given,
    },
    sizes: {
      layers,
      hidden,
      heads,
      keyHeads,
      head,
      feedForward,
      positions,
      vocabulary: vocabularyOf(read),
      queries: heads * head,
      keys: keyHeads * head,
      together: (heads + 2 * keyHeads) * head,
    },
  };
}

/** Names of the keys of an encoder in config.json. */
interface EncoderNames {
  readonly layers: string;
  readonly hidden: string;
  readonly heads: string;
  readonly feedForward: string;
  readonly context?: string;
}

/** Numbers of an encoder, whose heads are all alike. @param epsilon key of the addend of norms, or the addend */
export function encoderNumbers(read: Read, names: EncoderNames, epsilon: string | number): Numbers {
  const { config } = read;
  const [layers, hidden] = [config.whole(names.layers), config.whole(names.hidden)];
  const [heads, feedForward] = [config.whole(names.heads), config.whole(names.feedForward)];
  const context = names.context === undefined ? undefined : config.whole(names.context);
  if (hidden % heads !== 0) badConfig(`vectors of ${hidden} elements cannot be divided into ${heads} heads`);
  return {
    keys: {
      block_count: layers,
      context_length: context,
      embedding_length: hidden,
      feed_forward_length: feedForward,
      'attention.head_count': heads,
      'attention.layer_norm_epsilon': typeof epsilon === 'number' ? epsilon : config.positive(epsilon),
      'attention.causal': false,
    },
    sizes: {
      ...{ layers, hidden, heads, feedForward, keyHeads: heads, head: hidden / heads },
      ...{ queries: hidden, keys: hidden, together: 3 * hidden, vocabulary: vocabularyOf(read), positions: context },
    },
  };
}

/** layer_types of config.json, a name for each layer; undefined if it is missing. */
export function layerTypes({ config }: Read, layers: number, isNeeded = false): readonly unknown[] | undefined {
  const types = config.get('layer_types');
  if ((types === undefined && !isNeeded) || (Array.isArray(types) && types.length === layers)) return types;
  return badConfig(`layer_types has to be an array of ${layers} names, got ${show(types)}`);
}

/** Fails if config.json lists layers that differ from those that llama.cpp computes. */
function checkLayers(read: Read, layers: number, sliding: (layer: number) => boolean): void {
  const types = layerTypes(read, layers) ?? [];
  const other = types.findIndex((type, i) => type !== (sliding(i) ? 'sliding_attention' : 'full_attention'));
  if (other >= 0) unsupportedConfig(`layer_types[${other}] is ${show(types[other])}; llama.cpp computes it otherwise`);
}

/** The kind of each layer, by layer_types of config.json. @param otherwise the kinds without layer_types; undefined if it may not be missing */
export function layerKinds(
  draft: Draft,
  kinds: readonly [string, string],
  otherwise?: (layer: number) => boolean,
): boolean[] {
  const { layers } = draft.sizes;
  const types = layerTypes(draft, layers, otherwise === undefined);
  if (types === undefined) return Array.from({ length: layers }, (_, i) => otherwise?.(i) === true);
  return types.map((type, i) => {
    if (kinds.includes(type as string)) return type === kinds[0];
    return unsupportedConfig(`layer_types[${i}] is ${show(type)}; it can be ${kinds.join(' or ')}`);
  });
}

/** True for each layer with a window. */
export const windowLayers = (draft: Draft, otherwise: (layer: number) => boolean) =>
  layerKinds(draft, ['sliding_attention', 'full_attention'], otherwise);

/** The window and its layers, which have to be three of four, as llama.cpp has them whatever the file says. */
export function threeOfFourWindows(draft: Draft, otherwise = allBut(4)): Keys {
  const window = draft.config.maybeWhole('sliding_window');
  if (window === undefined) {
    checkLayers(draft, draft.sizes.layers, never);
    return {};
  }
  const layers = windowLayers(draft, otherwise);
  const other = layers.findIndex((slides, i) => slides !== allBut(4)(i));
  if (other >= 0)
    unsupportedConfig(`layer ${other} has ${layers[other] ? 'a' : 'no'} window; llama.cpp computes it otherwise`);
  return { 'attention.sliding_window': window, 'attention.sliding_window_pattern': layers };
}

/** Notes a window, which llama.cpp does not apply. */
export function checkWindow(draft: Draft): void {
  const { config, notes, sizes } = draft;
  const window = config.maybeWhole('sliding_window');
  if (window === undefined) checkLayers(draft, sizes.layers, never);
  if (window === undefined || window >= (sizes.positions ?? 0)) return;
  const text = `sliding_window ${window} is not written, because llama.cpp computes this architecture without one`;
  notes.push(noteOf('noSlidingWindow', { window }, text));
}

/** Notes that llama.cpp computes an architecture otherwise than transformers does. */
export function noteOtherwise({ notes }: Read, architecture: string, text: string): void {
  notes.push(noteOf('computedOtherwise', { architecture }, text));
}

/**
 * Elements of a head that the rotary embedding turns: an even number of at least 2.
 * @param all elements of all heads together, and their number, for converters that round once
 */
export function rotatedOf({ config, rope, sizes }: Draft, otherwise?: number, all = [sizes.head, 1]): number {
  const [elements = 0, heads = 1] = all;
  const share = setting(rope, 'partial_rotary_factor') ?? config.positive('partial_rotary_factor', otherwise);
  const rotated = Math.floor(Math.floor(share * elements) / heads);
  if (share > 1 || rotated < 2 || rotated % 2 !== 0)
    badConfig(`partial_rotary_factor ${share} turns ${rotated} elements of a head; they have to be pairs`);
  return rotated;
}

/**
 * Numbers of experts.
 * @param key of their number
 * @param more the keys of the number that a token uses, and of the rows of each, which are written if they have a key
 */
export function readExperts(
  config: Config,
  key: string,
  more: { readonly used?: string; readonly rows?: string } = {},
) {
  const { used: usedKey = 'num_experts_per_tok', rows } = more;
  const [experts, used] = [config.whole(key), config.whole(usedKey)];
  if (used > experts) badConfig(`${usedKey} ${used} is more than ${key} ${experts}`);
  const expertFeedForward = rows === undefined ? undefined : config.whole(rows);
  return {
    keys: { expert_count: experts, expert_used_count: used, expert_feed_forward_length: expertFeedForward },
    sizes: { experts, expertFeedForward },
  };
}

/** Settings of models of which each layer has experts. */
export function checkSparse({ config }: Read): void {
  config.only('decoder_sparse_step', 1);
  const dense = config.get('mlp_only_layers');
  if (Array.isArray(dense) && dense.length > 0)
    unsupportedConfig(`mlp_only_layers is ${show(dense)}; llama.cpp computes experts in every layer`);
}

/** True if the experts of a layer are stacked in one tensor. */
export function areStacked({ names }: Read): boolean {
  return names.some((name) => name.endsWith('.mlp.experts.gate_up_proj'));
}

/** Rows of experts that are stacked in two tensors: those of transformers, and those of Granite, which stand beside their router. */
const stackedRow = /^((?:.*\.)?experts)\.(gate_up|down)_proj(_bias)?$|^(block_sparse_moe)\.(input|output)_linear$/;

/** The rows of a tensor's parts, a tensor for each expert, as loaders of codes take them. Others are as they are. */
function expertRowsApart(row: Row): readonly Row[] {
  const [, module, projection, bias, block = '', linear] = stackedRow.exec(row.from) ?? [];
  if ((projection ?? linear) === undefined) return [row];
  const isJoined = projection === 'gate_up' || linear === 'input';
  const only = row.only === undefined ? {} : { only: row.only };
  // Gates and ups may stay one matrix in llama.cpp.
  const staysOne = isJoined && row.shares === undefined;
  return (isJoined ? ['gate', 'up'] : ['down']).map((part, i): Row => {
    const from = `${module ?? `${block}.experts`}.#.${part}_proj`;
    const to = staysOne ? row.to : `ffn_${part}_exps`;
    const [rows, columns] = isJoined
      ? (['expertFeedForward', 'hidden'] as const)
      : (['hidden', 'expertFeedForward'] as const);
    return bias === undefined
      ? { from, to, shape: [rows, columns], ...only, ...(staysOne ? { among: [i, 2] as const } : {}) }
      : { from: `${from}.bias`, to, shape: [rows], whole: '.bias', ...only };
  });
}

/** Reads a model of a class. */
export function readClass(one: ModelClass, read: Read): Model {
  const { config, rope } = read;
  for (const [name, values] of Object.entries(one.only ?? {})) config.only(name, ...values);
  const wish = typeof one.decoder === 'function' ? one.decoder(read) : one.decoder;
  const usual = one.numbers?.(read) ?? decoderNumbers(read, wish);
  if (one.slides !== undefined) checkLayers(read, usual.sizes.layers, one.slides);
  const scaled = one.scaling === undefined ? {} : ropeKeys(rope, one.scaling);
  const theta = usual.keys['rope.freq_base'] as number;
  if (one.theta === 'usual' && theta !== 10000)
    unsupportedConfig(`rope_theta is ${show(theta)}; llama.cpp computes this architecture with 10000 only`);
  const draft: Draft = { ...read, sizes: usual.sizes, keys: { ...usual.keys, ...scaled } };
  const details = one.details?.(draft) ?? {};
  // Leave out the keys that the converter does not write.
  const lacking: readonly KeyName[] = [
    ...(one.lacks ?? []),
    ...(one.theta === 'usual' || (one.theta === 'other' && theta === 10000) ? (['rope.freq_base'] as const) : []),
  ];
  const keys: Keys = {
    ...draft.keys,
    ...Object.fromEntries(lacking.map((name) => [name, undefined])),
    ...details.keys,
  };
  // Biases of attention are required or forbidden as config.json states.
  const table = details.table ?? one.table ?? { layer: [] };
  const isStated = ({ bias }: Row) => bias === 'stated';
  const flag = table.layer.some(isStated) ? config.maybeFlag('attention_bias') : undefined;
  const bias = flag === undefined ? 'optional' : flag ? 'always' : 'never';
  const areApart = read.names.some((name) => /\bexperts\.0\.gate_proj\.weight$/.test(name));
  const layer = table.layer
    .map((row): Row => (isStated(row) ? { ...row, bias } : row))
    .flatMap((row) => (areApart ? expertRowsApart(row) : row));
  const usesLlama3 = one.scaling?.includes('llama3') === true;
  return {
    architecture: one.architecture,
    facts: one,
    encoder: one.encoder,
    longEmbedding: one.longEmbedding,
    tied: one.ties === false || one.encoder !== undefined ? undefined : config.maybeFlag('tie_word_embeddings'),
    made: () =>
      usesLlama3 ? llama3Factors(rope, config, { head: draft.sizes.head, theta, usualFactor: one.llama3Factor }) : [],
    ...details,
    keys,
    sizes: { ...draft.sizes, ...details.sizes },
    table: { ...table, layer },
    notes: read.notes,
  };
}
