import { inspectModel, type PlanOptions, planModel, quantizeModel, ScalepointError } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { onnxTargets } from '../../web/src/formats/onnx/targets.js';
import { rangesFile } from '../../web/src/formats/ranges-file.js';
import * as onnx from '../web/formats/onnx/encoder.js';
import { filesOf, random, seedOf } from './rounds.js';

// The reader gets valid ONNX models with random damage, in bytes and in the messages that they stand for: fields that are missing, twice, of
// another type or elsewhere, lengths that lie, numbers out of range, paths that lead away, messages in themselves. It must make a model of
// them that can be read again and has the size of the plan, or throw a ScalepointError with an offset in the file, and write nothing.
// Seeds are fixed; see rounds.ts.

const mutations = filesOf(250);

/** Milliseconds of processor time that this process has taken. Other programs do not count. */
const processorTime = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

// ------------------------------------------------------------------------------------------------------------------------- models

const { bytes, int, text, tensor, floatTensor } = onnx;
const dataName = 'm.onnx_data';
const entry = (key: string, value: string) => bytes(13, [...text(1, key), ...text(2, value)]);

const branch = (name: string, inner: readonly onnx.Bytes[], nodes: readonly onnx.TestNode[] = []) =>
  onnx.graph({
    nodes: [...nodes, { op: 'MatMul', in: ['h', name], out: ['b'] }],
    initializers: inner,
    inputs: [],
    outputs: [['b', [3, 32]]],
  });

const rich = onnx.model(
  {
    nodes: [
      { op: 'Gather', name: 'embed', in: ['e', 'i'], out: ['h'] },
      { op: 'Transpose', in: ['e'], out: ['t'], attributes: { perm: [1, 0] } },
      { op: 'MatMul', name: 'head', in: ['h', 't'], out: ['z'] },
      { op: 'Gemm', in: ['h', 'g', 'c'], out: ['p'], attributes: { transB: 1, alpha: { float: 1 } } },
      {
        op: 'If',
        name: 'choice',
        in: ['q'],
        out: ['y'],
        attributes: {
          then_branch: { graph: branch('w', [floatTensor('w', [32, 32], 3)]) },
          else_branch: {
            graph: branch(
              'k',
              [],
              [{ op: 'Constant', in: [], out: ['k'], attributes: { value: { tensor: floatTensor('', [32, 32], 4) } } }],
            ),
          },
        },
      },
      { op: 'Own', domain: 'own', in: ['p'], out: ['r'] },
    ],
    initializers: [
      floatTensor('e', [48, 32], 1),
      tensor({ name: 'g', dims: [48, 32], more: bytes(4, onnx.rawOf(onnx.weights(48 * 32, 2))) }),
      tensor({
        name: 'c',
        dims: [48],
        more: onnx
          .floats([...onnx.weights(48)])
          .flatMap((_, i, all) => (i % 4 ? [] : [(4 << 3) | 5, ...all.slice(i, i + 4)])),
      }),
      tensor({ name: 's', type: 7, dims: [2], more: bytes(7, [1, 2]) }),
    ],
    inputs: [
      ['i', ['n'], 7],
      ['q', [], 9],
    ],
    outputs: [
      ['z', ['n', 48]],
      ['y', ['n', 32]],
      ['r', ['n', 48]],
    ],
  },
  {
    imports: { own: 1, 'com.microsoft': 1 },
    more: [
      ...bytes(25, [
        ...text(1, 'Own'),
        ...text(4, 'a'),
        ...text(5, 'b'),
        ...bytes(
          7,
          onnx.node({
            op: 'Constant',
            in: [],
            out: ['k'],
            attributes: { value: { tensor: floatTensor('', [48, 48], 5) } },
          }),
        ),
        ...bytes(7, onnx.node({ op: 'MatMul', in: ['a', 'k'], out: ['b'] })),
        ...bytes(9, [...text(1, ''), ...int(2, 17)]),
        ...text(10, 'own'),
      ]),
      ...bytes(14, [...text(1, 'author'), ...text(2, 'me')]),
    ],
  },
);

const outside = onnx.model({
  nodes: [
    { op: 'Conv', in: ['x', 'w'], out: ['p'] },
    { op: 'LSTM', in: ['p', 'l', 'r'], out: ['y'], attributes: { hidden_size: 16 } },
  ],
  initializers: [
    tensor({
      name: 'w',
      dims: [16, 8, 3, 3],
      more: [...entry('location', dataName), ...entry('offset', '0'), ...entry('length', '4608'), ...int(14, 1)],
    }),
    tensor({
      name: 'l',
      dims: [1, 64, 24],
      more: [...entry('location', dataName), ...entry('offset', '4608'), ...int(14, 1)],
    }),
    floatTensor('r', [1, 64, 16]),
  ],
  inputs: [['x', [1, 8, 9, 9]]],
  outputs: [['y', ['a', 'b', 'c', 'd']]],
});
const outsideData = new Uint8Array(onnx.weights((4608 + 64 * 24 * 4) / 4).buffer);

