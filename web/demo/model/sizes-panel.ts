// Panel of the size slider.
import type { SizePoint } from '../../src/tooling.js';
import { byId, onResize, setText } from '../shared/dom.js';
import { formatBytes, formatDecibels } from '../shared/format.js';
import { type ChartMark, drawLines } from '../shared/lines.js';
import { sentence } from '../shared/problems.js';
import { bytesIn, decibelsOf, isQuick, lossAt, type SizeCurve, sizeText, stopsOf, unitOf } from './sizes.js';
import { isSaving, type State } from './state.js';
import { formatSeconds } from './wording.js';

type MeasuredSizes = SizeCurve & { kind: 'measured' };

/** Events of the slider. */
interface SizeEvents {
  measure(): void;
  cancel(): void;
  choose(size: string): void;
}

/** A pause of the slider, after which its size is taken. */
const restMilliseconds = 150;

/** Half the width of the slider's thumb, in pixels. */
const halfThumb = 8;

/** A size, and its loss. */
interface Chosen extends SizePoint {
  /** True if measured for this size. Otherwise an upper bound from the curve. */
  readonly isExact: boolean;
}

/** Loss at a size by the curve: that of the best mixture that is not larger. */
function pointAt(curve: readonly SizePoint[], bytes: number): Chosen {
  return { bytes, error: lossAt(curve, bytes) ?? curve[0]?.error ?? 0, isExact: false };
}

/** Draws the curve, the presets and the size that was chosen, and puts the slider below. */
function drawCurve({ curve, marks, tensors }: MeasuredSizes, chosen: Chosen | undefined): void {
  const node = byId('size-curve', SVGSVGElement);
  const { width, height } = node.getBoundingClientRect();
  if (width === 0) return;
  const { unit, factor } = unitOf(curve.at(-1)?.bytes ?? 0);
  const placed = ({ bytes, error }: SizePoint) => ({ x: bytes / factor, y: decibelsOf(error, tensors) });
  const { low, high } = stopsOf(curve);
  const inside = marks.filter(({ bytes }) => bytes <= high * 1.02);
  const all: ChartMark[] = inside.map(({ label, ...point }) => ({ ...placed(point), label }));
  if (chosen !== undefined) all.push({ ...placed(chosen), label: formatBytes(chosen.bytes), isChosen: true });
  const at = drawLines(
    node,
    { series: [{ name: 'Least loss', style: 1, points: curve.map(placed) }], marks: all, unit, width, height },
    'Predicted SQNR of each size',
    `From ${formatBytes(low)} with ${text(pointAt(curve, low), tensors)} to ${formatBytes(high)} with ${text(pointAt(curve, high), tensors)}.`,
  );
  if (at === undefined) return;
  const [start, end] = [at(low / factor) - halfThumb, at(high / factor) + halfThumb];
  const { style } = byId('size', HTMLInputElement);
  style.setProperty('--start', `${start.toFixed(1)}px`);
  style.setProperty('--span', `${(end - start).toFixed(1)}px`);
}

/** A loss as a mean over the weights. */
const text = ({ error }: SizePoint, tensors: number) => formatDecibels(Number(decibelsOf(error, tensors).toFixed(1)));

/** Comparison of a size with the smallest preset that is neither smaller nor more exact. */
function comparison({ marks }: MeasuredSizes, { bytes, error }: Chosen): string {
  const beaten = marks.find((mark) => mark.bytes >= bytes && mark.error >= error);
  if (beaten === undefined) return '';
  const smaller = Math.round((1 - bytes / beaten.bytes) * 100);
  const closer = decibelsOf(error, 1) - decibelsOf(beaten.error, 1);
  const gains = [
    ...(smaller < 1 ? [] : [`${smaller}\u00a0% smaller`]),
    ...(closer < 0.1 ? [] : [`${closer.toFixed(1)}\u00a0dB closer`]),
  ];
  return gains.length === 0 ? '' : `Than ${beaten.label}: ${gains.join(' and ')}.`;
}

