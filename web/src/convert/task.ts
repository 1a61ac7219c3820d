/**
 * Tasks, and batches of them. A task is plain data that needs nothing but its own bytes, so that batches can be sent to any worker. Small
 * tasks travel together, so that a model of many small tensors takes few messages.
 */

import type { Note } from '../core/note.js';
import type { ByteRuns, Form, Problem, Role, ValueRange } from '../formats/codecs/codec.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { ByteSink } from '../formats/files/sink.js';
import type { ColumnOrder } from '../formats/statistics.js';
import type { MovedElements } from '../formats/strided.js';

/** The file of input parts that hold zeros. */
export const zerosFile = -1;

/** The bytes of one part of a stored tensor that a tile takes. */
export interface InputPart extends Omit<ByteRuns, 'offset'> {
  /** Which part of the stored tensor it is. */
  readonly role: Role;
  /** Index of the file, or `zerosFile`. */
  readonly file: number;
  /** Where the first run begins in the file. */
  readonly begin: number;
  /** Set if reading reorders elements. */
  readonly moved?: MovedElements | undefined;
}

/** A rectangle of a stored tensor, as a task reads it. Several parts of one role follow each other in memory. */
export interface TileInput {
  readonly form: Form;
  readonly parts: readonly InputPart[];
}

/** The bytes of one part that a tile makes, and where they go in the output of the batch. */
export interface OutputPart {
  readonly role: Role;
  readonly offset: number;
  readonly bytes: number;
}

/** Bytes that one core may cache. Together with a tile, a worker stays below its documented memory. */
export const mostCached = 16 * 2 ** 20;

/** Asks for a task's input, one run of bytes, to stay in memory for the tasks that encode it. */
export interface CacheRequest {
  readonly id: number;
  /** Bytes of all requests that belong together. */
  readonly total: number;
}

/** Rows of a cached input. */
export interface CachedRows {
  /** The id of the request. */
  readonly id: number;
  /** The first row, counted from the first cached one. */
  readonly row: number;
  /** True if no later task takes rows of the same input. */
  readonly isLast: boolean;
}

/** Makes parts out of a rectangle. */
export interface EncodeTask {
  readonly kind: 'encode';
  readonly rows: number;
  readonly columns: number;
  /**
   * The rectangle; behind it the second moments of the matrix's inputs, and of held-back ones, for GPTQ or if `judges` is set.
   */
  readonly inputs: readonly [TileInput] | readonly [TileInput, TileInput];
  /** Damping of these moments. */
  readonly damping?: number | undefined;
  /** The order in which columns are rounded. */
  readonly order?: ColumnOrder | undefined;
  /** True if the moments only measure the errors of outputs. The rectangle then holds whole rows of a form with one part. */
  readonly judges?: boolean | undefined;
  readonly to: Form;
  readonly outputs: readonly OutputPart[];
  /** True if the errors are added up. */
  readonly measures: boolean;
  /** Values that are a problem in the result, which is plain floats. */
  readonly refuses?: 'nonFinite' | 'nan' | undefined;
  /** A pair of numbers for each set of elements that share a scale, if they are known. */
  readonly ranges?: Float32Array<ArrayBuffer>;
  /** The input in the cache. Undefined: it is read. */
  readonly cached?: CachedRows | undefined;
  /** Rows that are read and encoded at a time. Undefined: all rows. */
  readonly pieceRows?: number | undefined;
}

/** A task that looks at a rectangle before anything is encoded. */
interface ObserveTask {
  readonly rows: number;
  readonly columns: number;
  readonly inputs: readonly [TileInput];
  readonly cache?: CacheRequest | undefined;
}

/** Finds the smallest and the largest value of a rectangle. */
export interface RangeTask extends ObserveTask {
  readonly kind: 'range';
}

/** Finds the pairs of numbers that a codec wants for the sets of a rectangle. */
interface SetsTask extends ObserveTask {
  readonly kind: 'sets';
  readonly to: Form;
  /** Rows that are read and observed at a time. Undefined: all rows. */
  readonly pieceRows?: number | undefined;
}

/** Adds up the errors of the second rectangle against the first. */
export interface CompareTask {
  readonly kind: 'compare';
  readonly rows: number;
  readonly columns: number;
  readonly inputs: readonly [TileInput, TileInput];
}

export type TileTask = EncodeTask | RangeTask | SetsTask | CompareTask;

/** Tasks that travel together. */
export interface Batch {
  readonly tasks: readonly TileTask[];
  /** Bytes of all outputs. */
  readonly outputBytes: number;
  /**
   * Where the output goes, if all of it goes into files: groups of four numbers, which are the file, the position in it, the offset in the
   * output, and the length in bytes. A runner may write them. Bytes that no task makes are 0.
   */
  readonly writes?: Float64Array<ArrayBuffer> | undefined;
}

/** True if two forms are equal. Most tensors share one object. */
export function equalForms(a: Form, b: Form): boolean {
  if (a === b) return true;
  const [x, y] = [a, b] as unknown as [Record<string, unknown>, Record<string, unknown>];
  for (const key in x) if (x[key] !== y[key]) return false;
  for (const key in y) if (!(key in x)) return false;
  return true;
}

/** The result of a task, apart from its outputs and error sums. */
export interface Answer {
  /** Index of the task in the batch. */
  readonly task: number;
  readonly range?: ValueRange;
  readonly sets?: Float32Array<ArrayBuffer>;
  /** The id of the cache request, if the input was cached. */
  readonly cached?: number;
  /** Count of pairs, in a comparison, of a finite number with NaN or an infinity, or of two different ones of these. */
  readonly mismatched?: number;
  /** If set, the rest of the result is meaningless. */
  readonly problem?: Problem;
}

/** The result of a batch. */
export interface BatchResult {
  /** Empty if the runner wrote it. */
  readonly output: ArrayBuffer;
  /** True if the runner wrote all of the output into its files. */
  readonly written?: boolean;
  /** Count of tasks that were carried out: all of them, or those up to the first one with a problem. */
  readonly done: number;
  /** For each task, 1 if its errors were added up. */
  readonly measured: Uint8Array<ArrayBuffer>;
  /** Error sums of the tasks, in the core's order. One array, which takes less memory and time to send than one for each small task. */
  readonly sums: Float64Array<ArrayBuffer>;
  /** Answers of the tasks that have one, in the order of the tasks. */
  readonly answers: readonly Answer[];
}

/** A task of a batch failed. */
export class TaskError extends Error {
  /** Index of the task in the batch. */
  readonly task: number;
  /** True if writing its output failed. */
  readonly writing: boolean;
  /** The error behind this one. */
  override readonly cause: unknown;

  constructor(task: number, cause: unknown, writing = false) {
    super(`task ${task} failed`);
    this.task = task;
    this.writing = writing;
    this.cause = cause;
  }
}

/** Carries out batches. */
export interface TileRunner {
  /** Batches to start before waiting for the first one. */
  readonly concurrency: number;
  /** A note for the report, such as the reason why there are no workers. */
  readonly note?: Note;
  /** @throws TaskError */
  run(batch: Batch): Promise<BatchResult>;
  /** Takes back the output of a batch, whose memory is reused. */
  recycle(output: ArrayBuffer): void;
  /** Ends all work, and rejects pending promises with the reason. Safe to call twice. */
  dispose(reason?: unknown): void;
}

/** The files that batches read and write. */
export interface WorkFiles {
  readonly sources: readonly ByteSource[];
  readonly sinks: readonly Pick<ByteSink, 'reference'>[];
}
