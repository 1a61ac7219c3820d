// Panel of the size slider.
import type { SizePoint } from '../../src/tooling.js';
import { formatBytes, formatDecibels } from '../shared/format.js';
import { type ChartMark, decibels, drawLines, type VerticalAxis } from '../shared/lines.js';
import { sentence } from '../shared/problems.js';
import { html, live, nothing, picture, type TemplateResult } from '../shared/template.js';
import type { ModelSession } from './session.js';
import { bytesIn, decibelsOf, isQuick, lossAt, type SizeCurve, sizeText, stopsOf, unitOf } from './sizes.js';
import { isSaving, type OpenState, type State } from './state.js';
import { leftText } from './wording.js';

type MeasuredSizes = SizeCurve & { kind: 'measured' };

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

/** A divergence in nats. */
const divergenceText = (nats: number) => `KL\u00a0${Number(nats.toPrecision(2))}`;

/** A loss as a mean over the weights, or as an expected divergence. */
const lossText = ({ error }: SizePoint, { tensors, isDivergence }: Pick<MeasuredSizes, 'tensors' | 'isDivergence'>) =>
  isDivergence ? divergenceText(error) : formatDecibels(Number(decibelsOf(error, tensors).toFixed(1)));

/** The axis of divergences: the lower ones are above, as far apart as their decibels. */
const divergences: VerticalAxis = {
  ...decibels,
  unit: 'KL',
  label: (tick) => String(Number((10 ** (-tick / 10)).toPrecision(1))),
};

/** Draws the curve, the presets and the size that was chosen, and puts the slider below. */
function drawCurve(node: SVGSVGElement, measured: MeasuredSizes, chosen: Chosen | undefined): void {
  const { curve, marks, tensors, isDivergence } = measured;
  const { width, height } = node.getBoundingClientRect();
  const { unit, factor } = unitOf(curve.at(-1)?.bytes ?? 0);
  const placed = ({ bytes, error }: SizePoint) => ({ x: bytes / factor, y: decibelsOf(error, tensors) });
  const { low, high } = stopsOf(curve);
  const inside = marks.filter(({ bytes }) => bytes <= high * 1.02);
  const all: ChartMark[] = inside.map(({ label, ...point }) => ({ ...placed(point), label }));
  if (chosen !== undefined) all.push({ ...placed(chosen), label: formatBytes(chosen.bytes), isChosen: true });
  const [from, to] = [low, high].map(
    (bytes) => `${formatBytes(bytes)} with ${lossText(pointAt(curve, bytes), measured)}`,
  );
  const at = drawLines(
    node,
    {
      series: [{ name: 'Least loss', style: 1, points: curve.map(placed) }],
      ...{ marks: all, unit, width, height, vertical: isDivergence ? divergences : decibels },
    },
    isDivergence ? 'Expected divergence of each size' : 'Predicted SQNR of each size',
    `From ${from} to ${to}.`,
  );
  const slider = node.nextElementSibling;
  if (at === undefined || !(slider instanceof HTMLInputElement)) return;
  const [start, end] = [at(low / factor) - halfThumb, at(high / factor) + halfThumb];
  slider.style.setProperty('--start', `${start.toFixed(1)}px`);
  slider.style.setProperty('--span', `${(end - start).toFixed(1)}px`);
}

/** Comparison of a size with the smallest preset that is neither smaller nor more exact. */
function comparison({ marks, isDivergence }: MeasuredSizes, { bytes, error }: Chosen): string {
  const beaten = marks.find((mark) => mark.bytes >= bytes && mark.error >= error);
  if (beaten === undefined) return '';
  const smaller = Math.round((1 - bytes / beaten.bytes) * 100);
  const closer = decibelsOf(error, 1) - decibelsOf(beaten.error, 1);
  const gains = [
    ...(smaller < 1 ? [] : [`${smaller}\u00a0% smaller`]),
    ...(closer < 0.1
      ? []
      : [
          isDivergence
            ? `${Math.round((1 - error / beaten.error) * 100)}\u00a0% less divergence`
            : `${closer.toFixed(1)}\u00a0dB closer`,
        ]),
  ];
  return gains.length === 0 ? '' : `Than ${beaten.label}: ${gains.join(' and ')}.`;
}

