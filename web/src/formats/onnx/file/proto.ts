/**
 * The messages of ONNX that conversions need: element types, parsed messages, and the schemas that read them. Messages keep their offsets in the
 * file, so that unchanged ones are copied byte for byte.
 * Reference: github.com/onnx/onnx, onnx/onnx.proto at f754691.
 */
import { ScalepointError } from '../../../core/errors.js';
import { quoted } from '../../files/bytes.js';
import {
  anyPlace,
  type Field,
  type FieldSchema,
  float,
  type Int64,
  int64,
  integer,
  integers,
  type LoadedRange,
  MessageReader,
  type MessageSchema,
  malformed,
  many,
  messages,
  one,
  place,
  readVarint,
  type Skeleton,
  text,
  unread,
} from '../../files/protobuf.js';

// --------------------------------------------------------------------------------------------------------------------- data types

/** A type of elements. */
interface ElementKind {
  readonly id: number;
  /** Name, in the spelling of safetensors if it has one. */
  readonly name: string;
  readonly bits: number;
  /** Field for such elements if they are not raw, and true if one entry of it holds all elements of a byte. */
  readonly field: number;
}

/** Fields of elements that are not raw. */
const [floats, int32s, int64s, doubles, uint64s] = [4, 5, 7, 10, 11];
const kinds: readonly ElementKind[] = (
  [
    [1, 'F32', 32, floats],
    [2, 'U8', 8, int32s],
    [3, 'I8', 8, int32s],
    [4, 'U16', 16, int32s],
    [5, 'I16', 16, int32s],
    [6, 'I32', 32, int32s],
    [7, 'I64', 64, int64s],
    [9, 'BOOL', 8, int32s],
    [10, 'F16', 16, int32s],
    [11, 'F64', 64, doubles],
    [12, 'U32', 32, uint64s],
    [13, 'U64', 64, uint64s],
    [14, 'C64', 64, floats],
    [15, 'C128', 128, doubles],
    [16, 'BF16', 16, int32s],
    [17, 'F8_E4M3', 8, int32s],
    [18, 'F8_E4M3FNUZ', 8, int32s],
    [19, 'F8_E5M2', 8, int32s],
    [20, 'F8_E5M2FNUZ', 8, int32s],
    [21, 'U4', 4, int32s],
    [22, 'I4', 4, int32s],
    [23, 'F4', 4, int32s],
    [24, 'F8_E8M0', 8, int32s],
    [25, 'U2', 2, int32s],
    [26, 'I2', 2, int32s],
  ] as const
).map(([id, name, bits, field]) => ({ id, name, bits, field }));

export const kindsById = new Map(kinds.map((kind) => [kind.id, kind]));
const kindsByName = new Map(kinds.map((kind) => [kind.name, kind]));

/** ONNX's number of texts. */
const textType = 8;

/** ONNX's number of a type. */
export function onnxTypeNumber(name: string): number {
  const kind = kindsByName.get(name);
  if (kind === undefined) throw new Error(`ONNX has no type ${name}`);
  return kind.id;
}

// ------------------------------------------------------------------------------------------------------------------------ messages

/** Location of elements. */
export type ElementLocation =
  /** Contiguous. */
  | { readonly kind: 'raw'; readonly begin: number; readonly bytes: number }
  /** In fields of 4- or 8-byte values, one or many each. */
  | { readonly kind: 'fixed'; readonly chunks: readonly Field[]; readonly unit: 4 | 8 }
  /** In fields of varints, one or many each. */
  | { readonly kind: 'varints'; readonly chunks: readonly Field[] }
  | {
      readonly kind: 'external';
      readonly location: string;
      readonly offset: number;
      readonly length: number | undefined;
    }
  | { readonly kind: 'none' };

/** A tensor. */
export interface OnnxTensor {
  /** Offset of its field. */
  readonly start: number;
  readonly begin: number;
  readonly end: number;
  readonly name: string;
  /** Undefined for strings. */
  readonly element: ElementKind | undefined;
  readonly shape: readonly number[];
  /** Size of its elements in bytes. */
  readonly bytes: number;
  readonly data: ElementLocation;
}

