import { inspectModel, quantizeModel, readTensor, ScalepointError } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { madeBytes } from '../../../../web/src/formats/format.js';
import { readSafetensors, type TensorDType } from '../../../../web/src/formats/safetensors/header.js';
import { layoutSafetensors } from '../../../../web/src/formats/safetensors/write-header.js';
import { laidOut } from '../../support/plans.js';

/** A file with a header text and n bytes of data: 0, 1, 2, ... */
function file(header: string, dataBytes = 0): Uint8Array<ArrayBuffer> {
  const json = new TextEncoder().encode(header);
  const bytes = new Uint8Array(8 + json.length + dataBytes);
  new DataView(bytes.buffer).setUint32(0, json.length, true);
  bytes.set(json, 8);
  for (let i = 0; i < dataBytes; i++) bytes[8 + json.length + i] = i;
  return bytes;
}

function entry(dtype: string, shape: readonly number[], begin: number, end: number): string {
  return JSON.stringify({ dtype, shape, data_offsets: [begin, end] });
}

const read = async (bytes: Uint8Array) => readSafetensors(await openSource(bytes));

/** Expects a BAD_FILE error and returns it. */
async function refused(bytes: Uint8Array): Promise<ScalepointError> {
  const error = await read(bytes).then(
    (header) => new Error(`accepted: ${JSON.stringify(header)}`),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ScalepointError);
  expect(error).toMatchObject({ code: 'BAD_FILE' });
  expect((error as ScalepointError).byteOffset).toBeGreaterThanOrEqual(0);
  expect((error as ScalepointError).byteOffset).toBeLessThanOrEqual(bytes.length);
  return error as ScalepointError;
}

