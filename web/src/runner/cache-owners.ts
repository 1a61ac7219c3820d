import { type Batch, type BatchResult, type EncodeTask, mostKept, type TileTask } from './task.js';

/** Of a tensor that is larger than what all have room for by more than this, nothing is kept: it would save little of what is read. */
const mostTimes = 4;

/** Who keeps which inputs. */
export class Keepers<Keeper> {
  readonly #most: number;
  readonly #keepers = new Map<number, Keeper>();

  /** @param count how many there are */
  constructor(count: number) {
    this.#most = mostTimes * count * mostKept;
  }

  /** The batch without what does not pay to be kept. */
  #worthKeeping(batch: Batch): Batch {
    const keeps = (task: TileTask) => 'keep' in task && task.keep !== undefined && task.keep.total > this.#most;
    if (!batch.tasks.some(keeps)) return batch;
    return { ...batch, tasks: batch.tasks.map((task) => (keeps(task) ? { ...task, keep: undefined } : task)) };
  }

  /** Takes down what somebody has kept. */
  add({ answers }: Pick<BatchResult, 'answers'>, keeper: Keeper): void {
    for (const { kept } of answers) if (kept !== undefined) this.#keepers.set(kept, keeper);
  }

  /** Who has to carry out a batch; undefined if anyone can. What nobody has kept is read again. */
  assign(batch: Batch): { readonly batch: Batch; readonly keeper: Keeper | undefined } {
    const [task] = batch.tasks as readonly Partial<EncodeTask>[];
    // It travels alone.
    const kept = task?.kept;
    if (kept === undefined) return { batch: this.#worthKeeping(batch), keeper: undefined };
    const keeper = this.#keepers.get(kept.number);
    if (kept.isLast) this.#keepers.delete(kept.number);
    if (keeper !== undefined) return { batch, keeper };
    return { batch: { ...batch, tasks: [{ ...(task as EncodeTask), kept: undefined }] }, keeper };
  }
}
