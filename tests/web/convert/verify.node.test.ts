import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BlockType, blockTypeInfo, blockTypes, load } from 'scalepoint';
import {
  inspectModel,
  type PlanOptions,
  type QuantizeModelOptions,
  quantizeModel,
  type VerifyReport,
  verifyModel,
} from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import type { Finding } from '../../../web/src/formats/format.js';
import { matrixFile } from '../support/importance.js';
import { ggufFile, tinyLlama, weights } from '../support/tiny-llama.js';

/** A safetensors file of tensors with given bytes. */
function file(tensors: Record<string, [dtype: string, shape: number[], bytes: Uint8Array]>): Uint8Array<ArrayBuffer> {
  const header: Record<string, unknown> = {};
  let end = 0;
  for (const [name, [dtype, shape, bytes]] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [end, end + bytes.length] };
    end += bytes.length;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return new Uint8Array(Buffer.concat([length, json, ...Object.values(tensors).map(([, , bytes]) => bytes)]));
}

const floats = (...values: number[]) => new Uint8Array(Float32Array.from(values).buffer);
const wave = (n: number) => floats(...Array.from({ length: n }, (_, i) => Math.sin(i * 1.7)));

/** A small model with weights of several shapes. */
const model = () =>
  file({
    'a.weight': ['F32', [10, 40], wave(400)],
    'b.weight': ['F32', [16, 32], wave(512)],
    'b.bias': ['F32', [16], wave(16)],
  });

const quantized = async (input: Uint8Array<ArrayBuffer>, options: Omit<QuantizeModelOptions, 'output'>) => {
  const { bytes, config } = await quantizeModel(input, { ...options, workers: 0 });
  return { bytes: await bytes(), config: config as Record<string, unknown> };
};

/** A copy with some bytes of a tensor changed. */
async function changed(input: Uint8Array<ArrayBuffer>, name: string, change: (bytes: Uint8Array) => void) {
  const copy = input.slice();
  const tensor = (await inspectModel(input)).tensors.find((one) => one.name === name);
  if (tensor === undefined) throw new Error(`no ${name}`);
  change(copy.subarray(tensor.byteOffset, tensor.byteOffset + tensor.bytes));
  return { bytes: copy, at: tensor.byteOffset };
}

/** The data of findings, without their words and places. */
const dataOf = ({ problems, notes }: VerifyReport) => {
  const plain = ({ text: _, severity: __, byteOffset: ___, ...data }: Finding) => data;
  return { problems: problems.map(plain), notes: notes.map(plain) };
};

/** Elements that are wrong: how many, and which one is the first. */
const wrong = (kind: string, tensor: string, count: number, index: number) => ({ kind, tensor, count, index });

const sound = { problems: [], notes: [] };

