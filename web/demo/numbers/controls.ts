import { byId, html, setText } from '../shared/dom.js';
import { formatCount, formatMany } from '../shared/format.js';
import { distributions } from '../shared/generate.js';
import {
  axisOf,
  bitWidths,
  blockChoices,
  defaultSettings,
  dtypeOf,
  groupSizes,
  leastCover,
  percentile,
  type Settings,
  sizes,
  typeName,
} from './settings.js';

/** Facts about the data that the controls need beside the settings. */
interface ControlsContext {
  /** Shape of the current data. */
  readonly shape: readonly number[];
  /** Number of channels, groups or blocks to choose from. */
  readonly parts: number;
}

/** The form that holds the settings. */
export interface Controls {
  /** Makes the form show these settings. */
  show(settings: Settings, context: ControlsContext): void;
}

const sliders = {
  bits: bitWidths as readonly number[],
  size: sizes as readonly number[],
  groupSize: groupSizes as readonly number[],
};

const input = (id: string) => byId(id, HTMLInputElement);

/**
 * Reads the settings from the form. A field that is missing, disabled or invalid keeps its value of `before`.
 * @param control the control that was used; moving the bits means integers
 */
function readForm(form: HTMLFormElement, before: Settings, control: string): Settings {
  const fields = new FormData(form);
  const text = (name: string) => {
    const value = fields.get(name);
    return typeof value === 'string' ? value : undefined;
  };
  const chosen = <K extends keyof Settings>(name: K) => (text(name) ?? before[name]) as Settings[K];
  const stop = (name: keyof typeof sliders) => sliders[name][Number(text(name))] ?? before[name];
  const seed = input('seed');
  const axis = Number(text('axis') ?? Number.NaN);
  const grouped = before.granularity === 'per-group';
  return {
    ...before,
    distribution: chosen('distribution'),
    size: stop('size') as Settings['size'],
    seed: seed.value !== '' && seed.checkValidity() ? seed.valueAsNumber : before.seed,
    rowsDiffer: fields.has('rowsDiffer'),
    codes: control === 'bits' ? 'integers' : chosen('codes'),
    block: chosen('block'),
    bits: stop('bits') as Settings['bits'],
    signed: text('signed') === undefined ? before.signed : text('signed') === 'yes',
    scheme: chosen('scheme'),
    granularity: chosen('granularity'),
    groupSize: stop('groupSize') as Settings['groupSize'],
    range: chosen('range'),
    cover: Number(text('cover') ?? before.cover),
    rounding: chosen('rounding'),
    symmetricRange: chosen('symmetricRange'),
    includeZero: input('includeZero').disabled ? before.includeZero : fields.has('includeZero'),
    nonFinite: chosen('nonFinite'),
    part: Number(text('part') ?? before.part),
    logCounts: fields.has('logCounts'),
    // The list of axes was filled for the granularity of `before`, so its value belongs to that granularity.
    ...(!Number.isNaN(axis) &&
      before.granularity !== 'per-tensor' && { [grouped ? 'groupAxis' : 'channelAxis']: axis }),
  };
}

/** Fills a list with options. Unchanged labels are left alone, because refilling would close an open list. */
function fillOptions(select: HTMLSelectElement, labels: readonly string[]): void {
  const key = labels.join('\n');
  if (select.dataset.labels === key) return;
  select.dataset.labels = key;
  select.replaceChildren(...labels.map((label, value) => html('option', { value }, label)));
}

function showSlider(name: keyof typeof sliders, value: number, words: string): void {
  const slider = input(name);
  slider.max = String(sliders[name].length - 1);
  slider.value = String(sliders[name].indexOf(value));
  slider.setAttribute('aria-valuetext', words);
}

function showRadio(form: HTMLFormElement, name: string, value: string): void {
  for (const radio of form.querySelectorAll<HTMLInputElement>(`input[name="${name}"]`))
    radio.checked = radio.value === value;
}