/** The types that the chosen size consists of. */
function mixOf({ plan, fit }: State): string {
  if (plan === undefined || fit === undefined) return '';
  const counts = new Map<string, number>();
  for (const { to, from, shape, kept } of plan.tensors) {
    const name = kept === undefined ? to : `${from} as before`;
    if (shape.length > 1) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const parts = [...counts].sort(([, a], [, b]) => b - a).map(([name, count]) => `${count}\u00a0×\u00a0${name}`);
  return `${parts.join(', ')}.`;
}

/** The sentences beside the slider. */
function wordsFor(sizes: MeasuredSizes, chosen: Chosen | undefined, state: State): string {
  if (chosen === undefined)
    return 'Drag the slider. Scalepoint picks a type for each layer so that this size loses least.';
  const words = [`Predicted: ${text(chosen, sizes.tensors)}, the mean of all weights.`];
  if (chosen.isExact) {
    words.push(mixOf(state), comparison(sizes, chosen));
    if (state.fit?.error === state.fit?.bound) words.push('No mixture of this size has a smaller error.');
  }
  return words.filter((part) => part !== '').join(' ');
}

/** The line about measuring. */
function statusOf(sizes: SizeCurve): string {
  switch (sizes.kind) {
    case 'open':
      return 'Every weight is measured in every type that it can have. That takes longer than saving.';
    case 'measuring': {
      const left = sizes.secondsLeft === undefined ? '' : `, about ${formatSeconds(sizes.secondsLeft)} left`;
      return `Measuring every weight in every type: ${Math.round(sizes.share * 100)} %${left}`;
    }
    case 'failed':
      return `Sizes cannot be predicted for this model. ${sentence(sizes.message)}`;
    default:
      return '';
  }
}

/** Sets up the slider of sizes, over the curve of their losses. */
export function startSizes(events: SizeEvents, current: () => State) {
  const slider = byId('size', HTMLInputElement);
  /** True if the slider was moved to a size that is not chosen yet. */
  let isMoved = false;
  let rest: ReturnType<typeof setTimeout> | undefined;

  /** The size at the slider; undefined if none was ever chosen. */
  const chosenIn = (sizes: MeasuredSizes, { choice, fit }: State): Chosen | undefined => {
    if (isMoved) return pointAt(sizes.curve, slider.valueAsNumber);
    const bytes = bytesIn(choice?.size ?? '');
    if (bytes === undefined) return undefined;
    return fit === undefined ? pointAt(sizes.curve, bytes) : { bytes, error: fit.error, isExact: true };
  };
  const drawMeasured = () => {
    const state = current();
    const { sizes, plan } = state;
    if (sizes.kind !== 'measured') return;
    const chosen = chosenIn(sizes, state);
    if (!isMoved) {
      const { low, high, step } = stopsOf(sizes.curve);
      Object.assign(slider, { min: String(low), max: String(high), step: String(step) });
      // Until a size is chosen, the slider stands where the plan is.
      slider.value = String(chosen?.bytes ?? plan?.totals.bytesAfter ?? high);
    }
    const at = chosen ?? pointAt(sizes.curve, slider.valueAsNumber);
    slider.setAttribute('aria-valuetext', `${formatBytes(at.bytes)}, predicted ${text(at, sizes.tensors)}`);
    setText(byId('size-value', HTMLOutputElement), chosen === undefined ? '' : formatBytes(chosen.bytes));
    setText(byId('size-words', HTMLElement), wordsFor(sizes, chosen, state));
    drawCurve(sizes, chosen);
  };
  const take = () => {
    clearTimeout(rest);
    if (!isMoved) return;
    events.choose(sizeText(slider.valueAsNumber));
    isMoved = false;
  };
  slider.addEventListener('input', () => {
    isMoved = true;
    drawMeasured();
    clearTimeout(rest);
    rest = setTimeout(take, restMilliseconds);
  });
  slider.addEventListener('change', take);
  byId('size-measure', HTMLButtonElement).addEventListener('click', events.measure);
  byId('size-cancel', HTMLButtonElement).addEventListener('click', events.cancel);
  onResize(byId('size-slider', HTMLElement), drawMeasured);

  return (state: State, before: State | undefined) => {
    const { sizes, choice, run, plan, fit, model, isQuantized, problem } = state;
    const works = isSaving(run);
    const measure = byId('size-measure', HTMLButtonElement);
    const cancel = byId('size-cancel', HTMLButtonElement);
    const bar = byId('size-progress', HTMLProgressElement);
    slider.disabled = works;
    measure.disabled = works;
    // A size at which the slider has come to rest belongs to the model that it was moved for.
    if (isMoved && (model !== before?.model || works)) {
      clearTimeout(rest);
      isMoved = false;
      drawMeasured();
    }
    const isSame = sizes === before?.sizes && choice === before.choice && plan === before.plan && fit === before.fit;
    if (isSame && isQuantized === before?.isQuantized && problem === before.problem) return;
    const section = byId('sizes', HTMLElement);
    section.hidden = sizes.kind === 'none';
    section.classList.toggle('chosen', choice?.size !== undefined);
    // The picture has its room before it is there, so that nothing moves when it comes.
    const isSoon = model !== undefined && isQuick(model) && !isQuantized && problem === undefined;
    const isComing = sizes.kind === 'measuring' || (sizes.kind === 'open' && isSoon);
    const picture = byId('size-slider', HTMLElement);
    picture.hidden = sizes.kind !== 'measured' && !isComing;
    picture.classList.toggle('coming', isComing);
    const focused = document.activeElement;
    measure.hidden = sizes.kind !== 'open' && sizes.kind !== 'failed';
    cancel.hidden = sizes.kind !== 'measuring';
    bar.hidden = sizes.kind !== 'measuring';
    if (sizes.kind === 'measuring') bar.value = sizes.share;
    if (sizes.kind === 'measured') drawMeasured();
    else {
      setText(byId('size-words', HTMLElement), statusOf(sizes));
      setText(byId('size-value', HTMLOutputElement), '');
    }
    // A button that is gone hands its focus on.
    if (focused === measure && measure.hidden) (sizes.kind === 'measured' ? slider : cancel).focus();
    if (focused === cancel && cancel.hidden) (sizes.kind === 'measured' ? slider : measure).focus();
  };
}
