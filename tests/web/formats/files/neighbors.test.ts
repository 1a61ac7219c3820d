// Small stretches are read together with what follows them, and are the bytes that a read of their own gives.
import { expect, it } from 'vitest';
import type { ByteSource } from '../../../../web/src/formats/files/bytes.js';
import { readNeighbors } from '../../../../web/src/formats/files/neighbors.js';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { Random } from '../../support/support.js';

const size = 200_003;
const random = new Random(7);
const bytes = Uint8Array.from({ length: size }, () => random.below(256));

/** The source, and how many reads it had. */
async function counted(): Promise<{ source: ByteSource; reads: () => number }> {
  const source = await openSource(bytes);
  let reads = 0;
  const read = (begin: number, end: number) => {
    reads++;
    return source.read(begin, end);
  };
  return { source: { ...source, read }, reads: () => reads };
}

it('gives the bytes of any stretches, in any order', async () => {
  const { source } = await counted();
  const read = readNeighbors(source);
  let last = 0;
  for (let i = 0; i < 2000; i++) {
    const begin = random.below(10) < 7 ? last : random.below(size);
    const length = random.below(random.below(20) === 0 ? 90_000 : 300);
    const end = Math.min(size, begin + length);
    const got = await read(begin, end);
    if (got.some((byte, at) => byte !== bytes[begin + at]) || got.length !== end - begin)
      expect.unreachable(`bytes ${begin} to ${end}`);
    last = end === size ? 0 : end;
  }
});

it('reads neighbors together, and single stretches alone', async () => {
  const { source, reads } = await counted();
  const read = readNeighbors(source);
  for (let at = 0; at + 16 <= size; at += 16) await read(at, at + 16);
  expect(reads()).toBeLessThanOrEqual(2 + Math.ceil(size / 2 ** 16));
  const before = reads();
  for (const at of [100_000, 7, 150_000]) expect(await read(at, at + 16)).toEqual(bytes.slice(at, at + 16));
  expect(reads()).toBe(before + 3);
  await expect(read(size - 1, size + 1)).rejects.toMatchObject({ code: 'BAD_FILE' });
});
