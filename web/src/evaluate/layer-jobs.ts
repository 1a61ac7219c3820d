/**
 * Jobs of the forward pass of a language model, as messages to workers carry them. A worker, or the calling thread in its place, holds the
 * weights of one layer, of one expert or of some rows of the head, and takes slices of tokens.
 */
import type { LanguageFacts, Rotary } from './facts.js';

/** Weights with the same inputs, one above the other. */
export interface ProductSpec {
  /** In llama.cpp's names. */
  readonly names: readonly string[];
  readonly outputs: number;
  readonly inputs: number;
}

/**
 * Products of a layer. Layers with experts have a router in place of `up` and `down`, and may have an expert that all tokens share, with a gate
 * of its own.
 */
export type ProductName =
  | 'together'
  | 'output'
  | 'up'
  | 'down'
  | 'router'
  | 'sharedUp'
  | 'sharedDown'
  | 'sharedGate'
  | 'head';

/** Norms of a layer, and the one in front of the head. */
export type NormName =
  | 'attentionNorm'
  | 'queryNorm'
  | 'keyNorm'
  | 'attentionAfter'
  | 'feedForwardNorm'
  | 'feedForwardAfter'
  | 'headNorm';

/** A norm. */
export interface NormSpec {
  readonly weight: Float32Array<ArrayBuffer>;
  readonly bias?: Float32Array<ArrayBuffer> | undefined;
}

/** Sizes and functions of a layer, which has experts or not. */
export interface LayerSpec extends Omit<LanguageFacts, 'layers' | 'context' | 'isParallel' | 'window' | 'rotary'> {
  readonly index: number;
  readonly isParallel: boolean;
  readonly window: number;
  readonly rotary: Rotary | undefined;
  /** A score of each head that takes a share of attention; undefined without them. */
  readonly sinks: Float32Array<ArrayBuffer> | undefined;
  /** Addends of the shares by which experts are chosen. */
  readonly routerBias: Float32Array<ArrayBuffer> | undefined;
}

/** A job of the forward pass. */
export type TransformerJob =
  /** Takes memory for weights. Those before in the same place are freed. */
  | {
      readonly kind: 'begin';
      /** Number of the place that holds these weights; undefined for 0. */
      readonly place?: number | undefined;
      readonly products: Readonly<Partial<Record<ProductName, ProductSpec>>>;
      readonly norms: Readonly<Partial<Record<NormName, NormSpec>>>;
      /** True if norms subtract the mean of a row. */
      readonly isCentered: boolean;
      /** Addend under the roots of norms. */
      readonly epsilon: number;
    }
  /** Fills in rows of weights from one on, or the bias. */
  | {
      readonly kind: 'fill';
      readonly place?: number | undefined;
      readonly product: ProductName;
      readonly row: number | 'bias';
      readonly values: Float32Array<ArrayBuffer>;
    }
  /** Carries out a layer, up to the experts if it has some. */
  | {
      readonly kind: 'layer';
      readonly place?: number | undefined;
      readonly layer: LayerSpec;
      readonly states: Float32Array<ArrayBuffer>;
      /** Tokens of a text; the last one may be shorter. */
      readonly textSize: number;
      readonly watch: Watch;
      /**
       * Keeps the keys and values of the tokens of one text, for jobs with its next tokens. There is room for that many tokens. These ones are
       * the tokens from `from` on; those that were kept from there on are forgotten.
       */
      readonly kept?: { readonly room: number; readonly from: number } | undefined;
    }
  /** Carries out the feed-forward part of an expert on the rows that reach it. */
  | {
      readonly kind: 'expert';
      readonly layer: LayerSpec;
      readonly x: Float32Array<ArrayBuffer>;
      readonly watch: Watch;
    }
  /** Logits of some tokens for the rows of the head that are in memory. */
  | {
      readonly kind: 'logits';
      readonly place?: number | undefined;
      readonly states: Float32Array<ArrayBuffer>;
      /** Factor of logits. */
      readonly scale: number;
      /** Bound of logits, through tanh; 0 without one. */
      readonly cap: number;
    }
  /** Watches the inputs of the head. */
  | {
      readonly kind: 'headInputs';
      /** Name of the head. */
      readonly name: string;
      readonly states: Float32Array<ArrayBuffer>;
      readonly watch: Watch;
    }
  /** Adds the second moments of some inputs to the sums of that name, in the order of these jobs. */
  | {
      readonly kind: 'addMoments';
      readonly name: string;
      readonly x: Float32Array<ArrayBuffer>;
      readonly columns: number;
    }
  /** Gives the means of the second moments, and frees the sums. */
  | { readonly kind: 'takeMoments'; readonly name: string; readonly columns: number; readonly rows: number };

/** Statistics to collect of products: sums of squares of their inputs, and the inputs or outputs of the products with these first names. */
export interface Watch {
  readonly squares: boolean;
  readonly inputs: readonly string[];
  /** @defaultValue none */
  readonly outputs?: readonly string[] | undefined;
}

/** Inputs of a product that were watched, or outputs, which have no squares. */
export interface Watched {
  /** The weights with these inputs. */
  readonly names: readonly string[];
  readonly rows: number;
  readonly columns: number;
  /** Sums of squares of each column. */
  readonly squares: Float64Array<ArrayBuffer>;
  /** The inputs or outputs themselves, if they were asked for. */
  readonly x: Float32Array<ArrayBuffer> | undefined;
}

/** The result of a job. */
export interface TransformerAnswer {
  /** States behind a layer, outputs of an expert, logits, or moments. */
  readonly values: Float32Array<ArrayBuffer>;
  readonly watched: readonly Watched[];
  /** Experts of each token, the shares of these, and their inputs. */
  readonly routes?: {
    readonly chosen: Uint32Array<ArrayBuffer>;
    readonly shares: Float32Array<ArrayBuffer>;
    readonly inputs: Float32Array<ArrayBuffer>;
  };
}

/** True if a worker that the caller made answers as the file `scalepoint/worker` does. */
export function isAnswer(answer: unknown): answer is TransformerAnswer {
  const { values, watched } = (answer ?? {}) as Partial<TransformerAnswer>;
  return ArrayBuffer.isView(values) && Array.isArray(watched);
}
