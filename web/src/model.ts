/**
 * Model files: what is in them, what would become of them, and the same with smaller numbers. Files are read by position and written
 * tile by tile, so that memory does not grow with the model. Reading headers needs no wasm; the core is loaded when the first tensor
 * is converted.
 */

import { ScalepointError } from './core/errors.js';
import type { ErrorMeasures } from './core/measure.js';
import { nodeModule } from './core/node.js';
import { show } from './core/show.js';
import type { LoadOptions } from './core/wasm.js';
import { type ByteSource, quoted } from './files/bytes.js';
import { type MemorySink, type ModelOutput, memorySink, openSink } from './files/sinks.js';
import { type GgufOptions, type GgufTarget, ggufTargets, isGgufTarget, planGguf } from './formats/gguf/plan.js';
import {
  isSafetensorsTarget,
  mergeConfig,
  planSafetensors,
  type SafetensorsOptions,
  type SafetensorsTarget,
  safetensorsTargets,
} from './formats/safetensors/plan.js';
import { type CompareReport, compareOpen } from './pipeline/compare.js';
import { carryOut, convertedElements, type Progress } from './pipeline/engine.js';
import { type ModelFormat, type ModelInput, type OpenModel, withModel } from './pipeline/open.js';
import type { FilePlan, PlannedTensor, Rule } from './pipeline/plan.js';
import { elementsOf } from './pipeline/steps.js';
import { inlineRunner, type TileRunner, type WorkerLike, WorkerPool } from './pipeline/workers.js';

export type { ErrorCode } from './core/errors.js';
export { ScalepointError } from './core/errors.js';
export type { ErrorMeasures } from './core/measure.js';
export type { FileInput, NodeFileHandle } from './files/bytes.js';
export type { ModelOutput, NodeWritableHandle } from './files/sinks.js';
export type { MetadataValue } from './formats/gguf/header.js';
export { type GgufTarget, ggufTargets } from './formats/gguf/plan.js';
export { mergeConfig, type SafetensorsTarget, safetensorsTargets } from './formats/safetensors/plan.js';
export type { ComparedTensor, CompareReport } from './pipeline/compare.js';
export type { Progress } from './pipeline/engine.js';
export type { ModelFormat, ModelInput } from './pipeline/open.js';
export type { ModelGranularity, Rule } from './pipeline/plan.js';
export type { WorkerLike } from './pipeline/workers.js';

// --------------------------------------------------------------------------------------------------------------------- inspect

/** A tensor in a model. */
export interface ModelTensor {
  readonly name: string;
  /** As the format spells it: `F32`, `BF16`, `I64`, `Q4_K`. */
  readonly dtype: string;
  /** Row-major: the last dimension runs fastest. Empty for a scalar. */
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** Where its bytes begin, from the start of its file. */
  readonly byteOffset: number;
  /** Which file of a sharded model, from 0. */
  readonly file: number;
}

/** What is in a model. */
export interface ModelInfo {
  readonly format: ModelFormat;
  /** Size of its files in bytes. */
  readonly bytes: number;
  /** Names of its files, where they have one. */
  readonly files: readonly string[];
  /** In the order of their bytes. A .npy file has one, named after the file. */
  readonly tensors: readonly ModelTensor[];
  /**
   * The strings of safetensors' `__metadata__`, or the key-value pairs of a GGUF file, whose long arrays are shown by their length and
   * first elements. Without a prototype, as `__proto__` may be a key.
   */
  readonly metadata: OpenModel['metadata'];
}

/**
 * What is in a model. Reads headers only; the format is told by the content, not by the name.
 * @example const { tensors } = await inspectModel('model.safetensors');
 * @throws ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE` or `IO`; TypeError if `file` is nothing to read
 */
export function inspectModel(file: ModelInput): Promise<ModelInfo> {
  return withModel(file, async ({ format, bytes, files, tensors, metadata }) => ({
    format,
    bytes,
    files: files.map(({ name }) => name ?? ''),
    tensors: tensors.map(({ name, dtype, shape, bytes: size, byteOffset, file: index }) => {
      return { name, dtype, shape, bytes: size, byteOffset, file: index };
    }),
    metadata,
  }));
}

/** The array that holds a tensor's elements as they are stored. */
export type TensorData =
  | Float32Array
  | Float64Array
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array;

