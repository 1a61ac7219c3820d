import type { TensorReport } from 'scalepoint/model';
import { byId, html, setText } from '../shared/dom.js';
import { formatBytes, formatDecibels, formatMany, formatReal, formatShape } from '../shared/format.js';

/** A column of the table. */
interface Column {
  readonly key: string;
  readonly label: string;
  readonly numeric: boolean;
  text(tensor: TensorReport): string;
  sortKey(tensor: TensorReport): string | number;
}

/** Sort key of a tensor without the figure. Such tensors come last in both directions. */
const missing = Number.NaN;

const columns: readonly Column[] = [
  { key: 'name', label: 'Tensor', numeric: false, text: ({ name }) => name, sortKey: ({ name }) => name },
  {
    key: 'type',
    label: 'Type',
    numeric: false,
    text: ({ from, to }) => (from === to ? from : `${from} → ${to}`),
    sortKey: ({ from, to }) => `${to} ${from}`,
  },
  {
    key: 'shape',
    label: 'Shape',
    numeric: true,
    text: ({ shape }) => formatShape(shape),
    sortKey: ({ shape }) => shape.reduce((a, b) => a * b, 1),
  },
  {
    key: 'before',
    label: 'Before',
    numeric: true,
    text: ({ bytesBefore }) => formatBytes(bytesBefore),
    sortKey: ({ bytesBefore }) => bytesBefore,
  },
  {
    key: 'after',
    label: 'After',
    numeric: true,
    text: ({ bytesAfter }) => formatBytes(bytesAfter),
    sortKey: ({ bytesAfter }) => bytesAfter,
  },
  {
    key: 'sqnr',
    label: 'SQNR',
    numeric: true,
    text: ({ error }) => (error === undefined ? '' : formatDecibels(error.sqnrDb)),
    sortKey: ({ error }) => error?.sqnrDb ?? missing,
  },
  {
    key: 'mse',
    label: 'MSE',
    numeric: true,
    text: ({ error }) => (error === undefined ? '' : formatReal(error.mse, 3)),
    sortKey: ({ error }) => error?.mse ?? missing,
  },
  {
    key: 'cosine',
    label: 'Cosine',
    numeric: true,
    text: ({ error }) => (error === undefined ? '' : error.cosine.toFixed(6)),
    sortKey: ({ error }) => error?.cosine ?? missing,
  },
  {
    key: 'max',
    label: 'Largest error',
    numeric: true,
    text: ({ error }) => (error === undefined ? '' : formatReal(error.maxAbsoluteError, 3)),
    sortKey: ({ error }) => error?.maxAbsoluteError ?? missing,
  },
];

/** Most rows shown at once. The filter reaches the others. */
const mostRows = 1000;
/** The tensors with the lowest SQNR are marked: this share of the measured ones, but at most `mostMarked`. */
const markedShare = 1 / 5;
const mostMarked = 5;

/** The table of a model's tensors. */
export interface ModelTable {
  /** Shows the tensors of a plan or of a report. `kept` names those that the visitor chose to keep. */
  show(tensors: readonly TensorReport[], kept: ReadonlySet<string>): void;
}

/** Sets up the table. The buttons in its head sort it; the box above it filters by name. */
export function startModelTable(events: {
  /** The visitor wants to see a tensor's numbers. */
  onLook(name: string): void;
  /** The visitor wants to keep a tensor, or no longer wants to keep it. */
  onKeep(name: string): void;
}): ModelTable {
  const head = byId('model-head', HTMLElement);
  const body = byId('model-rows', HTMLElement);
  const filter = byId('model-filter', HTMLInputElement);
  let tensors: readonly TensorReport[] = [];
  let kept: ReadonlySet<string> = new Set();
  let sorting: { readonly column: Column; readonly descending: boolean } | undefined;

  const headers = columns.map((column) => {
    const button = html('button', { type: 'button', class: 'link' }, column.label);
    button.addEventListener('click', () => {
      const again = sorting?.column === column;
      sorting = again && sorting?.descending === true ? undefined : { column, descending: again };
      render();
    });
    return html('th', { scope: 'col', ...(column.numeric ? { class: 'number' } : {}) }, button);
  });
  head.replaceChildren(...headers, html('th', { scope: 'col' }, 'Stays as it is'));

  const sorted = (): readonly TensorReport[] => {
    if (sorting === undefined) return tensors;
    const { column, descending } = sorting;
    return [...tensors].sort((a, b) => {
      const [left, right] = [column.sortKey(a), column.sortKey(b)];
      if (typeof left === 'string' || typeof right === 'string') {
        return String(left).localeCompare(String(right)) * (descending ? -1 : 1);
      }
      if (Number.isNaN(left) || Number.isNaN(right)) return Number(Number.isNaN(left)) - Number(Number.isNaN(right));
      return (left - right) * (descending ? -1 : 1);
    });
  };

  const row = (tensor: TensorReport, isWorst: boolean) => {
    const { name, kept: reason } = tensor;
    const look = html('button', { type: 'button', class: 'link' }, name);
    look.addEventListener('click', () => events.onLook(name));
    const cells = columns.slice(1).map((column) => {
      const mark = isWorst && column.key === 'sqnr' ? [html('span', { class: 'mark-lowest' }, ' lowest')] : [];
      return html('td', column.numeric ? { class: 'number' } : {}, column.text(tensor), ...mark);
    });
    const last = html('td', {}, reason === undefined ? '' : reason === 'rule' ? 'kept by you ' : reason);
    // Only tensors that are converted or that the visitor keeps have a button. Others are kept for a reason that cannot be changed here.
    if (reason === undefined || kept.has(name)) {
      const label = kept.has(name) ? 'Convert' : 'Keep';
      const keep = html('button', { type: 'button', 'aria-label': `${label} ${name}` }, label);
      keep.addEventListener('click', () => events.onKeep(name));
      last.append(keep);
    }
    return html('tr', isWorst ? { class: 'worst' } : {}, html('th', { scope: 'row' }, look), ...cells, last);
  };

  const render = () => {
    headers.forEach((cell, i) => {
      const column = columns[i];
      cell.ariaSort = sorting?.column !== column ? 'none' : sorting?.descending ? 'descending' : 'ascending';
    });
    const wanted = filter.value.trim().toLowerCase();
    const found = sorted().filter(({ name }) => name.toLowerCase().includes(wanted));
    const measured = tensors.filter(({ error }) => error !== undefined && Number.isFinite(error.sqnrDb));
    const worst = new Set(
      measured
        .sort((a, b) => (a.error?.sqnrDb ?? 0) - (b.error?.sqnrDb ?? 0))
        .slice(0, Math.min(mostMarked, Math.ceil(measured.length * markedShare))),
    );
    body.replaceChildren(...found.slice(0, mostRows).map((tensor) => row(tensor, worst.has(tensor))));
    const more = found.length > mostRows ? `, the first ${mostRows} shown` : '';
    const of = found.length === tensors.length ? '' : ` of ${tensors.length}`;
    setText(byId('model-found', HTMLElement), `${formatMany(found.length, 'tensor')}${of}${more}`);
  };
  filter.addEventListener('input', render);

  return {
    show(newTensors, newKept) {
      tensors = newTensors;
      kept = newKept;
      render();
    },
  };
}
