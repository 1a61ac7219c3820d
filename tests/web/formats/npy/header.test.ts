import { inspectModel, readTensor, ScalepointError } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { openNpy } from '../../../../web/src/formats/npy/header.js';

/** A .npy file with this header text, padded as numpy does, and this data. */
function file(header: string, data: Uint8Array = new Uint8Array(), version = 1): Uint8Array<ArrayBuffer> {
  const start = version === 1 ? 10 : 12;
  const text = new TextEncoder().encode(header);
  const length = Math.ceil((start + text.length + 1) / 64) * 64 - start;
  const bytes = new Uint8Array(start + length + data.length);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, version, 0]);
  const view = new DataView(bytes.buffer);
  if (version === 1) view.setUint16(8, length, true);
  else view.setUint32(8, length, true);
  bytes.fill(0x20, start, start + length);
  bytes.set(text, start);
  bytes[start + length - 1] = 0x0a;
  bytes.set(data, start + length);
  return bytes;
}

function header(descr: string, shape: string, order = 'False'): string {
  return `{'descr': '${descr}', 'fortran_order': ${order}, 'shape': ${shape}, }`;
}

const bytesOf = (array: ArrayBufferView) =>
  new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);

async function refused(bytes: Uint8Array, code = 'BAD_FILE'): Promise<ScalepointError> {
  const error = await openSource(bytes)
    .then(openNpy)
    .then(
      ({ tensor }) => new Error(`accepted: ${JSON.stringify(tensor)}`),
      (reason: unknown) => reason,
    );
  expect(error).toBeInstanceOf(ScalepointError);
  expect(error).toMatchObject({ code });
  return error as ScalepointError;
}