/** The hint for each range method. */
const rangeHints: Readonly<Record<Settings['range'], string>> = {
  'min-max': 'The levels cover all numbers.',
  percentile: `The levels cover ${percentile} % of the numbers; the rest is clipped.`,
  mse: 'The range with the least squared error. Clipping a few numbers pays for finer steps.',
  entropy:
    'The range that changes the histogram least. Made for activations: with fewer than 2,048 numbers it is min-max.',
};

/** The hint about the scheme and its zero point. */
function schemeHint({ scheme, signed, bits }: Settings): string {
  if (scheme === 'asymmetric')
    return 'The levels span exactly the range of the numbers; the zero point is the code of 0.';
  return signed
    ? 'The levels lie evenly around 0, and the zero point is 0.'
    : `The levels lie evenly around 0, and the zero point is ${2 ** (bits - 1)}, the middle.`;
}

/** Descriptions of the kinds of codes. */
const codesHints: Readonly<Record<Settings['codes'], string>> = {
  integers: 'Evenly spaced levels.',
  nf4: '16 levels, close together where bell-shaped numbers are dense.',
  float8: 'Floats of 8 bits: fine near 0, coarse far out.',
  blocks: 'As in GGUF files: every few numbers carry their own scale.',
};

/** Shows the source of the numbers. */
function showNumbers({ distribution, size, seed, rowsDiffer }: Settings): void {
  byId('distribution', HTMLSelectElement).value = distribution;
  const hint = distributions.find(({ name }) => name === distribution)?.hint ?? '';
  setText(byId('distribution-hint', HTMLElement), hint);
  showSlider('size', size, formatMany(size, 'number'));
  setText(byId('size-value', HTMLElement), formatCount(size));
  // A field that someone is typing in is not overwritten.
  if (document.activeElement !== input('seed')) input('seed').value = String(seed);
  input('rowsDiffer').checked = rowsDiffer;
}

/** Bits and the kind of codes. */
function showCodes(form: HTMLFormElement, settings: Settings): void {
  const { bits, codes, block } = settings;
  const integers = codes === 'integers';
  showSlider('bits', bits, `${bits} bits, ${formatCount(2 ** bits)} levels`);
  const levels = `${formatCount(2 ** bits)} levels, ${dtypeOf(settings)}`;
  setText(byId('bits-value', HTMLElement), integers ? levels : `set by ${typeName(settings)}`);
  byId('bits-field', HTMLElement).classList.toggle('unused', !integers);
  for (const [i, stop] of [...byId('bits-stops', HTMLElement).children].entries()) {
    stop.classList.toggle('current', integers && bitWidths[i] === bits);
  }
  showRadio(form, 'codes', codes);
  setText(byId('codes-hint', HTMLElement), codesHints[codes]);
  byId('block-field', HTMLElement).hidden = codes !== 'blocks';
  byId('block', HTMLSelectElement).value = block;
  byId('integer-fields', HTMLElement).hidden = !integers;
  byId('granularity-field', HTMLElement).hidden = codes === 'blocks';
}

/** Parts that share a scale, and the part that the pictures show. */
function showParts(form: HTMLFormElement, settings: Settings, { shape, parts }: ControlsContext): void {
  const { granularity, groupSize, codes } = settings;
  showRadio(form, 'granularity', granularity);
  byId('axis-field', HTMLElement).hidden = granularity === 'per-tensor' || shape.length < 2 || codes !== 'integers';
  const axes = byId('axis', HTMLSelectElement);
  fillOptions(
    axes,
    shape.map((length, axis) => `${axis}: ${axisName(shape.length, axis)} ${formatCount(length)} long`),
  );
  axes.value = String(axisOf(settings, shape.length));
  byId('group-field', HTMLElement).hidden = granularity !== 'per-group' || codes === 'blocks';
  showSlider('groupSize', groupSize, `${groupSize} numbers a group`);
  setText(byId('group-value', HTMLElement), formatMany(groupSize, 'number'));
  const part = Math.min(settings.part, parts - 1);
  const word = codes === 'blocks' ? 'block' : granularity === 'per-group' ? 'group' : 'channel';
  byId('part-field', HTMLElement).hidden = parts < 2;
  setText(byId('part-label', HTMLElement), `Show ${word}`);
  setText(byId('part-value', HTMLElement), `${formatCount(part)} of 0 to ${formatCount(parts - 1)}`);
  input('part').max = String(parts - 1);
  input('part').value = String(part);
  input('part').setAttribute('aria-valuetext', `${word} ${part}`);
}

