// Panel of a single tensor: pictures of its numbers before and after.
import { drawAxis, type Frame, place } from '../shared/axis.js';
import { redraw } from '../shared/charts.js';
import { byId, onTheme, svg } from '../shared/dom.js';
import { formatCount, formatDecibels, formatLabel, formatReal, formatShape, formatShare } from '../shared/format.js';
import { breakable, html, live, nothing, picture, scrollBox, type TemplateResult } from '../shared/template.js';
import { kindsFor, planKind } from './kinds.js';
import { kindLabel, type Look, type LookAnswer, type Side, type WeightPicture } from './look.js';
import type { ModelSession } from './session.js';
import { type OpenState, tensorsOf } from './state.js';

/** More levels than this are drawn as a band. */
const mostLines = 80;

/** Draws bars as one path. */
function bars(counts: ArrayLike<number>, low: number, high: number, frame: Frame): SVGPathElement {
  const ground = frame.height - frame.bottom;
  const at = place(0, counts.length, low, high);
  let highest = 1;
  for (let i = 0; i < counts.length; i++) highest = Math.max(highest, counts[i] as number);
  let d = `M${at(0).toFixed(1)} ${ground}`;
  for (let i = 0; i < counts.length; i++) {
    const height = ((counts[i] as number) / highest) * (ground - frame.top);
    d += `V${(ground - (counts[i] === 0 ? 0 : Math.max(1.5, height))).toFixed(1)}H${at(i + 1).toFixed(1)}`;
  }
  return svg('path', { class: 'bars', d: `${d}V${ground}Z` });
}

/** The numbers of the window with the levels that they are rounded to. */
function drawSide(node: SVGSVGElement, answer: LookAnswer, side: Side, name: string): void {
  const { width, height } = node.getBoundingClientRect();
  const frame: Frame = { width, height, left: 8, right: 8, top: 6, bottom: 22 };
  const [first = 0, last = 0] = [side.levels[0], side.levels.at(-1)];
  // Both sides have the same axis.
  const ends = answer.sides.flatMap(({ levels }) => [levels[0] ?? 0, levels.at(-1) ?? 0]);
  const [low, high] = [Math.min(answer.low, ...ends), Math.max(answer.high, ...ends)];
  const air = (high - low) * 0.02 || Math.abs(high) * 0.1 || 1;
  const at = place(low - air, high + air, frame.left, frame.width - frame.right);
  const ground = height - frame.bottom;
  const levels = svg('g', { class: 'levels' });
  if (side.hasMore || side.levels.length > mostLines) {
    const [from, to] = [at(first), at(last)];
    levels.append(svg('rect', { class: 'band', x: from, y: frame.top, width: to - from, height: ground - frame.top }));
  } else {
    const d = [...side.levels].map((level) => `M${at(level).toFixed(1)} ${frame.top}V${ground}`).join('');
    levels.append(svg('path', { d }));
  }
  const count = side.hasMore ? 'More than a thousand' : formatCount(side.levels.length);
  const words = `${count} values from ${formatLabel(first)} to ${formatLabel(last)} stand for the numbers.`;
  redraw(node, width, height, `${name}: numbers and levels`, words, [
    bars(answer.bins, at(answer.low), at(answer.high), frame),
    levels,
    drawAxis(node, frame, at, low - air, high + air),
  ]);
}

/** The errors of both sides on the same axes: A as bars, B as a line. */
function drawErrors(node: SVGSVGElement, { sides, reach }: LookAnswer): void {
  const { width, height } = node.getBoundingClientRect();
  const frame: Frame = { width, height, left: 8, right: 8, top: 6, bottom: 22 };
  const at = place(-reach, reach, frame.left, width - frame.right);
  const [a, b] = sides;
  const line = bars(b.errors, frame.left, width - frame.right, frame);
  line.setAttribute('class', 'outline');
  redraw(
    node,
    width,
    height,
    'Errors of A and B',
    `Errors of A reach ${formatReal(a.reach, 3)}, those of B ${formatReal(b.reach, 3)}.`,
    [bars(a.errors, frame.left, width - frame.right, frame), line, drawAxis(node, frame, at, -reach, reach)],
  );
}

