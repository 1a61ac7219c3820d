import { byId, showFacts } from '../shared/dom.js';
import { formatCount, formatReal } from '../shared/format.js';
import { html, render } from '../shared/template.js';
import type { NumberRow, NumbersView, ViewRequest } from './view.js';

const rowsOnPage = 16;

/** The bits of a code in two's complement, as `pack` stores them. */
export function bitsOf(code: number, bits: number): string {
  return (code < 0 ? code + 2 ** bits : code).toString(2).padStart(bits, '0');
}

/** Bits of a code, as the table writes them. */
const widthOf = ({ codes, bits }: NumbersView['settings']) => (codes === 'integers' ? bits : codes === 'nf4' ? 4 : 8);

/** Shows a page of values, codes, restored values and errors; values alone if nothing was quantized. */
export function showTable({ rows: page, settings, result, data }: NumbersView): void {
  if (page === undefined) return;
  const { start, total, rows } = page;
  const row = ({ index, original, code, restored }: NumberRow) => {
    const cells = [
      formatReal(original, 6),
      code === undefined ? '–' : String(code),
      code === undefined ? '–' : bitsOf(code, widthOf(settings)),
      restored === undefined ? '–' : formatReal(restored, 6),
      restored === undefined ? '–' : formatReal(restored - original, 3),
    ];
    return html`<tr><th scope="row" class="number">${formatCount(index)}</th>${cells.map((cell) => html`<td class="number">${cell}</td>`)}</tr>`;
  };
  render(rows.map(row), byId('rows', HTMLElement));
  const count = data.shape.reduce((a, b) => a * b, 1);
  showFacts({
    range:
      result?.exact === false
        ? `${formatCount(start)}–${formatCount(start + rows.length - 1)} of the sample`
        : `${formatCount(rows[0]?.index ?? 0)}–${formatCount(rows.at(-1)?.index ?? 0)} of ${formatCount(count)}`,
    previous: { disabled: start === 0 },
    next: { disabled: start + rows.length >= total },
    goto: { max: String(count - 1) },
  });
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
