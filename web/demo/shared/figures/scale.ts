import type { Scalepoint } from 'scalepoint';
import { formatDecibels, formatLabel, formatShare } from '../format.js';
import { remembered, svg } from '../template.js';
import { bell, reach } from './bell.js';
import { barPath, type Figure, histogram, linesPath } from './figure.js';

/** The largest code of 4 bits. */
const qmax = 7;
const span = 5;
/** Steps of the curve under the histogram. */
const curveSteps = 60;
const heights = histogram(bell, -span, span, 80);

/** Signal over noise with a scale around zero, by the core. */
function sqnrOf(core: Scalepoint, scale: number): number {
  const range = { scale, zeroPoint: 0 };
  return core.compare(bell, core.quantize(bell, { dtype: 'int4', range })).sqnrDb;
}

/** The SQNR of every scale. */
const curveOf = remembered((core: Scalepoint | undefined) =>
  Array.from({ length: core === undefined ? 0 : curveSteps }, (_, i) => {
    const scale = ((i + 1) / curveSteps) * (span / qmax);
    return { scale, sqnr: sqnrOf(core as Scalepoint, scale) };
  }),
);

/** Levels over a histogram. The visitor drags the outermost level, and with it the scale. */
export const scale: Figure = {
  name: 'scale',
  label: 'The largest level',
  min: 0.05,
  max: span / qmax,
  step: 0.01,
  uses: ['scale'],
  valueAt: (x, { width }) => (((x - width / 2) / (width / 2 - 16)) * span) / qmax,
  draw({ core, scale }, { width, height }) {
    const at = (value: number) => width / 2 + (value / span) * (width / 2 - 16);
    const [ground, floor] = [height - 96, height - 20];
    const levels = Array.from({ length: 16 }, (_, i) => at((i - 8) * scale)).filter((x) => x >= 0 && x <= width);
    // Beyond half a step from the outermost levels numbers are clipped.
    const clipped = (from: number, to: number) =>
      to <= from ? '' : svg`<rect class="clipped" x=${from} y="34" width=${to - from} height=${ground - 34} />`;
    const yOf = (sqnr: number) => floor - (Math.max(0, sqnr) / 22) * 58;
    const curve = curveOf(core).map((point) => `${at(point.scale * qmax).toFixed(1)} ${yOf(point.sqnr).toFixed(1)}`);
    const sqnr = core && sqnrOf(core, scale);
    const picture = svg`
      <path class="bars" d=${barPath(heights, (share) => at((share * 2 - 1) * span), ground, ground - 40)} />
      ${clipped(at(-reach), at(-8.5 * scale))}${clipped(at(7.5 * scale), at(reach))}
      <path class="level" d=${linesPath(levels, 34, ground)} />
      <line class="base" x1="8" x2=${width - 8} y1=${ground} y2=${ground} />
      <path class="curve" d=${curve.length === 0 ? '' : `M${curve.join('L')}`} />
      <text x="8" y=${floor - 44}>quality</text>
      ${sqnr === undefined ? '' : svg`<circle class="spot" cx=${at(scale * qmax)} cy=${yOf(sqnr)} r="6" />`}`;
    const beyond = bell.filter((x) => x > 7.5 * scale || x < -8.5 * scale).length / bell.length;
    const quality = sqnr === undefined ? '' : `quality ${formatDecibels(sqnr)}, `;
    const value = `Scale ${formatLabel(scale, 2)}: ${quality}${formatShare(beyond)} clipped`;
    return { picture, handle: { x: at(scale * qmax), y: 34 }, words: `${value}.`, value };
  },
};
