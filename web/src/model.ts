/**
 * Model files: inspect them, plan a conversion, and make smaller ones. Files are read by position and written tile by tile, so that memory
 * does not grow with the model. Reading headers needs no wasm; the core is loaded when the first tensor is converted.
 */
export type { DiffusionReason } from './conversions/diffusion/reasons.js';
export type { ConversionReason } from './conversions/registry.js';
export { ScalepointError } from './core/errors.js';
export type { NodeFileHandle } from './core/node.js';
export type { Note, Sentence } from './core/note.js';
export type { OptionProblem } from './core/option-problem.js';
export type { FileInput } from './files/bytes.js';
export type { ModelOutput, NodeWritableHandle } from './files/sinks.js';
export type { Finding, MetadataValue } from './formats/format.js';
export type { MetadataEdits } from './formats/gguf/edits.js';
export type { GgufReason } from './formats/gguf/reasons.js';
export type { OnnxReason } from './formats/onnx/reasons.js';
export type { ModelGranularity, Rule } from './formats/options.js';
export type { SharedReason } from './formats/reason.js';
export type {
  FormatOptions,
  FormatReason,
  FormatSidecars,
  ModelFormat,
  ModelTarget,
  ResultFormat,
} from './formats/registry.js';
export type {
  ComparedLayer,
  ComparedOutput,
  InputArray,
  InputOptions,
  ModelInputs,
  ModelSample,
  ModelSamples,
  RunInput,
  RunOptions,
  RunReport,
  Runtime,
  SampleFiles,
  SkippedOutputReason,
  UnreachedReason,
  UnreachedWeight,
} from './formats/run.js';
export type { SafetensorsReason } from './formats/safetensors/reasons.js';
export type { MomentsFile } from './formats/statistics.js';
export type { DivergenceFigures, Estimate, LanguageComparison, LanguageEvaluation } from './language/evaluate.js';
export type { LanguageData, TextTokenizer } from './language/tokens.js';
export { type CalibrateModelOptions, calibrateModel, type ModelStatistics } from './model/calibrate-model.js';
export type { ComparedTensor, CompareReport } from './model/compare.js';
export { type CompareModelsOptions, compareModels } from './model/compare-models.js';
export type { EstimateOptions, ModelEstimate } from './model/estimate.js';
export { estimateModel } from './model/estimate-model.js';
export { type EvaluateModelOptions, evaluateModel, type TextOptions } from './model/evaluate-model.js';
export type { SizePoint, TypeFit, TypeOption, TypeTable } from './model/fit.js';
export { inspectModel, readFloats, readQuantized, readTensor, tensors } from './model/inspect-model.js';
export type { KeptReason } from './model/kept.js';
export { type ModelFormatInfo, modelFormats, presetTarget, resultFiles } from './model/names.js';
export type { ModelTotals, PlannedFile, PlannedTensorInfo } from './model/plan.js';
export {
  fitTypes,
  type ModelPlan,
  measureTypes,
  type PlanModelOptions,
  type PlanOptions,
  planModel,
  sizeCurve,
} from './model/plan-model.js';
export type { ResultOptions } from './model/quantize.js';
export {
  type QuantizeModelOptions,
  type QuantizeModelResult,
  type QuantizeModelsOptions,
  quantizeModel,
} from './model/quantize-model.js';
export type { FloatTensor, ModelInfo, ModelTensor } from './model/read.js';
export type { ModelInput, OpenOptions } from './model/recognize.js';
export { type ModelReport, QualityError, type TensorReport } from './model/report.js';
export { resultName } from './model/result-name.js';
export { loadTensors, saveTensors } from './model/save-tensors.js';
export type { SavableTensor, SavedTensor } from './model/saved-tensors.js';
export type { SizeOptions } from './model/sizes.js';
export type { Tensor } from './model/stored-tensor.js';
export type { VerifyReport } from './model/verify.js';
export { type VerifyModelOptions, verifyModel } from './model/verify-model.js';
export type { DataProgress, Progress } from './pipeline/progress.js';
export type { WorkOptions } from './pipeline/start.js';
export type { WorkerLike } from './runner/worker-like.js';
