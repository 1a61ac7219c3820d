/**
 * Model files: what is in them, what would become of them, and the same with smaller numbers. Files are read by position and written
 * tile by tile, so that memory does not grow with the model. Reading headers needs no wasm; the core is loaded when the first tensor
 * is converted.
 */
import type { BlockTensor, LinearQuantizedTensor } from './arrays/tensor.js';
import { rangeError, typeError } from './core/errors.js';
import { show } from './core/show.js';
import type { FormatSidecars, ModelTarget } from './formats/registry.js';
import { withCallbacks } from './pipeline/callbacks.js';
import { type CompareReport, compareOpen } from './model/compare.js';
import { type EstimateOptions, estimateOpen, type ModelEstimate } from './model/estimate.js';
import { type ModelInput, type Opened, type OpenOptions, withModel } from './model/open.js';
import {
  checkNames,
  checkPlanOptions,
  checkResultOptions,
  checkWorkOptions,
  planNames,
  sidecarNames,
  workNames,
} from './model/options.js';
import type { PlannedFile } from './model/plan.js';
import { type Quantized, quantizeOpen, type ResultOptions } from './model/quantize.js';
import {
  describe,
  type FloatTensor,
  type ModelInfo,
  read,
  readAsFloats,
  readCodes,
  readStored,
  type Tensor,
} from './model/read.js';
import type { ModelReport } from './model/report.js';
import type { SizeOptions } from './model/sizes.js';
import { startRunner, type WorkOptions } from './pipeline/start.js';
import { type VerifyOptions, type VerifyReport, verifyOpen } from './model/verify.js';
import { fitted, type ModelFit, type ModelPlan, type PlanOptions, type SizedPlanOptions } from './model/planning.js';
import type { RunOptions, RunReport } from './formats/onnx/run/compare.js';
import { checkTargets, quantizeSeveral } from './model/several.js';

export type { ConverterInfo } from './conversions/converter.js';
export type { ErrorCode, ErrorPlace } from './core/errors.js';
export { ScalepointError } from './core/errors.js';
export { type ErrorMeasures, standsForInfinity } from './core/measure.js';
export type { NodeFileHandle } from './core/node.js';
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
export {
  aFile,
  didYouMean,
  type Flag,
  keepMention,
  type ModelGranularity,
  type OptionInfo,
  type OptionTable,
  type PlanChoices,
  type Rule,
  type Sidecar,
  type Words,
} from './formats/options.js';
export type { FormatOptions, FormatSidecars, ModelFormat, ModelTarget, ResultFormat } from './formats/registry.js';
export { mergeConfig } from './formats/safetensors/config.js';
export { type SafetensorsTarget, safetensorsTargets } from './formats/safetensors/options.js';
export type { ComparedTensor, CompareReport, SkippedTensor } from './model/compare.js';
export type { Progress } from './pipeline/engine.js';
export type { EstimateOptions, ModelEstimate } from './model/estimate.js';
export type { SizePoint, TensorTypes, TypeFit, TypeOption, TypeTable } from './model/fit.js';
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
export type { ResultOptions } from './model/quantize.js';
export type { FloatTensor, ModelInfo, ModelTensor, OtherDType, Tensor, TensorData } from './model/read.js';
export { type ModelReport, QualityError, type TensorReport } from './model/report.js';
export type { SizeOptions } from './model/sizes.js';
export type { WorkOptions } from './pipeline/start.js';
export type { VerifyOptions, VerifyReport } from './model/verify.js';
export type { WorkerLike } from './runner/worker-like.js';
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
} from './model/planning.js';
export type { ComparedLayer, ComparedOutput, RunOptions, RunReport } from './formats/onnx/run/compare.js';
export type { InputArray, InputOptions, ModelInputs } from './formats/onnx/run/inputs.js';
export type { Runtime } from './formats/onnx/run/runtime.js';
export { loadTensors, saveTensors, writeSidecar } from './model/saving.js';
export type { SavedTensorsOptions } from './model/tensors.js';

// --------------------------------------------------------------------------------------------------------------------- inspect

/** Checks the options of a call that makes no file. */
function checkOptions(options: WorkOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw typeError('options', `expected an object, got ${show(options)}`);
  }
  checkNames(options, workNames);
  checkWorkOptions(options);
  options.signal?.throwIfAborted();
}

