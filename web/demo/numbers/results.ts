import { byId, setText } from '../shared/dom.js';
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

/** Writes a figure as text for people, and its exact value into the `value` attribute for programs. */
function figure(id: string, words: string, value: number | undefined): void {
  const node = byId(id, HTMLDataElement);
  setText(node, words);
  if (value === undefined) node.removeAttribute('value');
  else node.value = String(value);
}

const measured = ['mse', 'rmse', 'meanAbsoluteError', 'maxAbsoluteError', 'relativeL2', 'cosine'] as const;
const everyFigure = ['sqnrDb', 'ratio', 'bitsPerWeight', 'clipped', ...measured];
const everySize = ['before', 'codes', 'scales', 'zeroPoints', 'after'] as const;

/** The type in a heading: `4 bits`, `NF4`, `Q4_0`. */
const inHeading = ({ settings }: NumbersView) =>
  settings.codes === 'integers' ? `${settings.bits} bits do` : `${typeName(settings)} does`;

/** Writes the heading, and the line under it that describes the data. */
export function showData(view: NumbersView): void {
  const { data, statistics } = view;
  setText(byId('headline', HTMLElement), `What ${inHeading(view)} to ${formatMany(countOf(data), 'number')}`);
  const facts = [
    data.title,
    ...(data.shape.length > 1 ? [formatShape(data.shape)] : []),
    `from ${formatLabel(statistics.min)} to ${formatLabel(statistics.max)}`,
    ...(data.stored.name === 'float32' ? [] : [data.stored.name]),
    ...(statistics.notFinite > 0 ? [`${formatCount(statistics.notFinite)} not finite`] : []),
  ];
  setText(byId('summary', HTMLElement), `${facts.join(' · ')}${data.note === undefined ? '' : `. ${data.note}`}`);
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

function showBytes({ bytes, exact, parts, firstZeroPoint }: Result, { data, settings }: NumbersView): void {
  for (const name of everySize) figure(`bytes-${name}`, formatBytes(bytes[name]), bytes[name]);
  setText(byId('bytes-before-name', HTMLElement), `Before, ${data.stored.name}`);
  const scales = exact ? `${formatMany(parts.count, 'scale')}, float32` : 'Scales, float32';
  setText(byId('bytes-scales-name', HTMLElement), settings.codes === 'blocks' ? 'Scales: part of the blocks' : scales);
  const constant = bytes.zeroPoints === 0;
  const always = firstZeroPoint === undefined ? 'none' : `always ${formatCode(firstZeroPoint)}`;
  setText(byId('bytes-zeroPoints-name', HTMLElement), constant ? `Zero points: ${always}` : 'Zero points');
}

/** Writes dashes in place of missing results. */
function showNothing(): void {
  for (const name of everyFigure) figure(`figure-${name}`, '–', undefined);
  for (const name of everySize) figure(`bytes-${name}`, '–', undefined);
  for (const id of ['figure-steps', 'figure-bytes', 'basis', 'short-sqnr', 'short-ratio'])
    setText(byId(id, HTMLElement), '');
}

/** Writes the error figures and the bytes, or dashes without a result. */
export function showFigures(view: NumbersView): void {
  const { result, settings, data } = view;
  byId('basis-line', HTMLElement).hidden = result === undefined;
  if (result === undefined) {
    showNothing();
    return;
  }
  const { comparison, bytes, clipped } = result;
  setText(byId('short-sqnr', HTMLElement), formatDecibels(comparison.sqnrDb));
  setText(byId('short-ratio', HTMLElement), `${formatReal(bytes.ratio, 3)}× smaller`);
  figure('figure-sqnrDb', formatDecibels(comparison.sqnrDb), comparison.sqnrDb);
  for (const name of measured) {
    const digits = name === 'cosine' ? 6 : 4;
    figure(`figure-${name}`, formatReal(comparison[name], digits), comparison[name]);
  }
  figure('figure-clipped', formatShare(clipped), clipped);
  setText(byId('figure-steps', HTMLElement), stepsOf(result, settings));
  figure('figure-ratio', `${formatReal(bytes.ratio, 3)}×`, bytes.ratio);
  setText(byId('figure-bytes', HTMLElement), `${formatBytes(bytes.before)} become ${formatBytes(bytes.after)}`);
  figure('figure-bitsPerWeight', formatReal(bytes.bitsPerWeight, 4), bytes.bitsPerWeight);
  showBytes(result, view);
  setText(byId('basis', HTMLElement), basisOf(result, countOf(data)));
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
