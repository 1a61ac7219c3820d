/**
 * Model files: inspect them, plan a conversion, and make smaller ones. Files are read by position and written tile by tile, so that memory
 * does not grow with the model. Reading headers needs no wasm; the core is loaded when the first tensor is converted.
 */
export { errorFrom, ScalepointError } from './core/errors.js';
export type { Note } from './core/note.js';
export type { WorkerLike } from './core/worker-like.js';
export type { FileInput } from './files/bytes.js';
export type { ModelOutput } from './files/sinks.js';
export type { Rule } from './formats/options.js';
export type { ModelFormat, ModelTarget } from './formats/registry.js';
export type { ModelSample, ModelSamples, RunOptions } from './formats/run.js';
export type { LanguageComparison, LanguageEvaluation } from './language/evaluate.js';
export type { LanguageData, TextTokenizer } from './language/tokens.js';
export type { LoraAdapter } from './model/adapters.js';
export { type CalibrateModelOptions, calibrateModel, type ModelStatistics } from './model/calibrate-model.js';
export type { CompareReport } from './model/compare.js';
export { type CompareModelsOptions, compareModels } from './model/compare-models.js';
export type { EstimateOptions, ModelEstimate } from './model/estimate.js';
export { estimateModel } from './model/estimate-model.js';
export { type EvaluateModelOptions, evaluateModel } from './model/evaluate-model.js';
export type { TypeTable } from './model/fit.js';
export { inspectModel, readFloats, readQuantized, readTensor, tensors } from './model/inspect-model.js';
export type { KeptReason } from './model/kept.js';
export { modelFormats, presetTarget, resultFiles } from './model/names.js';
export type { PlannedTensorInfo } from './model/plan.js';
export {
  fitTypes,
  type ModelPlan,
  measureTypes,
  type PlanModelOptions,
  type PlanOptions,
  planModel,
  sizeCurve,
} from './model/plan-model.js';
export {
  type QuantizeModelOptions,
  type QuantizeModelResult,
  type QuantizeModelsOptions,
  quantizeModel,
} from './model/quantize-model.js';
export type { ModelInfo, ModelTensor } from './model/read.js';
export type { ModelInput } from './model/recognize.js';
export { type ModelReport, QualityError, type TensorReport } from './model/report.js';
export { resultName } from './model/result-name.js';
export { loadTensors, saveTensors } from './model/save-tensors.js';
export type { SavableTensor, SavedTensor } from './model/saved-tensors.js';
export type { Tensor } from './model/stored-tensor.js';
export type { VerifyReport } from './model/verify.js';
export { type VerifyModelOptions, verifyModel } from './model/verify-model.js';
export type { DataProgress, Progress } from './pipeline/progress.js';
