import { choiceView, listView, sliderView, switchView } from '../shared/controls.js';
import { copy } from '../shared/copy.js';
import { formatCount, formatMany } from '../shared/format.js';
import { distributions } from '../shared/generate.js';
import { html, noChange, nothing, type TemplateResult } from '../shared/template.js';
import {
  axisOf,
  bitWidths,
  blockChoices,
  defaultSettings,
  dtypeOf,
  groupSizes,
  leastCover,
  partWord,
  percentile,
  type Settings,
  sizes,
  typeName,
} from './settings.js';
import type { PageEvents, State } from './state.js';

const ranges = {
  'min-max': 'Min-max',
  percentile: 'Percentile, 99.9 %',
  mse: 'Least squared error',
  entropy: 'Entropy',
} as const;

const roundings = {
  onnx: 'ONNX: round(x / s) + z',
  fused: 'Fused: round(x / s + z)',
  reciprocal: 'Reciprocal: round(x · (1 / s)) + z',
} as const;

const blocks = Object.fromEntries(blockChoices.map((name) => [name, name])) as Record<Settings['block'], string>;

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

/** The hint about the ends of the symmetric range. */
function symmetricHint({ scheme, symmetricRange, bits }: Settings): string {
  if (scheme !== 'symmetric') return 'For the symmetric scheme only.';
  const qmax = 2 ** (bits - 1) - 1;
  return symmetricRange === 'restricted'
    ? `The largest magnitude falls on level ${qmax}: scale = absmax / ${qmax}.`
    : `Slightly finer steps: scale = absmax / ${qmax + 0.5}.`;
}

/** Descriptions of the kinds of codes. */
const codesHints: Readonly<Record<Settings['codes'], string>> = {
  integers: 'Evenly spaced levels.',
  nf4: '16 levels, close together where bell-shaped numbers are dense.',
  float8: 'Floats of 8 bits: fine near 0, coarse far out.',
  blocks: 'As in GGUF files: every few numbers carry their own scale.',
};

/** The common name of an axis and a comma; empty for an axis without one. */
function axisName(dimensions: number, axis: number): string {
  if (dimensions === 2) return axis === 0 ? 'rows,' : 'columns,';
  return axis === dimensions - 1 ? 'last,' : '';
}

