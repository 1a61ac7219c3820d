import { drawHistogram, type HistogramView, layoutOf } from '../shared/charts.js';
import { chartView, valueAt } from '../shared/controls.js';
import {
  formatCode,
  formatCount,
  formatDecibels,
  formatLabel,
  formatMany,
  formatReal,
  formatShare,
} from '../shared/format.js';
import { html, live, noChange, type TemplateResult } from '../shared/template.js';
import { barText, drawProbe } from './probe.js';
import { partWord, typeName } from './settings.js';
import type { PageEvents, State } from './state.js';
import type { NumbersView, PartView } from './view.js';

/** Name of a part: `channel 3`, `group 12`, `block 5`; empty if there is only one. */
function partName({ settings, part, partCount, result }: NumbersView): string {
  if (part === undefined || partCount === 1) return '';
  return `${partWord(settings)} ${part.part}${result?.exact === false ? ' of the sample' : ''}`;
}

function describePart(
  { levels, levelsUsed, count, clipped }: PartView,
  name: string,
  { settings, result }: NumbersView,
) {
  const all = formatCount(levels.qmax - levels.qmin + 1);
  const facts = name === '' ? [] : [`${name[0]!.toUpperCase()}${name.slice(1)}, ${formatMany(count, 'number')}`];
  if (settings.codes === 'blocks') return [...facts, `${formatMany(levelsUsed, 'level')} in use`].join(' · ');
  const [least, most] = result?.scales ?? [];
  const others =
    least === most ? '' : ` (all ${partWord(settings)}s: ${formatLabel(least ?? 0)} to ${formatLabel(most ?? 0)})`;
  if (levels.values !== undefined) {
    const reach = Math.max(...levels.values.map(Math.abs));
    return [
      ...facts,
      `scale ${formatLabel(reach, 4)}${others}`,
      `${formatCount(levelsUsed)} of ${all} levels used`,
    ].join(' · ');
  }
  return [
    ...facts,
    `scale ${formatLabel(levels.scale, 4)}${others}`,
    `zero point ${formatCode(levels.zeroPoint)}`,
    `${formatCount(levelsUsed)} of ${all} levels used`,
    `${formatShare(clipped / count)} clipped`,
  ].join(' · ');
}

/** The line below the histogram. */
function captionOf(view: NumbersView): string {
  const { part, bars } = view;
  const words =
    part === undefined ? 'No levels: these numbers are not quantized.' : describePart(part, partName(view), view);
  return bars !== undefined && bars.min === bars.max ? `${words} · all numbers are equal` : words;
}

function histogramOf({ bars, part, settings }: NumbersView, { width, height }: DOMRect): HistogramView {
  return {
    bins: bars ?? { min: 0, max: 0, counts: [0] },
    ...(part !== undefined && { levels: part.levels }),
    logarithmic: settings.logCounts,
    width: Math.round(width),
    height: Math.round(height),
  };
}

/** The bar at a position of the pointer. */
function barAt(view: NumbersView, { clientX, currentTarget }: PointerEvent): number | undefined {
  const { bars } = view;
  if (bars === undefined) return undefined;
  const box = (currentTarget as Element).getBoundingClientRect();
  const { at } = layoutOf(histogramOf(view, box));
  const [left, right] = [at(bars.min), at(bars.max)];
  if (!(right > left)) return 0;
  const bar = Math.floor(((clientX - box.left - left) / (right - left)) * bars.counts.length);
  return bar >= 0 && bar < bars.counts.length ? bar : undefined;
}

/** Width of the histogram, which decides how many bars it has. */
let widthBefore: number | undefined;
/** The histogram that is drawn, without the chosen bar. */
let drawn: { readonly view: NumbersView; readonly width: number; readonly height: number } | undefined;

/** Draws the histogram with the levels of the part over it, and the chosen bar over both. */
function draw(node: SVGSVGElement, view: NumbersView, bar: number | undefined): void {
  const box = node.getBoundingClientRect();
  const { width, height } = box;
  const shown = histogramOf(view, box);
  // The pointer moves more often than the numbers change.
  node.querySelector('.probed')?.remove();
  if (drawn?.view !== view || drawn.width !== width || drawn.height !== height) {
    const name = partName(view);
    const levels = view.part === undefined ? '' : ' with quantization levels';
    drawHistogram(node, shown, `Histogram${name === '' ? '' : ` of ${name}`}${levels}`);
    drawn = { view, width, height };
  }
  if (view.bars === undefined || bar === undefined) return;
  const { frame, at } = layoutOf(shown);
  node.append(drawProbe(view.bars, view.part?.levels, bar, frame, at));
}

/** The panel of the histogram. The slider over it is for the keyboard and for fingers; a pointer only has to hover. */
export function histogramPanel({ view, bar: wanted }: State, { set }: PageEvents): TemplateResult {
  const bars = view?.bars;
  const bar = bars !== undefined && wanted !== undefined && wanted < bars.counts.length ? wanted : undefined;
  const words = bars === undefined || bar === undefined ? '' : barText(bars, view?.part?.levels, bar);
  const hint = view?.result === undefined && view !== undefined ? 'its numbers' : 'where its numbers went';
  const choose = (event: Event) => set({ bar: valueAt(event) });
  const focus = (event: Event) => {
    if ((event.target as Element).matches(':focus-visible')) choose(event);
  };
  const leave = () => set({ bar: undefined });
  const drawAll = (node: SVGSVGElement) => {
    if (view !== undefined) draw(node, view, bar);
    const { width } = node.getBoundingClientRect();
    if (widthBefore !== undefined && width !== widthBefore) set({}, 'resized view');
    widthBefore = width;
  };
  const result = view?.result;
  return html`<section class="panel picture" aria-labelledby="histogram-title">
    <div class="head">
      <h2 id="histogram-title">Numbers and levels</h2>
      <p class="legend" aria-hidden="true"><span class="key bar-key"></span> numbers <span class="key level-key"></span> <span>${view === undefined ? 'levels' : `levels of ${typeName(view.settings)}`}</span></p>
    </div>
    <div class="probe" @pointermove=${(event: PointerEvent) => view && set({ bar: barAt(view, event) })} @pointerleave=${leave}>
      ${chartView('histogram', drawAll, [view, bar])}
      <input type="range" id="bar" min="0" max=${Math.max(0, (bars?.counts.length ?? 0) - 1)} step="1" aria-label="Bar of the histogram" aria-valuetext=${words}
        .value=${bar === undefined ? noChange : live(String(bar))} @input=${choose} @focus=${focus} @blur=${leave}>
    </div>
    <p class=${bar === undefined ? 'probe-words' : 'probe-words asked'} id="probe-words">${words || `Point at a bar to see ${hint}.`}</p>
    <p class="caption" id="histogram-caption">${view && captionOf(view)}</p>
    <p class="in-short" aria-hidden="true"><strong>${result && formatDecibels(result.comparison.sqnrDb)}</strong> <strong>${result && `${formatReal(result.bytes.ratio, 3)}× smaller`}</strong></p>
  </section>`;
}
