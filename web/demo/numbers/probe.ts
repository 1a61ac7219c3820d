import type { AxisMap, Frame } from '../shared/axis.js';
import { svg } from '../shared/dom.js';
import { formatCode, formatCount, formatLabel, formatMany } from '../shared/format.js';
import { type Levels, levelAt } from '../shared/levels.js';
import { type Bars, mostShares } from './bars.js';

/** The ends of a bar. */
function endsOf({ min, max, counts }: Bars, bar: number): [number, number] {
  const step = (max - min) / counts.length;
  return [min + bar * step, min + (bar + 1) * step];
}

/** Codes in words, with their values; values alone where there are no codes. */
function codesText(levels: Levels, first: number, last = first): string {
  const all = first === last ? [first] : [first, last];
  const values = all.map((code) => formatLabel(levelAt(levels, code)));
  if (levels.areRanks) return values.join(' to ');
  const codes = all.map((code, i) => `${formatCode(code)} (${values[i]})`).join(' to ');
  return `${first === last ? 'code' : 'codes'} ${codes}`;
}

/** The floats of a bar and their codes, in words. */
export function barText(bars: Bars, levels: Levels | undefined, bar: number): string {
  const count = bars.counts[bar] ?? 0;
  const [from, to] = endsOf(bars, bar);
  const where = from === to ? `${formatLabel(from)}` : `${formatLabel(from)} to ${formatLabel(to)}`;
  const text = `${where}: ${formatMany(count, 'number')}`;
  const { codes } = bars;
  if (count === 0 || levels === undefined || codes === undefined) return text;
  const [first, last] = [codes.first[bar]!, codes.last[bar]!];
  if (first === last || last - first >= mostShares) return `${text} → ${codesText(levels, first, last)}`;
  const parts: string[] = [];
  for (let code = first; code <= last; code++) {
    const share = codes.shares[bar * mostShares + code - first]!;
    if (share > 0) parts.push(`${formatCount(share)} → ${codesText(levels, code)}`);
  }
  return `${text}: ${parts.join(', ')}`;
}

/** Draws the chosen bar and the levels that its numbers went to over the histogram. */
export function drawProbe(bars: Bars, levels: Levels | undefined, bar: number, frame: Frame, at: AxisMap): SVGGElement {
  const group = svg('g', { class: 'probed' });
  const [from, to] = endsOf(bars, bar);
  const [left, right] = from === to ? [at(from) - 3, at(from) + 3] : [at(from), at(to)];
  const ground = frame.height - frame.bottom;
  group.append(
    svg('rect', {
      class: 'probed-bar',
      x: left.toFixed(1),
      width: Math.max(1, right - left).toFixed(1),
      y: frame.top,
      height: ground - frame.top,
    }),
  );
  const { codes } = bars;
  if (levels === undefined || codes === undefined || bars.counts[bar] === 0) return group;
  const [first, last] = [codes.first[bar]!, codes.last[bar]!];
  for (let code = first; code <= Math.min(last, first + mostShares - 1); code++) {
    const x = at(levelAt(levels, code));
    group.append(svg('line', { class: 'probed-level', x1: x, x2: x, y1: frame.top - 3, y2: ground }));
  }
  return group;
}