function checkOpenOptions(options: OpenOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw typeError('options', `expected an object, got ${show(options)}`);
  }
  checkNames(options, ['signal']);
  checkWorkOptions(options as WorkOptions);
}

/**
 * What is in a model. Reads headers only; the format is told by the content, not by the name. Takes at most four times the memory of the
 * header, and 1 KiB for each tensor and each key of its metadata.
 * @example const { tensors } = await inspectModel('model.safetensors');
 * @throws ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE` or `IO`; TypeError if `file` is nothing to read; the signal's reason
 */
export async function inspectModel(file: ModelInput, options: OpenOptions = {}): Promise<ModelInfo> {
  checkOpenOptions(options);
  return withModel(file, options, async (opened) => describe(opened));
}

/**
 * Reads one tensor of a model file into a new array. Floats, and blocks of ggml, can go to the calls of `scalepoint` as they are.
 * @example const q = sp.quantize(await readTensor('model.safetensors', 'fc1.weight'));
 * @throws ScalepointError `NOT_FOUND`, and what `inspectModel` throws
 */
export async function readTensor(file: ModelInput, name: string, options: OpenOptions = {}): Promise<Tensor> {
  checkOpenOptions(options);
  return withModel(file, options, (opened) => read(opened, name));
}

/**
 * Reads all tensors of a model file one by one, in the order of their bytes. The file is open until the loop ends.
 * @example for await (const tensor of tensors('model.safetensors')) console.log(tensor.name, tensor.data.length);
 * @throws what `inspectModel` throws
 */
export async function* tensors(file: ModelInput, options: OpenOptions = {}): AsyncGenerator<Tensor, void, void> {
  checkOpenOptions(options);
  let close = () => {};
  const closed = new Promise<void>((resolve) => {
    close = resolve;
  });
  let work: Promise<void> | undefined;
  const opened = await new Promise<Opened>((resolve, reject) => {
    work = withModel(file, options, (model) => {
      resolve(model);
      return closed;
    });
    work.catch(reject);
  });
  try {
    for (const tensor of opened.model.tensors) yield await readStored(opened, tensor);
  } finally {
    close();
    await work;
  }
}

/**
 * Reads what one tensor of a model file stands for into a new array of floats: floats of any type; codes with their scales and zero
 * points, by the name of the weight (`X.weight`, also where the file holds `X.weight_packed`); blocks of GGUF.
 * @example const { shape, data } = await readFloats('model.int8.safetensors', 'conv1.weight');
 * @throws ScalepointError `NOT_FOUND`; `UNSUPPORTED_DTYPE` if the tensor stands for no floats; and what `inspectModel` throws
 */
export async function readFloats(file: ModelInput, name: string, options: WorkOptions = {}): Promise<FloatTensor> {
  checkOptions(options);
  return withCallbacks(options, (own) => withModel(file, own, (opened) => readAsFloats(opened, name, own)));
}

/**
 * Reads one quantized tensor of a model file as `scalepoint` has it, for `dequantize`, `compare` or `linear`: integer codes by the name of
 * the weight, or blocks of GGUF.
 * @example const layer = sp.linear(await readQuantized('model.int4.safetensors', 'fc1.weight'));
 * @throws ScalepointError `NOT_FOUND`; `UNSUPPORTED_DTYPE` if the tensor has no integer codes; and what `inspectModel` throws
 */
export async function readQuantized(
  file: ModelInput,
  name: string,
  options: OpenOptions = {},
): Promise<LinearQuantizedTensor<Int8Array<ArrayBuffer>> | BlockTensor<Uint8Array<ArrayBuffer>>> {
  checkOpenOptions(options);
  return withModel(file, options, (opened) => readCodes(opened, name));
}

// -------------------------------------------------------------------------------------------------------------------- estimate

/**
 * What a conversion would lose: the error of each tensor that would be converted, measured on a sample of it, with the exact sizes of a
 * plan. Writes nothing, and reads no more than the sample.
 * @example const { tensors } = await estimateModel('model.safetensors', { to: 'int4' });
 * @throws what `planModel` throws; ScalepointError `NON_FINITE`, `OVERFLOW`, `WORKER` or `OUT_OF_MEMORY`; the signal's reason
 */