describe('reading safetensors', () => {
  it('gives name, dtype, shape, size and place of every tensor in the order of their bytes', async () => {
    const header = `{"b":${entry('F16', [3], 8, 14)},"a":${entry('F32', [1, 2], 0, 8)},"c":${entry('BOOL', [], 14, 15)}}`;
    const bytes = file(header, 15);
    const start = bytes.length - 15;
    expect(await read(bytes)).toEqual({
      tensors: [
        { name: 'a', dtype: 'F32', shape: [1, 2], bytes: 8, byteOffset: start, file: 0 },
        { name: 'b', dtype: 'F16', shape: [3], bytes: 6, byteOffset: start + 8, file: 0 },
        { name: 'c', dtype: 'BOOL', shape: [], bytes: 1, byteOffset: start + 14, file: 0 },
      ],
      metadata: {},
    });
  });

  it('takes every dtype of the format with its size', async () => {
    const bits: Record<string, number> = { F4: 4, F6_E2M3: 6, F6_E3M2: 6 };
    for (const dtype of ['BOOL', 'U8', 'I8', 'F8_E5M2', 'F8_E4M3', 'F8_E8M0', 'F8_E4M3FNUZ', 'F8_E5M2FNUZ'])
      bits[dtype] = 8;
    for (const dtype of ['I16', 'U16', 'F16', 'BF16']) bits[dtype] = 16;
    for (const dtype of ['I32', 'U32', 'F32']) bits[dtype] = 32;
    for (const dtype of ['C64', 'F64', 'I64', 'U64']) bits[dtype] = 64;
    expect(Object.keys(bits)).toHaveLength(22);
    for (const [dtype, size] of Object.entries(bits)) {
      const { tensors } = await read(file(`{"x":${entry(dtype, [2, 4], 0, size)}}`, size));
      expect(tensors[0]).toMatchObject({ dtype, bytes: size });
    }
  });

  it('takes a file without tensors, and with metadata only', async () => {
    expect((await read(file('{}'))).tensors).toEqual([]);
    expect(await read(file('{"__metadata__":{"format":"pt"}}   '))).toEqual({
      tensors: [],
      metadata: { format: 'pt' },
    });
  });

  it('takes empty tensors between others and at the end', async () => {
    const header = `{"e":${entry('F32', [0, 4], 4, 4)},"a":${entry('U8', [4], 0, 4)},"b":${entry('U8', [2], 4, 6)},"z":${entry('I64', [0], 6, 6)}}`;
    expect((await read(file(header, 6))).tensors.map(({ name }) => name)).toEqual(['a', 'e', 'b', 'z']);
  });

  it('treats __proto__ and constructor as names like any other', async () => {
    const header = `{"__metadata__":{"__proto__":"p","constructor":"c"},"__proto__":${entry('U8', [1], 0, 1)},"constructor":${entry('U8', [1], 1, 2)}}`;
    const { tensors, metadata } = await read(file(header, 2));
    expect(tensors.map(({ name }) => name)).toEqual(['__proto__', 'constructor']);
    expect(Object.entries(metadata)).toEqual([
      ['__proto__', 'p'],
      ['constructor', 'c'],
    ]);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
    expect(Object.getPrototypeOf({})).toBe(Object.prototype);
    expect((await readTensor(file(header, 2), '__proto__')).data).toEqual(new Uint8Array([0]));
  });

  it('takes names with escapes and any script', async () => {
    const header = `{"\\u0061\\n\\"\\\\/":${entry('U8', [1], 0, 1)},"重み.😀":${entry('U8', [1], 1, 2)},"\\ud83d\\ude00":${entry('U8', [1], 2, 3)}}`;
    const { tensors } = await read(file(header, 3));
    expect(tensors.map(({ name }) => name)).toEqual(['a\n"\\/', '重み.😀', '😀']);
  });

  it('tells short names from each other, whatever they are made of', async () => {
    const letters = ['a', 'b', 'c', 'q', 'é', '0', '.', ''];
    const names = letters.flatMap((x) => letters.flatMap((y) => letters.map((z) => x + y + z)));
    const all = [...new Set([...names, ...names.map((name) => `${name}23456789abcdef`)])];
    const { tensors } = await read(file(`{${all.map((name) => `"${name}":${entry('U8', [0], 0, 0)}`).join()}}`));
    expect(tensors.map(({ name }) => name)).toEqual(all);
  });

  it('reads past members of an entry that it does not know, as the reference does', async () => {
    const header =
      '{"x":{"dtype":"U8","note":[1.5e-3,-0,{"a":null,"b":[]},"s",true],"shape":[1],"data_offsets":[0,1]}}';
    expect((await read(file(header, 1))).tensors).toHaveLength(1);
  });

  it('reads tensors at offsets that no typed array could start at', async () => {
    const header = `{"p":${entry('U8', [1], 0, 1)},"x":${entry('F32', [2], 1, 9)},"y":${entry('I64', [1], 9, 17)}}`;
    const bytes = file(header, 17);
    const view = new DataView(bytes.buffer);
    view.setFloat32(bytes.length - 16, 1.5, true);
    view.setFloat32(bytes.length - 12, -2, true);
    view.setBigInt64(bytes.length - 8, -5n, true);
    // Also when the file itself begins in the middle of a buffer.
    const moved = new Uint8Array(bytes.length + 3).subarray(3);
    moved.set(bytes);
    for (const input of [bytes, moved, new Blob([bytes])]) {
      expect(await readTensor(input, 'x')).toEqual({
        name: 'x',
        dtype: 'F32',
        shape: [2],
        data: new Float32Array([1.5, -2]),
      });
      expect((await readTensor(input, 'y')).data).toEqual(new BigInt64Array([-5n]));
    }
  });

  it('gives tensors as copies that leave the input alone', async () => {
    const bytes = file(`{"x":${entry('U8', [2], 0, 2)}}`, 2);
    const before = bytes.slice();
    const { data } = await readTensor(bytes, 'x');
    data.fill(9 as never);
    expect(bytes).toEqual(before);
  });

  it('gives every dtype the array that it says', async () => {
    const arrays: [string, number, object][] = [
      ['F32', 4, Float32Array],
      ['F64', 8, Float64Array],
      ['F16', 2, Uint16Array],
      ['BF16', 2, Uint16Array],
      ['I8', 1, Int8Array],
      ['U8', 1, Uint8Array],
      ['BOOL', 1, Uint8Array],
      ['I16', 2, Int16Array],
      ['U16', 2, Uint16Array],
      ['I32', 4, Int32Array],
      ['U32', 4, Uint32Array],
      ['I64', 8, BigInt64Array],
      ['U64', 8, BigUint64Array],
      ['F8_E4M3', 1, Uint8Array],
    ];
    for (const [dtype, size, type] of arrays) {
      const { data } = await readTensor(file(`{"x":${entry(dtype, [3], 0, 3 * size)}}`, 3 * size), 'x');
      expect(data.constructor, dtype).toBe(type);
      expect(data.length, dtype).toBe(3);
    }
  });

  it('names the tensor that a file does not have', async () => {
    const bytes = file(`{"x":${entry('U8', [1], 0, 1)}}`, 1);
    await expect(readTensor(bytes, 'y')).rejects.toMatchObject({ code: 'NOT_FOUND', tensor: 'y' });
  });

  it('reads Blobs, ArrayBuffers and shared memory alike', async () => {
    const bytes = file(`{"__metadata__":{"a":"b"},"x":${entry('U8', [2], 0, 2)}}`, 2);
    const expected = await inspectModel(bytes);
    expect(await inspectModel(new Blob([bytes]))).toEqual(expected);
    expect(await inspectModel(bytes.buffer)).toEqual(expected);
    if (typeof SharedArrayBuffer !== 'undefined') {
      const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
      shared.set(bytes);
      expect(await inspectModel(shared)).toEqual(expected);
      expect((await readTensor(shared, 'x')).data).toEqual(new Uint8Array([0, 1]));
    }
  });

  it('throws a TypeError for values other than files, a detached array too', async () => {
    for (const input of [undefined, null, 5, {}, [5]]) {
      await expect(inspectModel(input as unknown as Uint8Array)).rejects.toThrow(TypeError);
    }
    await expect(inspectModel([])).rejects.toThrow(RangeError);
    const bytes = file('{}');
    structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
    await expect(inspectModel(bytes)).rejects.toMatchObject({ problem: { expected: { state: 'attached' } } });
  });
});