const seeds = [rich, outside, onnx.product('MatMul', [64, 32], [3, 64], [3, 32])({}, { opset: 9, ir: 3 })];

// ----------------------------------------------------------------------------------------------------------------------- messages

type Kind =
  | 'model'
  | 'graph'
  | 'node'
  | 'attribute'
  | 'tensor'
  | 'function'
  | 'value'
  | 'type'
  | 'array'
  | 'shape'
  | 'pair';
const messages: Readonly<Record<Kind, Readonly<Record<number, Kind>>>> = {
  model: { 7: 'graph', 8: 'pair', 14: 'pair', 25: 'function' },
  graph: { 1: 'node', 5: 'tensor', 11: 'value', 12: 'value', 13: 'value' },
  node: { 5: 'attribute' },
  attribute: { 5: 'tensor', 6: 'graph', 11: 'graph' },
  tensor: { 13: 'pair' },
  function: { 7: 'node', 9: 'pair' },
  value: { 2: 'type' },
  type: { 1: 'array' },
  array: { 2: 'shape' },
  shape: { 1: 'pair' },
  pair: {},
};

/** A field in memory. Its value is the fields of a message, bytes, which never change, or a number. */
interface Field {
  number: number;
  wire: number;
  value: Message | Uint8Array | bigint;
  /** Bytes by which its length is too large. */
  lie: number;
}
interface Message {
  readonly kind: Kind;
  fields: Field[];
}
const isMessage = (value: Field['value']): value is Message => typeof value === 'object' && 'fields' in value;

function parse(file: Uint8Array, kind: Kind): Message {
  const fields: Field[] = [];
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = file[at++] as number;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < file.length) {
    const tag = Number(varint());
    const [number, wire] = [tag >> 3, tag & 7];
    if (wire === 0) fields.push({ number, wire, value: varint(), lie: 0 });
    else {
      const length = wire === 2 ? Number(varint()) : wire === 5 ? 4 : 8;
      const content = file.subarray(at, at + length);
      at += length;
      const inner = wire === 2 ? messages[kind][number] : undefined;
      fields.push({ number, wire, value: inner === undefined ? content : parse(content, inner), lie: 0 });
    }
  }
  return { kind, fields };
}

function copyOf(field: Field): Field {
  return { ...field, value: isMessage(field.value) ? clone(field.value) : field.value };
}
function clone({ kind, fields }: Message): Message {
  return { kind, fields: fields.map(copyOf) };
}

/** The bytes of a message in pieces, from the last to the first, as lengths are known only then. Returns how many there are. */
function writeTo(pieces: Uint8Array[], { fields }: Message): number {
  let size = 0;
  const put = (piece: Uint8Array) => {
    pieces.push(piece);
    size += piece.length;
  };
  for (const { number, wire, value, lie } of fields.toReversed()) {
    let length = 0;
    if (isMessage(value)) length = writeTo(pieces, value);
    else pieces.push(typeof value === 'bigint' ? Uint8Array.from(onnx.varint(value)) : value);
    if (value instanceof Uint8Array) length = value.length;
    size += typeof value === 'bigint' ? (pieces.at(-1) as Uint8Array).length : length;
    if (wire === 2 && typeof value !== 'bigint') put(Uint8Array.from(onnx.varint(Math.max(0, length + lie))));
    put(Uint8Array.from(onnx.varint(number * 8 + wire)));
  }
  return size;
}

function write(message: Message): Uint8Array<ArrayBuffer> {
  const pieces: Uint8Array[] = [];
  writeTo(pieces, message);
  return join(pieces.reverse());
}

function join(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const result = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    result.set(piece, at);
    at += piece.length;
  }
  return result;
}

/** Bytes without `deleted` of them at a place, but with others there. */
function spliced(file: Uint8Array, at: number, deleted: number, added: ArrayLike<number>): Uint8Array<ArrayBuffer> {
  return join([file.subarray(0, at), Uint8Array.from(added), file.subarray(at + deleted)]);
}

/** All messages inside of a message, and itself. */
const allOf = (message: Message): Message[] => [
  message,
  ...message.fields.flatMap(({ value }) => (isMessage(value) ? allOf(value) : [])),
];

