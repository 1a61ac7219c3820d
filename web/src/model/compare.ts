/** Compares two models: pairs their tensors by name, decodes both, and adds up the errors. */

import type { Rectangle } from '../codecs/codec.js';
import { elementsOf, rectanglesOf } from '../codecs/elements.js';
import { codecOf } from '../codecs/registry.js';
import type { Converted, Converter } from '../conversions/converter.js';
import { ScalepointError } from '../core/errors.js';
import { addSums, type ErrorMeasures, measuresOf, normOf, standsForInfinity, sumCount } from '../core/measure.js';
import { waitingFor } from '../core/waiting.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import type { LogicalTensor } from '../formats/format.js';
import type { Progress } from '../pipeline/progress.js';
import { reportTimes } from '../pipeline/progress.js';
import { pieceOf } from '../pipeline/rectangle-bytes.js';
import { mainPart } from '../pipeline/tiles.js';
import { BatchLimit, type BatchResult, type CompareTask, TaskError } from '../runner/task.js';
import type { TileRunner } from '../runner/worker-pool.js';
import { makersFor } from './maker.js';
import type { Opened } from './open.js';

/** A tensor that both models have. */
export interface ComparedTensor {
  /** Its name in both models. */
  readonly name: string;
  /** The shape that both have. */
  readonly shape: readonly number[];
  /** Types in a and in b; of packed codes I4 or I8. */
  readonly a: string;
  /** Its type in the second model. */
  readonly b: string;
  /** How far b is from a. */
  readonly error: ErrorMeasures;
  /** Elements that are NaN or infinite in one of them, and another value in the other. `error` leaves them out. */
  readonly mismatched: number;
}

/** Why a tensor of both models was not compared. Programs decide by the kind, never by the text. */
export type SkippedReason =
  /** It has another shape in the second model. */
  | {
      readonly kind: 'shapes';
      /** Its shape in the first model. */
      readonly a: readonly number[];
      /** Its shape in the second model. */
      readonly b: readonly number[];
      /** The reason in a few words. */
      readonly text: string;
    }
  /** One of them is of a type that does not stand for floats, or is not known. */
  | {
      readonly kind: 'nonFloat';
      /** That type. */
      readonly dtype: string;
      /** The reason in a few words. */
      readonly text: string;
    };

/** A tensor of both models that was not compared. */
export interface SkippedTensor {
  /** Its name in both models. */
  readonly name: string;
  /** Why it cannot be compared, and the same in words. */
  readonly reason: SkippedReason;
  /** Whether the two are of different shapes or types. Else both are of the same type, which is no float type that can be read. */
  readonly differs: boolean;
}

/** The result of comparing two models. */
export interface CompareReport {
  /** In the order of a. */
  readonly tensors: readonly ComparedTensor[];
  /** Over all of them, but for single numbers beyond float16: those of masks stand for infinity. */
  readonly total: ErrorMeasures;
  /** Tensors of both that were not compared, with the reason. */
  readonly skipped: readonly SkippedTensor[];
  /** Names of tensors that only one of them has. */
  readonly onlyInA: readonly string[];
  /** Names that only the second model has. */
  readonly onlyInB: readonly string[];
}

// ------------------------------------------------------------------------------------------------------------------------ pairing

type Pair = readonly [a: LogicalTensor, b: LogicalTensor];

/** A matrix that one side may have as its transpose, the way the other side has it. */
function alike(tensor: LogicalTensor, other: LogicalTensor): LogicalTensor {
  const { turned } = tensor;
  if (turned === undefined || other.turned !== undefined || other.shape.join() !== turned.shape.join()) return tensor;
  // Of a square, only the readers tell.
  return other.isTurned || turned.shape.join() !== tensor.shape.join() ? { ...tensor, ...turned } : tensor;
}

/** The reason not to compare two tensors of one name; undefined if they can be compared. */
function obstacle(pair: Pair): Omit<SkippedTensor, 'name'> | undefined {
  const [a, b] = pair;
  if (a.shape.join() !== b.shape.join()) {
    const text = `shapes ${a.shape.join('×')} and ${b.shape.join('×')}`;
    return { reason: { kind: 'shapes', a: a.shape, b: b.shape, text }, differs: true };
  }
  const unreadable = pair.find(({ form }) => codecOf(form).decode === undefined);
  if (unreadable === undefined) return undefined;
  const { type: dtype } = unreadable;
  const text = `${dtype} is no float type that can be read`;
  return { reason: { kind: 'nonFloat', dtype, text }, differs: a.type !== b.type };
}

