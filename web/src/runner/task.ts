/**
 * What is done to tiles. Plain data: batches of tasks are sent to workers, and results come back. Small tiles travel together, so that a
 * model of very many small tensors takes few round trips.
 */
import { type Form, type Problem, type Range, type Role, type Runs, tileElements } from '../codecs/codec.js';

/** Bytes of a file that a task needs. */
export interface Input extends Omit<Runs, 'offset'> {
  /** Which part of the stored tensor they are. */
  readonly role: Role;
  /** Which file, from 0. */
  readonly file: number;
  /** Where the first run begins in the file. */
  readonly begin: number;
  /** If rows are moved when they are read. */
  readonly moved?: MovedRows | undefined;
}

/**
 * Rows that are moved: of every `head` rows, row half·head/2 + i becomes row 2i + half. The bytes that are asked for begin `from` bytes
 * behind the first row after that, and `begin` is where the first row stands in the file.
 */
export interface MovedRows {
  readonly head: number;
  readonly rowBytes: number;
  readonly from: number;
}

/** A rectangle of a stored tensor. Inputs of one role follow each other, and so do their bytes. */
export interface Piece {
  readonly form: Form;
  readonly inputs: readonly Input[];
}

/** A part to make, and where it goes in the memory of the batch. */
export interface Output {
  readonly role: Role;
  readonly offset: number;
  readonly bytes: number;
}

/** Bytes of inputs that one core keeps. With what a tile takes, a worker stays below what is promised of its memory. */
export const mostKept = 16 * 2 ** 20;

/** Asks whoever carries out a task to keep its input, one run of bytes, for the tasks that encode it. */
export interface Keep {
  readonly number: number;
  /** Bytes that are asked to be kept with these. */
  readonly total: number;
}

/** Names inputs that were kept: the rows of a task are those from `row` on of as many as the task had that kept them. */
export interface Kept {
  readonly number: number;
  readonly row: number;
  /** Whether nothing else will take some of them. */
  readonly isLast: boolean;
}

/** Makes parts out of a rectangle. */
export interface EncodeTask {
  readonly kind: 'encode';
  readonly rows: number;
  readonly columns: number;
  readonly pieces: readonly [Piece];
  readonly to: Form;
  readonly outputs: readonly Output[];
  /** Whether to add up the errors. */
  readonly measures: boolean;
  /** Pairs of numbers for what shares a scale, if they are known. */
  readonly ranges?: Float32Array<ArrayBuffer>;
  /** Where its input is in memory. Undefined: it has to be read. */
  readonly kept?: Kept | undefined;
  /** Rows that are read and encoded at a time. Undefined: all of them. */
  readonly step?: number | undefined;
}

/** Finds the smallest and the largest value of a rectangle. */
export interface RangeTask {
  readonly kind: 'range';
  readonly rows: number;
  readonly columns: number;
  readonly pieces: readonly [Piece];
  readonly keep?: Keep | undefined;
}

/** Finds what a codec has to know of the sets of a rectangle. */
export interface SetsTask {
  readonly kind: 'sets';
  readonly rows: number;
  readonly columns: number;
  readonly pieces: readonly [Piece];
  readonly to: Form;
  readonly keep?: Keep | undefined;
  /** Rows that are read and looked at one after the other. Undefined: all of them. */
  readonly step?: number | undefined;
}

/** Adds up the errors of the second rectangle against the first. */
export interface CompareTask {
  readonly kind: 'compare';
  readonly rows: number;
  readonly columns: number;
  readonly pieces: readonly [Piece, Piece];
}

export type TileTask = EncodeTask | RangeTask | SetsTask | CompareTask;

/** Tasks that travel together. */
export interface Batch {
  readonly tasks: readonly TileTask[];
  /** Bytes of all outputs. */
  readonly outputBytes: number;
  /**
   * Where all of the output goes, if that is into files: numbers by fours, which are the file, the position in it, and the offset and the
   * length of bytes of the output. A runner may write them. What no task makes is 0.
   */
  readonly writes?: Float64Array<ArrayBuffer> | undefined;
}

