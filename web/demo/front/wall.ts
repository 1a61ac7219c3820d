import { side } from '../shared/digits.mjs';
import { byId, onResize, onTheme, setText } from '../shared/dom.js';
import { imageOf, labelOf, labels } from './digits.js';
import { plainStorage } from './network.js';
import { keyOf, type State } from './state.js';

/** Most digits on the wall. */
const most = 240;
/** Least size of a cell in CSS pixels. */
const leastCell = 27;

/** A color of the theme as red, green and blue. */
function colorOf(name: string): string {
  const probe = byId('wall', HTMLElement);
  probe.style.color = `var(${name})`;
  const { color } = getComputedStyle(probe);
  probe.style.color = '';
  return color;
}

/** The images of the wall in one picture, one below the other, in a color of the theme. */
class Atlas {
  readonly canvas: HTMLCanvasElement;
  readonly #context: CanvasRenderingContext2D;
  readonly #color: readonly number[];
  #count = 0;

  constructor(color: string, room: number) {
    this.canvas = document.createElement('canvas');
    this.canvas.width = side;
    this.canvas.height = side * room;
    this.#context = this.canvas.getContext('2d') as CanvasRenderingContext2D;
    this.#context.fillStyle = color;
    this.#context.fillRect(0, 0, 1, 1);
    this.#color = [...this.#context.getImageData(0, 0, 1, 1).data];
  }

