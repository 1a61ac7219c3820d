import { describe, expect, it } from 'vitest';
import { ScalepointError } from '../../web/src/core/errors.js';
import { openSource } from '../../web/src/formats/files/open.js';
import { ggmlBytes, ggmlType } from '../../web/src/formats/gguf/contents.js';
import { type GgufHeader, readGguf } from '../../web/src/formats/gguf/header.js';
import { layoutGguf } from '../../web/src/formats/gguf/layout.js';
import { ggufTargets } from '../../web/src/formats/gguf/targets.js';
import { planGguf } from '../web/support/plans.js';
import { everyPair, ggufFile, tinyLlama } from '../web/support/tiny-llama.js';
import { type Damage, mutate } from './mutate.js';
import { filesOf, random, seedOf } from './rounds.js';

// The reader gets valid files with random damage. It must return tensors that lie inside of the file and can be planned, or throw a
// ScalepointError with an offset in the file. Seeds are fixed; see rounds.ts.

const mutations = filesOf(10_000);

const files = [
  ggufFile({
    pairs: [
      ['general.architecture', 'string', 'llama'],
      ['general.alignment', 'u32', 8],
      ['llama.block_count', 'u32', 2],
      ['llama.attention.head_count_kv', 'array', 'u32', [1, 2]],
      ['b', 'array', 'bool', [true, false]],
    ],
    tensors: [
      { name: 'blk.0.ffn_down.weight', dtype: 'F16', ne: [32, 2] },
      { name: 'w', dtype: 'F32', ne: [3] },
      { name: 'blk.1.attn_v.weight', dtype: 'Q8_0', ne: [64, 1, 2] },
      { name: 'output.weight', dtype: 'NVFP4', ne: [256, 2] },
    ],
    alignment: 8,
  }),
  ggufFile({
    pairs: everyPair.filter(([key]) => key !== 'test.template'),
    tensors: [{ name: '', dtype: 'I8', ne: [] }],
  }),
  ggufFile({
    pairs: [['general.architecture', 'string', 'llama']],
    tensors: [
      { name: 'blk.0.ffn_up_exps.weight', dtype: 'NVFP4', ne: [64, 1, 2] },
      { name: 'blk.0.ffn_up_exps.scale', dtype: 'F32', ne: [2] },
      { name: 'blk.0.ffn_up_exps.input_scale', dtype: 'F32', ne: [2] },
    ],
  }),
  tinyLlama({ layers: 1, rows: 2, vocabulary: 4, embedding: 32, feedForward: 32, attention: 32 }),
  ggufFile({ pairs: [], tensors: [] }),
];

/** Values to write over counts, lengths, types and offsets. */
const numbers = [
  0n,
  1n,
  2n,
  4n,
  8n,
  9n,
  31n,
  32n,
  63n,
  64n,
  255n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 53n,
  2n ** 60n,
  2n ** 64n - 1n,
];

/** One more or less of a count at the start. With a larger change the reader refuses the file there. */
const otherCount: Damage = (bytes, _, pick) => {
  const place = 8 + 8 * pick(2);
  if (place < bytes.length) bytes[place] = (bytes[place]! + 255 + pick(3)) & 255;
};

/** A number that is about as large as a type can hold, in 4 or 8 bytes. */
const someNumber: Damage = (bytes, at, pick) => {
  const value = new Uint8Array(new BigUint64Array([numbers[pick(numbers.length)]!]).buffer);
  const width = pick(2) === 0 ? 4 : 8;
  bytes.splice(at, width, ...value.subarray(0, width));
};

/** Checks that keys and metadata agree, and that each tensor is aligned, follows the one before it and lies inside of the file. */
function checkHeader({ tensors, metadata, pairs, alignment, dataOffset }: GgufHeader, size: number): void {
  expect(Object.keys(metadata).sort()).toEqual(pairs.map(({ key }) => key).sort());
  let end = dataOffset;
  for (const { dtype, shape, bytes, byteOffset } of tensors) {
    expect(bytes).toBe(ggmlBytes(ggmlType(dtype), shape));
    expect(byteOffset).toBe(Math.ceil(end / alignment) * alignment);
    end = byteOffset + bytes;
    expect(end).toBeLessThanOrEqual(size);
  }
}

/** Makes a plan, and checks that its header reads back with the types and offsets of the plan. Returns `planned` or an error code. */
async function checkPlan(header: GgufHeader, pick: (n: number) => number): Promise<string> {
  const to = ggufTargets[pick(ggufTargets.length)]!;
  let plan: ReturnType<typeof planGguf>;
  try {
    // Without fixAlignment, a damaged statement of the alignment is kept, as llama-quantize keeps it, and misleads readers.
    plan = planGguf(header, to, { requantize: pick(2) === 0, pure: pick(4) === 0, fixAlignment: true });
  } catch (error) {
    // Some targets take an importance matrix, which counts as a refusal like the others.
    if (error instanceof RangeError && /takes an importance matrix|^importance: required/.test(error.message))
      return 'UNSUPPORTED_DTYPE';
    if (!(error instanceof ScalepointError)) throw error;
    return error.code;
  }
  const file = new Uint8Array(plan.size);
  file.set(plan.header);
  const result = await readGguf(await openSource(file));
  checkHeader(result, plan.size);
  const places = new Map(result.tensors.map(({ name, dtype, byteOffset }) => [name, { dtype, byteOffset }]));
  for (const { parts } of plan.tensors) {
    const { name, dtype, byteOffset } = parts[0]!;
    expect(places.get(name)).toEqual({ dtype, byteOffset });
  }
  return 'planned';
}

describe('the reader of damaged GGUF files', () => {
  it('returns tensors inside of the file, or throws a ScalepointError', async () => {
    const pick = random(seedOf(1753));
    const outcomes: Record<string, number> = {};
    for (let i = 0; i < mutations; i++) {
      const file = mutate(files[i % files.length]!, pick, [otherCount, someNumber], { head: 700 });
      const source = await openSource(file);
      let outcome: string;
      try {
        const header = await readGguf(source);
        checkHeader(header, file.length);
        expect(layoutGguf(header.pairs, header.tensors).tensors.length).toBe(header.tensors.length);
        outcome = await checkPlan(header, pick);
      } catch (error) {
        if (!(error instanceof ScalepointError)) throw error;
        expect(error.message.length).toBeLessThan(1000);
        expect(error.byteOffset).toBeGreaterThanOrEqual(0);
        expect(error.byteOffset).toBeLessThanOrEqual(file.length);
        outcome = error.code;
      }
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    }
    // Each outcome must be frequent. Otherwise the damage would be too heavy or too light to test the reader.
    expect(Object.keys(outcomes).sort()).toEqual(['BAD_FILE', 'UNSUPPORTED_DTYPE', 'planned']);
    for (const count of Object.values(outcomes)) expect(count).toBeGreaterThan(mutations / 100);
  });
});