/** Paints the columns of a picture from `first` on. */
function paint(
  image: ImageData,
  values: Float32Array,
  reach: number,
  first: number,
  colors: readonly (readonly number[])[],
) {
  const { width, data } = image;
  const [low = [], zero = [], high = []] = colors;
  for (let i = 0; i < values.length; i++) {
    if (i % width < first) continue;
    const value = values[i] as number;
    const share = Math.min(1, Math.abs(value) / reach);
    const end = value < 0 ? low : high;
    for (let c = 0; c < 3; c++) {
      data[4 * i + c] = (zero[c] as number) + share * ((end[c] as number) - (zero[c] as number));
    }
    data[4 * i + 3] = 255;
  }
}

/** The part of the tensor in the picture, in words. */
function partText({ picture: { rows, columns, of, around, isSampled }, numbers }: LookAnswer): string {
  const size = `${formatCount(rows)} × ${formatCount(columns)}`;
  // The last row of a wrapped vector may be shorter.
  if (rows * columns === of[0] * of[1]) return `All ${formatCount(numbers)} numbers.`;
  if (!isSampled) return `${size} numbers of ${formatShape(of)}, each of them.`;
  const isWhole = around[0] * around[1] === of[0] * of[1];
  return `${isWhole ? 'The whole tensor' : 'The rows of this part'}: ${size} of ${isWhole ? 'its ' : ''}${formatShape(around)} numbers, evenly spread.`;
}

/** The numbers that are shown. */
function zoomText({ window, part, numbers }: LookAnswer): string {
  if (window.zoom === 0) return `all ${formatCount(numbers)} numbers`;
  const [from, to] = part;
  return `numbers ${formatCount(from + 1)} to ${formatCount(to)} of ${formatCount(numbers)}`;
}

/** The difference in a sentence. */
function verdict([a, b]: readonly [Side, Side]): string {
  const gain = b.error.sqnrDb - a.error.sqnrDb;
  if (!Number.isFinite(gain)) return '';
  if (Math.abs(gain) < 0.05 && Math.abs(b.bits - a.bits) < 0.01) return 'A and B come out alike.';
  const size = b.bits / a.bits - 1;
  const bytes =
    Math.abs(size) < 0.005
      ? 'as large'
      : `${Math.round(100 * Math.abs(size))}\u00a0% ${size > 0 ? 'larger' : 'smaller'}`;
  const ratio = 10 ** (Math.abs(gain) / 20);
  const times = ratio < 1.1 ? `${Math.round(100 * (ratio - 1))}\u00a0%` : `${formatReal(ratio, 2)} times`;
  const error = Math.abs(gain) < 0.05 ? 'as large' : `${times} ${gain < 0 ? 'larger' : 'smaller'}`;
  return `B is ${bytes}, and its error is ${error}.`;
}

/** The panel beside the table: one tensor, stored in two ways. */
export class LookPanel {
  readonly #session: ModelSession;
  readonly #redraw: () => void;
  /** Place of the divider between before and after, in percent. */
  #divider = 50;
  /** The side whose numbers are on the right of the divider. */
  #side: 0 | 1 = 0;
  /** Counts changes of the colors. */
  #theme = 0;

  constructor(session: ModelSession, redraw: () => void) {
    this.#session = session;
    this.#redraw = redraw;
    onTheme(document.documentElement, () => {
      this.#theme++;
      redraw();
    });
  }

