import { describe, expect, it } from 'vitest';
import { checkChoices } from '../../../../web/src/convert/options.js';
import { ScalepointError } from '../../../../web/src/core/errors.js';
import type { ByteSource } from '../../../../web/src/formats/files/bytes.js';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { ggmlTypes } from '../../../../web/src/formats/gguf/contents.js';
import { gguf } from '../../../../web/src/formats/gguf/gguf.js';
import { readGguf } from '../../../../web/src/formats/gguf/header.js';
import { layoutGguf } from '../../../../web/src/formats/gguf/layout.js';
import { ggufTargets } from '../../../../web/src/formats/gguf/targets.js';
import type { PlanChoices } from '../../../../web/src/formats/options.js';
import { planGguf } from '../../support/plans.js';
import { expectRefusal, expectSame, thrownBy } from '../../support/support.js';
import {
  bytesOf,
  everyPair,
  ggufFile,
  type Pair,
  type Scalar,
  type Stored,
  tinyLlama,
  weights,
} from '../../support/tiny-llama.js';

const read = async (file: Uint8Array) => readGguf(await openSource(file));

/** The error that reading a file gives. */
async function refusal(source: ByteSource): Promise<ScalepointError> {
  const error = await readGguf(source).then(
    () => expect.fail('the file was read'),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ScalepointError);
  expect((error as ScalepointError).code).toBe('BAD_FILE');
  expect((error as ScalepointError).byteOffset).toBeGreaterThanOrEqual(0);
  expect((error as ScalepointError).byteOffset).toBeLessThanOrEqual(source.size);
  return error as ScalepointError;
}

const refusalOf = async (file: Uint8Array) => refusal(await openSource(file));

const plain: Stored = { name: 'w', dtype: 'F32', ne: [4, 2], data: weights('F32', 8, 3) };