export async function estimateModel(file: ModelInput, options: PlanOptions & EstimateOptions): Promise<ModelEstimate> {
  checkPlanOptions(options, [...planNames(), 'sample', ...workNames]);
  checkWorkOptions(options);
  const { sample } = options;
  if (sample !== undefined && !(typeof sample === 'number' && sample >= 1)) {
    throw rangeError('sample', `expected a number of at least 1, got ${show(sample)}`);
  }
  options.signal?.throwIfAborted();
  return withCallbacks(options, (own) =>
    withModel(file, own, async (opened) => estimateOpen(opened, (await fitted(opened, own, own)).choices, own)),
  );
}

// -------------------------------------------------------------------------------------------------------------------- quantize

/** Options of `quantizeModel`. */
export interface QuantizeModelOptions extends SizedPlanOptions, FormatSidecars, ResultOptions {}

/** Options of `quantizeModel` for several results. */
export interface QuantizeModelsOptions extends Omit<QuantizeModelOptions, 'to' | 'targetSize' | 'targetBitsPerWeight'> {
  /** Targets of one format, each of them once. */
  readonly to: readonly ModelTarget[];
  /**
   * The folder that the results go to, each under its usual name: a path or URL (Node) of one that is there, or a
   * FileSystemDirectoryHandle.
   * @defaultValue memory
   */
  readonly output?: string | URL | FileSystemDirectoryHandle;
}

/** The result of `quantizeModel`. */
export interface QuantizeModelResult {
  /** What became of each tensor, and how far it is from the original. */
  readonly report: ModelReport;
  /**
   * safetensors with codes: the given config.json, or an empty one, with the `quantization_config`. Without codes: the given one without
   * its `quantization_config`, if it has one.
   */
  readonly config?: Readonly<Record<string, unknown>>;
  /** The files that were made, the main one first. */
  readonly files: readonly PlannedFile[];
  /** With `targetSize` or `targetBitsPerWeight`: the rules that were found. */
  readonly fit?: ModelFit;
  /** Whether the result is whole. Of work in parts, only the part that ends last tells true. */
  readonly isWhole: boolean;
  /**
   * The file's bytes.
   * @param name of one of several files
   * @throws TypeError if it went to `output`, or there are several files and this is the name of none
   */
  bytes(name?: string): Promise<Uint8Array<ArrayBuffer>>;
  /** The same as a Blob. */
  blob(name?: string): Promise<Blob>;
}

/** The options of a call that may have been given a plan. A plan of the same file says how to make the same again. */
function optionsOf(
  choices: QuantizeModelOptions | ModelPlan,
  more: FormatSidecars & ResultOptions,
): QuantizeModelOptions {
  const isPlan = typeof choices === 'object' && choices !== null && 'tensors' in choices && 'totals' in choices;
  if (!isPlan) return Object.keys(more).length === 0 ? choices : { ...choices, ...more };
  if (choices.options === undefined) {
    throw typeError('plan', 'expected what planModel gave itself: copies have lost what it was made with');
  }
  return { ...choices.options, ...more } as QuantizeModelOptions;
}

/**
 * Makes a model smaller.
 *
 * safetensors become safetensors in compressed-tensors' layout: by default int8 codes with one scale for each output channel, `X.weight`
 * and `X.weight_scale`, float8 codes likewise, or packed int4 in groups of 128; with the `quantization_config` that config.json needs to
 * say so. Embeddings, norms, biases, 1-D tensors and lm_head are kept, and whatever would not become smaller; `rules` change that. GGUF
 * files become what llama-quantize makes of them, byte for byte. A .npy file becomes a safetensors file with one weight.
 *
 * safetensors also become GGUF, by the types of GGUF: language models with their config.json and tokenizer, which are looked for beside the
 * file or given in a list with it, as llama.cpp converts and quantizes them; and checkpoints of diffusion models by the rules of
 * ComfyUI-GGUF's tools.
 *
 * Kept tensors are copied bit by bit and appear in the report with the reason.
 *
 * Memory: at most 64 MiB a worker and four times the header, whatever the size of the model; 1 KiB for each tensor; in Node up to 40 MiB for
 * the garbage of connections and Blobs; and the result unless there is an `output`.
 * @example await quantizeModel('model.safetensors', { to: 'int8', output: 'model.int8.safetensors' });
 * @example await quantizeModel(file, await planModel(file, { to: 'int8' }), { output });
 * @example const [q8, q4] = await quantizeModel('model.onnx', { to: ['q8', 'q4'], output: 'onnx' });
 * @param plan of the same file
 * @param more options in addition to those of a plan
 * @throws TypeError or RangeError naming the option. ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE`, `UNSUPPORTED_DTYPE`, `IO`,
 *   `CHANGED`, `EXISTS`, `WORKER`, `OUT_OF_MEMORY`; `NON_FINITE` if a weight that becomes codes holds NaN or an infinity, `OVERFLOW` if
 *   one is beyond the type that it is to be stored in; `QUALITY` (a QualityError). The signal's reason if it was aborted. After an error
 *   there is no output, nor a part of one.
 */
