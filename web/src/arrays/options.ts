// Options of `quantize` and of other calls that choose scales.
import type { SearchedRange } from '../core/range.js';
import type { WasmArray } from '../core/wasm-array.js';
import type { ErrorSum } from './error-sum.js';
import type { HalfFormat } from './source.js';
import type { CodeArray, DType, Granularity } from './tensor.js';

/**
 * Method that finds the range that the codes cover. Each scale has its own range, found from its finite values. Without finite values the
 * range is empty with every method.
 *
 * - 'min-max': from the smallest to the largest value.
 * - 'mse': the scale and zero point with the least squared error of the restored values. With types of up to 8 bits, no others have an
 *   error that is lower by more than 0.1 %, apart from float32 rounding; with `includeZero: false`, no others with zero points up to 512 in
 *   magnitude. With 16 bits, tries a few scales around that of min-max. Never worse than min-max.
 * - 'entropy': the range whose histogram of 2048 bins diverges least from its quantized version, as in TensorRT's calibration, among ranges
 *   that hold at least 90 % of the values. Fewer than 2048 values have the range of min-max, because their histogram is too sparse. Made
 *   for activations.
 * - { percentile }: from the (100 - p)th to the pth percentile; symmetric up to the pth percentile of the magnitudes. Above 50, at most 100.
 * - { min, max } or { scale, zeroPoint }: given as numbers, or as one number per channel or group.
 */
export type Range =
  | 'min-max'
  | SearchedRange
  | {
      /** Lower end of the range. */
      readonly min: number | ArrayLike<number>;
      /** Upper end of the range. */
      readonly max: number | ArrayLike<number>;
    }
  | {
      /** The distance between neighboring codes. */
      readonly scale: number | ArrayLike<number>;
      /** The code of 0. */
      readonly zeroPoint: number | ArrayLike<number>;
    };

/** Options that decide scale and zero point. */
export interface ParameterOptions {
  /** Type of the codes. @defaultValue 'int8' */
  dtype?: DType | undefined;
  /**
   * 'symmetric': zero point 0 (unsigned: the middle, 2^(bits-1)). 'asymmetric': the codes cover [min, max].
   * @defaultValue 'symmetric'
   */
  scheme?: 'symmetric' | 'asymmetric' | undefined;
  /** Its product is the number of elements. @defaultValue [length] */
  shape?: readonly number[] | undefined;
  /** The elements that share one scale and zero point. @defaultValue { kind: 'per-tensor' } */
  granularity?: Granularity | undefined;
  /** Method that finds the range that the codes cover. @defaultValue 'min-max' */
  range?: Range | undefined;
  /**
   * true: widens the range to include 0. false: the zero point of an asymmetric scheme may lie outside of the range of the dtype, up to a
   * magnitude of 2^22. A larger one is avoided by a wider scale.
   * @defaultValue true
   */
  includeZero?: boolean | undefined;
  /**
   * Symmetric scale: absmax / qmax ('restricted') or 2 absmax / (qmax - qmin) ('full').
   * @defaultValue 'restricted'
   */
  symmetricRange?: 'restricted' | 'full' | undefined;
  /**
   * Handling of NaN and infinities. 'error': throws ScalepointError `NON_FINITE`. 'saturate': NaN becomes the zero point (saturated to the
   * dtype), infinities become the smallest or the largest code, and the range comes from the finite values.
   * @defaultValue 'error'
   */
  nonFinite?: 'error' | 'saturate' | undefined;
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
}

/** Destinations of the results of `quantize`: of the codes alone, or of all three. */
export type QuantizeOutput<Data extends CodeArray | WasmArray = CodeArray | WasmArray> =
  | Data
  | {
      /** Receives the codes. */
      readonly data: Data;
      /** Receives the scales. */
      readonly scale?: Float32Array | undefined;
      /** Receives the zero points. */
      readonly zeroPoint?: Int32Array | undefined;
    };

/** Options of `quantize`. */
export interface QuantizeOptions extends ParameterOptions {
  /**
   * For range 'mse': the weight of the squared errors of each column, the last dimension of the shape: finite, at least 0. The weighted
   * error is at most that of the same range without importance.
   * @defaultValue equal importance; with `moments`, its diagonal
   */
  importance?: Float32Array | undefined;
  /**
   * For a matrix of shape [outputs, inputs] with a scale for each output or for each group of inputs, and up to 8 bits: the second moments
   * of the inputs x, the mean of x xᵀ: inputs * inputs numbers, symmetric. Each column's error is then passed on to columns that are rounded
   * later (GPTQ), which makes errors of outputs smaller, and those of weights larger. With range 'mse', the scale of a group is found when
   * its first column is reached, by the weights as they are then, and symmetric codes use the whole range of the dtype; with other ranges,
   * scales are those that the range gives. A row whose output gets no better keeps the codes without it. The result has `output`. Takes
   * 16 K² bytes of memory besides the matrix for K inputs. Needs `load({ blocks: true })`.
   * @defaultValue each weight is rounded to the nearest
   */
  moments?: Float32Array | undefined;
  /**
   * For `moments`: the share of the mean of its diagonal that is added to it, from 0 to 10. If the sum is not positive definite, ten times
   * as much is tried, up to 10; `output.damping` is what was used.
   * @defaultValue 0.01
   */
  damping?: number | undefined;
  /**
   * For `moments`: the order in which columns are rounded. 'falling': groups with the largest inputs first, and so within groups.
   * 'stored': from left to right.
   * @defaultValue 'falling'
   */
  order?: 'falling' | 'stored' | undefined;
  /**
   * Formula of the codes, in float32, rounded half to even, saturated last: 'onnx' round(x / scale) + zeroPoint, 'fused'
   * round(x / scale + zeroPoint), 'reciprocal' round(x * (1 / scale)) + zeroPoint.
   * @defaultValue 'onnx'
   */
  rounding?: 'onnx' | 'fused' | 'reciprocal' | undefined;
  /**
   * true: packs the codes densely in the same pass, as `pack` does. `data` is then a Uint8Array of ceil(n * bits / 8) bytes, and the result
   * has `packed: true`. Every call that takes a quantized tensor takes it.
   * @defaultValue false
   */
  packed?: boolean | undefined;
  /** Arrays of the right type and length to fill instead of new ones. */
  out?: QuantizeOutput | undefined;
  /** Receives the errors of the result, measured in the same pass over the data; see `sp.errorSum()`. */
  errors?: ErrorSum | undefined;
}

/**
 * Scales and zero points: one of each per tensor, per channel or per group. `JSON.stringify` writes them as lists of numbers. The option
 * `range` takes them as they are, and as JSON.parse returns them.
 */
export interface QuantizationParameters {
  /** The distance between neighboring codes. */
  readonly scale: Float32Array;
  /** The code of 0. */
  readonly zeroPoint: Int32Array;
}

/** Scales and zero points in new arrays. */
export interface NewParameters extends QuantizationParameters {
  readonly scale: Float32Array<ArrayBuffer>;
  readonly zeroPoint: Int32Array<ArrayBuffer>;
}
