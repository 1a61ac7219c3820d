// Panel of the table of tensors.
import type { PlannedTensorInfo } from 'scalepoint/model';
import { byId, html, onResize, replaceKeepingFocus, setName, setText } from '../shared/dom.js';
import { formatBytes, formatDecibels, formatMany, formatReal, formatShape } from '../shared/format.js';
import { recall, remember } from '../shared/remember.js';
import type { Store } from '../shared/store.js';
import { isSaving, type MeasuredError, markedTensors, type SortKey, type State, shownTensors } from './state.js';

/** A column of the table. */
interface TensorColumn {
  readonly key: SortKey;
  readonly label: string;
  readonly numeric?: boolean;
  /** Width of the window in rem from which it is shown, unless the visitor chose the columns. */
  readonly from?: number;
  /** Not among the figures of a narrow card, unless the visitor chose it. It then has a line of its own there. */
  readonly isExtra?: boolean;
  text(tensor: PlannedTensorInfo, measured: MeasuredError | undefined): string;
}

const columns: readonly TensorColumn[] = [
  { key: 'name', label: 'Tensor', text: ({ name }) => name },
  { key: 'type', label: 'Type', text: ({ from, to }) => (from === to ? from : `${from} → ${to}`) },
  { key: 'size', label: 'Shape', numeric: true, text: ({ shape }) => formatShape(shape) },
  {
    key: 'before',
    label: 'Before',
    numeric: true,
    from: 90,
    isExtra: true,
    text: ({ bytesBefore }) => formatBytes(bytesBefore),
  },
  { key: 'after', label: 'After', numeric: true, text: ({ bytesAfter }) => formatBytes(bytesAfter) },
  {
    key: 'sqnr',
    label: 'SQNR',
    numeric: true,
    text: (_, measured) => (measured === undefined ? '' : formatDecibels(measured.error.sqnrDb)),
  },
  {
    key: 'max',
    label: 'Largest error',
    numeric: true,
    from: 110,
    isExtra: true,
    text: (_, measured) => (measured === undefined ? '' : formatReal(measured.error.maxAbsoluteError, 3)),
  },
  {
    key: 'mse',
    label: 'MSE',
    numeric: true,
    from: 110,
    isExtra: true,
    text: (_, measured) => (measured === undefined ? '' : formatReal(measured.error.mse, 3)),
  },
  {
    key: 'cosine',
    label: 'Cosine',
    numeric: true,
    from: 110,
    isExtra: true,
    text: (_, measured) => (measured === undefined ? '' : measured.error.cosine.toFixed(5)),
  },
];

/** The columns in the table: those that were chosen, or that the window has room for. The names are always there. */
function shownColumns({ columns: chosen }: Pick<State, 'columns'>): readonly TensorColumn[] {
  return columns.filter(({ key, from = 0 }) => {
    if (key === 'name') return true;
    return chosen === undefined ? from === 0 || matchMedia(`(min-width: ${from}rem)`).matches : chosen.has(key);
  });
}

/** Rows beyond the visible ones, above and below. */
const spareRows = 8;

/** The reason to keep a tensor, in the page's words. */
function keptText(kept: PlannedTensorInfo['kept'], choice: State['choice']): string {
  if (kept?.kind !== 'rule') return kept?.text ?? '';
  // These rules come from a size, not from the visitor.
  return choice?.size === undefined ? 'kept by you' : 'stays as it is';
}

/** Events of the table. */
interface TableEvents {
  /** The visitor wants to see a tensor's numbers. */
  look(name: string): void;
  /** The visitor wants to keep a tensor, or no longer. */
  keep(name: string): void;
}

