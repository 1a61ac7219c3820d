import type { QuantizeOptions } from 'scalepoint';
import { byId } from '../dom.js';
import { formatDecibels, formatReal } from '../format.js';
import { generate } from '../generate.js';
import { svg } from '../template.js';
import { type Figure, type FigureSize, linesPath } from './figure.js';

const rows = 16;
const columns = 64;
/** Width beside the matrix, as in figures.css. */
const margin = 48;
/** Rows of different magnitude, as the channels of a trained layer have them. */
const weights = generate({ distribution: 'normal', size: rows * columns, seed: 11, rowsDiffer: true });
/** Numbers that share a scale, from all of them to a few neighbors. */
const sizes = ['tensor', 64, 32, 16, 8] as const;

const granularityOf = (size: (typeof sizes)[number]): NonNullable<QuantizeOptions['granularity']> =>
  size === 'tensor'
    ? { kind: 'per-tensor' }
    : size === columns
      ? { kind: 'per-channel', axis: 0 }
      : { kind: 'per-group', groupSize: size };

/** Root mean square of a row. */
const magnitudes = Array.from({ length: rows }, (_, row) => {
  const numbers = weights.subarray(row * columns, (row + 1) * columns);
  return Math.sqrt(numbers.reduce((sum, x) => sum + x * x, 0) / columns);
});

/** The matrix in a picture: its numbers, and over them their errors beside the magnitude of the row. */
function paint(canvas: HTMLCanvasElement, restored: Float32Array | undefined): void {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d') as CanvasRenderingContext2D;
  const { color, borderColor } = getComputedStyle(canvas);
  for (let i = 0; i < weights.length; i++) {
    const [row, column] = [Math.floor(i / columns), i % columns];
    context.globalAlpha = Math.min(1, 0.1 + Math.abs(weights[i]!) / 9);
    context.fillStyle = borderColor;
    context.fillRect(column, row, 1, 1);
    if (restored === undefined) continue;
    const error = Math.abs(restored[i]! - weights[i]!) / (magnitudes[row] ?? 1);
    context.globalAlpha = Math.min(1, error * 1.1);
    context.fillStyle = color;
    context.fillRect(column, row, 1, 1);
  }
}

/** Place of the edge of a group. The matrix takes all but a margin, into which the handle goes when one scale is for everything. */
function edgeOf(group: number, { width }: FigureSize): number {
  const one = sizes[group] ?? 'tensor';
  return one === 'tensor' ? width - 20 : (one / columns) * (width - margin);
}

/** A matrix that lights up where numbers are lost. The visitor drags the edge of a group. */
export const groups: Figure = {
  name: 'groups',
  label: 'How few numbers share a scale',
  min: 0,
  max: sizes.length - 1,
  step: 1,
  uses: ['group', 'theme'],
  valueAt(x, size) {
    const far = sizes.map((_, i) => Math.abs(edgeOf(i, size) - x));
    return far.indexOf(Math.min(...far));
  },
  draw({ core, group }, size) {
    const { width, height } = size;
    const one = sizes[group] ?? 'tensor';
    const q = core?.quantize(weights, { dtype: 'int4', shape: [rows, columns], granularity: granularityOf(one) });
    paint(byId('groups-picture', HTMLCanvasElement), q && core?.dequantize(q));
    let words = '';
    if (core !== undefined && q !== undefined) {
      const bits = (4 * weights.length + 32 * q.scale.length) / weights.length;
      const what =
        one === 'tensor'
          ? 'One scale for everything'
          : one === columns
            ? 'A scale for each row'
            : `A scale for each ${one} neighbors`;
      words = `${what}: ${formatDecibels(core.compare(weights, q).sqnrDb)}, ${formatReal(bits, 3)} bits a number.`;
    }
    const room = width - margin;
    const across = Array.from({ length: rows - 1 }, (_, i) => `M0 ${(((i + 1) / rows) * height).toFixed(1)}H${room}`);
    const count = one === 'tensor' ? 0 : columns / one - 1;
    const edges = Array.from({ length: count }, (_, i) => (((i + 1) * Number(one)) / columns) * room);
    const x = edgeOf(group, size);
    const picture = svg`
      <path class="level" d=${one === 'tensor' ? '' : across.join('') + linesPath(edges, 0, height)} />
      <line class="edge" x1=${x} x2=${x} y1="0" y2=${height} />`;
    return { picture, handle: { x, y: height / 2 }, words, value: words || 'One scale for everything' };
  },
};
