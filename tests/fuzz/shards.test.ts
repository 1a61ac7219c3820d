import { describe, expect, it } from 'vitest';
import { ScalepointError } from '../../web/src/core/errors.js';
import { openSource } from '../../web/src/formats/files/open.js';
import { openShards, readIndex } from '../../web/src/formats/safetensors/shards.js';
import { mutate, someWord } from './mutate.js';
import { filesOf, random, seedOf } from './rounds.js';

// The reader gets valid indexes of shards with random damage. It must return file names without a folder, or throw a ScalepointError with an
// offset in the file. Seeds are fixed; see rounds.ts.

const mutations = filesOf(6000);

const words = [
  '"weight_map":',
  '"metadata":{}',
  '"__proto__":"a.safetensors",',
  '"a":"b.safetensors",',
  '"a":"a.safetensors"',
  '"../a.safetensors"',
  '"b\\\\a.safetensors"',
  '"\\u0000"',
  '\\ud800',
  'null',
  '1e999',
  '-0.5',
  '{',
  '}',
  '[[[[',
  ']',
  ',',
  ':',
  '"',
  '\n',
  '\u00e9',
];

const indexes = [
  '{"metadata":{"total_size":123},"weight_map":{"a":"a.safetensors","b":"b.safetensors"}}',
  '{\n  "weight_map": {\n    "a": "a.safetensors",\n    "b": "b.safetensors"\n  },\n  "metadata": {"x": [1, {"y": "z"}]}\n}\n',
  '{"weight_map":{"\\u0061":"a.safetensors","b":"b.safetensors"},"other":[true,null]}',
].map((text) => new TextEncoder().encode(text));

/** A safetensors file with one empty tensor, named like the tensor. */
function shard(tensor: string): File {
  const json = `{"${tensor}":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`;
  return new File([new Uint8Array([json.length, 0, 0, 0, 0, 0, 0, 0]), json], `${tensor}.safetensors`);
}

describe('the reader of damaged indexes', () => {
  it('returns file names without a folder, or throws a ScalepointError with an offset', async () => {
    const pick = random(seedOf(20));
    const shards = await Promise.all([shard('a'), shard('b')].map(openSource));
    const outcomes: Record<string, number> = {};
    for (let i = 0; i < mutations; i++) {
      const file = mutate(indexes[i % indexes.length]!, pick, [someWord(words)]);
      const source = await openSource(file);
      let outcome = 'accepted';
      try {
        const { weightMap } = await readIndex(source);
        expect(weightMap.size).toBeGreaterThan(0);
        for (const name of weightMap.values()) expect(name).toMatch(/^[^/\\:]*\.safetensors$/i);
        outcome = 'plain';
        const { tensors } = await openShards(file, source, shards);
        expect(tensors.map(({ name }) => name).sort()).toEqual([...weightMap.keys()].sort());
        outcome = 'opened';
      } catch (error) {
        if (!(error instanceof ScalepointError)) throw error;
        expect(error.message.length).toBeLessThan(1000);
        if (outcome === 'plain') expect(['BAD_FILE', 'NOT_FOUND']).toContain(error.code);
        else {
          outcome = 'refused';
          expect(error.code).toBe('BAD_FILE');
          expect(error.byteOffset).toBeGreaterThanOrEqual(0);
          expect(error.byteOffset).toBeLessThanOrEqual(file.length);
        }
      }
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    }
    // Each of the three outcomes must be frequent.
    for (const outcome of ['refused', 'plain', 'opened']) expect(outcomes[outcome]).toBeGreaterThan(mutations / 100);
  });
});
