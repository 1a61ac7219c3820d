// Reading ONNX files, and refusing damaged ones.
import { inspectModel, planModel, quantizeModel, readTensor, verifyModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { signatures } from '../../../../web/src/formats/signatures.js';
import { rejectionOf } from '../../support/models.js';
import * as onnx from './encoder.js';

const { bytes, int, text } = onnx;
const values = onnx.weights(64 * 16);
const raw = onnx.rawOf(values);

/** A model with one initializer. */
function holding(tensor: onnx.Bytes, main: Partial<onnx.TestGraph> = {}): Uint8Array<ArrayBuffer> {
  return onnx.model({
    nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }],
    initializers: [tensor],
    inputs: [['x', [1, 64]]],
    outputs: [['y', [1, 16]]],
    ...main,
  });
}
const fails = (file: Uint8Array, message: RegExp, code = 'BAD_FILE') =>
  expect(inspectModel(file)).rejects.toMatchObject({ code, message: expect.stringMatching(message) });

describe('the tensors of an ONNX model', () => {
  const forms: Readonly<Record<string, onnx.Bytes>> = {
    'raw data': onnx.tensor({ name: 'w', dims: [64, 16], raw }),
    'floats in one field': onnx.tensor({ name: 'w', dims: [64, 16], more: bytes(4, raw) }),
    'floats in two fields': onnx.tensor({
      name: 'w',
      dims: [64, 16],
      more: [...bytes(4, raw.subarray(0, 400)), ...bytes(4, raw.subarray(400))],
    }),
    'floats in a field each': onnx.tensor({
      name: 'w',
      dims: [64, 16],
      more: [...values].flatMap((value) => [(4 << 3) | 5, ...onnx.floats([value])]),
    }),
    'data before its shape': [...bytes(9, raw), ...text(8, 'w'), ...int(2, 1), ...int(1, 64), ...int(1, 16)],
    'dimensions in one field': [...bytes(1, [64, 16]), ...int(2, 1), ...text(8, 'w'), ...bytes(9, raw)],
    'a field twice, of which the last counts': [...text(8, 'v'), ...onnx.tensor({ name: 'w', dims: [64, 16], raw })],
    'unknown fields': [...int(99, 5), ...onnx.tensor({ name: 'w', dims: [64, 16], raw }), ...bytes(1000, raw)],
  };
  it.each(Object.entries(forms))('are read from %s', async (_form, tensor) => {
    const file = holding(tensor);
    expect(await inspectModel(file)).toMatchObject({
      files: [''],
      tensors: [{ name: 'w', dtype: 'F32', shape: [64, 16], bytes: 4096, file: 0 }],
    });
    expect((await readTensor(file, 'w')).data).toEqual(values);
  });

  it('are read from varints, of every size', async () => {
    const halves = Uint16Array.from({ length: 40_000 }, (_, i) => (i * 37) & 0xffff);
    const entries = [...halves].flatMap((value) => onnx.varint(value));
    const half = onnx.tensor({ name: 'w', type: 10, dims: [40_000], more: bytes(5, entries) });
    expect((await readTensor(holding(half), 'w')).data).toEqual(halves);
    const signed = onnx.tensor({
      name: 'w',
      type: 3,
      dims: [3],
      more: [-1, -128, 127].flatMap((value) => int(5, value)),
    });
    expect((await readTensor(holding(signed), 'w')).data).toEqual(Int8Array.of(-1, -128, 127));
    const many = holding(onnx.tensor({ name: 'w', type: 3, dims: [3], more: bytes(5, [1, 2, 3, 4]) }));
    await expect(readTensor(many, 'w')).rejects.toMatchObject({ code: 'BAD_FILE' });
  });

  it('are found in constants, branches and functions, under names of their own', async () => {
    const constant = (out: string): onnx.TestNode => {
      return {
        op: 'Constant',
        in: [],
        out: [out],
        attributes: { value: { tensor: onnx.tensor({ dims: [64, 16], raw }) } },
      };
    };
    const branch = onnx.graph({
      nodes: [constant('c'), { op: 'MatMul', in: ['x', 'c'], out: ['b'] }],
      initializers: [onnx.floatTensor('w', [64, 16])],
      inputs: [],
      outputs: [['b', [1, 16]]],
    });
    const choice: onnx.TestNode = {
      op: 'If',
      name: 'choice',
      in: ['cond'],
      out: ['y'],
      attributes: { then_branch: { graph: branch }, else_branch: { graph: branch } },
    };
    const main = onnx.graph({ nodes: [constant('c'), choice], inputs: [['x', [1, 64]]], outputs: [['y', [1, 16]]] });
    const local = [...text(1, 'F'), ...bytes(7, onnx.node(constant('c'))), ...text(10, 'local')];
    const { tensors } = await inspectModel(onnx.modelOf(main, { more: bytes(25, local) }));
    expect(tensors.map(({ name }) => name)).toEqual([
      'c',
      'choice/then_branch/c',
      'choice/then_branch/w',
      'choice/else_branch/c',
      'choice/else_branch/w',
      'F/c',
    ]);
  });
});

