import { type AxisMap, drawAxis, type Frame, place } from './axis.js';
import { svg } from './dom.js';
import { formatCode, formatCount, formatLabel, formatMany, formatReal } from './format.js';
import { labelGap, placeBoth, placeInRow, widthsOf } from './labels.js';
import { type Levels, levelAt } from './levels.js';

/** A histogram: counts of equally wide bins from min to max. */
export interface Bins {
  readonly min: number;
  readonly max: number;
  readonly counts: ArrayLike<number>;
}

/** Input of `drawHistogram`. */
export interface HistogramView {
  readonly bins: Bins;
  /** Quantization levels, drawn over the bars. Absent if the numbers are not quantized. */
  readonly levels?: Levels;
  /** True if the height of a bar is log(1 + count) instead of the count. */
  readonly logarithmic: boolean;
  readonly width: number;
  readonly height: number;
}

/** Least distance in pixels between two levels that are drawn as lines. Closer levels are drawn as one band. */
const leastSpacing = 7;
/** Least distance in pixels between two levels of a band that are marked. */
const leastMarked = 2;

/**
 * Number of bins for a histogram: a power of two from 16 to 256. Above 16 it is at most width / 3, so that bars are at least 3 pixels
 * wide, and at most 2 sqrt(numbers), so that the bars show more than noise.
 */
export function binsFor(numbers: number, width: number): number {
  const wanted = Math.min(256, width / 3, 2 * Math.sqrt(numbers));
  return Math.max(16, 2 ** Math.floor(Math.log2(wanted)));
}

/** The domain of the horizontal axis. It holds all bins and all levels, with a margin at either end. */
function domainOf({ bins, levels }: HistogramView): [number, number] {
  let low = bins.min;
  let high = bins.max;
  if (levels !== undefined) {
    low = Math.min(low, levelAt(levels, levels.qmin));
    high = Math.max(high, levelAt(levels, levels.qmax));
  }
  const air = (high - low) * 0.015 || Math.abs(high) * 0.1 || 1;
  return [low - air, high + air];
}

/**
 * Draws all bars as one path. Hundreds of elements would be slow to replace while a slider moves, and their antialiased edges would
 * show as gray lines.
 */
function drawBars({ bins, logarithmic }: HistogramView, frame: Frame, at: AxisMap): SVGPathElement {
  const { counts, min, max } = bins;
  const scaled = (count: number) => (logarithmic ? Math.log1p(count) : count);
  let highest = 1;
  for (let i = 0; i < counts.length; i++) highest = Math.max(highest, counts[i]!);
  const ground = frame.height - frame.bottom;
  // If all values are equal, min == max. A bar of 6 pixels around the value stands for them.
  const edge = (i: number) => (max > min ? at(min + (i / counts.length) * (max - min)) : at(min) + (i === 0 ? -3 : 3));
  let path = `M${edge(0).toFixed(1)} ${ground}`;
  for (let i = 0; i < counts.length; i++) {
    // A bin that is not empty stays visible, however low its bar.
    const height = counts[i] === 0 ? 0 : Math.max(1.5, (scaled(counts[i]!) / scaled(highest)) * (ground - frame.top));
    path += `V${(ground - height).toFixed(1)}H${edge(i + 1).toFixed(1)}`;
  }
  return svg('path', { class: 'bars', d: `${path}V${ground}` });
}

/** Draws one level as a line with its code above, at `middle` if there is room for it. */
function drawLevel(levels: Levels, code: number, x: number, middle: number | undefined, frame: Frame): SVGElement[] {
  const { top, height, bottom } = frame;
  // The level of 0 is stronger, so that it is found at once.
  const strong = levelAt(levels, code) === 0;
  const line = svg('line', { class: strong ? 'strong' : '', x1: x, x2: x, y1: top - 3, y2: height - bottom });
  if (middle === undefined) return [line];
  return [line, svg('text', { x: middle, y: top - 8, 'text-anchor': 'middle' }, formatCode(code))];
}

/** Evenly spaced codes that have room for labels: the one of 0, and every second, fourth ... from there. */
function labeledCodes(chart: SVGSVGElement, { qmin, qmax, zeroPoint }: Levels, spacing: number): number[] {
  // No code has more characters than one of the ends.
  const widest = Math.max(...widthsOf(chart, 'levels', [formatCode(qmin), formatCode(qmax)]));
  const every = Math.max(1, 2 ** Math.ceil(Math.log2((widest + labelGap) / spacing)));
  const first = qmin + ((((zeroPoint - qmin) % every) + every) % every);
  return Array.from({ length: Math.max(0, Math.floor((qmax - first) / every) + 1) }, (_, i) => first + i * every);
}

