/** The messages between a pool and its workers. */
import type { ErrorData } from '../core/errors.js';

/** A message to a worker. */
export type WorkerRequest =
  /** The first message: loads the core. `lock`: name of a lock to hold for as long as the worker lives. */
  | { readonly kind: 'start'; readonly module: WebAssembly.Module; readonly lock?: string | undefined }
  /** Work, which is carried out in the order of the messages. `to`: the kind of the job. */
  | { readonly kind: 'job'; readonly id: number; readonly to: string; readonly job: object }
  /** Data for jobs of a kind, which the worker takes at once. */
  | { readonly kind: 'data'; readonly to: string; readonly data: object };

/** A message from a worker. */
export type WorkerReply =
  /** `locked`: true if it holds the lock. */
  | { readonly kind: 'ready'; readonly locked: boolean }
  | { readonly kind: 'answer'; readonly id: number; readonly answer: unknown }
  /** Data from a job that is under way. */
  | { readonly kind: 'data'; readonly data: unknown }
  /** `id`: the job that failed; undefined if the worker could not start. */
  | { readonly kind: 'failure'; readonly id: number | undefined; readonly error: ErrorData };

/** True if a worker that the caller made replies as the file `scalepoint/worker` does. */
export function isReply(reply: unknown): reply is WorkerReply {
  const { kind, error } = (reply ?? {}) as Record<string, unknown>;
  if (kind === 'failure') return typeof ((error ?? {}) as Partial<ErrorData>).message === 'string';
  return kind === 'ready' || kind === 'answer' || kind === 'data';
}