/** Whether two forms say the same. Most are one object for all tensors. */
export function isSameForm(a: Form, b: Form): boolean {
  if (a === b) return true;
  const [x, y] = [a, b] as unknown as [Record<string, unknown>, Record<string, unknown>];
  for (const key in x) if (x[key] !== y[key]) return false;
  for (const key in y) if (!(key in x)) return false;
  return true;
}

/** What came of a task, beside its outputs and error sums. */
export interface Answer {
  /** Which task of the batch, from 0. */
  readonly task: number;
  readonly range?: Range;
  readonly sets?: Float32Array<ArrayBuffer>;
  /** The number of its input, if it was asked to keep it and did. */
  readonly kept?: number;
  /** Of a comparison: pairs of which one is finite and the other is NaN or an infinity. */
  readonly mismatched?: number;
  /** If there is one, everything else means nothing. */
  readonly problem?: Problem;
}

/** What came of a batch. */
export interface BatchResult {
  /** Empty if it was written. */
  readonly output: ArrayBuffer;
  /** Whether all of the output is in its files. */
  readonly written?: boolean;
  /** Number of tasks that were carried out: all of them, or those up to the first one with a problem. */
  readonly done: number;
  /** Of each of these tasks, 1 if its errors were added up. */
  readonly measured: Uint8Array<ArrayBuffer>;
  /** Their error sums, in the core's order. In one array: messages and memory of very many small tasks are mostly this. */
  readonly sums: Float64Array<ArrayBuffer>;
  /** Those of tasks about which there is something else to say, in the order of the tasks. */
  readonly answers: readonly Answer[];
}

/** The problem that ended a batch, if one did. */
export function problemIn({ answers }: Pick<BatchResult, 'answers'>): Problem | undefined {
  return answers.at(-1)?.problem;
}

/** A task of a batch failed. */
export class TaskError extends Error {
  /** Which task, from 0. */
  readonly task: number;
  /** Whether its output could not be written. */
  readonly writing: boolean;
  /** What it failed with. */
  override readonly cause: unknown;

  constructor(task: number, cause: unknown, writing = false) {
    super(`task ${task} failed`);
    this.task = task;
    this.writing = writing;
    this.cause = cause;
  }
}

/** Rows of a task that are in memory together. */
export interface Slab {
  readonly row: number;
  readonly rows: number;
}

/** The rows of a task, some at a time. */
export function slabsOf(task: TileTask): Slab[] {
  const { rows } = task;
  const step = ('step' in task ? task.step : undefined) ?? rows;
  if (rows <= step) return [{ row: 0, rows }];
  return Array.from({ length: Math.ceil(rows / step) }, (_, i) => ({
    row: i * step,
    rows: Math.min(step, rows - i * step),
  }));
}

/** Bytes of an input that some rows of a task take. */
export function slabBytes({ rows }: TileTask, { bytes, count }: Input, slab: Slab): number {
  return slab.rows === rows ? bytes * count : ((bytes * count) / rows) * slab.rows;
}

/** What a task has to read, in the order in which its converter shows places for it. */
export function inputsOf(task: TileTask): readonly Input[] {
  const { pieces } = task;
  if (task.kind === 'encode' && task.kept !== undefined) return [];
  return pieces.length === 1 ? pieces[0].inputs : pieces.flatMap(({ inputs }) => inputs);
}

/** Tasks of a batch. More of them save little, and progress would show less often. */
const mostTasks = 256;

/** Tells which tasks go together: up to the elements of a full tile, which therefore travels alone. */
export class BatchLimit {
  #tasks = 0;
  #elements = 0;

  /** Whether a task still fits. If it does, it counts from now on. One whose inputs are kept goes where they are, and so travels alone. */
  admits({ rows, columns, kept }: Pick<EncodeTask, 'rows' | 'columns' | 'kept'>): boolean {
    const elements = this.#elements + (kept === undefined ? rows * columns : tileElements);
    if (this.#tasks > 0 && (this.#tasks >= mostTasks || elements > tileElements)) return false;
    this.#tasks++;
    this.#elements = elements;
    return true;
  }

  /** Begins the next batch. */
  clear(): void {
    this.#tasks = 0;
    this.#elements = 0;
  }
}