describe('reading .npy', () => {
  it('gives an array as the only tensor of a model', async () => {
    const values = new Float32Array([1, -2, 3.5, 0, 5, 6]);
    const bytes = file(header('<f4', '(2, 3)'), bytesOf(values));
    expect(await inspectModel(bytes)).toEqual({
      format: 'npy',
      bytes: bytes.length,
      files: [''],
      tensors: [{ name: 'array', dtype: 'F32', shape: [2, 3], bytes: 24, byteOffset: bytes.length - 24, file: 0 }],
      metadata: {},
    });
    expect((await readTensor(bytes, 'array')).data).toEqual(values);
  });

  it('names the array after its file', async () => {
    const bytes = file(header('<f4', '(1,)'), new Uint8Array(4));
    const name = async (path: string) => (await inspectModel(new File([bytes], path))).tensors[0]?.name;
    expect(await name('layer.0.weight.npy')).toBe('layer.0.weight');
    expect(await name('W.NPY')).toBe('W');
    expect(await name('__metadata__.npy')).toBe('array');
    expect(await name('.npy')).toBe('array');
  });

  it('reads versions 1.0, 2.0 and 3.0', async () => {
    for (const version of [1, 2, 3]) {
      const bytes = file(header('<i2', '(2,)'), new Uint8Array([1, 0, 254, 255]), version);
      expect((await readTensor(bytes, 'array')).data).toEqual(new Int16Array([1, -2]));
    }
    await refused(file(header('<i2', '()'), new Uint8Array(2), 4));
    await refused(file(header('<i2', '()'), new Uint8Array(2), 0));
    const minor = file(header('<i2', '()'), new Uint8Array(2));
    minor[7] = 1;
    expect((await refused(minor)).message).toMatch(/version 1\.1 is unknown/);
  });

  it('reads every dtype that safetensors has as well', async () => {
    const arrays: [string, string, ArrayBufferView][] = [
      ['|b1', 'BOOL', new Uint8Array([1, 0])],
      ['|i1', 'I8', new Int8Array([1, -2])],
      ['|u1', 'U8', new Uint8Array([1, 2])],
      ['<i2', 'I16', new Int16Array([1, -2])],
      ['<u2', 'U16', new Uint16Array([1, 65535])],
      ['<f2', 'F16', new Uint16Array([0x3c00, 0xc000])],
      ['<i4', 'I32', new Int32Array([1, -2])],
      ['<u4', 'U32', new Uint32Array([1, 2 ** 31])],
      ['<f4', 'F32', new Float32Array([1, -2])],
      ['<i8', 'I64', new BigInt64Array([1n, -2n])],
      ['<u8', 'U64', new BigUint64Array([1n, 2n ** 63n])],
      ['<f8', 'F64', new Float64Array([1, -2])],
      ['<c8', 'C64', new Float32Array([1, -2, 3, 4])],
      ['=f4', 'F32', new Float32Array([1, -2])],
    ];
    for (const [descr, dtype, data] of arrays) {
      const tensor = await readTensor(file(header(descr, '(2,)'), bytesOf(data)), 'array');
      expect(tensor, descr).toEqual({ name: 'array', dtype, shape: [2], data });
    }
  });

  it('turns big-endian numbers around', async () => {
    const view = new DataView(new ArrayBuffer(16));
    view.setFloat32(0, 1.5);
    view.setFloat32(4, -2);
    const bytes = file(header('>f4', '(2,)'), new Uint8Array(view.buffer, 0, 8));
    const before = bytes.slice();
    expect((await readTensor(bytes, 'array')).data).toEqual(new Float32Array([1.5, -2]));
    expect(bytes).toEqual(before);
    const complex = file(header('>c8', '(1,)'), new Uint8Array(view.buffer, 0, 8));
    expect((await readTensor(complex, 'array')).data).toEqual(new Float32Array([1.5, -2]));
    view.setFloat64(0, Math.PI);
    view.setBigInt64(8, -7n);
    const double = file(header('>f8', '()'), new Uint8Array(view.buffer, 0, 8));
    expect((await readTensor(double, 'array')).data).toEqual(new Float64Array([Math.PI]));
    const long = file(header('>i8', '()'), new Uint8Array(view.buffer, 8, 8));
    expect((await readTensor(long, 'array')).data).toEqual(new BigInt64Array([-7n]));
    const byte = file(header('>u1', '(2,)'), new Uint8Array([1, 2]));
    expect((await readTensor(byte, 'array')).data).toEqual(new Uint8Array([1, 2]));
  });

  it('puts column-major arrays in row-major order', async () => {
    // Element [i, j, k] of shape [2, 3, 4] has the value 100 i + 10 j + k; in the file, i runs fastest.
    const columnMajor: number[] = [];
    for (let k = 0; k < 4; k++)
      for (let j = 0; j < 3; j++) for (let i = 0; i < 2; i++) columnMajor.push(100 * i + 10 * j + k);
    const rowMajor: number[] = [];
    for (let i = 0; i < 2; i++)
      for (let j = 0; j < 3; j++) for (let k = 0; k < 4; k++) rowMajor.push(100 * i + 10 * j + k);
    const little = file(header('<f4', '(2, 3, 4)', 'True'), bytesOf(new Float32Array(columnMajor)));
    expect((await readTensor(little, 'array')).data).toEqual(new Float32Array(rowMajor));
    const view = new DataView(new ArrayBuffer(48));
    for (const [i, value] of columnMajor.entries()) view.setInt16(2 * i, value);
    const big = file(header('>i2', '(2, 3, 4)', 'True'), new Uint8Array(view.buffer));
    expect((await readTensor(big, 'array')).data).toEqual(new Int16Array(rowMajor));
  });

  it('finds both orders the same with one dimension that counts', async () => {
    const values = new Float32Array([1, 2, 3]);
    for (const shape of ['(3,)', '(1, 3, 1)', '(3, 1)']) {
      const { verbatim } = await openSource(file(header('<f4', shape, 'True'), bytesOf(values))).then(openNpy);
      expect(verbatim, shape).toBe(true);
    }
  });

  it('reads scalars and empty arrays', async () => {
    expect(await readTensor(file(header('<f8', '()'), new Uint8Array(8)), 'array')).toMatchObject({ shape: [] });
    expect((await readTensor(file(header('<f4', '(0,)')), 'array')).data).toHaveLength(0);
    expect((await readTensor(file(header('<f4', '(3, 0, 2)', 'True')), 'array')).shape).toEqual([3, 0, 2]);
  });

  it('takes the header in any spelling that Python has for it', async () => {
    const four = new Uint8Array(16);
    for (const text of [
      "{'shape':(2,2),'fortran_order':False,'descr':'<f4'}",
      '{"descr": "<f4", "fortran_order": False, "shape": (2, 2)}',
      "{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , 2 , ) , }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 2L), }",
    ]) {
      expect((await inspectModel(file(text, four))).tensors[0], text).toMatchObject({ dtype: 'F32', shape: [2, 2] });
    }
  });
});