/** A band in place of levels that are too close, with labels at its ends, and at the level of 0 where that leaves room. */
function drawBand(chart: SVGSVGElement, levels: Levels, frame: Frame, at: AxisMap): SVGGElement {
  const { qmin, qmax, zeroPoint, areRanks } = levels;
  const x = (code: number) => at(levelAt(levels, code));
  const y = frame.top - 3;
  const group = svg('g', { class: 'levels' });
  const [low = 0, high = 0, zero = 0] = widthsOf(chart, 'levels', [qmin, qmax, zeroPoint].map(formatCode));
  const ends = placeBoth(
    [
      { at: x(qmin), width: low },
      { at: x(qmax), width: high },
    ],
    0,
    frame.width,
  );
  group.append(
    svg('rect', { class: 'band', x: x(qmin), width: x(qmax) - x(qmin), y, height: frame.height - frame.bottom - y }),
    ...drawLevel(levels, qmin, x(qmin), areRanks ? undefined : ends[0], frame),
    ...drawLevel(levels, qmax, x(qmax), areRanks ? undefined : ends[1], frame),
  );
  if (levels.values !== undefined || x(qmax) - x(qmin) >= leastMarked * (qmax - qmin)) {
    let marks = '';
    for (let code = qmin; code <= qmax; code++) marks += `M${x(code).toFixed(1)} ${y}v9`;
    group.append(svg('path', { class: 'marks', d: marks }));
  }
  if (zeroPoint > qmin && zeroPoint < qmax) {
    const middle = x(zeroPoint);
    const isFree = middle - ends[0] >= (low + zero) / 2 + labelGap && ends[1] - middle >= (high + zero) / 2 + labelGap;
    group.append(...drawLevel(levels, zeroPoint, middle, isFree && !areRanks ? middle : undefined, frame));
  }
  return group;
}

/** Codes from the lowest on, but that of 0 first. */
export function codesByWeight(levels: Levels, from: number, to: number): number[] {
  const all = Array.from({ length: to - from + 1 }, (_, i) => from + i);
  return all.sort((a, b) => Number(levelAt(levels, b) === 0) - Number(levelAt(levels, a) === 0));
}

/** Draws each level as a line. Levels that are too close for that become a band with labels at its ends. */
function drawLevels(chart: SVGSVGElement, levels: Levels, frame: Frame, at: AxisMap): SVGGElement {
  const { qmin, qmax, values, areRanks } = levels;
  const spacing = (at(levelAt(levels, qmax)) - at(levelAt(levels, qmin))) / Math.max(1, qmax - qmin);
  // Uneven levels are crowded in the middle and far apart elsewhere.
  const least = values === undefined ? leastSpacing : leastSpacing / 3;
  if (spacing < least && qmax > qmin) return drawBand(chart, levels, frame, at);
  const group = svg('g', { class: 'levels' });
  let codes: number[] = [];
  if (values === undefined && spacing > 0) codes = labeledCodes(chart, levels, spacing);
  else if (!areRanks) codes = codesByWeight(levels, qmin, qmax);
  const widths = widthsOf(chart, 'levels', codes.map(formatCode));
  const wanted = codes.map((code, i) => ({ at: at(levelAt(levels, code)), width: widths[i] ?? 0 }));
  const middles = placeInRow(wanted, 0, frame.width);
  const labeled = new Map(codes.flatMap((code, i) => (middles[i] === undefined ? [] : [[code, middles[i]]])));
  let lines = '';
  for (let code = qmin; code <= qmax; code++) {
    const x = at(levelAt(levels, code));
    if (labeled.has(code) || levelAt(levels, code) === 0)
      group.append(...drawLevel(levels, code, x, labeled.get(code), frame));
    else lines += `M${x.toFixed(1)} ${frame.top - 3}V${frame.height - frame.bottom}`;
  }
  group.append(svg('path', { d: lines }));
  return group;
}

/** Hatches the part of the data's range that is clipped, that is more than half a step beyond the outermost levels. */
function drawBeyond(chart: SVGSVGElement, view: HistogramView, frame: Frame, at: AxisMap): SVGGElement {
  const group = svg('g', { class: 'beyond' });
  const { levels, bins } = view;
  // Levels of a list reach the largest magnitude of their block, so nothing lies beyond them.
  if (levels === undefined || levels.values !== undefined) return group;
  const half = levels.scale / 2;
  const low = levelAt(levels, levels.qmin) - half;
  const high = levelAt(levels, levels.qmax) + half;
  const [room = 0] = widthsOf(chart, 'beyond', ['clipped']);
  const hatch = (from: number, to: number) => {
    if (to - from < 1) return;
    const y = frame.top;
    const height = frame.height - frame.bottom - y;
    group.append(svg('rect', { x: from, width: to - from, y, height, fill: 'url(#hatch)' }));
    if (to - from < room + 2 * labelGap) return;
    group.append(svg('text', { x: (from + to) / 2, y: y + 20, 'text-anchor': 'middle' }, 'clipped'));
  };
  if (bins.min < low) hatch(at(bins.min), at(low));
  if (bins.max > high) hatch(at(high), at(bins.max));
  return group;
}

