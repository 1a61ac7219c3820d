// Writes ONNX models for tests, field by field. Shares no code with the package.

export type Bytes = readonly number[] | Uint8Array<ArrayBuffer>;

/** Parts one after the other. Arrays of numbers would be too slow for weights, which several messages enclose. */
function joined(...parts: readonly (Bytes | readonly Bytes[])[]): Uint8Array<ArrayBuffer> {
  const all = parts.flatMap((part): readonly Bytes[] => {
    return part instanceof Uint8Array || typeof part[0] === 'number' ? [part as Bytes] : (part as readonly Bytes[]);
  });
  const result = new Uint8Array(all.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of all) {
    result.set(part, at);
    at += part.length;
  }
  return result;
}

export function varint(value: number | bigint): number[] {
  const bytes: number[] = [];
  if (typeof value === 'number' && value >= 0 && value < 2 ** 31) {
    let small = value;
    for (; small > 127; small >>>= 7) bytes.push((small & 127) + 128);
    bytes.push(small);
    return bytes;
  }
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) + 128);
  return [...bytes, Number(rest)];
}
export const int = (field: number, value: number | bigint): number[] => [...varint(field << 3), ...varint(value)];
export const bytes = (field: number, value: Bytes): Bytes =>
  joined(varint((field << 3) | 2), varint(value.length), value);
const utf8 = new TextEncoder();
export const text = (field: number, value: string): Bytes => bytes(field, utf8.encode(value));
export const floats = (values: readonly number[]): number[] => [...new Uint8Array(Float32Array.from(values).buffer)];
export const int64s = (values: readonly (number | bigint)[]): number[] => {
  return [...new Uint8Array(BigInt64Array.from(values.map(BigInt)).buffer)];
};

export interface TestTensor {
  readonly name?: string;
  readonly type?: number;
  readonly dims: readonly number[];
  readonly raw?: Bytes;
  /** More fields, as they are. */
  readonly more?: Bytes;
}
export function tensor({ name = '', type = 1, dims, raw, more = [] }: TestTensor): Bytes {
  return joined(
    dims.flatMap((dimension) => int(1, dimension)),
    int(2, type),
    name === '' ? [] : text(8, name),
    raw === undefined ? [] : bytes(9, raw),
    more,
  );
}

/** Fields of a tensor whose data are in another file, from its start on. */
export const external = (location: string, length: number): Bytes =>
  joined(
    ...Object.entries({ location, length: String(length) }).map(([key, value]) =>
      bytes(13, joined(text(1, key), text(2, value))),
    ),
    int(14, 1),
  );

/** float32 weights that look like weights: normal in the middle, always the same. */
export function weights(n: number, seed = 1, spread = 0.1): Float32Array<ArrayBuffer> {
  const values = new Float32Array(n);
  for (let i = 0, state = seed * 7919 + 1; i < n; i++) {
    let sum = 0;
    for (let draw = 0; draw < 3; draw++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      sum += state / 2 ** 32;
    }
    values[i] = spread * (sum - 1.5);
  }
  return values;
}
export const rawOf = (values: Float32Array<ArrayBuffer>) => new Uint8Array(values.buffer);
export function floatTensor(name: string, dims: readonly number[], seed = 1, spread = 0.1): Bytes {
  return tensor({
    name,
    dims,
    raw: rawOf(
      weights(
        dims.reduce((a, b) => a * b, 1),
        seed,
        spread,
      ),
    ),
  });
}

type Attribute =
  | number
  | readonly (number | bigint)[]
  | string
  | { float: number }
  | { tensor: Bytes }
  | { graph: Bytes };
function attribute(name: string, value: Attribute): Bytes {
  const head = text(1, name);
  if (typeof value === 'number') return joined(head, int(3, value), int(20, 2));
  if (typeof value === 'string') return joined(head, text(4, value), int(20, 3));
  if ('float' in value) return joined(head, [(2 << 3) | 5], floats([value.float]), int(20, 1));
  if ('tensor' in value) return joined(head, bytes(5, value.tensor), int(20, 4));
  if ('graph' in value) return joined(head, bytes(6, value.graph), int(20, 5));
  return joined(
    head,
    value.flatMap((one) => int(8, one)),
    int(20, 7),
  );
}

