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
import type { DataSet, Statistics } from './data.js';
import type { Evaluation } from './evaluate.js';

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

/** Writes the heading, and the line under it that describes the data. */
export function showData(data: DataSet, statistics: Statistics, bits: number): void {
  const { values, shape } = data;
  setText(byId('headline', HTMLElement), `What ${bits} bits do to ${formatMany(values.length, 'number')}`);
  const facts = [
    data.title,
    ...(shape.length > 1 ? [formatShape(shape)] : []),
    `from ${formatLabel(statistics.min)} to ${formatLabel(statistics.max)}`,
    ...(data.stored.name === 'float32' ? [] : [data.stored.name]),
    ...(statistics.notFinite > 0 ? [`${formatCount(statistics.notFinite)} not finite`] : []),
  ];
  setText(byId('summary', HTMLElement), `${facts.join(' · ')}${data.note === undefined ? '' : `. ${data.note}`}`);
}

function steps(count: number): string {
  return count > 1 ? `${formatReal(count, 3)} steps` : `${formatReal(count, 2)} of a step`;
}

/** Writes the error figures and the bytes, or dashes if there is no evaluation. */
export function showFigures(data: DataSet, evaluation: Evaluation | undefined): void {
  if (evaluation === undefined) {
    for (const name of everyFigure) figure(`figure-${name}`, '–', undefined);
    for (const name of everySize) figure(`bytes-${name}`, '–', undefined);
    for (const id of ['figure-steps', 'figure-bytes', 'basis']) setText(byId(id, HTMLElement), '');
    return;
  }
  const { comparison, bytes, parts, clipped, values, scale } = evaluation;
  figure('figure-sqnrDb', formatDecibels(comparison.sqnrDb), comparison.sqnrDb);
  for (const name of measured) {
    const digits = name === 'cosine' ? 6 : 4;
    figure(`figure-${name}`, formatReal(comparison[name], digits), comparison[name]);
  }
  figure('figure-clipped', formatShare(clipped / values.length), clipped / values.length);
  setText(
    byId('figure-steps', HTMLElement),
    parts.count === 1
      ? steps(comparison.maxAbsoluteError / scale[0]!)
      : `the worst of ${formatCount(parts.count)} ${parts.kind === 'per-group' ? 'groups' : 'channels'}`,
  );
  figure('figure-ratio', `${formatReal(bytes.ratio, 3)}×`, bytes.ratio);
  setText(byId('figure-bytes', HTMLElement), `${formatBytes(bytes.before)} become ${formatBytes(bytes.after)}`);
  figure('figure-bitsPerWeight', formatReal(bytes.bitsPerWeight, 4), bytes.bitsPerWeight);
  for (const name of everySize) figure(`bytes-${name}`, formatBytes(bytes[name]), bytes[name]);
  setText(byId('bytes-before-name', HTMLElement), `Before, ${data.stored.name}`);
  const scales = formatMany(parts.count, 'scale');
  setText(byId('bytes-scales-name', HTMLElement), evaluation.exact ? `${scales}, float32` : 'Scales, float32');
  setText(
    byId('bytes-zeroPoints-name', HTMLElement),
    bytes.zeroPoints === 0 ? `Zero points: always ${formatCode(evaluation.zeroPoint[0]!)}` : 'Zero points',
  );
  setText(
    byId('basis', HTMLElement),
    evaluation.exact
      ? values.length === 1
        ? 'one number'
        : `all ${formatCount(values.length)} numbers`
      : `a sample: ${formatCount(values.length)} of ${formatCount(data.values.length)}`,
  );
}

/** The result in one sentence, for screen readers. */
export function sentence(evaluation: Evaluation): string {
  const { dtype, settings, comparison, bytes, exact } = evaluation;
  return `${dtype}, ${settings.scheme}, ${settings.granularity}: SQNR ${formatDecibels(comparison.sqnrDb)}, largest error ${formatReal(comparison.maxAbsoluteError, 3)}, ${formatReal(bytes.ratio, 3)} times smaller${exact ? '' : ', measured on a sample'}.`;
}