describe('refusing broken safetensors', () => {
  const good = `{"a":${entry('F32', [1, 2], 0, 8)}}`;

  /** The header with something in it replaced. */
  const changed = (from: string, to: string) => {
    expect(good).toContain(from);
    return file(good.replace(from, to), 8);
  };

  it('refuses a file that is cut off at any byte', async () => {
    const bytes = file(good, 8);
    for (let length = 0; length < bytes.length; length++) await refused(bytes.slice(0, length));
    expect((await read(bytes)).tensors).toHaveLength(1);
  });

  it('refuses a header that is cut off at any byte, with its length set right', async () => {
    for (let length = 0; length < good.length; length++) await refused(file(good.slice(0, length), 8));
  });

  it('refuses bytes after the last tensor', async () => {
    const error = await refused(file(good, 9));
    expect(error.message).toMatch(/the tensors end at byte \d+, but the file has \d+ bytes/);
  });

  it('refuses a header longer than the format allows or the file is, before reading it', async () => {
    const bytes = file(good, 8);
    const lengths = [100_000_001n, 2n ** 32n + BigInt(good.length), 2n ** 63n, 2n ** 64n - 1n, 2n ** 64n - 8n];
    for (const length of lengths) {
      new DataView(bytes.buffer).setBigUint64(0, length, true);
      expect((await refused(bytes)).message).toMatch(/claims \d+ bytes, more than the 100000000 allowed/);
    }
    new DataView(bytes.buffer).setBigUint64(0, 100_000_000n, true);
    expect((await refused(bytes)).message).toMatch(/claims 100000000 bytes, but the file ends/);
  });

  it('refuses a header that does not start with a brace', async () => {
    for (const text of [` ${good}`, `[${good}]`, '\ufeff{}', '"{}"', 'null']) {
      expect((await refused(file(text, 8))).byteOffset).toBe(8);
    }
  });

  it('refuses anything but spaces after the header', async () => {
    for (const rest of ['x', '{}', ',', '\0']) {
      expect((await refused(file(good + rest, 8))).message).toMatch(/after the closing brace/);
    }
  });

  it('refuses text that is not UTF-8', async () => {
    for (const bad of [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf5, 0x80, 0x80, 0x80], [0xe2, 0x82]]) {
      const bytes = file(`{"${'n'.repeat(bad.length)}":${entry('F32', [1, 2], 0, 8)}}`, 8);
      bytes.set(bad, 10);
      expect((await refused(bytes)).message).toMatch(/not UTF-8/);
    }
  });

  it('refuses half of a surrogate pair in a name', async () => {
    for (const name of ['\\ud800', '\\udc00x', 'a\\ud83d']) {
      expect((await refused(changed('"a"', `"${name}"`))).message).toMatch(/surrogate/);
    }
  });

  it('refuses two tensors, members or metadata with one name', async () => {
    const twice = `{"a":${entry('U8', [4], 0, 4)},"a":${entry('U8', [4], 4, 8)}}`;
    const error = await refused(file(twice, 8));
    expect(error.message).toMatch(/the key "a" twice/);
    expect(error.byteOffset).toBe(8 + twice.lastIndexOf('"a"'));
    // One name in two spellings.
    expect((await refused(file(twice.replace('"a"', '"\\u0061"'), 8))).message).toMatch(/twice/);
    expect((await refused(file(twice.replaceAll('"a"', '"__proto__"'), 8))).message).toMatch(/twice/);
    for (const extra of ['"dtype":"F32",', '"shape":[1,2],', '"data_offsets":[0,8],', '"x":1,"x":1,']) {
      expect((await refused(changed('{"dtype"', `{${extra}"dtype"`))).message, extra).toMatch(/twice/);
    }
    const metadata = '"__metadata__":{"k":"1","k":"2"},';
    expect((await refused(file(`{${metadata}${good.slice(1)}`, 8))).message).toMatch(/"k" twice/);
    expect((await refused(file(`{"__metadata__":{},"__metadata__":{},${good.slice(1)}`, 8))).message).toMatch(/twice/);
  });

  it('refuses metadata that are no strings', async () => {
    for (const value of ['1', 'null', '{}', '[]', 'true', '["a"]']) {
      expect((await refused(file(`{"__metadata__":{"k":${value}}}`))).message, value).toMatch(
        /"k" in __metadata__, a string/,
      );
    }
    for (const value of ['1', 'null', '"text"', '[]']) await refused(file(`{"__metadata__":${value}}`));
  });

  it.each<[what: string, from: string, to: string, message: RegExp]>([
    ['a missing dtype', '"dtype":"F32",', '', /dtype is missing/],
    ['a missing shape', '"shape":[1,2],', '', /shape is missing/],
    ['missing offsets', ',"data_offsets":[0,8]', '', /data_offsets is missing/],
    ['an unknown dtype', 'F32', 'F33', /dtype "F33" is unknown/],
    ['a dtype in small letters', 'F32', 'f32', /is unknown/],
    ['a dtype that is a property of objects', 'F32', 'constructor', /is unknown/],
    ['a dtype that is a number', '"F32"', '32', /expected dtype, a string/],
    ['a shape that is a number', '[1,2]', '2', /expected '\['/],
    ['a negative dimension', '[1,2]', '[-1,2]', /whole number of at least 0, got '-'/],
    ['a fraction as dimension', '[1,2]', '[1.0,2]', /not a whole number/],
    ['an exponent in a dimension', '[1,2]', '[1e0,2]', /not a whole number/],
    ['a leading zero', '[1,2]', '[01,2]', /leading zero/],
    ['a text as dimension', '[1,2]', '["1",2]', /expected a number of shape/],
    ['a nested dimension', '[1,2]', '[[1],2]', /expected a number of shape/],
    ['a dimension beyond 2^53', '[1,2]', '[9007199254740993,2]', /too large/],
    ['a dimension of a thousand digits', '[1,2]', `[${'9'.repeat(1000)},2]`, /too large/],
    ['a product beyond 2^53', '[1,2]', '[4294967296,4294967296]', /product of shape .* too large/],
    ['a product that overflows to the right size', '[1,2]', '[4611686018427387905,2]', /too large/],
    ['an overflow behind a zero', '[1,2]', '[0,4294967296,4294967296]', /too large/],
    ['bits beyond 2^53', '[1,2]', '[1125899906842624]', /do not fill whole bytes/],
    ['a shape of more bytes', '[1,2]', '[1,3]', /has 12 bytes, but data_offsets span 8/],
    ['a shape of fewer bytes', '[1,2]', '[1]', /has 4 bytes, but data_offsets span 8/],
    ['an empty shape', '[1,2]', '[0,2]', /has 0 bytes, but data_offsets span 8/],
    ['half a byte', '"F32","shape":[1,2]', '"F4","shape":[15]', /do not fill whole bytes/],
    ['one offset', '[0,8]', '[0]', /1 numbers instead of 2/],
    ['three offsets', '[0,8]', '[0,8,8]', /3 numbers instead of 2/],
    ['no offsets', '[0,8]', '[]', /0 numbers instead of 2/],
    ['offsets in the wrong order', '[0,8]', '[8,0]', /ends at 0, before it begins at 8/],
    [
      'an end beyond the file',
      '"shape":[1,2],"data_offsets":[0,8]',
      '"shape":[3],"data_offsets":[0,12]',
      /has only 8 bytes/,
    ],
    [
      'a huge tensor',
      '"shape":[1,2],"data_offsets":[0,8]',
      '"shape":[1000000000000],"data_offsets":[0,4000000000000]',
      /only 8/,
    ],
    [
      'a hole at the start',
      '"shape":[1,2],"data_offsets":[0,8]',
      '"shape":[1],"data_offsets":[4,8]',
      /leaves a hole after 0/,
    ],
    [
      'a hole at the end',
      '"shape":[1,2],"data_offsets":[0,8]',
      '"shape":[1],"data_offsets":[0,4]',
      /tensors end at byte/,
    ],
    ['an entry that is a list', '{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}', '[]', /expected '{'/],
    ['an entry that is null', '{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}', 'null', /expected '{'/],
    ['a missing colon', '"a":', '"a"', /expected ':'/],
    ['a comma at the end', '[1,2]', '[1,2,]', /expected a number of shape/],
    ['a comment', '"a":', '/**/"a":', /expected a key of the header/],
    ['single quotes', '"a"', "'a'", /expected a key of the header/],
    ['a line feed in a name', '"a"', '"\n"', /control character/],
    ['an unknown escape', '"a"', '"\\x61"', /unknown escape/],
    ['a number that is none', '"dtype"', '"n":01,"dtype"', /expected a value/],
    ['a word that is none', '"dtype"', '"n":NaN,"dtype"', /expected a value/],
  ])('refuses %s', async (_what, from, to, message) => {
    const error = await refused(changed(from, to));
    expect(error.message).toMatch(message);
  });

  it('refuses tensors that overlap, and those that leave a hole between them', async () => {
    const two = (begin: number, end: number) =>
      file(`{"a":${entry('U8', [4], 0, 4)},"b":${entry('U8', [end - begin], begin, end)}}`, 8);
    expect((await read(two(4, 8))).tensors).toHaveLength(2);
    const overlap = await refused(two(3, 8));
    expect(overlap).toMatchObject({ tensor: 'b' });
    expect(overlap.message).toMatch(/tensor "b": data_offsets begins at 3 and overlaps/);
    expect((await refused(two(0, 8))).message).toMatch(/overlaps/);
    const hole = await refused(two(5, 8));
    expect(hole).toMatchObject({ tensor: 'b' });
    expect(hole.message).toMatch(/leaves a hole after 4/);
  });

  it('names the tensor and where its entry is', async () => {
    const text = `{"first":${entry('U8', [8], 0, 8)},"second":${entry('F99', [1], 8, 9)}}`;
    const error = await refused(file(text, 9));
    expect(error).toMatchObject({ tensor: 'second', byteOffset: 8 + text.indexOf('"second"') });
    expect(error.message).toBe('tensor "second": dtype "F99" is unknown');
  });

  it('refuses deep nesting without running out of stack', async () => {
    for (const [open, close] of [
      ['[', ']'],
      ['{"k":', '}'],
    ] as const) {
      const nested = (depth: number) => changed('"dtype"', `"n":${open.repeat(depth)}0${close.repeat(depth)},"dtype"`);
      expect((await read(nested(100))).tensors).toHaveLength(1);
      expect((await refused(nested(200_000))).message).toMatch(/nests deeper than/);
    }
    await refused(file('{'.repeat(100_000)));
    await refused(file('{"a":'.repeat(100_000)));
  });

  it('refuses a file of many tensors that claim more than there is', async () => {
    const entries = Array.from(
      { length: 20_000 },
      (_, i) => `"t${i}":${entry('F32', [2 ** 20], i * 2 ** 22, (i + 1) * 2 ** 22)}`,
    );
    expect((await refused(file(`{${entries.join(',')}}`, 16))).message).toMatch(/only 16 bytes of data/);
  });
});

