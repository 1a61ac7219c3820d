/** Views of weights whose elements have scales for rectangles, such as float8 in blocks of 128 by 128. Each view takes whole rectangles. */
import { tileElements } from '../formats/codecs/codec.js';
import { bytesOfElements } from '../formats/codecs/elements.js';
import type { ScaledForm } from '../formats/codecs/scaled-elements.js';
import type { CodedView, ElementView } from '../formats/format.js';

type Dimension = ElementView['dims'][number];

/** Dimensions of a view of a matrix. Elements of several rows that follow each other become rows of their own. */
function dimensionsOf({ dims }: ElementView, columns: number): Dimension[] {
  return dims.flatMap(([count, stride]): Dimension[] => {
    const isRows = stride === 1 && count > columns && count % columns === 0;
    if (!isRows) return [[count, stride]];
    return [
      [count / columns, columns],
      [columns, 1],
    ];
  });
}

/**
 * A view of a matrix with scales as a view of its elements and one of its scales. Matrices of the result are rows of the source, or
 * transposes of rectangles of it.
 * @param columns those of the source
 * @returns undefined if the view cuts a rectangle that shares a scale
 */
export function blockedView(
  view: ElementView,
  columns: number,
  form: ScaledForm,
): { readonly form: ScaledForm; readonly coded: CodedView } | undefined {
  const { blockRows, blockColumns } = form;
  const { offset } = view;
  const size = bytesOfElements(form.scale, 1);
  if (blockRows === undefined && blockColumns === undefined) {
    // One scale for all elements, and one zero point.
    const single = (bytes: number): ElementView => ({ offset: 0, dims: [[bytes, 1]] });
    return { form, coded: { views: { data: view, scale: single(size), zeroPoint: single(1) } } };
  }
  if (blockRows === undefined) return undefined;
  const across = blockColumns ?? columns;
  const perRow = Math.ceil(columns / across);
  const [[width, columnStride] = [1, 1], [rows, rowStride] = [1, columns], ...outer] = dimensionsOf(
    view,
    columns,
  ).toReversed();
  const isStraight = columnStride === 1 && rowStride === columns && width === columns;
  const isTurned = rowStride === 1 && columnStride === columns && blockColumns !== undefined;
  const [down, along] = isTurned ? [across, blockRows] : [blockRows, across];
  const band = columns * blockRows;
  const fits =
    (isStraight || (isTurned && width % along === 0)) &&
    rows % down === 0 &&
    width * down <= tileElements &&
    [offset, ...outer.map(([, stride]) => stride)].every((n) => n % band === 0);
  if (!fits) return undefined;
  const inner: Dimension[] = isTurned
    ? [
        [rows / down, 1],
        [width / along, perRow],
      ]
    : [
        [rows / down, perRow],
        [perRow, 1],
      ];
  const bands = outer.toReversed().map(([count, stride]): Dimension => [count, (stride / band) * perRow]);
  const scales = [...bands, ...inner].map(([count, stride]): Dimension => [count, stride * size]);
  return {
    form: isTurned ? { ...form, blockRows: down, blockColumns: along } : form,
    coded: { views: { data: view, scale: { offset: (offset / band) * perRow * size, dims: [...scales, [size, 1]] } } },
  };
}
