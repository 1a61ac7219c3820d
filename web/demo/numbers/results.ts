import type { ElementFacts } from '../shared/dom.js';
import {
  formatBytes,
  formatCode,
  formatCount,
  formatDecibels,
  formatLabel,
  formatMany,
  formatReal,
  formatShape,
  formatShare,
} from '../shared/format.js';
import { countOf } from './data.js';
import { typeName } from './settings.js';
import type { NumbersView, Result } from './view.js';

/** A figure as text for people, with its exact value in the `value` attribute for programs. */
const figure = (textContent: string, value: number | undefined): ElementFacts => ({
  textContent,
  value: value === undefined ? null : String(value),
});

const measured = ['mse', 'rmse', 'meanAbsoluteError', 'maxAbsoluteError', 'relativeL2', 'cosine'] as const;
const everyFigure = ['sqnrDb', 'ratio', 'bitsPerWeight', 'clipped', ...measured];
const everySize = ['before', 'codes', 'scales', 'zeroPoints', 'after'] as const;

/** The type in a heading: `4 bits`, `NF4`, `Q4_0`. */
const inHeading = ({ settings }: NumbersView) =>
  settings.codes === 'integers' ? `${settings.bits} bits do` : `${typeName(settings)} does`;

/** The heading, and the line under it that describes the data. */
export function dataFacts(view: NumbersView): Readonly<Record<string, ElementFacts>> {
  const { data, statistics } = view;
  const facts = [
    data.title,
    ...(data.shape.length > 1 ? [formatShape(data.shape)] : []),
    `from ${formatLabel(statistics.min)} to ${formatLabel(statistics.max)}`,
    ...(data.stored.name === 'float32' ? [] : [data.stored.name]),
    ...(statistics.notFinite > 0 ? [`${formatCount(statistics.notFinite)} not finite`] : []),
  ];
  return {
    headline: `What ${inHeading(view)} to ${formatMany(countOf(data), 'number')}`,
    summary: `${facts.join(' · ')}${data.note === undefined ? '' : `. ${data.note}`}`,
  };
}

function steps(count: number): string {
  return count > 1 ? `${formatReal(count, 3)} steps` : `${formatReal(count, 2)} of a step`;
}

/** The largest error in steps, or the kind of parts with the worst of them. */
function stepsOf({ parts, firstScale, comparison }: Result, { codes, granularity }: NumbersView['settings']): string {
  if (parts.count > 1) {
    const what = codes === 'blocks' ? 'block' : granularity === 'per-group' ? 'group' : 'channel';
    return `the worst of ${formatMany(parts.count, what)}`;
  }
  return codes === 'integers' && firstScale !== undefined ? steps(comparison.maxAbsoluteError / firstScale) : '';
}

/** The numbers that were measured, in words. */
function basisOf({ exact, used }: Result, count: number): string {
  if (!exact) return `a sample: ${formatCount(used)} of ${formatCount(count)}`;
  return used === 1 ? 'one number' : `all ${formatCount(used)} numbers`;
}

/** The error figures and the bytes, or dashes without a result. */
export function resultFacts({ result, settings, data }: NumbersView): Readonly<Record<string, ElementFacts>> {
  if (result === undefined) {
    const figures = everyFigure.map((name) => [`figure-${name}`, figure('–', undefined)]);
    const bytes = everySize.map((name) => [`bytes-${name}`, figure('–', undefined)]);
    const texts = ['figure-steps', 'figure-bytes', 'basis', 'short-sqnr', 'short-ratio'].map((id) => [id, '']);
    return { 'basis-line': { hidden: true }, ...Object.fromEntries([...figures, ...bytes, ...texts]) };
  }
  const { comparison, bytes, clipped, exact, parts, firstZeroPoint } = result;
  const digits = (name: (typeof measured)[number]) => (name === 'cosine' ? 6 : 4);
  const scales = exact ? `${formatMany(parts.count, 'scale')}, float32` : 'Scales, float32';
  const always = firstZeroPoint === undefined ? 'none' : `always ${formatCode(firstZeroPoint)}`;
  return {
    'basis-line': { hidden: false },
    basis: basisOf(result, countOf(data)),
    'short-sqnr': formatDecibels(comparison.sqnrDb),
    'short-ratio': `${formatReal(bytes.ratio, 3)}× smaller`,
    'figure-sqnrDb': figure(formatDecibels(comparison.sqnrDb), comparison.sqnrDb),
    ...Object.fromEntries(
      measured.map((name) => [`figure-${name}`, figure(formatReal(comparison[name], digits(name)), comparison[name])]),
    ),
    'figure-clipped': figure(formatShare(clipped), clipped),
    'figure-steps': stepsOf(result, settings),
    'figure-ratio': figure(`${formatReal(bytes.ratio, 3)}×`, bytes.ratio),
    'figure-bytes': `${formatBytes(bytes.before)} become ${formatBytes(bytes.after)}`,
    'figure-bitsPerWeight': figure(formatReal(bytes.bitsPerWeight, 4), bytes.bitsPerWeight),
    ...Object.fromEntries(everySize.map((name) => [`bytes-${name}`, figure(formatBytes(bytes[name]), bytes[name])])),
    'bytes-before-name': `Before, ${data.stored.name}`,
    'bytes-scales-name': settings.codes === 'blocks' ? 'Scales: part of the blocks' : scales,
    'bytes-zeroPoints-name': bytes.zeroPoints === 0 ? `Zero points: ${always}` : 'Zero points',
  };
}

/** The result in one sentence, for screen readers. */
export function sentence({ settings, result }: NumbersView): string {
  if (result === undefined) return '';
  const { comparison, bytes, exact } = result;
  const how =
    settings.codes === 'integers'
      ? [typeName(settings), settings.scheme, settings.granularity].join(', ')
      : settings.codes === 'blocks'
        ? typeName(settings)
        : `${typeName(settings)}, ${settings.granularity}`;
  return `${how}: SQNR ${formatDecibels(comparison.sqnrDb)}, largest error ${formatReal(comparison.maxAbsoluteError, 3)}, ${formatReal(bytes.ratio, 3)} times smaller${exact ? '' : ', measured on a sample'}.`;
}
