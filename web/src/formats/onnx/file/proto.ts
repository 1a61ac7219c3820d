/**
 * The messages of ONNX that conversions need: field numbers, element types, and parsed messages. Messages keep their offsets in the file,
 * so that unchanged ones are copied byte for byte.
 * Reference: github.com/onnx/onnx, onnx/onnx.proto at f754691.
 */
import { quoted } from '../../files/bytes.js';
import { type Field, malformed, type ScanSchema } from './wire.js';

// ------------------------------------------------------------------------------------------------------------------- field numbers

export const modelField = {
  irVersion: 1,
  graph: 7,
  opsetImport: 8,
  metadata: 14,
  trainingInfo: 20,
  functions: 25,
} as const;
export const graphField = {
  node: 1,
  name: 2,
  initializer: 5,
  input: 11,
  output: 12,
  valueInfo: 13,
  sparse: 15,
} as const;
export const nodeField = { input: 1, output: 2, name: 3, opType: 4, attribute: 5, domain: 7 } as const;
export const attributeField = {
  name: 1,
  f: 2,
  i: 3,
  s: 4,
  t: 5,
  g: 6,
  floats: 7,
  ints: 8,
  graphs: 11,
  type: 20,
  ref: 21,
} as const;
export const tensorField = {
  dims: 1,
  type: 2,
  floats: 4,
  int32s: 5,
  strings: 6,
  int64s: 7,
  name: 8,
  raw: 9,
  doubles: 10,
  uint64s: 11,
  external: 13,
  location: 14,
} as const;
export const functionField = { name: 1, input: 4, output: 5, node: 7, opsetImport: 9, domain: 10 } as const;

/** A message without messages inside of it. */
export const leafSchema: ScanSchema = { messages: {}, data: [] };
const around = (messages: ScanSchema['messages']): ScanSchema => ({ messages, data: [] });
const shapeSchema = around({ 1: leafSchema });
const valueSchema = around({ 2: around({ 1: around({ 2: shapeSchema }) }) });
const tensorSchema: ScanSchema = { messages: { 13: leafSchema }, data: [4, 5, 6, 7, 9, 10, 11] };
const sparseSchema = around({ 1: tensorSchema, 2: tensorSchema });
const attributeSchema: ScanSchema = {
  // Subgraphs lie in attributes of nodes of graphs.
  get messages() {
    const messages: Record<number, ScanSchema> = { 5: tensorSchema, 6: graphSchema, 10: tensorSchema, 11: graphSchema };
    return { ...messages, 22: sparseSchema, 23: sparseSchema };
  },
  data: [7, 8],
};
const nodeSchema = around({ 5: attributeSchema });
const graphSchema = around({
  1: nodeSchema,
  5: tensorSchema,
  11: valueSchema,
  12: valueSchema,
  13: valueSchema,
  15: sparseSchema,
});
const trainingSchema = around({ 1: graphSchema, 2: graphSchema });
const functionSchema = around({ 7: nodeSchema, 9: leafSchema });

/** Schema of the messages of a model: all that the parser enters, as each may hold a long value. */
export const modelSchema = around({ 7: graphSchema, 8: leafSchema, 20: trainingSchema, 25: functionSchema });

// --------------------------------------------------------------------------------------------------------------------- data types

/** A type of elements. */
export interface ElementKind {
  readonly id: number;
  /** Name, in the spelling of safetensors if it has one. */
  readonly name: string;
  readonly bits: number;
  /** Field for such elements if they are not raw, and true if one entry of it holds all elements of a byte. */
  readonly field: number;
}

const { floats, int32s, int64s, doubles, uint64s } = tensorField;
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
export const textType = 8;

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

/** An int64: a number up to a magnitude of 2^53 - 1, and a bigint beyond. */
export type Int64 = number | bigint;

/** An attribute of a node. */
export interface OnnxAttribute {
  /** Offset of its field. */
  readonly start: number;
  readonly end: number;
  readonly name: string;
  readonly i?: Int64;
  readonly f?: number;
  readonly s?: string;
  readonly ints?: readonly Int64[];
  readonly tensor?: OnnxTensor;
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
const exact = (value: Int64, { name, start }: OnnxAttribute): number =>
  typeof value === 'number' ? value : malformed(`the attribute ${quoted(name)} is ${value}`, start);

/** An integer attribute of a node, such as an axis. @throws ScalepointError `BAD_FILE` beyond 2^53 */
export function intOf({ attributes }: Pick<OnnxNode, 'attributes'>, name: string, otherwise: number): number {
  const attribute = attributes.get(name);
  return attribute?.i === undefined ? otherwise : exact(attribute.i, attribute);
}

/** A list of integers of a node, such as axes; undefined without it. @throws ScalepointError `BAD_FILE` beyond 2^53 */
export function findInts({ attributes }: Pick<OnnxNode, 'attributes'>, name: string): readonly number[] | undefined {
  const attribute = attributes.get(name);
  return attribute?.ints?.map((value) => exact(value, attribute));
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
