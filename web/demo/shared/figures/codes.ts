import type { Scalepoint } from 'scalepoint';
import { byId, setText, svg } from '../dom.js';
import { formatDecibels } from '../format.js';
import { bell } from './bell.js';
import { barPath, drawnFor, figureIn, histogram, makeHandle, sizeOf } from './figure.js';
import type { FigureState, StartFigure } from './state.js';

/** Numbers that share the largest magnitude, by which the codes are multiplied. */
const blockSize = 64;
/** Length of the track of the handle, in pixels, and its height. */
const trackLength = 220;
const trackHeight = 18;
const span = 3.6;
/** The largest magnitude of a usual block of the bell, for the picture. */
const usual = (() => {
  const largest = Array.from({ length: bell.length / blockSize }, (_, block) =>
    bell.subarray(block * blockSize, (block + 1) * blockSize).reduce((most, x) => Math.max(most, Math.abs(x)), 0),
  );
  return largest.reduce((a, b) => a + b, 0) / largest.length;
})();

/** Sixteen levels, even on both sides of 0, as NF4 has seven below and eight above. */
const even = Float32Array.from({ length: 16 }, (_, i) => (i - 7) / (i < 7 ? 7 : 8));

/** Levels between even ones and those of NF4: bend 0 and 1. */
function levelsOf(nf4: Float32Array, bend: number): Float32Array {
  return even.map((x, i) => x + (nf4[i]! - x) * bend);
}

/** Sixteen levels over a bell, from even ones to more where more numbers are. */
export const startCodes: StartFigure = (set, current) => {
  const figure = figureIn('fig-codes');
  let size = sizeOf(figure);
  let nf4: Float32Array | undefined;
  const at = (value: number) => size.width / 2 + (value / span) * (size.width / 2 - 16);
  const trackStart = () => (size.width - trackLength) / 2;
  const handle = makeHandle(figure, {
    label: 'Where the levels are',
    min: 0,
    max: 1,
    step: 0.05,
    valueAt: (x) => (x - trackStart()) / trackLength,
    current: () => current().bend,
    onChange: (bend) => set({ bend }),
  });
  const bars = svg('path', { class: 'bars' });
  const moving = svg('g', {});
  figure.append(bars, moving, handle.node);
  const heights = histogram(bell, -span, span, 80);

  const wordsOf = (core: Scalepoint, levels: Float32Array, bend: number) => {
    const q = core.quantizeCodebook(bell, { codebook: levels, blockSize });
    const where = bend < 0.03 ? 'Even levels' : bend > 0.97 ? 'NF4' : 'In between';
    return `${where}: ${formatDecibels(core.compare(bell, q).sqnrDb)} with the same 4 bits.`;
  };

  const draw = ({ core, bend }: FigureState) => {
    size = sizeOf(figure);
    // Ask the core for NF4 once.
    if (core !== undefined && nf4 === undefined) {
      const q = core.quantizeCodebook(bell.subarray(0, blockSize), { codebook: 'nf4', blockSize });
      nf4 = Float32Array.from(q.codebook);
    }
    // Draw the histogram and the levels.
    const ground = size.height - 26;
    bars.setAttribute(
      'd',
      barPath(heights, (share) => at((share * 2 - 1) * span), ground, ground - 50),
    );
    const levels = nf4 === undefined ? even : levelsOf(nf4, bend);
    const d = [...levels].map((level) => `M${at(level * usual).toFixed(1)} 40V${ground}`);
    const from = trackStart();
    moving.replaceChildren(
      svg('path', { class: 'level', d: d.join('') }),
      svg('line', { class: 'base', x1: 8, x2: size.width - 8, y1: ground, y2: ground }),
      svg('line', { class: 'track', x1: from, x2: from + trackLength, y1: trackHeight, y2: trackHeight }),
      svg('text', { x: from - 26, y: trackHeight + 5, 'text-anchor': 'end' }, 'even'),
      svg('text', { x: from + trackLength + 26, y: trackHeight + 5 }, 'NF4'),
    );
    // Say it.
    const words = core === undefined ? '' : wordsOf(core, levels, bend);
    handle.place(from + trackLength * bend, trackHeight, bend, words);
    setText(byId('fig-codes-words', HTMLElement), words);
  };
  return drawnFor(figure, draw, current, 'bend');
};