describe('reading a GGUF file', () => {
  it('gives every type of value', async () => {
    const { metadata, version, alignment } = await read(ggufFile({ pairs: everyPair, tensors: [plain] }));
    expect(version).toBe(3);
    expect(alignment).toBe(32);
    expect(Object.getPrototypeOf(metadata)).toBeNull();
    expect(Object.keys(metadata)).toEqual(everyPair.map(([key]) => key));
    const stored = (type: string, value: Scalar) => {
      if (type === 'f32') return Math.fround(value as number);
      return typeof value === 'bigint' && Number.isSafeInteger(Number(value)) ? Number(value) : value;
    };
    for (const [key, type, a, b] of everyPair as readonly (readonly [string, string, unknown, unknown])[]) {
      const value = metadata[key];
      if (type !== 'array') {
        expect(value, key).toBe(stored(type, a as Scalar));
        continue;
      }
      const list = (b as Scalar[]).map((element) => stored(a as string, element));
      if (list.length <= 64) expect(value, key).toEqual(list);
      else expect(value, key).toEqual({ elementType: a, length: list.length, first: list.slice(0, 8) });
    }
    expect(metadata['test.f32']).toBe(-0);
    expect(metadata['test.small']).toBe(12);
    expect(metadata['test.u64']).toBe(18446744073709551615n);
  });

  it('gives arrays of 64 whole, and of longer ones the first 8', async () => {
    const texts = (count: number) => Array.from({ length: count }, (_, i) => `t${i}`);
    const pairs: Pair[] = [
      ['a', 'array', 'string', texts(64)],
      ['b', 'array', 'string', texts(65)],
      ['c', 'array', 'bool', texts(100).map((_, i) => i % 3 === 0)],
    ];
    const { metadata } = await read(ggufFile({ pairs, tensors: [] }));
    expect(metadata.a).toEqual(texts(64));
    expect(metadata.b).toEqual({ elementType: 'string', length: 65, first: texts(8) });
    expect(metadata.c).toEqual({
      elementType: 'bool',
      length: 100,
      first: [true, false, false, true, false, false, true, false],
    });
  });

  it.each([1, 8, 32, 64, 4096])('finds the tensors of a file with alignment %i', async (alignment) => {
    const tensors: Stored[] = [
      { name: 'scalar', dtype: 'F32', ne: [], data: weights('F32', 1, 1) },
      { name: 'row', dtype: 'F16', ne: [3], data: weights('F16', 3, 2) },
      { name: '__proto__', dtype: 'BF16', ne: [5, 2, 3, 2, 1], data: weights('BF16', 60, 3) },
      { name: 'empty', dtype: 'F32', ne: [4, 0] },
      { name: 'blocks', dtype: 'Q8_0', ne: [64, 3], data: new Uint8Array(2 * 3 * 34).fill(7) },
      { name: 'listed', dtype: 'IQ2_XXS', ne: [512, 1], data: new Uint8Array(132).fill(9) },
      { name: 'n'.repeat(127), dtype: 'I32', ne: [2, 1], data: new Uint8Array(8).fill(1) },
    ];
    const file = ggufFile({ pairs: [['general.alignment', 'u32', alignment]], tensors, alignment });
    const header = await read(file);
    expect(header.alignment).toBe(alignment);
    expect(header.dataOffset % alignment).toBe(0);
    expect(header.tensors.map(({ name, dtype, shape, bytes }) => ({ name, dtype, shape, bytes }))).toEqual(
      tensors.map((tensor) => {
        const { name, dtype, ne } = tensor;
        return { name, dtype, shape: [...ne].reverse(), bytes: bytesOf(tensor) };
      }),
    );
    for (const [i, { byteOffset, bytes }] of header.tensors.entries()) {
      expectSame(file.slice(byteOffset, byteOffset + bytes), tensors[i]!.data ?? new Uint8Array(0));
    }
  });

  it('reads version 2, and files from elsewhere than memory', async () => {
    const file = tinyLlama({ version: 2, pairs: everyPair });
    const fromMemory = await read(file);
    expect(fromMemory.version).toBe(2);
    expect(await readGguf(await openSource(new Blob([file])))).toEqual(fromMemory);
  });

  it('allows what ggml allows: missing padding at the end, bytes behind it, texts that are not UTF-8', async () => {
    const file = ggufFile({ pairs: [['x', 'string', '??']], tensors: [{ name: 'w', dtype: 'F32', ne: [3] }] });
    file.set([0xff, 0xfe], 24 + 9 + 4 + 8);
    const header = await read(file);
    expect(header.metadata.x).toBe('\ufffd\ufffd');
    expect((await read(file.slice(0, file.length - 20))).tensors).toEqual(header.tensors);
    expect((await refusalOf(file.slice(0, file.length - 21))).message).toContain('12 bytes into the data');
    const longer = new Uint8Array(file.length + 50);
    longer.set(file);
    expect((await read(longer)).tensors).toEqual(header.tensors);
  });

  it('refuses a file that ends anywhere too early', async () => {
    const file = tinyLlama({ layers: 1, tied: true, pairs: everyPair.filter(([key]) => key !== 'test.template') });
    const { tensors, dataOffset } = await read(file);
    const last = tensors.at(-1)!;
    let count = 0;
    for (let length = 0; length < last.byteOffset + last.bytes; length += length < dataOffset + 64 ? 1 : 97) {
      await refusalOf(file.subarray(0, length));
      count++;
    }
    expect(count).toBeGreaterThan(2000);
  });

  it('reads little more than the header', async () => {
    const tokens = Array.from({ length: 150_000 }, (_, i) => `token ${i}`);
    const pairs: Pair[] = [['tokenizer.ggml.tokens', 'array', 'string', tokens]];
    const file = ggufFile({ pairs, tensors: [{ name: 'w', dtype: 'F32', ne: [1024, 4096] }] });
    const source = await openSource(file);
    let total = 0;
    const header = await readGguf({
      ...source,
      read: (begin, end) => {
        total += end - begin;
        return source.read(begin, end);
      },
    });
    expect(header.metadata['tokenizer.ggml.tokens']).toEqual({
      elementType: 'string',
      length: 150_000,
      first: tokens.slice(0, 8),
    });
    // Half of what is there already is read ahead.
    expect(total).toBeLessThanOrEqual(1.5 * header.dataOffset);
  });
});

