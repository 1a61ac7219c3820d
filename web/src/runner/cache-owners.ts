/** What is to be kept between two tasks, and who has kept it. The memory for it is in `kept.ts`. */
import type { RangeCut, Rectangle, SetsCut, TileCut } from '../codecs/codec.js';
import type { PlannedTensor } from '../formats/format.js';
import { pieceOf } from '../pipeline/rectangle-bytes.js';
import {
  type Batch,
  type BatchResult,
  type EncodeTask,
  type Keep,
  type Kept,
  mostKept,
  type TileTask,
} from './task.js';

/** The last number that kept inputs had. All have their own, since several may measure at a time with the same workers. */
let lastKept = 0;

/** What tasks are asked to keep for the tiles of a tensor. */
export class KeptRectangles {
  readonly #tensor: PlannedTensor;
  #kept: { readonly rectangle: Rectangle; readonly number: number }[] = [];

  constructor(tensor: PlannedTensor) {
    this.#tensor = tensor;
  }

  /** What of a question is to be kept. Undefined if rectangles are not one run of bytes each, whose rows take as many each. */
  add(cut: RangeCut | SetsCut): readonly Keep[] | undefined {
    const { source } = this.#tensor;
    const rectangles = cut.kind === 'range' ? cut.rectangles : cut.pieces.map(({ rectangle }) => rectangle);
    if (source.gathered !== undefined) return undefined;
    const sizes: number[] = [];
    for (const rectangle of rectangles) {
      const [first, ...others] = pieceOf(source, rectangle).inputs;
      if (first === undefined || others.length > 0 || first.count !== 1) return undefined;
      if (first.bytes % rectangle.rows !== 0) return undefined;
      sizes.push(first.bytes);
    }
    const total = sizes.reduce((sum, size) => sum + size, 0);
    const numbered = rectangles.map((rectangle) => ({ rectangle, number: ++lastKept }));
    this.#kept.push(...numbered);
    return numbered.map(({ number }) => ({ number, total }));
  }

  /** Which of it a tile can take. Tiles come in the order of the rectangles. */
  take({ rectangle: { row, rows, column, columns } }: TileCut): Kept | undefined {
    const [first] = this.#kept;
    if (first === undefined) return undefined;
    const { rectangle: whole, number } = first;
    const isLast = row + rows === whole.row + whole.rows;
    const isIn =
      column === whole.column && columns === whole.columns && row >= whole.row && row + rows <= whole.row + whole.rows;
    if (!isIn) throw new Error(`a tile of ${this.#tensor.source.name} is not the next part of what was asked about`);
    if (isLast) this.#kept.shift();
    return { number, row: row - whole.row, isLast };
  }
}

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
