/** The messages between the worker pool and its workers. */

import type { PackedBatch } from '../convert/packed-batch.js';
import { type BatchResult, problemIn, TaskError } from '../convert/task.js';
import { type ErrorData, errorData } from '../core/errors.js';
import { sumCount } from '../core/measure.js';
import { isBuffer, isBytes, isDoubles } from '../core/realms.js';
import { isAnswer, type TransformerAnswer, type TransformerJob } from '../evaluate/jobs.js';
import type { SourceReference } from '../formats/files/bytes.js';
import type { SinkReference } from '../formats/files/sink.js';
import { isScanAnswer, type ScanAnswer, type ScanJob } from '../search/jobs.js';

/** Work of a worker in the order of the messages. */
export type HandJob = TransformerJob | ScanJob;
export type HandAnswer = TransformerAnswer | ScanAnswer;

/** A message to a worker. The first one starts it, batches follow. */
export type WorkerRequest =
  | {
      readonly kind: 'start';
      readonly module: WebAssembly.Module;
      /** The files that batches read and write; undefined for a file that workers cannot open. */
      readonly sources: readonly (SourceReference | undefined)[];
      readonly sinks: readonly (SinkReference | undefined)[];
      /** Name of a lock to hold for as long as the worker lives. */
      readonly lock?: string | undefined;
    }
  | {
      readonly kind: 'batch';
      readonly id: number;
      /** With `writes`, the worker writes the output. */
      readonly batch: PackedBatch;
      /** Memory for an output that is sent back. */
      readonly spare: ArrayBuffer | undefined;
    }
  /** A part of a language model's forward pass, or a scan of vectors. */
  | { readonly kind: 'job'; readonly id: number; readonly job: HandJob }
  /**
   * The next bytes of a batch from files that the worker did not open, in the order in which it puts them into its memory. Undefined if
   * reading failed.
   */
  | { readonly kind: 'bytes'; readonly id: number; readonly bytes: Uint8Array<ArrayBuffer> | undefined };

/** A message from a worker. */
export type WorkerReply =
  /** `locked`: whether it holds the lock. `reads`: for each source, whether the worker opened it. `writes`: whether it opened all sinks. */
  | { readonly kind: 'ready'; readonly locked: boolean; readonly reads: readonly boolean[]; readonly writes: boolean }
  | { readonly kind: 'result'; readonly id: number; readonly result: BatchResult }
  | { readonly kind: 'answer'; readonly id: number; readonly answer: HandAnswer }
  /** Memory of bytes that the worker has taken. */
  | { readonly kind: 'taken'; readonly memory: ArrayBuffer }
  /** `task`: index of the task in the batch. `writing`: whether writing its output failed. */
  | {
      readonly kind: 'failure';
      readonly id: number | undefined;
      readonly task: number;
      readonly writing: boolean;
      readonly error: ErrorData;
    };

// ------------------------------------------------------------------------------------------------------------------------- errors

/** The message for an error. @param id of the batch */
export function failureOf(id: number | undefined, error: unknown): WorkerReply {
  const { task, writing, cause } = error instanceof TaskError ? error : { task: 0, writing: false, cause: error };
  return { kind: 'failure', id, task, writing, error: errorData(cause) };
}

// ------------------------------------------------------------------------------------------------------------------------- checks

function isResult(result: Partial<BatchResult> | undefined): boolean {
  const { output, done, measured, sums, answers } = result ?? {};
  // jsdom has constructors of its own, so that instanceof would fail for arrays from workers of Node.
  const arrays = isBuffer(output) && isBytes(measured) && isDoubles(sums);
  return arrays && Number.isInteger(done) && Array.isArray(answers);
}

/** True if a worker that the caller made replies as the file `scalepoint/worker` does. */
export function isReply(reply: unknown): reply is WorkerReply {
  const { kind, result, task, error } = (reply ?? {}) as Record<string, unknown> & { result?: Partial<BatchResult> };
  if (kind === 'failure') {
    const { message } = (error ?? {}) as Partial<ErrorData>;
    return typeof message === 'string' && Number.isInteger(task) && (task as number) >= 0;
  }
  if (kind === 'result') return isResult(result);
  if (kind === 'answer') {
    const { answer } = reply as { answer?: unknown };
    return isAnswer(answer) || isScanAnswer(answer);
  }
  if (kind === 'taken') return isBuffer((reply as { memory?: unknown }).memory);
  return kind === 'ready' && Array.isArray((reply as { reads?: unknown }).reads);
}

/** The sizes that the result of a batch has to have. */
export interface ExpectedResult {
  readonly tasks: number;
  readonly outputBytes: number;
  /** True if the worker writes the output. */
  readonly written: boolean;
}

/** True if a result fits its batch: all bytes unless they were written, and all tasks up to a problem. */
export function isResultOf(expected: ExpectedResult, result: BatchResult): boolean {
  const { tasks, outputBytes } = expected;
  const { output, written = false, done, measured, sums } = result;
  const complete = done === tasks || (done < tasks && problemIn(result) !== undefined);
  const measures = measured.length === tasks && [0, tasks * sumCount].includes(sums.length);
  const bytes = expected.written ? 0 : outputBytes;
  return output.byteLength === bytes && written === expected.written && measures && complete;
}
