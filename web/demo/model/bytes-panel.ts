// Panel *Where the bytes are*: two maps of the model on one scale, and the largest saving that is not taken.
import { type PlanOptions, planModel } from 'scalepoint/model';
import { redraw } from '../shared/charts.js';
import { svg } from '../shared/dom.js';
import { formatBytes, formatMany, formatShare } from '../shared/format.js';
import { placeInRow, widthsOf } from '../shared/labels.js';
import { announce } from '../shared/live.js';
import { inputOf } from '../shared/page-files.js';
import { html, picture, remembered, type TemplateResult } from '../shared/template.js';
import {
  type ByteSlice,
  type KeptGroup,
  keptGroups,
  kindBytes,
  type LayerKind,
  layerKinds,
  mergedSlices,
  sliceBytes,
  slicesOf,
  sumOf,
} from './bytes.js';
import { escaped, formatFor, infoOf } from './choice.js';
import type { ModelSession } from './session.js';
import { isSaving, type OpenState, type State } from './state.js';
import './bytes.css';

const kindTitles: Readonly<Record<LayerKind, string>> = {
  embedding: 'Embeddings and output',
  attention: 'Attention',
  mlp: 'Feed-forward (MLP)',
  norm: 'Norms',
  other: 'Other',
};

/** Least width of a slice of the larger map, in pixels. Narrower ones are merged with their neighbors. */
const leastWidth = 9;
/** Least width of a slice with a label, in pixels. */
const leastLabeled = 4;
/** Height of the labels under a map, in pixels. */
const labelHeight = 18;
/** Least part of the result that a saving has to be worth. */
const leastSaving = 0.01;
/** Groups of kept tensors to try. */
const mostGroups = 3;
/** Types to try for them, the best first. Names are those of the formats. */
const smallerFloats = ['bfloat16', 'float16', 'BF16', 'F16', 'fp16'];

type Side = 'before' | 'after';

/** A cell of a map, for the words about it. */
interface MapCell {
  readonly slice: ByteSlice;
  readonly kind: LayerKind;
}

/** Draws one map. Its width is its share of the larger one. Adds its cells to `cells`. */
function drawMap(node: SVGSVGElement, side: Side, all: readonly ByteSlice[], cells: WeakMap<Element, MapCell>): void {
  const { width, height } = node.getBoundingClientRect();
  const slices = mergedSlices(all, width / leastWidth);
  const sum = sumOf(slices.map(sliceBytes));
  const scale = width / Math.max(1, sum.before, sum.after);
  const ground = height - labelHeight;
  const drawn: Element[] = [];
  const labels: { text: string; at: number }[] = [];
  let x = 0;
  for (const slice of slices) {
    const bytes = sliceBytes(slice)[side];
    const wide = bytes * scale;
    let y = 0;
    for (const kind of layerKinds) {
      const high = bytes === 0 ? 0 : (slice.kinds[kind][side] / bytes) * ground;
      if (high === 0) continue;
      const cell = svg('rect', {
        class: `bytes-cell ${kind}`,
        x: x.toFixed(2),
        y: y.toFixed(2),
        width: Math.max(0.5, wide).toFixed(2),
        height: high.toFixed(2),
      });
      cells.set(cell, { slice, kind });
      drawn.push(cell);
      y += high;
    }
    if (wide >= leastLabeled) labels.push({ text: slice.label, at: x + wide / 2 });
    x += wide;
  }
  // Labels of narrow slices would say nothing about the others.
  const widths = widthsOf(
    node,
    'bytes-labels',
    labels.map(({ text }) => text),
  );
  const order = labels.map((label, i) => ({ ...label, width: widths[i] ?? 0 }));
  const middles = placeInRow(order, 0, width);
  const texts = order.flatMap(({ text }, i) => {
    const middle = middles[i];
    return middle === undefined ? [] : [svg('text', { x: middle, y: height - 4, 'text-anchor': 'middle' }, text)];
  });
  const words = slices.slice(0, 12).map((slice) => `${slice.label} ${formatBytes(sliceBytes(slice)[side])}`);
  const rest = slices.length > words.length ? `, and ${slices.length - words.length} more` : '';
  const group = svg('g', { class: 'bytes-labels' }, ...texts);
  redraw(node, width, height, `Bytes ${side}`, `${words.join(', ')}${rest}.`, [...drawn, group]);
}