describe('a damaged GGUF file', () => {
  // magic 0, version 4, tensors 8, pairs 16; key 'k' 24 with its text at 32, type 33, value 37; tensor at 41: name 'w' at 49,
  // dimensions 50, ne 54 and 62, type 70, offset 74; end 82.
  const good = ggufFile({ pairs: [['k', 'u32', 5]], tensors: [plain] });
  const patched = (at: number, bytes: readonly number[]) => {
    const file = good.slice();
    file.set(bytes, at);
    return file;
  };
  const u64 = (value: bigint) => [...new Uint8Array(new BigUint64Array([value]).buffer)];
  const u32 = (value: number) => [...new Uint8Array(new Uint32Array([value]).buffer)];

  it('starts from one that is read', async () => {
    const { tensors } = await read(good);
    expect(tensors).toEqual([{ name: 'w', dtype: 'F32', shape: [2, 4], bytes: 32, byteOffset: 96 }]);
  });

  it.each<[what: string, at: number, bytes: number[], message: RegExp, byteOffset: number]>([
    ['no magic', 0, [0x46], /does not begin with 'GGUF'/, 0],
    ['version 1', 4, u32(1), /version 1 is not supported/, 4],
    ['version 4', 4, u32(4), /version 4 is not supported/, 4],
    ['version 0', 4, u32(0), /version 0 is not supported/, 4],
    ['big-endian', 4, [0, 0, 0, 3], /big-endian/, 4],
    ['2^60 tensors', 8, u64(2n ** 60n), /1152921504606846976 tensors have no room/, 8],
    ['-1 tensors', 8, u64(2n ** 64n - 1n), /tensors have no room/, 8],
    ['one tensor more', 8, u64(2n), /tensor "": the type \d+ is unknown/, 94],
    ['2^60 pairs', 16, u64(2n ** 60n), /1152921504606846976 key-value pairs have no room/, 16],
    ['one pair more', 16, u64(2n), /ends inside of the name of tensor 0/, 64],
    ['a key of 2^60 bytes', 24, u64(2n ** 60n), /ends inside of key 0, which needs 1152921504606846976/, 32],
    ['an empty key', 24, u64(0n), /key 0 is empty/, 24],
    ['a key with a 0', 32, [0], /key 0 holds a byte 0/, 24],
    ['a key that is no UTF-8', 32, [0xff], /key 0 is not UTF-8/, 24],
    ['an unknown type of value', 33, u32(13), /the value of "k" has the unknown type 13/, 33],
    ['a string instead of a number', 33, u32(8), /ends inside of the value of "k"/, 45],
    ['an array instead of a number', 33, u32(9), /the name of tensor 0, which needs 1024 bytes/, 61],
    ['a truth value of 5', 33, u32(7), /the value of "k" is neither 0 nor 1, but 5/, 37],
    ['a name of 2^60 bytes', 41, u64(2n ** 60n), /ends inside of the name of tensor 0/, 49],
    ['a name with a 0', 49, [0], /the name of tensor 0 holds a byte 0/, 41],
    ['a name that is no UTF-8', 49, [0x80], /the name of tensor 0 is not UTF-8/, 41],
    ['6 dimensions', 50, u32(6), /tensor "w": 6 dimensions are more than the 5/, 50],
    ['2^32 - 1 dimensions', 50, u32(2 ** 32 - 1), /tensor "w": 4294967295 dimensions/, 50],
    ['a dimension of 2^63', 54, u64(2n ** 63n), /tensor "w": the product of shape .* is too large/, 54],
    ['a dimension of 2^53 + 1', 54, u64(2n ** 53n + 1n), /tensor "w": the product of shape .* is too large/, 54],
    ['a product beyond 2^53', 54, [...u64(2n ** 30n), ...u64(2n ** 30n)], /too large/, 54],
    ['an overflow behind a 0', 54, [...u64(2n ** 60n), ...u64(0n)], /too large/, 54],
    ['more bytes than the file has', 54, u64(2n ** 40n), /ends 8796093022208 bytes into the data/, 41],
    ['a removed type', 70, u32(4), /tensor "w": the type 4 is unknown/, 70],
    ['a type of the future', 70, u32(43), /tensor "w": the type 43 is unknown/, 70],
    ['rows that are no whole blocks', 70, u32(8), /tensor "w": rows of shape \[2, ?4\] do not divide into Q8_0/, 54],
    ['an offset that leaves a hole', 74, u64(32n), /tensor "w": the offset is 32, but 0 comes/, 41],
    ['an offset of 2^64 - 1', 74, u64(2n ** 64n - 1n), /tensor "w": the offset is/, 41],
  ])('with %s is refused', async (_what, at, bytes, message, byteOffset) => {
    const error = await refusalOf(patched(at, bytes));
    expect(error.message).toMatch(message);
    expect(error.byteOffset).toBe(byteOffset);
    if (error.message.startsWith('tensor "w"')) expect(error.tensor).toBe('w');
  });

  it.each<[what: string, pairs: Pair[], tensors: Stored[], message: RegExp]>([
    [
      'one key twice',
      [
        ['k', 'u8', 1],
        ['k', 'string', ''],
      ],
      [],
      /the key "k" occurs twice/,
    ],
    ['one name twice', [], [plain, plain], /tensor "w": the name occurs twice/],
    ['a name of 128 bytes', [], [{ ...plain, name: 'é'.repeat(64) }], /the name has 128 bytes, more than the 127/],
    [
      'alignment 0',
      [['general.alignment', 'u32', 0]],
      [plain],
      /"general.alignment" is 0, which is not a power of two/,
    ],
    ['alignment 24', [['general.alignment', 'u32', 24]], [plain], /is 24, which is not a power of two/],
    ['alignment 2^31', [['general.alignment', 'u32', 2 ** 31]], [plain], /the file has only 0/],
    ['an alignment of 64 bits', [['general.alignment', 'u64', 32]], [plain], /has the type u64 instead of u32/],
    ['an alignment in words', [['general.alignment', 'string', '32']], [plain], /has the type string instead of u32/],
    ['overlapping tensors', [], [plain, { ...plain, name: 'v' }], /tensor "v": the offset is 0, but 32 comes after/],
  ])('with %s is refused', async (what, pairs, tensors, message) => {
    const file = ggufFile({ pairs, tensors });
    // The offset of the last tensor stands before the padding of the header.
    if (what.startsWith('overlapping')) file.set(u64(0n), 24 + 2 * 41 - 8);
    expect((await refusalOf(file)).message).toMatch(message);
  });

  it('with an array of arrays, of too many elements or of bad truth values is refused', async () => {
    const file = ggufFile({ pairs: [['k', 'array', 'u8', [1, 0, 2, 1]]], tensors: [] });
    const change = (at: number, bytes: number[]) => {
      const changed = file.slice();
      changed.set(bytes, at);
      return refusalOf(changed);
    };
    expect((await change(37, u32(9))).message).toMatch(/array of arrays/);
    expect((await change(37, u32(99))).message).toMatch(/the elements of the value of "k" has the unknown type 99/);
    expect((await change(37, u32(7))).byteOffset).toBe(51);
    for (const count of [2n ** 60n, 2n ** 64n - 1n, 1000n]) {
      expect((await change(41, u64(count))).message).toMatch(`claims ${count} elements`);
    }
  });

  /** A file of any size that begins with these bytes and goes on with zeros. */
  function sparse(bytes: Uint8Array, size: number): { source: ByteSource; largest: () => number } {
    let largest = 0;
    return {
      source: {
        size,
        async read(begin, end) {
          largest = Math.max(largest, end - begin);
          const piece = new Uint8Array(end - begin);
          piece.set(bytes.subarray(begin, end));
          return piece;
        },
        async verify() {},
        async close() {},
      },
      largest: () => largest,
    };
  }

  it.each<[what: string, at: number, bytes: number[]]>([
    ['tensors', 8, u64(2n ** 33n)],
    ['pairs', 16, u64(2n ** 33n)],
    ['bytes of a key', 24, u64(2n ** 33n)],
    ['bytes of a name', 41, u64(2n ** 33n)],
    ['bytes of a string', 33, [...u32(8), ...u64(2n ** 33n)]],
    ['elements of an array', 33, [...u32(9), ...u32(0), ...u64(2n ** 33n)]],
    ['strings of an array', 33, [...u32(9), ...u32(8), ...u64(2n ** 30n)]],
  ])('of 4 TiB is not believed when it claims billions of %s', async (_what, at, bytes) => {
    const { source, largest } = sparse(patched(at, bytes), 2 ** 42);
    await refusal(source);
    expect(largest()).toBeLessThanOrEqual(1 << 16);
  });

  it('may have offsets far beyond 2^32', async () => {
    const tensors = [
      { name: 'v', dtype: 'I8', ne: [4] },
      { name: 'w', dtype: 'I8', ne: [4] },
    ];
    const file = ggufFile({ pairs: [], tensors });
    // An entry: length and name in 9 bytes, the number of dimensions in 4, then ne, 4 bytes of type, and the offset.
    file.set(u64(2n ** 42n), 24 + 13);
    file.set(u64(2n ** 42n), 24 + 33 + 13 + 8 + 4);
    const read = await readGguf(sparse(file, 2 ** 43).source);
    expect(read.tensors.map(({ name, byteOffset }) => [name, byteOffset])).toEqual([
      ['v', 96],
      ['w', 2 ** 42 + 96],
    ]);
  });
});

