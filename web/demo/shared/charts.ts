import { drawAxis, type Frame, type Place, place } from './axis.js';
import { svg } from './dom.js';
import { formatCode, formatCount, formatLabel, formatMany, formatReal } from './format.js';
import { type Levels, levelAt } from './levels.js';

/** A histogram: counts of equally wide bins from min to max. */
export interface Bins {
  readonly min: number;
  readonly max: number;
  readonly counts: ArrayLike<number>;
}

/** What `drawHistogram` draws. */
export interface HistogramView {
  readonly bins: Bins;
  /** Quantization levels, drawn over the bars. Absent if the numbers are not quantized. */
  readonly levels?: Levels;
  /** Whether the height of a bar is log(1 + count) instead of the count. */
  readonly logarithmic: boolean;
  readonly width: number;
  readonly height: number;
}

/** Least distance in pixels between two levels that are drawn as lines. Closer levels are drawn as one band. */
const leastSpacing = 7;
/** Least distance in pixels between the labels of two codes. */
const labelSpacing = 24;
/** Width in pixels that the label "+½ step" needs. */
const labelRoom = 64;
/** Least width in pixels of a region that is labeled "clipped". */
const clippedSpacing = 64;

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
function drawBars({ bins, logarithmic }: HistogramView, frame: Frame, at: Place): SVGPathElement {
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

/** Draws each level as a line. Levels that are too close for that become a band with labels at its ends. */
function drawLevels(levels: Levels, frame: Frame, at: Place): SVGGElement {
  const { qmin, qmax, zeroPoint } = levels;
  const ground = frame.height - frame.bottom;
  const spacing = (at(levelAt(levels, qmax)) - at(levelAt(levels, qmin))) / (qmax - qmin);
  const group = svg('g', { class: 'levels' });
  const mark = (code: number, strong: boolean) => {
    const x = at(levelAt(levels, code));
    group.append(
      svg('line', { class: strong ? 'strong' : '', x1: x, x2: x, y1: frame.top - 3, y2: ground }),
      svg('text', { x, y: frame.top - 8, 'text-anchor': 'middle' }, formatCode(code)),
    );
  };
  if (spacing >= leastSpacing) {
    const every = Math.max(1, 2 ** Math.ceil(Math.log2(labelSpacing / spacing)));
    let lines = '';
    for (let code = qmin; code <= qmax; code++) {
      if ((code - zeroPoint) % every === 0) mark(code, code === zeroPoint);
      else lines += `M${at(levelAt(levels, code)).toFixed(1)} ${frame.top - 3}V${ground}`;
    }
    group.append(svg('path', { d: lines }));
  } else {
    const left = at(levelAt(levels, qmin));
    const right = at(levelAt(levels, qmax));
    group.prepend(
      svg('rect', { class: 'band', x: left, width: right - left, y: frame.top - 3, height: ground - frame.top + 3 }),
    );
    mark(qmin, true);
    mark(qmax, true);
    if (zeroPoint > qmin && zeroPoint < qmax) mark(zeroPoint, false);
  }
  return group;
}

/** Hatches the part of the data's range that is clipped, that is more than half a step beyond the outermost levels. */
function drawBeyond(view: HistogramView, frame: Frame, at: Place): SVGGElement {
  const group = svg('g', { class: 'beyond' });
  const { levels, bins } = view;
  if (levels === undefined) return group;
  const half = levels.scale / 2;
  const low = levelAt(levels, levels.qmin) - half;
  const high = levelAt(levels, levels.qmax) + half;
  const hatch = (from: number, to: number) => {
    if (to - from < 1) return;
    const y = frame.top;
    const height = frame.height - frame.bottom - y;
    group.append(svg('rect', { x: from, width: to - from, y, height, fill: 'url(#hatch)' }));
    if (to - from < clippedSpacing) return;
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
  return `${data} Over them ${levels.qmax - levels.qmin + 1} levels from ${formatLabel(levelAt(levels, levels.qmin))} to ${formatLabel(levelAt(levels, levels.qmax))}, ${formatLabel(levels.scale)} apart.`;
}

/** Draws a histogram with the quantization levels over it. */
export function drawHistogram(node: SVGSVGElement, view: HistogramView, title: string): void {
  const { width, height, levels } = view;
  const frame: Frame = { width, height, left: 12, right: 12, top: levels === undefined ? 8 : 26, bottom: 24 };
  const [low, high] = domainOf(view);
  const at = place(low, high, frame.left, width - frame.right);
  redraw(node, width, height, title, describe(view), [
    hatchPattern(),
    drawBars(view, frame, at),
    drawBeyond(view, frame, at),
    ...(levels === undefined ? [] : [drawLevels(levels, frame, at)]),
    drawAxis(frame, at, low, high),
  ]);
}

/** Draws the histogram of errors, with marks at -halfStep and halfStep. Errors beyond the marks come from clipping. */
export function drawErrors(
  node: SVGSVGElement,
  bins: Bins,
  halfStep: number,
  size: { readonly width: number; readonly height: number },
): void {
  const view: HistogramView = { bins, logarithmic: false, ...size };
  const frame: Frame = { ...size, left: 12, right: 12, top: 26, bottom: 24 };
  const reach = Math.max(Math.abs(bins.min), Math.abs(bins.max), halfStep) * 1.08 || 1;
  const at = place(-reach, reach, frame.left, size.width - frame.right);
  const marks = svg('g', { class: 'levels' });
  for (const [value, label] of [
    [-halfStep, '\u2212\u00bd step'],
    [halfStep, '+\u00bd step'],
  ] as const) {
    const x = at(value);
    // Labels extend outward, so that the two never overlap. Near the edges of the picture they extend inward.
    const outwards = value < 0 ? x > labelRoom : x < size.width - labelRoom;
    const anchor = value < 0 === outwards ? 'end' : 'start';
    marks.append(
      svg('line', { x1: x, x2: x, y1: frame.top - 3, y2: size.height - frame.bottom }),
      svg('text', { x, y: frame.top - 8, 'text-anchor': anchor }, label),
    );
  }
  const words = `${describe(view)} Half a step is ${formatReal(halfStep, 3)}.`;
  redraw(node, size.width, size.height, 'Histogram of errors, restored minus original', words, [
    drawBars(view, frame, at),
    marks,
    drawAxis(frame, at, -reach, reach),
  ]);
}