describe('telling formats apart', () => {
  it('says what was seen and what is supported', async () => {
    const text = (s: string) => new TextEncoder().encode(s.padEnd(40));
    const cases: [Uint8Array, RegExp][] = [
      [new Uint8Array(), /the file is empty; supported are safetensors, GGUF, ONNX, \.npy, PyTorch/],
      [new Uint8Array([0x80, 0x02, 0x8a, 0x0a]), /pickle/],
      [text('<!doctype html>'), /HTML/],
      [text('version https://git-lfs.github.com/spec/v1'), /git-lfs pointer/],
      [new Uint8Array([1, 2, 3, 0xff]), /the file begins with 01 02 03 ff; supported are/],
    ];
    for (const [bytes, message] of cases) {
      await expect(inspectModel(bytes)).rejects.toMatchObject({
        code: 'UNKNOWN_FORMAT',
        message: expect.stringMatching(message),
      });
    }
  });
});

describe('a header with a damaged length', () => {
  it('is still a header of safetensors, and says what is wrong', async () => {
    for (const at of [3, 4, 5, 6, 7]) {
      const bytes = file(`{"w":${entry('F32', [2, 3], 0, 24)}}`, 24);
      bytes[at] = 1;
      await expect(inspectModel(bytes)).rejects.toMatchObject({
        code: 'BAD_FILE',
        message: expect.stringMatching(/the header claims \d+ bytes/),
      });
    }
  });

  it('does not disturb an index, which may have a brace at the same place', async () => {
    const index = new TextEncoder().encode('{"map": {"a": "b"}}');
    await expect(inspectModel(index)).rejects.toMatchObject({
      problem: { option: 'file', expected: { min: 2, unit: 'files' } },
    });
  });
});