  /** Paints the weights: before on the left of the divider, after on its right. */
  #paint(canvas: HTMLCanvasElement, { rows, columns, before, after, reach }: WeightPicture): void {
    // The colors of the scale, as the legend has them: red, green and blue from 0 to 255.
    const colors = ['low', 'zero', 'high'].map((name) => {
      const { backgroundColor } = getComputedStyle(byId(`look-${name}`, HTMLElement));
      return (backgroundColor.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
    });
    canvas.width = columns;
    canvas.height = rows;
    const image = new ImageData(columns, rows);
    paint(image, before, reach, 0, colors);
    paint(image, after[this.#side], reach, Math.round((this.#divider / 100) * columns), colors);
    canvas.getContext('2d')?.putImageData(image, 0, 0);
  }

  #kindsView(look: Look, index: 0 | 1, shape: readonly number[] | undefined): TemplateResult {
    const groups = new Map<string, TemplateResult[]>();
    const add = (group: string, id: string, label: string) => {
      const option = html`<option value=${id} .selected=${live(id === look.kinds[index])}>${label}</option>`;
      groups.set(group, [...(groups.get(group) ?? []), option]);
    };
    if (look.type !== undefined) add('The plan', planKind, kindLabel(planKind, look));
    for (const { id, label, group } of kindsFor(Math.max(1, shape?.at(-1) ?? 1))) add(group, id, label);
    const [letter, name] = index === 0 ? ['A', 'look-a'] : ['B', 'look-b'];
    const compare = ({ target }: Event) => this.#session.compareAs(index, (target as HTMLSelectElement).value);
    return html`<label class="side"><span class="letter">${letter}</span><select id=${name} aria-label="${letter}: stored as" @change=${compare}>${[
      ...groups,
    ].map(([label, options]) => html`<optgroup label=${label}>${options}</optgroup>`)}</select></label>`;
  }

  #answerView(look: Look, answer: LookAnswer, shape: readonly number[] | undefined): TemplateResult {
    // Sliders are where the visitor put them, also before the numbers of that place are there.
    const { window: wanted } = look;
    const { sides, labels, zooms, places, exact, numbers, picture: weights } = answer;
    const [a, b] = sides;
    const name = labels[this.#side];
    const at = Math.round((this.#divider / 100) * weights.columns) / weights.columns;
    const words = zoomText(answer);
    const side = (index: 0 | 1, letter: string) => html`
      <svg class="chart side-picture" id="look-${letter}-picture" role="img" ${picture(
        (node: SVGSVGElement) => drawSide(node, answer, sides[index], labels[index]),
        [answer],
      )}><title>${letter}</title><desc>Nothing is drawn yet.</desc></svg>`;
    const slide = ({ target }: Event) => {
      this.#divider = (target as HTMLInputElement).valueAsNumber;
      this.#redraw();
    };
    const radio = (index: 0 | 1, letter: string) => {
      const choose = () => {
        this.#side = index;
        this.#redraw();
      };
      return html`<label><input type="radio" name="look-after" value=${letter.toLowerCase()} .checked=${live(index === this.#side)} @change=${choose}><span>${letter}</span></label>`;
    };
    const row = (letter: string, { error, bits, clipped }: Side, other: Side) => html`<tr
      ><th scope="row">${letter}</th
      ><td class=${error.sqnrDb > other.error.sqnrDb ? 'number better' : 'number'}>${formatDecibels(error.sqnrDb)}</td
      ><td class="number">${formatReal(error.maxAbsoluteError, 3)}</td
      ><td class="number">${error.cosine.toFixed(5)}</td
      ><td class="number">${formatReal(bits, 3)}</td
      ><td class="number">${formatShare(clipped)}</td></tr>`;
    return html`
      <div id="look-content">
        <div class="divided-head"><span>Before</span><span id="look-after-name">After: ${name}</span></div>
        <div class="divided covered" id="look-divided" .style=${`--at: ${at}`}>
          <canvas id="look-weights" role="img" width="1" height="1" aria-label="Weights before and after as ${name}. ${partText(answer)}"
            ${picture((canvas: HTMLCanvasElement) => this.#paint(canvas, weights), [answer, this.#divider, this.#side, this.#theme])}></canvas>
          <input type="range" id="look-divider" min="0" max="100" step="1" .value=${live(String(this.#divider))} aria-label="Divider between before and after"
            aria-valuetext="before on the left ${this.#divider} percent" @input=${slide}>
          <span class="divider" aria-hidden="true"></span>
        </div>
        <div class="divided-foot">
          <p class="hint"><span class="swatch low" id="look-low"></span>below 0 <span class="swatch zero" id="look-zero"></span>0 <span class="swatch high" id="look-high"></span>above 0</p>
          <fieldset class="segments" id="look-after"><legend class="hidden">After</legend>${radio(0, 'A')}${radio(1, 'B')}</fieldset>
        </div>
        <p class="hint" id="look-weights-words">${partText(answer)}</p>
        ${this.#kindsView(look, 0, shape)}
        ${side(0, 'a')}
        ${this.#kindsView(look, 1, shape)}
        ${side(1, 'b')}
        <div class="field">
          <label class="pair" for="look-zoom">Zoom</label>
          <input type="range" id="look-zoom" min="0" max=${zooms} step="1" .value=${live(String(wanted.zoom))} aria-valuetext=${words}
            @input=${({ target }: Event) => this.#session.zoom((target as HTMLInputElement).valueAsNumber)}>
        </div>
        <div class="field">
          <label class="pair" for="look-place">Place</label>
          <input type="range" id="look-place" min="0" max=${Math.max(1, places - 1)} step="1" ?disabled=${places < 2} .value=${live(String(wanted.place))} aria-valuetext=${words}
            @input=${({ target }: Event) => this.#session.moveTo({ zoom: wanted.zoom, place: (target as HTMLInputElement).valueAsNumber })}>
          <p class="hint" id="look-part" aria-hidden="true">${words}</p>
        </div>
        <h3>Errors <span class="legend"><span class="key bar-key"></span>A <span class="key outline-key"></span>B</span></h3>
        <svg class="chart side-picture" id="look-errors" role="img" ${picture((node: SVGSVGElement) => drawErrors(node, answer), [answer])}><title>Errors</title><desc>Nothing is drawn yet.</desc></svg>
        <p class="verdict" id="look-verdict" role="status">${verdict(sides)}</p>
        <div class="scroll" data-name="Figures of A and B" ${scrollBox()}>
          <table class="look-table">
            <thead><tr><th scope="col"><span class="hidden">Setting</span></th><th scope="col" class="number">SQNR</th><th scope="col" class="number">Largest error</th><th scope="col" class="number">Cosine</th><th scope="col" class="number">Bits</th><th scope="col" class="number">Clipped</th></tr></thead>
            <tbody id="look-figures">${row('A', a, b)}${row('B', b, a)}</tbody>
          </table>
        </div>
        <p class="hint" id="look-basis">${exact ? `All ${formatCount(numbers)} numbers.` : `A sample: ${formatCount(numbers)} numbers from the middle.`}</p>
      </div>`;
  }

  view(state: OpenState): TemplateResult {
    const { look } = state;
    const hint = html`<p class="look-hint" id="look-hint" ?hidden=${look !== undefined}>Press the name of a tensor. Its numbers show here, stored in two ways.</p>`;
    if (look === undefined) return hint;
    const { name, answer, problem } = look;
    const tensor = tensorsOf(state).find((one) => one.name === name);
    let facts = '';
    if (tensor !== undefined) {
      const { shape, from, to, kept } = tensor;
      const becomes = state.plan === undefined ? from : `${from} becomes ${to}`;
      facts = `${formatShape(shape)} · ${kept === undefined ? becomes : `${from}, stays: ${kept.text}`}`;
    }
    return html`
      ${hint}
      <section class="look" id="look" aria-labelledby="look-name" aria-busy=${String(answer === undefined && problem === undefined)}>
        <h2 class="look-name" id="look-name" tabindex="-1">${breakable(name)}</h2>
        <p class="hint" id="look-facts">${facts}</p>
        <p class="problem" id="look-problem" role="alert" ?hidden=${problem === undefined}>${problem ?? ''}</p>
        ${answer === undefined ? nothing : this.#answerView(look, answer, tensor?.shape)}
      </section>`;
  }
}
