import { choiceView, fieldSlider } from '../shared/controls.js';
import { sizeOf } from '../shared/figures/figure.js';
import { formatBytes, formatShare } from '../shared/format.js';
import { html, picture, render, svg, type TemplateResult } from '../shared/template.js';
import { plainStorage, type Storage, widths } from './network.js';
import { keyOf, type State } from './state.js';

/** Widths of the chart. */
const charted = widths.filter((bits) => bits <= 8);
/** The lowest accuracy of the chart: guessing. */
const floor = 0.1;

/** Draws the accuracy at every width, as chosen and with plain scales. */
function draw(figure: SVGSVGElement, { lab, readings }: State): void {
  const { width, height } = sizeOf(figure);
  const x = (i: number) => 46 + (i / (charted.length - 1)) * (width - 46 - 20);
  const y = (share: number) => 16 + (1 - (share - floor) / (1 - floor)) * (height - 16 - 34);
  const pointsOf = (storage: (bits: number) => Storage) =>
    charted.flatMap((bits, i) => {
      const reading = readings.get(keyOf(storage(bits)));
      return reading === undefined ? [] : [{ x: x(i), y: y(reading.right / reading.read.length), bits }];
    });
  const pathOf = (points: ReturnType<typeof pointsOf>) =>
    points.map((point, i) => `${i === 0 ? 'M' : 'L'}${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join('');
  const chosen = pointsOf((bits) => ({ ...lab, bits, codes: bits === 4 ? lab.codes : 'even' }));
  figure.setAttribute('viewBox', `0 0 ${width} ${height}`);
  render(
    svg`<title>Digits read right, by bits</title>
      ${[0.1, 0.25, 0.5, 0.75, 1].map(
        (share) => svg`<line class="rule" x1="40" x2=${width - 8} y1=${y(share)} y2=${y(share)} />
          <text x="34" y=${y(share) + 4} text-anchor="end">${share * 100}</text>`,
      )}
      ${charted.map((bits, i) => svg`<text x=${x(i)} y=${height - 10} text-anchor="middle">${bits}</text>`)}
      <path class="plain" d=${pathOf(pointsOf(plainStorage))} />
      <path class="curve" d=${pathOf(chosen)} />
      ${chosen.map((point) => svg`<circle class="dot" cx=${point.x} cy=${point.y} r="4" />`)}
      ${chosen.filter(({ bits }) => bits === lab.bits).map((point) => svg`<circle class="spot" cx=${point.x} cy=${point.y} r="8" />`)}`,
    figure,
  );
}

/** Accuracy of the choice beside that of one plain scale for each tensor. */
function verdict(right: number, plain: number): string {
  const gain = Math.round((right - plain) * 1000) / 10;
  if (right < 0.5) return 'It is broken. Try a scale for each row, or ranges of least error.';
  if (gain >= 1) return `${gain} points more than one plain scale for each tensor at this width.`;
  if (right > 0.97) return 'As good as 32 bits.';
  return 'It stumbles. Finer scales or better ranges help.';
}

/** Words about a network. */
interface LabResult {
  readonly right: string;
  readonly bytes: string;
  readonly words: string;
}
let shown: LabResult = { right: '…', bytes: '…', words: '' };

/** The result of the settings, or the one before until it is there. */
function resultOf({ lab, readings, failed }: State): LabResult {
  const reading = readings.get(keyOf({ ...lab, codes: lab.bits === 4 ? lab.codes : 'even' }));
  const plain = readings.get(keyOf(plainStorage(lab.bits)));
  if (reading !== undefined && plain !== undefined) {
    const right = reading.right / reading.read.length;
    const words = verdict(right, plain.right / plain.read.length);
    shown = { right: formatShare(right), bytes: formatBytes(reading.bytes), words };
  } else if (failed) {
    shown = { right: '–', bytes: '–', words: 'This cannot be computed here: see the message at the top.' };
  }
  return shown;
}

/** The second look at the network: all controls, and a chart of the accuracy. */
export function labView(state: State, change: (lab: Storage) => void): TemplateResult {
  const { lab, readings } = state;
  const { right, bytes, words } = resultOf(state);
  const hasNf4 = lab.bits === 4;
  const set = (part: Partial<Storage>) => change({ ...lab, ...part });
  return html`
    <form id="lab" class="fields" aria-label="How the network is stored" @submit=${(event: Event) => event.preventDefault()}>
      ${fieldSlider({
        id: 'lab-bits',
        label: 'Bits of every number',
        stops: charted,
        at: charted.indexOf(lab.bits as (typeof charted)[number]),
        words: `${lab.bits} bits`,
        slide: (at) => set({ bits: charted[at] ?? 4 }),
      })}
      ${choiceView({
        name: 'granularity',
        legend: 'One scale for each',
        options: { tensor: 'Tensor', row: 'Row', group: '32 numbers' },
        chosen: lab.granularity,
        choose: (granularity) => set({ granularity }),
      })}
      ${choiceView({
        name: 'range',
        legend: 'Range of the levels',
        options: { 'min-max': 'All numbers', mse: 'Least error' },
        chosen: lab.range,
        // NF4 has its own range in each block.
        isDisabled: hasNf4 && lab.codes === 'nf4',
        choose: (range) => set({ range }),
      })}
      ${choiceView({
        name: 'codes',
        legend: 'Levels are, at 4 bits',
        options: { even: 'Even', nf4: 'NF4' },
        chosen: hasNf4 ? lab.codes : 'even',
        isDisabled: !hasNf4,
        choose: (codes) => set({ codes }),
      })}
    </form>
    <div class="lab-result">
      <dl class="hero-figures">
        <div><dt>Digits read right</dt><dd id="lab-right">${right}</dd></div>
        <div><dt>The network takes</dt><dd id="lab-bytes">${bytes}</dd></div>
      </dl>
      <p class="idea-result" id="lab-words" role="status">${words}</p>
      <svg class="lab-chart" id="lab-chart" role="img" aria-label="Digits read right in percent, by bits: with these settings, and with one plain scale for each tensor"
        ${picture((node: SVGSVGElement) => draw(node, state), [lab, readings])}></svg>
      <p class="hint lab-legend"><span class="lab-key chosen"></span> these settings <span class="lab-key plain-key"></span> one plain scale for each tensor</p>
    </div>`;
}
