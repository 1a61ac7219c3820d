import { byId, setText, svg } from '../dom.js';
import { formatLabel } from '../format.js';
import { drawnFor, figureIn, makeHandle, sizeOf } from './figure.js';
import type { FigureState, StartFigure } from './state.js';

/** The largest number. The visitor drags the least one. */
const high = 1;
const least = -1.2;
/** Codes of uint4. */
const count = 16;

/** Numbers above their codes. The code that stands for 0 moves with the least number: it is the zero point. */
export const startZeroPoint: StartFigure = (set, current) => {
  const figure = figureIn('fig-zero-point');
  let size = sizeOf(figure);
  const at = (value: number) => 20 + ((value - least - 0.1) / (high - least)) * (size.width - 40);
  const codeAt = (code: number) => 20 + (code / (count - 1)) * (size.width - 40);
  const handle = makeHandle(figure, {
    label: 'The least number',
    min: least + 0.1,
    max: 0,
    step: 0.05,
    valueAt: (x) => least + 0.1 + ((x - 20) / (size.width - 40)) * (high - least),
    current: () => current().least,
    onChange: (value) => set({ least: value }),
  });
  const moving = svg('g', {});
  figure.append(moving, handle.node);

  const draw = ({ core, least: low }: FigureState) => {
    size = sizeOf(figure);
    const [line, codes] = [54, size.height - 40];
    const nodes: Node[] = [
      svg('line', { class: 'base', x1: at(low), x2: at(high), y1: line, y2: line }),
      svg('line', { class: 'base', x1: codeAt(0), x2: codeAt(count - 1), y1: codes, y2: codes }),
      svg('text', { x: at(low), y: 18, 'text-anchor': low < -0.6 ? 'start' : 'middle' }, formatLabel(low, 2)),
      svg('text', { x: at(high), y: 18, 'text-anchor': 'middle' }, formatLabel(high)),
    ];
    let words = '';
    if (core !== undefined) {
      const q = core.quantize([low, high], { dtype: 'uint4', scheme: 'asymmetric' });
      const [scale = 1, zeroPoint = 0] = [q.scale[0], q.zeroPoint[0]];
      for (let code = 0; code < count; code++) {
        const isZero = code === zeroPoint;
        nodes.push(
          svg('line', {
            class: isZero ? 'loss' : 'thread',
            x1: at(scale * (code - zeroPoint)),
            x2: codeAt(code),
            y1: line,
            y2: codes,
          }),
          svg(
            'text',
            { class: isZero ? 'code' : false, x: codeAt(code), y: codes + 24, 'text-anchor': 'middle' },
            `${code}`,
          ),
        );
      }
      nodes.push(svg('text', { class: 'code', x: at(0), y: line - 14, 'text-anchor': 'middle' }, '0'));
      words = `Numbers from ${formatLabel(low, 2)} to ${high}: code ${zeroPoint} stands for 0, and is the zero point.`;
    }
    moving.replaceChildren(...nodes);
    handle.place(at(low), line, low, words);
    setText(byId('fig-zero-point-words', HTMLElement), words);
  };
  return drawnFor(figure, draw, current, 'least');
};
