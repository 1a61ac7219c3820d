import { switchView } from '../controls.js';
import { byId } from '../dom.js';
import { formatDecibels, formatLabel, formatMany } from '../format.js';
import { render, svg } from '../template.js';
import { bell, reach } from './bell.js';
import { barPath, type Figure, histogram, linesPath } from './figure.js';

const [low, high] = [-6, 42];
const heights = histogram(bell, -reach, reach, 40);

/** One number far out, and its effect on the levels of all others. */
export const outlier: Figure = {
  name: 'outlier',
  label: 'One number',
  min: 4,
  max: 40,
  step: 0.5,
  uses: ['outlier', 'clips'],
  valueAt: (x, { width }) => low + ((x - 12) / (width - 28)) * (high - low),
  draw({ core, outlier, clips }, { width, height }, set) {
    const clip = {
      id: 'clip',
      label: 'Clip the outlier',
      isOn: clips,
      toggle: (isOn: boolean) => set({ clips: isOn }),
    };
    render(switchView(clip), byId('fig-outlier-control', HTMLElement));
    const at = (value: number) => 12 + ((value - low) / (high - low)) * (width - 28);
    const ground = height - 26;
    let scale = (clips ? reach : Math.max(reach, outlier)) / 7;
    let words = '';
    if (core !== undefined) {
      // The bell's own range stands for clipping the outlier.
      const range = clips ? { min: -reach, max: reach } : 'min-max';
      const q = core.quantize(Float32Array.of(...bell, outlier), { dtype: 'int4', range });
      scale = q.scale[0] ?? scale;
      const restored = core.dequantize(q).subarray(0, bell.length);
      const used = new Set(restored).size;
      words = `The other numbers share ${formatMany(used, 'level')}: ${formatDecibels(core.compare(bell, restored).sqnrDb)}.`;
    }
    // Levels far from every number are outside of the picture.
    const levels = Array.from({ length: 16 }, (_, i) => at((i - 8) * scale)).filter((x) => x >= 0 && x <= width);
    const picture = svg`
      <path class="bars" d=${barPath(heights, (share) => at((share * 2 - 1) * reach), ground, ground - 54)} />
      <path class="level" d=${linesPath(levels, 40, ground)} />
      <line class="base" x1="8" x2=${width - 8} y1=${ground} y2=${ground} />
      <text x=${at(0)} y=${height - 8} text-anchor="middle">2,048 numbers</text>
      <line class=${clips ? 'loss' : 'thread'} x1=${at(outlier)} x2=${at(outlier)} y1="34" y2=${ground} />`;
    return { picture, handle: { x: at(outlier), y: 34 }, words, value: `${formatLabel(outlier, 3)}. ${words}` };
  },
};
