/**
 * Carries out a plan: batches of tiles go to the runner, results to the sinks in the order of the steps, with no more of them under way
 * than the runner can use.
 */
import type { Problem, Rectangle } from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { codecOf } from '../codecs/registry.js';
import { ScalepointError } from '../core/errors.js';
import { addSums, type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { waitingFor } from '../core/waiting.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import type { ByteSink } from '../files/sinks.js';
import type { FilePlan, LogicalTensor, PlannedTensor } from '../formats/format.js';
import { type Batch, type BatchResult, problemIn, type RangeTask, type SetsTask, TaskError } from '../runner/task.js';
import type { TileRunner } from '../runner/worker-pool.js';
import { type BatchStep, batchesOf, type Tile, type Write } from './batches.js';
import { type Progress, reportTimes } from './progress.js';
import { elementAt, mainPart, stepsOf, storedBytes } from './tiles.js';

// ------------------------------------------------------------------------------------------------------------------------- errors

/** The index of an element, as in `[3, 0, 7]`. */
export function indexOf(element: number, shape: readonly number[]): string {
  const index: number[] = [];
  let rest = element;
  for (const dimension of [...shape].reverse()) {
    index.unshift(rest % dimension);
    rest = Math.floor(rest / dimension);
  }
  return `[${index.join(', ')}]`;
}

/** Where an element begins in its file; undefined if it has no bytes of its own. */
function offsetOf(source: LogicalTensor, element: number): number | undefined {
  const codec = codecOf(source.form);
  const { byteOffset, rearranged } = mainPart(source);
  if (codec.elementType === undefined || rearranged || source.gathered !== undefined) return undefined;
  const rectangle = { row: 0, rows: 1, column: element, columns: 1, width: elementsOf(source.shape) };
  const { offset, bytes } = codec.place(source.shape, source.form, 'data', rectangle);
  return Number.isInteger(bytes) ? byteOffset + offset : undefined;
}

/** What a problem of a tile means to whoever gave the file. */
export function problemError(
  { source, form }: PlannedTensor,
  { kind, value }: Problem,
  element: number,
): ScalepointError {
  const { name, shape, isRenamed, parts } = source;
  // Who looks for it knows the name in the file.
  const stored = isRenamed && parts.length === 1 ? ` (${quoted(mainPart(source).name)})` : '';
  const reason = {
    'non-finite': '',
    'beyond float32': ', too large for float32',
    overflow: codecOf(form).overflow?.(form) ?? ', too large',
  }[kind];
  const message = `tensor ${quoted(name)}${stored} holds ${value} at ${indexOf(element, shape)}${reason}; a rule can keep it`;
  const code = kind === 'overflow' ? 'OVERFLOW' : 'NON_FINITE';
  return new ScalepointError(code, message, { tensor: name, byteOffset: offsetOf(source, element) });
}

/** An error that says which tensor of which file it is about. */
function located(error: unknown, { source }: PlannedTensor, files: readonly ByteSource[]): unknown {
  if (!(error instanceof ScalepointError) || error.tensor !== undefined) return error;
  const label = files[mainPart(source).file]?.name;
  const place = `tensor ${quoted(source.name)}${label === undefined ? '' : ` of ${quoted(label)}`}`;
  return new ScalepointError(error.code, `${place}: ${error.message}`, {
    tensor: source.name,
    byteOffset: error.byteOffset,
    path: error.path,
    cause: error.cause ?? error,
  });
}

// ----------------------------------------------------------------------------------------------------------------------- progress

/** Calls onProgress at the end of every tensor, and in between when 50 ms have passed. Tells whether it was the end. */
function progressReporter({ tensors }: FilePlan, onProgress?: (progress: Progress) => void) {
  const rest = Float64Array.from(tensors, ({ source }) => storedBytes(source));
  const bytesTotal = rest.reduce((sum, bytes) => sum + bytes, 0);
  let bytesDone = 0;
  const isTime = reportTimes();
  return (index: number, bytes: number) => {
    bytesDone += bytes;
    const left = (rest[index] as number) - bytes;
    rest[index] = left;
    if (!isTime(left <= 0)) return false;
    if (onProgress === undefined) return left === 0;
    const tensor = tensors[index] as PlannedTensor;
    onProgress({
      phase: tensor.kept === undefined ? 'quantize' : 'copy',
      tensor: tensor.source.name,
      index,
      count: tensors.length,
      bytesDone,
      bytesTotal,
    });
    return left === 0;
  };
}

// ----------------------------------------------------------------------------------------------------------------------- the work

/** What to carry out, and with what. */
export interface Work {
  readonly plan: FilePlan;
  readonly files: readonly ByteSource[];
  /** One for each file of the plan. */
  readonly sinks: readonly ByteSink[];
  readonly runner: TileRunner;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/** A batch whose result is on its way. */
interface Waiting {
  /** Without its tasks, which would have to be kept for longer than they are needed. */
  readonly step: Omit<BatchStep, 'batch'>;
  readonly result: Promise<BatchResult>;
  /** Whether it counts as one of those that the runner has at a time. A few known bytes do not. */
  readonly counts: boolean;
}

/** Known bytes from which on they count as a batch, since they take memory until they are written. */
const manyBytes = 1 << 14;

/** A tile that a batch is about, for errors. */
type Subject = Pick<Tile, 'tensor' | 'rectangle'>;

/** Milliseconds after which batches of several tensors look again whether files were changed. */
const betweenChecks = 10;

/** What comes of no tasks. */
const nothing = { done: 0, measured: new Uint8Array(0), sums: new Float64Array(0), answers: [] };

/** Tensors whose error sums are in one array. */
const sumsAtOnce = 256;

/** The error sums of tensors. In few arrays: each array by itself takes several times as much memory as what it holds. */
class SumsOfTensors {
  readonly #pages: (Float64Array | undefined)[];
  readonly #found: Uint8Array;

  constructor(count: number) {
    this.#pages = new Array(Math.ceil(count / sumsAtOnce));
    this.#found = new Uint8Array(count);
  }

  #pageOf(index: number): Float64Array {
    const number = Math.floor(index / sumsAtOnce);
    const page = this.#pages[number] ?? new Float64Array(sumsAtOnce * sumCount);
    this.#pages[number] = page;
    return page;
  }

  /** Adds the sums that begin in an array of many at `from`. */
  add(index: number, more: Float64Array, from: number): void {
    addSums(this.#pageOf(index), more, (index % sumsAtOnce) * sumCount, from);
    this.#found[index] = 1;
  }

  /** Undefined if there are none. */
  of(index: number): Float64Array | undefined {
    if (this.#found[index] !== 1) return undefined;
    const begin = (index % sumsAtOnce) * sumCount;
    return this.#pageOf(index).subarray(begin, begin + sumCount);
  }
}

/** Numbers of the tensors that no tile is about: empty ones, and those that are copied together with what is around them. */
function* unread({ tensors, files }: FilePlan): Generator<number, void> {
  const placed = new Uint8Array(tensors.length);
  for (const { segments } of files) for (const part of segments) if ('tensor' in part) placed[part.tensor] = 1;
  for (const [i, { source }] of tensors.entries()) if (placed[i] === 0 || storedBytes(source) === 0) yield i;
}

/** Carries out one plan. */
class Execution {
  readonly #work: Work;
  readonly #soon: <T>(promise: Promise<T>) => Promise<T>;
  readonly #report: (index: number, bytes: number) => boolean;
  readonly #sums: SumsOfTensors;
  /** When it was last looked whether files are still those that were opened. */
  #verified = 0;
  /** Where each file that takes no positions ends so far. */
  readonly #ends = new Map<ByteSink, number>();

  constructor(work: Work, soon: <T>(promise: Promise<T>) => Promise<T>) {
    this.#work = work;
    this.#soon = soon;
    this.#report = progressReporter(work.plan, work.onProgress);
    this.#sums = new SumsOfTensors(work.plan.tensors.length);
  }

  /** Writes everything. */
  async run(): Promise<void> {
    const { plan, files, sinks, runner, signal } = this.#work;
    const sequential = sinks.some(({ positional }) => !positional);
    const waiting: Waiting[] = [];
    let underWay = 0;
    const ask = async (tensor: PlannedTensor, task: RangeTask | SetsTask, rectangle: Rectangle) => {
      const { answers } = await this.#carryOut({ tasks: [task], outputBytes: 0 }, [{ tensor, rectangle }]);
      return answers[0] ?? {};
    };
    const isFar = (file: number) => files[file]?.isFar === true;
    for await (const step of batchesOf(stepsOf(plan, sequential, isFar), files, ask)) {
      const { tiles, known, writes, batch } = step;
      const counts = tiles.length > 0 || batch.outputBytes >= manyBytes;
      waiting.push({ step: { tiles, known, writes }, result: this.#start(step), counts });
      underWay += Number(counts);
      while (underWay > runner.concurrency) {
        const first = waiting.shift() as Waiting;
        await this.#finish(first);
        underWay -= Number(first.counts);
      }
      signal?.throwIfAborted();
    }
    for (const step of waiting) await this.#finish(step);
    for (const i of unread(plan)) this.#report(i, storedBytes((plan.tensors[i] as PlannedTensor).source));
    for (const file of files) await file.verify();
    signal?.throwIfAborted();
  }

  /** The measures of every tensor that was read as floats, in the order of the plan. */
  measures(): (ErrorMeasures | undefined)[] {
    return this.#work.plan.tensors.map((tensor, i) => {
      const elements = elementsOf(tensor.source.shape);
      const none = elements === 0 && tensor.kept === undefined ? new Float64Array(sumCount) : undefined;
      const sum = this.#sums.of(i) ?? none;
      return sum && measuresOf(sum, elements);
    });
  }

  /** Starts a batch. If it fails, that shows when its turn comes. */
  #start({ batch, tiles, known }: BatchStep): Promise<BatchResult> {
    if (tiles.length > 0) {
      const result = this.#carryOut(batch, tiles);
      result.catch(() => {});
      return result;
    }
    return Promise.resolve({ ...nothing, output: new ArrayBuffer(known.length === 1 ? 0 : batch.outputBytes) });
  }

  async #carryOut(batch: Batch, subjects: readonly Subject[]): Promise<BatchResult> {
    let result: BatchResult;
    try {
      result = await this.#soon(this.#work.runner.run(batch));
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      // An output that cannot be written is not the fault of the file that the tensor is in.
      throw located(error.cause, (subjects[error.task] as Subject).tensor, error.writing ? [] : this.#work.files);
    }
    const problem = problemIn(result);
    if (problem === undefined) return result;
    const { tensor, rectangle } = subjects[result.done - 1] as Subject;
    throw problemError(tensor, problem, elementAt(rectangle, problem.index));
  }

  /** Takes what came of a batch, and reports its tiles. */
  async #finish({ step, result }: Waiting): Promise<void> {
    const { output, written = false, measured, sums } = await result;
    if (!written) await this.#write(step, output);
    for (const [i, { index }] of step.tiles.entries()) {
      if (measured[i] === 1) this.#sums.add(index, sums, i * sumCount);
    }
    await this.#done(step);
  }

  /** Writes the output of a batch, and what was known before. */
  async #write(step: Waiting['step'], output: ArrayBuffer): Promise<void> {
    const [first] = step.known;
    // Known bytes by themselves are written from where they are.
    const isAlone = step.tiles.length === 0 && step.known.length === 1;
    const bytes = isAlone && first !== undefined ? first.bytes : new Uint8Array(output);
    // What waits in memory may be known bytes of the same batch.
    for (const { into, position, offset, bytes: count } of step.writes) {
      into?.set(bytes.subarray(offset, offset + count), position);
    }
    if (!isAlone) for (const known of step.known) bytes.set(known.bytes, known.offset);
    for (const write of step.writes) if (write.into === undefined) await this.#writeBytes(write, bytes);
    const { sinks, runner } = this.#work;
    if (step.tiles.length > 0 && !sinks.some(({ keeps }) => keeps)) runner.recycle(output);
  }

  async #writeBytes({ file, position, offset, bytes, tile }: Write, output: Uint8Array<ArrayBuffer>): Promise<void> {
    const sink = this.#work.sinks[file] as ByteSink;
    const end = this.#ends.get(sink) ?? 0;
    if (!sink.positional && position !== end) throw new Error(`bytes for ${position} came when ${end} was the end`);
    this.#ends.set(sink, position + bytes);
    try {
      await this.#soon(sink.write(position, output.subarray(offset, offset + bytes)));
    } catch (error) {
      throw tile === undefined ? error : located(error, tile.tensor, []);
    }
  }

  /** Reports the tiles of a batch. If it ends a tensor, the tensor's file still has to be as it was opened. */
  async #done({ tiles }: Waiting['step']): Promise<void> {
    const ended = new Map<number, PlannedTensor>();
    for (const { tensor, index, sourceBytes } of tiles) {
      if (sourceBytes > 0 && this.#report(index, sourceBytes)) ended.set(mainPart(tensor.source).file, tensor);
    }
    // Batches of small tensors end every moment.
    const now = performance.now();
    if (tiles.length > 1 && now - this.#verified < betweenChecks) return;
    this.#verified = now;
    const { files } = this.#work;
    for (const [file, tensor] of ended) {
      try {
        await files[file]?.verify();
      } catch (error) {
        throw located(error, tensor, files);
      }
    }
  }
}

/**
 * Writes the result of a plan, all but the finish. Returns the measures of every tensor that was read as floats, in the order of the
 * plan. The runner is of no use after an error.
 * @throws ScalepointError, the signal's reason, or what onProgress throws
 */
export async function carryOut(work: Work): Promise<(ErrorMeasures | undefined)[]> {
  work.signal?.throwIfAborted();
  const { soon, end } = waitingFor(work.signal);
  const execution = new Execution(work, soon);
  try {
    await execution.run();
  } finally {
    end();
  }
  return execution.measures();
}

/** Floats that a plan converts: what tells whether workers pay. */
export function convertedElements({ tensors }: Pick<FilePlan, 'tensors'>): number {
  return tensors.reduce((sum, { kept, source }) => sum + (kept === undefined ? elementsOf(source.shape) : 0), 0);
}
