import { drawErrors, drawHistogram, type HistogramView, layoutOf } from '../shared/charts.js';
import { byId, showFacts } from '../shared/dom.js';
import { formatCode, formatCount, formatLabel, formatMany, formatShare } from '../shared/format.js';
import { drawLines } from '../shared/lines.js';
import { drawNumberLine } from './numberline.js';
import { drawProbe, showProbe, tellBar } from './probe.js';
import { typeName } from './settings.js';
import type { NumbersView, PartView, ViewRequest } from './view.js';

const sizeOf = (id: string) => {
  const { width, height } = byId(id, SVGSVGElement).getBoundingClientRect();
  return { width: Math.round(width), height: Math.round(height) };
};

/** The widths that decide how much the pictures can show. */
export function widthsNow(): ViewRequest['widths'] {
  return { histogram: sizeOf('histogram').width, line: sizeOf('numberline').width, errors: sizeOf('errors').width };
}

/** Name of a part: `channel 3`, `group 12`, `block 5`; empty if there is only one. */
function partName({ settings, part, partCount, result }: NumbersView): string {
  if (part === undefined || partCount === 1) return '';
  const kind = settings.codes === 'blocks' ? 'block' : settings.granularity === 'per-group' ? 'group' : 'channel';
  return `${kind} ${part.part}${result?.exact === false ? ' of the sample' : ''}`;
}

function describePart(
  { levels, levelsUsed, count, clipped }: PartView,
  name: string,
  settings: NumbersView['settings'],
) {
  const all = formatCount(levels.qmax - levels.qmin + 1);
  const facts = name === '' ? [] : [`${name[0]!.toUpperCase()}${name.slice(1)}, ${formatMany(count, 'number')}`];
  if (settings.codes === 'blocks') return [...facts, `${formatMany(levelsUsed, 'level')} in use`].join(' · ');
  if (levels.values !== undefined) {
    const reach = Math.max(...levels.values.map(Math.abs));
    return [...facts, `scale ${formatLabel(reach, 4)}`, `${formatCount(levelsUsed)} of ${all} levels used`].join(' · ');
  }
  return [
    ...facts,
    `scale ${formatLabel(levels.scale, 4)}`,
    `zero point ${formatCode(levels.zeroPoint)}`,
    `${formatCount(levelsUsed)} of ${all} levels used`,
    `${formatShare(clipped / count)} clipped`,
  ].join(' · ');
}

function histogramView({ bars, part, settings }: NumbersView): HistogramView {
  return {
    bins: bars ?? { min: 0, max: 0, counts: [0] },
    ...(part !== undefined && { levels: part.levels }),
    logarithmic: settings.logCounts,
    ...sizeOf('histogram'),
  };
}

/** Draws the histogram with the levels of the part over it. */
export function showHistogram(view: NumbersView): void {
  const { part, bars, settings } = view;
  const name = partName(view);
  const title = `Histogram${name === '' ? '' : ` of ${name}`}${part === undefined ? '' : ' with quantization levels'}`;
  drawHistogram(byId('histogram', SVGSVGElement), histogramView(view), title);
  const words = part === undefined ? 'No levels: these numbers are not quantized.' : describePart(part, name, settings);
  const same = bars !== undefined && bars.min === bars.max ? ' · all numbers are equal' : '';
  showFacts({ 'level-legend': `levels of ${typeName(settings)}`, 'histogram-caption': `${words}${same}` });
}

/** The bar at a position, which is a share of the picture's width. */
export function barAt(view: NumbersView, share: number): number | undefined {
  const { bars } = view;
  if (bars === undefined) return undefined;
  const { frame, at } = layoutOf(histogramView(view));
  const x = share * frame.width;
  const [left, right] = [at(bars.min), at(bars.max)];
  if (!(right > left)) return 0;
  const bar = Math.floor(((x - left) / (right - left)) * bars.counts.length);
  return bar >= 0 && bar < bars.counts.length ? bar : undefined;
}

/** Shows which codes the numbers of a bar became; undefined shows none. */
export function showBar(view: NumbersView, bar: number | undefined): void {
  const { bars, part } = view;
  const node = byId('histogram', SVGSVGElement);
  node.querySelector('.probed')?.remove();
  const chosen = bars !== undefined && bar !== undefined && bar < bars.counts.length ? bar : undefined;
  if (bars === undefined || chosen === undefined) {
    showProbe(bars?.counts.length ?? 0, undefined, '', part !== undefined);
    return;
  }
  const { frame, at } = layoutOf(histogramView(view));
  node.append(drawProbe(bars, part?.levels, chosen, frame, at));
  showProbe(bars.counts.length, chosen, tellBar(bars, part?.levels, chosen), part !== undefined);
}

/** Draws the number line, and sets its slider. */
export function showLine({ line, part }: NumbersView): void {
  if (line === undefined || part === undefined) return;
  const { qmin, qmax } = part.levels;
  const room = qmax - qmin - line.steps;
  showFacts({
    'window-field': { hidden: room === 0 },
    window: { max: String(room), value: String(line.start - qmin), ariaValueText: `codes from ${line.start}` },
  });
  drawNumberLine(byId('numberline', SVGSVGElement), line, part.levels, sizeOf('numberline'));
}

/** Draws the histogram of errors. */
export function showErrors({ errors, part }: NumbersView): void {
  if (errors === undefined || part === undefined) return;
  const halfStep = part.levels.values === undefined ? part.levels.scale / 2 : undefined;
  drawErrors(byId('errors', SVGSVGElement), errors, halfStep, sizeOf('errors'));
}

/** Draws SQNR against bits for several kinds of codes. */
export function showCurves({ codes }: Pick<NumbersView, 'codes'>): void {
  if (codes === undefined) return;
  const text = codes.map(
    ({ name, points }) =>
      `${name}: ${points.map(({ x, y }) => `${x} bits ${formatLabel(Number(y.toFixed(2)), 5)} dB`).join(', ')}`,
  );
  const view = { series: codes, marks: [], unit: 'bits', ...sizeOf('codes') };
  drawLines(byId('codes', SVGSVGElement), view, 'SQNR against bits', `${text.join('. ')}.`);
}
