/** Which worker has cached which inputs. */
import { type Batch, type BatchResult, type EncodeTask, mostCached, type TileTask } from './task.js';

/** A tensor that exceeds the caches of all workers by more than this factor is not cached: most of it would be read again anyway. */
const mostTimes = 4;

/** Sends tasks with cached inputs to the owners of the caches. */
export class CacheOwners<Owner> {
  readonly #most: number;
  readonly #owners = new Map<number, Owner>();

  /** @param count number of caches */
  constructor(count: number) {
    this.#most = mostTimes * count * mostCached;
  }

  /** The batch without the cache requests that are too large. */
  #worthCaching(batch: Batch): Batch {
    const isTooLarge = (task: TileTask) => 'cache' in task && task.cache !== undefined && task.cache.total > this.#most;
    if (!batch.tasks.some(isTooLarge)) return batch;
    return { ...batch, tasks: batch.tasks.map((task) => (isTooLarge(task) ? { ...task, cache: undefined } : task)) };
  }

  /** Remembers the inputs that an owner has cached. */
  add({ answers }: Pick<BatchResult, 'answers'>, owner: Owner): void {
    for (const { cached } of answers) if (cached !== undefined) this.#owners.set(cached, owner);
  }

  /** The owner that has to carry out a batch; undefined if any worker can. Inputs that are in no cache are read again. */
  assign(batch: Batch): { readonly batch: Batch; readonly owner: Owner | undefined } {
    const [task] = batch.tasks as readonly Partial<EncodeTask>[];
    // Such a task is the only one of its batch.
    const cached = task?.cached;
    if (cached === undefined) return { batch: this.#worthCaching(batch), owner: undefined };
    const owner = this.#owners.get(cached.id);
    if (cached.isLast) this.#owners.delete(cached.id);
    if (owner !== undefined) return { batch, owner };
    return { batch: { ...batch, tasks: [{ ...(task as EncodeTask), cached: undefined }] }, owner };
  }
}
