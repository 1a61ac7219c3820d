// Statistics of the inputs of weights of ONNX models, against sums in float64 over inputs that the tests know.
import { existsSync } from 'node:fs';
import { appendFile, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateRawSync } from 'node:zlib';
import {
  calibrateModel,
  inspectModel,
  type ModelSample,
  type ModelStatistics,
  quantizeModel,
  readFloats,
} from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { npy, zip as zipOf } from '../../../support/npz.js';
import * as onnx from '../encoder.js';
import { encoderModel } from '../transformer.js';

const zip = (entries: Parameters<typeof zipOf>[0]) => zipOf(entries, (bytes) => deflateRawSync(bytes));

/** A sample of numbers, always the same for a seed. */
const floats = (shape: readonly number[], seed = 1) => ({
  data: onnx.weights(
    shape.reduce((a, b) => a * b, 1),
    seed,
    2,
  ),
  shape,
});

/** Mean squares by weight. */
async function importances(statistics: ModelStatistics): Promise<Map<string, number[]>> {
  const file = await statistics.bytes();
  const found = new Map<string, number[]>();
  for (const name of statistics.weights) {
    const { data, shape } = await readFloats(file, `${name}.in_sum2`);
    const counts = (await readFloats(file, `${name}.counts`)).data;
    const columns = (shape as number[]).at(-1) as number;
    found.set(
      name,
      Array.from(data, (sum, i) => sum / (counts[Math.floor(i / columns)] as number)),
    );
  }
  return found;
}

/** Means of products of columns, of rows of `columns` numbers. */
function momentsOf(rows: readonly (readonly number[])[]): number[][] {
  const columns = rows[0]?.length ?? 0;
  return Array.from({ length: columns }, (_, i) =>
    Array.from(
      { length: columns },
      (_, j) => rows.reduce((sum, row) => sum + (row[i] as number) * (row[j] as number), 0) / rows.length,
    ),
  );
}

/** Rows of an array by the position of the columns among its dimensions. */
function rowsOf({ data, shape }: ReturnType<typeof floats>, axis: number): number[][] {
  const columns = shape.at(axis) as number;
  const inner = shape.slice(axis < 0 ? shape.length + axis + 1 : axis + 1).reduce((a, b) => a * b, 1);
  const outer = data.length / columns / inner;
  return Array.from({ length: outer * inner }, (_, row) =>
    Array.from(
      { length: columns },
      (_, column) => data[(Math.floor(row / inner) * columns + column) * inner + (row % inner)] as number,
    ),
  );
}

// The runtime adds up float32 squares of some tens of rows: each addition is off by at most 2^-24 of the sum.
const close = (found: number, expected: number, scale: number) =>
  expect(Math.abs(found - expected)).toBeLessThanOrEqual(64 * 2 ** -24 * scale);

function expectClose(found: readonly number[] | undefined, expected: readonly number[]): void {
  expect(found?.length).toBe(expected.length);
  for (const [i, value] of expected.entries()) close(found?.[i] as number, value, Math.abs(value));
}

/** Checks importance and moments of a weight. */
async function expectRows(
  statistics: ModelStatistics,
  name: string,
  rows: number[][],
  hasMoments = true,
): Promise<void> {
  const expected = momentsOf(rows);
  expectClose(
    (await importances(statistics)).get(name),
    expected.map((row, i) => row[i] as number),
  );
  if (!hasMoments) return;
  const file = (await statistics.moments?.bytes()) as Uint8Array<ArrayBuffer>;
  const { tensors, metadata } = await inspectModel(file);
  const entry = metadata[name] as string;
  const { data, shape } = await readFloats(file, entry);
  expect(shape).toEqual([expected.length, expected.length]);
  const scale = Math.max(...expected.map((row, i) => row[i] as number));
  for (const [i, value] of expected.flat().entries()) close(data[i] as number, value, scale);
  expect(tensors.some((tensor) => tensor.name === `${entry}.diagonal`)).toBe(true);
}

