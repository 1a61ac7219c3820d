export type { FloatInput, HalfFormat } from './array.js';
export { type ErrorCode, ScalepointError } from './errors.js';
export {
  type CompareOptions,
  type ErrorMeasures,
  type ErrorSum,
  type Histogram,
  type HistogramOptions,
  load,
  type PackedTensor,
  type ParameterOptions,
  type QuantizationParameters,
  type QuantizeOptions,
  type QuantizeOutput,
  type Range,
  type Scalepoint,
  type WasmArrayOf,
} from './quantize.js';
export {
  type CodeArray,
  type DType,
  type DTypeInfo,
  dtypeInfo,
  dtypes,
  type Granularity,
  type LinearQuantizedTensor,
  type QuantizedTensor,
  type WasmArray,
  type WasmDType,
  type WasmView,
} from './tensor.js';
export type { LoadOptions, Tier, WasmSource } from './wasm.js';