/** An attribute of a node. */
export interface OnnxAttribute {
  /** Offset of its field. */
  readonly start: number;
  readonly end: number;
  readonly name: string;
  readonly i: Int64 | undefined;
  readonly f: number | undefined;
  readonly s: string | undefined;
  readonly ints: readonly Int64[] | undefined;
  readonly tensor: OnnxTensor | undefined;
  readonly graphs: readonly OnnxGraph[];
  /** True if its value is that of an attribute of the function. */
  readonly refers: boolean;
}

export interface OnnxNode {
  /** Offsets of its field, and of its message. */
  readonly start: number;
  readonly begin: number;
  readonly end: number;
  readonly name: string;
  readonly opType: string;
  /** Empty for ai.onnx. */
  readonly domain: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: ReadonlyMap<string, OnnxAttribute>;
}

/** The domain of onnxruntime's own operators. */
export const contrib = 'com.microsoft';

/** Fails for an integer that is no axis, size or type. @throws ScalepointError `BAD_FILE` */
const exactInteger = (value: Int64, { name, start }: OnnxAttribute): number =>
  typeof value === 'number' ? value : malformed(`the attribute ${quoted(name)} is ${value}`, start);

/** An integer attribute of a node, such as an axis. @throws ScalepointError `BAD_FILE` beyond 2^53 */
export function intOf({ attributes }: Pick<OnnxNode, 'attributes'>, name: string, otherwise: number): number {
  const attribute = attributes.get(name);
  return attribute?.i === undefined ? otherwise : exactInteger(attribute.i, attribute);
}

/** A list of integers of a node, such as axes; undefined without it. @throws ScalepointError `BAD_FILE` beyond 2^53 */
export function findInts({ attributes }: Pick<OnnxNode, 'attributes'>, name: string): readonly number[] | undefined {
  const attribute = attributes.get(name);
  return attribute?.ints?.map((value) => exactInteger(value, attribute));
}

/** A float attribute of a node. */
export function floatOf({ attributes }: Pick<OnnxNode, 'attributes'>, name: string, otherwise: number): number {
  return attributes.get(name)?.f ?? otherwise;
}

/** An input, an output, or the description of another value. */
export interface OnnxValue {
  readonly start: number;
  readonly end: number;
  readonly name: string;
  /** Number of the element type; 0 for an unknown type and for a value that is not a tensor. */
  readonly type: number;
  /** Undefined if the rank is unknown. Dimensions without a number are undefined. */
  readonly shape: readonly (number | undefined)[] | undefined;
}

export interface OnnxGraph {
  /** A graph may come in several of them. */
  readonly messages: readonly { readonly start: number; readonly begin: number; readonly end: number }[];
  readonly nodes: readonly OnnxNode[];
  readonly initializers: readonly OnnxTensor[];
  /** Names of sparse initializers. */
  readonly sparse: readonly string[];
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
  readonly values: readonly OnnxValue[];
}

export interface OnnxFunction {
  readonly name: string;
  readonly domain: string;
  readonly body: OnnxGraph;
  readonly opsets: ReadonlyMap<string, number>;
}

export interface OnnxProto {
  readonly irVersion: number;
  readonly producer: string;
  /** Versions by domain. Empty for ai.onnx. */
  readonly opsets: ReadonlyMap<string, number>;
  readonly graph: OnnxGraph;
  readonly functions: readonly OnnxFunction[];
  /** True if it can be trained. Its training graphs then use names of the main graph. */
  readonly trains: boolean;
}

// ------------------------------------------------------------------------------------------------------------------------ schemas

/** A field with a message, whose long values the skeleton may leave out. */
const inner = <T>(message: () => MessageSchema, field: FieldSchema<T>): FieldSchema<T> => ({ ...field, message });

/** A field with elements of a tensor. */
const elementData = (number: number): FieldSchema<Field[]> => ({ ...many(number, '', anyPlace), isData: true });

/** The schema of graphs, which contain themselves in attributes of their nodes. */
function graphMessage(): MessageSchema {
  return graphSchema;
}