describe('laying out a GGUF file', () => {
  it('gives back the header that was read', async () => {
    for (const file of [tinyLlama({ pairs: everyPair }), ggufFile({ pairs: [], tensors: [] })]) {
      const { pairs, tensors } = await read(file);
      const layout = layoutGguf(pairs, tensors);
      expectSame(layout.header, file.slice(0, layout.header.length));
      expect(layout.tensors).toEqual(tensors);
      expect(layout.size).toBe(file.length);
    }
  });

  it('leaves out dimensions of 1 behind the others, and knows every type of ggml', async () => {
    const tensors = ggmlTypes.map(({ name, elements }) => ({ name, dtype: name, shape: [1, 1, 2, elements * 3] }));
    const shapes = [[], [1], [1, 1], [1, 5], [5, 1], [1, 1, 1, 7], [0, 5]];
    const all = [...tensors, ...shapes.map((shape, i) => ({ name: `s${i}`, dtype: 'F32', shape }))];
    const layout = layoutGguf([], all);
    const file = new Uint8Array(layout.size);
    file.set(layout.header);
    const header = await read(file);
    expect(header.tensors.map(({ shape }) => shape)).toEqual([
      ...ggmlTypes.map(({ elements }) => [2, elements * 3]),
      ...[[1], [1], [1], [5], [5, 1], [7], [0, 5]],
    ]);
    expect(header.tensors.map(({ byteOffset }) => byteOffset)).toEqual(layout.tensors.map((t) => t.byteOffset));
  });

  it('refuses what cannot be stored', () => {
    expect(() => layoutGguf([], [{ name: 'w', dtype: 'Q8_0', shape: [2, 33] }])).toThrow(RangeError);
    const problem = {
      option: 'type',
      expected: { kind: 'oneOf', values: ggmlTypes.map(({ name }) => name) },
      got: 'Q9_0',
    };
    expect(() => layoutGguf([], [{ name: 'w', dtype: 'Q9_0', shape: [2, 32] }])).toThrow(
      expect.objectContaining({ option: 'type', problem: expect.objectContaining(problem) }),
    );
  });
});

