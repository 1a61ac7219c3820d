/** Holds two models against each other: pairs their tensors, reads what the bytes stand for, adds up the errors. */
import { type Grid, type Rectangle, tileElements } from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { codecOf } from '../codecs/registry.js';
import { ScalepointError } from '../core/errors.js';
import { addSums, type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import type { LogicalTensor } from '../formats/format.js';
import { interruptible, type Progress } from './engine.js';
import type { Opened } from './open.js';
import type { CompareTask, TileResult } from './tasks.js';
import { mainPart, pieceOf } from './tiles.js';
import type { TileRunner } from './workers.js';

/** A tensor that both models have. */
export interface ComparedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Types in a and in b; of packed codes I4 or I8. */
  readonly a: string;
  readonly b: string;
  /** How far b is from a. */
  readonly error: ErrorMeasures;
}

/** What two models have in common. */
export interface CompareReport {
  /** In the order of a. */
  readonly tensors: readonly ComparedTensor[];
  /** Over all of them. */
  readonly total: ErrorMeasures;
  /** Tensors of both that were not compared, with the reason. */
  readonly skipped: readonly { readonly name: string; readonly reason: string }[];
  /** Names of tensors that only one of them has. */
  readonly onlyInA: readonly string[];
  readonly onlyInB: readonly string[];
}

// ------------------------------------------------------------------------------------------------------------------------ pairing

type Pair = readonly [a: LogicalTensor, b: LogicalTensor];

/** Why two tensors of one name cannot be compared; undefined if they can. */
function obstacle(pair: Pair): string | undefined {
  const [a, b] = pair;
  if (a.shape.join() !== b.shape.join()) return `shapes ${a.shape.join('×')} and ${b.shape.join('×')}`;
  const unreadable = pair.find(({ form }) => codecOf(form).decode === undefined);
  return unreadable && `${unreadable.type} is no float type that can be read`;
}

async function tensorsOf({ format, model }: Opened): Promise<Map<string, LogicalTensor>> {
  return new Map((await format.tensors(model)).map((tensor) => [tensor.name, tensor]));
}

/** What is to be compared. */
interface Pairing extends Pick<CompareReport, 'skipped' | 'onlyInA' | 'onlyInB'> {
  readonly pairs: readonly Pair[];
}

async function pairsOf(a: Opened, b: Opened): Promise<Pairing> {
  const [inA, inB] = [await tensorsOf(a), await tensorsOf(b)];
  const pairs: Pair[] = [];
  const skipped: { name: string; reason: string }[] = [];
  for (const [name, tensor] of inA) {
    const other = inB.get(name);
    if (other === undefined) continue;
    const reason = obstacle([tensor, other]);
    if (reason === undefined) pairs.push([tensor, other]);
    else skipped.push({ name, reason });
  }
  return {
    pairs,
    skipped,
    onlyInA: [...inA.keys()].filter((name) => !inB.has(name)),
    onlyInB: [...inB.keys()].filter((name) => !inA.has(name)),
  };
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

/** The least common multiple of all of them. */
function multipleOf(numbers: readonly number[]): number {
  return numbers.reduce((multiple, n) => (multiple / greatestCommonDivisor(multiple, n)) * n, 1);
}

/** Elements over which the core blocks its sums. */
const errorBlock = 512;

/** Cuts a pair into rectangles that both sides can be cut at. */
function* rectanglesOf(pair: Pair): Generator<Rectangle> {
  const { shape } = pair[0];
  const grids = pair.map((tensor): Grid => codecOf(tensor.form).grid(shape, tensor.form));
  // Without rows of their own, neighbors are as good.
  const rows = grids.find((grid) => grid.rows !== undefined)?.rows ?? 1;
  const width = elementsOf(shape) / rows;
  const rowUnit = multipleOf(grids.map((grid) => grid.rowUnit));
  const rowsPerTile = Math.floor(tileElements / width / rowUnit) * rowUnit;
  if (rowsPerTile > 0) {
    for (let row = 0; row < rows; row += rowsPerTile) {
      yield { row, rows: Math.min(rowsPerTile, rows - row), column: 0, columns: width, width };
    }
    return;
  }
  const unit = multipleOf([errorBlock, ...grids.map(({ columnUnit }) => columnUnit)]);
  const segment = Math.max(1, Math.floor(tileElements / rowUnit / unit)) * unit;
  for (let row = 0; row < rows; row += rowUnit) {
    for (let column = 0; column < width; column += segment) {
      const columns = Math.min(segment, width - column);
      yield { row, rows: Math.min(rowUnit, rows - row), column, columns, width };
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------- comparing

/** What to compare with. */
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
  let last = performance.now();
  return (index: number, elementsDone: number) => {
    const [a] = pairs[index] as Pair;
    const n = elementsOf(a.shape);
    const isEnd = elementsDone === n;
    const now = performance.now();
    if (isEnd || now - last >= 50) {
      last = now;
      const { bytes } = mainPart(a);
      const bytesDone = before + (n === 0 ? 0 : Math.floor((bytes * elementsDone) / n));
      onProgress?.({ phase: 'quantize', tensor: a.name, index, count, bytesDone, bytesTotal });
    }
    if (isEnd) before += mainPart(a).bytes;
  };
}

/** Adds up the errors of one pair. `report` is told how many elements are done. */
async function sumsOf(
  pair: Pair,
  firstFileOfB: number,
  runner: TileRunner,
  soon: <T>(promise: Promise<T>) => Promise<T>,
  report: (elementsDone: number) => void,
): Promise<Float64Array> {
  const sums = new Float64Array(sumCount);
  const n = elementsOf(pair[0].shape);
  const waiting: { readonly elements: number; readonly result: Promise<TileResult> }[] = [];
  let elementsDone = 0;
  const takeOldest = async () => {
    const { elements, result } = waiting.shift() as (typeof waiting)[number];
    addSums(sums, (await soon(result)).sums as Float64Array);
    elementsDone += elements;
    if (elementsDone < n) report(elementsDone);
  };
  for (const rectangle of n === 0 ? [] : rectanglesOf(pair)) {
    const { rows, columns } = rectangle;
    const pieces = [pieceOf(pair[0], rectangle), pieceOf(pair[1], rectangle, firstFileOfB)] as const;
    const result = runner.run({ kind: 'compare', rows, columns, pieces } satisfies CompareTask);
    result.catch(() => {});
    waiting.push({ elements: rows * columns, result });
    if (waiting.length > runner.concurrency) await takeOldest();
  }
  while (waiting.length > 0) await takeOldest();
  return sums;
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
  const { soon, end } = interruptible(signal);
  try {
    signal?.throwIfAborted();
    const tensors: ComparedTensor[] = [];
    const all = new Float64Array(sumCount);
    const report = progressReporter(pairs, onProgress);
    for (const [index, pair] of pairs.entries()) {
      const [{ name, shape, type }, other] = pair;
      const progress = (elementsDone: number) => report(index, elementsDone);
      const sums = await sumsOf(pair, a.model.files.length, runner, soon, progress).catch((error) => {
        throw named(error, name);
      });
      addSums(all, sums);
      tensors.push({ name, shape, a: type, b: other.type, error: measuresOf(sums, elementsOf(shape)) });
      progress(elementsOf(shape));
      signal?.throwIfAborted();
    }
    for (const file of files) await file.verify();
    signal?.throwIfAborted();
    return { tensors, total: measuresOf(all, elements), ...rest };
  } finally {
    end();
    runner.dispose();
  }
}
