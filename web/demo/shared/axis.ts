import { svg } from './dom.js';
import { formatLabel } from './format.js';
import { keepInside, labelGap, widthsOf } from './labels.js';

/** Size of a chart and of its margins, in pixels. Labels go into the margins. */
export interface Frame {
  readonly width: number;
  readonly height: number;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** Maps a value to a pixel position along one axis. */
export type AxisMap = (value: number) => number;

/** Maps [low, high] linearly to the pixels `from` to `to`. If the domain has no width, every value maps to the middle. */
export function place(low: number, high: number, from: number, to: number): AxisMap {
  const width = high - low;
  if (!(width > 0)) return () => (from + to) / 2;
  return (value) => from + ((value - low) / width) * (to - from);
}

/** Round numbers in [low, high] for an axis, about `wanted` or fewer. Their distance is 1, 2 or 5 times a power of ten. */
export function ticks(low: number, high: number, wanted: number): number[] {
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((factor) => factor * power >= rough * 0.999) ?? 10) * power;
  const result: number[] = [];
  // k * step keeps 0 exactly 0, and rounding errors do not add up.
  for (let k = Math.ceil(low / step); k <= Math.floor(high / step); k++)
    result.push(Number((k * step).toPrecision(12)));
  return result;
}

/** Least distance in pixels between two numbers of an axis. */
const tickSpacing = 60;

/** As many round numbers as have room for their labels. */
function labeledTicks(chart: SVGSVGElement, { width, left, right }: Frame, at: AxisMap, low: number, high: number) {
  for (let wanted = (width - left - right) / tickSpacing; ; wanted /= 2) {
    const values = ticks(low, high, wanted);
    const widths = widthsOf(
      chart,
      'axis',
      values.map((value) => formatLabel(value)),
    );
    const labels = values.map((value, i) => {
      const half = (widths[i] ?? 0) / 2;
      return { value, half, middle: keepInside(at(value), 2 * half, 0, width) };
    });
    const isRoomy = labels.every((label, i) => {
      const before = labels[i - 1];
      return before === undefined || label.middle - label.half >= before.middle + before.half + labelGap;
    });
    if (isRoomy || wanted < 1) return isRoomy ? labels : labels.slice(0, 1);
  }
}

/** Draws a horizontal axis with numbers under it. */
export function drawAxis(chart: SVGSVGElement, frame: Frame, at: AxisMap, low: number, high: number): SVGGElement {
  const { left, width, right, height, bottom } = frame;
  const y = height - bottom;
  const group = svg('g', { class: 'axis' });
  group.append(svg('line', { x1: left, x2: width - right, y1: y + 0.5, y2: y + 0.5 }));
  for (const { value, middle } of labeledTicks(chart, frame, at, low, high)) {
    const x = at(value);
    group.append(
      svg('line', { x1: x, x2: x, y1: y, y2: y + 4 }),
      svg('text', { x: middle, y: y + 16, 'text-anchor': 'middle' }, formatLabel(value)),
    );
  }
  return group;
}
