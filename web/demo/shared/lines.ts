import { type AxisMap, drawAxis, type Frame, place, ticks } from './axis.js';
import { note, redraw } from './charts.js';
import { svg } from './dom.js';
import { formatLabel } from './format.js';
import { keepInside, type LabelSize, labelGap, measureLabels, widthsOf } from './labels.js';

/** A line of a chart, or a set of points. */
export interface Series {
  readonly name: string;
  /** Style of the line. Styles differ in dashes and in the shape of points, so that they can be distinguished without color. */
  readonly style: 0 | 1 | 2 | 3 | 4;
  readonly points: readonly { readonly x: number; readonly y: number }[];
  /** True to draw the points only, without a line between them. */
  readonly apart?: boolean;
}

/** A labeled point of a chart. */
export interface ChartMark {
  readonly x: number;
  readonly y: number;
  readonly label: string;
  /** True for the visitor's own point. */
  readonly isChosen?: boolean;
}

/** A vertical axis. */
export interface VerticalAxis {
  /** Shown at its top. */
  readonly unit: string;
  /** Positions of grid lines between two values, about `wanted` or fewer. */
  ticks(low: number, high: number, wanted: number): number[];
  /** Label of a grid line. */
  label(tick: number): string;
}

/** SQNR in dB. */
export const decibels: VerticalAxis = { unit: 'dB', ticks, label: (tick) => formatLabel(tick) };

/** Input of `drawLines`. */
export interface LinesView {
  /** The default is SQNR in dB. */
  readonly vertical?: VerticalAxis;
  /** Words for a chart without any point. */
  readonly nothing?: string;
  readonly series: readonly Series[];
  readonly marks: readonly ChartMark[];
  /** Unit of the horizontal axis, shown at its right end. */
  readonly unit: string;
  readonly width: number;
  readonly height: number;
}

const shapes = [
  'M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z',
  'M-4-4H4V4H-4Z',
  'M0-5L5 4H-5Z',
  'M0-5.5L5.5 0L0 5.5L-5.5 0Z',
  'M-4-4L4 4M-4 4L4-4',
];

/** The domain of an axis: the range of the values, widened on both sides by `air` times its width. */
function domainOf(values: readonly number[], air: number): [number, number] {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const more = (high - low) * air || Math.abs(high) * 0.1 || 1;
  return [low - more, high + more];
}

/** Values of the grid lines. */
const gridTicks = (axis: VerticalAxis, { height, top, bottom }: Frame, low: number, high: number) =>
  axis.ticks(low, high, (height - top - bottom) / 44);

/** Draws horizontal grid lines, labeled at their left ends. */
function drawGrid(axis: VerticalAxis, frame: Frame, at: AxisMap, low: number, high: number): SVGGElement {
  const group = svg('g', { class: 'grid' });
  for (const tick of gridTicks(axis, frame, low, high)) {
    const y = at(tick);
    group.append(
      svg('line', { x1: frame.left, x2: frame.width - frame.right, y1: y, y2: y }),
      svg('text', { x: frame.left - 6, y: y + 4, 'text-anchor': 'end' }, axis.label(tick)),
    );
  }
  return group;
}