const numbers = [
  0n,
  1n,
  2n,
  7n,
  10n,
  25n,
  64n,
  2n ** 31n - 1n,
  2n ** 32n,
  2n ** 40n,
  2n ** 53n,
  2n ** 62n,
  2n ** 63n,
  2n ** 64n - 1n,
];
const texts = [
  '',
  'e',
  'w',
  'k',
  'h',
  'b',
  'y',
  'x',
  'MatMul',
  'Own',
  'own',
  'If',
  'Gather',
  'Constant',
  'LSTM',
  'DequantizeLinear',
  'com.microsoft',
  'value',
  'location',
  'offset',
  '1',
  '99999999999999999',
  '-1',
  '0x8',
  '../m.onnx_data',
  '/m.onnx_data',
  './m.onnx_data',
  'a/../m.onnx_data',
  'C:\\m',
  'none',
  dataName,
  '\u0000',
];

/** Changes one thing in the messages. */
function change(model: Message, pick: (n: number) => number): void {
  const all = allOf(model);
  const any = () => all[pick(all.length)] as Message;
  const { fields, ...message } = any();
  const owner = all.find((one) => one.fields === fields) as Message;
  const index = pick(Math.max(1, fields.length));
  const field = fields[index];
  if (field === undefined) return;
  switch (pick(14)) {
    case 0:
      owner.fields = fields.filter((one) => one !== field);
      break;
    case 1:
      fields.splice(pick(fields.length + 1), 0, copyOf(field));
      break;
    case 2:
      fields.push(...fields.splice(index, 1));
      break;
    case 3: {
      // A field of another message of the kind, or of any.
      const others = all.filter(({ kind }) => kind === message.kind);
      const from = pick(3) === 0 ? any() : (others[pick(others.length)] as Message);
      const other = from.fields[pick(Math.max(1, from.fields.length))];
      if (other !== undefined) fields.splice(index, pick(2), copyOf(other));
      break;
    }
    case 4:
      field.number = pick(3) === 0 ? pick(2 ** 29) : pick(30);
      break;
    case 5:
      field.wire = pick(8);
      break;
    case 6:
    case 7:
      if (typeof field.value === 'bigint') field.value = numbers[pick(numbers.length)] as bigint;
      else field.lie = pick(9) - 4;
      break;
    case 8:
    case 9:
      if (field.value instanceof Uint8Array) field.value = new TextEncoder().encode(texts[pick(texts.length)]);
      break;
    case 10:
      if (field.value instanceof Uint8Array) {
        field.value = spliced(field.value, pick(field.value.length + 1), 1 + pick(4), []);
      }
      break;
    case 11: {
      // A message in itself, some or very many times.
      if (!isMessage(field.value)) break;
      for (let n = pick(2) === 0 ? 3 : 120; n > 0; n--) {
        field.value = { kind: 'pair', fields: [{ number: field.number, wire: 2, value: field.value, lie: 0 }] };
      }
      break;
    }
    case 12:
      // A value that is too long to stay in memory.
      fields.splice(index, 0, { number: 1 + pick(30), wire: 2, value: new Uint8Array(70_000), lie: 0 });
      break;
    default:
      if (field.value instanceof Uint8Array) {
        field.value = spliced(field.value, field.value.length, 0, new Uint8Array(1 + pick(12)).fill(0x80));
      }
  }
}

/** Changes bytes. */
function damage(file: Uint8Array, pick: (n: number) => number): Uint8Array<ArrayBuffer> {
  const at = pick(file.length + 1);
  switch (pick(4)) {
    case 0:
      return spliced(file, at, 1, [pick(256)]);
    case 1:
      return file.slice(0, at);
    case 2:
      return spliced(file, at, 1 + pick(12), []);
    default: {
      const from = pick(file.length + 1);
      return spliced(file, at, 0, file.subarray(from, from + pick(60)));
    }
  }
}

// ----------------------------------------------------------------------------------------------------------------------- the test

/** Converts a model into a stream. Returns what came there, or undefined with the error if there was one. */
async function convert(files: readonly File[], options: PlanOptions) {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let closed = false;
  const output = new WritableStream<Uint8Array<ArrayBuffer>>({
    write: (piece) => void pieces.push(piece.slice()),
    close: () => {
      closed = true;
    },
  });
  const error: unknown = await quantizeModel(files, { ...options, output, workers: 0 }).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return { error, closed, result: new File(pieces, 'result.onnx') };
}

