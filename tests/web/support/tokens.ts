// Ids of tokens for tests of language models.
import { Random } from './support.js';

/** Ids from 3 to 502 that are drawn evenly. */
export function drawn(n: number, seed = 1): Uint32Array<ArrayBuffer> {
  const random = new Random(seed);
  return Uint32Array.from(random.bell(n), (value) => 3 + (Math.floor(Math.abs(value * 1e5)) % 500));
}