const entrySchema = { key: one(1, 'a key', text, ''), value: one(2, 'a value', text, '') };
const tensorSchema = {
  dims: integers(1, 'a dimension'),
  type: one(2, 'the type of a tensor', integer, 0),
  floats: elementData(floats),
  int32s: elementData(int32s),
  strings: elementData(6),
  int64s: elementData(int64s),
  name: one(8, 'the name of a tensor', text, ''),
  raw: { ...one<Field | undefined>(9, 'raw_data', place, undefined), isData: true },
  doubles: elementData(doubles),
  uint64s: elementData(uint64s),
  external: inner(
    () => entrySchema,
    many(13, 'external_data', (reader, field, what) => {
      return { ...reader.inside(entrySchema, field, what), at: field.start };
    }),
  ),
  location: one(14, 'data_location', integer, 0),
};
const sparseSchema = {
  values: inner(
    () => tensorSchema,
    one(1, 'a tensor', (...read) => readOnnxTensor(...read).name, ''),
  ),
  indices: unread(2, () => tensorSchema),
};
const attributeSchema = {
  name: one(1, 'the name of an attribute', text, ''),
  f: one<number | undefined>(2, 'an attribute', float, undefined),
  i: one<Int64 | undefined>(3, 'an attribute', int64, undefined),
  // Text such as the mode of a Resize, not necessarily UTF-8.
  s: one<string | undefined>(
    4,
    'an attribute',
    (reader, field, what) => {
      const { begin, end } = reader.expect(field, 2, what);
      return String.fromCharCode(...(reader.skeleton.bytes(begin, Math.min(end, begin + 1000)) ?? []));
    },
    undefined,
  ),
  t: inner(() => tensorSchema, many(5, 'a tensor', readOnnxTensor)),
  g: inner(graphMessage, many(6, 'a graph', readGraph)),
  floats: elementData(7),
  ints: {
    ...integers(8, 'an attribute'),
    isData: true,
    // Long lists are data, and stay in the file.
    next(reader: MessageReader, field: Field, before: Int64[]): Int64[] {
      const isLong = field.wire === 2 && reader.skeleton.bytes(field.begin, field.end) === undefined;
      return isLong ? before : reader.integers(field, 'an attribute', before);
    },
  },
  tensors: unread(10, () => tensorSchema),
  graphs: inner(graphMessage, many(11, 'a graph', readGraph)),
  type: unread(20),
  ref: one(21, 'an attribute', text, ''),
  sparse: unread(22, () => sparseSchema),
  sparses: unread(23, () => sparseSchema),
};
const nodeSchema = {
  input: many(1, 'the input of a node', text),
  output: many(2, 'the output of a node', text),
  name: one(3, 'the name of a node', text, ''),
  opType: one(4, 'the type of a node', text, ''),
  attribute: inner(() => attributeSchema, many(5, 'an attribute', readAttribute)),
  domain: one(7, 'the domain of a node', text, ''),
};
const dimensionSchema = { value: one<number | undefined>(1, 'a dimension', integer, undefined) };
const shapeSchema = { dims: messages(1, 'a dimension', () => dimensionSchema) };
const tensorTypeSchema = {
  element: one(
    1,
    'the type of a value',
    (reader, field, what) => ({ type: integer(reader, field, what), at: field.start }),
    { type: 0, at: 0 },
  ),
  shape: messages(2, 'a shape', () => shapeSchema),
};
const typeSchema = { tensor: messages(1, 'a type', () => tensorTypeSchema) };
const valueSchema = { name: one(1, 'the name of a value', text, ''), type: messages(2, 'a type', () => typeSchema) };
const graphSchema = {
  node: inner(() => nodeSchema, many(1, 'a node', readNode)),
  initializer: inner(() => tensorSchema, many(5, 'a tensor', readOnnxTensor)),
  input: inner(() => valueSchema, many(11, 'a value', readValue)),
  output: inner(() => valueSchema, many(12, 'a value', readValue)),
  valueInfo: inner(() => valueSchema, many(13, 'a value', readValue)),
  sparse: inner(
    () => sparseSchema,
    many(15, 'a sparse tensor', (reader, field, what) => reader.inside(sparseSchema, field, what).values),
  ),
};
const opsetSchema = { domain: one(1, 'a domain', text, ''), version: one(2, 'an opset version', integer, 0) };
const opsetImport = (number: number) =>
  inner(
    () => opsetSchema,
    many(number, 'opset_import', (reader, field, what): readonly [domain: string, version: number] => {
      const { domain, version } = reader.inside(opsetSchema, field, what);
      if (version < 0) malformed(`the opset of ${quoted(domain)} has the version ${version}`, field.start);
      return [domain === 'ai.onnx' ? '' : domain, version];
    }),
  );
