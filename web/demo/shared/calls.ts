// Typed calls from a page to its worker: a promise for each answer, with progress, errors, and an end.
import type { ScalepointError } from 'scalepoint';
import type { Hint, OptionProblem } from '../../src/tooling.js';

/** A function that a worker offers: from a question to an answer. The second argument reports progress. */
type WorkerCall = (question: never, onProgress: (step: unknown) => void) => unknown;

type QuestionOf<Call> = Call extends (question: infer Question, onProgress: never) => unknown ? Question : never;
type StepOf<Call> = Call extends (question: never, onProgress: (step: infer Step) => void) => unknown ? Step : never;
type AnswerOf<Call> = Call extends (question: never, onProgress: never) => infer Answer ? Awaited<Answer> : never;

/** An error as data. Error objects lose all but their names and messages on the way from a worker. */
export interface Failure {
  readonly name: string;
  readonly message: string;
  /** The message of a `ScalepointError` without its hint. */
  readonly statement?: string;
  readonly code?: ScalepointError['code'];
  readonly tensor?: string;
  readonly byteOffset?: number;
  readonly hint?: Hint;
  readonly problem?: OptionProblem;
}

/** A thrown value as data. */
export function failureOf(error: unknown): Failure {
  const { name = 'Error', message = String(error), ...rest } = (error ?? {}) as Partial<Failure>;
  const { statement, code, tensor, byteOffset, hint, problem } = rest;
  return {
    name,
    message,
    ...(statement !== undefined && { statement }),
    // The codes of a DOMException are numbers.
    ...(typeof code === 'string' && { code }),
    ...(tensor !== undefined && { tensor }),
    ...(byteOffset !== undefined && { byteOffset }),
    ...(hint && { hint }),
    ...(problem && { problem }),
  };
}

/** An error of a worker, with the members that it had there. */
export class WorkerError extends Error {
  declare readonly code?: Failure['code'];
  declare readonly tensor?: string;
  declare readonly byteOffset?: number;

  constructor(failure: Failure) {
    super(failure.message);
    Object.assign(this, failure);
  }
}

interface CallMessage {
  readonly id: number;
  readonly name: string;
  readonly question: unknown;
}

type ReplyMessage = { readonly id: number } & (
  | { readonly step: unknown }
  | { readonly answer: unknown }
  | { readonly failure: Failure }
);

/** Settings of `callWorker`. */
interface WorkerOptions {
  /** Its work in a message about its loss, such as `reads tensors`. */
  readonly work: string;
  /** True if it holds what later calls need. Once it is lost, all calls fail; otherwise the next one starts another worker. */
  readonly isOnly?: boolean;
  /** Makes an error of a failure. The default is a `WorkerError`. */
  errorOf?(failure: Failure): Error;
  /** Called when the browser has ended the worker, before its calls fail. */
  onLost?(error: Error): void;
}

/** The page's side of a worker. */
export interface WorkerCaller<Calls> {
  /** Calls a function of the worker, which the first call starts. Rejects with what it throws. */
  call<Name extends keyof Calls & string>(
    name: Name,
    question: QuestionOf<Calls[Name]>,
    onProgress?: (step: StepOf<Calls[Name]>) => void,
  ): Promise<AnswerOf<Calls[Name]>>;
  /** Ends the worker, and with it all calls: they reject with an AbortError. */
  end(): void;
}

interface WaitingCall {
  resolve(answer: never): void;
  reject(error: unknown): void;
  onProgress?: ((step: never) => void) | undefined;
}

/** Makes the functions of a worker callable. @param make starts the worker */
export function callWorker<Calls>(make: () => Worker, options: WorkerOptions): WorkerCaller<Calls> {
  const { work, isOnly = false, errorOf = (failure) => new WorkerError(failure), onLost } = options;
  const waiting = new Map<number, WaitingCall>();
  let worker: Worker | undefined;
  let lost: Error | undefined;
  let count = 0;
  const stop = (reason: Error) => {
    worker?.terminate();
    worker = undefined;
    const calls = [...waiting.values()];
    waiting.clear();
    for (const { reject } of calls) reject(reason);
  };
  const start = () => {
    const made = make();
    made.onerror = ({ message }) => {
      if (worker !== made) return;
      const lossText = `the part of this page that ${work} did not start, or the browser ended it; close other tabs, then try again`;
      const error = new Error(message || lossText);
      if (isOnly) lost = error;
      onLost?.(error);
      stop(error);
    };
    made.onmessage = ({ data }: MessageEvent<ReplyMessage>) => {
      const call = waiting.get(data.id);
      if ('step' in data) {
        call?.onProgress?.(data.step as never);
        return;
      }
      waiting.delete(data.id);
      if ('failure' in data) call?.reject(errorOf(data.failure));
      else call?.resolve(data.answer as never);
    };
    return made;
  };
  return {
    call(name, question, onProgress) {
      if (lost !== undefined) return Promise.reject(lost);
      worker ??= start();
      const id = ++count;
      const answer = new Promise<never>((resolve, reject) => waiting.set(id, { resolve, reject, onProgress }));
      worker.postMessage({ id, name, question } satisfies CallMessage);
      return answer;
    },
    end: () => stop(new DOMException('cancelled', 'AbortError')),
  };
}

/** True for the error of a call that `end` has ended. */
export const isEnded = (error: unknown): boolean => error instanceof DOMException && error.name === 'AbortError';

/** Answers the calls of the page, in a worker. */
export function answerCalls(calls: Readonly<Record<string, WorkerCall>>): void {
  const reply = (message: ReplyMessage) => self.postMessage(message);
  self.onmessage = async ({ data: { id, name, question } }: MessageEvent<CallMessage>) => {
    try {
      const answer = await calls[name]?.(question as never, (step: unknown) => reply({ id, step }));
      reply({ id, answer });
    } catch (error) {
      reply({ id, failure: failureOf(error) });
    }
  };
}