/** Undefined if a model cannot be converted, for whatever reason. Its tensors can be compared by their own names. */
async function convertedIfPossible(converter: Converter, { model, beside }: Opened): Promise<Converted | undefined> {
  try {
    return await converter.convert(model, beside, { missingBytes: 'keep' });
  } catch (error) {
    if (error instanceof ScalepointError && error.code !== 'IO') return undefined;
    throw error;
  }
}

/** The tensors of a model by name; as the other one's format has them, if it is one that can be converted to that. */
async function tensorsOf(opened: Opened, { format: other }: Opened): Promise<Map<string, LogicalTensor>> {
  const { format, model } = opened;
  const maker = makersFor(format).find((known) => known.converter?.result === other.name);
  const converted = maker?.converter && (await convertedIfPossible(maker.converter, opened));
  const tensors = converted?.tensors ?? (await format.tensors(model));
  return new Map(tensors.map((tensor) => [tensor.name, tensor]));
}

/** What is to be compared. */
interface Pairing extends Pick<CompareReport, 'skipped' | 'onlyInA' | 'onlyInB'> {
  readonly pairs: readonly Pair[];
}

async function pairsOf(a: Opened, b: Opened): Promise<Pairing> {
  const [inA, inB] = [await tensorsOf(a, b), await tensorsOf(b, a)];
  const pairs: Pair[] = [];
  const skipped: SkippedTensor[] = [];
  for (const [name, tensor] of inA) {
    const other = inB.get(name);
    if (other === undefined) continue;
    const pair: Pair = [alike(tensor, other), alike(other, tensor)];
    const reason = obstacle(pair);
    if (reason === undefined) pairs.push(pair);
    else skipped.push({ name, ...reason });
  }
  return {
    pairs,
    skipped,
    onlyInA: [...inA.keys()].filter((name) => !inB.has(name)),
    onlyInB: [...inB.keys()].filter((name) => !inA.has(name)),
  };
}

/** Cuts a pair into rectangles that both sides can be cut at. */
function cutsOf(pair: Pair): Iterable<Rectangle> {
  const { shape } = pair[0];
  return rectanglesOf(
    elementsOf(shape),
    pair.map(({ form }) => codecOf(form).grid(shape, form)),
  );
}

// ---------------------------------------------------------------------------------------------------------------------- comparing

/** Options of a comparison. */
export interface CompareOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: Progress) => void;
}

/** An error that says which tensor it is about. */
function named(error: unknown, name: string): unknown {
  if (!(error instanceof ScalepointError) || error.tensor !== undefined) return error;
  return new ScalepointError(error.code, `tensor ${quoted(name)}: ${error.message}`, { tensor: name, cause: error });
}

/** Calls onProgress at the end of every tensor, and in between when 50 ms have passed. */
function progressReporter(pairs: readonly Pair[], onProgress?: (progress: Progress) => void) {
  const count = pairs.length;
  const bytesTotal = pairs.reduce((sum, [a]) => sum + mainPart(a).bytes, 0);
  let before = 0;
  const isTime = reportTimes();
  return (index: number, elementsDone: number) => {
    const [a] = pairs[index] as Pair;
    const n = elementsOf(a.shape);
    const isEnd = elementsDone === n;
    if (isTime(isEnd)) {
      const { bytes } = mainPart(a);
      const bytesDone = before + (n === 0 ? 0 : Math.floor((bytes * elementsDone) / n));
      onProgress?.({ phase: 'quantize', tensor: a.name, index, count, bytesDone, bytesTotal });
    }
    if (isEnd) before += mainPart(a).bytes;
  };
}

/** A task, and which pair it is about. */
interface PairTask {
  readonly index: number;
  readonly task: CompareTask;
}

/** The tasks of all pairs, in batches. `firstFileOfB` counts the files of the second model on. */
function* batchesOf(pairs: readonly Pair[], firstFileOfB: number): Generator<PairTask[]> {
  let waiting: PairTask[] = [];
  const limit = new BatchLimit();
  for (const [index, pair] of pairs.entries()) {
    if (elementsOf(pair[0].shape) === 0) continue;
    for (const rectangle of cutsOf(pair)) {
      if (!limit.admits(rectangle)) {
        yield waiting;
        waiting = [];
        limit.clear();
        limit.admits(rectangle);
      }
      const { rows, columns } = rectangle;
      const pieces = [pieceOf(pair[0], rectangle), pieceOf(pair[1], rectangle, firstFileOfB)] as const;
      waiting.push({ index, task: { kind: 'compare', rows, columns, pieces } });
    }
  }
  if (waiting.length > 0) yield waiting;
}

