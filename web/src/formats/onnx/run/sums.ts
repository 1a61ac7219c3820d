/** Sums of errors without the core, which running models does not need. */
import { sumCount, sumIndex } from '../../../core/measure.js';

/** Sums over pairs of numbers, in double precision. */
export function sumsOf(x: ArrayLike<number>, y: ArrayLike<number>): Float64Array {
  const sums = new Float64Array(sumCount);
  let [squaredError, absoluteError, largest, squaredX, squaredY, product, nonFinite] = [0, 0, 0, 0, 0, 0, 0];
  for (let i = 0; i < x.length; i++) {
    const [a, b] = [x[i] as number, y[i] as number];
    const error = Math.abs(a - b);
    if (!Number.isFinite(a) || !Number.isFinite(b)) {
      nonFinite++;
      continue;
    }
    squaredError += error * error;
    absoluteError += error;
    if (error > largest) largest = error;
    squaredX += a * a;
    squaredY += b * b;
    product += a * b;
  }
  sums[sumIndex.squaredError] = squaredError;
  sums[sumIndex.absoluteError] = absoluteError;
  sums[sumIndex.maxAbsoluteError] = largest;
  sums[sumIndex.squaredX] = squaredX;
  sums[sumIndex.squaredY] = squaredY;
  sums[sumIndex.product] = product;
  sums[sumIndex.nonFinite] = nonFinite;
  return sums;
}
