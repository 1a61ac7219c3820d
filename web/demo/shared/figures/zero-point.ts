import { formatLabel } from '../format.js';
import { svg } from '../template.js';
import type { Figure } from './figure.js';

/** The largest number. The visitor drags the least one. */
const high = 1;
const least = -1.2;
/** Codes of uint4. */
const count = 16;

/** Numbers above their codes. The code that stands for 0 moves with the least number: it is the zero point. */
export const zeroPoint: Figure = {
  name: 'zero-point',
  label: 'The least number',
  min: least + 0.1,
  max: 0,
  step: 0.05,
  uses: ['least'],
  valueAt: (x, { width }) => least + 0.1 + ((x - 20) / (width - 40)) * (high - least),
  draw({ core, least: low }, { width, height }) {
    const at = (value: number) => 20 + ((value - least - 0.1) / (high - least)) * (width - 40);
    const codeAt = (code: number) => 20 + (code / (count - 1)) * (width - 40);
    const [line, codes] = [54, height - 40];
    const q = core?.quantize([low, high], { dtype: 'uint4', scheme: 'asymmetric' });
    const [scale = 1, zero = 0] = [q?.scale[0], q?.zeroPoint[0]];
    const codeView = (code: number) => {
      const [from, to] = [at(scale * (code - zero)), codeAt(code)];
      return svg`<line class=${code === zero ? 'loss' : 'thread'} x1=${from} x2=${to} y1=${line} y2=${codes} />
        <text class=${code === zero ? 'code' : ''} x=${to} y=${codes + 24} text-anchor="middle">${code}</text>`;
    };
    const picture = svg`
      <line class="base" x1=${at(low)} x2=${at(high)} y1=${line} y2=${line} />
      <line class="base" x1=${codeAt(0)} x2=${codeAt(count - 1)} y1=${codes} y2=${codes} />
      <text x=${at(low)} y="18" text-anchor=${low < -0.6 ? 'start' : 'middle'}>${formatLabel(low, 2)}</text>
      <text x=${at(high)} y="18" text-anchor="middle">${formatLabel(high)}</text>
      ${q && Array.from({ length: count }, (_, code) => codeView(code))}
      ${q && svg`<text class="code" x=${at(0)} y=${line - 14} text-anchor="middle">0</text>`}`;
    const words =
      q && `Numbers from ${formatLabel(low, 2)} to ${high}: code ${zero} stands for 0, and is the zero point.`;
    return { picture, handle: { x: at(low), y: line }, words: words ?? '' };
  },
};
