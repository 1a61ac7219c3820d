// Files with weights in NVFP4 as sources. The oracle restores blocks from ggml's table at d99724f2 (src/ggml-common.h, kvalues_mxfp4, and
// ggml-impl.h, ggml_ue4m3_to_fp32), with scales of blocks times that of the matrix. llama.cpp multiplies by the latter after the product, so
// the sources leave the last bit of a value open; here both scales are multiplied first, as in compressed-tensors.
import { describe, expect, it } from 'vitest';
import { compareModels, inspectModel, planModel, quantizeModel, readFloats } from '../../../../web/src/model.js';
import { bytesOf, rejectionOf } from '../../support/models.js';
import { expectSame } from '../../support/support.js';
import { ggufFile, type Stored } from '../../support/tiny-llama.js';
import { xorshift } from '../../support/xorshift.js';

const levels = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/** Half of an E4M3 value without sign; the codes of NaN and 0 are 0. */
function halfScale(byte: number): number {
  if (byte === 0 || byte === 0x7f) return 0;
  const [exponent, mantissa] = [byte >> 3, byte & 7];
  return (exponent === 0 ? mantissa * 2 ** -9 : (1 + mantissa / 8) * 2 ** (exponent - 7)) / 2;
}

/** The values of blocks in NVFP4, each matrix times its scale. */
function restored(blocks: Uint8Array, scales: readonly number[]): Float32Array<ArrayBuffer> {
  const values = new Float32Array((blocks.length / 36) * 64);
  const each = values.length / scales.length;
  for (let i = 0; i < values.length; i++) {
    const [block, within] = [36 * Math.floor(i / 64), i % 64];
    const [sub, at] = [within >> 4, within & 15];
    const byte = blocks[block + 4 + 8 * sub + (at & 7)]!;
    const scale = Math.fround(halfScale(blocks[block + sub]!) * Math.fround(scales[Math.floor(i / each)]!));
    values[i] = levels[at < 8 ? byte & 15 : byte >> 4]! * scale;
  }
  return values;
}

/** Random blocks with finite scales. */
function blocksOf(elements: number, seed: number): Uint8Array<ArrayBuffer> {
  const next = xorshift(seed);
  const bytes = Uint8Array.from({ length: (elements / 64) * 36 }, () => next() & 255);
  for (let at = 0; at < bytes.length; at += 36) for (let s = 0; s < 4; s++) bytes[at + s] = bytes[at + s]! % 0x7f;
  return bytes;
}

const floats = (...values: number[]) => bytesOf(Float32Array.from(values));
const q = blocksOf(256 * 4, 1);
const up = blocksOf(2 * 64 * 256, 2);
const scaled: readonly Stored[] = [
  { name: 'token_embd.weight', dtype: 'F32', ne: [256, 2], data: bytesOf(new Float32Array(512).fill(0.5)) },
  { name: 'blk.0.attn_q.weight', dtype: 'NVFP4', ne: [256, 4], data: q },
  { name: 'blk.0.attn_q.scale', dtype: 'F32', ne: [1], data: floats(0.0123) },
  { name: 'blk.0.attn_q.input_scale', dtype: 'F32', ne: [1], data: floats(0.25) },
  { name: 'blk.1.ffn_up_exps.weight', dtype: 'NVFP4', ne: [256, 64, 2], data: up },
  { name: 'blk.1.ffn_up_exps.scale', dtype: 'F32', ne: [2], data: floats(0.7, 3) },
];
const fileOf = (tensors: readonly Stored[]) =>
  ggufFile({ pairs: [['general.architecture', 'string', 'llama']], tensors: [...tensors] });
const wanted = {
  'blk.0.attn_q.weight': restored(q, [0.0123]),
  'blk.1.ffn_up_exps.weight': restored(up, [0.7, 3]),
};

/** The stored tensors of a file. */
async function tensorsOf(file: Uint8Array<ArrayBuffer>) {
  const { tensors } = await inspectModel(file);
  return new Map(
    tensors.map(({ name, dtype, byteOffset, bytes }) => [
      name,
      { dtype, bytes: file.slice(byteOffset, byteOffset! + bytes) },
    ]),
  );
}

