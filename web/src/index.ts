export type { FloatInput, HalfFormat } from './array.js';
export { type BlockType, type BlockTypeInfo, blockTypeInfo, blockTypes } from './blocks.js';
export type { CastOptions, FloatFormat, Minifloat, WidenOptions } from './cast.js';
export type { CodebookOptions, CodebookSource, PackedCodebookTensor } from './codebook.js';
export { type ErrorCode, ScalepointError } from './errors.js';
export type { FloatLinearOptions, ForwardOptions, Layer, LinearOptions } from './layer.js';
export type { ErrorMeasures, ErrorSum } from './measure.js';
export type { Observer, ObserverOptions } from './observer.js';
export type {
  BlockOptions,
  CompareEachOptions,
  CompareOptions,
  Histogram,
  HistogramOptions,
  PackedTensor,
  ParameterOptions,
  QuantizationParameters,
  QuantizeOptions,
  QuantizeOutput,
  Range,
  SweepOptions,
  SweepVariant,
} from './options.js';
export { load, type Scalepoint, type WasmArrayOf } from './quantize.js';
export type { IndexOptions, RecallOptions, SearchResult, VectorIndex, VectorInput } from './search.js';
export {
  type BlockTensor,
  type CodeArray,
  type CodebookTensor,
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
