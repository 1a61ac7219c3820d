/**
 * Arrays: quantize and restore them, measure the error, multiply and search with the codes. `load` gives an instance of the core with all
 * of these calls; the other names are types, and tables of dtypes and block types.
 */
export type { BlockOptions } from './arrays/blocks.js';
export type { CastOptions, FloatFormat, Minifloat, WidenOptions } from './arrays/cast.js';
export type { PackedCodebookTensor } from './arrays/codebook.js';
export type { CompareEachOptions } from './arrays/compare.js';
export type { CompareOptions, ErrorSum } from './arrays/error-sum.js';
export type { Histogram, HistogramOptions } from './arrays/histogram.js';
export type { ActivationOptions, Importance, ImportanceFileOptions } from './arrays/importance.js';
export type { FloatLinearOptions, ForwardOptions, Layer, LinearOptions } from './arrays/layer.js';
export type { PackedTensor } from './arrays/linear.js';
export type { ObserveOptions, Observer, ObserverOptions } from './arrays/observer.js';
export type {
  NewParameters,
  ParameterOptions,
  QuantizationParameters,
  QuantizeOptions,
  QuantizeOutput,
  Range,
} from './arrays/options.js';
export type { CodebookOptions, CodebookSource } from './arrays/quantize-codebook.js';
export type { Float16ArrayLike, FloatInput, HalfFormat, StoredFloats, StoredTensor } from './arrays/source.js';
export type { SweepMeasures, SweepOptions, SweepVariant } from './arrays/sweep.js';
export {
  type BlockTensor,
  type CodeArray,
  type CodebookParameters,
  type CodebookTensor,
  type CodesOf,
  type DType,
  type DTypeInfo,
  dtypeInfo,
  dtypes,
  type Granularity,
  type LinearQuantizedTensor,
  type PackedLinearTensor,
  type QuantizedTensor,
} from './arrays/tensor.js';
export type { TensorInput, TensorLike } from './arrays/tensor-like.js';
export { type BlockSearch, type BlockType, type BlockTypeInfo, blockTypeInfo, blockTypes } from './core/blocks.js';
export {
  type ErrorCode,
  type ErrorData,
  type ErrorPlace,
  errorFrom,
  type OptionError,
  ScalepointError,
} from './core/errors.js';
export type { LoadOptions, Tier, WasmModule, WasmSource } from './core/load-options.js';
export type { ErrorMeasures, OutputErrors } from './core/measure.js';
export type { WasmDType, WasmView } from './core/memory.js';
export type { ArgumentState, Expected, Hint, OptionMention, OptionProblem } from './core/option-problem.js';
export type { SearchedRange } from './core/range.js';
export type { WasmArray, WasmArrayOf } from './core/wasm-array.js';
export type { WorkerLike } from './core/worker-like.js';
export { openIndex } from './instance/open-index.js';
export { load, type Scalepoint } from './instance/scalepoint.js';
export type {
  AddOptions,
  FetchVectors,
  IndexOptions,
  IndexOutput,
  OpenIndexOptions,
  RecallOptions,
  RerankOptions,
  SaveOptions,
  SearchManyOptions,
  SearchOptions,
  SearchProgress,
  SearchResult,
  VectorId,
  VectorIndex,
  VectorMetric,
} from './search/search-types.js';
export type { ByteVectors, VectorInput } from './search/vectors.js';
