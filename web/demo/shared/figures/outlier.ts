import { byId, setText, svg } from '../dom.js';
import { formatDecibels, formatLabel, formatMany } from '../format.js';
import { bell, reach } from './bell.js';
import { barPath, drawnFor, figureIn, histogram, makeHandle, sizeOf } from './figure.js';
import type { FigureState, StartFigure } from './state.js';

const [low, high] = [-6, 42];
/** Numbers of the bell and one that is far out. */
const numbers = new Float32Array(bell.length + 1);
numbers.set(bell);

/** One number far out, and its effect on the levels of all others. */
export const startOutlier: StartFigure = (set, current) => {
  const figure = figureIn('fig-outlier');
  const clip = byId('clip', HTMLInputElement);
  let size = sizeOf(figure);
  const at = (value: number) => 12 + ((value - low) / (high - low)) * (size.width - 28);
  const handle = makeHandle(figure, {
    label: 'One number',
    min: 4,
    max: 40,
    step: 0.5,
    valueAt: (x) => low + ((x - 12) / (size.width - 28)) * (high - low),
    current: () => current().outlier,
    onChange: (outlier) => set({ outlier }),
  });
  clip.addEventListener('change', () => set({ clips: clip.checked }));
  const bars = svg('path', { class: 'bars' });
  const moving = svg('g', {});
  figure.append(bars, moving, handle.node);
  const heights = histogram(bell, -reach, reach, 40);

  const draw = ({ core, outlier, clips }: FigureState) => {
    size = sizeOf(figure);
    const ground = size.height - 26;
    bars.setAttribute(
      'd',
      barPath(heights, (share) => at((share * 2 - 1) * reach), ground, ground - 54),
    );
    clip.checked = clips;
    numbers[bell.length] = outlier;
    const most = Math.max(reach, outlier);
    let scale = (clips ? reach : most) / 7;
    let words = '';
    if (core !== undefined) {
      // The bell's own range stands for clipping the outlier.
      const range = clips ? { min: -reach, max: reach } : 'min-max';
      const q = core.quantize(numbers, { dtype: 'int4', range });
      scale = q.scale[0] ?? scale;
      const restored = core.dequantize(q).subarray(0, bell.length);
      const used = new Set(restored).size;
      words = `The other numbers share ${formatMany(used, 'level')}: ${formatDecibels(core.compare(bell, restored).sqnrDb)}.`;
    }
    // Levels far from every number are outside of the picture.
    const levels = Array.from({ length: 16 }, (_, i) => at((i - 8) * scale)).filter((x) => x >= 0 && x <= size.width);
    const d = levels.map((x) => `M${x.toFixed(1)} 40V${ground}`);
    moving.replaceChildren(
      svg('path', { class: 'level', d: d.join('') }),
      svg('line', { class: 'base', x1: 8, x2: size.width - 8, y1: ground, y2: ground }),
      svg('text', { x: at(0), y: size.height - 8, 'text-anchor': 'middle' }, '2,048 numbers'),
      svg('line', { class: clips ? 'loss' : 'thread', x1: at(outlier), x2: at(outlier), y1: 34, y2: ground }),
    );
    handle.place(at(outlier), 34, outlier, `${formatLabel(outlier, 3)}. ${words}`);
    setText(byId('fig-outlier-words', HTMLElement), words);
  };
  return drawnFor(figure, draw, current, 'outlier', 'clips');
};
