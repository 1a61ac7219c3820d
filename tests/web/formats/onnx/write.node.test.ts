// Written files: tensors larger than a tile, bytes that stay as they are, sequential outputs.
import { mkdir, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as ort from 'onnxruntime-web';
import { compareModels, inspectModel, type PlanOptions, planModel, quantizeModel, readTensor } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { partsOf } from '../../../../web/src/formats/codecs/registry.js';
import type { ByteSource } from '../../../../web/src/formats/files/bytes.js';
import { openOnnx } from '../../../../web/src/formats/onnx/file/model.js';
import { planOnnx } from '../../../../web/src/formats/onnx/plan.js';
import { expectBytes } from '../../support/models.js';
import * as onnx from './encoder.js';
import { cosine, feedsFor, run } from './ort.js';

const { bytes, int, text } = onnx;

async function make(file: Uint8Array<ArrayBuffer>, options: PlanOptions, workers = 0) {
  return (await quantizeModel(file, { workers, ...options })).bytes();
}

/** A product with a matrix of these values. */
const matrix = (rows: number, columns: number, values: Float32Array<ArrayBuffer>) => {
  const dims = [rows, columns];
  return onnx.product(
    'MatMul',
    dims,
    [1, rows],
    [1, columns],
    onnx.tensor({ name: 'w', dims, raw: onnx.rawOf(values) }),
  )();
};

const bytesOf = ({ buffer, byteOffset, length }: Int8Array) => new Uint8Array(buffer, byteOffset, length);

/** Rounds half to even. */
function rounded(x: number): number {
  const low = Math.floor(x);
  if (x - low !== 0.5) return Math.round(x);
  return low % 2 === 0 ? low : low + 1;
}

/** Symmetric codes of 8 bits, as onnxruntime's quantizer makes them. `channel` gives the channel of an element. */
function expected(x: Float32Array, channels: number, channel: (i: number) => number) {
  const largest = new Float64Array(channels);
  for (let i = 0; i < x.length; i++) {
    const size = Math.abs(x[i] as number);
    if (size > (largest[channel(i)] as number)) largest[channel(i)] = size;
  }
  const scale = Float32Array.from(largest, (value) => (2 * value) / 254);
  const codes = new Int8Array(x.length);
  for (let i = 0; i < x.length; i++) {
    codes[i] = rounded(Math.fround((x[i] as number) / (scale[channel(i)] as number)));
  }
  return { scale, codes };
}

const large: readonly [
  what: string,
  op: string,
  dims: number[],
  attributes: onnx.TestNode['attributes'],
  channel: (i: number) => number,
][] = [
  ['columns', 'MatMul', [1100, 1000], {}, (i) => i % 1000],
  ['rows', 'Gemm', [1100, 1000], { transB: 1 }, (i) => Math.floor(i / 1000)],
  ['an axis in the middle', 'ConvTranspose', [1200, 9, 11, 10], {}, (i) => Math.floor(i / 110) % 9],
  ['rows that are longer than a tile', 'Conv', [2, 2 ** 20 + 7, 1], {}, (i) => Math.floor(i / (2 ** 20 + 7))],
];

describe('tensors larger than a tile', () => {
  it.each(large)('have a scale for each of %s', async (_what, op, dims, attributes, channel) => {
    const count = dims.reduce((a, b) => a * b, 1);
    const file = onnx.product(op, dims, [1], [1])(attributes, { opset: 13 });
    const channels = channel(count - 1) + 1;
    const { scale, codes } = expected(onnx.weights(count), channels, channel);
    for (const workers of [0, 2]) {
      const made = await make(file, { to: 'int8-weights' }, workers);
      expect((await readTensor(made, 'w_scale')).data).toEqual(scale);
      expectBytes(bytesOf((await readTensor(made, 'w_quantized')).data as Int8Array), bytesOf(codes));
    }
  });

  it('have a scale for each of columns that are longer than several tiles', async () => {
    // The ranges come from 2048 rows, which are read in four pieces, and from 52. Each piece has values that decide.
    const [rows, columns] = [2100, 2048];
    const some = [3, 511, 512, 1300, 2047, 2048, 2099];
    const few = onnx.weights(some.length * columns);
    const values = new Float32Array(rows * columns);
    const { scale, codes } = expected(few, columns, (i) => i % columns);
    const all = new Int8Array(values.length);
    for (const [i, row] of some.entries()) {
      values.set(few.subarray(i * columns, (i + 1) * columns), row * columns);
      all.set(codes.subarray(i * columns, (i + 1) * columns), row * columns);
    }
    const fileOf = () => matrix(rows, columns, values);
    const file = fileOf();
    for (const workers of [0, 2]) {
      const made = await make(file, { to: 'int8-weights' }, workers);
      expect((await readTensor(made, 'w_scale')).data).toEqual(scale);
      expectBytes(bytesOf((await readTensor(made, 'w_quantized')).data as Int8Array), bytesOf(all));
    }
    values[700 * columns + 5] = Number.NaN;
    const error = await make(fileOf(), { to: 'int8-weights' }, 1).catch((cause: unknown) => cause);
    expect(error).toMatchObject({ code: 'NON_FINITE', message: expect.stringContaining('NaN at [700, 5]') });
  });

  it('have one scale', async () => {
    const file = onnx.product('MatMul', [1100, 1000], [1], [1])();
    const { scale, codes } = expected(onnx.weights(1_100_000), 1, () => 0);
    const made = await make(file, { to: 'int8', perTensor: true, reduceRange: false });
    expect((await readTensor(made, 'w_scale')).data).toEqual(scale);
    expectBytes(bytesOf((await readTensor(made, 'w_quantized')).data as Int8Array), bytesOf(codes));
  });

  it('are searched as far as a tile holds what shares a scale', async () => {
    const file = onnx.product('MatMul', [1100, 1000], [1], [1])();
    const { report } = await quantizeModel(file, { to: 'int8-weights', range: 'mse', workers: 0 });
    const plain = await quantizeModel(file, { to: 'int8-weights', workers: 0 });
    expect(report.tensors[0]?.error?.mse).toBeLessThan(plain.report.tensors[0]?.error?.mse ?? 0);
  });

  it('go into a stream in order', async () => {
    const file = onnx.product('MatMul', [1100, 1000], [1], [1])();
    for (const to of ['int8-weights', 'q8', 'q4', 'int4-weights', 'fp16', 'bnb4'] as const) {
      const pieces: Uint8Array[] = [];
      const output = new WritableStream<Uint8Array<ArrayBuffer>>({ write: (piece) => void pieces.push(piece.slice()) });
      await quantizeModel(file, { to, output, workers: 0 });
      expectBytes(Buffer.concat(pieces), await make(file, { to }));
    }
  });

  it('are the same with workers', async () => {
    const file = onnx.product('MatMul', [1100, 1000], [1], [1])();
    for (const to of ['q4', 'uint8', 'bnb4'] as const) {
      expectBytes(await make(file, { to }, 2), await make(file, { to }));
    }
  });

  it.each([
    // Pieces of 1056 and 50 rows; the last block is short.
    [1106, 496, { to: 'q4', zeroPoints: true }, ['w_Q4', 'w_scales', 'w_zero_points']],
    [1106, 496, { to: 'q8-blocks' }, ['w_Q8', 'w_scales']],
    // Two pieces of 2048 columns, and one of 16.
    [512, 2064, { to: 'q4', blockSize: 256 }, ['w_Q4', 'w_scales']],
  ] as const)(
    'of %i rows and %i columns come in pieces, whose blocks are those of some columns: %j',
    async (rows, columns, options, parts) => {
      const some = 16;
      const first = columns - some;
      const values = onnx.weights(rows * columns);
      const last = Float32Array.from({ length: rows * some }, (_, i) => {
        return values[Math.floor(i / some) * columns + first + (i % some)] as number;
      });
      const [file, narrow] = [values, last].map((values) => {
        return matrix(rows, values.length / rows, values);
      }) as [Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>];
      const whole = await make(file, options);
      const part = await make(narrow, options);
      for (const name of parts) {
        const { data } = await readTensor(whole, name);
        expect((await readTensor(part, name)).data).toEqual(data.slice((data.length / columns) * first));
      }
      // A worker is given the floats, or reads them by itself.
      expectBytes(await make(file, options, 1), whole);
      const folder = await mkdtemp(join(tmpdir(), 'scalepoint-'));
      try {
        const [path, output] = [join(folder, 'model.onnx'), join(folder, 'result.onnx')];
        await writeFile(path, file);
        await quantizeModel(path, { ...options, output, workers: 1 });
        expectBytes(await readFile(output), whole);
      } finally {
        await rm(folder, { recursive: true });
      }
    },
  );
});

describe('a result beside its model', () => {
  it('stands for what the report says', async () => {
    const files = [
      onnx.product('MatMul', [128, 96], [3, 128], [3, 96])({}, { opset: 21 }),
      onnx.product('Conv', [16, 32, 3, 3], [1, 32, 9, 9], [1, 16, 'h', 'w'])(),
      onnx.product('ConvTranspose', [16, 32, 3, 3], [1, 16, 9, 9], [1, 32, 'h', 'w'])(),
      onnx.gather([64, 96], [3, 96], ['i', [3], 7])(),
      // Squares, of which only their readers tell whether they are transposed.
      onnx.product('Gemm', [96, 96], [3, 96], [3, 96])({ transB: 1 }, { opset: 21 }),
      ...[64, 96].map((rows) =>
        onnx.model({
          nodes: [
            { op: 'Gather', in: ['w', 'i'], out: ['h'] },
            { op: 'Transpose', in: ['w'], out: ['t'], attributes: { perm: [1, 0] } },
            { op: 'MatMul', in: ['h', 't'], out: ['y'] },
          ],
          initializers: [onnx.floatTensor('w', [rows, 96])],
          inputs: [['i', [3], 7]],
          outputs: [['y', [3, rows]]],
        }),
      ),
    ];
    const choices: PlanOptions[] = [
      ...(['int8-weights', 'uint8-weights', 'int4-weights', 'q4', 'q4f16', 'q2', 'q8-blocks', 'bnb4'] as const).map(
        (to) => ({ to }),
      ),
      ...(['q8', 'int8', 'uint8'] as const).flatMap((to) => [{ to }, { to, perTensor: true }]),
      { to: 'q4', zeroPoints: true },
      { to: 'int4-weights', zeroPoints: true },
    ];
    const made: Uint8Array<ArrayBuffer>[] = [];
    for (const [i, file] of files.entries()) {
      for (const choice of choices) {
        const { report, bytes: content } = await quantizeModel(file, { ...choice, workers: 0 });
        const [tensor] = report.tensors;
        if (tensor?.error === undefined) continue;
        if (i === 4) made.push(await content());
        const { tensors } = await compareModels(file, await content(), { workers: 0 });
        const error = tensors.find(({ name }) => name === 'w')?.error;
        // Sums of 512 squares in float32, in another order: 512 * 2^-24 of each, which is 1.3e-4 dB.
        expect(error?.maxAbsoluteError, `${i} ${JSON.stringify(choice)}`).toBe(tensor.error.maxAbsoluteError);
        expect(error?.sqnrDb).toBeCloseTo(tensor.error.sqnrDb, 3);
      }
    }
    // Results beside each other have the codes of one matrix, too: the error of 2 bits in blocks is less than the signal.
    expect(made.length).toBeGreaterThan(10);
    for (const one of made.slice(1)) {
      const { tensors } = await compareModels(made[0] as Uint8Array<ArrayBuffer>, one, { workers: 0 });
      expect(tensors.find(({ name }) => name === 'w')?.error.cosine).toBeGreaterThan(0.8);
    }
  });
});

describe('what does not change', () => {
  it('is copied byte for byte: unknown fields, metadata, nodes, long values', async () => {
    const odd = [
      ...bytes(
        77,
        Array.from({ length: 100 }, (_, i) => i),
      ),
      ...int(78, 3),
    ];
    const long = text(10, 'documentation '.repeat(10_000));
    const kept = onnx.node({ op: 'Relu', in: ['p'], out: ['y'], more: odd });
    const file = onnx.model(
      {
        nodes: [
          { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
          { op: 'Relu', in: ['p'], out: ['y'], more: odd },
        ],
        initializers: [
          onnx.floatTensor('w', [64, 48]),
          onnx.tensor({ name: 'b', dims: [4], raw: onnx.floats([1, 2, 3, 4]), more: odd }),
        ],
        inputs: [['x', [3, 64]]],
        outputs: [['y', [3, 48]]],
        more: [...odd, ...long],
      },
      { more: [...bytes(14, [...text(1, 'author'), ...text(2, 'me')]), ...odd] },
    );
    const made = Buffer.from(await make(file, { to: 'int8-weights' }));
    for (const part of [kept, long, [...odd, ...long], bytes(14, [...text(1, 'author'), ...text(2, 'me')])]) {
      expect(made.includes(Buffer.from(part))).toBe(true);
    }
    expect((await inspectModel(made)).tensors.map(({ name }) => name).sort()).toEqual(['b', 'w_quantized', 'w_scale']);
    const [before, after] = [await run(file), await run(made)];
    expect(cosine(before.y as Float32Array, after.y as Float32Array)).toBeGreaterThan(0.999);
  });

  it('is the whole file if nothing is worth it, and a note says so', async () => {
    const file = onnx.model({
      nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }],
      initializers: [
        onnx.floatTensor('w', [4, 4]),
        onnx.tensor({ name: 's', type: 7, dims: [2], more: bytes(7, [1, 2]) }),
      ],
      inputs: [['x', [3, 4]]],
      outputs: [['y', [3, 4]]],
    });
    for (const to of ['int8-weights', 'q8', 'q4', 'fp16'] as const) {
      expectBytes(await make(file, { to }), file);
      expect((await planModel(file, { to })).notes).toMatchObject([{ kind: 'nothingConverted', why: 'noWeights' }]);
    }
  });

  it('is the whole file if its weights are of another kind, and a note says what would help', async () => {
    const conv = onnx.product('Conv', [32, 8, 3, 3], [1, 8, 9, 9], [1, 32, 'h', 'w'])();
    for (const to of ['q4', 'bnb4'] as const) {
      expect((await planModel(conv, { to })).notes).toMatchObject([
        { kind: 'littleConverted', helps: { to: 'q8-blocks' } },
        { kind: 'nothingConverted', why: 'operator', operator: 'Conv' },
      ]);
    }
    const half = onnx.model({
      nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }],
      initializers: [onnx.tensor({ name: 'w', type: 10, dims: [64, 48], raw: new Uint8Array(64 * 48 * 2) })],
      inputs: [['x', [3, 64], 10]],
      outputs: [['y', [3, 48], 10]],
    });
    expect((await planModel(half, { to: 'q8' })).notes).toMatchObject([
      { kind: 'littleConverted' },
      { kind: 'nothingConverted', why: 'dtype', dtype: 'F16', others: ['q4', 'int8-weights'] },
    ]);
    expect((await planModel(half, { to: 'fp16' })).notes).toMatchObject([
      { kind: 'nothingConverted', why: 'sameType', dtype: 'F16' },
    ]);
  });

  it('is a result that is quantized once more', async () => {
    const file = onnx.product('MatMul', [128, 96], [3, 128], [3, 96])({}, { opset: 21 });
    for (const to of ['int8-weights', 'q8', 'q4', 'q4f16', 'int4-weights', 'bnb4', 'fp16'] as const) {
      const made = await make(file, { to });
      expectBytes(await make(made, { to }), made);
    }
  });

  it('has names that nobody else has', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', name: 'w_DequantizeLinear', in: ['x', 'w'], out: ['w_scale'] },
        { op: 'Relu', name: 'w_scale', in: ['w_scale'], out: ['w_quantized'] },
        { op: 'Relu', in: ['w_quantized'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('w', [64, 48])],
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 48]]],
    });
    for (const to of ['int8-weights', 'q8', 'q4', 'fp16'] as const) {
      const [before, after] = [await run(file), await run(await make(file, { to }))];
      expect(cosine(before.y as Float32Array, after.y as Float32Array)).toBeGreaterThan(0.98);
    }
  });

  it('keeps what a rule keeps, and gives others what a rule says', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'a'], out: ['p'] },
        { op: 'MatMul', in: ['p', 'b'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('a', [64, 64]), onnx.floatTensor('b', [64, 64], 2)],
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 64]]],
    });
    const rules = [
      { match: /^a$/, keep: true as const },
      { match: /^b$/, to: 'q4' },
    ];
    const { report } = await quantizeModel(file, { to: 'int8-weights', rules, workers: 0 });
    expect(report.tensors).toMatchObject([
      { name: 'a', kept: { kind: 'rule' } },
      { name: 'b', to: 'Q4 (32)' },
    ]);
  });

  it('names the element that cannot be stored', async () => {
    const values = onnx.weights(64 * 48);
    values[48 * 5 + 7] = Number.NaN;
    const file = matrix(64, 48, values);
    for (const to of ['int8-weights', 'q8', 'q4', 'bnb4'] as const) {
      await expect(make(file, { to })).rejects.toMatchObject({
        code: 'NON_FINITE',
        message: 'tensor "w" holds NaN at [5, 7]; a rule can keep it',
      });
    }
  });
});

