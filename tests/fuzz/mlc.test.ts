// Indices of MLC with random damage, beside a shard of the size that they state or another one. Each is opened, with arrays that lie inside of
// their shard and share no bytes, or refused by a ScalepointError.
import { expect, it } from 'vitest';
import { ScalepointError } from '../../web/src/core/errors.js';
import type { ByteSource } from '../../web/src/formats/files/bytes.js';
import { openSource } from '../../web/src/formats/files/open.js';
import { mlcTensors, openMlc } from '../../web/src/formats/mlc/open.js';
import { type Damage, mutate, someWord } from './mutate.js';
import { filesOf, random, seedOf } from './rounds.js';

const array = (name: string, shape: readonly number[], dtype: string, nbytes: number, byteOffset: number) => ({
  name,
  shape,
  dtype,
  format: 'f32-to-bf16',
  nbytes,
  byteOffset,
});

const index = (metadata: object, records: readonly object[], nbytes: number) => ({
  metadata,
  records: [{ dataPath: 'params_shard_0.bin', format: 'raw-shard', nbytes, records, md5sum: '0'.repeat(32) }],
});

const seeds = [
  index(
    { ParamSize: 3, ParamBytes: 80, BitsPerParam: 5 },
    [
      array('a.q_weight', [2, 8], 'uint32', 64, 0),
      array('a.q_scale', [2, 2], 'float16', 8, 64),
      array('norm.weight', [4], 'float32', 8, 72),
    ],
    80,
  ),
  index({}, [array('a.q_weight', [1, 4], 'uint32', 16, 64), array('b', [4, 4], 'float32', 32, 0)], 80),
].map((value) => new TextEncoder().encode(JSON.stringify(value)));

/** Changes a digit, which falsifies a size, a shape or an offset. */
const otherDigit: Damage = (bytes, _, pick) => {
  const digits = bytes.flatMap((byte, i) => (byte >= 0x30 && byte <= 0x39 ? [i] : []));
  const digit = digits[pick(digits.length + 1)];
  if (digit !== undefined) bytes[digit] = 0x30 + pick(10);
};

const words = [
  '"__proto__":{"nbytes":8},',
  '"../params_shard_0.bin"',
  '"nbytes":',
  '"byteOffset":1e300,',
  '"shape":[',
  '9007199254740993',
  '4294967296',
  '-1',
  '0.5',
  '1e999',
  'null',
  '{"a":{"a":{"a":',
  '[[[[[[[[',
  ']',
  '}',
  ',',
  '"raw"',
  '"int8"',
  '"constructor"',
  '"name":"norm.weight",',
  '\\u0000',
  '\u00e9',
];

const input = new URL('https://models.example/ndarray-cache.json');

it('opens damaged indices, or refuses them by a ScalepointError', async () => {
  const pick = random(seedOf(11));
  const outcomes: Record<string, number> = {};
  for (let i = 0; i < filesOf(2000); i++) {
    const file = mutate(seeds[i % seeds.length]!, pick, [someWord(words), otherDigit, otherDigit], { most: 2 });
    const source = await openSource(file);
    const size = pick(8) === 0 ? pick(100) : 80;
    const shard: ByteSource = { ...(await openSource(new Uint8Array(size))), name: 'params_shard_0.bin' };
    let outcome = 'accepted';
    try {
      const given = [source, shard].map((one) => ({ input, source: one }));
      const model = await openMlc(given, () => Promise.reject(new ScalepointError('NOT_FOUND', 'no other file')));
      let end = 0;
      for (const tensor of [...model.tensors].sort((a, b) => a.byteOffset - b.byteOffset || a.bytes - b.bytes)) {
        expect(tensor.byteOffset).toBeGreaterThanOrEqual(end);
        end = tensor.byteOffset + tensor.bytes;
      }
      expect(end).toBeLessThanOrEqual(size);
      const parts = mlcTensors(model).flatMap((tensor) => tensor.parts);
      expect(parts.length).toBe(model.tensors.length);
    } catch (error) {
      if (!(error instanceof ScalepointError)) throw error;
      expect(error.message.length).toBeLessThan(1000);
      outcome = error.code;
    }
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  }
  expect(outcomes.accepted, JSON.stringify(outcomes)).toBeGreaterThan(filesOf(2000) / 50);
  expect(outcomes.BAD_FILE, JSON.stringify(outcomes)).toBeGreaterThan(filesOf(2000) / 2);
  expect(Object.keys(outcomes).every((code) => ['accepted', 'BAD_FILE', 'NOT_FOUND'].includes(code))).toBe(true);
});
