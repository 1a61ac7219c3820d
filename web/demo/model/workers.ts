import { ScalepointError } from 'scalepoint/model';
import type { Failure } from '../shared/calls.js';

/** Workers that save. One processor is left to the page. */
export const savingWorkers = Math.max(1, Math.min(8, (navigator.hardwareConcurrency ?? 2) - 1));

/** Does work with workers. If none may be started, this thread does it. */
export function withWorkers<Result>(count: number, work: (workers: number) => Promise<Result>): Promise<Result> {
  return work(count).catch((error: unknown) => {
    if (!(error instanceof ScalepointError && error.code === 'WORKER')) throw error;
    return work(0);
  });
}

/** The error of the package that a worker met, as if the page had met it. */
export function packageError({ message, statement, problem, code, tensor, hint }: Failure): Error {
  if (code !== undefined) return new ScalepointError(code, statement ?? message, { tensor, hint });
  if (problem === undefined) return new Error(message);
  return Object.assign(new RangeError(message), { option: problem.option, problem });
}