export interface TestNode {
  readonly op: string;
  readonly domain?: string;
  readonly name?: string;
  readonly in: readonly string[];
  readonly out: readonly string[];
  readonly attributes?: Readonly<Record<string, Attribute>>;
  readonly more?: Bytes;
}
export function node({ op, domain = '', name = '', in: inputs, out, attributes = {}, more = [] }: TestNode): Bytes {
  return joined(
    inputs.map((input) => text(1, input)),
    out.map((output) => text(2, output)),
    name === '' ? [] : text(3, name),
    text(4, op),
    Object.entries(attributes).map(([key, value]) => bytes(5, attribute(key, value))),
    domain === '' ? [] : text(7, domain),
    more,
  );
}

/** A value: its name, and its shape, in which texts are unknown dimensions. */
export type TestValue = readonly [name: string, shape: readonly (number | string)[], type?: number];
export function value([name, shape, type = 1]: TestValue): Bytes {
  const dims = joined(shape.map((d) => bytes(1, typeof d === 'number' ? int(1, d) : text(2, d))));
  return joined(text(1, name), bytes(2, bytes(1, joined(int(1, type), bytes(2, dims)))));
}

export interface TestGraph {
  readonly nodes: readonly TestNode[];
  readonly initializers?: readonly Bytes[];
  readonly inputs: readonly TestValue[];
  readonly outputs: readonly TestValue[];
  readonly more?: Bytes;
}
export function graph({ nodes, initializers = [], inputs, outputs, more = [] }: TestGraph): Bytes {
  return joined(
    nodes.map((one) => bytes(1, node(one))),
    text(2, 'test'),
    initializers.map((one) => bytes(5, one)),
    inputs.map((one) => bytes(11, value(one))),
    outputs.map((one) => bytes(12, value(one))),
    more,
  );
}

export interface TestModel {
  readonly opset?: number;
  readonly ir?: number;
  readonly imports?: Readonly<Record<string, number>>;
  readonly more?: Bytes;
}
export const opsetImport = (domain: string, version: number) => bytes(8, joined(text(1, domain), int(2, version)));
export function modelOf(main: Bytes, { opset = 17, ir = 8, imports = {}, more = [] }: TestModel = {}) {
  return joined(
    int(1, ir),
    text(2, 'test'),
    bytes(7, main),
    opsetImport('', opset),
    Object.entries(imports).map(([domain, version]) => opsetImport(domain, version)),
    more,
  );
}
export const model = (main: TestGraph, options?: TestModel) => modelOf(graph(main), options);

/** A model whose graph is one node that reads x and a weight, which may be given. */
export function product(
  op: string,
  dims: readonly number[],
  x: readonly (number | string)[],
  y: readonly (number | string)[],
  weight = floatTensor('w', dims),
) {
  return (attributes: TestNode['attributes'] = {}, options?: TestModel) =>
    model(
      {
        nodes: [{ op, name: 'first', in: ['x', 'w'], out: ['y'], attributes }],
        initializers: [weight],
        inputs: [['x', x]],
        outputs: [['y', y]],
      },
      options,
    );
}

/** A model that looks rows of a table up, or what else lies along an axis. The first dimensions of y are those of the indices. */
export function gather(
  dims: readonly number[],
  y: readonly (number | string)[],
  indices: TestValue = ['i', [2, 3], 7],
) {
  return (attributes: TestNode['attributes'] = {}) =>
    model({
      nodes: [{ op: 'Gather', in: ['w', indices[0]], out: ['y'], attributes }],
      initializers: [floatTensor('w', dims)],
      inputs: [indices],
      outputs: [['y', y]],
    });
}
