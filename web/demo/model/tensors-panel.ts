// Panel of the table of tensors.
import type { PlannedTensorInfo } from 'scalepoint/model';
import { formatBytes, formatDecibels, formatMany, formatReal, formatShape } from '../shared/format.js';
import { recall, remember } from '../shared/remember.js';
import type { Store } from '../shared/store.js';
import {
  breakable,
  html,
  live,
  nothing,
  picture,
  remembered,
  repeat,
  scrollBox,
  type TemplateResult,
} from '../shared/template.js';
import {
  isSaving,
  type MeasuredError,
  markedTensors,
  type OpenState,
  type SortKey,
  type State,
  shownTensors,
} from './state.js';

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

/** The columns that were chosen in an earlier visit. */
export function rememberedColumns(): ReadonlySet<SortKey> | undefined {
  const keys = recall('columns').split(' ');
  return keys[0] === '' ? undefined : new Set(columns.flatMap(({ key }) => (keys.includes(key) ? [key] : [])));
}

/** The table of tensors. Only the rows in view are in the document. */
export class TensorsPanel {
  readonly #store: Store<State>;
  readonly #events: { look(name: string): void; keep(name: string): void };
  readonly #listed = remembered(
    (
      plan: State['plan'],
      model: State['model'],
      errors: State['errors'],
      sort: State['sort'],
      filter: State['filter'],
    ) => {
      // Another list begins at its top.
      document.getElementById('model-table')?.scrollTo(0, 0);
      return shownTensors({ plan, model, errors, sort, filter });
    },
  );
  readonly #marked = remembered((plan: State['plan'], errors: State['errors']) => markedTensors({ plan, errors }));
  #frame = 0;

  /** @param events a tensor is to be shown, or kept as it is or no longer */
  constructor(store: Store<State>, events: { look(name: string): void; keep(name: string): void }) {
    this.#store = store;
    this.#events = events;
    // The list of columns lies over the table, so it closes when the visitor goes on.
    addEventListener('pointerdown', ({ target }) => {
      const menu = document.getElementById('model-columns');
      if (menu instanceof HTMLDetailsElement && target instanceof Node && !menu.contains(target)) menu.open = false;
    });
  }

  /** The list of columns to show. */
  #menuView(shown: readonly TensorColumn[]): TemplateResult {
    const choose = ({ currentTarget }: Event) => {
      const boxes = [...(currentTarget as HTMLElement).querySelectorAll('input')];
      const chosen = new Set(boxes.flatMap(({ checked, value }) => (checked ? [value as SortKey] : [])));
      remember('columns', [...chosen].join(' ') || 'none');
      this.#store.set({ columns: chosen });
    };
    const onKey = ({ key, currentTarget }: KeyboardEvent) => {
      const menu = currentTarget as HTMLDetailsElement;
      if (key !== 'Escape') return;
      menu.open = false;
      menu.querySelector('summary')?.focus();
    };
    const onLeave = ({ relatedTarget, currentTarget }: FocusEvent) => {
      const menu = currentTarget as HTMLDetailsElement;
      if (relatedTarget instanceof Node && !menu.contains(relatedTarget)) menu.open = false;
    };
    return html`
      <details class="columns" id="model-columns" @keydown=${onKey} @focusout=${onLeave}>
        <summary>Columns</summary>
        <fieldset id="model-columns-list" @change=${choose}><legend class="hidden">Columns of the table</legend>${columns
          .slice(1)
          .map(
            (column) =>
              html`<label class="check"><input type="checkbox" value=${column.key} .checked=${live(shown.includes(column))}><span>${column.label}</span></label>`,
          )}</fieldset>
      </details>`;
  }

  /** The heads of the columns. Their buttons sort: upward, downward, and as the file has it. */
  #headView({ sort }: State, shown: readonly TensorColumn[]): readonly TemplateResult[] {
    return columns.map((column) => {
      const { key, label, numeric } = column;
      const isSorted = sort.key === key;
      const next = isSorted && sort.descending ? 'order' : key;
      const order = !isSorted ? 'none' : sort.descending ? 'descending' : 'ascending';
      const change = () => this.#store.set({ sort: { key: next, descending: isSorted && !sort.descending } });
      return html`<th scope="col" class=${numeric ? 'number' : ''} aria-sort=${order} ?hidden=${!shown.includes(column)}><button type="button" class="link" @click=${change}>${label}</button></th>`;
    });
  }

  /** The button that keeps a tensor, or the reason why it stays anyway. */
  #keepView({ name, kept }: PlannedTensorInfo, { choice, plan, run }: State): TemplateResult {
    const isMine = choice?.kept.has(name) ?? false;
    // Others are kept for a reason that cannot be changed here.
    if (plan === undefined || (kept !== undefined && !isMine))
      return html`<span class="hint">${keptText(kept, choice)}</span>`;
    const label = isMine ? 'Convert' : 'Keep';
    // While a model is saved the button cannot be pressed, so that of the name takes the focus.
    return html`<button type="button" class="small" aria-label="${label} ${name}" data-keep=${name} data-next=${`[data-look="${CSS.escape(name)}"] then #model-table`}
      ?disabled=${isSaving(run)} @click=${() => this.#events.keep(name)}>${label}</button>`;
  }

  #rowView(tensor: PlannedTensorInfo, index: number, state: State, shown: readonly TensorColumn[]): TemplateResult {
    const { name, kept } = tensor;
    const measured = kept === undefined ? state.errors.get(name) : undefined;
    const isMarked = this.#marked(state.plan, state.errors).has(name);
    const cells = shown.slice(1).map((column) => {
      const isLow = column.key === 'sqnr' && isMarked;
      const classes = [column.numeric && 'number', column.isExtra && 'extra', isLow && 'low'].filter(Boolean).join(' ');
      const mark = isLow ? html`<span class="low-mark">low </span>` : nothing;
      const isUnknown = column.key === 'after' && state.plan === undefined;
      return html`<td class=${classes} data-column=${column.label}>${mark}${isUnknown ? '' : column.text(tensor, measured)}</td>`;
    });
    return html`<tr aria-rowindex=${index + 2} class=${state.look?.name === name ? 'selected' : ''}
      ><th scope="row"><button type="button" class="link name" title=${name} data-look=${name} data-next="#model-table"
        @click=${() => this.#events.look(name)}><bdi>${breakable(name)}</bdi></button></th
      >${cells}<td class="keep">${this.#keepView(tensor, state)}</td></tr>`;
  }

  /** @param report buttons below the table */
  view(state: OpenState, report: TemplateResult): TemplateResult {
    const { plan, model, errors, sort, filter } = state;
    const listed = this.#listed(plan, model, errors, sort, filter);
    const shown = shownColumns(state);
    const total = (plan?.tensors ?? model.tensors).length;
    const of = listed.length === total ? '' : ` of ${total}`;
    // Find the rows in view.
    const box = document.getElementById('model-table');
    const style = box === null ? undefined : getComputedStyle(box);
    const [base, more] = ['--row-base', '--row-extra'].map((name) =>
      Number.parseFloat(style?.getPropertyValue(name) ?? ''),
    );
    const rowHeight = (base || 40) + (more || 0) * shown.filter(({ isExtra }) => isExtra).length;
    const { scrollTop = 0, clientHeight = 0 } = box ?? {};
    const first = Math.max(0, Math.floor(scrollTop / rowHeight) - spareRows);
    const last = Math.min(listed.length, Math.ceil((scrollTop + clientHeight) / rowHeight) + spareRows);
    const space = (rows: number) =>
      html`<tr class="space" aria-hidden="true"><td colspan=${columns.length + 1} .style=${`height: ${rows * rowHeight}px`}></td></tr>`;
    const onScroll = () => {
      cancelAnimationFrame(this.#frame);
      this.#frame = requestAnimationFrame(() => this.#store.draw());
    };
    return html`
      <section aria-labelledby="tensors-title">
        <div class="head">
          <h2 id="tensors-title">Tensors</h2>
          <div class="find">
            <p class="hint" id="model-found" role="status">${formatMany(listed.length, 'tensor')}${of}</p>
            ${this.#menuView(shown)}
            <label><span class="hidden">Find a tensor</span><input type="search" id="model-filter" placeholder="Find a tensor" autocomplete="off" spellcheck="false"
              .value=${live(filter)} @input=${({ target }: Event) => this.#store.set({ filter: (target as HTMLInputElement).value })}></label>
          </div>
        </div>
        <div class="scroll table-box" id="model-table" data-name="Tensors of the model" .style=${`--row: ${rowHeight}px`} @scroll=${onScroll}
          ${scrollBox()} ${picture(() => this.#store.draw(), [])}>
          <table class="model-table" aria-rowcount=${listed.length + 1}>
            <thead><tr id="model-head">${this.#headView(state, shown)}<th scope="col"><span class="hidden">Keep</span></th></tr></thead>
            <tbody id="model-rows">${space(first)}${repeat(
              listed.slice(first, last),
              ({ name }) => name,
              (tensor, i) => this.#rowView(tensor, first + i, state, shown),
            )}${space(listed.length - last)}</tbody>
          </table>
        </div>
        <p class="hint" id="model-none" ?hidden=${listed.length > 0}>No tensor has that in its name.</p>
        ${report}
      </section>`;
  }
}
