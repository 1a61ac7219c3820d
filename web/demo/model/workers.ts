import { ScalepointError } from 'scalepoint/model';

/** Workers that save. One processor is left to the page. */
export const savingWorkers = Math.max(1, Math.min(8, (navigator.hardwareConcurrency ?? 2) - 1));

/** Does work with workers. If none may be started, this thread does it. */
export function withWorkers<Result>(count: number, work: (workers: number) => Promise<Result>): Promise<Result> {
  return work(count).catch((error: unknown) => {
    if (!(error instanceof ScalepointError && error.code === 'WORKER')) throw error;
    return work(0);
  });
}