export function quantizeModel(
  file: ModelInput,
  plan: ModelPlan,
  more?: FormatSidecars & ResultOptions,
): Promise<QuantizeModelResult>;
/**
 * Makes several results of one model, one after the other, each called as its users look for it: `model.onnx` becomes
 * `model_quantized.onnx` and `model_q4.onnx`. They come in the order of the targets. If one fails, those before it stay.
 */
export function quantizeModel(
  file: ModelInput,
  options: QuantizeModelsOptions,
): Promise<readonly QuantizeModelResult[]>;
export function quantizeModel(file: ModelInput, options: QuantizeModelOptions): Promise<QuantizeModelResult>;
export async function quantizeModel(
  file: ModelInput,
  choices: QuantizeModelOptions | QuantizeModelsOptions | ModelPlan,
  more: FormatSidecars & ResultOptions = {},
): Promise<QuantizeModelResult | readonly QuantizeModelResult[]> {
  if (isForSeveral(choices)) return quantizeEach(file, choices);
  const options = optionsOf(choices, more);
  checkQuantizeOptions(options);
  const made = await withCallbacks(options, (own) =>
    withModel(file, own, async (opened) => {
      const { choices, fit } = await fitted(opened, own, own);
      return { ...(await quantizeOpen(opened, choices, own)), fit };
    }),
  );
  return resultOf(made, made.fit);
}

/** Whether options name a list of targets. */
function isForSeveral(choices: unknown): choices is QuantizeModelsOptions {
  return Array.isArray((choices as { to?: unknown } | null | undefined)?.to);
}

async function quantizeEach(file: ModelInput, options: QuantizeModelsOptions): Promise<QuantizeModelResult[]> {
  const targets = checkTargets(options.to, options as SizeOptions);
  for (const to of targets) checkQuantizeOptions({ ...options, to });
  const { to: _, ...rest } = options;
  const made = await withCallbacks(rest, (own) =>
    withModel(file, own, (opened) => quantizeSeveral(opened, targets, own)),
  );
  return made.map((one) => resultOf(one, undefined));
}

function checkQuantizeOptions(options: QuantizeModelOptions): void {
  const names = [...planNames(), 'output', 'overwrite', ...sidecarNames(), 'minSqnrDb', ...workNames];
  checkPlanOptions(options, names);
  checkWorkOptions(options);
  checkResultOptions(options);
  options.signal?.throwIfAborted();
}

function resultOf(
  { report, sidecars, memory, files, isWhole }: Quantized,
  fit: ModelFit | undefined,
): QuantizeModelResult {
  const inMemory = (name: string | undefined) => {
    if (memory === undefined) throw new TypeError('the result went to output, its bytes are there');
    const found = memory[name === undefined && memory.length === 1 ? 0 : files.findIndex((file) => file.name === name)];
    if (found !== undefined) return found;
    throw typeError('name', `expected one of ${files.map((file) => file.name).join(', ')}, got ${show(name)}`);
  };
  return {
    report,
    ...sidecars,
    files,
    isWhole,
    ...(fit === undefined ? {} : { fit }),
    bytes: async (name) => inMemory(name).bytes(),
    blob: async (name) => inMemory(name).blob(),
  };
}

// --------------------------------------------------------------------------------------------------------------------- compare

/** Options of `compareModels`. */
export interface CompareModelsOptions extends WorkOptions {
  /**
   * ONNX: also runs both models on the same inputs, with onnxruntime-web, and compares their outputs.
   * @defaultValue false
   */
  readonly run?: boolean | RunOptions;
}