/** The button that keeps a tensor, or the reason why it stays anyway. */
function lastCell({ name, kept }: PlannedTensorInfo, { choice, plan, run }: State, events: TableEvents): HTMLElement {
  const mine = choice?.kept.has(name) ?? false;
  // Others are kept for a reason that cannot be changed here.
  if (plan === undefined || (kept !== undefined && !mine)) {
    return html('td', { class: 'keep' }, html('span', { class: 'hint' }, keptText(kept, choice)));
  }
  const label = mine ? 'Convert' : 'Keep';
  const disabled = isSaving(run);
  const button = html(
    'button',
    { type: 'button', class: 'small', 'aria-label': `${label} ${name}`, 'data-keep': name, disabled: disabled && '' },
    label,
  );
  button.addEventListener('click', () => events.keep(name));
  return html('td', { class: 'keep' }, button);
}

/** A row. `isLow` marks one of the largest errors. */
function rowOf(
  tensor: PlannedTensorInfo,
  index: number,
  state: State,
  shown: readonly TensorColumn[],
  isLow: boolean,
  events: TableEvents,
) {
  const { name, kept } = tensor;
  const measured = kept === undefined ? state.errors.get(name) : undefined;
  const look = html('button', { type: 'button', class: 'link name', title: name, 'data-look': name }, html('bdi'));
  setName(look.firstElementChild as Element, name);
  look.addEventListener('click', () => events.look(name));
  const cells = shown.slice(1).map((column) => {
    const text = column.text(tensor, measured);
    const isWorst = column.key === 'sqnr' && isLow;
    const classes = [column.numeric && 'number', column.isExtra && 'extra', isWorst && 'low'].filter(Boolean).join(' ');
    const mark = isWorst ? [html('span', { class: 'low-mark' }, 'low ')] : [];
    return html('td', { class: classes || false, 'data-column': column.label }, ...mark, text);
  });
  const selected = state.look?.name === name;
  const attributes = { 'aria-rowindex': index + 2, class: selected && 'selected' };
  return html('tr', attributes, html('th', { scope: 'row' }, look), ...cells, lastCell(tensor, state, events));
}

/** A spacer in place of the rows out of view. */
function space(height: number) {
  const cell = html('td', { colspan: columns.length + 1 });
  const row = html('tr', { class: 'space', 'aria-hidden': 'true' }, cell);
  cell.style.height = `${height}px`;
  return row;
}

/** The heads of the columns. Their buttons sort: upward, downward, and as the file has it. */
function headerCells(store: Store<State>): HTMLTableCellElement[] {
  return columns.map(({ key, label, numeric }) => {
    const button = html('button', { type: 'button', class: 'link' }, label);
    button.addEventListener('click', () => {
      const { sort } = store.get();
      const again = sort.key === key;
      const descending = again ? !sort.descending : false;
      store.set({ sort: again && sort.descending ? { key: 'order', descending: false } : { key, descending } });
    });
    return html('th', { scope: 'col', class: numeric === true && 'number' }, button);
  });
}

/** Sets up the list of columns to show. */
function startColumns(store: Store<State>): void {
  const menu = byId('model-columns', HTMLDetailsElement);
  const boxes = columns.slice(1).map(({ key, label }) => {
    const box = html('input', { type: 'checkbox', value: key });
    byId('model-columns-list', HTMLElement).append(html('label', { class: 'check' }, box, html('span', {}, label)));
    box.addEventListener('change', () => {
      const chosen = new Set(boxes.filter(({ checked }) => checked).map(({ value }) => value as SortKey));
      remember('columns', [...chosen].join(' ') || 'none');
      store.set({ columns: chosen });
    });
    return box;
  });
  menu.addEventListener('toggle', () => {
    const shown = new Set<string>(shownColumns(store.get()).map(({ key }) => key));
    for (const box of boxes) box.checked = shown.has(box.value);
  });
  // The list lies over the table, so it closes when the visitor goes on.
  menu.addEventListener('keydown', ({ key }) => {
    if (key !== 'Escape') return;
    menu.open = false;
    menu.querySelector('summary')?.focus();
  });
  menu.addEventListener('focusout', ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !menu.contains(relatedTarget)) menu.open = false;
  });
  addEventListener('pointerdown', ({ target }) => {
    if (target instanceof Node && !menu.contains(target)) menu.open = false;
  });
}

