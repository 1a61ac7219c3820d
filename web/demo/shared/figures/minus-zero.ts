import { byId, setText, svg } from '../dom.js';
import { formatDecibels, formatLabel } from '../format.js';
import { bell } from './bell.js';
import { barPath, drawnFor, figureIn, histogram, makeHandle, sizeOf } from './figure.js';
import type { FigureState, StartFigure } from './state.js';

/** The magnitudes of float4e2m1. */
const magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
const most = 6;
/** Numbers that share a scale. */
const blockSize = 32;
const span = 6.4;

/** Histogram of the numbers, each divided by the scale of its block, as levels see them. */
function scaledHistogram(): number[] {
  const scaled = bell.map((x, i) => {
    const from = i - (i % blockSize);
    const own = bell.subarray(from, from + blockSize);
    return (x / own.reduce((largest, each) => Math.max(largest, Math.abs(each)), 0)) * most;
  });
  return histogram(scaled, -span, span, 64);
}

/** The levels of float4e2m1. The visitor drags the code for -0 to another number. */
export const startMinusZero: StartFigure = (set, current) => {
  const figure = figureIn('fig-minus-zero');
  let size = sizeOf(figure);
  const at = (value: number) => size.width / 2 + (value / span) * (size.width / 2 - 12);
  const handle = makeHandle(figure, {
    label: 'Value of the code for −0',
    min: -most,
    max: most,
    step: 0.1,
    valueAt: (x) => ((x - size.width / 2) / (size.width / 2 - 12)) * span,
    current: () => current().spare,
    // Zero is easy to find again.
    onChange: (spare) => set({ spare: Math.abs(spare) < 0.06 ? 0 : spare }),
  });
  const bars = svg('path', { class: 'bars' });
  const moving = svg('g', {});
  figure.append(bars, moving, handle.node);
  const heights = scaledHistogram();

  const draw = ({ core, spare }: FigureState) => {
    size = sizeOf(figure);
    const ground = size.height - 26;
    bars.setAttribute(
      'd',
      barPath(heights, (share) => at((share * 2 - 1) * span), ground, ground - 56),
    );
    const levels = [...magnitudes.slice(1).map((x) => -x), ...magnitudes];
    let words = '';
    if (core !== undefined) {
      const sqnrOf = (last: number) => {
        const codebook = Float32Array.from([...levels, last], (level) => level / most);
        return core.compare(bell, core.quantizeCodebook(bell, { codebook, blockSize })).sqnrDb;
      };
      const [plain, moved] = [sqnrOf(0), sqnrOf(spare)];
      const gain = moved - plain;
      words =
        spare === 0
          ? `+0 and −0 are one level: 15 levels for 16 codes, ${formatDecibels(plain)}.`
          : `A level at ${formatLabel(spare, 2)} instead of −0: ${formatDecibels(moved)}, ${formatDecibels(gain)} more.`;
    }
    moving.replaceChildren(
      svg('path', { class: 'level', d: levels.map((level) => `M${at(level).toFixed(1)} 44V${ground}`).join('') }),
      svg('line', { class: 'base', x1: 8, x2: size.width - 8, y1: ground, y2: ground }),
      ...[-6, -4, -2, 0, 2, 4, 6].map((level) =>
        svg('text', { x: at(level), y: size.height - 8, 'text-anchor': 'middle' }, formatLabel(level)),
      ),
      svg('line', { class: spare === 0 ? 'thread' : 'loss', x1: at(spare), x2: at(spare), y1: 24, y2: ground }),
    );
    handle.place(at(spare), 24, spare, words);
    setText(byId('fig-minus-zero-words', HTMLElement), words);
  };
  return drawnFor(figure, draw, current, 'spare');
};