/** The form of the settings. @param source the part of it that chooses the numbers */
export function controlsView(
  { settings, view }: State,
  { change }: PageEvents,
  source: TemplateResult,
): TemplateResult {
  const { bits, codes, scheme, granularity, groupSize, cover, signed, seed } = settings;
  const isInteger = codes === 'integers';
  const levels = `${formatCount(2 ** bits)} levels`;
  const shape = view?.data.shape ?? [];
  const parts = view?.partCount ?? 1;
  const part = Math.min(settings.part, parts - 1);
  const word = partWord(settings);
  const fieldOf = <Name extends keyof Settings>(name: Name) => ({
    chosen: settings[name],
    choose: (value: Settings[Name]) => change({ [name]: value }, name),
  });
  const isOn = (name: 'includeZero' | 'rowsDiffer' | 'logCounts') => ({
    id: name,
    isOn: settings[name],
    toggle: (value: boolean) => change({ [name]: value }, name),
  });
  const sow = ({ target }: Event) => {
    const field = target as HTMLInputElement;
    if (field.value !== '' && field.checkValidity()) change({ seed: field.valueAsNumber }, 'seed', true);
  };
  const integerFields = () => html`<div class="fields">
    ${choiceView({ name: 'scheme', legend: 'Scheme', options: { symmetric: 'Symmetric', asymmetric: 'Asymmetric' }, hint: schemeHint(settings), ...fieldOf('scheme') })}
    ${choiceView({
      name: 'signed',
      legend: 'Integers',
      options: { yes: 'Signed', no: 'Unsigned' },
      chosen: signed ? 'yes' : 'no',
      choose: (value) => change({ signed: value === 'yes' }, 'signed'),
    })}
    ${
      granularity === 'per-tensor' || shape.length < 2
        ? nothing
        : listView({
            id: 'axis',
            label: 'Axis',
            options: Object.fromEntries(
              shape.map((length, axis) => [
                axis,
                `${axis}: ${axisName(shape.length, axis)} ${formatCount(length)} long`,
              ]),
            ),
            chosen: String(axisOf(settings, shape.length)),
            choose: (axis) =>
              change({ [granularity === 'per-group' ? 'groupAxis' : 'channelAxis']: Number(axis) }, 'axis'),
          })
    }
    ${listView({ id: 'range-method', name: 'range', label: 'Range', options: ranges, hint: rangeHints[settings.range], ...fieldOf('range') })}
    ${
      settings.range === 'min-max'
        ? sliderView({
            id: 'cover',
            label: 'Levels cover',
            min: leastCover,
            max: 100,
            at: cover,
            words: `${cover} percent`,
            value: `${cover} %`,
            hint: 'Covering less of the range makes finer steps, but clips the farthest numbers.',
            slide: (value) => change({ cover: value }, 'cover', true),
          })
        : nothing
    }
    ${listView({ id: 'rounding', label: 'Rounding', options: roundings, hint: 's is the scale, z the zero point. The three differ only halfway between two levels.', ...fieldOf('rounding') })}
    ${choiceView({
      name: 'symmetricRange',
      legend: 'Symmetric range',
      options: { restricted: 'Restricted', full: 'Full' },
      hint: symmetricHint(settings),
      isDisabled: scheme !== 'symmetric',
      ...fieldOf('symmetricRange'),
    })}
    ${switchView({
      label: 'Widen the range to hold 0',
      isDisabled: scheme === 'symmetric',
      hint:
        scheme === 'symmetric'
          ? 'For the asymmetric scheme only: symmetric levels always hold 0.'
          : 'So that 0 is restored exactly.',
      ...isOn('includeZero'),
    })}
    ${choiceView({ name: 'nonFinite', legend: 'NaN and infinities', options: { error: 'Refuse', saturate: 'Saturate' }, ...fieldOf('nonFinite') })}
  </div>`;
  return html`<form class="controls" id="controls" aria-label="Settings" @submit=${(event: Event) => event.preventDefault()}>
    ${sliderView({
      id: 'bits',
      label: 'Bits',
      isBig: true,
      isUnused: !isInteger,
      max: bitWidths.length - 1,
      at: bitWidths.indexOf(bits),
      words: `${bits} bits, ${levels}`,
      value: isInteger ? `${levels}, ${dtypeOf(settings)}` : `set by ${typeName(settings)}`,
      stops: bitWidths,
      slide: (at) => change({ codes: 'integers', bits: bitWidths[at] ?? bits }, 'bits', true),
    })}
    ${choiceView({ name: 'codes', legend: 'Codes', options: { integers: 'Integers', nf4: 'NF4', float8: 'Float8', blocks: 'Blocks' }, hint: codesHints[codes], ...fieldOf('codes') })}
    ${codes === 'blocks' ? listView({ id: 'block', label: 'Type of block', options: blocks, ...fieldOf('block') }) : nothing}
    <div class="fields" ?hidden=${codes === 'blocks'}>
      ${choiceView({ name: 'granularity', legend: 'One scale for each', options: { 'per-tensor': 'Tensor', 'per-channel': 'Channel', 'per-group': 'Group' }, hint: 'The scale is the distance of two levels. A tensor is all of the numbers, a channel a row or a column.', ...fieldOf('granularity') })}
      ${
        granularity === 'per-group'
          ? sliderView({
              id: 'groupSize',
              label: 'Group size',
              max: groupSizes.length - 1,
              at: groupSizes.indexOf(groupSize),
              words: `${groupSize} numbers a group`,
              value: formatMany(groupSize, 'number'),
              slide: (at) => change({ groupSize: groupSizes[at] ?? groupSize }, 'groupSize', true),
            })
          : nothing
      }
    </div>
    ${
      parts < 2
        ? nothing
        : sliderView({
            id: 'part',
            label: `Show ${word}`,
            max: parts - 1,
            at: part,
            words: `${word} ${part}`,
            value: `${formatCount(part)} of 0 to ${formatCount(parts - 1)}`,
            slide: (at) => change({ part: at }, 'part', true),
          })
    }
    ${source}
    <details class="more" id="more">
      <summary>More settings</summary>
      <div class="fields">
        ${isInteger ? integerFields() : nothing}
        <div class="row">
          <label class="field">Seed of the made numbers
            <input type="number" name="seed" id="seed" min="0" max="999999" step="1" inputmode="numeric" @input=${sow}
              .value=${document.activeElement?.id === 'seed' ? noChange : String(seed)}>
          </label>
          <button type="button" id="another" @click=${() => change({ seed: (seed + 1) % 1_000_000 }, 'another')}>Draw again</button>
        </div>
        ${switchView({ label: 'Rows of different magnitude, like the channels of a trained layer', ...isOn('rowsDiffer') })}
        ${switchView({ label: 'Bars on a logarithmic scale', ...isOn('logCounts') })}
      </div>
    </details>
    <div class="row">
      <button type="button" id="link" @click=${() => void copy(location.href, 'Link')}>Copy link</button>
      <button type="button" id="reset" @click=${() => change({ ...defaultSettings, data: settings.data }, 'reset')}>Reset</button>
    </div>
  </form>`;
}

/** The settings of made numbers. */
export function generatorView({ distribution, size }: Settings, { change }: PageEvents): TemplateResult {
  return html`
    ${listView({
      id: 'distribution',
      label: 'Distribution',
      options: Object.fromEntries(distributions.map(({ name, label }) => [name, label])),
      chosen: distribution as string,
      hint: distributions.find(({ name }) => name === distribution)?.hint ?? '',
      choose: (chosen) => change({ distribution: chosen as Settings['distribution'] }, 'distribution'),
    })}
    ${sliderView({
      id: 'size',
      label: 'How many',
      max: sizes.length - 1,
      at: sizes.indexOf(size),
      words: formatMany(size, 'number'),
      value: formatCount(size),
      slide: (at) => change({ size: sizes[at] ?? size }, 'size', true),
    })}`;
}
