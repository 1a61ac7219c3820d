import { formatDecibels, formatLabel } from '../format.js';
import { svg } from '../template.js';
import { bell } from './bell.js';
import { barPath, type Figure, histogram, linesPath } from './figure.js';

/** The magnitudes of float4e2m1. */
const magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
const levels = [...magnitudes.slice(1).map((x) => -x), ...magnitudes];
const most = 6;
/** Numbers that share a scale. */
const blockSize = 32;
const span = 6.4;

/** Histogram of the numbers, each divided by the scale of its block, as levels see them. */
const heights = (() => {
  const scaled = bell.map((x, i) => {
    const from = i - (i % blockSize);
    const block = bell.subarray(from, from + blockSize);
    return (x / block.reduce((largest, each) => Math.max(largest, Math.abs(each)), 0)) * most;
  });
  return histogram(scaled, -span, span, 64);
})();

/** The levels of float4e2m1. The visitor drags the code for -0 to another number. */
export const minusZero: Figure = {
  name: 'minus-zero',
  label: 'Value of the code for −0',
  min: -most,
  max: most,
  step: 0.1,
  uses: ['spare'],
  valueAt: (x, { width }) => ((x - width / 2) / (width / 2 - 12)) * span,
  // Zero is easy to find again.
  snap: (spare) => (Math.abs(spare) < 0.06 ? 0 : spare),
  draw({ core, spare }, { width, height }) {
    const at = (value: number) => width / 2 + (value / span) * (width / 2 - 12);
    const ground = height - 26;
    let words = '';
    if (core !== undefined) {
      const sqnrOf = (last: number) => {
        const codebook = Float32Array.from([...levels, last], (level) => level / most);
        return core.compare(bell, core.quantizeCodebook(bell, { codebook, blockSize })).sqnrDb;
      };
      const [plain, moved] = [sqnrOf(0), sqnrOf(spare)];
      words =
        spare === 0
          ? `+0 and −0 are one level: 15 levels for 16 codes, ${formatDecibels(plain)}.`
          : `A level at ${formatLabel(spare, 2)} instead of −0: ${formatDecibels(moved)}, ${formatDecibels(moved - plain)} more.`;
    }
    const picture = svg`
      <path class="bars" d=${barPath(heights, (share) => at((share * 2 - 1) * span), ground, ground - 56)} />
      <path class="level" d=${linesPath(levels.map(at), 44, ground)} />
      <line class="base" x1="8" x2=${width - 8} y1=${ground} y2=${ground} />
      ${[-6, -4, -2, 0, 2, 4, 6].map(
        (level) => svg`<text x=${at(level)} y=${height - 8} text-anchor="middle">${formatLabel(level)}</text>`,
      )}
      <line class=${spare === 0 ? 'thread' : 'loss'} x1=${at(spare)} x2=${at(spare)} y1="24" y2=${ground} />`;
    return { picture, handle: { x: at(spare), y: 24 }, words };
  },
};