const functionSchema = {
  name: one(1, 'the name of a function', text, ''),
  input: many(4, 'the input of a function', readName),
  output: many(5, 'the output of a function', readName),
  node: inner(() => nodeSchema, many(7, 'a node', readNode)),
  opsetImport: opsetImport(9),
  domain: one(10, 'the domain of a function', text, ''),
};
const trainingSchema = { initialization: unread(1, () => graphSchema), algorithm: unread(2, () => graphSchema) };

/** Schema of a model: all messages that are read, as each may hold a long value. */
export const modelSchema = {
  irVersion: one(1, 'ir_version', integer, 0),
  producer: one(2, 'producer_name', text, ''),
  graph: inner(() => graphSchema, many(7, 'the graph', place)),
  opsetImport: opsetImport(8),
  // Check the fields, if they are in the skeleton.
  metadata: many(14, 'metadata_props', (reader, field, what) => {
    const { begin, end } = reader.expect(field, 2, what);
    if (reader.skeleton.bytes(begin, end) !== undefined) reader.read({}, field);
  }),
  trainingInfo: inner(() => trainingSchema, many(20, '', anyPlace)),
  functions: inner(() => functionSchema, many(25, 'a function', readFunction)),
};

/** The numbers of the fields of a schema. */
function numbersIn<Schema extends MessageSchema>(schema: Schema): { readonly [Name in keyof Schema]: number } {
  const entries = Object.entries(schema).map(([name, { number }]) => [name, number]);
  return Object.fromEntries(entries) as { readonly [Name in keyof Schema]: number };
}

export const modelField = numbersIn(modelSchema);
export const graphField = numbersIn(graphSchema);
export const functionField = numbersIn(functionSchema);
export const nodeField = numbersIn(nodeSchema);
export const attributeField = numbersIn(attributeSchema);
export const tensorField = numbersIn(tensorSchema);

// ------------------------------------------------------------------------------------------------------------------------ reading

/** Refuses types that ONNX lacks. @throws ScalepointError `UNSUPPORTED_DTYPE` */
function checkElementType(type: number, what: string, byteOffset: number, tensor: string): void {
  if (type === textType || kindsById.has(type)) return;
  const message = `${what} is ${type}, which ONNX does not have`;
  throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor, byteOffset });
}

