import { drawAxis, type Frame, place, ticks } from '../shared/axis.js';
import { byId, setText, svg } from '../shared/dom.js';
import { formatLabel } from '../shared/format.js';
import type { Picture } from './messages.js';
import type { Settings } from './settings.js';

/** Results of a query. */
const k = 10;

/** The places of the true neighbors: whether each is among the vectors that are scored again, or returned. */
interface Landing {
  readonly found: number;
  readonly neighbors: number;
  /** Score by codes that a vector needs. */
  readonly cut: number;
  /** True if the better scores are the higher ones. */
  readonly up: boolean;
}

function landingOf({ estimates, neighbors, best }: Picture, { factor, metric }: Settings): Landing {
  const up = metric !== 'euclidean';
  const cut = best[Math.min(best.length, k * Math.max(1, factor)) - 1] ?? Number.NaN;
  const isIn = (estimate: number) => (up ? estimate >= cut : estimate <= cut);
  return { found: estimates.subarray(0, neighbors).filter(isIn).length, neighbors, cut, up };
}

const names = { cosine: 'cosine', dot: 'dot product', euclidean: 'distance' } as const;

/** Text alternative of the picture. */
function pictureWords({ found, neighbors }: Landing, settings: Settings, queries: number): string {
  const { factor, query } = settings;
  const where = factor === 0 ? `the ${k} best by codes` : `the ${k * factor} best by codes, which are scored again`;
  return `Query ${query + 1} of ${queries}: ${found} of its ${neighbors} true neighbors are among ${where}.`;
}

/** Draws exact scores against those by codes. */
export function drawPicture(picture: Picture | undefined, settings: Settings, queries: number): void {
  const chart = byId('chart', SVGSVGElement);
  const { width, height } = chart.getBoundingClientRect();
  const words = byId('picture-words', HTMLElement);
  if (picture === undefined || width === 0) {
    setText(words, 'Where the true neighbors of a query land.');
    chart.replaceChildren();
    return;
  }
  const frame: Frame = { width, height, left: 46, right: 12, top: 22, bottom: 36 };
  chart.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const { exact, estimates, neighbors } = picture;
  const landing = landingOf(picture, settings);
  setText(words, pictureWords(landing, settings, queries));

  // Better scores are to the right and at the top.
  const flip = landing.up ? 1 : -1;
  const range = (values: Float32Array, more: readonly number[]) => {
    let [low, high] = [Infinity, -Infinity];
    for (const list of [values, more]) {
      for (const value of list) {
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    const margin = 0.02 * (high - low || 1);
    return [low - margin, high + margin] as const;
  };
  const [left, right] = range(exact, []);
  const [low, high] = range(estimates, Number.isNaN(landing.cut) ? [] : [landing.cut]);
  const across = place(left, right, frame.left, width - frame.right);
  const up = place(low, high, height - frame.bottom, frame.top);
  const x = landing.up ? across : (value: number) => width - frame.right + frame.left - across(value);
  const y = landing.up ? up : (value: number) => height - frame.bottom + frame.top - up(value);

  // One path for all dots of a kind is drawn in a fraction of the time of one element each.
  const cloud: string[] = [];
  const found: string[] = [];
  const lost: SVGElement[] = [];
  for (let i = 0; i < exact.length; i++) {
    const [px, py] = [x(exact[i] as number), y(estimates[i] as number)];
    if (!Number.isFinite(py)) continue;
    const dot = `M${px.toFixed(1)} ${py.toFixed(1)}h0`;
    if (i >= neighbors) cloud.push(dot);
    else if (((estimates[i] as number) - landing.cut) * flip >= 0) found.push(dot);
    else lost.push(svg('circle', { cx: px, cy: py, r: 5, class: 'lost' }));
  }
  const grid = svg('g', { class: 'axis' });
  for (const value of ticks(low, high, (height - frame.top - frame.bottom) / 50)) {
    const at = y(value);
    grid.append(
      svg('line', { x1: frame.left - 4, x2: frame.left, y1: at, y2: at }),
      svg('text', { x: frame.left - 8, y: at + 4, 'text-anchor': 'end' }, formatLabel(value)),
    );
  }
  grid.append(
    svg('line', { x1: frame.left - 0.5, x2: frame.left - 0.5, y1: frame.top, y2: height - frame.bottom }),
    svg('text', { x: 0, y: 12 }, `${names[settings.metric]} by codes`),
    svg('text', { x: width, y: height - 2, 'text-anchor': 'end' }, `exact ${names[settings.metric]}`),
  );
  // The line on which both scores are equal, as far as it is in the picture.
  const [from, to] = [Math.max(left, low), Math.min(right, high)];
  const same = from < to ? [svg('line', { class: 'same', x1: x(from), y1: y(from), x2: x(to), y2: y(to) })] : [];
  const cut = y(landing.cut);
  chart.replaceChildren(
    ...same,
    svg('path', { class: 'cloud', d: cloud.join('') }),
    svg('line', { class: 'cut', x1: frame.left, x2: width - frame.right, y1: cut, y2: cut }),
    svg('path', { class: 'neighbors', d: found.join('') }),
    ...lost,
    // Drawn as always, with the lower values on the left; a distance has them on the right.
    drawAxis(chart, frame, x, left, right),
    grid,
    svg(
      'text',
      { class: 'cut-words', x: frame.left + 6, y: cut - 6 },
      settings.factor === 0 ? `the ${k} best are returned` : `the ${k * settings.factor} best are scored again`,
    ),
  );
}
