/** Rectangles of a tensor that are cached between two tasks. `input-cache.ts` holds their bytes. */
import type { RangeCut, Rectangle, SetsCut, TileCut } from '../formats/codecs/codec.js';
import type { PlannedTensor } from '../formats/format.js';
import { rectangleInput } from './rectangle-input.js';
import type { CachedRows, CacheRequest } from './task.js';

/** The last id that was given. Ids are unique in this thread, since several measurements may share workers. */
let lastId = 0;

/** Requests the rectangles of a tensor, and finds the tiles in them. */
export class CachedRectangles {
  readonly #tensor: PlannedTensor;
  #requested: { readonly rectangle: Rectangle; readonly id: number }[] = [];

  constructor(tensor: PlannedTensor) {
    this.#tensor = tensor;
  }

  /** The rectangles to cache, in the order of the cut; undefined unless each is one contiguous run of whole rows. */
  add(cut: RangeCut | SetsCut): readonly CacheRequest[] | undefined {
    const { source } = this.#tensor;
    const rectangles = cut.kind === 'range' ? cut.rectangles : cut.observed.map(({ rectangle }) => rectangle);
    if (source.gathered !== undefined) return undefined;
    const sizes: number[] = [];
    for (const rectangle of rectangles) {
      const [first, ...others] = rectangleInput(source, rectangle).parts;
      if (first === undefined || others.length > 0 || first.count !== 1) return undefined;
      if (first.bytes % rectangle.rows !== 0) return undefined;
      sizes.push(first.bytes);
    }
    const total = sizes.reduce((sum, size) => sum + size, 0);
    const requested = rectangles.map((rectangle) => ({ rectangle, id: ++lastId }));
    for (const one of requested) this.#requested.push(one);
    return requested.map(({ id }) => ({ id, total }));
  }

  /** The cached rows of a tile; undefined if its tensor is not cached. Tiles come in the order of the rectangles. */
  take({ rectangle: { row, rows, column, columns } }: TileCut): CachedRows | undefined {
    const [first] = this.#requested;
    if (first === undefined) return undefined;
    const { rectangle: whole, id } = first;
    const isLast = row + rows === whole.row + whole.rows;
    const isIn =
      column === whole.column && columns === whole.columns && row >= whole.row && row + rows <= whole.row + whole.rows;
    if (!isIn) throw new Error(`a tile of ${this.#tensor.source.name} is not the next part of what was observed`);
    if (isLast) this.#requested.shift();
    return { id, row: row - whole.row, isLast };
  }
}
