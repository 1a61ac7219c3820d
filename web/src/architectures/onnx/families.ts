/** Facts about the graphs of a family. The families themselves are in ../families/, and config.json has the numbers. */

/** Facts about the graph of a decoder, beside the numbers in config.json. Without any it is Llama's. */
export interface DecoderGraph {
  readonly kind: 'decoder';
  /** Name of the kind of model in transformers.js, for a config.json that lacks it. */
  readonly modelType: string;
  /** Norms of a layer: of the outputs of attention and feed-forward part, or around both. @defaultValue of their inputs */
  readonly norms?: 'behind' | 'around';
  /** Norms of queries and keys: of each head, or of all together. */
  readonly headNorms?: 'each' | 'all';
  /** True for Gemma: norms multiply by their weights plus 1, and embeddings by the root of their length. */
  readonly isGemma?: true;
  /** True if attention has one matrix for queries, keys and values, and the feed-forward part one for gates and ups. */
  readonly isFused?: true;
  /** Kinds of scaling of the rotary embedding. @defaultValue linear, llama3 and yarn */
  readonly scaling?: readonly string[];
  /** True for layers with a window, where config.json has neither layer_types nor a list; undefined if a window is for all layers. */
  readonly slides?: (layer: number) => boolean;
  /** True if config.json may switch windows off. */
  readonly switchesWindow?: true;
  /** True if some layers have no rotary embedding, as no_rope_layers says, else each fourth one. */
  readonly skipsRotary?: true;
  /** True for factors of embeddings, residuals, attention and logits, as Granite has. */
  readonly hasFactors?: true;
  /** Values of keys that the graph computes. */
  readonly only?: Readonly<Record<string, readonly unknown[]>>;
}

/** A step of a head: a product, a norm, or a function of elements: `act` for that of the model. */
export type HeadStep =
  | { readonly linear: string; readonly bias?: string }
  | { readonly tied: 'words'; readonly bias: string }
  | { readonly norm: string }
  | { readonly apply: 'act' | 'tanh' | 'relu' | 'gelu' }
  | { readonly take: 'first' | 'pooled' };

/** Heads of a family, by the ends of the names of its classes. */
export type Heads = Readonly<Record<string, readonly HeadStep[]>>;

/** Facts about the graph of an encoder. */
export interface EncoderGraph {
  readonly kind: 'encoder';
  readonly modelType: string;
  /** Beginning of the names of tensors in models with a head. Those without one may lack it. */
  readonly prefix: string;
  /** Names of sizes in config.json. */
  readonly sizes?: {
    readonly hidden: string;
    readonly layers: string;
    readonly heads: string;
    readonly feedForward: string;
    readonly activation: string;
    readonly epsilon: string;
  };
  /** Names of tensors outside of layers. */
  readonly outside: {
    readonly words: string;
    readonly positions?: string;
    readonly types?: string;
    readonly norm: string;
    /** A product between embeddings and layers, if they differ in length. */
    readonly project?: string;
    readonly finalNorm?: string;
    /** Biases of attention's scores by distance. */
    readonly distances?: string;
  };
  /** Names of the tensors of a layer. */
  readonly layer: {
    readonly prefix: string;
    /** Queries, keys and values, or one matrix for all. */
    readonly attention: readonly [string, string, string] | readonly [string];
    readonly output: string;
    readonly norms: readonly [string, string];
    /** The products of the feed-forward part. */
    readonly up: string;
    readonly down: string;
    /** Factors of what `up` gives: a product of its own, or `half` for the second half of `up`. */
    readonly gate?: { readonly linear: string } | 'half';
  };
  /** The function of the feed-forward part, if config.json does not name it. @defaultValue gelu */
  readonly activation?: 'silu';
  /** True if norms are those of the inputs of attention and feed-forward part. The first layer may lack its first one. */
  readonly isPreNorm?: true;
  /** True if positions count words from the padding's id plus 1. */
  readonly countsWords?: true;
  /** True if token_type_ids are an input. */
  readonly takesTypes?: true;
  /** Bases of the rotary embedding, and layers that see neighbors alone. */
  readonly rotary?: 'nomic' | 'modernbert';
  readonly heads: Heads;
  readonly only?: Readonly<Record<string, readonly unknown[]>>;
}

/** Facts about the graph of a decoder or an encoder. */
export type GraphFacts = DecoderGraph | EncoderGraph;