/** The types that the chosen size consists of. */
function mixtureText({ plan, fit }: State): string {
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
function sizesText(sizes: SizeCurve, chosen: Chosen | undefined, state: State): string {
  switch (sizes.kind) {
    case 'none':
      return '';
    case 'open':
      return `Every weight is measured in every type that it can have. That takes longer than saving${
        state.model?.hub === undefined ? '' : `, and downloads the whole model from ${state.model.hub.host}`
      }.`;
    case 'measuring':
      return `Measuring every weight in every type: ${Math.round(sizes.share * 100)} %${leftText(sizes.secondsLeft)}`;
    case 'failed':
      return `Sizes cannot be predicted for this model. ${sentence(sizes.message)}`;
    case 'measured': {
      if (chosen === undefined)
        return `Drag the slider. Scalepoint picks a type for each layer so that this size loses least.${
          sizes.isDivergence ? '' : ' Decibels (dB) are weights over their errors: 6 dB more halve the errors.'
        }`;
      const loss = lossText(chosen, sizes);
      const words = [
        sizes.isDivergence
          ? `Expected: ${loss}, the divergence of its predictions from the original's, 0 for the same.`
          : `Predicted: ${loss}, the mean of all weights.`,
      ];
      if (chosen.isExact) {
        words.push(mixtureText(state), comparison(sizes, chosen));
        if (state.fit?.error === state.fit?.bound) words.push('No mixture of this size has a smaller error.');
      }
      return words.filter((part) => part !== '').join(' ');
    }
  }
}

/** The slider of sizes, over the curve of their losses. */
export class SizesPanel {
  readonly #session: ModelSession;
  readonly #redraw: () => void;
  /** The size at the slider, if it was moved there and is not chosen yet, and the model that it was moved for. */
  #moved: { readonly bytes: number; readonly model: OpenState['model'] } | undefined;
  #rest: ReturnType<typeof setTimeout> | undefined;

  constructor(session: ModelSession, redraw: () => void) {
    this.#session = session;
    this.#redraw = redraw;
  }

  #drop(): void {
    clearTimeout(this.#rest);
    this.#moved = undefined;
  }

  #take(): void {
    const moved = this.#moved;
    this.#drop();
    if (moved !== undefined) this.#session.chooseSize(sizeText(moved.bytes));
  }

  view(state: OpenState): TemplateResult {
    const { sizes, choice, run, plan, fit, model, isQuantized, problem } = state;
    const works = isSaving(run);
    // A size at which the slider has come to rest belongs to the model that it was moved for.
    if (this.#moved?.model !== model || works) this.#drop();
    const measured = sizes.kind === 'measured' ? sizes : undefined;
    const { curve = [] } = measured ?? {};
    // Find the size at the slider. Until one is chosen, the slider stands where the plan is.
    const { low, high, step } = stopsOf(curve);
    const bytes = bytesIn(choice.size ?? '');
    let chosen: Chosen | undefined;
    if (this.#moved !== undefined) chosen = pointAt(curve, this.#moved.bytes);
    else if (bytes !== undefined)
      chosen = fit === undefined ? pointAt(curve, bytes) : { bytes, error: fit.error, isExact: true };
    const wanted = Math.min(high, Math.max(low, plan?.totals.bytesAfter ?? high));
    const at = chosen ?? pointAt(curve, low + Math.round((wanted - low) / step) * step);
    // The picture has its room before it is there, so that nothing moves when it comes.
    const isSoon = isQuick(model) && !isQuantized && problem === undefined;
    const isComing = sizes.kind === 'measuring' || (sizes.kind === 'open' && isSoon);
    const isMeasuring = sizes.kind === 'measuring';
    const draw = (node: SVGSVGElement) => measured && drawCurve(node, measured, chosen);
    const move = ({ target }: Event) => {
      this.#drop();
      this.#moved = { bytes: (target as HTMLInputElement).valueAsNumber, model };
      this.#rest = setTimeout(() => this.#take(), restMilliseconds);
      this.#redraw();
    };
    return html`
      <section class="sizes ${choice.size === undefined ? '' : 'chosen'}" id="sizes" aria-labelledby="sizes-title" ?hidden=${sizes.kind === 'none'}>
        <div class="sizes-words">
          <h2 id="sizes-title">Or set the size</h2>
          <output class="offer-size" id="size-value" for="size" aria-hidden="true">${measured && chosen ? formatBytes(chosen.bytes) : ''}</output>
          <p class="hint" id="size-words">${sizesText(sizes, chosen, state)}</p>
          <button type="button" id="size-measure" data-next="#size then #size-cancel" ?hidden=${sizes.kind !== 'open' && sizes.kind !== 'failed'} ?disabled=${works}
            @click=${() => this.#session.measureSizes()}>Measure what each size costs</button>
          <progress id="size-progress" max="1" value=${isMeasuring ? sizes.share : 0} aria-label="Progress of measuring" ?hidden=${!isMeasuring}></progress>
          <button type="button" id="size-cancel" data-next="#size then #size-measure" ?hidden=${!isMeasuring} @click=${() => this.#session.cancelSizes()}>Stop measuring</button>
        </div>
        <div class="sizes-picture ${isComing ? 'coming' : ''}" id="size-slider" ?hidden=${measured === undefined && !isComing}>
          <svg class="chart" id="size-curve" role="img" ${picture(draw, [measured, chosen?.bytes, chosen?.error])}><title>Predicted SQNR of each size</title><desc>Nothing is drawn yet.</desc></svg>
          <input type="range" id="size" aria-label="Size of the result, at most" min=${low} max=${high} step=${step} .value=${live(String(at.bytes))}
            aria-valuetext=${measured === undefined ? nothing : `${formatBytes(at.bytes)}, predicted ${lossText(at, measured)}`}
            ?disabled=${works} @input=${move} @change=${() => this.#take()}>
        </div>
      </section>`;
  }
}
