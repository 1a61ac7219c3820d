import { classes, digitPen, pixels, testSeed } from '../shared/digits.mjs';

/** Digits on which accuracy is measured. The network was not trained on them. */
export const testCount = 1000;
/** Time that drawing digits may take at once, so that the page stays quick. */
const sliceMilliseconds = 8;

/** All test digits, as far as they are drawn. */
export const images = new Float32Array(testCount * pixels);
/** The digit that test image n shows, also before it is drawn: 0, 1, … 9, 0, 1, … */
export const labelOf = (n: number): number => n % classes;
export const labels = new Uint8Array(testCount);

export const imageOf = (n: number) => images.subarray(n * pixels, (n + 1) * pixels);

/** Draws the test digits, a few at a time. */
export async function drawTestDigits(onMore: (count: number) => void): Promise<void> {
  const draw = digitPen(testSeed);
  let n = 0;
  while (n < testCount) {
    const end = performance.now() + sliceMilliseconds;
    while (n < testCount && performance.now() < end) {
      labels[n] = draw(imageOf(n));
      n++;
    }
    onMore(n);
    await new Promise((done) => setTimeout(done));
  }
}