/** Adds up the errors of all pairs, and tells how many elements of which are done. */
class Sums {
  readonly each: readonly Float64Array[];
  readonly mismatched: Float64Array;
  readonly #pairs: readonly Pair[];
  readonly #report: (index: number, elementsDone: number) => void;
  #index = 0;
  #elementsDone = 0;

  constructor(pairs: readonly Pair[], report: (index: number, elementsDone: number) => void) {
    this.each = pairs.map(() => new Float64Array(sumCount));
    this.mismatched = new Float64Array(pairs.length);
    this.#pairs = pairs;
    this.#report = report;
  }

  /** Adds what came of a batch. */
  add(tasks: readonly PairTask[], { sums, answers }: BatchResult): void {
    for (const { task, mismatched = 0 } of answers) {
      const { index } = tasks[task] as PairTask;
      this.mismatched[index] = (this.mismatched[index] as number) + mismatched;
    }
    for (const [i, { index, task }] of tasks.entries()) {
      this.skipTo(index);
      addSums(this.each[index] as Float64Array, sums, 0, i * sumCount);
      this.#elementsDone += task.rows * task.columns;
      this.#report(index, this.#elementsDone);
    }
  }

  /** Goes on to a pair. Those in between are empty. */
  skipTo(index: number): void {
    for (; this.#index < index; this.#index++) {
      if (elementsOf((this.#pairs[this.#index] as Pair)[0].shape) === 0) this.#report(this.#index, 0);
      this.#elementsDone = 0;
    }
  }
}

/** Runs the tasks of all pairs. */
async function sumsOf(
  pairs: readonly Pair[],
  firstFileOfB: number,
  runner: TileRunner,
  signal: AbortSignal | undefined,
  sums: Sums,
): Promise<void> {
  const { soon, end } = waitingFor(signal);
  const waiting: { readonly tasks: readonly PairTask[]; readonly result: Promise<BatchResult> }[] = [];
  const takeOldest = async () => {
    const { tasks, result } = waiting.shift() as (typeof waiting)[number];
    try {
      sums.add(tasks, await soon(result));
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      throw named(error.cause, (pairs[tasks[error.task]?.index ?? 0] as Pair)[0].name);
    }
    signal?.throwIfAborted();
  };
  try {
    signal?.throwIfAborted();
    for (const tasks of batchesOf(pairs, firstFileOfB)) {
      const result = runner.run({ tasks: tasks.map(({ task }) => task), outputBytes: 0 });
      result.catch(() => {});
      waiting.push({ tasks, result });
      if (waiting.length > runner.concurrency) await takeOldest();
    }
    while (waiting.length > 0) await takeOldest();
    sums.skipTo(pairs.length);
    signal?.throwIfAborted();
  } finally {
    end();
  }
}

/** Compares two open models. See `compareModels`. */
export async function compareOpen(
  a: Opened,
  b: Opened,
  { signal, onProgress }: CompareOptions,
  start: (elements: number, files: readonly ByteSource[]) => Promise<TileRunner>,
): Promise<CompareReport> {
  const { pairs, ...rest } = await pairsOf(a, b);
  const elements = pairs.reduce((sum, [{ shape }]) => sum + elementsOf(shape), 0);
  const files = [...a.model.files, ...b.model.files];
  const runner = await start(elements, files);
  try {
    const sums = new Sums(pairs, progressReporter(pairs, onProgress));
    await sumsOf(pairs, a.model.files.length, runner, signal, sums);
    for (const file of files) await file.verify();
    signal?.throwIfAborted();
    const counted = pairs.flatMap(([{ shape }], i) => {
      const [each, n] = [sums.each[i] as Float64Array, elementsOf(shape)];
      return standsForInfinity(n, normOf(each)) ? [] : [{ each, elements: n }];
    });
    const all = new Float64Array(sumCount);
    for (const { each } of counted) addSums(all, each);
    const total = measuresOf(
      all,
      counted.reduce((sum, one) => sum + one.elements, 0),
    );
    const tensors = pairs.map(([{ name, shape, type }, other], i): ComparedTensor => {
      return {
        name,
        shape,
        a: type,
        b: other.type,
        error: measuresOf(sums.each[i] as Float64Array, elementsOf(shape)),
        mismatched: sums.mismatched[i] as number,
      };
    });
    return { tensors, total, ...rest };
  } finally {
    runner.dispose();
  }
}
