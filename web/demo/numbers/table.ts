import { byId, html, setText } from '../shared/dom.js';
import { formatCount, formatReal } from '../shared/format.js';
import type { DataSet } from './data.js';
import type { Evaluation } from './evaluate.js';

const rowsOnPage = 16;

/** The bits of a code in two's complement, as `pack` stores them. */
export function bitsOf(code: number, bits: number): string {
  return (code < 0 ? code + 2 ** bits : code).toString(2).padStart(bits, '0');
}

/** The first element whose position in the data is at least `wanted`. A sample does not have every position. */
function firstAt(evaluation: Evaluation, wanted: number): number {
  let low = 0;
  let high = evaluation.values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (evaluation.position(middle) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The table of values, codes, restored values and errors, in pages. */
export interface NumberTable {
  /** Shows the current page of an evaluation, or the values alone if there is none. New data start at the first page. */
  show(data: DataSet, evaluation: Evaluation | undefined): void;
}

/** Sets up the table and its buttons. */
export function startTable(): NumberTable {
  const body = byId('rows', HTMLElement);
  const field = byId('goto', HTMLInputElement);
  const previous = byId('previous', HTMLButtonElement);
  const next = byId('next', HTMLButtonElement);
  let data: DataSet | undefined;
  let evaluation: Evaluation | undefined;
  let start = 0;

  const render = () => {
    if (data === undefined) return;
    const total = evaluation?.values.length ?? data.values.length;
    start = Math.max(0, Math.min(start, total - 1));
    const end = Math.min(start + rowsOnPage, total);
    const rows: HTMLTableRowElement[] = [];
    for (let i = start; i < end; i++) rows.push(row(i, data, evaluation));
    body.replaceChildren(...rows);
    const position = evaluation?.position ?? ((i: number) => i);
    const whole = formatCount(data.values.length);
    setText(
      byId('range', HTMLElement),
      evaluation?.exact === false
        ? `${formatCount(start)}–${formatCount(end - 1)} of the sample`
        : `${formatCount(position(start))}–${formatCount(position(end - 1))} of ${whole}`,
    );
    previous.disabled = start === 0;
    next.disabled = end >= total;
    field.max = String(data.values.length - 1);
  };
  previous.addEventListener('click', () => {
    start -= rowsOnPage;
    render();
  });
  next.addEventListener('click', () => {
    start += rowsOnPage;
    render();
  });
  field.addEventListener('input', () => {
    if (field.value === '' || !field.checkValidity()) return;
    start = evaluation === undefined ? field.valueAsNumber : firstAt(evaluation, field.valueAsNumber);
    render();
  });
  return {
    show(newData, newEvaluation) {
      if (newData !== data) start = 0;
      data = newData;
      evaluation = newEvaluation;
      render();
    },
  };
}

function row(i: number, data: DataSet, evaluation: Evaluation | undefined): HTMLTableRowElement {
  const cells: string[] = [];
  if (evaluation === undefined) cells.push(formatReal(data.values[i]!, 6), '–', '–', '–', '–');
  else {
    const original = evaluation.values[i]!;
    const restored = evaluation.restored[i]!;
    const code = evaluation.codes[i]!;
    cells.push(
      formatReal(original, 6),
      String(code),
      bitsOf(code, evaluation.settings.bits),
      formatReal(restored, 6),
      formatReal(restored - original, 3),
    );
  }
  const position = evaluation?.position(i) ?? i;
  return html(
    'tr',
    {},
    html('th', { scope: 'row', class: 'number' }, formatCount(position)),
    ...cells.map((cell) => html('td', { class: 'number' }, cell)),
  );
}
