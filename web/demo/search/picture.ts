import { type AxisMap, drawAxis, type Frame, place, ticks } from '../shared/axis.js';
import { svg } from '../shared/dom.js';
import { formatLabel } from '../shared/format.js';
import { render, svg as svgView, type TemplateResult } from '../shared/template.js';
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
export function pictureWords(picture: Picture, settings: Settings, queries: number): string {
  const { factor, query } = settings;
  const { found, neighbors } = landingOf(picture, settings);
  const where = factor === 0 ? `the ${k} best by codes` : `the ${k * factor} best by codes, which are scored again`;
  return `Query ${query + 1} of ${queries}: ${found} of its ${neighbors} true neighbors are among ${where}.`;
}

/** The part of the picture that does not depend on the factor, and where its scores are. */
interface Base {
  readonly picture: Picture;
  readonly width: number;
  readonly height: number;
  readonly frame: Frame;
  readonly x: AxisMap;
  readonly y: AxisMap;
  /** The rest of the picture. */
  readonly landingGroup: SVGGElement;
}

let drawn: Base | undefined;

/** Lowest and highest value, with a margin. */
function rangeOf(...lists: readonly Iterable<number>[]): readonly [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) {
    for (const value of list) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  const margin = 0.02 * (high - low || 1);
  return [low - margin, high + margin];
}

/** Draws the axes and the cloud of scores, which takes several times as long as the rest. */
function drawBase(
  chart: SVGSVGElement,
  picture: Picture,
  metric: Settings['metric'],
  width: number,
  height: number,
): Base {
  const frame: Frame = { width, height, left: 46, right: 12, top: 22, bottom: 36 };
  chart.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const { exact, estimates, neighbors, best } = picture;
  const [left, right] = rangeOf(exact);
  // All cuts lie among the best, so that the axis is the same for each factor.
  const [low, high] = rangeOf(estimates, best.subarray(Math.min(k, best.length) - 1));
  const across = place(left, right, frame.left, width - frame.right);
  const up = place(low, high, height - frame.bottom, frame.top);
  // Better scores are to the right and at the top.
  const isUp = metric !== 'euclidean';
  const x = isUp ? across : (value: number) => width - frame.right + frame.left - across(value);
  const y = isUp ? up : (value: number) => height - frame.bottom + frame.top - up(value);

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
    svg('text', { x: 0, y: 12 }, `${names[metric]} by codes`),
    svg('text', { x: width, y: height - 2, 'text-anchor': 'end' }, `exact ${names[metric]}`),
  );
  // The line on which both scores are equal, as far as it is in the picture.
  const [from, to] = [Math.max(left, low), Math.min(right, high)];
  const same = from < to ? [svg('line', { class: 'same', x1: x(from), y1: y(from), x2: x(to), y2: y(to) })] : [];
  // One path for all dots is drawn in a fraction of the time of one element each.
  const cloud: string[] = [];
  for (let i = neighbors; i < exact.length; i++) cloud.push(dotAt(x(exact[i] as number), y(estimates[i] as number)));
  const landingGroup = svg('g', { class: 'landing' });
  chart.replaceChildren(
    ...same,
    svg('path', { class: 'cloud', d: cloud.join('') }),
    // Drawn as always, with the lower values on the left; a distance has them on the right.
    drawAxis(chart, frame, x, left, right),
    grid,
    landingGroup,
  );
  return { picture, width, height, frame, x, y, landingGroup };
}

const dotAt = (x: number, y: number) => (Number.isFinite(y) ? `M${x.toFixed(1)} ${y.toFixed(1)}h0` : '');

/** Draws exact scores against those by codes. */
export function drawPicture(chart: SVGSVGElement, picture: Picture | undefined, settings: Settings | undefined): void {
  if (picture === undefined || settings === undefined) {
    chart.replaceChildren();
    drawn = undefined;
    return;
  }
  const { width, height } = chart.getBoundingClientRect();
  const landing = landingOf(picture, settings);
  if (drawn?.picture !== picture || drawn.width !== width || drawn.height !== height) {
    drawn = drawBase(chart, picture, settings.metric, width, height);
  }
  const { frame, x, y, landingGroup } = drawn;
  const { exact, estimates, neighbors } = picture;
  const flip = landing.up ? 1 : -1;
  const found: string[] = [];
  const lost: TemplateResult[] = [];
  for (let i = 0; i < neighbors; i++) {
    const [px, py] = [x(exact[i] as number), y(estimates[i] as number)];
    if (!Number.isFinite(py)) continue;
    if (((estimates[i] as number) - landing.cut) * flip >= 0) found.push(dotAt(px, py));
    else lost.push(svgView`<circle cx=${px} cy=${py} r="5" class="lost" />`);
  }
  const cut = y(landing.cut);
  const words =
    settings.factor === 0 ? `the ${k} best are returned` : `the ${k * settings.factor} best are scored again`;
  render(
    svgView`<line class="cut" x1=${frame.left} x2=${width - frame.right} y1=${cut} y2=${cut} />
      <path class="neighbors" d=${found.join('')} />${lost}
      <text class="cut-words" x=${frame.left + 6} y=${cut - 6}>${words}</text>`,
    landingGroup,
  );
}
