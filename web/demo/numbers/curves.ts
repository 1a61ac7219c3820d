import type { QuantizeOptions, Scalepoint } from 'scalepoint';
import { byId, html, setText } from '../shared/dom.js';
import { formatDecibels, formatReal, formatShare } from '../shared/format.js';
import { drawLines, type Mark, type Series } from '../shared/lines.js';
import type { DataSet } from './data.js';
import { type Evaluation, evaluate, quantizeOptions, type Slice } from './evaluate.js';
import { partsOf } from './parts.js';
import {
  dtypeOf,
  granularityOf,
  percentile,
  type RangeMethod,
  rangeLabels,
  rangeMethods,
  type Settings,
} from './settings.js';

/** Most numbers that a curve is computed from. A sample of more numbers gives a curve of the same shape. */
const mostNumbers = 65_536;
/** Number of scales that the clipping curve tries. */
const steps = 48;
const learnedBits = [2, 3, 4, 5, 6] as const;

const sizeOf = (node: Element) => {
  const { width, height } = node.getBoundingClientRect();
  return { width: Math.round(width), height: Math.round(height) };
};

/** At most `mostNumbers` evenly spaced values. */
function thinned(values: Float32Array): Float32Array {
  const every = Math.ceil(values.length / mostNumbers);
  return every === 1 ? values : values.filter((_, i) => i % every === 0);
}

/** The `range` option of `quantize` for a method. */
export function rangeOption(method: RangeMethod): Exclude<QuantizeOptions['range'], undefined> {
  return method === 'percentile' ? { percentile } : method;
}

/**
 * Draws SQNR against the scale, for the part that the pictures show. The scales are k / 48 of the min-max scale for k = 1 to 48;
 * points at -20 dB and below are left out. Also fills the table of range methods.
 */
export function showClipping(core: Scalepoint, { settings }: Evaluation, slice: Slice): void {
  const node = byId('clipping', SVGSVGElement);
  const values = thinned(slice.values);
  const { shape, granularity, range, ...options } = quantizeOptions({ ...settings, cover: 100 }, [values.length]);
  const { rounding, ...forParameters } = options;
  const quantized = (given: QuantizeOptions['range']) =>
    core.quantize(values, { ...options, ...(given && { range: given }) });
  const whole = core.chooseQuantizationParameters(values, forParameters);
  const points = Array.from({ length: steps }, (_, i) => {
    const share = (i + 1) / steps;
    const q = quantized({ scale: whole.scale[0]! * share, zeroPoint: whole.zeroPoint[0]! });
    return { x: 100 * share, y: core.compare(values, q).sqnrDb };
  }).filter(({ y }) => y > -20);
  const marks: (Mark & { method: RangeMethod })[] = rangeMethods.map((method) => {
    const q = quantized(rangeOption(method));
    const share = q.scale[0]! / whole.scale[0]!;
    return { method, x: 100 * share, y: core.compare(values, q).sqnrDb, label: rangeLabels[method] };
  });
  const best = marks.reduce((a, b) => (b.y > a.y ? b : a));
  const told = marks.map(({ label, x, y }) => `${label}: ${formatReal(x, 3)} % of the range, ${formatDecibels(y)}`);
  const series: Series[] = [{ name: 'clipping', style: 0, points }];
  drawLines(
    node,
    { series, marks, unit: '% of the min-max step', ...sizeOf(node) },
    'SQNR against the size of the step',
    `${told.join('. ')}.`,
  );
  byId('methods', HTMLElement).replaceChildren(
    ...marks.map(({ method, label, x, y }) =>
      html(
        'tr',
        { class: method === settings.range ? 'current' : false },
        html('th', { scope: 'row' }, label),
        html('td', { class: 'number' }, `${formatReal(x, 4)}\u00a0%`),
        html('td', { class: 'number' }, formatDecibels(y)),
      ),
    ),
  );
  const gain = best.y - marks[0]!.y;
  setText(
    byId('clipping-caption', HTMLElement),
    Number.isFinite(gain) && gain > 0.005
      ? `Shorter steps err less inside and clip more outside. ${best.label[0]?.toUpperCase()}${best.label.slice(1)} gains ${formatReal(gain, 3)} dB over min-max here${slice.clipped > 0 ? `; ${formatShare(slice.clipped / slice.values.length)} is clipped now` : ''}.`
      : 'Shorter steps err less inside and clip more outside. Here nothing is gained by clipping.',
  );
}

/** Draws SQNR against bits for linear codes (with min-max and with the range of least error), learned codebooks, NF4 and FP4. */
export function showCodes(core: Scalepoint, data: DataSet, settings: Settings): void {
  const node = byId('codes', SVGSVGElement);
  const bitsOf = [2, 3, 4, 5, 6, 7, 8] as const;
  const plain = { ...settings, cover: 100 };
  const linear = (range: RangeMethod) =>
    bitsOf.map((bits) => ({
      x: bits,
      y: evaluate(core, data, { ...plain, bits, range }, mostNumbers).comparison.sqnrDb,
    }));
  // quantizeCodebook takes finite numbers only.
  const values = evaluate(core, data, plain, mostNumbers).values.filter(Number.isFinite);
  if (values.length === 0) return;
  const parts = partsOf(granularityOf(settings, data.shape.length), data.shape);
  const blockSize =
    parts.kind === 'per-group' ? parts.span : parts.kind === 'per-channel' ? parts.inner : values.length;
  const codes = (codebook: 'nf4' | 'fp4' | { learn: number }) => {
    const q = core.quantizeCodebook(values, { codebook, blockSize: Math.max(1, Math.min(blockSize, values.length)) });
    return core.compare(values, q).sqnrDb;
  };
  const series: Series[] = [
    { name: `${dtypeOf(settings).replace(/\d+/, '')}, min-max`, style: 0, points: linear('min-max') },
    { name: 'best range (mse)', style: 1, points: linear('mse') },
    {
      name: 'learned codes',
      style: 2,
      points: learnedBits.map((bits) => ({ x: bits, y: codes({ learn: 2 ** bits }) })),
    },
    { name: 'NF4', style: 3, points: [{ x: 4, y: codes('nf4') }], apart: true },
    { name: 'FP4', style: 4, points: [{ x: 4, y: codes('fp4') }], apart: true },
  ];
  const told = series.map(
    ({ name, points }) => `${name}: ${points.map(({ x, y }) => `${x} bits ${formatDecibels(y)}`).join(', ')}`,
  );
  drawLines(node, { series, marks: [], unit: 'bits', ...sizeOf(node) }, 'SQNR against bits', `${told.join('. ')}.`);
  byId('codes-legend', HTMLElement).replaceChildren(
    ...series.map(({ name, style }) => html('li', { class: `style-${style}` }, name)),
  );
}
