import type { Scalepoint } from 'scalepoint';
import { byId, setText, svg } from '../dom.js';
import { formatDecibels, formatLabel, formatShare } from '../format.js';
import { bell, reach } from './bell.js';
import { barPath, drawnFor, figureIn, histogram, makeHandle, sizeOf } from './figure.js';
import type { FigureState, StartFigure } from './state.js';

/** The largest code of 4 bits. */
const qmax = 7;
const span = 5;
/** Steps of the curve under the histogram. */
const curveSteps = 60;

/** Signal over noise with a scale around zero, by the core. */
function sqnrOf(core: Scalepoint, scale: number): number {
  const range = { scale, zeroPoint: 0 };
  return core.compare(bell, core.quantize(bell, { dtype: 'int4', range })).sqnrDb;
}

/** The SQNR of every scale. */
function curveOf(core: Scalepoint): { scale: number; sqnr: number }[] {
  return Array.from({ length: curveSteps }, (_, i) => {
    const scale = ((i + 1) / curveSteps) * (span / qmax);
    return { scale, sqnr: sqnrOf(core, scale) };
  });
}

/** Hatched areas more than half a step beyond the outermost levels. */
function clippedNodes(scale: number, at: (value: number) => number, ground: number): Node[] {
  const area = (from: number, to: number) =>
    to <= from ? [] : [svg('rect', { class: 'clipped', x: from, y: 34, width: to - from, height: ground - 34 })];
  return [...area(at(-reach), at(-8.5 * scale)), ...area(at(7.5 * scale), at(reach))];
}

/** Levels over a histogram. The visitor drags the outermost level, and with it the scale. */
export const startScale: StartFigure = (set, current) => {
  const figure = figureIn('fig-scale');
  let size = sizeOf(figure);
  const at = (value: number) => size.width / 2 + (value / span) * (size.width / 2 - 16);
  const scaleAt = (x: number) => (((x - size.width / 2) / (size.width / 2 - 16)) * span) / qmax;
  const handle = makeHandle(figure, {
    label: 'The largest level',
    min: 0.05,
    max: span / qmax,
    step: 0.01,
    valueAt: scaleAt,
    current: () => current().scale,
    onChange: (scale) => set({ scale }),
  });
  const bars = svg('path', { class: 'bars' });
  const moving = svg('g', {});
  figure.append(bars, moving, handle.node);
  let curve: readonly { scale: number; sqnr: number }[] = [];
  const heights = histogram(bell, -span, span, 80);

  const draw = ({ core, scale }: FigureState) => {
    size = sizeOf(figure);
    // Draw the histogram and the levels over it.
    const ground = size.height - 96;
    bars.setAttribute(
      'd',
      barPath(heights, (share) => at((share * 2 - 1) * span), ground, ground - 40),
    );
    const levels = [];
    for (let code = -8; code <= qmax; code++) {
      const x = at(code * scale);
      if (x >= 0 && x <= size.width) levels.push(`M${x.toFixed(1)} 34V${ground}`);
    }
    if (core !== undefined && curve.length === 0) curve = curveOf(core);
    // Draw the curve of the quality, and where it is now.
    const floor = size.height - 20;
    const yOf = (sqnr: number) => floor - (Math.max(0, sqnr) / 22) * 58;
    const line = curve.map(
      (point, i) => `${i === 0 ? 'M' : 'L'}${at(point.scale * qmax).toFixed(1)} ${yOf(point.sqnr).toFixed(1)}`,
    );
    const sqnr = core === undefined ? undefined : sqnrOf(core, scale);
    moving.replaceChildren(
      ...clippedNodes(scale, at, ground),
      svg('path', { class: 'level', d: levels.join('') }),
      svg('line', { class: 'base', x1: 8, x2: size.width - 8, y1: ground, y2: ground }),
      svg('path', { class: 'curve', d: line.join('') }),
      svg('text', { x: 8, y: floor - 44 }, 'quality'),
      ...(sqnr === undefined ? [] : [svg('circle', { class: 'spot', cx: at(scale * qmax), cy: yOf(sqnr), r: 6 })]),
    );
    // Count the clipped numbers, and say it.
    let beyond = 0;
    for (const x of bell) if (x > 7.5 * scale || x < -8.5 * scale) beyond++;
    const words = `Scale ${formatLabel(scale, 2)}: ${sqnr === undefined ? '' : `quality ${formatDecibels(sqnr)}, `}${formatShare(beyond / bell.length)} clipped`;
    handle.place(at(scale * qmax), 34, scale, words);
    setText(byId('fig-scale-words', HTMLElement), `${words}.`);
  };
  return drawnFor(figure, draw, current, 'scale');
};
