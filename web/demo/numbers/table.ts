import { byId, html, setText } from '../shared/dom.js';
import { formatCount, formatReal } from '../shared/format.js';
import type { NumberRow, NumbersView, ViewRequest } from './view.js';

const rowsOnPage = 16;

/** The bits of a code in two's complement, as `pack` stores them. */
export function bitsOf(code: number, bits: number): string {
  return (code < 0 ? code + 2 ** bits : code).toString(2).padStart(bits, '0');
}

function rowOf({ index, original, code, restored }: NumberRow, bits: number): HTMLTableRowElement {
  const cells = [
    formatReal(original, 6),
    code === undefined ? '–' : String(code),
    code === undefined ? '–' : bitsOf(code, bits),
    restored === undefined ? '–' : formatReal(restored, 6),
    restored === undefined ? '–' : formatReal(restored - original, 3),
  ];
  return html(
    'tr',
    {},
    html('th', { scope: 'row', class: 'number' }, formatCount(index)),
    ...cells.map((cell) => html('td', { class: 'number' }, cell)),
  );
}

/** Bits of a code, as the table writes them. */
const widthOf = ({ codes, bits }: NumbersView['settings']) => (codes === 'integers' ? bits : codes === 'nf4' ? 4 : 8);

/** Shows a page of values, codes, restored values and errors; values alone if nothing was quantized. */
export function showTable({ rows: page, settings, result, data }: NumbersView): void {
  if (page === undefined) return;
  const { start, total, rows } = page;
  byId('rows', HTMLElement).replaceChildren(...rows.map((row) => rowOf(row, widthOf(settings))));
  const count = data.shape.reduce((a, b) => a * b, 1);
  setText(
    byId('range', HTMLElement),
    result?.exact === false
      ? `${formatCount(start)}–${formatCount(start + rows.length - 1)} of the sample`
      : `${formatCount(rows[0]?.index ?? 0)}–${formatCount(rows.at(-1)?.index ?? 0)} of ${formatCount(count)}`,
  );
  byId('previous', HTMLButtonElement).disabled = start === 0;
  byId('next', HTMLButtonElement).disabled = start + rows.length >= total;
  byId('goto', HTMLInputElement).max = String(count - 1);
}

/** Sets up the buttons of the table. `onMove` is called with the rows to show. */
export function startTable(current: () => NumbersView['rows'], onMove: (row: ViewRequest['row']) => void): void {
  const field = byId('goto', HTMLInputElement);
  const move = (by: number) => onMove({ start: Math.max(0, (current()?.start ?? 0) + by) });
  byId('previous', HTMLButtonElement).addEventListener('click', () => move(-rowsOnPage));
  byId('next', HTMLButtonElement).addEventListener('click', () => move(rowsOnPage));
  field.addEventListener('input', () => {
    if (field.value !== '' && field.checkValidity()) onMove({ index: field.valueAsNumber });
  });
}