const hatchPattern = () =>
  svg(
    'defs',
    {},
    svg(
      'pattern',
      { id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      svg('line', { x1: 0, x2: 0, y1: 0, y2: 6 }),
    ),
  );

/** Replaces the content of a chart. Its title and desc elements, which screen readers use, stay and get new text. */
export function redraw(
  node: SVGSVGElement,
  width: number,
  height: number,
  title: string,
  desc: string,
  drawn: Node[],
): void {
  node.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const [oldTitle, oldDesc] = [node.querySelector('title'), node.querySelector('desc')];
  if (oldTitle === null || oldDesc === null) throw new TypeError('a chart needs a title and a desc in the markup');
  oldTitle.textContent = title;
  oldDesc.textContent = desc;
  node.replaceChildren(oldTitle, oldDesc, ...drawn);
}

/** Words in a chart that has nothing else to show. */
export function note(words: string, x: number, y: number): SVGTextElement {
  return svg('text', { class: 'note', x, y, 'text-anchor': 'middle' }, words);
}

/** Describes a histogram in words, for screen readers. */
function describe({ bins, levels }: HistogramView): string {
  const { counts, min, max } = bins;
  let total = 0;
  let fullest = 0;
  for (let i = 0; i < counts.length; i++) {
    total += counts[i]!;
    if (counts[i]! > counts[fullest]!) fullest = i;
  }
  const middle = min + ((fullest + 0.5) / counts.length) * (max - min);
  const data = `${formatMany(total, 'number')} from ${formatLabel(min)} to ${formatLabel(max)} in ${formatMany(counts.length, 'bin')}. The fullest bin, near ${formatLabel(middle, 2)}, holds ${formatCount(counts[fullest] ?? 0)}.`;
  if (levels === undefined) return data;
  return `${data} Over them ${formatCount(levels.qmax - levels.qmin + 1)} levels from ${formatLabel(levelAt(levels, levels.qmin))} to ${formatLabel(levelAt(levels, levels.qmax))}, ${levels.values === undefined ? formatLabel(levels.scale) : 'unevenly'} apart.`;
}

/** Layout of a histogram in its picture: its margins, and the position of a value. */
export function layoutOf(view: HistogramView): { frame: Frame; at: AxisMap; low: number; high: number } {
  const { width, height, levels } = view;
  const frame: Frame = { width, height, left: 12, right: 12, top: levels === undefined ? 8 : 26, bottom: 24 };
  const [low, high] = domainOf(view);
  return { frame, at: place(low, high, frame.left, width - frame.right), low, high };
}

/** Draws a histogram with the quantization levels over it. */
export function drawHistogram(node: SVGSVGElement, view: HistogramView, title: string): void {
  const { width, height, levels } = view;
  const { frame, at, low, high } = layoutOf(view);
  redraw(node, width, height, title, describe(view), [
    hatchPattern(),
    drawBars(view, frame, at),
    drawBeyond(node, view, frame, at),
    ...(levels === undefined ? [] : [drawLevels(node, levels, frame, at)]),
    drawAxis(node, frame, at, low, high),
  ]);
}

/** Draws the histogram of errors, with marks at -halfStep and halfStep. Errors beyond the marks come from clipping. */
export function drawErrors(
  node: SVGSVGElement,
  bins: Bins,
  halfStep: number | undefined,
  size: { readonly width: number; readonly height: number },
): void {
  const view: HistogramView = { bins, logarithmic: false, ...size };
  const frame: Frame = { ...size, left: 12, right: 12, top: 26, bottom: 24 };
  const reach = Math.max(Math.abs(bins.min), Math.abs(bins.max), halfStep ?? 0) * 1.08 || 1;
  const at = place(-reach, reach, frame.left, size.width - frame.right);
  const marks = svg('g', { class: 'levels' });
  if (halfStep !== undefined) {
    const texts = ['\u2212\u00bd step', '+\u00bd step'] as const;
    const [low = 0, high = 0] = widthsOf(node, 'levels', texts);
    const xs = [at(-halfStep), at(halfStep)] as const;
    // Labels extend outward. Near the edges of the picture they move inward.
    const wanted = [
      { at: xs[0] - low / 2, width: low },
      { at: xs[1] + high / 2, width: high },
    ] as const;
    const middles = placeBoth(wanted, 0, size.width);
    for (const [i, text] of texts.entries()) {
      const x = xs[i]!;
      marks.append(
        svg('line', { x1: x, x2: x, y1: frame.top - 3, y2: size.height - frame.bottom }),
        svg('text', { x: middles[i]!, y: frame.top - 8, 'text-anchor': 'middle' }, text),
      );
    }
  }
  const none = bins.min === 0 && bins.max === 0;
  const step = halfStep === undefined ? '' : ` Half a step is ${formatReal(halfStep, 3)}.`;
  const words = none ? 'Every number is restored exactly.' : `${describe(view)}${step}`;
  redraw(node, size.width, size.height, 'Histogram of errors, restored minus original', words, [
    none ? note(words, size.width / 2, size.height / 2) : drawBars(view, frame, at),
    marks,
    drawAxis(node, frame, at, -reach, reach),
  ]);
}