/** The columns that were chosen in an earlier visit. */
function rememberedColumns(): ReadonlySet<SortKey> | undefined {
  const keys = recall('columns').split(' ');
  return keys[0] === '' ? undefined : new Set(columns.flatMap(({ key }) => (keys.includes(key) ? [key] : [])));
}

/** Sets up the table of tensors. Only the rows in view are in the document. */
export function startTable(store: Store<State>, events: TableEvents) {
  const box = byId('model-table', HTMLElement);
  const body = byId('model-rows', HTMLElement);
  const filter = byId('model-filter', HTMLInputElement);
  const headers = headerCells(store);
  byId('model-head', HTMLElement).append(
    ...headers,
    html('th', { scope: 'col' }, html('span', { class: 'hidden' }, 'Keep')),
  );
  filter.addEventListener('input', () => store.set({ filter: filter.value }));
  startColumns(store);
  const remembered = rememberedColumns();
  if (remembered !== undefined) store.set({ columns: remembered });

  let shown: readonly PlannedTensorInfo[] = [];
  let worst: ReadonlySet<string> = new Set();

  /** Draws the rows in view. The focus stays on the button that has it. */
  const drawRows = () => {
    const state = store.get();
    const columnsNow = shownColumns(state);
    for (const [i, cell] of headers.entries()) cell.hidden = !columnsNow.includes(columns[i] as TensorColumn);
    const style = getComputedStyle(box);
    const [base, more] = ['--row-base', '--row-extra'].map((name) => Number.parseFloat(style.getPropertyValue(name)));
    const extra = columnsNow.filter(({ isExtra }) => isExtra).length;
    const rowHeight = (base || 40) + (more || 0) * extra;
    box.style.setProperty('--row', `${rowHeight}px`);
    const first = Math.max(0, Math.floor(box.scrollTop / rowHeight) - spareRows);
    const last = Math.min(shown.length, Math.ceil((box.scrollTop + box.clientHeight) / rowHeight) + spareRows);
    const rows = shown
      .slice(first, last)
      .map((tensor, i) => rowOf(tensor, first + i, state, columnsNow, worst.has(tensor.name), events));
    const spaces = [space(first * rowHeight), space((shown.length - last) * rowHeight)] as const;
    // While a model is quantized the other button of a row cannot be pressed, so it does not take the focus.
    replaceKeepingFocus(body, [spaces[0], ...rows, spaces[1]], ({ keep }) => [
      body.querySelector<HTMLElement>(`[data-look="${CSS.escape(keep ?? '')}"]`),
      box,
    ]);
  };
  let frame = 0;
  box.addEventListener('scroll', () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(drawRows);
  });
  onResize(box, drawRows);

  return (state: State, before: State | undefined) => {
    const { plan, model, errors, sort, filter: wanted, look, choice, run, columns: chosen } = state;
    if (model === undefined) return;
    const same = plan === before?.plan && model === before?.model && errors === before?.errors;
    const listed = same && sort === before?.sort && wanted === before?.filter && chosen === before?.columns;
    if (listed && look?.name === before?.look?.name && choice === before?.choice && run.kind === before?.run.kind)
      return;
    if (!listed) {
      shown = shownTensors(state);
      worst = markedTensors(state);
      headers.forEach((cell, i) => {
        cell.ariaSort = sort.key !== columns[i]?.key ? 'none' : sort.descending ? 'descending' : 'ascending';
      });
      const total = (plan?.tensors ?? model.tensors).length;
      const of = shown.length === total ? '' : ` of ${total}`;
      setText(byId('model-found', HTMLElement), `${formatMany(shown.length, 'tensor')}${of}`);
      body.parentElement?.setAttribute('aria-rowcount', String(shown.length + 1));
      byId('model-none', HTMLElement).hidden = shown.length > 0;
    }
    if (filter.value !== wanted) filter.value = wanted;
    if (model !== before?.model || sort !== before?.sort || wanted !== before?.filter) box.scrollTop = 0;
    drawRows();
  };
}