/** Draws a line chart. Points whose y is not finite are left out. Returns the scale of x. */
export function drawLines(node: SVGSVGElement, view: LinesView, title: string, words: string): AxisMap | undefined {
  const { series, width, height, unit, vertical = decibels } = view;
  // Leave out marks without any error: their SQNR is infinite.
  const marks = view.marks.filter((mark) => Number.isFinite(mark.y));
  const all = [...series.flatMap(({ points }) => points), ...marks].filter((point) => Number.isFinite(point.y));
  if (all.length === 0) {
    const none = view.nothing ?? 'Every number is restored exactly.';
    redraw(node, width, height, title, none, [note(none, width / 2, height / 2)]);
    return undefined;
  }
  const [left, right] = domainOf(
    all.map(({ x }) => x),
    0.03,
  );
  const [low, high] = domainOf(
    all.map(({ y }) => y),
    0.08,
  );
  // Labels of grid lines need the most room without marks, where there are the most lines.
  const bare: Frame = { width, height, left: 34, right: 16, top: 22, bottom: 24 };
  const grid = gridTicks(vertical, bare, low, high).map((tick) => vertical.label(tick));
  const margin = Math.max(bare.left, ...widthsOf(node, 'grid', grid).map((wide) => Math.ceil(wide) + 10));
  const x = place(left, right, margin, width - bare.right);
  const sorted = [...marks].sort((a, b) => a.x - b.x);
  const sizes = measureLabels(
    node,
    'marks',
    sorted.map(({ label, isChosen }) => ({ text: label, style: isChosen === true ? 'chosen' : '' })),
  );
  const lineHeight = Math.ceil(Math.max(0, ...sizes.map((size) => size.height)));
  const labels = stacked(sorted, sizes, margin, width - bare.right, x);
  // Labels of marks are stacked above the lines, where no curve passes.
  const stack = 1 + Math.max(-1, ...labels.map(({ line }) => line));
  const frame: Frame = { ...bare, left: margin, top: bare.top + stack * lineHeight };
  const y = place(low, high, height - frame.bottom, frame.top);
  const lines = series.map(({ points, style, apart }) => {
    const drawn = points.filter((point) => Number.isFinite(point.y));
    const d = drawn.map((p, i) => `${i === 0 ? 'M' : 'L'}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join('');
    const group = svg('g', { class: `series style-${style}` });
    if (apart !== true) group.append(svg('path', { class: 'line', d }));
    if (apart === true || points.length < 12) {
      for (const p of drawn) {
        const transform = `translate(${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)})`;
        group.append(svg('path', { class: 'point', d: shapes[style] ?? '', transform }));
      }
    }
    return group;
  });
  redraw(node, width, height, title, words, [
    drawGrid(vertical, frame, y, low, high),
    ...lines,
    drawMarks(labels, lineHeight, frame, x, y),
    drawAxis(node, frame, x, left, right),
    svg('text', { class: 'unit', x: frame.left - 6, y: 12, 'text-anchor': 'end' }, vertical.unit),
    svg('text', { class: 'unit', x: width - frame.right, y: height - frame.bottom - 6, 'text-anchor': 'end' }, unit),
  ]);
  return x;
}

/** A mark whose label has its place. */
interface PlacedMark {
  readonly mark: ChartMark;
  /** The middle of the label, in pixels. */
  readonly middle: number;
  /** Index of its line of labels, from the lowest. */
  readonly line: number;
}

/** Places the labels of marks, which go from left to right. Those that would overlap are stacked, the leftmost lowest. */
function stacked(
  marks: readonly ChartMark[],
  sizes: readonly LabelSize[],
  from: number,
  to: number,
  x: AxisMap,
): PlacedMark[] {
  const ends: number[] = [];
  return marks.map((mark, i) => {
    const width = sizes[i]?.width ?? 0;
    const middle = keepInside(x(mark.x), width, from, to);
    // The first line whose last label ends before this one begins.
    const free = ends.findIndex((end) => end + labelGap <= middle - width / 2);
    const line = free < 0 ? ends.length : free;
    ends[line] = middle + width / 2;
    return { mark, middle, line };
  });
}

/** Draws the marks, each with a line to its label at the top. */
function drawMarks(
  placed: readonly PlacedMark[],
  lineHeight: number,
  frame: Frame,
  x: AxisMap,
  y: AxisMap,
): SVGGElement {
  // Lines are drawn first, so that none crosses a label.
  const group = svg('g', { class: 'marks' });
  const labels = svg('g', {});
  for (const { mark, middle, line } of placed) {
    const at = x(mark.x);
    const label = frame.top - 10 - line * lineHeight;
    group.append(
      svg('line', { x1: at, x2: at, y1: y(mark.y), y2: label + 5 }),
      svg('circle', { class: mark.isChosen === true && 'chosen', cx: at, cy: y(mark.y), r: mark.isChosen ? 6 : 5 }),
    );
    labels.append(
      svg(
        'text',
        { class: mark.isChosen === true && 'chosen', x: middle, y: label, 'text-anchor': 'middle' },
        mark.label,
      ),
    );
  }
  group.append(labels);
  return group;
}