describe('quantizing in memory', () => {
  it('needs no file system', async () => {
    const bytes = file(`{"w":${entry('F32', [2, 3], 0, 24)}}`, 24);
    bytes.set(new Uint8Array(new Float32Array([1, -2, 127.5, 0, 0, 0]).buffer), bytes.length - 24);
    const { report, blob } = await quantizeModel(new File([bytes], 'model'), {
      to: 'int8',
      packed: false,
      include: 'all',
    });
    const result = await blob();
    expect(result.size).toBe(report.totals.bytesAfter);
    expect((await readTensor(result, 'w')).data).toEqual(new Int8Array([1, -2, 127, 0, 0, 0]));
    expect((await readTensor(result, 'w_scale')).data).toEqual(new Float32Array([1, 2 ** -23]));
  });
});

describe('laying out safetensors', () => {
  const tensors: { name: string; dtype: TensorDType; shape: number[] }[] = [
    { name: 'b', dtype: 'I8', shape: [3] },
    { name: 'a', dtype: 'F32', shape: [2] },
    { name: 'c', dtype: 'I64', shape: [] },
    { name: '__proto__', dtype: 'F16', shape: [0, 3] },
    { name: 'B', dtype: 'F32', shape: [1] },
  ];

  it('puts wide dtypes first, then names in byte order, and pads with spaces to a multiple of 8', () => {
    const { header, tensors: placed, size } = laidOut(tensors, { format: 'pt' });
    expect(placed.map(({ name }) => name)).toEqual(['c', 'B', 'a', '__proto__', 'b']);
    expect(placed.map(({ byteOffset }) => byteOffset - header.length)).toEqual([0, 8, 12, 20, 20]);
    expect(size).toBe(header.length + 23);
    expect(header.length % 8).toBe(0);
    expect(new DataView(header.buffer).getBigUint64(0, true)).toBe(BigInt(header.length - 8));
    const text = new TextDecoder().decode(header.subarray(8));
    expect(text).toMatch(
      /^\{"__metadata__":\{"format":"pt"\},"c":\{"dtype":"I64","shape":\[\],"data_offsets":\[0,8\]\},.*\} *$/,
    );
  });

  it('orders names as their UTF-8 bytes, beyond U+FFFF too', () => {
    const names = ['\u{1f600}', '\uff5e', 'z', 'é', 'zz', ''];
    const { tensors: placed } = laidOut(names.map((name) => ({ name, dtype: 'U8' as const, shape: [1] })));
    expect(placed.map(({ name }) => name)).toEqual(['', 'z', 'zz', 'é', '\uff5e', '\u{1f600}']);
  });

  it('writes what the reader reads', async () => {
    const metadata = JSON.parse('{"__proto__":"x","key \\"\\n":"重み"}') as Record<string, string>;
    for (let n = 0; n <= tensors.length; n++) {
      const { header, tensors: placed, size } = laidOut(tensors.slice(0, n), metadata);
      const bytes = new Uint8Array(size);
      bytes.set(header);
      const found = await read(bytes);
      expect(found.tensors).toEqual(placed.map((tensor) => ({ ...tensor, file: 0 })));
      expect(Object.entries(found.metadata)).toEqual(Object.entries(metadata));
    }
  });

  it('orders the names of each dtype, whether they are ordered like those of the one before or not', () => {
    for (const suffix of ['_scale', '.scale']) {
      const owners = ['b', 'a', 'a.b', 'a-b'];
      const both = (name: string): { name: string; dtype: TensorDType; shape: number[] }[] => [
        { name, dtype: 'I32', shape: [1] },
        { name: name + suffix, dtype: 'F16', shape: [1] },
      ];
      const names = laidOut(owners.flatMap(both)).tensors.map(({ name }) => name);
      expect(names.slice(0, 4)).toEqual(['a', 'a-b', 'a.b', 'b']);
      expect(names.slice(4)).toEqual(owners.map((name) => name + suffix).sort());
    }
  });

  it('pads to the length of its text, whatever the names and the sizes', () => {
    for (const name of ['plain', 'with "quotes"', 'tab\t', '重み', '\u{1f600}', '\ud800', '']) {
      for (const size of [0, 1, 9, 10, 99, 100, 12_345, 1e9, 1e15]) {
        const shapes = [[size], [1, size, 1], [3]];
        const { header } = layoutSafetensors(
          shapes.map((shape, i) => ({ name: `${name}${i}`, dtype: 'U8', shape })),
          { [name]: name },
        );
        const text = new TextDecoder().decode(madeBytes(header).subarray(8));
        expect(Object.keys(JSON.parse(text) as object)).toHaveLength(4);
        expect(text.length - text.trimEnd().length).toBeLessThan(8);
      }
    }
  });

  it('refuses two tensors with one name, and a tensor named like the metadata', () => {
    const one = { name: 'x', dtype: 'U8', shape: [1] } as const;
    expect(() => layoutSafetensors([one, one])).toThrow(/"x": the name is taken/);
    for (const name of ['y', 'layer.weight', '__metadata__']) {
      const both = (['F16', 'I32', 'F32'] as const).map((dtype, i) => ({
        name: i > 0 ? name : 'z',
        dtype,
        shape: [1],
      }));
      expect(() => layoutSafetensors([...both, { ...one, name: 'a.bias' }])).toThrow(`"${name}": the name is taken`);
    }
    expect(() => layoutSafetensors([{ ...one, name: '__metadata__' }])).toThrow(RangeError);
    expect(() => layoutSafetensors([{ ...one, dtype: 'F4' }])).toThrow(/cannot be stored/);
  });
});