/** A tensor with its elements. */
export interface Tensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  /**
   * F32 and F64 as themselves, integers as themselves, F16 and BF16 as the Uint16Array of their bits, C64 as pairs in a Float32Array,
   * everything else as bytes: blocks as `dequantize` takes them.
   */
  readonly data: TensorData;
}

function typedArray(dtype: string, buffer: ArrayBuffer): TensorData {
  switch (dtype) {
    case 'F32':
    case 'C64':
      return new Float32Array(buffer);
    case 'F64':
      return new Float64Array(buffer);
    case 'F16':
    case 'BF16':
    case 'U16':
      return new Uint16Array(buffer);
    case 'I8':
      return new Int8Array(buffer);
    case 'I16':
      return new Int16Array(buffer);
    case 'I32':
      return new Int32Array(buffer);
    case 'U32':
      return new Uint32Array(buffer);
    case 'I64':
      return new BigInt64Array(buffer);
    case 'U64':
      return new BigUint64Array(buffer);
    default:
      return new Uint8Array(buffer);
  }
}

/**
 * Reads one tensor of a model file into a new array.
 * @throws ScalepointError `NOT_FOUND`, and what `inspectModel` throws
 */
export function readTensor(file: ModelInput, name: string): Promise<Tensor> {
  return withModel(file, async (model) => {
    const tensor = model.tensors.find((candidate) => candidate.name === name);
    if (tensor === undefined) {
      throw new ScalepointError('NOT_FOUND', `the file has no tensor ${quoted(name)}`, { tensor: name });
    }
    const { dtype, shape, byteOffset } = tensor;
    const bytes = await (model.files[tensor.file] as ByteSource).read(byteOffset, byteOffset + tensor.bytes);
    // Bytes in memory are read as views of it, at any alignment; from elsewhere they come in a buffer of their own.
    const own = bytes.byteLength === bytes.buffer.byteLength ? bytes : bytes.slice();
    return { name, dtype, shape, data: typedArray(dtype, own.buffer) };
  });
}

// ------------------------------------------------------------------------------------------------------------------------ plan

/** What weights can become: integers, float8 or 16-bit floats in safetensors, a file type of llama-quantize in GGUF. */
export type ModelTarget = SafetensorsTarget | GgufTarget;

/** What decides about a result. */
export interface PlanOptions {
  /**
   * safetensors (and .npy, which becomes safetensors): int8, int4, float8e4m3fn, float16, bfloat16. GGUF: Q8_0, Q4_K_M and the other
   * file types of llama-quantize; F16, BF16 and F32 also from quantized files.
   */
  readonly to: ModelTarget;
  /** safetensors, integers: symmetric, or with zero points. @defaultValue 'symmetric' */
  readonly scheme?: SafetensorsOptions['scheme'];
  /** safetensors, integers: what shares a scale. @defaultValue per channel for int8, groups of 128 for int4 */
  readonly granularity?: SafetensorsOptions['granularity'];
  /** safetensors, integers: how the range of each channel or group is found. @defaultValue 'min-max' */
  readonly range?: SafetensorsOptions['range'];
  /** safetensors, integers: codes in int32 words (`pack-quantized`). @defaultValue true for int4 and groups */
  readonly packed?: SafetensorsOptions['packed'];
  /** safetensors, int8: a configuration that has activations quantized as well (W8A8). @defaultValue activations stay floats */
  readonly activations?: SafetensorsOptions['activations'];
  /** GGUF: every tensor in the plain type, without llama-quantize's mixture. @defaultValue false */
  readonly pure?: GgufOptions['pure'];
  /** GGUF: whether tensors that are quantized already may be quantized again. @defaultValue false */
  readonly requantize?: GgufOptions['requantize'];
  /** GGUF: whether to correct a `general.alignment` that llama-quantize leaves wrong. @defaultValue false, with a note in the report */
  readonly fixAlignment?: GgufOptions['fixAlignment'];
  /**
   * Exceptions from what is converted by default; the first match wins.
   * @defaultValue none
   */
  readonly rules?: readonly Rule[];
}

