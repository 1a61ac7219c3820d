import { describe, expect, it } from 'vitest';
import { ScalepointError } from '../../web/src/core/errors.js';
import { openSource } from '../../web/src/formats/files/open.js';
import { gguf } from '../../web/src/formats/gguf/gguf.js';
import { ggufFile, type Pair } from '../web/support/tiny-llama.js';
import { filesOf, random, seedOf } from './rounds.js';

// The reader gets the files of a split model, one of them with random damage, in any order, sometimes one twice or one too few. It must
// return every tensor once, inside of its file, or throw a typed error. Seeds are fixed; see rounds.ts.

const mutations = filesOf(3000);

const keys = (no: number): Pair[] => [
  ['split.no', 'u16', no],
  ['split.tensors.count', 'i32', 4],
  ['split.count', 'u16', 3],
];
const tensor = (name: string) => ({ name, dtype: 'F32', ne: [4] });
const files = [
  ggufFile({ pairs: [['general.architecture', 'string', 'llama'], ...keys(0)], tensors: [tensor('a')] }),
  ggufFile({ pairs: keys(1), tensors: [tensor('b'), tensor('c')] }),
  ggufFile({ pairs: keys(2), tensors: [tensor('d')] }),
];

function damaged(file: Uint8Array, pick: (n: number) => number): Uint8Array<ArrayBuffer> {
  const bytes = Uint8Array.from(file);
  if (pick(4) === 0) return bytes.slice(0, pick(bytes.length + 1));
  for (let n = pick(3); n > 0; n--) bytes[pick(bytes.length)] = pick(3) === 0 ? pick(256) : pick(4);
  return bytes;
}

describe('the reader of damaged splits', () => {
  it('returns every tensor once, or throws a typed error', async () => {
    const pick = random(seedOf(60));
    const outcomes: Record<string, number> = {};
    for (let i = 0; i < mutations; i++) {
      const which = pick(3);
      const list = files.map((file, j) => (j === which ? damaged(file, pick) : file));
      list.sort(() => pick(3) - 1);
      if (pick(12) === 0) list.splice(pick(3), 1);
      if (pick(12) === 0) list.push(list[pick(list.length)]!);
      const inputs = await Promise.all(list.map(async (input) => ({ input, source: await openSource(input) })));
      let outcome = 'opened';
      try {
        const model = await gguf.open(inputs, () => expect.fail('another file was looked for'));
        expect(new Set(model.tensors.map(({ name }) => name)).size).toBe(model.tensors.length);
        for (const { file, byteOffset, bytes } of model.tensors) {
          expect(byteOffset + bytes).toBeLessThanOrEqual(model.files[file]!.size);
        }
      } catch (error) {
        const isTyped = error instanceof RangeError || error instanceof TypeError || error instanceof ScalepointError;
        if (!isTyped || !('option' in error || 'code' in error)) throw error;
        expect(error.message.length).toBeLessThan(1000);
        outcome = 'code' in error ? error.code : 'option';
      }
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    }
    for (const outcome of ['opened', 'BAD_FILE', 'NOT_FOUND'])
      expect(outcomes[outcome]).toBeGreaterThan(mutations / 100);
  });
});
