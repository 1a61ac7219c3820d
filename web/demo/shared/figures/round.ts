import { byId, onResize, setText, svg } from '../dom.js';
import { formatLabel } from '../format.js';
import { figureIn, makeHandle, sizeOf } from './figure.js';
import type { FigureState } from './state.js';

/** Codes of 3 bits. */
const codes = [-4, -3, -2, -1, 0, 1, 2, 3];
const scale = 0.25;
const [low, high] = [-1.15, 0.95];

function restored(x: number): { code: number; value: number } {
  const code = Math.max(-4, Math.min(3, Math.round(x / scale)));
  return { code, value: code * scale };
}

/** The parts that do not depend on the number: levels, and the error of every number as a sawtooth. */
function stillNodes({ width, height }: { width: number; height: number }, at: (value: number) => number): Node[] {
  const [line, ground] = [96, height - 26];
  let saw = '';
  for (let i = 0; i <= 400; i++) {
    const x = low + ((high - low) * i) / 400;
    const error = Math.abs(restored(x).value - x);
    saw += `${i === 0 ? 'M' : 'L'}${at(x).toFixed(1)} ${(ground - (error / scale) * 60).toFixed(1)}`;
  }
  return [
    svg('line', { class: 'base', x1: 8, x2: width - 8, y1: line, y2: line }),
    ...codes.flatMap((code) => {
      const x = at(code * scale);
      return [
        svg('line', { class: 'level', x1: x, x2: x, y1: line - 14, y2: line + 14 }),
        svg('text', { class: 'code', x, y: line + 34, 'text-anchor': 'middle' }, formatLabel(code)),
      ];
    }),
    svg('path', { class: 'curve', d: saw }),
    svg('line', { class: 'base', x1: 8, x2: width - 8, y1: ground, y2: ground }),
    svg('text', { x: 8, y: height - 8 }, 'error'),
  ];
}

/** A number, its nearest level, and the error that depends on where it is. */
export function startRound(set: (change: Partial<FigureState>) => void, current: () => FigureState) {
  const figure = figureIn('fig-round');
  let size = sizeOf(figure);
  const at = (value: number) => 16 + ((value - low) / (high - low)) * (size.width - 32);
  const handle = makeHandle(figure, {
    label: 'A number',
    min: low,
    max: high,
    step: 0.02,
    valueAt: (x) => low + ((x - 16) / (size.width - 32)) * (high - low),
    current: () => current().number,
    onChange: (number) => set({ number }),
  });
  const still = svg('g', {});
  const moving = svg('g', {});
  figure.append(still, moving, handle.node);

  const drawStill = () => {
    size = sizeOf(figure);
    still.replaceChildren(...stillNodes(size, at));
  };
  onResize(figure, () => {
    drawStill();
    draw(current());
  });

  const draw = ({ number }: FigureState) => {
    // Round.
    const { code, value } = restored(number);
    const error = value - number;
    const words = `${formatLabel(number, 3)} becomes code ${formatLabel(code)}, which stands for ${formatLabel(value, 3)}`;
    // Draw the number, its level, and the error.
    const ground = size.height - 26;
    const y = 44;
    handle.place(at(number), y, number, words);
    moving.replaceChildren(
      svg('path', { class: 'thread', d: `M${at(number)} ${y}L${at(value)} 82` }),
      svg('circle', { class: 'spot', cx: at(value), cy: 96, r: 6 }),
      svg('line', {
        class: 'loss',
        x1: at(number),
        x2: at(number),
        y1: ground,
        y2: ground - (Math.abs(error) / scale) * 60,
      }),
    );
    setText(byId('fig-round-words', HTMLElement), `${words}. Error ${formatLabel(Math.abs(error), 2)}.`);
  };
  drawStill();
  return (state: FigureState, before: FigureState | undefined) => {
    if (state.number !== before?.number) draw(state);
  };
}