/** The same file with float32 weights. */
const plain = () =>
  fileOf(
    scaled.flatMap((tensor) => {
      const values = wanted[tensor.name as keyof typeof wanted];
      if (values !== undefined) return [{ ...tensor, dtype: 'F32', data: bytesOf(values) }];
      return tensor.name.includes('scale') ? [] : [tensor];
    }),
  );

describe('a file in NVFP4', () => {
  it('is restored exactly, and its scales are left out', async () => {
    const file = fileOf(scaled);
    for (const [name, values] of Object.entries(wanted)) expectSame((await readFloats(file, name)).data, values, name);
    const result = await quantizeModel(file, { to: 'F32', workers: 0 });
    const made = await tensorsOf(await result.bytes());
    expect([...made.keys()]).toEqual(['token_embd.weight', 'blk.0.attn_q.weight', 'blk.1.ffn_up_exps.weight']);
    for (const [name, values] of Object.entries(wanted)) {
      expect(made.get(name)?.dtype).toBe('F32');
      expectSame(new Float32Array(made.get(name)!.bytes.buffer), values, name);
    }
    expect(result.report.notes).toMatchObject([{ kind: 'sourceQuantized', tensors: Object.keys(wanted) }]);
    const { tensors } = await compareModels(file, await result.bytes(), { workers: 0 });
    for (const { error } of tensors) expect(error?.mse).toBe(0);
  });

  it('becomes other types as its floats do', async () => {
    const file = fileOf(scaled);
    for (const [to, workers] of [
      ['Q8_0', 0],
      ['Q4_K_M', 1],
      ['MXFP4', 0],
      ['BF16', 0],
    ] as const) {
      const requantize = to !== 'BF16';
      const made = await quantizeModel(file, { to, workers, requantize });
      const same = await quantizeModel(plain(), { to, workers });
      expect(Buffer.compare(await made.bytes(), await same.bytes()), to).toBe(0);
      expect(made.report.tensors.map(({ name }) => name)).toEqual(same.report.tensors.map(({ name }) => name));
    }
    const error = await rejectionOf(planModel(file, { to: 'Q8_0' }));
    expect(error).toMatchObject({ code: 'UNSUPPORTED_DTYPE', tensor: 'blk.0.attn_q.weight', hint: { kind: 'try' } });
  });

  it('keeps scales beside weights that stay in NVFP4', async () => {
    const file = fileOf(scaled);
    const before = await tensorsOf(file);
    const rules = [{ match: 'attn_q', keep: true }] as const;
    for (const choices of [{ to: 'copy' }, { to: 'NVFP4' }, { to: 'F16', rules }] as const) {
      const result = await quantizeModel(file, { ...choices, workers: 0 });
      const made = await tensorsOf(await result.bytes());
      for (const [name, { bytes, dtype }] of before) {
        if (choices.to === 'NVFP4' && name === 'token_embd.weight') expect(made.get(name)?.dtype).toBe('Q8_0');
        else if (choices.to !== 'F16' || name.includes('attn_q')) expect(made.get(name)?.bytes, name).toEqual(bytes);
        else if (dtype === 'NVFP4') expect(made.get(name)?.dtype).toBe('F16');
        else expect(made.has(name)).toBe(name === 'token_embd.weight');
      }
      const names = result.report.notes.flatMap(({ tensors = [] }) => tensors);
      expect(names).toEqual(choices.to === 'F16' ? ['blk.1.ffn_up_exps.weight'] : []);
    }
  });

  it('leaves out scales of layers that are left out, and renumbers them', async () => {
    const options = { to: 'Q8_0', requantize: true, pruneLayers: [0], workers: 0 } as const;
    const made = await quantizeModel(fileOf(scaled), options);
    const same = await quantizeModel(plain(), { ...options, requantize: false });
    expect(Buffer.compare(await made.bytes(), await same.bytes())).toBe(0);
  });

  it('may have no scale, or one under another name', async () => {
    const [weight, scale] = [scaled[1]!, scaled[2]!];
    const name = 'blk.0.attn_q.weight';
    expectSame((await readFloats(fileOf([weight]), name)).data, restored(q, [1]), name);
    const other = fileOf([weight, { ...scale, name: 'blk.0.attn_q.weight.scale' }]);
    expectSame((await readFloats(other, name)).data, wanted[name], name);
    const made = await tensorsOf(await (await quantizeModel(other, { to: 'F16', workers: 0 })).bytes());
    expect([...made.keys()]).toEqual([name]);
  });
});