/** What would become of a tensor. */
export interface PlannedTensorInfo {
  readonly name: string;
  readonly shape: readonly number[];
  readonly from: string;
  /** Of packed codes: I4 or I8. */
  readonly to: string;
  readonly bytesBefore: number;
  /** With scales and zero points. */
  readonly bytesAfter: number;
  /** Of tensors that stay as they are: why, in a few words such as `bias`, `1-D` or `rule`. */
  readonly kept?: string;
}

/** Sums over a model. */
export interface ModelTotals {
  /** Number of tensors that are converted, and that are kept. */
  readonly quantized: number;
  readonly kept: number;
  /** Sizes of the files, headers included. */
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  /** bytesBefore / bytesAfter. */
  readonly ratio: number;
  /** Bits of the result's tensors, scales included, for each element of the original ones. */
  readonly bitsPerWeight: number;
}

/** What would become of a model. */
export interface ModelPlan {
  readonly format: 'safetensors' | 'gguf';
  readonly to: ModelTarget;
  /** In the order of the input. */
  readonly tensors: readonly PlannedTensorInfo[];
  /** `bytesAfter` is the exact size of the result. */
  readonly totals: ModelTotals;
  /** safetensors with codes: what belongs into config.json as `quantization_config`. */
  readonly quantizationConfig?: Readonly<Record<string, unknown>>;
  /** What you should know about the result; mostly nothing. */
  readonly notes: readonly string[];
}

const planNames = [
  'to',
  'scheme',
  'granularity',
  'range',
  'packed',
  'activations',
  'pure',
  'requantize',
  'fixAlignment',
  'rules',
];

