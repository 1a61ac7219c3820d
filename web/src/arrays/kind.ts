// The interface of all kinds of quantized tensors. Each kind is a class in its own file; kinds.ts lists them.
import type { WasmArray } from '../core/wasm-array.js';
import type { Source } from './source.js';

/** Writes the floats of elements [start, start + count) to an address. count is at most stepSize unless all codes are in place. */
export type Restore = (start: number, count: number, to: number) => void;

/** A quantized tensor that the caller gave. Its constructor checks it, down to every scale. */
export interface GivenTensor {
  readonly shape: readonly number[];
  /** Number of elements. */
  readonly length: number;
  /** True if all codes lie in wasm memory. */
  readonly inPlace: boolean;
  /** Calls f with a function that restores floats. The scales and codebook that this function reads stay in wasm memory until f returns. */
  restore<T>(f: (restore: Restore) => T): T;
  /** Adds the errors against x, which has as many elements, to the ErrorSums at an address. */
  addErrors(x: Source, sums: number): void;
  /** Packs the codes densely into `out`, or a new array if that is undefined. Missing in kinds without one code per element. */
  pack?(out: unknown): Uint8Array | WasmArray;
  /**
   * The tensor as the weights of a layer that computes with its codes. Undefined or missing if no kernel computes with them.
   * @throws RangeError unless the tensor has two dimensions
   */
  asWeights?(): Weights | undefined;
  /** The tensor as vectors of int8 codes with one scale each, without a zero point. Undefined or missing for other tensors. */
  asVectors?(): CodedVectors | undefined;
}

/** Vectors of int8 codes with a scale each. */
export interface CodedVectors {
  readonly count: number;
  readonly dimension: number;
  /** Address of the codes of vectors [row, row + rows) in wasm memory: in place, or copied to `own`. */
  codes(row: number, rows: number, own: number): number;
  /** Writes the scales of vectors [row, row + rows) to an address, and as many zeros behind them. */
  copyScales(row: number, rows: number, to: number): void;
}

/** A matrix for a layer. Fills the layer's memory, some rows at a time. */
export interface Weights {
  readonly outputs: number;
  readonly inputs: number;
  /** Inputs that share a scale. */
  readonly groupSize: number;
  /** Bits of a code: 4, 8 or 32, as in LayerSpecRecord. */
  readonly bits: number;
  /** True if every scale has its own zero point. */
  readonly zeroPoints: boolean;
  /** The common zero point of all codes otherwise. */
  readonly zeroPoint: number;
  /** Bytes of memory that `fill` needs for `rows` rows. */
  ownBytes(rows: number): number;
  /** Fills rows [row, row + rows). `layer` is the address of a PackedLayer, `own` that of memory for this call. */
  fill(layer: number, row: number, rows: number, own: number): void;
}
