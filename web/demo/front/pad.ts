import { pixels, side } from '../shared/digits.mjs';
import { byId, html } from '../shared/dom.js';
import { imageOf, labels, testCount } from './digits.js';
import { widths } from './network.js';
import type { State } from './state.js';

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
  const small = document.createElement('canvas');
  small.width = side;
  small.height = side;
  const into = small.getContext('2d') as CanvasRenderingContext2D;
  into.imageSmoothingQuality = 'high';
  const [w, h] = [width * scale, height * scale];
  into.drawImage(canvas, left, top, width, height, (side - w) / 2, (side - h) / 2, w, h);
  const { data: pixelsOf } = into.getImageData(0, 0, side, side);
  return Float32Array.from({ length: pixels }, (_, i) => pixelsOf[4 * i + 3]! / 255);
}

/**
 * The canvas to draw a digit on. It starts with one of the test digits, so that there is something to read.
 * @param onImage gets the image on it, and the index of the test digit if it is one
 * @param onClear called when nothing is on it any more
 */
export function startPad(onImage: (image: Float32Array, test?: number) => void, onClear: () => void) {
  const canvas = byId('pad', HTMLCanvasElement);
  const context = canvas.getContext('2d', { willReadFrequently: true }) as CanvasRenderingContext2D;
  canvas.width = room;
  canvas.height = room;
  let isTest = true;
  let test = firstTest;
  let last: { x: number; y: number } | undefined;

  const show = (n: number) => {
    isTest = true;
    context.clearRect(0, 0, room, room);
    const small = document.createElement('canvas');
    small.width = side;
    small.height = side;
    const picture = new ImageData(side, side);
    imageOf(n).forEach((value, i) => {
      picture.data.set([128, 128, 128, Math.round(value * 255)], 4 * i);
    });
    (small.getContext('2d') as CanvasRenderingContext2D).putImageData(picture, 0, 0);
    context.drawImage(small, 0, 0, room, room);
    canvas.setAttribute('aria-label', `A ${labels[n]} of the test digits. Draw your own digit here.`);
    onImage(imageOf(n).slice(), n);
  };
  const stroke = (event: PointerEvent) => {
    const box = canvas.getBoundingClientRect();
    const to = {
      x: ((event.clientX - box.left) / box.width) * room,
      y: ((event.clientY - box.top) / box.height) * room,
    };
    context.strokeStyle = getComputedStyle(canvas).color;
    context.lineWidth = 15;
    context.lineCap = 'round';
    context.lineJoin = 'round';
    context.beginPath();
    context.moveTo((last ?? to).x, (last ?? to).y);
    context.lineTo(to.x, to.y + 0.01);
    context.stroke();
    last = to;
    const image = imageOfDrawing(canvas);
    if (image !== undefined) onImage(image);
  };
  const clear = () => {
    context.clearRect(0, 0, room, room);
    isTest = false;
  };
  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (isTest) clear();
    canvas.setAttribute('aria-label', 'Your digit.');
    last = undefined;
    stroke(event);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (canvas.hasPointerCapture(event.pointerId)) stroke(event);
  });
  byId('pad-clear', HTMLButtonElement).addEventListener('click', () => {
    clear();
    canvas.setAttribute('aria-label', 'Draw a digit here.');
    onClear();
  });
  byId('pad-another', HTMLButtonElement).addEventListener('click', () => {
    // 7 and 1000 have no common factor, so every test digit comes once.
    test = (test + 7) % testCount;
    show(test);
  });
  return { showTest: () => show(test) };
}

/** The digit as read at each width. */
export function drawReadings(state: State, before: State | undefined): void {
  if (state.drawn === before?.drawn && state.bits === before.bits) return;
  const widest = state.drawn.get(32);
  byId('pad-readings', HTMLElement).replaceChildren(
    ...widths.map((bits) => {
      const read = state.drawn.get(bits);
      const classes = [bits === state.bits && 'current', read !== undefined && read !== widest && 'other'];
      return html(
        'li',
        { class: classes.filter(Boolean).join(' ') || false },
        html('span', { class: 'reading' }, read === undefined ? '·' : String(read)),
        html('span', { class: 'reading-bits' }, `${bits}`, html('span', { class: 'hidden' }, ' bits')),
      );
    }),
  );
}