describe('weights in a file beside the model', () => {
  const twoLayers = onnx.model({
    nodes: [
      { op: 'Gather', in: ['e', 'i'], out: ['h'] },
      { op: 'MatMul', in: ['h', 'w'], out: ['p'] },
      { op: 'Add', in: ['p', 'b'], out: ['y'] },
    ],
    initializers: [
      onnx.floatTensor('e', [100, 64]),
      onnx.floatTensor('w', [64, 512], 2),
      onnx.floatTensor('b', [512], 3),
    ],
    inputs: [['i', [2, 3], 7]],
    outputs: [['y', [2, 3, 512]]],
  });
  let folder = '';
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'scalepoint-onnx-'));
    await writeFile(join(folder, 'model.onnx'), twoLayers);
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it('are found there by onnxruntime-web and by this package', async () => {
    for (const to of ['int8-weights', 'q8', 'q4', 'fp16', 'bnb4'] as const) {
      const output = join(folder, `model_${to}.onnx`);
      const input = join(folder, 'model.onnx');
      const { report } = await quantizeModel(input, { to, output, externalData: true, workers: 0 });
      const [main, data] = [await readFile(output), await readFile(`${output}_data`)];
      expect(main.length + data.length).toBe(report.totals.bytesAfter);
      expect(main.length).toBeLessThan(4000);
      const session = await ort.InferenceSession.create(new Uint8Array(main), {
        externalData: [{ path: `model_${to}.onnx_data`, data: new Uint8Array(data) }],
      });
      const made = await session.run(feedsFor(session));
      const { y } = await run(twoLayers);
      expect(cosine(y as Float32Array, made.y?.data as Float32Array)).toBeGreaterThan(0.98);
      // Read again, and whole again.
      expect((await inspectModel(output)).files).toEqual([`model_${to}.onnx`, `model_${to}.onnx_data`]);
      const whole = await quantizeModel(output, { to, workers: 0 });
      expect(await run(await whole.bytes())).toEqual({ y: made.y?.data });
    }
  });

  it('are all that are large, also floats of constants; without any there is no second file', async () => {
    const value = { tensor: onnx.tensor({ dims: [16, 64], raw: onnx.rawOf(onnx.weights(16 * 64, 4)) }) };
    const file = onnx.model({
      nodes: [
        { op: 'Constant', in: [], out: ['k'], attributes: { value } },
        { op: 'Add', in: ['x', 'k'], out: ['s'] },
        { op: 'MatMul', in: ['s', 'w'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('w', [64, 48])],
      inputs: [['x', [16, 64]]],
      outputs: [['y', [16, 48]]],
    });
    const made = await quantizeModel(file, { to: 'fp16', externalData: true, workers: 0 });
    expect((await made.bytes('model.onnx')).length).toBeLessThan(1000);
    const session = await ort.InferenceSession.create(await made.bytes('model.onnx'), {
      externalData: [{ path: 'model.onnx_data', data: await made.bytes('model.onnx_data') }],
    });
    const { y } = await session.run(feedsFor(session));
    expect(cosine((await run(file)).y as Float32Array, y?.data as Float32Array)).toBeGreaterThan(0.9999);
    const small = onnx.product('MatMul', [8, 8], [3, 8], [3, 8])();
    const { files } = await planModel(small, { to: 'q8', externalData: true });
    expect(files).toEqual([{ name: 'model.onnx', bytes: small.length }]);
  });

  it('need a path or memory', async () => {
    const options = { to: 'q8', externalData: true, workers: 0 } as const;
    await expect(quantizeModel(twoLayers, { ...options, output: new WritableStream() })).rejects.toMatchObject({
      problem: { option: 'output', expected: { kind: 'type', types: ['path', 'FileSystemDirectoryHandle'] } },
    });
    const { files, bytes } = await quantizeModel(twoLayers, options);
    expect(files.map(({ name }) => name)).toEqual(['model.onnx', 'model.onnx_data']);
    const session = await ort.InferenceSession.create(await bytes('model.onnx'), {
      externalData: [{ path: 'model.onnx_data', data: await bytes('model.onnx_data') }],
    });
    expect((await session.run(feedsFor(session))).y?.data).toHaveLength(2 * 3 * 512);
    await expect(bytes()).rejects.toMatchObject({
      problem: { option: 'name', expected: { kind: 'oneOf', values: ['model.onnx', 'model.onnx_data'] } },
    });
  });

  it('are not read through a link', async () => {
    const output = join(folder, 'model_q8.onnx');
    await rename(`${output}_data`, join(folder, 'elsewhere'));
    await expect(inspectModel(output)).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: expect.stringMatching(/model_q8.onnx_data/),
    });
    await mkdir(`${output}_data`);
    await expect(inspectModel(output)).rejects.toMatchObject({
      code: 'IO',
      message: expect.stringMatching(/not a regular file/),
      tensor: expect.any(String),
      byteOffset: expect.any(Number),
    });
    await rm(`${output}_data`, { recursive: true });
    await symlink(join(folder, 'elsewhere'), `${output}_data`);
    await expect(inspectModel(output)).rejects.toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringMatching(/is a link/),
    });
  });

  it('go there if the model would have more than 2 GiB', async () => {
    const [rows, columns] = [2 ** 16, 2 ** 14 + 64];
    const size = rows * columns * 4;
    const length = onnx.varint(size);
    const message = [...int(1, rows), ...int(1, columns), ...int(2, 1), ...text(8, 'w'), (9 << 3) | 2, ...length];
    const node = onnx.node({ op: 'MatMul', in: ['x', 'w'], out: ['y'] });
    const graph = [...bytes(1, node), (5 << 3) | 2, ...onnx.varint(message.length + size), ...message];
    const start = Uint8Array.from([...int(1, 8), (7 << 3) | 2, ...onnx.varint(graph.length + size), ...graph]);
    const end = Uint8Array.from(onnx.opsetImport('', 17));
    let most = 0;
    const source: ByteSource = {
      size: start.length + size + end.length,
      async read(from, to) {
        most = Math.max(most, to - from);
        const result = new Uint8Array(to - from);
        result.set(start.subarray(from, to));
        const rest = from - start.length - size;
        if (rest + to - from > 0) result.set(end.subarray(Math.max(0, rest), rest + to - from), Math.max(0, -rest));
        return result;
      },
      verify: async () => {},
      close: async () => {},
    };
    const model = await openOnnx({ input: 'big.onnx', source }, [], () =>
      Promise.reject(new Error('there are no others')),
    );
    // The weights are skipped.
    expect(most).toBeLessThanOrEqual(2 ** 20);
    expect(model.tensors).toMatchObject([{ name: 'w', shape: [rows, columns], bytes: size, byteOffset: start.length }]);
    const plan = planOnnx(model, { to: 'fp16' }, partsOf, { output: 'big_fp16.onnx' });
    expect(plan.files).toMatchObject([{ suffix: '' }, { suffix: '_data', size: size / 2 }]);
    expect(planOnnx(model, { to: 'q8' }, partsOf).files).toHaveLength(1);
  });
});