describe('a broken file', () => {
  const good = onnx.tensor({ name: 'w', dims: [64, 16], raw });
  const cases: readonly [what: string, file: Uint8Array, message: RegExp][] = [
    ['a group', holding(good, { more: [(9 << 3) | 3] }), /wire type 3, a group/],
    ['a wire type that is none', holding(good, { more: [(9 << 3) | 7] }), /wire type 7/],
    ['a field without a number', holding(good, { more: [0, 1] }), /number 0/],
    ['a number of eleven bytes', holding(good, { more: [...new Array<number>(11).fill(0x80)] }), /more than 10 bytes/],
    ['a length beyond its message', holding(good, { more: [(9 << 3) | 2, 100, 1] }), /reaches beyond/],
    [
      'raw data of another size',
      holding(onnx.tensor({ name: 'w', dims: [64, 17], raw })),
      /raw_data has 4096 bytes, but/,
    ],
    ['too few floats', holding(onnx.tensor({ name: 'w', dims: [64, 17], more: bytes(4, raw) })), /takes 1088 entries/],
    ['a negative dimension', holding(onnx.tensor({ name: 'w', dims: [-64, -16], raw })), /its shape is -64×-16/],
    ['dimensions that overflow', holding(onnx.tensor({ name: 'w', dims: [2 ** 40, 2 ** 40, 0] })), /too large/],
    ['data in two places', holding([...good, ...bytes(4, raw)]), /data in two places/],
    ['no data', holding(onnx.tensor({ name: 'w', dims: [64, 16] })), /no data/],
    [
      'data of another type',
      holding(onnx.tensor({ name: 'w', dims: [2], more: bytes(7, [1, 2]) })),
      /field 7 holds no F32/,
    ],
    ['two tensors of a name', holding(good, { initializers: [good, good] }), /two tensors "w"/],
    ['a name that is not UTF-8', holding([...onnx.tensor({ dims: [0] }), ...bytes(8, [0xff])]), /not UTF-8/],
    [
      'too many varints',
      holding(onnx.tensor({ name: 'w', type: 3, dims: [3], more: bytes(5, [1, 2, 3, 4]) })),
      /takes 3 entries/,
    ],
    [
      'a varint that is cut off',
      holding(onnx.tensor({ name: 'w', type: 7, dims: [2], more: bytes(7, [1, 0x80]) })),
      /ends within a number/,
    ],
    ['a place of data that is none', holding([...good, ...int(14, 2)]), /data_location is 2/],
    ['metadata of another length', Uint8Array.from([...holding(good), ...bytes(14, [0x0a, 9, 1])]), /reaches beyond/],
    ['a negative version', Uint8Array.from([...holding(good), ...onnx.opsetImport('', -3)]), /has the version -3/],
    [
      'a negative version of its own',
      Uint8Array.from([...int(1, -1), ...holding(good).subarray(2), ...int(1, -1)]),
      /-1/,
    ],
    ['a graph of another wire type', Uint8Array.from([...int(1, 8), ...int(7, 5)]), /the graph has the wire type 0/],
    ['no graph', Uint8Array.from([...int(1, 8), ...onnx.opsetImport('', 17)]), /no graph/],
    ['a node of another wire type', holding(good, { more: int(1, 5) }), /a node has the wire type 0/],
  ];
  it.each(cases)('has %s', (_what, file, message) => fails(file, message));

  it('has messages that lie too deep in each other', async () => {
    let inner = onnx.graph({ nodes: [], inputs: [], outputs: [] });
    for (let i = 0; i < 60; i++) {
      const loop = { op: 'Loop', in: [], out: ['y'], attributes: { body: { graph: inner } } };
      inner = onnx.graph({ nodes: [loop], inputs: [], outputs: [] });
    }
    await fails(onnx.modelOf(inner), /more than 100 levels/);
  });

  const calling = (name: string, called: string) => {
    const call = onnx.node({ op: called, domain: 'local', in: [], out: ['y'] });
    return [...bytes(25, [...text(1, name), ...bytes(7, call), ...text(10, 'local')])];
  };
  const empty = { nodes: [], inputs: [], outputs: [] };

  it('has functions that call each other in a circle', async () => {
    const more = [...calling('F', 'G'), ...calling('G', 'F')];
    await fails(onnx.model(empty, { more }), /calls itself/);
  });

  it('has a circle of very many functions', async () => {
    const count = 8000;
    const row = Array.from({ length: count }, (_, i) => calling(`F${i}`, `F${(i + 1) % count}`)).flat();
    await fails(onnx.model(empty, { more: row }), /"F0" calls itself/);
  });

  it('is cut off anywhere', async () => {
    const file = holding(onnx.tensor({ name: 'w', dims: [8, 8], raw: raw.subarray(0, 256) }));
    for (let length = 3; length < file.length; length++) {
      const cut = file.slice(0, length);
      // Without opset_import, or without its end, a file may be whole.
      const result = await inspectModel(cut).catch((error) => error);
      if (result instanceof Error) expect(result).toMatchObject({ name: 'ScalepointError', code: 'BAD_FILE' });
    }
  });

  it('has one wrong byte', async () => {
    const file = holding(onnx.tensor({ name: 'w', dims: [4, 4], raw: raw.subarray(0, 64) }));
    for (let i = 3; i < file.length; i++) {
      for (const byte of [0, 0x7f, 0x80, 0xff, (file[i] as number) ^ 1]) {
        const wrong = file.slice();
        wrong[i] = byte;
        const result = await inspectModel(wrong).catch((error) => error);
        if (result instanceof Error) expect(result.name).toBe('ScalepointError');
      }
    }
  });
});