interface Case {
  readonly op: string;
  readonly domain?: string | undefined;
  readonly x: readonly number[];
  readonly w: readonly number[];
  readonly axis: number;
  readonly attributes?: onnx.TestNode['attributes'];
  /** The weight comes first. */
  readonly isFirst?: boolean;
  readonly opset?: number;
}

const products: readonly Case[] = [
  { op: 'MatMul', x: [2, 3, 6], w: [6, 5], axis: -1 },
  { op: 'MatMul', x: [6], w: [6, 5], axis: -1 },
  { op: 'MatMul', x: [4, 3, 6], w: [4, 6, 5], axis: -1 },
  { op: 'MatMul', x: [2, 6, 3], w: [5, 6], axis: -2, isFirst: true },
  { op: 'Gemm', x: [3, 6], w: [6, 5], axis: -1 },
  { op: 'Gemm', x: [3, 6], w: [5, 6], axis: -1, attributes: { transB: 1 }, opset: 7 },
  { op: 'Gemm', x: [6, 3], w: [6, 5], axis: 0, attributes: { transA: 1 } },
  { op: 'Gemm', x: [6, 3], w: [5, 6], axis: 0, isFirst: true },
  { op: 'Gemm', x: [3, 6], w: [6, 5], axis: -1, isFirst: true, attributes: { transA: 1, transB: 1 } },
  { op: 'FusedMatMul', domain: 'com.microsoft', x: [2, 3, 6], w: [5, 6], axis: -1, attributes: { transB: 1 } },
];

/** A model of one node. */
const single = ({ op, domain = '', x, w, attributes = {}, isFirst, opset = 17 }: Case) =>
  onnx.model(
    {
      nodes: [{ op, domain, name: 'first', in: isFirst ? ['w', 'x'] : ['x', 'w'], out: ['y'], attributes }],
      initializers: [onnx.floatTensor('w', w)],
      inputs: [['x', x.map((_, i) => `d${i}`)]],
      outputs: [['y', []]],
      more: [],
    },
    { opset, imports: domain === '' ? {} : { [domain]: 1 } },
  );

/** A matrix product with 6 columns inside of a body, of x from outside. */
const inBody = (inner: Partial<onnx.TestGraph> & Pick<onnx.TestGraph, 'nodes' | 'outputs'>): onnx.Bytes =>
  onnx.graph({ inputs: [], initializers: [onnx.floatTensor('w', [6, 5])], ...inner });

