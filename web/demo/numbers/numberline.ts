import { place } from '../shared/axis.js';
import { codesByWeight, redraw } from '../shared/charts.js';
import { svg } from '../shared/dom.js';
import { formatCode, formatCount, formatLabel, formatMany } from '../shared/format.js';
import { placeInRow, widthsOf } from '../shared/labels.js';
import { type Levels, levelAt } from '../shared/levels.js';
import type { LineView } from './view.js';

/** Draws numbers above, levels below, and a line from each number to the level that it is rounded to. */
export function drawNumberLine(
  node: SVGSVGElement,
  { values, restored, start, steps, total }: LineView,
  levels: Levels,
  { width, height }: { readonly width: number; readonly height: number },
): void {
  // Numbers beyond the outermost levels go to them too, so the line extends 0.6 steps beyond either end.
  const low = levelAt(levels, start - 0.6);
  const high = levelAt(levels, start + steps + 0.6);
  const at = place(low, high, 4, width - 4);
  const [top, middle] = [34, height - 82];
  let threads = '';
  const dots = svg('g', { class: 'dots' });
  for (let i = 0; i < values.length; i++) {
    const x = at(values[i]!);
    threads += `M${x.toFixed(1)} ${top}L${at(restored[i]!).toFixed(1)} ${middle}`;
    dots.append(svg('circle', { cx: x.toFixed(1), cy: top, r: 3 }));
  }
  let boundaries = '';
  const marks = svg('g', { class: 'levels' });
  for (let code = start; code <= start + steps; code++) {
    const x = at(levelAt(levels, code));
    marks.append(svg('line', { class: 'strong', x1: x, x2: x, y1: middle - 8, y2: middle + 8 }));
    if (code < start + steps) boundaries += `M${at(levelAt(levels, code + 0.5)).toFixed(1)} ${top + 10}V${middle}`;
  }
  const codes = codesByWeight(levels, start, start + steps);
  const rows = [
    ...(levels.areRanks ? [] : [{ style: 'code', y: middle + 26, texts: codes.map(formatCode) }]),
    { style: 'value', y: middle + 44, texts: codes.map((code) => formatLabel(levelAt(levels, code))) },
  ];
  for (const { style, y, texts } of rows) {
    const widths = widthsOf(node, 'levels', texts, style);
    const wanted = codes.map((code, i) => ({ at: at(levelAt(levels, code)), width: widths[i] ?? 0 }));
    for (const [i, x] of placeInRow(wanted, 0, width).entries()) {
      if (x !== undefined) marks.append(svg('text', { class: style, x, y, 'text-anchor': 'middle' }, texts[i] ?? ''));
    }
  }
  const words =
    values.length === 0
      ? `No number lies between ${formatLabel(low)} and ${formatLabel(high)}.`
      : `${formatCount(values.length)} of ${formatMany(total, 'number')} between ${formatLabel(low)} and ${formatLabel(high)}, each joined by a line to one of ${formatMany(steps + 1, 'level')}${levels.areRanks ? '' : `, ${formatCode(start)} to ${formatCode(start + steps)}`}.`;
  redraw(node, width, height, 'Number line: where numbers go', words, [
    svg(
      'g',
      { class: 'caption' },
      svg('text', { x: 4, y: 14 }, 'Numbers'),
      svg(
        'text',
        { x: 4, y: height - 4 },
        levels.areRanks ? 'Values of the levels' : 'Codes, and the values they restore',
      ),
    ),
    svg(
      'g',
      { class: 'axis' },
      svg('line', { x1: 4, x2: width - 4, y1: top, y2: top }),
      svg('line', { x1: 4, x2: width - 4, y1: middle, y2: middle }),
    ),
    svg('path', { class: 'boundaries', d: boundaries }),
    svg('path', { class: 'threads', d: threads }),
    marks,
    dots,
  ]);
}
