// What all kinds of quantized tensors have in common. Each kind is a class in a file of its own; kinds.ts lists them.
import type { Source } from './source.js';

/** Leaves the floats of elements [start, start + count) at an address; count is at most stepSize unless all codes are in place. */
export type Restore = (start: number, count: number, to: number) => void;

/** A quantized tensor that the caller gave. Its constructor checks it, down to every scale. */
export interface GivenTensor {
  readonly shape: readonly number[];
  /** Number of elements. */
  readonly length: number;
  /** Whether all codes lie in wasm memory. */
  readonly inPlace: boolean;
  /** Calls f with a function that restores floats. The scales and codebook that this function reads stay in wasm memory until f returns. */
  restore<T>(f: (restore: Restore) => T): T;
  /** Adds the errors against x, which has as many elements, to the ErrorSums at an address. */
  addErrors(x: Source, sums: number): void;
  /** The codes packed densely. Kinds without it have no code for each element. */
  pack?(): Uint8Array<ArrayBuffer>;
  /**
   * The tensor as the weights of a layer that computes on its codes. Undefined or missing if no kernel does.
   * @throws RangeError if it is no matrix
   */
  asWeights?(): Weights | undefined;
  /** The tensor as vectors of int8 codes with one scale each, without a zero point. Undefined or missing if it is something else. */
  asVectors?(): CodedVectors | undefined;
}

/** Vectors of int8 codes with a scale each. */
export interface CodedVectors {
  readonly count: number;
  readonly dimension: number;
  /** The codes of some vectors from `row` on, in wasm memory: there already, or copied to `own`. */
  codes(row: number, rows: number, own: number): number;
  scale(row: number): number;
}

/** A matrix for a layer. It knows how to fill the layer's memory, some rows at a time. */
export interface Weights {
  readonly outputs: number;
  readonly inputs: number;
  /** Inputs that share a scale. */
  readonly groupSize: number;
  /** 4, 8 or 32, as LayerSpec of the door has them. */
  readonly bits: number;
  /** Whether every scale has a zero point of its own. */
  readonly zeroPoints: boolean;
  /** The zero point of all codes otherwise. */
  readonly zeroPoint: number;
  /** Bytes of memory that `fill` needs for so many rows. */
  ownBytes(rows: number): number;
  /** Fills rows from `row` on. `layer` is the address of a PackedLayer, `own` that of memory for this call. */
  fill(layer: number, row: number, rows: number, own: number): void;
}
