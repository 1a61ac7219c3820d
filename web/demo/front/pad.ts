import { pixels, side } from '../shared/digits.mjs';
import { html, picture, type TemplateResult } from '../shared/template.js';
import { imageOf, labels, testCount } from './digits.js';

/** Pixels of the canvas on one side. */
const room = 160;
/** Height and width that a digit of the training set has at most, in pixels of an image. */
const [tallest, widest] = [12, 9];

/** The test digit that is on the canvas at first. */
export const firstTest = 8;

/** Bounding box of the ink: the ends of both axes. Undefined for an empty canvas. */
function boundsOf(alpha: (x: number, y: number) => number) {
  let [left, top, right, bottom] = [room, room, -1, -1];
  for (let y = 0; y < room; y++) {
    for (let x = 0; x < room; x++) {
      if (alpha(x, y) === 0) continue;
      left = Math.min(left, x);
      right = Math.max(right, x);
      top = Math.min(top, y);
      bottom = Math.max(bottom, y);
    }
  }
  return right < 0 ? undefined : { left, top, width: right - left + 1, height: bottom - top + 1 };
}

/** The drawing as the network has seen digits: centered, of their size, 16 × 16. Undefined if nothing is drawn. */
function imageOfDrawing(canvas: HTMLCanvasElement): Float32Array | undefined {
  const context = canvas.getContext('2d', { willReadFrequently: true }) as CanvasRenderingContext2D;
  const { data } = context.getImageData(0, 0, room, room);
  const bounds = boundsOf((x, y) => data[4 * (y * room + x) + 3]!);
  if (bounds === undefined) return undefined;
  const { left, top, width, height } = bounds;
  const scale = Math.min(tallest / height, widest / width);
  const into = new OffscreenCanvas(side, side).getContext('2d') as OffscreenCanvasRenderingContext2D;
  into.imageSmoothingQuality = 'high';
  const [w, h] = [width * scale, height * scale];
  into.drawImage(canvas, left, top, width, height, (side - w) / 2, (side - h) / 2, w, h);
  const { data: pixelsOf } = into.getImageData(0, 0, side, side);
  return Float32Array.from({ length: pixels }, (_, i) => pixelsOf[4 * i + 3]! / 255);
}

/** The canvas to draw a digit on. It starts with one of the test digits, so that there is something to read. */
export class Pad {
  readonly #onImage: (image: Float32Array | undefined, test?: number) => void;
  #canvas: HTMLCanvasElement | undefined;
  #name = 'Draw a digit here.';
  #isTest = true;
  #test = firstTest;
  #last: { readonly x: number; readonly y: number } | undefined;

  /** @param onImage gets the image on it, and the index of the test digit if it is one. It gets undefined once nothing is on it. */
  constructor(onImage: (image: Float32Array | undefined, test?: number) => void) {
    this.#onImage = onImage;
  }

  view(): TemplateResult {
    const begin = (event: PointerEvent) => {
      const canvas = event.currentTarget as HTMLCanvasElement;
      canvas.setPointerCapture(event.pointerId);
      if (this.#isTest) this.#empty(canvas);
      this.#name = 'Your digit.';
      this.#last = undefined;
      this.#stroke(canvas, event);
    };
    const go = (event: PointerEvent) => {
      const canvas = event.currentTarget as HTMLCanvasElement;
      if (canvas.hasPointerCapture(event.pointerId)) this.#stroke(canvas, event);
    };
    return html`<canvas id="pad" role="img" width=${room} height=${room} aria-label=${this.#name} @pointerdown=${begin} @pointermove=${go}
      ${picture((canvas: HTMLCanvasElement) => (this.#canvas = canvas), [])}></canvas>`;
  }

  /** Shows the test digit. */
  showTest(): void {
    const canvas = this.#canvas;
    const context = canvas?.getContext('2d', { willReadFrequently: true });
    if (!canvas || !context) return;
    const image = imageOf(this.#test);
    const small = new OffscreenCanvas(side, side);
    const pixelsOf = new ImageData(side, side);
    for (const [i, value] of image.entries()) pixelsOf.data.set([128, 128, 128, Math.round(value * 255)], 4 * i);
    small.getContext('2d')?.putImageData(pixelsOf, 0, 0);
    this.#empty(canvas);
    this.#isTest = true;
    context.drawImage(small, 0, 0, room, room);
    this.#name = `A ${labels[this.#test]} of the test digits. Draw your own digit here.`;
    this.#onImage(image.slice(), this.#test);
  }

  showNext(): void {
    // 7 and 1000 have no common factor, so every test digit comes once.
    this.#test = (this.#test + 7) % testCount;
    this.showTest();
  }

  clear(): void {
    if (this.#canvas !== undefined) this.#empty(this.#canvas);
    this.#name = 'Draw a digit here.';
    this.#onImage(undefined);
  }

  #empty(canvas: HTMLCanvasElement): void {
    canvas.getContext('2d', { willReadFrequently: true })?.clearRect(0, 0, room, room);
    this.#isTest = false;
  }

  #stroke(canvas: HTMLCanvasElement, { clientX, clientY }: PointerEvent): void {
    const context = canvas.getContext('2d', { willReadFrequently: true }) as CanvasRenderingContext2D;
    const box = canvas.getBoundingClientRect();
    const to = { x: ((clientX - box.left) / box.width) * room, y: ((clientY - box.top) / box.height) * room };
    const from = this.#last ?? to;
    context.strokeStyle = getComputedStyle(canvas).color;
    context.lineWidth = 15;
    context.lineCap = 'round';
    context.lineJoin = 'round';
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y + 0.01);
    context.stroke();
    this.#last = to;
    const image = imageOfDrawing(canvas);
    if (image !== undefined) this.#onImage(image);
  }
}