/** The outcome of a damaged model: `made`, or the code of the error. */
async function attempt(files: readonly File[], options: PlanOptions): Promise<string> {
  const size = files.reduce((most, file) => Math.max(most, file.size), 0);
  const check = (error: unknown): string => {
    if (!(error instanceof ScalepointError)) throw error;
    expect(error.message.length).toBeLessThan(1000);
    // About the ranges, which name no value that is left.
    if (error.message.startsWith('the ranges are those of another model')) return 'otherRanges';
    if (error.code === 'BAD_FILE' || error.code === 'NOT_FOUND') {
      expect(error.byteOffset).toBeGreaterThanOrEqual(0);
      expect(error.byteOffset).toBeLessThanOrEqual(size);
    }
    return error.code;
  };
  const plan = await planModel(files, options).catch(check);
  const { error, closed, result } = await convert(files, options);
  if (typeof plan === 'string') {
    expect(check(error)).toBe(plan);
    expect(result.size).toBe(0);
    expect(closed).toBe(false);
    return plan;
  }
  if (error !== undefined) {
    // Data that are read later: numbers that no code stands for, varints that end early.
    expect(closed).toBe(false);
    return check(error);
  }
  expect(closed).toBe(true);
  expect(result.size).toBe(plan.totals.bytesAfter);
  await inspectModel([result]);
  return 'made';
}

/** Each message of a model in turn gets a value that is too long to stay in memory, before its other fields and behind them. */
function* withLongValues(file: Uint8Array): Generator<readonly [what: string, file: Uint8Array<ArrayBuffer>]> {
  const count = allOf(parse(file, 'model')).length;
  for (let i = 0; i < count; i++) {
    for (const isFirst of [true, false]) {
      const tree = parse(file, 'model');
      const message = allOf(tree)[i] as Message;
      const long: Field = { number: 1000, wire: 2, value: new Uint8Array(70_000), lie: 0 };
      message.fields.splice(isFirst ? 0 : message.fields.length, 0, long);
      yield [`message ${i}, a ${message.kind}, ${isFirst ? 'first' : 'last'}`, write(tree)];
    }
  }
}

describe('long values in any message of an ONNX model', () => {
  it.each(['rich', 'outside', 'small'].map((name, i) => [name, seeds[i] as Uint8Array] as const))(
    'are left in the file: %s',
    async (name, seed) => {
      const data = new File([outsideData], dataName);
      const plain = await inspectModel([new File([seed.slice()], 'm.onnx'), data]);
      for (const [what, file] of withLongValues(seed)) {
        // A long value before the first field hides what a model begins with.
        if (what === 'message 0, a model, first') continue;
        const files = [new File([file], 'm.onnx'), data];
        const { tensors } = await inspectModel(files);
        expect(
          tensors.map(({ name, dtype, shape }) => ({ name, dtype, shape })),
          what,
        ).toEqual(plain.tensors.map(({ name, dtype, shape }) => ({ name, dtype, shape })));
        if (what.endsWith('first')) continue;
        const { error, closed } = await convert(files, { to: name === 'small' ? 'fp16' : 'q8' });
        expect({ error, closed }, what).toEqual({ error: undefined, closed: true });
      }
    },
  );
});

describe('damaged ONNX models', () => {
  it('become models, or throw a ScalepointError with an offset and write nothing', async () => {
    const pick = random(seedOf(31));
    const trees = seeds.map((file) => parse(file, 'model'));
    for (const [i, tree] of trees.entries()) expect(write(tree)).toEqual(seeds[i]);
    const data = new File([outsideData], dataName);
    // Ranges of the values of the seeds, most of which damaged files have, too.
    const names = ['x', 'y', 'h', 'b', 'h0', 'g', 'first'];
    const ranges = new Blob([rangesFile(new Map(names.map((name) => [name, [-1, 2] as const])), 1)]);
    // A damaged file may lead to more work than any whole one, but not to work without bounds. The whole ones compile the code as well.
    const begin = processorTime();
    for (const file of seeds) await attempt([new File([file.slice()], 'm.onnx'), data], { to: 'q8' });
    const mostTime = 200 * (processorTime() - begin);
    const outcomes: Record<string, number> = {};
    for (let i = 0; i < mutations; i++) {
      const tree = clone(trees[i % trees.length] as Message);
      for (let n = 1 + pick(2); n > 0; n--) change(tree, pick);
      let file = write(tree);
      if (pick(4) === 0) file = damage(file, pick);
      const files = [new File([file], 'm.onnx'), ...(pick(20) === 0 ? [] : [data])];
      const to = onnxTargets[pick(onnxTargets.length)] as (typeof onnxTargets)[number];
      const more = to === 'int8-static' ? { ranges } : pick(3) === 0 && to.startsWith('q4') ? { zeroPoints: true } : {};
      const options: PlanOptions = { to, ...more };
      const start = processorTime();
      const outcome = await attempt(files, options);
      expect(processorTime() - start).toBeLessThan(mostTime);
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    }
    // Many must get through, and many must not.
    expect(outcomes.made).toBeGreaterThan(mutations / 10);
    expect(outcomes.BAD_FILE).toBeGreaterThan(mutations / 10);
  });
});
