import type { QuantizeOptions } from 'scalepoint';
import { byId, onTheme, setText, svg } from '../dom.js';
import { formatDecibels, formatReal } from '../format.js';
import { generate } from '../generate.js';
import { drawnFor, figureIn, makeHandle, sizeOf } from './figure.js';
import type { FigureState, StartFigure } from './state.js';

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
  const own = weights.subarray(row * columns, (row + 1) * columns);
  return Math.sqrt(own.reduce((sum, x) => sum + x * x, 0) / columns);
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

/** A matrix that lights up where numbers are lost. The visitor drags the edge of a group. */
export const startGroups: StartFigure = (set, current) => {
  const figure = figureIn('fig-groups');
  const canvas = byId('groups-picture', HTMLCanvasElement);
  let size = sizeOf(figure);
  // The matrix takes all but a margin, into which the handle goes when one scale is for everything.
  const room = () => size.width - margin;
  const edgeOf = (group: number) => {
    const one = sizes[group] ?? 'tensor';
    return one === 'tensor' ? size.width - 20 : (one / columns) * room();
  };
  const handle = makeHandle(figure, {
    label: 'How few numbers share a scale',
    min: 0,
    max: sizes.length - 1,
    step: 1,
    valueAt: (x) => {
      const far = sizes.map((_, i) => Math.abs(edgeOf(i) - x));
      return far.indexOf(Math.min(...far));
    },
    current: () => current().group,
    onChange: (group) => set({ group: Math.round(group) }),
  });
  const lines = svg('path', { class: 'level' });
  const edge = svg('line', { class: 'edge' });
  figure.append(lines, edge, handle.node);

  const draw = ({ core, group }: FigureState) => {
    size = sizeOf(figure);
    const one = sizes[group] ?? 'tensor';
    let words = '';
    if (core !== undefined) {
      const q = core.quantize(weights, { dtype: 'int4', shape: [rows, columns], granularity: granularityOf(one) });
      paint(canvas, core.dequantize(q));
      const bits = (4 * weights.length + 32 * q.scale.length) / weights.length;
      const what =
        one === 'tensor'
          ? 'One scale for everything'
          : one === columns
            ? 'A scale for each row'
            : `A scale for each ${one} neighbors`;
      words = `${what}: ${formatDecibels(core.compare(weights, q).sqnrDb)}, ${formatReal(bits, 3)} bits a number.`;
    } else paint(canvas, undefined);
    const height = size.height;
    const d = [];
    if (one !== 'tensor') {
      for (let row = 1; row < rows; row++) d.push(`M0 ${((row / rows) * height).toFixed(1)}H${room()}`);
      for (let column = one; column < columns; column += one)
        d.push(`M${((column / columns) * room()).toFixed(1)} 0V${height}`);
    }
    lines.setAttribute('d', d.join(''));
    const x = edgeOf(group);
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: 0, y2: height }))
      edge.setAttribute(name, String(value));
    handle.place(x, height / 2, group, words || 'One scale for everything');
    setText(byId('fig-groups-words', HTMLElement), words);
  };
  onTheme(figure, () => draw(current()));
  return drawnFor(figure, draw, current, 'group');
};