/** Options come from JavaScript as well, so they are checked as if they had no types. */
function checkPlanOptions(options: PlanOptions, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null) {
    throw new TypeError(`options: expected an object such as { to: 'int8' }, got ${show(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw new TypeError(`${name}: unknown option; there are ${names.join(', ')}`);
  }
  const { to, rules = [], pure, requantize, fixAlignment } = options;
  if (!isSafetensorsTarget(to) && !isGgufTarget(to)) {
    throw new RangeError(
      `to: expected ${safetensorsTargets.join(', ')} for safetensors, or ${ggufTargets.join(', ')} for GGUF, got ${show(to)}`,
    );
  }
  if (!Array.isArray(rules)) throw new TypeError(`rules: expected an array, got ${show(rules)}`);
  for (const [i, rule] of rules.entries()) {
    const { match, keep, to: target } = (rule ?? {}) as Partial<Rule>;
    if (!(match instanceof RegExp)) throw new TypeError(`rules[${i}].match: expected a RegExp, got ${show(match)}`);
    if ((keep === true) === (target !== undefined)) {
      throw new RangeError(`rules[${i}]: expected keep: true or to, got keep: ${show(keep)}, to: ${show(target)}`);
    }
  }
  for (const [name, value] of Object.entries({ pure, requantize, fixAlignment })) {
    if (value !== undefined && typeof value !== 'boolean') {
      throw new TypeError(`${name}: expected true or false, got ${show(value)}`);
    }
  }
}

/** Options of the other format are an error: they would be silently without effect. */
function checkOnly(options: PlanOptions, names: readonly (keyof PlanOptions)[], format: string): void {
  for (const name of names) {
    if (options[name] !== undefined) throw new RangeError(`${name}: this option is for ${format} files`);
  }
}

function planOf(model: OpenModel, options: PlanOptions): FilePlan {
  const { to } = options;
  if (model.gguf !== undefined) {
    if (!isGgufTarget(to)) {
      throw new RangeError(`to: a GGUF file can become ${ggufTargets.join(', ')}, not ${show(to)}`);
    }
    checkOnly(options, ['scheme', 'granularity', 'range', 'packed', 'activations'], 'safetensors');
    return planGguf(model.gguf, to, options);
  }
  if (!isSafetensorsTarget(to)) {
    throw new RangeError(`to: a ${model.format} file can become ${safetensorsTargets.join(', ')}, not ${show(to)}`);
  }
  checkOnly(options, ['pure', 'requantize', 'fixAlignment'], 'GGUF');
  const metadata = model.metadata as Readonly<Record<string, string>>;
  return planSafetensors(model.tensors, metadata, {
    ...options,
    to,
    format: model.format === 'npy' ? 'npy' : 'safetensors',
  });
}

/** The type of a result, in the spelling of the format. */
function targetType({ conversion, source }: PlannedTensor): string {
  if (conversion.kind === 'copy') return source.dtype;
  if (conversion.kind !== 'codes') return conversion.to;
  return conversion.type === 'float' ? 'F8_E4M3' : `I${conversion.bits}`;
}

function infoOf(tensor: PlannedTensor): PlannedTensorInfo {
  const { source, parts, kept } = tensor;
  return {
    name: source.name,
    shape: source.shape,
    from: source.dtype,
    to: targetType(tensor),
    bytesBefore: source.bytes,
    bytesAfter: parts.reduce((sum, { bytes }) => sum + bytes, 0),
    ...(kept === undefined ? {} : { kept }),
  };
}

function totalsOf(tensors: readonly PlannedTensorInfo[], bytesBefore: number, bytesAfter: number): ModelTotals {
  const quantized = tensors.filter(({ kept }) => kept === undefined).length;
  const elements = tensors.reduce((sum, { shape }) => sum + elementsOf(shape), 0);
  const payload = tensors.reduce((sum, tensor) => sum + tensor.bytesAfter, 0);
  return {
    quantized,
    kept: tensors.length - quantized,
    bytesBefore,
    bytesAfter,
    ratio: bytesBefore / bytesAfter,
    bitsPerWeight: elements === 0 ? 0 : (8 * payload) / elements,
  };
}

/**
 * What would become of a model: the type and size of every tensor, and the exact size of the result. Reads headers only.
 * @example const { totals } = await planModel('model.gguf', { to: 'Q4_K_M' });
 * @throws TypeError or RangeError naming the option; what `inspectModel` throws; ScalepointError `UNSUPPORTED_DTYPE` if a tensor cannot
 *   be converted
 */
export async function planModel(file: ModelInput, options: PlanOptions): Promise<ModelPlan> {
  checkPlanOptions(options, planNames);
  return withModel(file, async (model) => {
    const plan = planOf(model, options);
    const tensors = plan.tensors.map(infoOf);
    const { quantizationConfig, notes = [] } = plan;
    return {
      format: model.format === 'gguf' ? 'gguf' : 'safetensors',
      to: options.to,
      tensors,
      totals: totalsOf(tensors, model.bytes, plan.size),
      notes,
      ...(quantizationConfig === undefined ? {} : { quantizationConfig }),
    };
  });
}

// -------------------------------------------------------------------------------------------------------------------- quantize

/** How the work is done. */
export interface WorkOptions {
  /**
   * Workers to share the work; 0 for none. Every number gives the same bytes.
   * @defaultValue one less than there are processors, at most 8; none for small models
   */
  readonly workers?: number;
  /**
   * Makes a worker from the file `scalepoint/worker`, for bundlers that do not find it and for pages with Trusted Types.
   * @defaultValue the file beside this module
   */
  readonly worker?: () => WorkerLike;
  /** Where the wasm core comes from, and which build of it. @defaultValue as `load()` */
  readonly core?: LoadOptions;
  /** Called when a tensor is done, and in between at most every 50 ms. */
  readonly onProgress?: (progress: Progress) => void;
  /** Stops the work; the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** Options of `quantizeModel`. */
export interface QuantizeModelOptions extends PlanOptions, WorkOptions {
  /**
   * Where the result goes: a path or an open file (Node), a FileSystemFileHandle, a WritableStream. A path and a FileSystemFileHandle
   * show nothing until the result is whole.
   * @defaultValue memory, see `result.bytes()` and `result.blob()`
   */
  readonly output?: ModelOutput;
  /**
   * Whether `output` may replace a file.
   * @defaultValue false
   */
  readonly overwrite?: boolean;
  /** safetensors, codes: the object of the model's config.json, to get `result.config` with the `quantization_config` in it. */
  readonly config?: Readonly<Record<string, unknown>>;
  /**
   * The lowest SQNR in decibels that a converted tensor may have; below it nothing is written.
   * @defaultValue none
   */
  readonly minSqnrDb?: number;
}

/** What became of a tensor. */
export interface TensorReport extends PlannedTensorInfo {
  /** Of converted tensors: the original against what the result stands for. */
  readonly error?: ErrorMeasures;
  /** Elements of a float tensor that are NaN or infinite. */
  readonly nonFinite?: number;
}

/** What became of a model. */
export interface ModelReport {
  /** In the order of the input. */
  readonly tensors: readonly TensorReport[];
  readonly totals: ModelTotals;
  /** What you should know about the result; mostly nothing. */
  readonly notes: readonly string[];
}

/** The result of `quantizeModel`. */
export interface QuantizeModelResult {
  readonly report: ModelReport;
  /** safetensors with codes: the given config.json, or an empty one, with the `quantization_config`. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** The file's bytes. @throws TypeError if it went to `output` */
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  /** The file as a Blob. @throws TypeError if it went to `output` */
  blob(): Promise<Blob>;
}

/** Code `QUALITY`: the result misses the required SQNR and was dropped. */
export class QualityError extends ScalepointError {
  /** What the result would have been. */
  readonly report: ModelReport;

  constructor(message: string, tensor: string, report: ModelReport) {
    super('QUALITY', message, { tensor });
    this.report = report;
  }
}

const workNames = ['workers', 'worker', 'core', 'onProgress', 'signal'];
const quantizeNames = [...planNames, 'output', 'overwrite', 'config', 'minSqnrDb', ...workNames];

function checkWorkOptions({ workers, worker, onProgress, signal }: WorkOptions): void {
  if (workers !== undefined && typeof workers !== 'number') {
    throw new TypeError(`workers: expected a whole number, got ${show(workers)}`);
  }
  if (workers !== undefined && (!Number.isInteger(workers) || workers < 0 || workers > 64)) {
    throw new RangeError(`workers: expected 0 to 64, got ${workers}`);
  }
  for (const [name, value] of Object.entries({ worker, onProgress })) {
    if (value !== undefined && typeof value !== 'function') {
      throw new TypeError(`${name}: expected a function, got ${show(value)}`);
    }
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TypeError(`signal: expected an AbortSignal, got ${show(signal)}`);
  }
}

function checkQuantizeOptions(options: QuantizeModelOptions): void {
  checkPlanOptions(options, quantizeNames);
  checkWorkOptions(options);
  const { overwrite, minSqnrDb, config } = options;
  if (overwrite !== undefined && typeof overwrite !== 'boolean') {
    throw new TypeError(`overwrite: expected true or false, got ${show(overwrite)}`);
  }
  if (minSqnrDb !== undefined && (typeof minSqnrDb !== 'number' || Number.isNaN(minSqnrDb))) {
    throw new TypeError(`minSqnrDb: expected a number, got ${show(minSqnrDb)}`);
  }
  if (config !== undefined) mergeConfig(config, {});
}

function checkQuality(report: ModelReport, minSqnrDb: number): void {
  const missed = report.tensors
    .flatMap(({ name, error }) => (error !== undefined && error.sqnrDb < minSqnrDb ? [{ name, db: error.sqnrDb }] : []))
    .sort((a, b) => a.db - b.db);
  const [worst] = missed;
  if (worst === undefined) return;
  const list = missed.slice(0, 3).map(({ name, db }) => `${quoted(name)} (${db.toFixed(2)} dB)`);
  const more = missed.length > list.length ? ` and ${missed.length - list.length} more` : '';
  const message = `SQNR below ${minSqnrDb} dB, nothing was written: ${list.join(', ')}${more}`;
  throw new QualityError(message, worst.name, report);
}

/** Elements from which on starting workers takes less time than they save. */
const elementsForWorkers = 1 << 22;

function defaultWorkers(elements: number): number {
  if (elements < elementsForWorkers) return 0;
  const processors =
    nodeModule('node:os')?.availableParallelism() ??
    (globalThis as { navigator?: { hardwareConcurrency?: number } }).navigator?.hardwareConcurrency ??
    2;
  return Math.max(1, Math.min(8, processors - 1));
}

/** What carries out the tiles. Loads the core only here, so that looking into a file fetches no wasm. */
async function startRunner(
  elements: number,
  files: readonly ByteSource[],
  { workers = defaultWorkers(elements), worker, core, signal }: WorkOptions,
): Promise<TileRunner> {
  const { compileCore } = await import('./core/wasm.js');
  const module = await compileCore(core);
  return workers === 0 ? inlineRunner(module, files) : WorkerPool.start(workers, module, files, worker, signal);
}

function reportOf(model: OpenModel, plan: FilePlan, measures: readonly (ErrorMeasures | undefined)[]): ModelReport {
  const tensors = plan.tensors.map((tensor, i): TensorReport => {
    const error = measures[i];
    const info = infoOf(tensor);
    if (error === undefined) return info;
    return { ...info, nonFinite: error.nonFinite, ...(tensor.conversion.kind === 'copy' ? {} : { error }) };
  });
  return { tensors, totals: totalsOf(tensors, model.bytes, plan.size), notes: plan.notes ?? [] };
}

/**
 * Makes a model smaller.
 *
 * safetensors become safetensors in compressed-tensors' layout: by default int8 codes with one scale for each output channel, `X.weight`
 * and `X.weight_scale`, float8 codes likewise, or packed int4 in groups of 128; with the `quantization_config` that config.json needs to
 * say so. Embeddings, norms, biases, 1-D tensors and lm_head are kept, and whatever would not become smaller; `rules` change that. GGUF
 * files become what llama-quantize makes of them, byte for byte. A .npy file becomes a safetensors file with one weight.
 *
 * Kept tensors are copied bit by bit and appear in the report with the reason.
 *
 * Memory: at most 64 MiB a worker and four times the header, whatever the size of the model; and the result unless there is an `output`.
 * @example await quantizeModel('model.safetensors', { to: 'int8', output: 'model.int8.safetensors' });
 * @throws TypeError or RangeError naming the option. ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE`, `UNSUPPORTED_DTYPE`, `IO`,
 *   `CHANGED`, `EXISTS`, `WORKER`, `OUT_OF_MEMORY`; `NON_FINITE` if a weight that becomes codes holds NaN or an infinity, `OVERFLOW` if
 *   one is beyond the type that it is to be stored in; `QUALITY` (a QualityError). The signal's reason if it was aborted. After an error
 *   there is no output, nor a part of one.
 */
export async function quantizeModel(file: ModelInput, options: QuantizeModelOptions): Promise<QuantizeModelResult> {
  checkQuantizeOptions(options);
  const { output, overwrite = false, config, minSqnrDb, onProgress, signal } = options;
  signal?.throwIfAborted();
  return withModel(file, async (model) => {
    const plan = planOf(model, options);
    const merged = plan.quantizationConfig && mergeConfig(config ?? {}, plan.quantizationConfig);
    const memory: MemorySink | undefined = output === undefined ? memorySink(plan.size) : undefined;
    const sink = memory ?? (await openSink(output as ModelOutput, overwrite));
    let runner: TileRunner | undefined;
    let failure: unknown;
    try {
      runner = await startRunner(convertedElements(plan), model.files, options);
      const measures = await carryOut({ plan, files: model.files, sink, runner, signal, onProgress });
      const report = reportOf(model, plan, measures);
      if (minSqnrDb !== undefined) checkQuality(report, minSqnrDb);
      await sink.finish();
      const inMemory = (): MemorySink => {
        if (memory === undefined) throw new TypeError('the result went to output, its bytes are there');
        return memory;
      };
      return {
        report,
        ...(merged === undefined ? {} : { config: merged }),
        bytes: async () => inMemory().bytes(),
        blob: async () => inMemory().blob(),
      };
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      runner?.dispose(failure);
      await sink.discard(failure);
    }
  });
}

// --------------------------------------------------------------------------------------------------------------------- compare

/**
 * Holds the tensors of one model against those of another, by name: what their bytes stand for, codes with scales and blocks included.
 * @example const { tensors } = await compareModels('model.safetensors', 'model.int8.safetensors');
 * @throws what `inspectModel` throws; ScalepointError `UNSUPPORTED_DTYPE` never: such tensors are listed as not compared
 */
export async function compareModels(a: ModelInput, b: ModelInput, options: WorkOptions = {}): Promise<CompareReport> {
  if (typeof options !== 'object' || options === null) {
    throw new TypeError(`options: expected an object, got ${show(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!workNames.includes(name)) throw new TypeError(`${name}: unknown option; there are ${workNames.join(', ')}`);
  }
  checkWorkOptions(options);
  options.signal?.throwIfAborted();
  return withModel(a, (first) =>
    withModel(b, (second) =>
      compareOpen(first, second, options, (elements, files) => startRunner(elements, files, options)),
    ),
  );
}