  /** Adds images up to this number. */
  fill(count: number): void {
    const [red = 0, green = 0, blue = 0] = this.#color;
    for (; this.#count < count; this.#count++) {
      const data = new Uint8ClampedArray(4 * side * side);
      const image = imageOf(this.#count);
      for (let i = 0, to = 0; i < image.length; i++, to += 4) {
        data[to] = red;
        data[to + 1] = green;
        data[to + 2] = blue;
        data[to + 3] = image[i]! ** 1.4 * 255;
      }
      this.#context.putImageData(new ImageData(data, side), 0, side * this.#count);
    }
  }
}

/** Position of a digit on the wall. */
interface DigitCell {
  readonly x: number;
  readonly y: number;
  readonly cell: number;
}

/** The share of a cell that stays free on each side. */
const gap = 0.05;

/** Draws one digit, lit if there is a color for it. */
function drawDigit(context: CanvasRenderingContext2D, atlas: Atlas, n: number, place: DigitCell, lit?: string): void {
  const { cell } = place;
  const [x, y, size] = [place.x + gap * cell, place.y + gap * cell, cell * (1 - 2 * gap)];
  if (lit !== undefined) {
    context.fillStyle = lit;
    context.beginPath();
    context.roundRect(x, y, size, size, cell * 0.12);
    context.fill();
  }
  context.drawImage(atlas.canvas, 0, n * side, side, side, x, y, size, size);
}

/** Draws a frame around the digit that the pointer is on. */
function frameDigit(context: CanvasRenderingContext2D, { x, y, cell }: DigitCell, color: string): void {
  context.strokeStyle = color;
  context.lineWidth = 2;
  context.strokeRect(x + gap * cell, y + gap * cell, cell * (1 - 2 * gap), cell * (1 - 2 * gap));
}

/** Gives the canvas the size that its width allows. */
function sizeFor(canvas: HTMLCanvasElement): { columns: number; cell: number; shown: number } {
  const { width } = canvas.getBoundingClientRect();
  const columns = Math.max(8, Math.min(20, Math.floor(width / leastCell)));
  const cell = width / columns;
  const shown = Math.min(most, columns * 12);
  const height = Math.ceil(shown / columns) * cell;
  canvas.style.height = `${height}px`;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  return { columns, cell, shown };
}

/** The wall of digits. Those that are read wrongly are lit. */
export function startWall({
  onPoint,
  onLayout,
}: {
  /** Gets the digit that the pointer is on. */
  onPoint(digit: number | undefined): void;
  /** Gets the number of digits for which there is room. */
  onLayout(shown: number): void;
}) {
  const canvas = byId('wall', HTMLCanvasElement);
  let columns = 1;
  let cell = leastCell;
  let shown = 0;
  let atlas: { key: string; plain: Atlas; wrong: Atlas } | undefined;

  const layOut = () => {
    ({ columns, cell, shown } = sizeFor(canvas));
    onLayout(shown);
  };
  const digitAt = ({ offsetX, offsetY }: PointerEvent) => {
    const n = Math.floor(offsetY / cell) * columns + Math.min(columns - 1, Math.floor(offsetX / cell));
    return n >= 0 && n < shown ? n : undefined;
  };
  for (const type of ['pointermove', 'pointerdown'] as const) {
    canvas.addEventListener(type, (event) => onPoint(digitAt(event)));
  }
  canvas.addEventListener('pointerleave', () => onPoint(undefined));

  const draw = (state: State) => {
    const count = Math.min(shown, state.digits);
    const [ink, tint, warn, accent] = ['--ink', '--warn', '--on-warn', '--accent'].map(colorOf) as [
      string,
      string,
      string,
      string,
    ];
    const key = [ink, warn, shown].join();
    if (atlas?.key !== key) atlas = { key, plain: new Atlas(ink, shown), wrong: new Atlas(warn, shown) };
    atlas.plain.fill(count);
    atlas.wrong.fill(count);
    const context = canvas.getContext('2d') as CanvasRenderingContext2D;
    const ratio = canvas.width / (columns * cell);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    const read = state.readings.get(keyOf(plainStorage(state.bits)))?.read;
    const { plain, wrong } = atlas;
    for (let n = 0; n < count; n++) {
      const isWrong = read !== undefined && n < read.length && read[n] !== labels[n];
      const place = { x: (n % columns) * cell, y: Math.floor(n / columns) * cell, cell };
      drawDigit(context, isWrong ? wrong : plain, n, place, isWrong ? tint : undefined);
      if (n === state.pointed) frameDigit(context, place, accent);
    }
  };

  let last: State | undefined;
  const redraw = () => {
    layOut();
    if (last !== undefined) draw(last);
  };
  onResize(canvas.parentElement as Element, redraw);
  onTheme(canvas, redraw);

  return (state: State, before: State | undefined) => {
    last = state;
    const { digits, bits, readings, pointed, failed } = state;
    if (
      failed === before?.failed &&
      digits === before.digits &&
      bits === before.bits &&
      readings === before.readings &&
      pointed === before.pointed
    ) {
      return;
    }
    if (shown === 0) layOut();
    // More digits below the wall change nothing on it.
    draw(state);
    setText(byId('wall-caption', HTMLElement), captionOf(state, shown));
    setText(byId('wall-basis', HTMLElement), basisOf(state));
  };
}

/** Source of the readings, in words. */
function basisOf({ readings, bits, failed }: State): string {
  const reading = readings.get(keyOf(plainStorage(bits)));
  if (reading !== undefined && !reading.isRecorded) return 'Computed in this browser.';
  return failed ? 'Recorded: nothing could be computed here.' : 'Recorded, and computed here in a moment.';
}

/** The wall in words. */
function captionOf({ readings, bits, pointed, digits }: State, shown: number): string {
  const read = readings.get(keyOf(plainStorage(bits)))?.read;
  if (read === undefined || read.length < Math.min(digits, shown)) return 'Digits that the network has never seen.';
  if (pointed !== undefined && pointed < read.length) {
    return read[pointed] === labels[pointed]
      ? `This ${labels[pointed]} is read right.`
      : `This ${labels[pointed]} is taken for a ${read[pointed]}.`;
  }
  let wrong = 0;
  for (let n = 0; n < shown; n++) if (read[n] !== labelOf(n)) wrong++;
  return `${wrong} of these ${shown} are read wrongly${wrong === 0 ? '' : ' and marked'}. It has never seen any of them.`;
}
