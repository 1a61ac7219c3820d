/** Rectangles of a tensor whose bytes stay in memory between two tasks. The runner holds them: `runner/input-cache.ts`. */
import type { RangeCut, Rectangle, SetsCut, TileCut } from '../codecs/codec.js';
import type { PlannedTensor } from '../formats/format.js';
import type { Keep, Kept } from '../runner/task.js';
import { pieceOf } from './rectangle-input.js';

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
