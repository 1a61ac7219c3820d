import { byId, type ElementFacts, html, markStop, showFacts } from '../shared/dom.js';
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

/** Everything that the form says about settings, by the ids of its elements. */
function factsOf(settings: Settings, { shape, parts }: ControlsContext): Readonly<Record<string, ElementFacts>> {
  const { distribution, size, bits, codes, scheme, granularity, groupSize, range, cover } = settings;
  const isInteger = codes === 'integers';
  const isSymmetric = scheme === 'symmetric';
  const levels = `${formatCount(2 ** bits)} levels`;
  const qmax = 2 ** (bits - 1) - 1;
  const part = Math.min(settings.part, parts - 1);
  const word = codes === 'blocks' ? 'block' : granularity === 'per-group' ? 'group' : 'channel';
  const rangeHint =
    settings.symmetricRange === 'restricted'
      ? `The largest magnitude falls on level ${qmax}: scale = absmax / ${qmax}.`
      : `Slightly finer steps: scale = absmax / ${qmax + 0.5}.`;
  return {
    // Numbers.
    'distribution-hint': distributions.find(({ name }) => name === distribution)?.hint ?? '',
    size: { ariaValueText: formatMany(size, 'number') },
    'size-value': formatCount(size),
    // Bits and the kind of codes.
    bits: { ariaValueText: `${bits} bits, ${levels}` },
    'bits-value': isInteger ? `${levels}, ${dtypeOf(settings)}` : `set by ${typeName(settings)}`,
    'bits-field': { '.unused': !isInteger },
    'codes-hint': codesHints[codes],
    'block-field': { hidden: codes !== 'blocks' },
    'integer-fields': { hidden: !isInteger },
    'granularity-field': { hidden: codes === 'blocks' },
    // Parts that share a scale, and the part that the pictures show.
    'axis-field': { hidden: granularity === 'per-tensor' || shape.length < 2 || !isInteger },
    'group-field': { hidden: granularity !== 'per-group' || codes === 'blocks' },
    groupSize: { ariaValueText: `${groupSize} numbers a group` },
    'group-value': formatMany(groupSize, 'number'),
    'part-field': { hidden: parts < 2 },
    'part-label': `Show ${word}`,
    'part-value': `${formatCount(part)} of 0 to ${formatCount(parts - 1)}`,
    part: { max: String(parts - 1), value: String(part), ariaValueText: `${word} ${part}` },
    // The range of the levels and its ends.
    'scheme-hint': schemeHint(settings),
    'method-hint': rangeHints[range],
    'cover-field': { hidden: range !== 'min-max' },
    cover: { ariaValueText: `${cover} percent` },
    'cover-value': `${cover} %`,
    'range-hint': isSymmetric ? rangeHint : 'For the symmetric scheme only.',
    includeZero: { disabled: isSymmetric },
    'zero-hint': isSymmetric
      ? 'For the asymmetric scheme only: symmetric levels always hold 0.'
      : 'So that 0 is restored exactly.',
  };
}

/** Makes the form show settings. Its fields have the names of the settings. */
function show(form: HTMLFormElement, settings: Settings, context: ControlsContext): void {
  const { shape } = context;
  showFacts(factsOf(settings, context));
  markStop(byId('bits-stops', HTMLElement), settings.codes === 'integers' ? bitWidths.indexOf(settings.bits) : -1);
  // Fill the list of axes. Refilling it with the same ones would close it.
  const axes = byId('axis', HTMLSelectElement);
  const labels = shape.map((length, axis) => `${axis}: ${axisName(shape.length, axis)} ${formatCount(length)} long`);
  if (axes.dataset.labels !== labels.join('\n')) {
    axes.dataset.labels = labels.join('\n');
    axes.replaceChildren(...labels.map((label, value) => html('option', { value }, label)));
  }
  for (const radio of byId('symmetricRange', HTMLElement).querySelectorAll('input'))
    radio.disabled = settings.scheme !== 'symmetric';
  const stops: Readonly<Record<string, readonly number[]>> = sliders;
  for (const [name, value] of Object.entries({ ...settings, axis: axisOf(settings, shape.length) })) {
    const field = form.elements.namedItem(name);
    if (name === 'part' || (name === 'seed' && field === document.activeElement)) continue;
    if (field instanceof RadioNodeList)
      field.value = typeof value === 'boolean' ? (value ? 'yes' : 'no') : String(value);
    else if (field instanceof HTMLInputElement && field.type === 'checkbox') field.checked = value === true;
    else if (field instanceof HTMLInputElement || field instanceof HTMLSelectElement) {
      const at = typeof value === 'number' ? stops[name]?.indexOf(value) : undefined;
      field.value = String(at ?? value);
    }
  }
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
  for (const [name, stops] of Object.entries(sliders)) input(name).max = String(stops.length - 1);
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
