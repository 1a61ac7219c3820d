// Comparisons of results with those of a reader that follows its source.
import { must } from './safetensors.js';

/** Fails at the first number that differs, and tells 0 from -0. */
export function expectEqual(got: ArrayLike<number>, want: ArrayLike<number>, what: string): void {
  must(got.length === want.length, `${what}: ${got.length} numbers instead of ${want.length}`);
  for (let i = 0; i < want.length; i++)
    must(Object.is(got[i], want[i]), `${what}: [${i}] is ${got[i]} instead of ${want[i]}`);
}

/** Squared errors of groups of consecutive numbers, in double precision. */
export function squaredError(original: ArrayLike<number>, restored: ArrayLike<number>, group: number): number[] {
  must(original.length === restored.length, `${restored.length} numbers instead of ${original.length}`);
  const errors = new Array<number>(Math.ceil(original.length / group)).fill(0);
  for (let i = 0; i < original.length; i++) errors[Math.floor(i / group)]! += (original[i]! - restored[i]!) ** 2;
  return errors;
}
