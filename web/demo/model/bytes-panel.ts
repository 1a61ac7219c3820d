// Panel *Where the bytes are*: two maps of the model on one scale, and the largest saving that is not taken.
import { type PlanOptions, planModel } from 'scalepoint/model';
import { redraw } from '../shared/charts.js';
import { byId, html, onResize, setText, svg } from '../shared/dom.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes, formatMany, formatShare } from '../shared/format.js';
import { placeInRow, widthsOf } from '../shared/labels.js';
import { announce } from '../shared/live.js';
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
import { escaped, formatFor, infoOf, type ModelChoice } from './choice.js';
import { isSaving, type State } from './state.js';
import './bytes.css';

const kindTitles: Readonly<Record<LayerKind, string>> = {
  embedding: 'Embeddings and output',
  attention: 'Attention',
  mlp: 'MLP',
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

/** Draws one map. Its width is its share of the larger one. */
function drawMap(side: Side, slices: readonly ByteSlice[], cells: Map<Element, MapCell>): void {
  const node = byId(`bytes-${side}`, SVGSVGElement);
  const { width, height } = node.getBoundingClientRect();
  if (width === 0) return;
  const all = sumOf(slices.map(sliceBytes));
  const scale = width / Math.max(1, all.before, all.after);
  const ground = height - labelHeight;
  const drawn: Element[] = [];
  const labels: { text: string; at: number }[] = [];
  let x = 0;
  for (const slice of slices) {
    const own = sliceBytes(slice)[side];
    const wide = own * scale;
    let y = 0;
    for (const kind of layerKinds) {
      const high = own === 0 ? 0 : (slice.kinds[kind][side] / own) * ground;
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
  const group = svg('g', { class: 'bytes-labels' }, ...texts);
  const words = slices.slice(0, 12).map((slice) => `${slice.label} ${formatBytes(sliceBytes(slice)[side])}`);
  const rest = slices.length > words.length ? `, and ${slices.length - words.length} more` : '';
  redraw(node, width, height, `Bytes ${side}`, `${words.join(', ')}${rest}.`, [...drawn, group]);
}

/** The table of kinds, which is the legend as well. */
function drawKinds(slices: readonly ByteSlice[]): void {
  const kinds = kindBytes(slices);
  const all = sumOf(Object.values(kinds));
  const rows = layerKinds.flatMap((kind) => {
    const { before, after } = kinds[kind];
    if (before + after === 0) return [];
    return html(
      'tr',
      {},
      html('th', { scope: 'row' }, html('span', { class: `swatch ${kind}`, 'aria-hidden': 'true' }), kindTitles[kind]),
      html('td', { class: 'number' }, formatBytes(before)),
      html('td', { class: 'number' }, formatBytes(after)),
      html('td', { class: 'number' }, formatShare(Number((after / Math.max(1, all.after)).toFixed(2)))),
    );
  });
  byId('bytes-kinds', HTMLElement).replaceChildren(...rows);
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
    const reader = format === 'safetensors' ? 'vLLM reads' : 'its readers take';
    return ` because ${reader} no codes there`;
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
      const other = await planModel([...model.files], { ...options, rules }).catch(() => undefined);
      const bytes = plan.totals.bytesAfter - (other?.totals.bytesAfter ?? Number.POSITIVE_INFINITY);
      if (bytes >= leastSaving * plan.totals.bytesAfter) return { group, to, rule: `${match}=${to}`, bytes };
    }
  }
  return undefined;
}

// -------------------------------------------------------------------------------------------------------------------------- panel

interface BytesEvents {
  options(model: ModelFile, choice: ModelChoice): Promise<PlanOptions>;
  choose(choice: ModelChoice): void;
}

function figuresOf({ slice, kind }: MapCell): string {
  const { before, after } = slice.kinds[kind];
  return `${slice.label}, ${kindTitles[kind]}: ${formatBytes(before)} become ${formatBytes(after)}.`;
}

/** Both maps, and the line of the block that the pointer is at. */
class Maps {
  readonly #pointed = byId('bytes-pointed', HTMLElement);
  readonly #before = byId('bytes-before', SVGSVGElement);
  #slices: readonly ByteSlice[] = [];
  #cells = new Map<Element, MapCell>();

  constructor(section: HTMLElement) {
    section.addEventListener('pointermove', ({ target }) => {
      this.#describe(target instanceof Element ? this.#cells.get(target) : undefined);
    });
    section.addEventListener('pointerleave', () => this.#describe(undefined));
    onResize(this.#before, () => this.#draw());
  }

  show(slices: readonly ByteSlice[]): void {
    this.#slices = slices;
    this.#draw();
  }

  #draw(): void {
    this.#cells = new Map();
    const { width } = this.#before.getBoundingClientRect();
    const shown = mergedSlices(this.#slices, width / leastWidth);
    drawMap('before', shown, this.#cells);
    drawMap('after', shown, this.#cells);
    this.#describe(undefined);
  }

  #describe(cell: MapCell | undefined): void {
    const usual = 'Both maps have one scale. Each column is a block; point at one for its figures.';
    setText(this.#pointed, cell === undefined ? (this.#slices.length === 0 ? '' : usual) : figuresOf(cell));
  }
}

/** The largest saving, with the buttons that take it and undo it. */
class SavingOffer {
  readonly #take = byId('bytes-take', HTMLButtonElement);
  readonly #undo = byId('bytes-undo', HTMLButtonElement);
  readonly #events: BytesEvents;
  readonly #current: () => State;
  #saving: Saving | undefined;
  /** The rule of the saving that was taken last. */
  #taken: string | undefined;
  #request = 0;

  constructor(events: BytesEvents, current: () => State) {
    this.#events = events;
    this.#current = current;
    this.#take.addEventListener('click', () => this.#use());
    this.#undo.addEventListener('click', () => {
      const { choice } = this.#current();
      if (choice === undefined) return;
      events.choose({ ...choice, rules: choice.rules.filter((rule) => rule !== this.#taken) });
    });
  }

  /** Finds the saving of a plan, and draws it. */
  find(state: State): void {
    const { model, plan, choice } = state;
    this.#saving = undefined;
    const own = ++this.#request;
    if (model === undefined || plan === undefined || choice === undefined) return;
    this.#events
      .options(model, choice)
      .then((options) => findSaving(state, options))
      .then((found) => {
        if (own !== this.#request) return;
        this.#saving = found;
        this.draw();
      })
      .catch(() => {});
  }

  draw(): void {
    const { model, choice, run } = this.#current();
    if (model === undefined || choice === undefined) return;
    const [saving, take, undo] = [this.#saving, this.#take, this.#undo];
    const isTaken = this.#taken !== undefined && choice.rules.includes(this.#taken);
    const works = isSaving(run);
    const focused = document.activeElement;
    take.hidden = saving === undefined;
    undo.hidden = !isTaken;
    take.disabled = works;
    undo.disabled = works;
    const none = isTaken
      ? 'This saving is in the settings.'
      : 'No large saving is left: tensors that are kept are small, or programs need them as they are.';
    setText(
      byId('bytes-saving', HTMLElement),
      saving === undefined ? none : savingText(saving, formatFor(model, choice.to)),
    );
    setText(
      take,
      saving === undefined ? 'Take it' : `Make ${saving.group.names.length === 1 ? 'it' : 'them'} ${saving.to}`,
    );
    if ((focused === take && take.hidden) || (focused === undo && undo.hidden)) {
      (take.hidden ? (undo.hidden ? byId('model-run', HTMLElement) : undo) : take).focus({ preventScroll: true });
    }
  }

  #use(): void {
    const { choice } = this.#current();
    if (this.#saving === undefined || choice === undefined) return;
    const { rule, to, group } = this.#saving;
    this.#taken = rule;
    this.#events.choose({ ...choice, rules: [rule, ...choice.rules] });
    announce(`${formatMany(group.names.length, 'tensor')} will be ${to}`, 0);
  }
}

/** Sets up the section. */
export function startBytes(events: BytesEvents, current: () => State) {
  const section = byId('bytes', HTMLElement);
  const maps = new Maps(section);
  const offer = new SavingOffer(events, current);
  return (state: State, before: State | undefined) => {
    const { plan, run, model, problem } = state;
    if (model === undefined) return;
    // Without a plan there are no bytes to show. While one is made, the section keeps its room.
    section.hidden = plan === undefined && problem !== undefined;
    const isNew = plan !== before?.plan || model !== before?.model;
    if (!isNew && run.kind === before.run.kind) return;
    if (isNew) {
      const slices = plan === undefined ? [] : slicesOf(plan.tensors);
      drawKinds(slices);
      maps.show(slices);
      offer.find(state);
    }
    offer.draw();
  };
}
