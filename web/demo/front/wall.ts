import { side } from '../shared/digits.mjs';
import { imageOf, labels } from './digits.js';
import { plainStorage } from './network.js';
import { keyOf, type State } from './state.js';

/** Most digits on the wall. */
const most = 240;
/** Least size of a cell in CSS pixels. */
const leastCell = 27;

/** A color of the theme as red, green and blue. */
function colorOf(probe: HTMLElement, name: string): string {
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

/** Layout of the wall that is drawn, and its images. */
let layout = { columns: 1, cell: leastCell, shown: 0 };
let atlas: { readonly key: string; readonly plain: Atlas; readonly wrong: Atlas } | undefined;

/** The digit under the pointer. */
export function digitAt({ offsetX, offsetY }: PointerEvent): number | undefined {
  const { columns, cell, shown } = layout;
  const n = Math.floor(offsetY / cell) * columns + Math.min(columns - 1, Math.floor(offsetX / cell));
  return n >= 0 && n < shown ? n : undefined;
}

/** Gives the canvas the height of as many digits as its width has room for. */
function layOut(canvas: HTMLCanvasElement): typeof layout {
  const { width } = canvas.getBoundingClientRect();
  const columns = Math.max(8, Math.min(20, Math.floor(width / leastCell)));
  const cell = width / columns;
  const shown = Math.min(most, columns * 12);
  const height = Math.ceil(shown / columns) * cell;
  const ratio = devicePixelRatio || 1;
  const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== tall) {
    canvas.style.height = `${height}px`;
    canvas.width = wide;
    canvas.height = tall;
  }
  return { columns, cell, shown };
}

/** Draws the wall, and lights the digits that are read wrongly. Returns the number of digits for which there is room. */
export function drawWall(canvas: HTMLCanvasElement, { digits, readings, bits, pointed }: State): number {
  layout = layOut(canvas);
  const { columns, cell, shown } = layout;
  const count = Math.min(shown, digits);
  const [ink = '', tint = '', warn = '', accent = ''] = ['--ink', '--warn', '--on-warn', '--accent'].map((name) =>
    colorOf(canvas, name),
  );
  const key = [ink, warn, shown].join();
  if (atlas?.key !== key) atlas = { key, plain: new Atlas(ink, shown), wrong: new Atlas(warn, shown) };
  const { plain, wrong } = atlas;
  plain.fill(count);
  wrong.fill(count);
  const context = canvas.getContext('2d') as CanvasRenderingContext2D;
  const ratio = canvas.width / (columns * cell);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  const read = readings.get(keyOf(plainStorage(bits)))?.read;
  for (let n = 0; n < count; n++) {
    const isWrong = read !== undefined && n < read.length && read[n] !== labels[n];
    const place = { x: (n % columns) * cell, y: Math.floor(n / columns) * cell, cell };
    drawDigit(context, isWrong ? wrong : plain, n, place, isWrong ? tint : undefined);
    if (n === pointed) frameDigit(context, place, accent);
  }
  return shown;
}
