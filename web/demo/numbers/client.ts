import { lostWorker } from '../shared/problems.js';
import type { CoreFacts } from '../shared/site.js';
import type { FileAnswer, HeldData, TextAnswer } from './engine.js';
import type { Comma } from './numbers.js';
import type { Failure, NumbersView, ViewRequest } from './view.js';
import type { PageCall, WorkerReply } from './worker.js';

/** An error of the worker. */
export class WorkerError extends Error {
  override readonly name = 'WorkerError';
  readonly code: string | undefined;
  /** True if the message is written for the visitor. */
  readonly isFileError: boolean;
  readonly details: { readonly tensor?: unknown; readonly byteOffset?: unknown };

  constructor({ message, code }: Failure, isFileError = false, details: unknown = {}) {
    super(message);
    this.code = code;
    this.isFileError = isFileError;
    this.details = details as WorkerError['details'];
  }
}

/** The worker as functions. */
export interface Client {
  /** Settles when the core is loaded. */
  readonly ready: Promise<CoreFacts>;
  view(wish: ViewRequest): Promise<NumbersView>;
  text(text: string, comma: Comma | undefined): Promise<TextAnswer>;
  files(files: readonly File[]): Promise<FileAnswer>;
  tensor(index: number): Promise<HeldData>;
  drop(id: number): Promise<void>;
  pack(wish: Pick<ViewRequest, 'settings' | 'own'>): Promise<{ bytes: Uint8Array<ArrayBuffer>; name: string }>;
}

interface WaitingCall {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** Starts the worker. */
export function startClient(): Client {
  const worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
  const waiting = new Map<number, WaitingCall>();
  let calls = 0;
  const wait = (id: number) =>
    new Promise<unknown>((resolve, reject) => {
      waiting.set(id, { resolve, reject });
    });
  worker.onmessage = ({ data }: MessageEvent<WorkerReply>) => {
    const call = waiting.get(data.id);
    waiting.delete(data.id);
    if ('error' in data) call?.reject(new WorkerError(data.error, data.error.isFileError, data.error.details));
    else call?.resolve(data.value);
  };
  let lost: WorkerError | undefined;
  worker.onerror = (event) => {
    const error = new WorkerError({ message: event.message || lostWorker('computes') });
    lost = error;
    for (const { reject } of waiting.values()) reject(error);
    waiting.clear();
  };
  const ready = wait(0) as Client['ready'];
  const call = (name: PageCall['name'], ...values: readonly unknown[]) => {
    // A lost worker does not answer.
    if (lost !== undefined) return Promise.reject(lost);
    const id = ++calls;
    const answer = wait(id);
    worker.postMessage({ id, name, values } satisfies PageCall);
    return answer;
  };
  return {
    ready,
    view: (wish) => call('view', wish) as Promise<NumbersView>,
    text: (text, comma) => call('text', text, comma) as Promise<TextAnswer>,
    files: (files) => call('files', files) as Promise<FileAnswer>,
    tensor: (index) => call('tensor', index) as Promise<HeldData>,
    drop: (id) => call('drop', id) as Promise<void>,
    pack: (wish) => call('pack', wish) as ReturnType<Client['pack']>,
  };
}