/** The rows of the table of kinds, which is the legend as well. */
function kindRows(slices: readonly ByteSlice[]): readonly TemplateResult[] {
  const kinds = kindBytes(slices);
  const all = sumOf(Object.values(kinds));
  return layerKinds.flatMap((kind) => {
    const { before, after } = kinds[kind];
    if (before + after === 0) return [];
    return html`<tr
      ><th scope="row"><span class="swatch ${kind}" aria-hidden="true"></span>${kindTitles[kind]}</th
      ><td class="number">${formatBytes(before)}</td
      ><td class="number">${formatBytes(after)}</td
      ><td class="number">${formatShare(Number((after / Math.max(1, all.after)).toFixed(2)))}</td
    ></tr>`;
  });
}

// ------------------------------------------------------------------------------------------------------------------------ savings

/** A saving that the choice does not take. */
interface Saving {
  readonly group: KeptGroup;
  readonly to: string;
  readonly rule: string;
  readonly bytes: number;
}

const groupNames: Readonly<Record<LayerKind, readonly [one: string, many: string]>> = {
  embedding: ['the embedding', 'embeddings'],
  attention: ['a part of attention', 'parts of attention'],
  mlp: ['a part of an MLP', 'parts of MLPs'],
  norm: ['a norm', 'norms'],
  other: ['a tensor', 'tensors'],
};

const outputNames = ['the output layer', 'output layers'] as const;

const typeNames: Readonly<Record<string, string>> = {
  F32: 'float32',
  F64: 'float64',
  F16: 'float16',
  BF16: 'bfloat16',
};

/** The cause of a reason, after *because*. Other reasons have their own words. */
function causeOf({ reason, text }: KeptGroup, format: string): string {
  if (reason === 'embedding' || reason === 'lmHead') {
    return ` because ${format === 'safetensors' ? 'vLLM expects' : 'programs expect'} floats there`;
  }
  return text === '' ? '' : ` (${text})`;
}

function savingText({ group, to, bytes }: Saving, format: string): string {
  const [one, many] = group.reason === 'lmHead' ? outputNames : groupNames[group.kind];
  const what = group.names.length === 1 ? one : `${group.names.length} ${many}`;
  const type = typeNames[group.type] ?? group.type;
  return `${formatBytes(group.bytes)} of this is ${what}, kept as ${type}${causeOf(group, format)}. Make ${group.names.length === 1 ? 'it' : 'them'} ${to}: ${formatBytes(bytes)} less.`;
}

/** Finds the largest saving by planning: the plan knows what a rule can change. */
async function findSaving(state: State, options: PlanOptions): Promise<Saving | undefined> {
  const { model, plan, choice } = state;
  if (model === undefined || plan === undefined || choice === undefined || choice.size !== undefined) return undefined;
  const known = infoOf(formatFor(model, choice.to)).ruleTargets;
  const wanted = smallerFloats.filter((to) => known.includes(to));
  for (const group of keptGroups(plan.tensors, choice.kept).slice(0, mostGroups)) {
    if (group.bytes < leastSaving * plan.totals.bytesAfter) return undefined;
    const match = `^(${group.names.map(escaped).join('|')})$`;
    for (const to of wanted) {
      const rules = [{ match, to }, ...(options.rules ?? [])];
      const other = await planModel(inputOf(model.files), { ...options, rules }).catch(() => undefined);
      const bytes = plan.totals.bytesAfter - (other?.totals.bytesAfter ?? Number.POSITIVE_INFINITY);
      if (bytes >= leastSaving * plan.totals.bytesAfter) return { group, to, rule: `${match}=${to}`, bytes };
    }
  }
  return undefined;
}

// -------------------------------------------------------------------------------------------------------------------------- panel

/** The maps, the block that the pointer is at, and the largest saving. */
export class BytesPanel {
  readonly #session: ModelSession;
  readonly #redraw: () => void;
  readonly #cells = new WeakMap<Element, MapCell>();
  readonly #slicesOf = remembered((plan: State['plan']) => (plan === undefined ? [] : slicesOf(plan.tensors)));
  #pointed: MapCell | undefined;
  /** The plan whose saving is wanted. */
  #plan: State['plan'];
  #saving: Saving | undefined;
  /** The rule of the saving that was taken last. */
  #taken: string | undefined;

