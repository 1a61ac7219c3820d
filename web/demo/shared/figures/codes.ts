import type { Scalepoint } from 'scalepoint';
import { formatDecibels } from '../format.js';
import { remembered, svg } from '../template.js';
import { bell } from './bell.js';
import { barPath, type Figure, histogram, linesPath } from './figure.js';

/** Numbers that share the largest magnitude, by which the codes are multiplied. */
const blockSize = 64;
/** Length of the track of the handle, in pixels, and its height. */
const [trackLength, trackHeight] = [220, 18];
const span = 3.6;
const heights = histogram(bell, -span, span, 80);
/** The largest magnitude of a usual block of the bell, for the picture. */
const usual = (() => {
  const largest = Array.from({ length: bell.length / blockSize }, (_, block) =>
    bell.subarray(block * blockSize, (block + 1) * blockSize).reduce((most, x) => Math.max(most, Math.abs(x)), 0),
  );
  return largest.reduce((a, b) => a + b, 0) / largest.length;
})();

/** Sixteen levels, even on both sides of 0, as NF4 has seven below and eight above. */
const even = Float32Array.from({ length: 16 }, (_, i) => (i - 7) / (i < 7 ? 7 : 8));

/** The levels of NF4, by the core. */
const readNf4 = remembered((core: Scalepoint) =>
  Float32Array.from(core.quantizeCodebook(bell.subarray(0, blockSize), { codebook: 'nf4', blockSize }).codebook),
);

/** Sixteen levels over a bell, from even ones to more where more numbers are. */
export const codes: Figure = {
  name: 'codes',
  label: 'Where the levels are',
  min: 0,
  max: 1,
  step: 0.05,
  uses: ['bend'],
  valueAt: (x, { width }) => (x - (width - trackLength) / 2) / trackLength,
  draw({ core, bend }, { width, height }) {
    const at = (value: number) => width / 2 + (value / span) * (width / 2 - 16);
    const [ground, from] = [height - 26, (width - trackLength) / 2];
    // Bend 0 gives even levels, 1 those of NF4.
    const nf4 = core && readNf4(core);
    const levels = nf4 === undefined ? even : even.map((x, i) => x + (nf4[i]! - x) * bend);
    const picture = svg`
      <path class="bars" d=${barPath(heights, (share) => at((share * 2 - 1) * span), ground, ground - 50)} />
      <path class="level" d=${linesPath(
        Array.from(levels, (level) => at(level * usual)),
        40,
        ground,
      )} />
      <line class="base" x1="8" x2=${width - 8} y1=${ground} y2=${ground} />
      <line class="track" x1=${from} x2=${from + trackLength} y1=${trackHeight} y2=${trackHeight} />
      <text x=${from - 26} y=${trackHeight + 5} text-anchor="end">even</text>
      <text x=${from + trackLength + 26} y=${trackHeight + 5}>NF4</text>`;
    let words = '';
    if (core !== undefined) {
      const q = core.quantizeCodebook(bell, { codebook: levels, blockSize });
      const where = bend < 0.03 ? 'Even levels' : bend > 0.97 ? 'NF4' : 'In between';
      words = `${where}: ${formatDecibels(core.compare(bell, q).sqnrDb)} with the same 4 bits.`;
    }
    return { picture, handle: { x: from + trackLength * bend, y: trackHeight }, words };
  },
};