describe('statistics of ONNX models', () => {
  it.each(products)('are those of the inputs of $op, weights $w', async (one) => {
    const samples = [floats(one.x, 1), floats(one.x, 2)];
    const statistics = await calibrateModel(
      single(one),
      samples.map((x) => ({ x })),
      { moments: true, heldBack: 0 },
    );
    expect(statistics).toMatchObject({ chunks: 2, heldBackChunks: 0, weights: ['w'], unreached: [] });
    await expectRows(
      statistics,
      'w',
      samples.flatMap((x) => rowsOf(x, one.axis)),
    );
  });

  it.each([1, 2, 6])('are those of the channels of Conv with %d groups', async (group) => {
    const file = single({ op: 'Conv', x: [2, 6, 7, 5], w: [12, 6 / group, 3, 3], axis: 1, attributes: { group } });
    const x = floats([2, 6, 7, 5]);
    const statistics = await calibrateModel(file, [{ x }], { moments: true });
    await expectRows(statistics, 'w', rowsOf(x, 1), false);
    const { tensors } = await inspectModel(await statistics.bytes());
    expect(tensors.map(({ name, shape }) => [name, shape])).toEqual([
      // GGUF has no dimensions of 1 in front.
      ['w.in_sum2', group === 1 ? [6] : [group, 6 / group]],
      ['w.counts', group === 1 ? [1] : [group, 1]],
    ]);
    expect((await inspectModel((await statistics.moments?.bytes()) as Uint8Array)).tensors).toEqual([]);
  });

  it('are sums over all readers of a weight, which may be transposed, cast, or float16', async () => {
    const halves = Uint16Array.from({ length: 30 }, (_, i) => 0x3000 + 40 * i);
    const file = onnx.model({
      nodes: [
        { op: 'Cast', in: ['h'], out: ['w'], attributes: { to: 1 } },
        { op: 'MatMul', in: ['x', 'w'], out: ['y'] },
        { op: 'Identity', in: ['w'], out: ['same'] },
        { op: 'Transpose', in: ['same'], out: ['t'], attributes: { perm: [1, 0] } },
        { op: 'Gemm', in: ['z', 't'], out: ['u'], attributes: { transB: 1 } },
        { op: 'Cast', in: ['x'], out: ['xh'], attributes: { to: 10 } },
        { op: 'MatMul', in: ['xh', 'h2'], out: ['v'] },
      ],
      initializers: [
        onnx.tensor({ name: 'h', type: 10, dims: [6, 5], raw: new Uint8Array(halves.buffer) }),
        onnx.tensor({ name: 'h2', type: 10, dims: [6, 5], raw: new Uint8Array(halves.buffer) }),
      ],
      inputs: [
        ['x', ['n', 6]],
        ['z', ['m', 6]],
      ],
      outputs: [
        ['y', ['n', 5]],
        ['u', ['m', 5]],
        ['v', ['n', 5], 10],
      ],
    });
    const [x, z] = [floats([3, 6]), floats([2, 6], 2)];
    // Numbers of few digits, which float16 holds.
    const rounded = { ...x, data: x.data.map((value) => Math.round(value * 64) / 64) };
    const statistics = await calibrateModel(file, [{ x: rounded, z }], { moments: true });
    await expectRows(statistics, 'h', [...rowsOf(rounded, -1), ...rowsOf(z, -1)]);
    await expectRows(statistics, 'h2', rowsOf(rounded, -1));
  });

  it('share the inputs of several weights', async () => {
    const statistics = await calibrateModel(encoderModel(), Uint32Array.of(7, 8, 9, 10, 11, 12), { moments: true });
    expect(statistics.unreached).toMatchObject(
      ['embeddings.position', 'embeddings.type'].map((name) => ({
        name,
        reason: { kind: 'lookup', operator: 'Gather' },
      })),
    );
    const { metadata } = await inspectModel((await statistics.moments?.bytes()) as Uint8Array);
    for (const name of ['query', 'key', 'value']) {
      expect(metadata[`layer.1.${name}.weight`]).toBe('layer.1.query.weight');
    }
    expect(metadata['layer.1.up.weight']).toBe('layer.1.up.weight');
    const all = await importances(statistics);
    expect(all.get('layer.0.key.weight')).toEqual(all.get('layer.0.query.weight'));
    // The products of attention come before the table's own, which is last.
    expect(all.get('embeddings.word')).not.toEqual(all.get('layer.0.query.weight'));
  });

  it('come from the branch of an If that runs', async () => {
    const branch = (name: string) =>
      inBody({
        nodes: [
          { op: 'Neg', in: ['x'], out: [`n_${name}`] },
          { op: 'MatMul', in: [`n_${name}`, 'w'], out: [`y_${name}`] },
        ],
        outputs: [[`y_${name}`, ['n', 5]]],
      });
    const file = onnx.model({
      nodes: [
        {
          op: 'If',
          name: 'choice',
          in: ['yes'],
          out: ['y'],
          attributes: { then_branch: { graph: branch('a') }, else_branch: { graph: branch('b') } },
        },
      ],
      inputs: [
        ['yes', [], 9],
        ['x', ['n', 6]],
      ],
      outputs: [['y', ['n', 5]]],
    });
    const [one, two] = [floats([3, 6], 1), floats([2, 6], 2)];
    const flag = (value: number) => ({ data: [value], shape: [] });
    const [a, b] = ['choice/then_branch/w', 'choice/else_branch/w'];
    const both = await calibrateModel(
      file,
      [
        { yes: flag(1), x: one },
        { yes: flag(0), x: two },
      ],
      { moments: true },
    );
    await expectRows(both, a, rowsOf(one, -1));
    await expectRows(both, b, rowsOf(two, -1));
    const first = await calibrateModel(file, [{ yes: flag(1), x: one }], { moments: true });
    expect(first.weights).toEqual([a]);
    expect(first.unreached).toMatchObject([{ name: b, reason: { kind: 'notRun' } }]);
  });

  it('come from all steps of a Loop and of a Scan', async () => {
    const loop = inBody({
      nodes: [
        { op: 'Add', in: ['state', 'state'], out: ['twice'] },
        { op: 'MatMul', in: ['twice', 'w'], out: ['each'] },
        { op: 'Identity', in: ['more'], out: ['again'] },
      ],
      inputs: [
        ['step', [], 7],
        ['more', [], 9],
        ['state', ['n', 6]],
      ],
      outputs: [
        ['again', [], 9],
        ['twice', ['n', 6]],
        ['each', ['n', 5]],
      ],
    });
    const looped = onnx.model({
      nodes: [
        {
          op: 'Loop',
          name: 'loop',
          in: ['steps', '', 'x'],
          out: ['last', 'all'],
          attributes: { body: { graph: loop } },
        },
      ],
      inputs: [
        ['steps', [], 7],
        ['x', ['n', 6]],
      ],
      outputs: [
        ['last', ['n', 6]],
        ['all', ['s', 'n', 5]],
      ],
    });
    const x = floats([2, 6]);
    const times = (factor: number) => rowsOf({ ...x, data: x.data.map((value) => factor * value) }, -1);
    const statistics = await calibrateModel(looped, [{ x, steps: { data: [3], shape: [] } }], { moments: true });
    await expectRows(statistics, 'loop/body/w', [...times(2), ...times(4), ...times(8)]);
    // No step at all.
    const none = calibrateModel(looped, [{ x, steps: { data: [0], shape: [] } }], { moments: true });
    await expect(none).rejects.toMatchObject({ code: 'RUNTIME' });

    const scan = inBody({
      nodes: [
        { op: 'Add', in: ['sum', 'row'], out: ['sum2'] },
        { op: 'MatMul', in: ['sum2', 'w'], out: ['each'] },
      ],
      inputs: [
        ['sum', [1, 6]],
        ['row', [1, 6]],
      ],
      outputs: [
        ['sum2', [1, 6]],
        ['each', [1, 5]],
      ],
    });
    const scanned = onnx.model({
      nodes: [
        {
          op: 'Scan',
          name: 'scan',
          in: ['zero', 'x'],
          out: ['last', 'all'],
          attributes: { body: { graph: scan }, num_scan_inputs: 1 },
        },
      ],
      inputs: [
        ['zero', [1, 6]],
        ['x', ['n', 1, 6]],
      ],
      outputs: [
        ['last', [1, 6]],
        ['all', ['n', 1, 5]],
      ],
    });
    const rows = floats([3, 1, 6], 4);
    const zero = { data: new Float32Array(6), shape: [1, 6] };
    const sums = await calibrateModel(scanned, [{ x: rows, zero }], { moments: true });
    const expected = rowsOf(rows, -1);
    for (let i = 1; i < 3; i++)
      expected[i] = (expected[i] as number[]).map((value, k) => Math.fround(value + (expected[i - 1]?.[k] as number)));
    await expectRows(sums, 'scan/body/w', expected);
  });

  it('name weights that are not reached', async () => {
    const body = onnx.model(
      {
        nodes: [
          { op: 'LSTM', name: 'l', in: ['x', 'wx', 'wh'], out: ['y'], attributes: { hidden_size: 4 } },
          { op: 'Reshape', in: ['flat', 'to'], out: ['w'] },
          { op: 'MatMul', in: ['x', 'w'], out: ['z'] },
          { op: 'ConvTranspose', in: ['x', 'ct'], out: ['v'] },
        ],
        initializers: [
          onnx.floatTensor('wx', [1, 16, 6]),
          onnx.floatTensor('wh', [1, 16, 4]),
          onnx.floatTensor('flat', [3, 2, 5]),
          onnx.tensor({ name: 'to', type: 7, dims: [2], raw: onnx.int64s([6, 5]) }),
          onnx.floatTensor('ct', [2, 3, 3]),
        ],
        inputs: [['x', ['s', 2, 6]]],
        outputs: [
          ['y', []],
          ['z', []],
          ['v', []],
        ],
      },
      {},
    );
    const x = floats([3, 2, 6]);
    const statistics = await calibrateModel(body, [{ x }], { moments: true });
    await expectRows(statistics, 'wx', rowsOf(x, -1));
    const kinds = Object.fromEntries(statistics.unreached?.map(({ name, reason }) => [name, reason.kind]) ?? []);
    expect(kinds).toEqual({ wh: 'state', flat: 'moved', ct: 'operator' });
  });

  it('need the data beside a model, and drop its outputs', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-calibrate-onnx-'));
    try {
      const path = join(folder, 'model.onnx');
      const kept = { match: '.', keep: true } as const;
      await quantizeModel(encoderModel(), {
        to: 'int8-weights',
        rules: [kept],
        externalData: true,
        output: path,
        workers: 0,
      });
      const ids = Uint32Array.of(7, 8, 9, 10, 11, 12);
      const [inside, outside] = [await calibrateModel(encoderModel(), ids), await calibrateModel(path, ids)];
      expect(await outside.bytes()).toEqual(await inside.bytes());
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

/** Writes an archive of one file that is not packed: its beginning, and zeros. */
async function writeSparseZip(path: string, name: string, head: Uint8Array, zeros: number): Promise<void> {
  const [text, size] = [Buffer.from(name), head.length + zeros];
  const numbers = (...all: readonly (readonly [bytes: number, value: number])[]) =>
    Buffer.concat(
      all.map(([width, value]) => {
        const buffer = Buffer.alloc(width);
        if (value > 0) buffer.writeUIntLE(value, 0, Math.min(6, width));
        return buffer;
      }),
    );
  const same = numbers([2, 0], [2, 0], [8, 0], [4, size], [4, size], [2, text.length]);
  const local = Buffer.concat([numbers([4, 0x04034b50], [2, 20]), same, numbers([2, 0]), text, head]);
  const list = Buffer.concat([numbers([4, 0x02014b50], [2, 20], [2, 20]), same, numbers([16, 0]), text]);
  const at = local.length + zeros;
  const end = numbers([4, 0x06054b50], [4, 0], [2, 1], [2, 1], [4, list.length], [4, at], [2, 0]);
  await writeFile(path, local);
  await truncate(path, at);
  await appendFile(path, Buffer.concat([list, end]));
}

const file = single({ op: 'MatMul', x: [1, 6], w: [6, 5], axis: -1 });
const sample = (seed: number): ModelSample => ({ x: floats([2, 6], seed) });

describe('samples', () => {
  it('come from iterables and files, and give the same statistics', async () => {
    const all = [sample(1), sample(2), sample(3)];
    const expected = await (await calibrateModel(file, all, { moments: true })).bytes();
    async function* generate() {
      yield* all;
    }
    const values = Float32Array.from(all.flatMap(({ x }) => Array.from(x?.data as Float32Array)));
    const several = npy('<f4', '(3, 2, 6)', values.buffer);
    const one = (i: number) => npy('<f4', '(2, 6)', values.slice(12 * i, 12 * i + 12).buffer);
    const lines = all.map(({ x }, i) => {
      const data = Array.from(x?.data as Float32Array);
      return JSON.stringify({ x: i === 1 ? { data, shape: [2, 6] } : [data.slice(0, 6), data.slice(6)] });
    });
    const text = new TextEncoder().encode(`\n${lines.join('\r\n\n')}`);
    for (const data of [
      generate(),
      { [Symbol.asyncIterator]: generate },
      { files: several },
      { files: [one(0), one(1), one(2)] },
      { files: zip([['x.npy', several, 8]]) },
      { files: [zip([['x.npy', one(0), 0]]), new Blob([text.slice(text.indexOf(10, 5) + 1)])] },
      { files: text },
    ]) {
      const statistics = await calibrateModel(file, data, { moments: true });
      expect(statistics.chunks).toBe(3);
      expect(await statistics.bytes()).toEqual(expected);
    }
  });

  it.each([
    [undefined, 5, [1]],
    [undefined, 10, [1, 9]],
    [0.25, 10, [1, 5, 9]],
    [0.5, 4, [1, 3]],
    [0.01, 2, [1]],
  ] as const)('are held back from moments: a share of %s of %i', async (heldBack, count, held) => {
    const all = Array.from({ length: count }, (_, i) => floats([i + 1, 6], i + 1));
    function* generate() {
      for (const x of all) yield { x };
    }
    const statistics = await calibrateModel(file, generate(), { moments: true, heldBack });
    expect(statistics).toMatchObject({ chunks: count, heldBackChunks: held.length });
    // The importance counts all samples.
    const rows = all.flatMap((x) => rowsOf(x, -1));
    expectClose(
      (await importances(statistics)).get('w'),
      momentsOf(rows).map((row, i) => row[i] as number),
    );
    const bytes = (await statistics.moments?.bytes()) as Uint8Array<ArrayBuffer>;
    const partOf = (isHeld: boolean) =>
      all.flatMap((x, i) => ((held as readonly number[]).includes(i) === isHeld ? rowsOf(x, -1) : []));
    for (const [entry, isHeld] of [
      ['w', false],
      ['w.heldBack', true],
    ] as const) {
      const expected = momentsOf(partOf(isHeld));
      const scale = Math.max(...expected.map((row, i) => row[i] as number));
      const { data } = await readFloats(bytes, entry);
      for (const [i, value] of expected.flat().entries()) close(data[i] as number, value, scale);
    }
    expect((await inspectModel(bytes)).metadata).toMatchObject({
      tokens: String(partOf(false).length),
      heldBackTokens: String(partOf(true).length),
    });
  });

  it('that are too few to hold some back are refused where that is asked for', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-held-back-'));
    try {
      const output = join(folder, 'statistics.gguf');
      const options = { moments: true, heldBack: 0.1, output };
      await expect(calibrateModel(file, [sample(1)], options)).rejects.toMatchObject({ option: 'data' });
      expect(existsSync(output) || existsSync(`${output}.moments.safetensors`)).toBe(false);
      const { heldBackChunks } = await calibrateModel(file, [sample(1)], { ...options, heldBack: 0 });
      expect(heldBackChunks).toBe(0);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('of fixed batches lie along the first dimension, and one input may serve all', async () => {
    const two = onnx.model({
      nodes: [
        { op: 'Mul', in: ['x', 'f'], out: ['m'] },
        { op: 'MatMul', in: ['m', 'w'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('w', [6, 5])],
      inputs: [
        ['x', [1, 6]],
        ['f', []],
      ],
      outputs: [['y', [1, 5]]],
    });
    const values = onnx.weights(24, 3, 2);
    const file = zip([
      ['x.npy', npy('<f4', '(4, 6)', values.buffer), 0],
      ['f.npy', npy('<f4', '()', Float32Array.of(2).buffer), 0],
    ]);
    const statistics = await calibrateModel(two, { files: file }, { moments: true, heldBack: 0 });
    expect(statistics.chunks).toBe(4);
    await expectRows(statistics, 'w', rowsOf({ data: values.map((value) => 2 * value), shape: [4, 6] }, -1));
  });

  // Files of 256 samples of 1 MiB, whose zeros take no place on the disk.
  it.each(['npz', 'packed npz', 'npy', 'JSON lines'])('are read one at a time: %s', async (kind) => {
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-samples-'));
    try {
      const [count, rows, columns] = [256, 4096, 64];
      const path = join(folder, 'samples');
      const head = npy('<f4', `(${count}, ${rows}, ${columns})`, new ArrayBuffer(0));
      const bytes = 4 * count * rows * columns;
      if (kind === 'npy') {
        await writeFile(path, head);
        await truncate(path, head.length + bytes);
      } else if (kind === 'npz') await writeSparseZip(path, 'x.npy', head, bytes);
      else if (kind === 'packed npz') {
        const content = new Uint8Array(head.length + bytes);
        content.set(head);
        await writeFile(path, zip([['x.npy', content, 8]]));
      } else {
        const line = `{"x": [${Array.from({ length: 256 }, () => `[${'0.25,'.repeat(63)}0.25]`).join()}]}\n`;
        await writeFile(path, line.repeat(count));
      }
      const wide = single({ op: 'MatMul', x: [1, columns], w: [columns, 5], axis: -1 });
      const taken = () => process.memoryUsage().arrayBuffers;
      const [begin, limit] = [taken(), 96 * 2 ** 20];
      let most = 0;
      const onProgress = () => {
        most = Math.max(most, taken() - begin);
      };
      const statistics = await calibrateModel(wide, { files: path }, { onProgress });
      expect(statistics.chunks).toBe(count);
      // Buffers wait for the engine to collect them, which it does before they take as much as this.
      expect(most).toBeLessThan(limit);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('of a packed archive that states wrong sizes are refused', async () => {
    const values = npy('<f4', '(3, 2, 6)', new ArrayBuffer(144));
    for (const size of [values.length - 48, values.length + 48]) {
      const packed = zip([['x.npy', values, 8, size]]);
      await expect(calibrateModel(file, { files: packed })).rejects.toMatchObject({ code: 'BAD_FILE' });
    }
    const whole = zip([['x.npy', values, 8]]);
    // In the packed numbers, behind the header.
    whole[60] = (whole[60] as number) ^ 0xff;
    await expect(calibrateModel(file, { files: whole })).rejects.toMatchObject({ code: 'BAD_FILE' });
  });

  it('of the wrong shape are refused by name', async () => {
    const wrong = async (data: unknown, problem: object) =>
      expect(calibrateModel(file, data as ModelSample[])).rejects.toMatchObject(problem);
    await wrong([], { name: 'RangeError', message: 'data: expected at least 1 samples, got 0' });
    await wrong([sample(1), { x: { data: [1, 2], shape: [1, 3] } }], { message: /^data\[1\]\["x"\]\.data: / });
    await wrong([{ x: { data: [1, 2], shape: [2] } }], { message: /^data\[0\]\["x"\]\.shape: / });
    await wrong([{ x: { data: [1], shape: [-1, -1] } }], { message: /^data\[0\]\["x"\]\.shape: / });
    await wrong([{ z: { data: [1], shape: [1] } }], { message: /^data\[0\]: expected 'x', got "z"/ });
    await wrong([{}], { message: /^data\[0\]\["x"\]: / });
    await wrong([3, {}], { name: 'TypeError' });
    await wrong(7, { name: 'TypeError' });
    await wrong([{ x: { data: new Float32Array(10), shape: [2, 5] } }], { code: 'RUNTIME', message: /data\[0\]/ });
    await wrong({ files: new TextEncoder().encode('{"x": [[1, 2], [3]]}') }, { code: 'BAD_FILE', byteOffset: 0 });
    await wrong({ files: new TextEncoder().encode('{"x": [[1]]}\n{"x"') }, { code: 'RUNTIME' });
    await wrong({ files: new TextEncoder().encode('{"x"') }, { code: 'BAD_FILE', byteOffset: 0 });
    const deep = `{"x": ${'['.repeat(20_000)}1${']'.repeat(20_000)}}`;
    await wrong({ files: new TextEncoder().encode(deep) }, { code: 'BAD_FILE', byteOffset: 0 });
    await wrong({ files: new TextEncoder().encode('no samples') }, { code: 'UNKNOWN_FORMAT' });
    await wrong(
      { files: npy('<f4', '(2, 3, 4, 5)', new ArrayBuffer(480)) },
      { message: /^data\.files\["x"\]\.shape: / },
    );
    await wrong(Uint32Array.of(1, 2, 3, 4), { name: 'TypeError' });
    await wrong('a text', { name: 'TypeError' });
    await expect(calibrateModel(encoderModel(), [1, 2, 3, 4000])).rejects.toThrow(RangeError);
    await expect(calibrateModel(encoderModel(), [1, 2, 3])).rejects.toThrow(RangeError);
  });

  it('that are not finite are refused, naming the first layer', async () => {
    const data = floats([2, 6]).data.slice();
    data[7] = Number.NaN;
    const error = await calibrateModel(file, [sample(1), { x: { data, shape: [2, 6] } }], { moments: true }).catch(
      (e) => e,
    );
    expect(error).toMatchObject({ code: 'NON_FINITE', tensor: 'w', message: /data\[1\]/ });
  });

  it('may be read once if one pass is enough', async () => {
    // 4100² entries of one input and of another are more than a pass takes.
    const wide = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w1'], out: ['a'] },
        { op: 'MatMul', in: ['z', 'w2'], out: ['b'] },
      ],
      initializers: [onnx.floatTensor('w1', [4100, 1]), onnx.floatTensor('w2', [4100, 1])],
      inputs: [
        ['x', ['n', 4100]],
        ['z', ['n', 4100]],
      ],
      outputs: [
        ['a', []],
        ['b', []],
      ],
    });
    function* generate() {
      yield { x: floats([1, 4100]), z: floats([1, 4100], 2) };
    }
    expect((await calibrateModel(wide, generate())).chunks).toBe(1);
    await expect(calibrateModel(wide, generate(), { moments: true })).rejects.toThrow(RangeError);
    const passes: number[] = [];
    const statistics = await calibrateModel(wide, [...generate(), ...generate()], {
      moments: true,
      onProgress: ({ pass }) => passes.push(pass),
    });
    expect(passes).toEqual([1, 1, 2, 2, 3, 3]);
    const moments = (await statistics.moments?.bytes()) as Uint8Array<ArrayBuffer>;
    const { data } = await readFloats(moments, 'w2.diagonal');
    const { data: x } = floats([1, 4100], 2);
    for (let i = 0; i < 4100; i += 71) close(data[i] as number, (x[i] as number) ** 2, (x[i] as number) ** 2);
    // The second sample is the same, and held back.
    const { tensors } = await inspectModel(moments);
    const [square, held] = ['w2', 'w2.heldBack'].map((name) => tensors.find((tensor) => tensor.name === name));
    const bytesOf = ({ byteOffset, bytes }: NonNullable<typeof square>) =>
      moments.subarray(byteOffset, byteOffset + bytes);
    expect(Buffer.compare(bytesOf(square!), bytesOf(held!))).toBe(0);
  });

  it('leave nothing behind when work ends early', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-calibrate-onnx-'));
    try {
      const output = join(folder, 'statistics.gguf');
      const reason = new Error('enough');
      const controller = new AbortController();
      const options = { output, moments: true, signal: controller.signal };
      const onProgress = () => controller.abort(reason);
      await expect(calibrateModel(file, [sample(1), sample(2)], { ...options, onProgress })).rejects.toBe(reason);
      await writeFile(`${output}.moments.safetensors`, 'mine');
      const work = calibrateModel(file, [sample(1)], { output, moments: true });
      await expect(work).rejects.toMatchObject({ code: 'EXISTS' });
      expect(existsSync(output)).toBe(false);
      const statistics = await calibrateModel(file, [sample(1)], { output, moments: true, overwrite: true });
      expect(statistics.moments?.path).toBe(`${output}.moments.safetensors`);
      expect((await inspectModel(`${output}.moments.safetensors`)).tensors.length).toBe(2);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
