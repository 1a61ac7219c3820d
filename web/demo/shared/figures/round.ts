import { formatLabel } from '../format.js';
import { svg } from '../template.js';
import type { Figure } from './figure.js';

/** Codes of 3 bits. */
const codes = [-4, -3, -2, -1, 0, 1, 2, 3];
const scale = 0.25;
const [low, high] = [-1.15, 0.95];

function restored(x: number): { code: number; value: number } {
  const code = Math.max(-4, Math.min(3, Math.round(x / scale)));
  return { code, value: code * scale };
}

/** A number, its nearest level, and the error that depends on where it is. */
export const round: Figure = {
  name: 'round',
  label: 'A number',
  min: low,
  max: high,
  step: 0.02,
  uses: ['number'],
  valueAt: (x, { width }) => low + ((x - 16) / (width - 32)) * (high - low),
  draw({ number }, { width, height }) {
    const at = (value: number) => 16 + ((value - low) / (high - low)) * (width - 32);
    const { code, value } = restored(number);
    const error = Math.abs(value - number);
    const [top, line, ground] = [44, 96, height - 26];
    // The error of every number is a sawtooth.
    const saw = Array.from({ length: 401 }, (_, i) => {
      const x = low + ((high - low) * i) / 400;
      return `${at(x).toFixed(1)} ${(ground - (Math.abs(restored(x).value - x) / scale) * 60).toFixed(1)}`;
    });
    const picture = svg`
      <line class="base" x1="8" x2=${width - 8} y1=${line} y2=${line} />
      ${codes.map(
        (one) => svg`<line class="level" x1=${at(one * scale)} x2=${at(one * scale)} y1=${line - 14} y2=${line + 14} />
          <text class="code" x=${at(one * scale)} y=${line + 34} text-anchor="middle">${formatLabel(one)}</text>`,
      )}
      <path class="curve" d="M${saw.join('L')}" />
      <line class="base" x1="8" x2=${width - 8} y1=${ground} y2=${ground} />
      <text x="8" y=${height - 8}>error</text>
      <path class="thread" d="M${at(number)} ${top}L${at(value)} 82" />
      <circle class="spot" cx=${at(value)} cy=${line} r="6" />
      <line class="loss" x1=${at(number)} x2=${at(number)} y1=${ground} y2=${ground - (error / scale) * 60} />`;
    const words = `${formatLabel(number, 3)} becomes code ${formatLabel(code)}, which stands for ${formatLabel(value, 3)}`;
    return {
      picture,
      handle: { x: at(number), y: top },
      words: `${words}. Error ${formatLabel(error, 2)}.`,
      value: words,
    };
  },
};