describe('hostile files in NVFP4', () => {
  const weight: Stored = scaled[1]!;
  const scale = (more: Partial<Stored>): Stored => ({ ...scaled[2]!, ...more });
  const misfits: readonly (readonly [string, Stored])[] = [
    ['two scales of one matrix', scale({ ne: [2], data: floats(1, 2) })],
    ['a scale of two dimensions', scale({ ne: [1, 1] })],
    ['four dimensions', scale({ ne: [1, 1, 1, 1] })],
    ['no dimensions', scale({ ne: [] })],
    ['a scale for each row', scale({ ne: [4], data: floats(1, 1, 1, 1) })],
    ['float16', scale({ dtype: 'F16', data: new Uint8Array(2) })],
    ['bfloat16', scale({ dtype: 'BF16', data: new Uint8Array(2) })],
    ['float64', scale({ dtype: 'F64', data: new Uint8Array(8) })],
    ['int8', scale({ dtype: 'I8', data: new Uint8Array(1) })],
    ['int32', scale({ dtype: 'I32', data: new Uint8Array(4) })],
    ['NVFP4 itself', scale({ dtype: 'NVFP4', ne: [64], data: new Uint8Array(36) })],
    ['Q8_0', scale({ dtype: 'Q8_0', ne: [32], data: new Uint8Array(34) })],
  ];
  it.each(misfits)('are refused by name: %s', async (_what, one) => {
    const file = fileOf([weight, one]);
    for (const to of ['Q8_0', 'F32', 'Q4_K_M'] as const) {
      const error = await rejectionOf(planModel(file, { to, requantize: true }));
      expect(error).toMatchObject({ code: 'UNSUPPORTED_DTYPE', tensor: weight.name });
    }
    // A copy needs no values.
    expect((await planModel(file, { to: 'copy' })).tensors).toHaveLength(2);
  });

  const values: readonly (readonly [string, number])[] = [
    ['NaN', Number.NaN],
    ['infinity', Number.POSITIVE_INFINITY],
    ['minus infinity', Number.NEGATIVE_INFINITY],
    ['zero', 0],
    ['minus zero', -0],
    ['a negative one', -1],
  ];
  it.each(values)('are refused for a scale that is %s', async (_what, value) => {
    const file = fileOf([weight, scale({ data: floats(value) })]);
    expect(await rejectionOf(readFloats(file, weight.name))).toMatchObject({ name: 'ScalepointError' });
    const error = await rejectionOf(quantizeModel(file, { to: 'F32', workers: 0 }));
    expect(error).toMatchObject({ name: 'ScalepointError', tensor: weight.name });
  });

  it('name a scale that is a weight, or stand for each other', async () => {
    // A weight without ".weight" is its own scale by name, and two weights claim one scale.
    const own = fileOf([{ ...weight, name: 'x.scale' }]);
    expectSame((await readFloats(own, 'x.scale')).data, restored(q, [1]), 'itself');
    const shared = fileOf([weight, { ...weight, name: 'blk.0.attn_q' }, scale({})]);
    const made = await tensorsOf(
      await (await quantizeModel(shared, { to: 'F32', workers: 0, rules: [{ match: 'q$', keep: true }] })).bytes(),
    );
    expect(made.has('blk.0.attn_q')).toBe(true);
  });
});
