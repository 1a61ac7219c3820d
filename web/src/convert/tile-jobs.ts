/** Jobs that open files and convert batches of tiles, as messages to workers carry them. */
import type { ErrorData } from '../core/errors.js';
import { sumCount } from '../core/measure.js';
import { isBuffer, isBytes, isDoubles } from '../core/realms.js';
import type { SourceReference } from '../formats/files/bytes.js';
import type { SinkReference } from '../formats/files/sink.js';
import type { PackedBatch } from './packed-batch.js';
import { type BatchResult, problemIn } from './task.js';

/** Work on tiles. */
export type TileJob =
  /** Opens the files that batches read and write. Undefined stands for a file that workers cannot open. */
  | {
      readonly kind: 'open';
      readonly sources: readonly (SourceReference | undefined)[];
      readonly sinks: readonly (SinkReference | undefined)[];
    }
  | {
      readonly kind: 'batch';
      /** Counts the batches of a worker. */
      readonly number: number;
      /** With `writes`, the worker writes the output. */
      readonly batch: PackedBatch;
      /** Memory for an output that is sent back. */
      readonly spare: ArrayBuffer | undefined;
    };

/** The next bytes of a batch from files that the worker did not open, in the order in which it reads them; undefined if reading failed. */
export interface BatchBytes {
  readonly number: number;
  readonly bytes: Uint8Array<ArrayBuffer> | undefined;
}

/** Memory of bytes that the worker has taken. */
export interface TakenBytes {
  readonly memory: ArrayBuffer;
}

/** The files that a worker opened. */
export interface OpenedFiles {
  /** For each source, true if the worker opened it. */
  readonly reads: readonly boolean[];
  /** True if the worker opened all sinks. */
  readonly writes: boolean;
}

/** The failure of a batch. */
export interface BatchFailure {
  readonly failed: {
    /** Index of the task in the batch. */
    readonly task: number;
    /** True if writing its output failed. */
    readonly writing: boolean;
    readonly error: ErrorData;
  };
}

/** The sizes that the result of a batch has to have. */
export interface ExpectedResult {
  readonly tasks: number;
  readonly outputBytes: number;
  /** True if the worker writes the output. */
  readonly written: boolean;
}

// The worker may be one that the caller made, so answers are checked.

/** True for the answer to a job of the kind `open`. */
export function isOpenedFiles(answer: unknown): answer is OpenedFiles {
  return Array.isArray(((answer ?? {}) as Partial<OpenedFiles>).reads);
}

/** True for the failure of a batch. */
export function isBatchFailure(answer: unknown): answer is BatchFailure {
  const { failed } = (answer ?? {}) as { failed?: Partial<BatchFailure['failed']> };
  const { task = -1, error } = failed ?? {};
  return Number.isInteger(task) && task >= 0 && typeof error?.message === 'string';
}

/** True for a result that fits its batch: all bytes unless they were written, and all tasks up to a problem. */
export function isResult(expected: ExpectedResult, answer: unknown): answer is BatchResult {
  const { output, written = false, done, measured, sums, answers } = (answer ?? {}) as Partial<BatchResult>;
  // jsdom has constructors of its own, so that instanceof would fail for arrays from workers of Node.
  if (!isBuffer(output) || !isBytes(measured) || !isDoubles(sums)) return false;
  if (!Number.isInteger(done) || !Array.isArray(answers)) return false;
  const { tasks, outputBytes } = expected;
  const complete = done === tasks || ((done as number) < tasks && problemIn({ answers }) !== undefined);
  const measures = measured.length === tasks && [0, tasks * sumCount].includes(sums.length);
  const bytes = expected.written ? 0 : outputBytes;
  return output.byteLength === bytes && written === expected.written && measures && complete;
}