describe('an integer beyond 2^53', () => {
  const most = 2n ** 63n - 1n;
  const dimension = [...onnx.int(1, most), ...int(2, 1), ...text(8, 'w')];
  it.each<[what: string, file: Uint8Array<ArrayBuffer>, message: RegExp]>([
    ['a dimension of a tensor', holding(dimension), /its shape is 9223372036854775807/],
    [
      'the axis of a node',
      holding(onnx.tensor({ name: 'w', dims: [64, 16], raw }), {
        nodes: [{ op: 'Gather', in: ['w', 'x'], out: ['y'], more: bytes(5, [...text(1, 'axis'), ...int(3, most)]) }],
      }),
      /the attribute "axis" is 9223372036854775807/,
    ],
    [
      'a dimension of a value',
      holding(onnx.tensor({ name: 'w', dims: [64, 16], raw }), {
        more: bytes(13, [...text(1, 'v'), ...bytes(2, bytes(1, bytes(2, bytes(1, int(1, most)))))]),
      }),
      /a dimension is 9223372036854775807/,
    ],
  ])('is refused as %s', async (_what, file, message) => {
    await expect(planModel(file, { to: 'q8' })).rejects.toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringMatching(message),
    });
  });
});

describe('data in other files', () => {
  const entry = (key: string, content: string) => bytes(13, [...text(1, key), ...text(2, content)]);
  const outside = (...entries: onnx.Bytes[]) => [
    ...onnx.tensor({ name: 'w', dims: [64, 16] }),
    ...entries.flatMap((one) => [...one]),
    ...int(14, 1),
  ];
  const at = (location: string) => outside(entry('location', location), entry('offset', '8'), entry('length', '4096'));
  const data = new Uint8Array(8 + 4096);
  data.set(raw, 8);
  const named = (name: string, content: Uint8Array<ArrayBuffer>) => new File([content], name);

  it('are found by their names among the files that were given', async () => {
    const files = [named('m.onnx_data', data), named('m.onnx', holding(at('m.onnx_data')))];
    expect(await inspectModel(files)).toMatchObject({ tensors: [{ name: 'w', byteOffset: 8, file: 1 }] });
    expect((await readTensor(files, 'w')).data).toEqual(values);
  });

  it('have to be there', async () => {
    const files = [named('other', data), named('m.onnx', holding(at('m.onnx_data')))];
    for (const [file, message] of [
      [files, /"m\.onnx_data", which is not among/],
      [holding(at('m.onnx_data')), /pass a list of the model and "m.onnx_data"/],
    ] as const) {
      await expect(inspectModel(file)).rejects.toMatchObject({
        code: 'NOT_FOUND',
        message: expect.stringMatching(message),
        tensor: 'w',
        byteOffset: expect.any(Number),
      });
    }
  });

  const wrong: readonly [what: string, tensor: onnx.Bytes, message: RegExp][] = [
    ['above the model', at('../m.onnx_data'), /not a path below the model/],
    ['above the model further inside', at('a/../../m.onnx_data'), /not a path below the model/],
    ['at an absolute path', at('/m.onnx_data'), /not a path below the model/],
    ['on a drive', at('C:m.onnx_data'), /not a path below the model/],
    ['behind backslashes', at('..\\m.onnx_data'), /not a path below the model/],
    ['nowhere', outside(entry('offset', '8')), /names no file/],
    ['at a place that is no number', outside(entry('location', 'd'), entry('offset', '0x8')), /"0x8" for its offset/],
    ['at two places', outside(entry('location', 'd'), entry('location', 'e')), /"location" twice/],
    [
      'of another length',
      outside(entry('location', 'm.onnx_data'), entry('length', '40')),
      /40 bytes in "m.onnx_data"/,
    ],
    ['behind the end', outside(entry('location', 'm.onnx_data'), entry('offset', '9')), /lie outside of "m.onnx_data"/],
    ['here and there', [...at('m.onnx_data'), ...bytes(9, raw)], /data in two places/],
  ];
  it.each(wrong)('lie %s', async (_what, tensor, message) => {
    const files = [named('m.onnx', holding(tensor)), named('m.onnx_data', data)];
    await expect(inspectModel(files)).rejects.toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringMatching(message),
    });
  });
});

