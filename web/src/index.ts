export type { CastOptions, FloatFormat, Minifloat, WidenOptions } from './arrays/cast.js';
export type { CodebookOptions, CodebookSource, PackedCodebookTensor } from './arrays/codebook.js';
export type { Observer, ObserverOptions } from './arrays/observer.js';
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
} from './arrays/options.js';
export type { FloatInput, HalfFormat } from './arrays/source.js';
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
} from './arrays/tensor.js';
export { type BlockType, type BlockTypeInfo, blockTypeInfo, blockTypes } from './core/blocks.js';
export { type ErrorCode, ScalepointError } from './core/errors.js';
export type { ErrorMeasures, ErrorSum } from './core/measure.js';
export type { LoadOptions, Tier, WasmSource } from './core/memory.js';
export type { FloatLinearOptions, ForwardOptions, Layer, LinearOptions } from './layers/layer.js';
export type { IndexOptions, RecallOptions, SearchResult, VectorIndex, VectorInput } from './layers/vector-index.js';
export { load, type Scalepoint, type WasmArrayOf } from './scalepoint.js';