function readOnnxTensor(reader: MessageReader, field: Field, what: string): OnnxTensor {
  const { start, begin, end } = field;
  const { dims, type, name, raw, location, external, ...fields } = reader.inside(tensorSchema, field, what);
  const bad = (message: string, at = begin): never => malformed(`tensor ${quoted(name)}: ${message}`, at, name);
  const typed = Object.entries(fields)
    .map(([key, chunks]) => ({ number: tensorField[key as keyof typeof fields], chunks }))
    .filter(({ chunks }) => chunks.length > 0);
  // Check type and shape. The product of the nonzero dimensions must be exact as well.
  const shown = dims.join('×');
  const shape = dims.map((dimension) => {
    return typeof dimension === 'number' && dimension >= 0 ? dimension : bad(`its shape is ${shown}`);
  });
  const element = kindsById.get(type);
  const count = shape.reduce((all, dimension) => all * dimension, 1);
  const bytes = Math.ceil((count * (element?.bits ?? 0)) / 8);
  const product = shape.reduce((all, dimension) => all * Math.max(1, dimension), 1);
  if (product > Number.MAX_SAFE_INTEGER || !Number.isSafeInteger(bytes)) {
    bad(`its shape is ${shown}, which is too large`);
  }
  const isEmpty = name === '' && shape.length === 0 && raw === undefined && typed.length === 0;
  if (type < 1 && !isEmpty) bad(`its data type is ${type}`);
  if (!isEmpty) checkElementType(type, `tensor ${quoted(name)}: its data type`, begin, name);
  // Find the one place of the data.
  const sources = typed.filter(({ chunks }) => chunks.some((chunk) => chunk.wire !== 2 || chunk.end > chunk.begin));
  const hasRaw = raw !== undefined && raw.end > raw.begin;
  if (location !== 0 && location !== 1) bad(`data_location is ${location}`);
  if (sources.length + Number(hasRaw) + location > 1) bad('it has data in two places');
  let data: ElementLocation = { kind: 'none' };
  const [source] = sources;
  if (location === 1) {
    const values = new Map<string, string>();
    for (const { key, value, at } of external) {
      if (values.has(key)) bad(`external_data has ${quoted(key)} twice`, at);
      values.set(key, value);
    }
    const numberFor = (key: string): number | undefined => {
      const value = values.get(key);
      if (value === undefined) return undefined;
      const isExact = /^\d{1,16}$/.test(value) && Number.isSafeInteger(Number(value));
      return isExact ? Number(value) : bad(`external_data says ${quoted(value)} for its ${key}`);
    };
    const file = values.get('location') ?? '';
    if (file === '') bad('external_data names no file');
    data = { kind: 'external', location: file, offset: numberFor('offset') ?? 0, length: numberFor('length') };
  } else if (raw !== undefined && source === undefined) {
    data = { kind: 'raw', begin: raw.begin, bytes: raw.end - raw.begin };
    if (element !== undefined && data.bytes !== bytes) {
      bad(`raw_data has ${data.bytes} bytes, but ${shown} ${element.name} take ${bytes}`, raw.start);
    }
  } else if (source !== undefined && element !== undefined) {
    const { number, chunks } = source;
    const at = (chunks[0] as Field).start;
    if (element.field !== number) bad(`field ${number} holds no ${element.name}`, at);
    // Count the entries. Long lists of varints are counted when they are read: an entry takes 1 to 10 bytes.
    const unit = number === floats ? 4 : number === doubles ? 8 : undefined;
    const wire = unit === undefined ? 0 : unit === 4 ? 5 : 1;
    const bits = element.bits === 128 || element.name === 'C64' ? 2 : 1;
    const needed = element.bits < 8 ? Math.ceil((count * element.bits) / 8) : count * bits;
    let [entries, most] = [0, 0];
    for (const chunk of chunks) {
      const size = chunk.end - chunk.begin;
      if (chunk.wire !== 2 && chunk.wire !== wire) bad(`its data have the wire type ${chunk.wire}`, chunk.start);
      if (unit !== undefined && size % unit !== 0) bad('its data end within an element', chunk.start);
      if (unit !== undefined) entries += size / unit;
      else if (chunk.wire === 0) entries++;
      else if (reader.skeleton.bytes(chunk.begin, chunk.end) === undefined) most += size;
      else {
        for (let next = chunk.begin; next < chunk.end; entries++) {
          next = readVarint(reader.skeleton.find(next) as LoadedRange, next, chunk.end).end;
        }
      }
    }
    const fits = most === 0 ? entries === needed : entries + most >= needed && entries + most / 10 <= needed;
    if (!fits) bad(`its shape takes ${needed} entries, which its data do not have`, at);
    data = unit === undefined ? { kind: 'varints', chunks } : { kind: 'fixed', chunks, unit };
  } else if (source === undefined && element !== undefined && count > 0) bad('it has no data');
  return { start, begin, end, name, element, shape, bytes, data };
}

