import { deflateRawSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { ScalepointError } from '../../web/src/core/errors.js';
import { openSource } from '../../web/src/formats/files/open.js';
import { readNumpyArrays } from '../../web/src/formats/onnx/run/npz.js';
import { npy, zip } from '../web/support/npz.js';
import { filesOf, random, seedOf } from './rounds.js';

// The reader gets .npz files with random damage. It must return arrays that have the bytes of their shape, or throw a ScalepointError with an
// offset. Seeds are fixed; see rounds.ts.

const mutations = filesOf(1000);

const small = npy('<f4', '(1, 2)', Float32Array.of(3, -4).buffer);
const large = npy('<i8', '(40,)', new BigInt64Array(40).buffer);
const pack = (bytes: Uint8Array) => deflateRawSync(bytes);
const seeds = [
  zip(
    [
      ['x.npy', small, 0],
      ['y.npy', large, 8],
    ],
    pack,
  ),
  zip([['x.npy', large, 8]], pack),
  zip([], pack),
];

function mutate(file: Uint8Array, pick: (n: number) => number): Uint8Array<ArrayBuffer> {
  const bytes = [...file];
  for (let n = 1 + pick(2); n > 0; n--) {
    // Half of the damage is in the list at the end.
    const at = pick(2) === 0 ? pick(bytes.length + 1) : Math.max(0, bytes.length - pick(130));
    const kind = pick(4);
    if (kind === 0) bytes[Math.min(at, bytes.length - 1)] = pick(256);
    else if (kind === 1) bytes.splice(at, 1 + pick(4));
    else if (kind === 2) bytes.splice(at, 0, ...bytes.slice(pick(bytes.length), pick(bytes.length)));
    else bytes.splice(at, 4, ...[0xff, 0xff, 0xff, pick(2) * 0xff]);
  }
  return Uint8Array.from(bytes);
}

describe('damaged .npz files', () => {
  it('give arrays, or a ScalepointError with an offset', async () => {
    const pick = random(seedOf(41));
    const outcomes: Record<string, number> = {};
    for (let i = 0; i < mutations; i++) {
      const file = mutate(seeds[i % seeds.length] as Uint8Array, pick);
      let outcome = 'read';
      try {
        for (const { shape, bytes } of (await readNumpyArrays(await openSource(file), () => {})).values()) {
          expect(bytes.length % shape.reduce((product, n) => product * n, 1) || 0).toBe(0);
        }
      } catch (error) {
        if (!(error instanceof ScalepointError)) throw error;
        expect(error.message.length).toBeLessThan(1000);
        outcome = error.code;
        if (outcome === 'BAD_FILE') expect(error.byteOffset).toBeGreaterThanOrEqual(0);
      }
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    }
    expect(outcomes.read).toBeGreaterThan(mutations / 20);
    expect(outcomes.BAD_FILE).toBeGreaterThan(mutations / 10);
  });
});
