/**
 * Model files: what is in them, and the same with small integers. Files are read by position and written tensor by tensor, large
 * tensors piece by piece, so that memory does not grow with the model. Reading headers needs no wasm; the core is loaded when the
 * first tensor is converted.
 */
import { convertTensor, floatBytes, isFloat, scaleDType } from './convert.js';
import { ScalepointError } from './errors.js';
import {
  type ByteSink,
  type ByteSource,
  type FileInput,
  fileSink,
  memorySink,
  openSource,
  pieceBytes,
  quoted,
} from './formats/bytes.js';
import { npyMagic, openNpy } from './formats/npy.js';
import {
  elementCount,
  layoutSafetensors,
  readSafetensors,
  type TensorDType,
  type TensorInfo,
  tensorBytes,
} from './formats/safetensors.js';
import type { ErrorMeasures } from './measure.js';
import { show } from './tensor.js';

export type { ErrorCode } from './errors.js';
export { ScalepointError } from './errors.js';
export type { FileInput, NodeFileHandle } from './formats/bytes.js';
export type { TensorDType, TensorInfo } from './formats/safetensors.js';
export type { ErrorMeasures } from './measure.js';

/** A file format that can be read. */
export type ModelFormat = 'safetensors' | 'npy';

/** What is in a model file. */
export interface ModelInfo {
  readonly format: ModelFormat;
  /** Size of the file in bytes. */
  readonly bytes: number;
  /** In the order of their bytes in the file. A .npy file has one, named after the file. */
  readonly tensors: readonly TensorInfo[];
  /** The strings of a safetensors file's `__metadata__`. Without a prototype, as `__proto__` may be a key. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** An open model file. */
interface Model extends ModelInfo {
  /** Bytes [begin, end) of a tensor: whole elements, row-major, little-endian. */
  read(tensor: TensorInfo, begin: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  /** False where `read` rearranges, so that no element has an offset of its own. */
  readonly verbatim: boolean;
}

// --------------------------------------------------------------------------------------------------------------------- formats

/** What the first bytes of other common files mean, for the error. */
const strangers: readonly [name: string, start: readonly number[]][] = [
  ['a GGUF file', [0x47, 0x47, 0x55, 0x46]],
  ['a zip archive, such as a PyTorch or .npz file', [0x50, 0x4b, 0x03, 0x04]],
  ['a pickle, such as an old PyTorch file', [0x80, 0x02]],
  ['an HDF5 file', [0x89, 0x48, 0x44, 0x46]],
  ['JSON text', [0x7b]],
  ['a page of HTML or XML', [0x3c]],
  ['an ONNX file', [0x08]],
  ['a git-lfs pointer in place of the file', [...new TextEncoder().encode('version https://git-lfs')]],
];

/** Tells the format by the content. @throws ScalepointError `UNKNOWN_FORMAT` */
async function detectFormat(source: ByteSource): Promise<ModelFormat> {
  const start = await source.read(0, Math.min(32, source.size));
  const startsWith = (bytes: readonly number[]) => bytes.every((byte, i) => start[i] === byte);
  if (startsWith(npyMagic)) return 'npy';
  // Of safetensors only this byte is fixed; the reader checks the rest and says what is wrong.
  if (start[8] === 0x7b) return 'safetensors';
  const stranger = strangers.find(([, bytes]) => startsWith(bytes))?.[0];
  const hex = [...start.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  let seen = `the file begins with ${hex}`;
  if (source.size === 0) seen = 'the file is empty';
  if (stranger !== undefined) seen = `the file looks like ${stranger} (it begins with ${hex})`;
  throw new ScalepointError('UNKNOWN_FORMAT', `${seen}; supported are safetensors and .npy`);
}

async function readModel(source: ByteSource): Promise<Model> {
  const format = await detectFormat(source);
  if (format === 'npy') {
    const { tensor, verbatim, read } = await openNpy(source);
    const tensors = [tensor];
    const metadata = Object.create(null) as Record<string, string>;
    return { format, bytes: source.size, tensors, metadata, verbatim, read: (_, begin, end) => read(begin, end) };
  }
  const { tensors, metadata } = await readSafetensors(source);
  return {
    format,
    bytes: source.size,
    tensors,
    metadata,
    verbatim: true,
    read: ({ byteOffset }, begin, end) => source.read(byteOffset + begin, byteOffset + end),
  };
}

/** Opens a file, hands the model to `use`, closes the file. */
async function withModel<T>(file: FileInput, use: (model: Model) => Promise<T>): Promise<T> {
  const source = await openSource(file);
  try {
    return await use(await readModel(source));
  } finally {
    await source.close();
  }
}

/**
 * What is in a model file. Reads its header only; the format is told by the content, not by the name.
 * @example const { tensors } = await inspectModel('model.safetensors');
 * @throws ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE`, `UNSUPPORTED_DTYPE` or `IO`; TypeError if `file` is nothing to read
 */
export function inspectModel(file: FileInput): Promise<ModelInfo> {
  return withModel(file, async ({ format, bytes, tensors, metadata }) => ({ format, bytes, tensors, metadata }));
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
  readonly dtype: TensorDType;
  readonly shape: readonly number[];
  /**
   * F32 and F64 as themselves, integers as themselves, F16 and BF16 as the Uint16Array of their bits, C64 as pairs in a Float32Array,
   * everything else as bytes.
   */
  readonly data: TensorData;
}

function typedArray(dtype: TensorDType, buffer: ArrayBuffer): TensorData {
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
export function readTensor(file: FileInput, name: string): Promise<Tensor> {
  return withModel(file, async (model) => {
    const tensor = model.tensors.find((candidate) => candidate.name === name);
    if (tensor === undefined) {
      throw new ScalepointError('NOT_FOUND', `the file has no tensor ${quoted(name)}`, { tensor: name });
    }
    const { dtype, shape } = tensor;
    const bytes = await model.read(tensor, 0, tensor.bytes);
    // Bytes in memory are read as views of it, at any alignment; from elsewhere they come in a buffer of their own.
    const own = file instanceof Uint8Array || file instanceof ArrayBuffer ? bytes.slice() : bytes;
    return { name, dtype, shape, data: typedArray(dtype, own.buffer) };
  });
}

// ------------------------------------------------------------------------------------------------------------------------ plan

/** What to do with the tensors whose names match. The first rule that matches decides. */
export type Rule =
  | { readonly match: RegExp; readonly keep: true; readonly to?: undefined }
  | { readonly match: RegExp; readonly to: 'int8'; readonly keep?: false | undefined };

/** What becomes of a tensor. */
interface PlannedTensor {
  readonly tensor: TensorInfo;
  /** Why it is copied; undefined if it is quantized. */
  readonly kept?: string;
}

/** Suffix of the tensor that holds the scales, as in compressed-tensors. */
const scaleSuffix = '_scale';

function scaleShape(shape: readonly number[]): number[] {
  return shape.map((dimension, axis) => (axis === 0 ? dimension : 1));
}

/**
 * Kinds of tensors that are kept by default, by the parts of their names between dots and slashes. A parameter belongs to the module
 * that it stands in directly: `norm1.linear.weight` is a linear layer inside of a norm, and no norm.
 */
const keptKinds: readonly [
  reason: string,
  matches: (owner: string, last: string, parts: readonly string[]) => boolean,
][] = [
  ['bias', (owner, last) => /(^|_)bias(_|$)/i.test(last) || /(^|_)bias$/i.test(owner)],
  ['lm_head', (_owner, _last, parts) => parts.some((part) => /^lm_head$/i.test(part))],
  [
    'embedding',
    (owner, last) => [owner, last].some((part) => /embed|embd|(^|_)emb$|^w[tp]e$|^shared$|_tokens?$/i.test(part)),
  ],
  ['norm', (owner, last) => [owner, last].some((part) => /norm(_?\d+)?$|^norm_|^(ln|bn|gn)(\d*|_\w+)$/i.test(part))],
  // These two belong to weights that are quantized already.
  ['scale', (_owner, last) => /_(scales?|scale_inv|absmax)$/i.test(last)],
  ['zero point', (_owner, last) => /_(zero_points?|q?zeros)$/i.test(last)],
];

/** Why a tensor is kept by default for its name, if so. */
function keptByName(name: string): string | undefined {
  const parts = name.split(/[./]/);
  const last = parts.at(-1) ?? '';
  const owner = parts.at(-2) ?? '';
  return keptKinds.find(([, matches]) => matches(owner, last, parts))?.[0];
}

/** Why a tensor is kept; undefined if it is to be quantized. */
function reasonToKeep(
  tensor: TensorInfo,
  model: Model,
  names: ReadonlySet<string>,
  rules: readonly Rule[],
): string | undefined {
  const { name, dtype, shape, bytes } = tensor;
  // search() minds no lastIndex, so that expressions with a g or y flag match alike every time.
  const rule = rules.find(({ match }) => name.search(match) >= 0);
  if (rule?.keep) return 'rule';
  const asked = rule !== undefined;

  // What cannot be done, rule or not.
  if (!isFloat(dtype)) return 'not a float';
  if (shape.length === 0) return 'scalar';
  if (bytes === 0) return 'empty';
  if (shape.length === 1) return (model.format === 'safetensors' ? keptByName(name) : undefined) ?? '1-D';
  if (names.has(name + scaleSuffix)) return 'scale name taken';
  if (asked) return undefined;

  // A .npy file is quantized because somebody wants that array quantized, whatever it is called; float64 is what numpy makes unasked.
  if (model.format !== 'npy') {
    const reason = keptByName(name);
    if (reason !== undefined) return reason;
    if (dtype === 'F64') return 'F64';
  }
  const after = (elementCount(shape) ?? 0) + (shape[0] ?? 0) * floatBytes[scaleDType(dtype)];
  return after < bytes ? undefined : 'not smaller';
}

function planTensors(model: Model, rules: readonly Rule[]): PlannedTensor[] {
  const names = new Set(model.tensors.map(({ name }) => name));
  return model.tensors.map((tensor) => {
    const kept = reasonToKeep(tensor, model, names, rules);
    return kept === undefined ? { tensor } : { tensor, kept };
  });
}

// -------------------------------------------------------------------------------------------------------------------- quantize

/** How far a conversion is. */
export interface Progress {
  readonly phase: 'quantize' | 'copy';
  /** Name of the tensor. */
  readonly tensor: string;
  /** Which tensor, from 0. */
  readonly index: number;
  /** How many tensors there are. */
  readonly count: number;
  /** Bytes of tensors read so far, and in all. */
  readonly bytesDone: number;
  readonly bytesTotal: number;
}

/** Options of `quantizeModel`. */
export interface QuantizeModelOptions {
  /** int8: symmetric, one scale for each index of axis 0. */
  readonly to: 'int8';
  /**
   * Exceptions from what is quantized by default; the first match wins.
   * @defaultValue none
   */
  readonly rules?: readonly Rule[];
  /**
   * Where the result goes (Node): a path. It appears whole or not at all.
   * @defaultValue memory, see `result.bytes()` and `result.blob()`
   */
  readonly output?: string | URL;
  /**
   * Whether `output` may replace a file.
   * @defaultValue false
   */
  readonly overwrite?: boolean;
  /**
   * The lowest SQNR in decibels that a quantized tensor may have; below it nothing is written.
   * @defaultValue none
   */
  readonly minSqnrDb?: number;
  /** Called when a tensor is done, and in between at most every 50 ms. */
  readonly onProgress?: (progress: Progress) => void;
  /** Stops the conversion; the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** What became of a tensor. */
export interface TensorReport {
  readonly name: string;
  readonly shape: readonly number[];
  readonly from: TensorDType;
  readonly to: TensorDType;
  readonly bytesBefore: number;
  /** With the scales. */
  readonly bytesAfter: number;
  /** Of quantized tensors: the original against codes times scale. */
  readonly error?: ErrorMeasures;
  /** Of kept tensors: why, in a few words such as `bias`, `1-D` or `rule`. */
  readonly kept?: string;
}

/** What became of a model. */
export interface ModelReport {
  /** In the order of the file that was read. */
  readonly tensors: readonly TensorReport[];
  readonly totals: {
    /** Number of tensors that were quantized, and that were kept. */
    readonly quantized: number;
    readonly kept: number;
    /** Sizes of the files, headers included. */
    readonly bytesBefore: number;
    readonly bytesAfter: number;
    /** bytesBefore / bytesAfter. */
    readonly ratio: number;
    /** Bits of the result's tensors, scales included, for each element of the original ones. */
    readonly bitsPerWeight: number;
  };
}

/** The result of `quantizeModel`. */
export interface QuantizeModelResult {
  readonly report: ModelReport;
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

const optionNames = new Set(['to', 'rules', 'output', 'overwrite', 'minSqnrDb', 'onProgress', 'signal']);

/** Options come from JavaScript as well, so they are checked as if they had no types. */
function checkOptions(options: QuantizeModelOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw new TypeError(`options: expected an object such as { to: 'int8' }, got ${show(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!optionNames.has(name))
      throw new TypeError(`${name}: unknown option; there are ${[...optionNames].join(', ')}`);
  }
  const { to, rules = [], output, minSqnrDb, onProgress, signal } = options;
  if (to !== 'int8') throw new RangeError(`to: expected 'int8', got ${show(to)}`);
  if (!Array.isArray(rules)) throw new TypeError(`rules: expected an array, got ${show(rules)}`);
  for (const [i, rule] of rules.entries()) {
    const { match, keep, to: target } = (rule ?? {}) as { match?: unknown; keep?: unknown; to?: unknown };
    if (!(match instanceof RegExp)) throw new TypeError(`rules[${i}].match: expected a RegExp, got ${show(match)}`);
    if ((keep === true) === (target === 'int8') || (target !== undefined && target !== 'int8')) {
      throw new RangeError(
        `rules[${i}]: expected keep: true or to: 'int8', got keep: ${show(keep)}, to: ${show(target)}`,
      );
    }
  }
  if (output !== undefined && typeof output !== 'string' && !(output instanceof URL)) {
    throw new TypeError(`output: expected a path, got ${show(output)}`);
  }
  if (minSqnrDb !== undefined && (typeof minSqnrDb !== 'number' || Number.isNaN(minSqnrDb))) {
    throw new TypeError(`minSqnrDb: expected a number, got ${show(minSqnrDb)}`);
  }
  if (onProgress !== undefined && typeof onProgress !== 'function') {
    throw new TypeError(`onProgress: expected a function, got ${show(onProgress)}`);
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TypeError(`signal: expected an AbortSignal, got ${show(signal)}`);
  }
}

/** Calls onProgress: always at the end of a tensor, otherwise only when 50 ms have passed. */
function progressReporter(plan: readonly PlannedTensor[], onProgress?: (progress: Progress) => void) {
  const bytesTotal = plan.reduce((sum, { tensor }) => sum + tensor.bytes, 0);
  let before = 0;
  let last = performance.now();
  return (index: number, bytes: number) => {
    const { tensor, kept } = plan[index] as PlannedTensor;
    const end = bytes === tensor.bytes;
    const now = performance.now();
    if (end || now - last >= 50) {
      last = now;
      const phase = kept === undefined ? 'quantize' : 'copy';
      const count = plan.length;
      onProgress?.({ phase, tensor: tensor.name, index, count, bytesDone: before + bytes, bytesTotal });
    }
    if (end) before += bytes;
  };
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

/**
 * Makes a model smaller: weights of two or more dimensions (F32, F16, BF16) become int8 with one scale for each output channel
 * (axis 0, symmetric), named as compressed-tensors does: `X.weight` I8 and `X.weight_scale` [out, 1, ...] in the weight's own dtype.
 * The codes are made with the scale as stored, so that `code * scale` restores every value within half a scale.
 *
 * By default embeddings, norms, biases, 1-D tensors and lm_head are kept, and whatever would not become smaller; `rules` change
 * that. Kept tensors are copied bit by bit and appear in the report with the reason. A .npy file becomes a safetensors file with one
 * weight, also from float64 (rounded to float32).
 *
 * Memory: pieces of about 4 MiB whatever the size of the model, plus the result unless there is an `output`.
 * @example await quantizeModel('model.safetensors', { to: 'int8', output: 'model.int8.safetensors' });
 * @throws TypeError or RangeError naming the option. ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE`, `UNSUPPORTED_DTYPE`, `IO`, `EXISTS`;
 *   `NON_FINITE` if a weight holds NaN or an infinity; `QUALITY` (a QualityError). The signal's reason if it was aborted. After an
 *   error there is no output, nor a part of one.
 */
export async function quantizeModel(file: FileInput, options: QuantizeModelOptions): Promise<QuantizeModelResult> {
  checkOptions(options);
  const { rules = [], output, overwrite = false, minSqnrDb, onProgress, signal } = options;
  signal?.throwIfAborted();
  return withModel(file, async (model) => {
    const plan = planTensors(model, rules);
    const layout = layoutSafetensors(
      plan.flatMap(({ tensor, kept }) => {
        const { name, dtype, shape } = tensor;
        if (kept !== undefined || !isFloat(dtype)) return [{ name, dtype, shape }];
        return [
          { name, dtype: 'I8' as const, shape },
          { name: name + scaleSuffix, dtype: scaleDType(dtype), shape: scaleShape(shape) },
        ];
      }),
      model.metadata,
    );
    const memory = output === undefined ? memorySink(layout.size) : undefined;
    const sink: ByteSink = memory ?? (await fileSink(output as string | URL, layout.size, overwrite));
    try {
      await sink.write(0, layout.header);
      const tensors = await writeTensors(model, plan, layout.tensors, sink, signal, onProgress);
      const report = summarize(tensors, model.bytes, layout.size);
      if (minSqnrDb !== undefined) checkQuality(report, minSqnrDb);
      signal?.throwIfAborted();
      await sink.finish();
      const bytes = async () => {
        if (memory === undefined) throw new TypeError('the result went to output, its bytes are there');
        return memory.bytes;
      };
      return { report, bytes, blob: async () => new Blob([await bytes()]) };
    } finally {
      await sink.discard();
    }
  });
}

/** Writes every tensor of the plan to its place in the layout. */
async function writeTensors(
  model: Model,
  plan: readonly PlannedTensor[],
  placed: readonly TensorInfo[],
  sink: ByteSink,
  signal?: AbortSignal,
  onProgress?: (progress: Progress) => void,
): Promise<TensorReport[]> {
  const places = new Map(placed.map((tensor) => [tensor.name, tensor]));
  const place = (name: string) => (places.get(name) as TensorInfo).byteOffset;
  const progress = progressReporter(plan, onProgress);
  const needsCore = plan.some(({ kept }) => kept === undefined);
  // Loaded here and not at the top, so that looking into a file fetches no wasm.
  const sp = needsCore ? await import('./index.js').then(({ load }) => load()) : undefined;
  try {
    const reports: TensorReport[] = [];
    for (const [index, { tensor, kept }] of plan.entries()) {
      const { name, dtype, shape, bytes } = tensor;
      const step = (bytesDone: number) => {
        signal?.throwIfAborted();
        progress(index, bytesDone);
      };
      const common = { name, shape, from: dtype, bytesBefore: bytes };
      if (kept !== undefined || sp === undefined || !isFloat(dtype)) {
        for (let begin = 0; begin < bytes; begin += pieceBytes) {
          const end = Math.min(begin + pieceBytes, bytes);
          await sink.write(place(name) + begin, await model.read(tensor, begin, end));
          step(end);
        }
        if (bytes === 0) step(0);
        reports.push({ ...common, to: dtype, bytesAfter: bytes, kept: kept ?? '' });
        continue;
      }
      const error = await convertTensor(sp, {
        name,
        dtype,
        shape,
        byteOffset: model.verbatim ? tensor.byteOffset : undefined,
        pieceBytes,
        read: (begin, end) => model.read(tensor, begin, end),
        writeCodes: (offset, codes) => sink.write(place(name) + offset, codes),
        writeScale: (offset, scale) => sink.write(place(name + scaleSuffix) + offset, scale),
        progress: step,
      });
      const bytesAfter = (tensorBytes('I8', shape) ?? 0) + (tensorBytes(scaleDType(dtype), scaleShape(shape)) ?? 0);
      reports.push({ ...common, to: 'I8', bytesAfter, error });
    }
    return reports;
  } finally {
    sp?.dispose();
  }
}

function summarize(tensors: readonly TensorReport[], bytesBefore: number, bytesAfter: number): ModelReport {
  const quantized = tensors.filter(({ kept }) => kept === undefined).length;
  const elements = tensors.reduce((sum, { shape }) => sum + (elementCount(shape) ?? 0), 0);
  const payload = tensors.reduce((sum, tensor) => sum + tensor.bytesAfter, 0);
  return {
    tensors,
    totals: {
      quantized,
      kept: tensors.length - quantized,
      bytesBefore,
      bytesAfter,
      ratio: bytesBefore / bytesAfter,
      bitsPerWeight: elements === 0 ? 0 : (8 * payload) / elements,
    },
  };
}