describe('refusing broken .npy', () => {
  const good = header('<f4', '(2, 3)');
  const data = new Uint8Array(24);

  it('refuses a file that is cut off at any byte', async () => {
    const bytes = file(good, data);
    for (let length = 0; length < bytes.length; length++) await refused(bytes.slice(0, length));
  });

  it('refuses bytes after the array', async () => {
    const error = await refused(file(good, new Uint8Array(25)));
    expect(error.message).toMatch(/the array ends at byte \d+, but the file has \d+ bytes/);
    expect(error.byteOffset).toBe(file(good, data).length);
  });

  it('refuses a header length beyond the file, and one beyond reason, before reading it', async () => {
    const bytes = file(good, data, 2);
    const view = new DataView(bytes.buffer);
    view.setUint32(8, 2 ** 32 - 1, true);
    expect((await refused(bytes)).message).toMatch(/claims 4294967295 bytes, more than/);
    view.setUint32(8, bytes.length, true);
    expect((await refused(bytes)).message).toMatch(/but the file ends after/);
    const short = file(good, data);
    new DataView(short.buffer).setUint16(8, 30, true);
    await refused(short);
  });

  it.each<[what: string, from: string, to: string]>([
    ['a missing descr', "'descr': '<f4', ", ''],
    ['a missing order', "'fortran_order': False, ", ''],
    ['a missing shape', "'shape': (2, 3), ", ''],
    ['an unknown key', "'shape'", "'size': 1, 'shape'"],
    ['a key twice', "'fortran_order'", "'descr': '<f4', 'fortran_order'"],
    ['a shape twice', "'shape'", "'shape': (2, 3), 'shape'"],
    ['a missing brace', ', }', ','],
    ['two braces', ', }', ', }}'],
    ['text before the brace', '{', 'x{'],
    ['an order that is no boolean', 'False', 'false'],
    ['an order that is a number', 'False', '0'],
    ['a shape that is a list', '(2, 3)', '[2, 3]'],
    ['a shape that is a number', '(2, 3)', '(6)'],
    ['a negative dimension', '(2, 3)', '(-2, -3)'],
    ['a fraction', '(2, 3)', '(2.0, 3)'],
    ['a leading zero', '(2, 3)', '(02, 3)'],
    ['an underscore in a number', '(2, 3)', '(2_0, 3)'],
    ['a text as dimension', '(2, 3)', "('2', 3)"],
    ['a nested tuple', '(2, 3)', '((2, 3),)'],
    ['two commas', '(2, 3)', '(2,, 3)'],
    ['a missing comma', '(2, 3)', '(2 3)'],
    ['a dimension beyond 2^53', '(2, 3)', '(9007199254740993, 0)'],
    ['a product beyond 2^53', '(2, 3)', '(4294967296, 4294967296)'],
    ['an overflow behind a zero', '(2, 3)', '(0, 4294967296, 4294967296)'],
    ['more bytes than there are', '(2, 3)', '(2, 4)'],
    ['far more bytes than there are', '(2, 3)', '(1000000, 1000000)'],
    ['fewer bytes than there are', '(2, 3)', '(2, 2)'],
    ['65 dimensions', '(2, 3)', `(${'1, '.repeat(63)}2, 3)`],
    ['a descr without quotes', "'<f4'", '<f4'],
    ['a call', "'<f4'", "str('<f4')"],
  ])('refuses %s', async (_what, from, to) => {
    expect(good).toContain(from);
    const error = await refused(file(good.replace(from, to), data));
    expect(error.byteOffset).toBeGreaterThan(0);
  });

  it('refuses a header that is not UTF-8', async () => {
    const bytes = file(good, data, 3);
    bytes[20] = 0xff;
    expect((await refused(bytes)).message).toMatch(/UTF-8/);
  });

  it('says which dtypes it can read when it meets another', async () => {
    for (const descr of ['|O', '<U4', '|S3', '<M8[ns]', '<f16', '<c16', '|V8', '<f3', '', '<', 'f4f4', '>>f4']) {
      const error = await refused(file(header(descr, '(2, 3)'), data), 'UNSUPPORTED_DTYPE');
      expect(error.message).toContain(JSON.stringify(descr));
      expect(error.message).toContain('f4');
    }
    const records = "{'descr': [('x', '<f4'), ('y', '<f4')], 'fortran_order': False, 'shape': (3,), }";
    expect((await refused(file(records, data), 'UNSUPPORTED_DTYPE')).message).toMatch(/records/);
  });
});
