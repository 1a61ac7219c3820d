import { byId, html, markStop, onResize, showFacts, svg } from '../shared/dom.js';
import { sizeOf } from '../shared/figures/figure.js';
import { formatBytes, formatShare } from '../shared/format.js';
import { writeLink } from './link.js';
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
  const line = (of: (bits: number) => Storage) => {
    const points = charted.flatMap((one, i) => {
      const reading = readings.get(keyOf(of(one)));
      return reading === undefined ? [] : [{ x: x(i), y: y(reading.right / reading.read.length), bits: one }];
    });
    return {
      points,
      d: points.map((point, i) => `${i === 0 ? 'M' : 'L'}${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join(''),
    };
  };
  const plain = line(plainStorage);
  const chosen = line((one) => ({ ...lab, bits: one, codes: one === 4 ? lab.codes : 'even' }));
  const spot = chosen.points.find((point) => point.bits === lab.bits);
  figure.replaceChildren(
    svg('title', {}, 'Digits read right, by bits'),
    ...[0.1, 0.25, 0.5, 0.75, 1].flatMap((share) => [
      svg('line', { class: 'rule', x1: 40, x2: width - 8, y1: y(share), y2: y(share) }),
      svg('text', { x: 34, y: y(share) + 4, 'text-anchor': 'end' }, `${share * 100}`),
    ]),
    ...charted.map((one, i) => svg('text', { x: x(i), y: height - 10, 'text-anchor': 'middle' }, `${one}`)),
    svg('path', { class: 'plain', d: plain.d }),
    svg('path', { class: 'curve', d: chosen.d }),
    ...chosen.points.map((point) => svg('circle', { class: 'dot', cx: point.x, cy: point.y, r: 4 })),
    ...(spot === undefined ? [] : [svg('circle', { class: 'spot', cx: spot.x, cy: spot.y, r: 8 })]),
  );
}

/** Sets up the second look at the network: all controls, and a chart of the accuracy. */
export function startLab(set: (change: Partial<State>) => void, current: () => State) {
  const form = byId('lab', HTMLFormElement);
  const figure = byId('lab-chart', SVGSVGElement);
  const bits = byId('lab-bits', HTMLInputElement);
  bits.max = String(charted.length - 1);
  byId('lab-stops', HTMLElement).append(...charted.map((width) => html('span', {}, String(width))));
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('input', () => {
    const data = new FormData(form);
    const lab = {
      bits: charted[bits.valueAsNumber] ?? 4,
      granularity: String(data.get('granularity')) as Storage['granularity'],
      range: String(data.get('range')) as Storage['range'],
      codes: String(data.get('codes')) as Storage['codes'],
    };
    set({ lab });
    writeLink({ lab });
  });

  const show = (state: State) => {
    const { lab, readings } = state;
    const at = charted.indexOf(lab.bits as (typeof charted)[number]);
    showFacts({ 'lab-bits': { value: String(at), ariaValueText: `${lab.bits} bits` } });
    markStop(byId('lab-stops', HTMLElement), at);
    for (const radio of form.querySelectorAll<HTMLInputElement>('input[type="radio"]')) {
      radio.checked = radio.value === lab[radio.name as 'granularity' | 'range' | 'codes'];
      if (radio.name === 'codes') radio.disabled = lab.bits !== 4;
      if (radio.name === 'codes' && lab.bits !== 4) radio.checked = radio.value === 'even';
      // NF4 has its own range in each block.
      if (radio.name === 'range') radio.disabled = lab.codes === 'nf4' && lab.bits === 4;
    }
    const reading = readings.get(keyOf({ ...lab, codes: lab.bits === 4 ? lab.codes : 'even' }));
    const plain = readings.get(keyOf(plainStorage(lab.bits)));
    if (state.failed && reading === undefined) {
      const words = 'This cannot be computed here: see the message at the top.';
      showFacts({ 'lab-right': '–', 'lab-bytes': '–', 'lab-words': words });
    }
    if (reading === undefined || plain === undefined) return;
    const right = reading.right / reading.read.length;
    showFacts({
      'lab-right': formatShare(right),
      'lab-bytes': formatBytes(reading.bytes),
      'lab-words': verdict(right, plain.right / plain.read.length),
    });
  };

  onResize(figure, () => draw(figure, current()));
  return (state: State, before: State | undefined) => {
    if (state.lab === before?.lab && state.readings === before.readings && state.failed === before.failed) return;
    draw(figure, state);
    show(state);
  };
}

/** Accuracy of the choice beside that of one plain scale for each tensor. */
function verdict(right: number, plain: number): string {
  const gain = Math.round((right - plain) * 1000) / 10;
  if (right < 0.5) return 'It is broken. Try a scale for each row, or ranges of least error.';
  if (gain >= 1) return `${gain} points more than one plain scale for each tensor at this width.`;
  if (right > 0.97) return 'As good as 32 bits.';
  return 'It stumbles. Finer scales or better ranges help.';
}