/** The range of the levels and its ends. */
function showRange(form: HTMLFormElement, settings: Settings): void {
  const { scheme, bits } = settings;
  byId('range-method', HTMLSelectElement).value = settings.range;
  setText(byId('method-hint', HTMLElement), rangeHints[settings.range]);
  byId('cover-field', HTMLElement).hidden = settings.range !== 'min-max';
  input('cover').value = String(settings.cover);
  input('cover').setAttribute('aria-valuetext', `${settings.cover} percent`);
  setText(byId('cover-value', HTMLElement), `${settings.cover} %`);
  byId('rounding', HTMLSelectElement).value = settings.rounding;
  const symmetric = scheme === 'symmetric';
  for (const radio of form.querySelectorAll<HTMLInputElement>('input[name="symmetricRange"]'))
    radio.disabled = !symmetric;
  showRadio(form, 'symmetricRange', settings.symmetricRange);
  const qmax = 2 ** (bits - 1) - 1;
  setText(
    byId('range-hint', HTMLElement),
    !symmetric
      ? 'For the symmetric scheme only.'
      : settings.symmetricRange === 'restricted'
        ? `The largest magnitude falls on level ${qmax}: scale = absmax / ${qmax}.`
        : `Slightly finer steps: scale = absmax / ${qmax + 0.5}.`,
  );
  input('includeZero').disabled = symmetric;
  input('includeZero').checked = settings.includeZero;
  setText(
    byId('zero-hint', HTMLElement),
    symmetric ? 'For the asymmetric scheme only: symmetric levels always hold 0.' : 'So that 0 is restored exactly.',
  );
}

function show(form: HTMLFormElement, settings: Settings, context: ControlsContext): void {
  showNumbers(settings);
  showCodes(form, settings);
  showParts(form, settings, context);
  showRadio(form, 'signed', settings.signed ? 'yes' : 'no');
  showRadio(form, 'scheme', settings.scheme);
  setText(byId('scheme-hint', HTMLElement), schemeHint(settings));
  showRange(form, settings);
  showRadio(form, 'nonFinite', settings.nonFinite);
  input('logCounts').checked = settings.logCounts;
}

/** The common name of an axis and a comma; empty for an axis without one. */
function axisName(dimensions: number, axis: number): string {
  if (dimensions === 2) return axis === 0 ? 'rows,' : 'columns,';
  return axis === dimensions - 1 ? 'last,' : '';
}

/**
 * Sets up the form.
 * @param current gives the settings at the time of the call
 * @param onChange called at each input event with the new settings, the name of the control, and whether it is one that moves through
 *   many values
 */
export function startControls(
  current: () => Settings,
  onChange: (settings: Settings, control: string, moving: boolean) => void,
): Controls {
  const form = byId('controls', HTMLFormElement);
  byId('distribution', HTMLSelectElement).append(
    ...distributions.map(({ name, label }) => html('option', { value: name }, label)),
  );
  byId('block', HTMLSelectElement).append(...blockChoices.map((name) => html('option', { value: name }, name)));
  byId('bits-stops', HTMLElement).append(...bitWidths.map((bits) => html('span', {}, String(bits))));
  input('cover').min = String(leastCover);
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('input', (event) => {
    const { name, type } = event.target as HTMLInputElement;
    const moving = type === 'range' || type === 'number';
    if (name !== '' && name !== 'source') onChange(readForm(form, current(), name), name, moving);
  });
  byId('another', HTMLButtonElement).addEventListener('click', () => {
    const seed = (current().seed + 1) % 1_000_000;
    onChange({ ...current(), seed }, 'another', false);
  });
  byId('reset', HTMLButtonElement).addEventListener('click', () => {
    // The data source stays: a reset of the settings must not discard a file.
    onChange({ ...defaultSettings, data: current().data }, 'reset', false);
  });
  return { show: (settings, context) => show(form, settings, context) };
}
