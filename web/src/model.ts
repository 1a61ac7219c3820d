/**
 * Model files: inspect them, plan a conversion, and make smaller ones. Files are read by position and written tile by tile, so that memory
 * does not grow with the model. Reading headers needs no wasm; the core is loaded when the first tensor is converted.
 */

export type { CompareReport } from './convert/compare.js';
export { type CompareModelsOptions, compareModels } from './convert/compare.js';
export type { EstimateOptions, ModelEstimate } from './convert/estimate.js';
export { estimateModel } from './convert/estimate.js';
export type { TypeTable } from './convert/fit.js';
export type { ModelInfo, ModelTensor } from './convert/inspect-model.js';
export { inspectModel, readFloats, readQuantized, readTensor, tensors } from './convert/inspect-model.js';
export { hubModel, pushModel } from './convert/named.js';
export { modelFormats, presetTarget, resultFiles } from './convert/names.js';
export type { LoraAdapter } from './convert/open.js';
export type { KeptReason, PlannedTensorInfo } from './convert/plan.js';
export {
  fitTypes,
  type ModelPlan,
  measureTypes,
  type PlanModelOptions,
  type PlanOptions,
  planModel,
  sizeCurve,
} from './convert/plan-model.js';
export { type ModelReport, QualityError, type TensorReport } from './convert/quantize.js';
export {
  type QuantizeModelOptions,
  type QuantizeModelResult,
  type QuantizeModelsOptions,
  quantizeModel,
} from './convert/quantize-model.js';
export type { ModelInput } from './convert/recognize.js';
export { resultName } from './convert/result-name.js';
export { loadTensors, saveTensors } from './convert/save-tensors.js';
export type { SavableTensor, SavedTensor } from './convert/saved-tensors.js';
export type { Tensor } from './convert/stored-tensor.js';
export type { VerifyReport } from './convert/verify.js';
export { type VerifyModelOptions, verifyModel } from './convert/verify.js';
export type { DataProgress, Progress } from './convert/work-options.js';
export { errorFrom, ScalepointError } from './core/errors.js';
export type { Note } from './core/note.js';
export type { WorkerLike } from './core/worker-like.js';
export { type CalibrateModelOptions, calibrateModel, type ModelStatistics } from './evaluate/calibrate-model.js';
export type { LanguageComparison, LanguageEvaluation } from './evaluate/evaluate.js';
export { type EvaluateModelOptions, evaluateModel } from './evaluate/evaluate-model.js';
export type { LanguageData, TextTokenizer } from './evaluate/texts.js';
export type { FarFile, FileInput } from './formats/files/bytes.js';
export type { ModelOutput } from './formats/files/sinks.js';
export type { Rule } from './formats/options.js';
export type { ModelFormat, ModelTarget } from './formats/registry.js';
export type { ModelSample, ModelSamples, RunOptions } from './formats/run.js';
export type { PushOptions, PushResult } from './hub/push.js';
export type { HubOptions } from './hub/settings.js';