function readAttribute(reader: MessageReader, field: Field, what: string): OnnxAttribute {
  const { start, begin, end } = field;
  const { name, f, i, s, t, g, floats: chunks, ints, graphs, ref } = reader.inside(attributeSchema, field, what);
  if (t[1] !== undefined) malformed('an attribute has two tensors', t[1].start);
  let [tensor] = t;
  if (chunks.length > 0) {
    // Present floats as a tensor.
    const wrong = chunks.find(({ wire }) => wire !== 5 && wire !== 2);
    if (wrong !== undefined) malformed('floats of an attribute are stored as another type', wrong.start);
    const bytes = chunks.reduce((sum, chunk) => sum + chunk.end - chunk.begin, 0);
    if (bytes % 4 !== 0) malformed('floats of an attribute end within one', start);
    const data: ElementLocation = { kind: 'fixed', chunks, unit: 4 };
    tensor = { start, begin, end, name: '', element: kindsById.get(1), shape: [bytes / 4], bytes, data };
  }
  const list = ints.length > 0 ? ints : undefined;
  return { start, end, name, i, f, s, ints: list, tensor, graphs: [...g, ...graphs], refers: ref !== '' };
}

function readNode(reader: MessageReader, field: Field, what: string): OnnxNode {
  const { start, begin, end } = field;
  const { name, opType, domain, input, output, attribute } = reader.inside(nodeSchema, field, what);
  const attributes = new Map<string, OnnxAttribute>();
  for (const found of attribute) {
    if (attributes.has(found.name)) malformed(`a node has two attributes ${quoted(found.name)}`, found.start);
    attributes.set(found.name, found);
  }
  const plain = { name, opType, domain: domain === 'ai.onnx' ? '' : domain, inputs: input, outputs: output };
  return { start, begin, end, ...plain, attributes };
}

function readValue(reader: MessageReader, field: Field, what: string): OnnxValue {
  const { start, end } = field;
  const { name, type: types } = reader.inside(valueSchema, field, what);
  const tensor = types.flatMap((one) => one.tensor).at(-1);
  const { type, at } = tensor?.element ?? { type: 0, at: 0 };
  if (type !== 0) checkElementType(type, `value ${quoted(name)}: its element type`, at, name);
  return { start, end, name, type, shape: tensor?.shape.at(-1)?.dims.map(({ value }) => value) };
}

/** An input or output of a function, which has a name alone. */
function readName(reader: MessageReader, field: Field, what: string): OnnxValue {
  return { start: field.start, end: field.end, name: text(reader, field, what), type: 0, shape: undefined };
}

function readGraph(reader: MessageReader, field: Field, what: string): OnnxGraph {
  return graphIn(reader, [reader.expect(field, 2, what)]);
}

/** The graph in some messages. */
function graphIn(reader: MessageReader, messages: readonly Field[]): OnnxGraph {
  const { node, initializer, sparse, input, output, valueInfo } = reader.read(graphSchema, ...messages);
  return {
    messages,
    nodes: node,
    initializers: initializer,
    sparse,
    inputs: input,
    outputs: output,
    values: valueInfo,
  };
}

function readFunction(reader: MessageReader, field: Field, what: string): OnnxFunction {
  const { name, domain, opsetImport, input, output, node } = reader.inside(functionSchema, field, what);
  const nothing = { initializers: [], sparse: [], values: [] };
  const body = { messages: [field], nodes: node, inputs: input, outputs: output, ...nothing };
  return { name, domain, opsets: new Map(opsetImport), body };
}

/** Reads a model from the skeleton of a file. @throws ScalepointError `BAD_FILE`, `UNSUPPORTED_DTYPE` */
export function readOnnx(skeleton: Skeleton, size: number): OnnxProto {
  const reader = new MessageReader(skeleton);
  const found = reader.read(modelSchema, { begin: 0, end: size });
  const { irVersion, producer, graph, opsetImport, functions, trainingInfo } = found;
  if (graph.length === 0) malformed('the file has no graph', 0);
  if (irVersion < 0) malformed(`ir_version is ${irVersion}`, 0);
  const opsets = new Map(opsetImport);
  return { irVersion, producer, opsets, graph: graphIn(reader, graph), functions, trains: trainingInfo.length > 0 };
}