describe('planning a GGUF result', () => {
  const header = (file: Uint8Array) => read(file);
  const typesOf = (plan: ReturnType<typeof planGguf>) =>
    Object.fromEntries(plan.tensors.map(({ source, parts }) => [source.name, parts[0]!.dtype]));

  it('says what becomes of each tensor and why it is kept, in the order of the input', async () => {
    const file = tinyLlama({
      layers: 1,
      experts: 4,
      biases: true,
      tensors: [
        { name: 'odd.weight', dtype: 'F32', ne: [48, 2] },
        { name: 'same.weight', dtype: 'Q4_0', ne: [64, 2] },
        { name: 'v.position_embd.weight', dtype: 'F16', ne: [64, 2] },
      ],
    });
    const source = await header(file);
    const plan = planGguf(source, 'Q4_0', { requantize: true });
    expect(plan.tensors.map((tensor) => tensor.source)).toEqual(source.tensors.map((t) => ({ ...t, file: 0 })));
    const seen = plan.tensors.map(({ source: { name }, form, kept, parts: [part, ...more] }) => {
      expect(more).toEqual([]);
      expect(part!.role).toBe('data');
      expect(part!.name).toBe(name);
      return [name, kept?.kind ?? `${form.codec} ${(form as { to?: string }).to}`, part!.dtype];
    });
    expect(seen).toEqual([
      ['token_embd.weight', 'ggml Q4_0', 'Q4_0'],
      ['blk.0.attn_norm.weight', 'rank', 'F32'],
      ['blk.0.attn_q.weight', 'ggml Q4_0', 'Q4_0'],
      ['blk.0.attn_q.bias', 'rank', 'F32'],
      ['blk.0.attn_k.weight', 'ggml Q4_0', 'Q4_0'],
      ['blk.0.attn_k.bias', 'rank', 'F32'],
      ['blk.0.attn_v.weight', 'ggml Q4_0', 'Q4_0'],
      ['blk.0.attn_v.bias', 'rank', 'F32'],
      ['blk.0.attn_output.weight', 'ggml Q4_0', 'Q4_0'],
      ['blk.0.ffn_norm.weight', 'rank', 'F32'],
      ['blk.0.ffn_gate_inp.weight', 'router', 'F32'],
      ['blk.0.ffn_gate_exps.weight', 'ggml Q4_0', 'Q4_0'],
      ['blk.0.ffn_up_exps.weight', 'ggml Q4_0', 'Q4_0'],
      ['blk.0.ffn_down_exps.weight', 'ggml Q4_0', 'Q4_0'],
      ['output_norm.weight', 'rank', 'F32'],
      ['output.weight', 'ggml Q6_K', 'Q6_K'],
      ['odd.weight', 'cast F16', 'F16'],
      ['same.weight', 'sameType', 'Q4_0'],
      ['v.position_embd.weight', 'positionEmbedding', 'F16'],
    ]);
  });

  it('follows rules, the first that matches, and takes rules to floats for any target', async () => {
    const source = await header(tinyLlama({ layers: 1 }));
    const rules = [
      { match: /attn_k/g, keep: true as const },
      { match: /attn/, to: 'Q5_1' },
      { match: /token_embd/, to: 'F32' },
      { match: /ffn_norm/, to: 'F16' },
    ];
    for (const to of ['Q4_K_M', 'F16'] as const) {
      const plan = planGguf(source, to, { rules });
      const rest = to === 'F16' ? 'F16' : 'Q4_K';
      expect(typesOf(plan)).toEqual({
        'token_embd.weight': 'F32',
        'blk.0.attn_norm.weight': 'F32',
        'blk.0.attn_q.weight': 'Q5_1',
        'blk.0.attn_k.weight': 'F16',
        'blk.0.attn_v.weight': 'Q5_1',
        'blk.0.attn_output.weight': 'Q5_1',
        'blk.0.ffn_norm.weight': 'F32',
        'blk.0.ffn_gate.weight': rest,
        'blk.0.ffn_up.weight': rest,
        'blk.0.ffn_down.weight': to === 'F16' ? 'F16' : 'Q6_K',
        'output_norm.weight': 'F32',
        'output.weight': to === 'F16' ? 'F16' : 'Q6_K',
      });
      const kept = plan.tensors.find((tensor) => tensor.source.name === 'blk.0.attn_k.weight')!;
      expect(kept.kept).toEqual({ kind: 'rule' });
      expect(kept.form).toEqual({ codec: 'copy', dtype: 'F16', bytes: kept.source.bytes });
    }
  });

  it('takes Q3_K, Q4_K and Q5_K for their M forms', async () => {
    const source = await header(tinyLlama({ layers: 9, rows: 2 }));
    for (const name of ['Q3_K', 'Q4_K', 'Q5_K'] as const) {
      checkChoices(gguf, { to: name });
      expect(planGguf(source, name)).toEqual(planGguf(source, `${name}_M`));
    }
  });

  it('corrects the alignment if asked to', async () => {
    for (const alignment of [8, 64, 128]) {
      expect(planGguf(await header(tinyLlama({ alignment })), 'Q4_K_M').notes).toHaveLength(1);
      const plan = planGguf(await header(tinyLlama({ alignment })), 'Q4_K_M', { fixAlignment: true });
      expect(plan.notes).toEqual([]);
      const file = new Uint8Array(plan.size);
      file.set(plan.header);
      const result = await read(file);
      expect(result.alignment).toBe(32);
      const places = new Map(result.tensors.map(({ name, byteOffset }) => [name, byteOffset]));
      for (const { parts } of plan.tensors) expect(parts[0]!.byteOffset).toBe(places.get(parts[0]!.name));
    }
  });

  it('refuses to quantize again unless asked to, and what it cannot decode', async () => {
    const quantized: Stored = { name: 'q.weight', dtype: 'Q8_0', ne: [256, 2] };
    const listed: Stored = { name: 'i.weight', dtype: 'I8', ne: [256, 2] };
    const index: Stored = { name: 'n.weight', dtype: 'I32', ne: [256, 2] };
    const planWith = async (
      tensor: Stored,
      ...rest: [Parameters<typeof planGguf>[1], Parameters<typeof planGguf>[2]?]
    ) => typesOf(planGguf(await header(tinyLlama({ tensors: [tensor] })), ...rest))[tensor.name];
    const code = 'UNSUPPORTED_DTYPE';
    await expect(planWith(quantized, 'Q4_K_M')).rejects.toMatchObject({ code, tensor: 'q.weight' });
    await expect(planWith(quantized, 'Q4_K_M', { requantize: true })).resolves.toBe('Q4_K');
    await expect(planWith(quantized, 'Q8_0')).resolves.toBe('Q8_0');
    await expect(planWith(quantized, 'F16')).resolves.toBe('F16');
    await expect(planWith(quantized, 'F32')).resolves.toBe('F32');
    for (const tensor of [listed, index]) {
      for (const to of ['Q4_K_M', 'F32'] as const) {
        await expect(planWith(tensor, to, { requantize: true })).rejects.toMatchObject({ code, tensor: tensor.name });
        const rules = [{ match: /^[in]\./, keep: true as const }];
        await expect(planWith(tensor, to, { rules })).resolves.toBe(tensor.dtype);
        await expect(planWith({ ...tensor, name: 'x.bias' }, to)).resolves.toBe(tensor.dtype);
      }
    }
  });

  it('drops what says that the file is a part, and refuses parts', async () => {
    const split = (count: number): Pair[] => [
      ['split.no', 'u16', 0],
      ['split.count', 'u16', count],
      ['split.tensors.count', 'i32', 21],
    ];
    const source = await header(tinyLlama({ pairs: split(1) }));
    const plan = planGguf(source, 'Q8_0');
    const file = new Uint8Array(plan.size);
    file.set(plan.header);
    const { metadata } = await read(file);
    const expected: Record<string, unknown> = { ...source.metadata };
    for (const [key] of split(1)) delete expected[key];
    expect({ ...metadata }).toEqual({ ...expected, 'general.quantization_version': 2, 'general.file_type': 7 });
  });

  it('names the options that are wrong', () => {
    const plan = (to: unknown, options: object = {}) => checkChoices(gguf, { ...options, to } as PlanChoices);
    for (const to of ['MXFP4_MOE_S', 'Q4_K_L', 'comfy', 'q4_0', 'constructor', undefined, 7]) {
      expectRefusal(() => plan(to), RangeError, 'to');
    }
    for (const to of ggufTargets) plan(to);
    expect(thrownBy(() => plan('MXFP5'))).toMatchObject({
      problem: {
        expected: {
          of: [
            {
              kind: 'text',
              form: 'a target of GGUF',
              examples: ['Q8_0', 'Q3_K_M', 'Q4_K_M', 'Q2_K', 'Q4_K_S', 'Q5_K_S', 'Q5_K_M', 'Q6_K', 'IQ4_XS', 'F16'],
            },
            expect.anything(),
          ],
        },
        got: 'MXFP5',
      },
    });
    expectRefusal(() => plan('Q8_0', { pure: 1 }), TypeError, 'pure');
    expectRefusal(() => plan('Q8_0', { requantize: 'yes' }), TypeError, 'requantize');
    expectRefusal(() => plan('Q8_0', { rules: {} }), TypeError, 'rules');
    const rule = (value: unknown) => plan('Q8_0', { rules: [{ match: /a/, keep: true }, value] });
    expectRefusal(() => rule(undefined), TypeError, 'rules[1]');
    expectRefusal(() => rule({ match: 5, keep: true }), TypeError, 'rules[1].match');
    expectRefusal(() => rule({ match: /a/ }), RangeError, 'rules[1]');
    expectRefusal(() => rule({ match: /a/, keep: true, to: 'F16' }), RangeError, 'rules[1]');
    expectRefusal(() => rule({ match: /a/, keep: 1, to: 'F16' }), TypeError, 'rules[1].keep');
    expectRefusal(() => rule({ match: /a/, to: 'Q4_K_M' }), RangeError, 'rules[1].to');
    expectRefusal(() => rule({ match: /a/, to: 'NVFP4' }), RangeError, 'rules[1].to');
    const granularity = { kind: 'per-channel' };
    expectRefusal(() => rule({ match: /a/, to: 'Q8_0', granularity }), RangeError, 'rules[1].granularity');
  });
});
