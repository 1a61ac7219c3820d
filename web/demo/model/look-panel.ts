// Panel of a single tensor: pictures of its numbers before and after.
import type { PlannedTensorInfo } from 'scalepoint/model';
import { drawAxis, type Frame, place } from '../shared/axis.js';
import { redraw } from '../shared/charts.js';
import { byId, html, onResize, setName, setText, svg } from '../shared/dom.js';
import { formatCount, formatDecibels, formatLabel, formatReal, formatShape, formatShare } from '../shared/format.js';
import { kindsFor, planKind } from './kinds.js';
import { kindLabel, type Look, type LookAnswer, type Side } from './look.js';
import { startLookPicture } from './look-picture.js';
import { type State, tensorsOf } from './state.js';

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

/** The numbers of the stretch with the levels that they are rounded to. */
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

/** The figures of a side as a row of the table. */
function figureRow(letter: string, side: Side, isBetter: boolean): HTMLTableRowElement {
  const { error, bits, clipped } = side;
  const cell = (text: string, better = false) => html('td', { class: better ? 'number better' : 'number' }, text);
  return html(
    'tr',
    {},
    html('th', { scope: 'row' }, letter),
    cell(formatDecibels(error.sqnrDb), isBetter),
    cell(formatReal(error.maxAbsoluteError, 3)),
    cell(error.cosine.toFixed(5)),
    cell(formatReal(bits, 3)),
    cell(formatShare(clipped)),
  );
}

/** The numbers that are shown. */
function zoomText({ stretch, part, numbers }: LookAnswer): string {
  if (stretch === 0) return `all ${formatCount(numbers)} numbers`;
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

function fillKinds(select: HTMLSelectElement, width: number, look: Look, chosen: string): void {
  const groups = new Map<string, HTMLOptGroupElement>();
  if (look.type !== undefined) {
    const option = html('option', { value: planKind }, kindLabel(planKind, look));
    groups.set('plan', html('optgroup', { label: 'The plan' }, option));
  }
  for (const { id, label, group } of kindsFor(width)) {
    const box = groups.get(group) ?? html('optgroup', { label: group });
    groups.set(group, box);
    box.append(html('option', { value: id }, label));
  }
  select.replaceChildren(...groups.values());
  select.value = chosen;
}

function drawAnswer(answer: LookAnswer): void {
  const { sides, labels, stretch, stretches, exact, numbers } = answer;
  const [a, b] = sides;
  const pictures = ['look-a-picture', 'look-b-picture'].map((id) => byId(id, SVGSVGElement));
  for (const [i, node] of pictures.entries()) drawSide(node, answer, sides[i] as Side, labels[i] ?? '');
  drawErrors(byId('look-errors', SVGSVGElement), answer);
  byId('look-figures', HTMLElement).replaceChildren(
    figureRow('A', a, a.error.sqnrDb > b.error.sqnrDb),
    figureRow('B', b, b.error.sqnrDb > a.error.sqnrDb),
  );
  setText(byId('look-verdict', HTMLElement), verdict(sides));
  setText(
    byId('look-basis', HTMLElement),
    exact ? `All ${formatCount(numbers)} numbers.` : `A sample: ${formatCount(numbers)} numbers from the middle.`,
  );
  const slider = byId('look-stretch', HTMLInputElement);
  slider.max = String(stretches);
  slider.value = String(stretch);
  const words = zoomText(answer);
  slider.setAttribute('aria-valuetext', words);
  setText(byId('look-stretch-value', HTMLElement), words);
}

/** Sets up the panel beside the table: one tensor, stored in two ways. */
export function startLookView(
  compare: (change: Partial<Pick<Look, 'kinds' | 'stretch'>>) => void,
  current: () => State,
) {
  const panel = byId('look', HTMLElement);
  const selects = [byId('look-a', HTMLSelectElement), byId('look-b', HTMLSelectElement)] as const;
  for (const select of selects) {
    select.addEventListener('change', () => compare({ kinds: [selects[0].value, selects[1].value] }));
  }
  const slider = byId('look-stretch', HTMLInputElement);
  slider.addEventListener('input', () => compare({ stretch: slider.valueAsNumber }));
  const drawWeights = startLookPicture(() => current().look);
  const drawPictures = () => {
    const { look } = current();
    // A hidden panel has no room for pictures. They are drawn when it is shown.
    if (look?.answer === undefined || panel.getBoundingClientRect().width === 0) return;
    drawAnswer(look.answer);
    drawWeights();
  };
  onResize(panel, drawPictures);

  return (state: State, before: State | undefined) => {
    const { look } = state;
    if (look === before?.look && state.plan === before?.plan) return;
    panel.hidden = look === undefined;
    byId('look-hint', HTMLElement).hidden = look !== undefined;
    if (look === undefined) return;
    const tensor = tensorsOf(state).find(({ name }) => name === look.name);
    const { name, kinds, type } = look;
    const drawn = before?.look;
    if (name !== drawn?.name || type !== drawn.type || kinds.join() !== drawn.kinds.join()) {
      setName(byId('look-name', HTMLElement), look.name);
      const width = Math.max(1, tensor?.shape.at(-1) ?? 1);
      for (const [i, select] of selects.entries()) fillKinds(select, width, look, look.kinds[i] ?? '');
    }
    setText(byId('look-facts', HTMLElement), factsOf(tensor));
    const problem = byId('look-problem', HTMLElement);
    problem.hidden = look.problem === undefined;
    setText(problem, look.problem ?? '');
    panel.ariaBusy = String(look.answer === undefined && look.problem === undefined);
    byId('look-content', HTMLElement).hidden = look.answer === undefined;
    drawPictures();
  };
}

function factsOf(tensor: PlannedTensorInfo | undefined): string {
  if (tensor === undefined) return '';
  const { shape, from, to, kept } = tensor;
  return `${formatShape(shape)} · ${kept === undefined ? `${from} becomes ${to}` : `${from}, stays: ${kept.text}`}`;
}
