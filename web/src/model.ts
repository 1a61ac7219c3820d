/**
 * Model files: what is in them, what would become of them, and the same with smaller numbers. Files are read by position and written
 * tile by tile, so that memory does not grow with the model. Reading headers needs no wasm; the core is loaded when the first tensor
 * is converted.
 */
export type { ConverterInfo } from './conversions/converter.js';
export type { DiffusionReason } from './conversions/diffusion/reasons.js';
export type { ConversionReason } from './conversions/registry.js';
export type { ErrorCode, ErrorPlace } from './core/errors.js';
export { problemOf, ScalepointError } from './core/errors.js';
export { type ErrorMeasures, standsForInfinity } from './core/measure.js';
export type { NodeFileHandle } from './core/node.js';
export { type Note, noteText, type Sentence } from './core/note.js';
export {
  type Expected,
  type Hint,
  type OptionMention,
  type OptionProblem,
  type OptionWords,
  sayHint,
  sayMention,
  sayProblem,
} from './core/option-problem.js';
export type { FileInput } from './files/bytes.js';
export type { ModelOutput, NodeWritableHandle } from './files/sinks.js';
export type {
  Finding,
  FormatInfo,
  MetadataArray,
  MetadataScalar,
  MetadataValue,
  ModelContents,
  Reader,
  SourceTensor,
  Target,
} from './formats/format.js';
export type { MetadataEdit, MetadataEdits } from './formats/gguf/edits.js';
export { type FileType, type GgufTarget, ggufTargets } from './formats/gguf/options.js';
export type { GgufReason } from './formats/gguf/reasons.js';
export type {
  ComparedLayer,
  ComparedOutput,
  RunOptions,
  RunReport,
  SkippedOutputReason,
} from './formats/onnx/run/compare.js';
export type { InputArray, InputOptions, ModelInputs } from './formats/onnx/run/inputs.js';
export type { Runtime } from './formats/onnx/run/runtime.js';
export {
  aFile,
  didYouMean,
  type Flag,
  type ModelGranularity,
  type OptionInfo,
  type OptionTable,
  type PlanChoices,
  type Rule,
  type Sidecar,
  type Words,
} from './formats/options.js';
export type { SharedReason } from './formats/reason.js';
export type {
  FormatOptions,
  FormatReason,
  FormatSidecars,
  ModelFormat,
  ModelTarget,
  ResultFormat,
} from './formats/registry.js';
export { mergeConfig } from './formats/safetensors/config.js';
export type { SafetensorsReason } from './formats/safetensors/reasons.js';
export { type SafetensorsTarget, safetensorsTargets } from './formats/safetensors/targets.js';
export type { ComparedTensor, CompareReport, SkippedReason, SkippedTensor } from './model/compare.js';
export { type CompareModelsOptions, type CompareModelsReport, compareModels } from './model/compare-models.js';
export type { EstimateOptions, ModelEstimate } from './model/estimate.js';
export { estimateModel } from './model/estimate-model.js';
export type { SizePoint, TensorTypes, TypeFit, TypeOption, TypeTable } from './model/fit.js';
export { inspectModel, readFloats, readQuantized, readTensor, tensors } from './model/inspect-model.js';
export type { KeptReason } from './model/kept.js';
export { ruleFrom, rulesFrom, rulesText } from './model/mixture-rules.js';
export {
  modelConversions,
  modelFormats,
  type Preset,
  presets,
  presetTarget,
  resultFiles,
  resultName,
} from './model/names.js';
export type { ModelInput, OpenOptions } from './model/open.js';
export { maxWorkers } from './model/options.js';
export type { ModelTotals, PlannedFile, PlannedTensorInfo } from './model/plan.js';
export {
  fitTypes,
  type ModelFit,
  type ModelPlan,
  measureTypes,
  type PlanModelOptions,
  type PlanOptions,
  planModel,
  type SizedPlanOptions,
  sizeCurve,
} from './model/plan-model.js';
export type { ResultOptions } from './model/quantize.js';
export {
  type QuantizeModelOptions,
  type QuantizeModelResult,
  type QuantizeModelsOptions,
  quantizeModel,
} from './model/quantize-model.js';
export type { FloatTensor, ModelInfo, ModelTensor, OtherDType, Tensor, TensorData } from './model/read.js';
export { type ModelReport, QualityError, type TensorReport } from './model/report.js';
export { loadTensors, saveTensors, writeSidecar } from './model/save-tensors.js';
export type { SizeOptions } from './model/sizes.js';
export type { SavedTensorsOptions } from './model/tensors.js';
export type { VerifyOptions, VerifyReport } from './model/verify.js';
export { type VerifyModelOptions, verifyModel } from './model/verify-model.js';
export type { Progress } from './pipeline/progress.js';
export type { WorkOptions } from './pipeline/start.js';
export type { WorkerLike } from './runner/worker-like.js';