describe('verifyModel', () => {
  const choices: PlanOptions[] = [
    { to: 'int8' },
    { to: 'int8', scheme: 'asymmetric' },
    { to: 'int8', packed: true },
    { to: 'int8', granularity: { kind: 'per-group', groupSize: 8 } },
    { to: 'int8', granularity: { kind: 'per-group', groupSize: 8 }, scheme: 'asymmetric' },
    { to: 'int4', granularity: { kind: 'per-channel' }, scheme: 'asymmetric' },
    { to: 'int4', granularity: { kind: 'per-group', groupSize: 8 }, rules: [{ match: /^a/, to: 'int8' }] },
    { to: 'float8e4m3fn' },
    { to: 'bfloat16' },
  ];

  it.each(choices)('finds nothing wrong with what quantizeModel makes of %o', async (options) => {
    const { bytes, config } = await quantized(model(), options);
    const report = await verifyModel(bytes, config === undefined ? {} : { config });
    expect(dataOf(report)).toEqual(sound);
    const { format, tensors } = await inspectModel(bytes);
    expect(report).toMatchObject({ format, bytes: bytes.length, files: [''], tensors: tensors.length });
  });

  it('reads all of a file, and says how far it is', async () => {
    const big = file({ one: ['F32', [2 ** 21], new Uint8Array(2 ** 23)], two: ['I64', [2], new Uint8Array(16)] });
    const reads: [number, number][] = [];
    const handle = {
      stat: async () => ({ size: big.length, isFile: () => true }),
      async read(target: Uint8Array, offset: number, length: number, position: number) {
        reads.push([position, length]);
        target.set(big.subarray(position, position + length), offset);
        return { bytesRead: length };
      },
    };
    const seen: unknown[] = [];
    await verifyModel(handle, { onProgress: (progress) => void seen.push(progress) });
    const bytesTotal = 2 ** 23 + 16;
    expect(seen).toContainEqual({ phase: 'verify', tensor: 'one', index: 0, count: 2, bytesDone: 2 ** 23, bytesTotal });
    expect(seen.at(-1)).toEqual({
      phase: 'verify',
      tensor: 'two',
      index: 1,
      count: 2,
      bytesDone: bytesTotal,
      bytesTotal,
    });
    const begin = big.length - bytesTotal;
    const covered = reads.filter(([position]) => position >= begin).reduce((sum, [, length]) => sum + length, 0);
    expect(covered).toBe(bytesTotal);
  });

  it('names each scale that is NaN or infinite by its place', async () => {
    const { bytes, config } = await quantized(model(), { to: 'int8', scheme: 'asymmetric' });
    for (const [value, scales] of [
      [Number.NaN, [3]],
      [Number.POSITIVE_INFINITY, [0]],
      [Number.NEGATIVE_INFINITY, [9]],
      [Number.NaN, [2, 5, 9]],
    ] as const) {
      const { bytes: bad, at } = await changed(bytes, 'a.weight_scale', (part) => {
        const view = new DataView(part.buffer, part.byteOffset);
        for (const i of scales) view.setFloat32(4 * i, value, true);
      });
      const where = `[${scales[0]}, 0]`;
      const text =
        scales.length === 1
          ? `1 scale is NaN or infinite, ${where}`
          : `3 scales are NaN or infinite, the first at ${where}`;
      const report = await verifyModel(bad, { config });
      expect(report.problems).toEqual([
        {
          ...wrong('notFinite', 'a.weight_scale', scales.length, scales[0]),
          severity: 'problem',
          text,
          byteOffset: at + 4 * scales[0],
        },
      ]);
    }
  });

  it('takes float8 codes that are NaN for a problem', async () => {
    const { bytes, config } = await quantized(model(), { to: 'float8e4m3fn' });
    for (const code of [0x7f, 0xff]) {
      const { bytes: bad } = await changed(bytes, 'b.weight', (codes) => {
        codes[33] = code;
      });
      expect(dataOf(await verifyModel(bad, { config })).problems).toEqual([wrong('notFinite', 'b.weight', 1, 33)]);
    }
  });

  it('finds bits behind the last code of a row, and behind the last row of zero points', async () => {
    // 10 rows of 44 codes: six words of 8 codes a row, the last one half full; zero points in two words a group.
    const odd = file({ 'a.weight': ['F32', [10, 44], wave(440)] });
    const { bytes, config } = await quantized(odd, {
      to: 'int4',
      granularity: { kind: 'per-channel' },
      scheme: 'asymmetric',
    });
    expect(dataOf(await verifyModel(bytes, { config }))).toEqual(sound);
    const codes = await changed(bytes, 'a.weight_packed', (part) => {
      part[24 * 7 + 22] = 1;
    });
    expect(dataOf(await verifyModel(codes.bytes, { config })).problems).toEqual([
      wrong('spareBits', 'a.weight_packed', 1, 7),
    ]);
    const zeros = await changed(bytes, 'a.weight_zero_point', (part) => {
      part[5] = 1;
    });
    expect(dataOf(await verifyModel(zeros.bytes, { config })).problems).toEqual([
      wrong('spareBits', 'a.weight_zero_point', 1, 0),
    ]);
  });

  it('notes NaN among floats, which may be meant, in every type', async () => {
    const half = (bits: number) => new Uint8Array(Uint16Array.of(0x3c00, bits, 0x8000).buffer);
    const report = await verifyModel(
      file({
        f64: ['F64', [3], new Uint8Array(Float64Array.of(1e300, Number.NaN, Number.NEGATIVE_INFINITY).buffer)],
        f32: ['F32', [2, 2], floats(1, 3.4e38, Number.NaN, -0)],
        f16: ['F16', [3], half(0x7c00)],
        bf16: ['BF16', [3], half(0xff81)],
        fine16: ['F16', [3], half(0x7bff)],
        fineB16: ['BF16', [3], half(0x7f7f)],
        ints: ['I32', [1], Uint8Array.of(255, 255, 255, 255)],
      }),
    );
    expect(dataOf(report)).toEqual({
      problems: [],
      notes: [
        wrong('notFinite', 'f64', 2, 1),
        wrong('notFinite', 'f32', 1, 2),
        wrong('notFinite', 'f16', 1, 1),
        wrong('notFinite', 'bf16', 1, 1),
      ],
    });
  });

  it('finds booleans that are neither 0 nor 1', async () => {
    const report = await verifyModel(file({ mask: ['BOOL', [2, 2], Uint8Array.of(0, 1, 2, 255)] }));
    expect(dataOf(report).problems).toEqual([wrong('notBoolean', 'mask', 2, 2)]);
  });

  it('finds parts that do not fit their codes', async () => {
    const scale = await verifyModel(
      file({ 'a.weight': ['I8', [4, 8], new Uint8Array(32)], 'a.weight_scale': ['F32', [3, 1], floats(1, 1, 1)] }),
    );
    expect(dataOf(scale).problems).toEqual([{ kind: 'partMisfit', tensor: 'a.weight_scale', codes: 'a.weight' }]);
    const packed = await verifyModel(
      file({
        'a.weight_packed': ['I32', [4, 1], new Uint8Array(16)],
        'a.weight_scale': ['F32', [4, 1], floats(1, 1, 1, 1)],
      }),
    );
    expect(dataOf(packed).problems).toEqual([
      { kind: 'packedAlone', tensor: 'a.weight_packed' },
      { kind: 'partMisfit', tensor: 'a.weight_scale', codes: 'a.weight_packed' },
    ]);
  });

  it('ends soon with expressions in config.json that RegExp takes years for', async () => {
    const name = `${'a'.repeat(60)}!`;
    const weight = file({ [`${name}.weight`]: ['F32', [8, 8], wave(64)] });
    const { bytes, config } = await quantized(weight, { to: 'int8' });
    const quantization = config.quantization_config as Record<string, unknown>;
    const report = await verifyModel(bytes, {
      config: { quantization_config: { ...quantization, ignore: ['re:(a+)+$', 're:(a|a)*b'] } },
    });
    expect(dataOf(report)).toEqual(sound);
  });

  it('compares the codes with a config.json', async () => {
    const groups = { to: 'int4', granularity: { kind: 'per-group', groupSize: 8 } } as const;
    const { bytes, config } = await quantized(model(), groups);
    const quantization = config.quantization_config as Record<string, unknown>;
    const [first] = Object.values(quantization.config_groups as object);
    const tell = async (changes: object, weights: object = {}, group: object = {}) => {
      const whole = { ...first, ...group, weights: { ...first.weights, ...weights } };
      const changedConfig = { quantization_config: { ...quantization, config_groups: { g: whole }, ...changes } };
      return dataOf(await verifyModel(bytes, { config: changedConfig }));
    };
    const both = (key: string, stated: unknown, actual: unknown) => ({
      problems: ['a.weight', 'b.weight'].map((tensor) => ({ kind: 'configDiffers', tensor, key, stated, actual })),
      notes: [],
    });
    expect(await tell({})).toEqual(sound);
    expect(await tell({}, { num_bits: 8 })).toEqual(both('num_bits', 8, 4));
    expect(await tell({}, { group_size: 16 })).toEqual(both('group_size', 16, 8));
    expect(await tell({}, { symmetric: false })).toEqual(both('symmetric', false, true));
    expect(await tell({}, { type: 'float' })).toMatchObject({ problems: expect.any(Array), notes: [] });
    const format = both('format', 'naive-quantized', 'packed');
    expect(await tell({}, {}, { format: 'naive-quantized' })).toEqual(format);
    expect(await tell({ ignore: ['a'] })).toEqual({
      problems: [{ kind: 'ignored', tensor: 'a.weight' }],
      notes: [],
    });
    expect((await tell({ ignore: ['re:.*b$'] })).problems).toHaveLength(1);
    expect(await tell({}, {}, { targets: ['a'] })).toEqual({
      problems: [{ kind: 'noGroup', tensor: 'b.weight' }],
      notes: [],
    });
    expect(await tell({}, {}, { targets: ['re:a|b'] })).toEqual(sound);
    // Only Python knows these two.
    expect(await tell({ ignore: ['re:(?P<all>.*)', 're:(?i:a)'] })).toEqual(sound);
    expect((await tell({ quant_method: 'gptq' })).notes).toEqual([{ kind: 'unknownMethod', method: 'gptq' }]);
    expect(dataOf(await verifyModel(bytes, { config: {} })).problems).toEqual([{ kind: 'noConfig' }]);
    expect(dataOf(await verifyModel(model(), { config })).problems).toEqual([{ kind: 'noCodes' }]);
    expect(dataOf(await verifyModel(bytes)).notes).toEqual([{ kind: 'configNotGiven' }]);
    expect(dataOf(await verifyModel(model(), { config: {} }))).toEqual(sound);
  });

  it('names the file of a model that has several, and compares the index', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-verify-'));
    try {
      const write = (name: string, content: Uint8Array | string) => writeFile(join(folder, name), content);
      await write('1.safetensors', file({ a: ['F32', [2], floats(1, 2)] }));
      await write('2.safetensors', file({ b: ['F32', [2], floats(1, Number.NaN)] }));
      const weightMap = { a: '1.safetensors', b: '2.safetensors' };
      const index = join(folder, 'model.safetensors.index.json');
      await writeFile(index, JSON.stringify({ metadata: { total_size: 16 }, weight_map: weightMap }));
      expect(await verifyModel(index)).toMatchObject({
        files: ['1.safetensors', '2.safetensors'],
        problems: [],
        notes: [{ tensor: 'b', file: '2.safetensors', text: '1 element is NaN or infinite, [1]' }],
      });
      await writeFile(index, JSON.stringify({ metadata: { total_size: 17 }, weight_map: weightMap }));
      expect((await verifyModel(index)).notes[0]).toMatchObject({
        kind: 'indexDiffers',
        stated: 17,
        actual: 16,
        text: 'the index says that the tensors have 17 bytes, but they have 16',
      });
      await writeFile(index, JSON.stringify({ weight_map: { a: '1.safetensors' } }));
      await write('1.safetensors', file({ a: ['F32', [2], floats(1, 2)], b: ['F32', [2], floats(1, 2)] }));
      await expect(verifyModel(index)).rejects.toMatchObject({ code: 'BAD_FILE' });
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('accepts a GGUF model, and fails for one that was cut off', async () => {
    const llama = tinyLlama();
    expect(dataOf(await verifyModel(llama))).toEqual(sound);
    await expect(verifyModel(llama.slice(0, -1))).rejects.toMatchObject({ code: 'BAD_FILE' });
  });

  it('checks its options, and stops on its signal', async () => {
    const bad = (options: object) => expect(verifyModel(model(), options)).rejects;
    await bad({ config: [] }).toMatchObject({ problem: { option: 'config', expected: { kind: 'type' } } });
    await bad({ confg: {} }).toMatchObject({ problem: { option: 'confg', hint: { names: ['config'] } } });
    await bad({ onProgress: 3 }).toThrow(TypeError);
    await bad({ signal: AbortSignal.abort('enough') }).toBe('enough');
    const controller = new AbortController();
    await bad({ signal: controller.signal, onProgress: () => controller.abort('later') }).toBe('later');
  });
});

describe('blocks of ggml', () => {
  /** A generator of bits, the same every time. */
  function bits(seed: number) {
    let state = seed;
    return () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state >>> 8;
    };
  }

  // The judge is the core, which decodes a block to floats: they are finite if and only if its scale and minimum are.
  it.each(blockTypes)('of %s are found where they decode to NaN or infinities', async (type: BlockType) => {
    const { elements, bytes } = blockTypeInfo(type);
    const n = 200;
    const source = ggufFile({
      pairs: [],
      tensors: [{ name: 'x.weight', dtype: 'F32', ne: [elements, n], data: weights('F32', elements * n, 1) }],
    });
    const alike = { name: 'x.weight', sums: new Float32Array(elements).fill(1), counts: [1] };
    const rules = [{ match: /x/, to: type }];
    const made = await quantized(source, { to: 'Q8_0', rules, importance: matrixFile([alike]) });
    const next = bits(7);
    const { bytes: random } = await changed(made.bytes, 'x.weight', (data) => {
      // Random bytes, of which many are such as the high halves of NaN and infinities have; and now and then one that is quiet.
      for (let i = 0; i < data.length; i++) data[i] = next() % 16 === 0 ? (next() % 2) * 0x80 + 0x7f : next() & 0xff;
    });
    const info = (await inspectModel(random)).tensors[0];
    for (let i = 0; type === 'MXFP4' && i < n; i++) {
      // These are finite, but some codes times them are not: 2^126 or 2^127 times 6.
      const at = (info?.byteOffset ?? 0) + i * bytes;
      if (random[at] === 253 || random[at] === 254) random[at] = 127;
    }
    expect(info?.dtype).toBe(type);
    const data = random.slice(info?.byteOffset, (info?.byteOffset ?? 0) + n * bytes);
    const sp = await load({ blocks: true });
    const decoded = sp.dequantize({ kind: 'blocks', type, shape: [n, elements], data }) as Float32Array;
    sp.dispose();
    const wrong = Array.from({ length: n }, (_, i) => {
      return decoded.subarray(i * elements, (i + 1) * elements).some((value) => !Number.isFinite(value));
    });
    // Both kinds are there, or the test says nothing.
    expect(new Set(wrong).size).toBe(2);
    const found = new Set<number>();
    const rest = random.slice();
    for (;;) {
      const { problems } = await verifyModel(rest);
      const [problem] = problems;
      if (problem === undefined) break;
      const block = problem.index as number;
      found.add(block);
      rest.fill(0, (info?.byteOffset ?? 0) + block * bytes, (info?.byteOffset ?? 0) + (block + 1) * bytes);
    }
    expect([...found].sort((a, b) => a - b)).toEqual(wrong.flatMap((isWrong, i) => (isWrong ? [i] : [])));
  });
});

it('reads small tensors together, and still finds what is wrong with each', async () => {
  const many = Object.fromEntries(
    Array.from({ length: 300 }, (_, i) => [`a${i}.weight`, ['F32', [3, 8 + 8 * (i % 3)], wave(24 + 24 * (i % 3))]]),
  ) as Parameters<typeof file>[0];
  const { bytes, config } = await quantized(file(many), {
    to: 'int4',
    granularity: { kind: 'per-group', groupSize: 8 },
  });
  const { bytes: broken } = await changed(bytes, 'a177.weight_scale', (scales) => scales.set(floats(Number.NaN), 4));
  let reads = 0;
  const handle = {
    stat: async () => ({ size: broken.length, isFile: () => true }),
    read: async (target: Uint8Array, offset: number, length: number, position: number) => {
      reads++;
      target.set(broken.subarray(position, position + length), offset);
      return { bytesRead: length };
    },
  };
  const { tensors, problems } = await verifyModel(handle as never, { config });
  expect(tensors).toBe(900);
  expect(problems).toMatchObject([{ tensor: 'a177.weight_scale', kind: 'notFinite' }]);
  expect(reads).toBeLessThan(30);
});
