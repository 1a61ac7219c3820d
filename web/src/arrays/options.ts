// Options of `quantize` and of what chooses scales as it does.
import type { SearchedRange } from '../core/range.js';
import type { WasmArray } from '../core/wasm-array.js';
import type { ErrorSum } from './error-sum.js';
import type { HalfFormat } from './source.js';
import type { CodeArray, DType, Granularity } from './tensor.js';

/**
 * How the range that the codes cover is found. Each scale has a range of its own, which comes from its finite values. Where there are none, it
 * is empty, whichever way it is found.
 *
 * - 'min-max': from the smallest to the largest value.
 * - 'mse': the scale and zero point with the least squared error of the restored values. With types of up to 8 bits no other ones leave an
 *   error that is lower by more than 0.1 %, but for what float32 rounds; without zero in the range, none with zero points up to 512 in size.
 *   With 16 bits a few scales around that of min-max are tried. Never worse than min-max.
 * - 'entropy': the range whose histogram of 2048 bins diverges least from its quantized self, as TensorRT calibrates, of those that hold 9 of
 *   10 values or more. Fewer than 2048 values have the range of min-max: in so sparse a histogram any range looks good. Made for activations.
 * - { percentile }: from the (100 - p)th to the pth percentile; symmetric up to the pth percentile of the magnitudes. Above 50, at most 100.
 * - { min, max } or { scale, zeroPoint }: given, as numbers, or as one number a channel or group.
 */
export type Range =
  | 'min-max'
  | SearchedRange
  | {
      /** The smallest value that is to be reached. */
      readonly min: number | ArrayLike<number>;
      /** The largest value that is to be reached. */
      readonly max: number | ArrayLike<number>;
    }
  | {
      /** The distance between neighboring codes. */
      readonly scale: number | ArrayLike<number>;
      /** The code that stands for 0. */
      readonly zeroPoint: number | ArrayLike<number>;
    };

/** Options that decide scale and zero point. */
export interface ParameterOptions {
  /** What the codes are. @defaultValue 'int8' */
  dtype?: DType;
  /**
   * 'symmetric': zero point 0 (unsigned: the middle, 2^(bits-1)). 'asymmetric': the codes cover [min, max].
   * @defaultValue 'symmetric'
   */
  scheme?: 'symmetric' | 'asymmetric';
  /** Its product is the number of elements. @defaultValue [length] */
  /** What the elements are arranged in. Its product is the number of elements. */
  shape?: readonly number[];
  /** Which elements share one scale and zero point. @defaultValue { kind: 'per-tensor' } */
  granularity?: Granularity;
  /** How the range that the codes cover is found. @defaultValue 'min-max' */
  range?: Range;
  /**
   * true: the range is widened to hold 0. false: it is not. Then the zero point of an asymmetric scheme may leave the range of the dtype, up
   * to a magnitude of 2^22; the scale is widened where it would go beyond.
   * @defaultValue true
   */
  includeZero?: boolean;
  /**
   * Symmetric scale: absmax / qmax ('restricted') or 2 absmax / (qmax - qmin) ('full').
   * @defaultValue 'restricted'
   */
  symmetricRange?: 'restricted' | 'full';
  /**
   * What NaN and infinities do. 'error': a ScalepointError `NON_FINITE`. 'saturate': NaN becomes the zero point (saturated to the
   * dtype), infinities the ends, and the range comes from the finite values.
   * @defaultValue 'error'
   */
  nonFinite?: 'error' | 'saturate';
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat;
}

/** Where `quantize` puts its results: the codes alone, or all three. */
export type QuantizeOutput<Data extends CodeArray | WasmArray = CodeArray | WasmArray> =
  | Data
  | {
      /** Where the codes go. */
      readonly data: Data;
      /** Where the scales go. */
      readonly scale?: Float32Array;
      /** Where the zero points go. */
      readonly zeroPoint?: Int32Array;
    };

/** Options of `quantize`. */
export interface QuantizeOptions extends ParameterOptions {
  /**
   * How x becomes a code. All in float32, half to even, saturated last: 'onnx' round(x / scale) + zeroPoint, 'fused'
   * round(x / scale + zeroPoint), 'reciprocal' round(x * (1 / scale)) + zeroPoint.
   * @defaultValue 'onnx'
   */
  rounding?: 'onnx' | 'fused' | 'reciprocal';
  /** Arrays of the right kind and length to fill instead of fresh ones. */
  out?: QuantizeOutput;
  /** Takes the error measures of the result, in the same pass over the data; see `sp.errorSum()`. */
  errors?: ErrorSum;
}

/** Scale and zero point: one, one a channel, or one a group. */
export interface QuantizationParameters {
  /** The distance between neighboring codes. */
  readonly scale: Float32Array;
  /** The code that stands for 0. */
  readonly zeroPoint: Int32Array;
}
