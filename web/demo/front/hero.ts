// The first view: the slider of the bits, the wall of digits, and the pad to draw on.
import { stopsView, valueAt } from '../shared/controls.js';
import { formatBytes, formatReal, formatShare } from '../shared/format.js';
import { html, live, picture, type TemplateResult } from '../shared/template.js';
import { labelOf, labels } from './digits.js';
import { plainStorage, widths } from './network.js';
import type { Pad } from './pad.js';
import { keyOf, type State } from './state.js';
import { digitAt, drawWall } from './wall.js';

/** Readings at a width, with plain scales. */
const readingOf = ({ readings }: State, bits: number) => readings.get(keyOf(plainStorage(bits)));

/** Says how much smaller a width makes the network, and how many digits it loses. At 32 bits, speaks of 4 bits. */
function pointOf(state: State): string {
  const { bits, shown } = state;
  const [all, other] = [readingOf(state, 32), readingOf(state, bits === 32 ? 4 : bits)];
  if (all === undefined || other === undefined) return '';
  let lost = 0;
  for (let n = 0; n < shown; n++) if (all.read[n] === labelOf(n) && other.read[n] !== labelOf(n)) lost++;
  const words = `${formatReal(all.bytes / other.bytes, 2)} times smaller, ${lost} of these ${shown} digits lost.`;
  return bits === 32 ? `4 bits would be ${words}` : words.replace(/^./, (letter) => letter.toUpperCase());
}

/** The result at a width, for screen readers. */
export function resultText(state: State): string {
  const reading = readingOf(state, state.bits);
  if (reading === undefined) return '';
  const share = formatShare(reading.right / reading.read.length);
  return `${state.bits} bits: ${share} right, ${formatBytes(reading.bytes)}`;
}

function widthView(state: State, set: (change: Partial<State>) => void): TemplateResult {
  const { bits } = state;
  const reading = readingOf(state, bits);
  const right = reading === undefined ? 0 : reading.right / reading.read.length;
  const at = widths.indexOf(bits as (typeof widths)[number]);
  return html`<div class="hero-control">
    <dl class="hero-figures">
      <div><dt>Every number takes</dt><dd id="width-bits">${bits} bits</dd></div>
      <div><dt>The network takes</dt><dd id="width-bytes">${reading && formatBytes(reading.bytes)}</dd></div>
      <div><dt>Digits read right</dt><dd id="width-right" class=${right < 0.9 ? 'bad' : ''}>${formatShare(right)}</dd></div>
    </dl>
    <label class="hidden" for="width">Bits of every number in the network</label>
    <input type="range" class="big-slider" id="width" min="0" max=${widths.length - 1} step="1" .value=${live(String(at))} aria-valuetext="${bits} bits"
      @input=${(event: Event) => set({ bits: widths[valueAt(event)] ?? 32 })}>
    ${stopsView(widths, at)}
    <p class="idea-result" id="hero-point">${pointOf(state)}</p>
  </div>`;
}

/** Source of the readings, in words. */
function basisText(state: State): string {
  const reading = readingOf(state, state.bits);
  if (reading !== undefined && !reading.isRecorded) return 'Computed in this browser.';
  return state.failed ? 'Recorded: nothing could be computed here.' : 'Recorded, and computed here in a moment.';
}

/** The wall in words. */
function captionText(state: State): string {
  const { bits, pointed, digits, shown } = state;
  const read = readingOf(state, bits)?.read;
  if (read === undefined || read.length < Math.min(digits, shown)) return 'Digits that the network has never seen.';
  if (pointed !== undefined && pointed < read.length) {
    return read[pointed] === labels[pointed]
      ? `This ${labels[pointed]} is read right.`
      : `This ${labels[pointed]} is taken for a ${read[pointed]}.`;
  }
  let right = 0;
  for (let n = 0; n < shown; n++) if (read[n] === labelOf(n)) right++;
  if (right === shown) return `The network reads all of these ${shown} new digits.`;
  return `The network reads ${right} of these ${shown} new digits. Its mistakes are red.`;
}

/** The wall of digits. Those that are read wrongly are lit. */
function wallView(state: State, set: (change: Partial<State>) => void): TemplateResult {
  const point = (event: PointerEvent) => set({ pointed: digitAt(event) });
  const draw = (node: Element) => {
    const shown = drawWall(node.querySelector('canvas') as HTMLCanvasElement, state);
    if (shown !== state.shown) set({ shown });
  };
  const { digits, bits, readings, pointed, theme } = state;
  return html`<figure class="hero-wall" ${picture(draw, [digits, bits, readings, pointed, theme])}>
    <canvas id="wall" role="img" aria-labelledby="wall-caption" @pointermove=${point} @pointerdown=${point} @pointerleave=${() => set({ pointed: undefined })}></canvas>
    <figcaption><span id="wall-caption">${captionText(state)}</span> <span class="basis" id="wall-basis">${basisText(state)}</span></figcaption>
  </figure>`;
}

/** The pad, and the digit as read at each width. */
function padView({ drawn, bits }: State, pad: Pad): TemplateResult {
  const reading = (width: (typeof widths)[number]) => {
    const read = drawn.get(width);
    const isOther = read !== undefined && read !== drawn.get(32);
    return html`<li class="${width === bits ? 'current' : ''} ${isOther ? 'other' : ''}"
      ><span class="reading">${read ?? '·'}</span><span class="reading-bits">${width}<span class="hidden"> bits</span></span></li>`;
  };
  return html`<div class="hero-pad">
    ${pad.view()}
    <div class="pad-words">
      <h2 class="small-title">Draw a digit of your own</h2>
      <p class="hint">With 32 bits to 2, the network reads it as:</p>
      <div class="row">
        <button type="button" class="small" id="pad-clear" @click=${() => pad.clear()}>Clear</button>
        <button type="button" class="small" id="pad-another" @click=${() => pad.showNext()}>Another digit</button>
      </div>
    </div>
    <ol class="readings" id="pad-readings">${widths.map(reading)}</ol>
  </div>`;
}

/** The first view, below its heading. */
export const heroView = (state: State, pad: Pad, set: (change: Partial<State>) => void): TemplateResult =>
  html`${widthView(state, set)}${wallView(state, set)}${padView(state, pad)}`;