/** The result of `compareModels`; with `run`, also what the models compute. */
export type CompareModelsReport = CompareReport & Partial<RunReport>;

const runNames: readonly string[] = ['inputs', 'dimensions', 'seed', 'layers', 'runtime'];

function checkRunOptions(run: unknown): void {
  if (run === undefined || typeof run === 'boolean') return;
  if (typeof run !== 'object' || run === null) throw typeError('run', `expected true or an object, got ${show(run)}`);
  for (const name of Object.keys(run)) {
    if (!runNames.includes(name)) throw typeError(`run.${name}`, `unknown option; there are ${runNames.join(', ')}`);
  }
  const { seed, dimensions, layers } = run as RunOptions;
  if (seed !== undefined && !Number.isSafeInteger(seed)) {
    throw rangeError('run.seed', `expected a whole number, got ${show(seed)}`);
  }
  if (layers !== undefined && typeof layers !== 'boolean') {
    throw typeError('run.layers', `expected true or false, got ${show(layers)}`);
  }
  for (const [name, size] of Object.entries(dimensions ?? {})) {
    if (Number.isSafeInteger(size) && size >= 0) continue;
    throw rangeError(`run.dimensions.${name}`, `expected a whole number of at least 0, got ${show(size)}`);
  }
}

/**
 * Holds the tensors of one model against those of another, by name: what their bytes stand for, codes with scales and blocks included.
 * With `run`, ONNX models are run as well: on random inputs or given ones, to compare their outputs, and with `layers` what comes out of
 * each node. That takes the package onnxruntime-web, 1.22 or newer.
 * @example const { tensors } = await compareModels('model.safetensors', 'model.int8.safetensors');
 * @example const { outputs } = await compareModels('model.onnx', 'model_q4.onnx', { run: true });
 * @throws what `inspectModel` throws; ScalepointError `RUNTIME` if a model cannot be run; `UNSUPPORTED_DTYPE` never: such tensors are
 *   listed as not compared
 */
export async function compareModels(
  a: ModelInput,
  b: ModelInput,
  options: CompareModelsOptions = {},
): Promise<CompareModelsReport> {
  if (typeof options !== 'object' || options === null) {
    throw typeError('options', `expected an object, got ${show(options)}`);
  }
  checkNames(options, [...workNames, 'run']);
  checkRunOptions(options.run);
  checkWorkOptions(options);
  const { run = false, signal } = options;
  signal?.throwIfAborted();
  return withCallbacks(options, (own) =>
    withModel(a, own, (first) =>
      withModel(b, own, async (second) => {
        const report = await compareOpen(first, second, own, (elements, files) =>
          startRunner(elements, { sources: files, sinks: [] }, own),
        );
        if (run === false) return report;
        const { compareRuns } = await import('./formats/onnx/run/compare.js');
        return { ...report, ...(await compareRuns(first, second, run === true ? {} : run, signal)) };
      }),
    ),
  );
}

// ---------------------------------------------------------------------------------------------------------------------- verify

/** Options of `verifyModel`. */
export interface VerifyModelOptions extends FormatSidecars, VerifyOptions {}

/**
 * Reads all of a model and tells what is wrong with it: scales that are NaN or infinite, bits that belong to no code, parts that do not fit
 * each other, a config.json that says something else. Needs no wasm. A file whose header is wrong cannot be opened: the error says what
 * it is.
 * @example const { problems } = await verifyModel('model.gguf');
 * @throws what `inspectModel` throws; ScalepointError `CHANGED`; the signal's reason if it was aborted
 */
export async function verifyModel(file: ModelInput, options: VerifyModelOptions = {}): Promise<VerifyReport> {
  if (typeof options !== 'object' || options === null) {
    throw typeError('options', `expected an object, got ${show(options)}`);
  }
  checkNames(options, [...sidecarNames(), 'onProgress', 'signal']);
  checkWorkOptions(options as WorkOptions);
  for (const name of sidecarNames()) {
    const value = (options as Readonly<Record<string, unknown>>)[name];
    if (value === undefined || (typeof value === 'object' && value !== null && !Array.isArray(value))) continue;
    throw typeError(name, `expected the object of a JSON file, got ${show(value)}`);
  }
  options.signal?.throwIfAborted();
  return withCallbacks(options, (own) => withModel(file, own, (opened) => verifyOpen(opened, own, own)));
}