  constructor(session: ModelSession, redraw: () => void) {
    this.#session = session;
    this.#redraw = redraw;
  }

  /** Finds the saving of a new plan. */
  async #find(state: OpenState): Promise<void> {
    const { model, choice, plan } = state;
    this.#plan = plan;
    this.#pointed = undefined;
    this.#saving = undefined;
    if (plan === undefined) return;
    const found = await this.#session
      .options(model, choice)
      .then((options) => findSaving(state, options))
      .catch(() => undefined);
    if (plan !== this.#plan) return;
    this.#saving = found;
    this.#redraw();
  }

  #point(cell: MapCell | undefined): void {
    if (cell === this.#pointed) return;
    this.#pointed = cell;
    this.#redraw();
  }

  #take({ rule, to, group }: Saving, { choice }: OpenState): void {
    this.#taken = rule;
    if (this.#session.choose({ ...choice, rules: [rule, ...choice.rules] }))
      announce(`${formatMany(group.names.length, 'tensor')} will be ${to}`, 0);
  }

  view(state: OpenState): TemplateResult {
    const { plan, run, model, choice, problem, isQuantized } = state;
    if (plan !== this.#plan) void this.#find(state);
    const slices = this.#slicesOf(plan);
    const [saving, taken] = [this.#saving, this.#taken];
    const isTaken = taken !== undefined && choice.rules.includes(taken);
    const noSaving = isTaken ? 'This saving is in the settings.' : 'Nothing large is left to shrink.';
    // Words about the block at the pointer.
    let words =
      slices.length === 0 ? '' : 'Drawn to the same scale. Each column is a block of the model: point at one.';
    if (this.#pointed !== undefined) {
      const { slice, kind } = this.#pointed;
      const { before, after } = slice.kinds[kind];
      words = `${slice.label}, ${kindTitles[kind]}: ${formatBytes(before)} become ${formatBytes(after)}.`;
    }
    const map = (side: Side) => picture((node: SVGSVGElement) => drawMap(node, side, slices, this.#cells), [slices]);
    // Without a plan there are no bytes to show. While one is made, the section keeps its room.
    return html`
      <section class="bytes" id="bytes" aria-labelledby="bytes-title" ?hidden=${plan === undefined && (isQuantized || problem !== undefined)}
        @pointermove=${({ target }: Event) => this.#point(target instanceof Element ? this.#cells.get(target) : undefined)}
        @pointerleave=${() => this.#point(undefined)}>
        <h2 id="bytes-title">Where the bytes are</h2>
        <div class="bytes-figures">
          <table>
            <thead><tr><th scope="col">Kind of layer</th><th scope="col" class="number">Before</th><th scope="col" class="number">After</th><th scope="col" class="number">Share</th></tr></thead>
            <tbody id="bytes-kinds">${kindRows(slices)}</tbody>
          </table>
        </div>
        <div class="bytes-maps">
          <h3>Before</h3>
          <svg class="bytes-map" id="bytes-before" role="img" ${map('before')}><title>Bytes before</title><desc>Nothing is drawn yet.</desc></svg>
          <h3>After</h3>
          <svg class="bytes-map" id="bytes-after" role="img" ${map('after')}><title>Bytes after</title><desc>Nothing is drawn yet.</desc></svg>
          <p class="hint" id="bytes-pointed">${words}</p>
        </div>
        <div class="bytes-saving">
          <p id="bytes-saving" role="status">${saving === undefined ? noSaving : savingText(saving, formatFor(model, choice.to))}</p>
          <button type="button" id="bytes-take" data-next="#bytes-undo then #model-run" ?hidden=${saving === undefined} ?disabled=${isSaving(run)}
            @click=${() => saving && this.#take(saving, state)}>${saving === undefined ? 'Take it' : `Make ${saving.group.names.length === 1 ? 'it' : 'them'} ${saving.to}`}</button>
          <button type="button" class="small" id="bytes-undo" data-next="#bytes-take then #model-run" ?hidden=${!isTaken} ?disabled=${isSaving(run)}
            @click=${() => this.#session.choose({ ...choice, rules: choice.rules.filter((rule) => rule !== taken) })}>Undo</button>
        </div>
      </section>`;
  }
}