describe('the data type of a tensor', () => {
  const typed = (type: number, name = 'odd') => onnx.tensor({ name, type, dims: [3], raw: [1, 2, 3] });
  const inGraph = (tensor: onnx.Bytes) => holding(floats, { more: bytes(5, tensor) });
  const inNode = (tensor: onnx.Bytes) =>
    holding(floats, {
      nodes: [
        { op: 'Own', domain: 'own', in: ['x'], out: ['z'], attributes: { value: { tensor } } },
        { op: 'MatMul', in: ['x', 'w'], out: ['y'] },
      ],
    });
  const floats = onnx.tensor({ name: 'w', dims: [64, 16], raw });

  it.each([0, -1, -(2 ** 31)])('has to be a number of ONNX: %i', async (type) => {
    for (const file of [inGraph(typed(type)), inNode(typed(type))]) {
      await fails(file, new RegExp(`tensor "odd": its data type is ${type}$`));
    }
  });

  it.each([27, 99, 2 ** 31 - 1])('that ONNX does not have is refused: %i', async (type) => {
    const value = holding(floats, { more: bytes(13, onnx.value(['odd', [3], type])) });
    for (const [file, what] of [
      [inGraph(typed(type)), 'tensor "odd": its data type'],
      [inNode(typed(type)), 'tensor "odd": its data type'],
      [value, 'value "odd": its element type'],
    ] as const) {
      const quantized = (made: Uint8Array<ArrayBuffer>) => quantizeModel(made, { to: 'q8', workers: 0 });
      for (const call of [inspectModel, verifyModel, quantized]) {
        expect(await rejectionOf(call(file))).toMatchObject({
          code: 'UNSUPPORTED_DTYPE',
          tensor: 'odd',
          byteOffset: expect.any(Number),
          message: expect.stringContaining(`${what} is ${type}, which ONNX does not have`),
        });
      }
    }
  });

  it('is that of texts, or none in an empty tensor', async () => {
    const texts = onnx.tensor({ name: 's', type: 8, dims: [1], more: text(6, 'a') });
    for (const file of [inGraph(texts), inNode(texts), inNode([])]) {
      expect((await verifyModel(file)).problems).toEqual([]);
    }
  });
});

describe('a model that begins like a header of safetensors', () => {
  /** A model without a producer, whose first node makes byte 8 a brace: 08 08 3a, a length of 4 bytes, 0a 7b. */
  const lookalike = (columns: number) => {
    const [length, columnsOut] = [123, ['y', [1, columns]] as const];
    const node = { op: 'MatMul', in: ['x', 'w'], out: ['y'] };
    const bare = onnx.node({ ...node, name: 'n' }).length;
    const main = onnx.graph({
      nodes: [{ ...node, name: 'n'.repeat(1 + length - bare) }],
      initializers: [onnx.floatTensor('w', [64, columns])],
      inputs: [['x', [1, 64]]],
      outputs: [columnsOut],
    });
    return new Uint8Array([...int(1, 8), ...bytes(7, main), ...onnx.opsetImport('', 17)]);
  };

  it('is a model', async () => {
    const file = lookalike(8200);
    expect(String.fromCharCode(file[8]!)).toBe('{');
    expect(await inspectModel(file)).toMatchObject({ format: 'onnx', tensors: [{ name: 'w', shape: [64, 8200] }] });
    const result = await quantizeModel(file, { to: 'q8', workers: 0 });
    expect(await inspectModel(await result.bytes())).toMatchObject({ format: 'onnx' });
  });

  it('is a model at every size of the graph and every version', async () => {
    const onnxOf = (head: Uint8Array) => signatures.find(({ sniff }) => sniff?.(head))?.name;
    for (let version = 1; version < 20; version++) {
      for (const size of [2 ** 21, 2 ** 21 + 1, 2 ** 24, 2 ** 27 + 12345, 2 ** 28 - 1]) {
        const head = new Uint8Array(32);
        head.set([...int(1, version), 0x3a, ...onnx.varint(size), 0x0a, 0x7b, 0x0a, 0x01]);
        expect(head[8]).toBe(0x7b);
        expect(onnxOf(head)).toBe('onnx');
      }
    }
  });
});
