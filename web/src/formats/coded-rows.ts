/** Some rows of a weight with codes, as a weight of their own. */
import type { Codec, Role } from './codecs/codec.js';
import { elementsOf } from './codecs/elements.js';
import type { CodedView, ElementView, LogicalTensor } from './format.js';

/**
 * The rows of a weight with codes that a view takes.
 * @param codec that of the form
 * @returns undefined if it takes other elements, if single rows cannot be read, and for a weight with adapters
 */
export function codedRows(
  { offset, dims }: ElementView,
  { shape, form, parts }: LogicalTensor,
  codec: Codec,
): CodedView | undefined {
  if (form.codec === 'low-rank') return undefined;
  const width = shape.at(-1) ?? 1;
  const [last, rows, matrices = [1, 0] as const, ...others] = dims.toReversed();
  const fits = last?.[0] === width && last[1] === 1 && rows !== undefined && others.length === 0;
  const all = elementsOf(shape.slice(0, -1));
  const { rowUnit, rows: known } = codec.grid([all, width], form);
  if (!fits || rowUnit !== 1 || known !== all) return undefined;
  const [first, step, stride] = [offset, rows[1], matrices[1]].map((n) => n / width) as [number, number, number];
  if (![first, step, stride].every(Number.isInteger)) return undefined;
  // The bytes of a row in each part; 0 from one row to the next where all rows share them.
  const views = parts.map(({ role }): [Role, ElementView] => {
    const rowAt = (row: number) =>
      codec.runs([all, width], form, role, { row, rows: 1, column: 0, columns: width, width });
    const bytes = rowAt(1).offset - rowAt(0).offset;
    const [from, between, apart] = [first * bytes, step * bytes, stride * bytes];
    return [
      role,
      {
        offset: from,
        dims: [
          [matrices[0], apart],
          [rows[0], between],
          [rowAt(0).bytes, 1],
        ],
      },
    ];
  });
  return { views: Object.fromEntries(views), matrixRows: rows[0] };
}
