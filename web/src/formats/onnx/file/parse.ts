/**
 * Parses the messages of ONNX from the skeleton of a file. Errors carry the offset.
 * Reference: github.com/onnx/onnx, onnx/onnx.proto at f754691.
 */
import { ScalepointError } from '../../../core/errors.js';
import { quoted } from '../../files/bytes.js';
import {
  attributeField,
  type ElementKind,
  type ElementLocation,
  functionField,
  graphField,
  type Int64,
  kindsById,
  modelField,
  nodeField,
  type OnnxAttribute,
  type OnnxFunction,
  type OnnxGraph,
  type OnnxNode,
  type OnnxProto,
  type OnnxTensor,
  type OnnxValue,
  tensorField,
  textType,
} from './proto.js';
import {
  type Field,
  type LoadedRange,
  malformed,
  mostDepth,
  readVarint,
  type Skeleton,
  type WireType,
} from './wire.js';

const { floats, int32s, int64s, doubles, uint64s } = tensorField;

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The signed integer of a varint: a bigint where a number would be rounded. */
function signed({ low, high }: Pick<Field, 'low' | 'high'>): Int64 {
  const value = (high | 0) * 2 ** 32 + low;
  return Number.isSafeInteger(value) ? value : (BigInt(high | 0) << 32n) + BigInt(low);
}

/** Parses messages. */
export class Parser {
  readonly #skeleton: Skeleton;
  #depth = 0;

  constructor(skeleton: Skeleton) {
    this.#skeleton = skeleton;
  }

  // ---------------------------------------------------------------------------------------------------------------------- values

  #expect(field: Field, wire: WireType, what: string): void {
    if (field.wire === wire) return;
    malformed(`${what} has the wire type ${field.wire} in place of ${wire}`, field.start);
  }

  #bytes(field: Field, what: string): Uint8Array {
    this.#expect(field, 2, what);
    const bytes = this.#skeleton.bytes(field.begin, field.end);
    if (bytes === undefined) malformed(`${what} has ${field.end - field.begin} bytes, which is too long`, field.start);
    return bytes as Uint8Array;
  }

  #text(field: Field, what: string): string {
    const bytes = this.#bytes(field, what);
    try {
      return strict.decode(bytes);
    } catch {
      return malformed(`${what} is not UTF-8`, field.start);
    }
  }

  /** A signed integer of magnitude up to 2^53 - 1. */
  #integer(field: Field, what: string): number {
    this.#expect(field, 0, what);
    return this.#exact(signed(field), what, field.start);
  }

  #exact(value: Int64, what: string, at: number): number {
    return typeof value === 'number' ? value : malformed(`${what} is ${value}`, at);
  }

  /** True if a value is not part of the skeleton. */
  #isData({ wire, begin, end }: Field): boolean {
    return wire === 2 && this.#skeleton.bytes(begin, end) === undefined;
  }

  /** Adds the integers of a repeated field to a list: one, or many packed. */
  #integers(field: Field, what: string, to: Int64[]): void {
    if (field.wire !== 2) {
      this.#expect(field, 0, what);
      to.push(signed(field));
      return;
    }
    this.#bytes(field, what);
    for (let at = field.begin; at < field.end; ) {
      const range = this.#skeleton.find(at);
      if (range === undefined) throw new Error(`byte ${at} was not read`);
      const read = readVarint(range, at, field.end);
      to.push(signed(read));
      at = read.end;
    }
  }

  #float(field: Field, what: string): number {
    this.#expect(field, 5, what);
    const bytes = this.#skeleton.bytes(field.begin, field.end) as Uint8Array;
    return new DataView(bytes.buffer, bytes.byteOffset).getFloat32(0, true);
  }

  /** The fields of a message. */
  *#fields(begin: number, end: number): Generator<Field> {
    this.#depth++;
    if (this.#depth > mostDepth) malformed(`messages are nested too deeply: more than ${mostDepth} levels`, begin);
    try {
      yield* this.#skeleton.fields(begin, end);
    } finally {
      this.#depth--;
    }
  }

  #message(field: Field, what: string): Field {
    this.#expect(field, 2, what);
    return field;
  }

  // --------------------------------------------------------------------------------------------------------------------- tensors

  tensor({ start, begin, end }: Field): OnnxTensor {
    // Collect the fields.
    const dimensions: Int64[] = [];
    let [type, name, location] = [0, '', 0];
    let raw: Field | undefined;
    const typed = new Map<number, Field[]>();
    const external: [Field, string, string][] = [];
    for (const field of this.#fields(begin, end)) {
      const { number } = field;
      if (number === tensorField.dims) this.#integers(field, 'a dimension', dimensions);
      else if (number === tensorField.type) type = this.#integer(field, 'the type of a tensor');
      else if (number === tensorField.name) name = this.#text(field, 'the name of a tensor');
      else if (number === tensorField.raw) raw = this.#message(field, 'raw_data');
      else if (number === tensorField.location) location = this.#integer(field, 'data_location');
      else if (number === tensorField.external) external.push([field, ...this.#entry(field)]);
      else if ([floats, int32s, int64s, doubles, uint64s, tensorField.strings].includes(number as 4)) {
        const chunks = typed.get(number);
        if (chunks === undefined) typed.set(number, [field]);
        else chunks.push(field);
      }
    }
    // Check type, shape and the number of data sources.
    const bad = (message: string, at = begin): never => malformed(`tensor ${quoted(name)}: ${message}`, at, name);
    const shape = dimensions.map((dimension) =>
      typeof dimension === 'number' ? dimension : bad(`its shape is ${dimensions.join('×')}`),
    );
    const element = kindsById.get(type);
    const count = this.#count(shape, bad);
    const bytes = Math.ceil((count * (element?.bits ?? 0)) / 8);
    if (!Number.isSafeInteger(bytes)) bad(`its shape is ${shape.join('×')}, which is too large`);
    const isEmpty = name === '' && shape.length === 0 && raw === undefined && typed.size === 0;
    if (type < 1 && !isEmpty) bad(`its data type is ${type}`);
    if (!isEmpty) this.#checkType(type, `tensor ${quoted(name)}: its data type`, begin, name);
    const sources = [...typed].filter(([, fields]) =>
      fields.some((field) => field.wire !== 2 || field.end > field.begin),
    );
    const hasRaw = raw !== undefined && raw.end > raw.begin;
    if (location !== 0 && location !== 1) bad(`data_location is ${location}`);
    const isExternal = location === 1;
    if (sources.length + Number(hasRaw) + Number(isExternal) > 1) bad('it has data in two places');
    // Locate the data.
    let data: ElementLocation = { kind: 'none' };
    if (isExternal) data = this.#external(external, bad);
    else if (raw !== undefined && sources.length === 0) {
      data = { kind: 'raw', begin: raw.begin, bytes: raw.end - raw.begin };
      if (element !== undefined && data.bytes !== bytes) {
        bad(`raw_data has ${data.bytes} bytes, but ${shape.join('×')} ${element.name} take ${bytes}`, raw.start);
      }
    } else if (sources[0] !== undefined) data = this.#typed(sources[0], element, count, bad);
    else if (element !== undefined && count > 0) bad('it has no data');
    return { start, begin, end, name, element, shape, bytes, data };
  }

  /** Refuses types that ONNX lacks. @throws ScalepointError `UNSUPPORTED_DTYPE` */
  #checkType(type: number, what: string, byteOffset: number, tensor: string): void {
    if (type === textType || kindsById.has(type)) return;
    const message = `${what} is ${type}, which ONNX does not have`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor, byteOffset });
  }

  #count(shape: readonly number[], bad: (message: string) => never): number {
    let [count, product] = [1, 1];
    for (const dimension of shape) {
      if (dimension < 0) bad(`its shape is ${shape.join('×')}`);
      count *= dimension;
      product *= Math.max(1, dimension);
    }
    // Check the product of the nonzero dimensions.
    if (product > Number.MAX_SAFE_INTEGER) bad(`its shape is ${shape.join('×')}, which is too large`);
    return count;
  }

  /** Data in a field of the element's type. */
  #typed(
    [number, chunks]: readonly [number, readonly Field[]],
    element: ElementKind | undefined,
    count: number,
    bad: (message: string, at: number) => never,
  ): ElementLocation {
    const at = (chunks[0] as Field).start;
    if (element === undefined) return { kind: 'none' };
    if (element.field !== number) bad(`field ${number} holds no ${element.name}`, at);
    const fixed = number === floats ? 4 : number === doubles ? 8 : undefined;
    let entries = 0;
    for (const { wire, begin, end, start } of chunks) {
      if (fixed === undefined && wire !== 2 && wire !== 0) bad(`its data have the wire type ${wire}`, start);
      if (fixed !== undefined && wire !== 2 && wire !== (fixed === 4 ? 5 : 1)) {
        bad(`its data have the wire type ${wire}`, start);
      }
      if (fixed !== undefined && (end - begin) % fixed !== 0) bad('its data end within an element', start);
      entries += fixed === undefined ? (wire === 0 ? 1 : end - begin) : (end - begin) / fixed;
    }

    const counted = fixed === undefined ? this.#countVarints(chunks) : entries;
    const perElement = element.bits === 128 || element.name === 'C64' ? 2 : 1;
    const needed = element.bits < 8 ? Math.ceil((count * element.bits) / 8) : count * perElement;
    // A varint takes 1 to 10 bytes. Long lists are counted when they are read.
    const fits = counted === undefined ? entries >= needed && entries <= needed * 10 : counted === needed;
    if (!fits) bad(`its shape takes ${needed} entries, which its data do not have`, at);
    return fixed === undefined ? { kind: 'varints', chunks } : { kind: 'fixed', chunks, unit: fixed };
  }

  /** Number of varints in some fields; undefined if they are not in the skeleton. */
  #countVarints(chunks: readonly Field[]): number | undefined {
    let count = 0;
    for (const { wire, begin, end } of chunks) {
      if (wire === 0) count++;
      else if (this.#skeleton.bytes(begin, end) === undefined) return undefined;
      for (let at = begin; wire !== 0 && at < end; count++) {
        at = readVarint(this.#skeleton.find(at) as LoadedRange, at, end).end;
      }
    }
    return count;
  }

  /** A key and its value. */
  #entry(entry: Field): [key: string, value: string] {
    let [key, value] = ['', ''];
    this.#message(entry, 'external_data');
    for (const field of this.#fields(entry.begin, entry.end)) {
      if (field.number === 1) key = this.#text(field, 'a key');
      if (field.number === 2) value = this.#text(field, 'a value');
    }
    return [key, value];
  }

  #external(
    entries: readonly [Field, string, string][],
    bad: (message: string, at?: number) => never,
  ): ElementLocation {
    const values = new Map<string, string>();
    for (const [{ start }, key, value] of entries) {
      if (values.has(key)) bad(`external_data has ${quoted(key)} twice`, start);
      values.set(key, value);
    }
    const numberOf = (key: string): number | undefined => {
      const text = values.get(key);
      if (text === undefined) return undefined;
      const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
      if (!Number.isSafeInteger(value)) bad(`external_data says ${quoted(text)} for its ${key}`);
      return value;
    };
    const location = values.get('location') ?? '';
    if (location === '') bad('external_data names no file');
    return { kind: 'external', location, offset: numberOf('offset') ?? 0, length: numberOf('length') };
  }

  // ------------------------------------------------------------------------------------------------------------------ attributes

  #attribute(outer: Field): OnnxAttribute {
    this.#message(outer, 'an attribute');
    let result: OnnxAttribute = { start: outer.start, end: outer.end, name: '', graphs: [], refers: false };
    const ints: Int64[] = [];
    let isLong = false;
    const floatChunks: Field[] = [];
    const graphs: OnnxGraph[] = [];
    for (const field of this.#fields(outer.begin, outer.end)) {
      const { number } = field;
      if (number === attributeField.name) result = { ...result, name: this.#text(field, 'the name of an attribute') };
      else if (number === attributeField.i) {
        this.#expect(field, 0, 'an attribute');
        result = { ...result, i: signed(field) };
      } else if (number === attributeField.f) result = { ...result, f: this.#float(field, 'an attribute') };
      else if (number === attributeField.s) result = { ...result, s: this.#latin(field) };
      else if (number === attributeField.ints) {
        // Skip long lists, which are data.
        if (this.#isData(field)) isLong = true;
        else this.#integers(field, 'an attribute', ints);
      } else if (number === attributeField.floats) floatChunks.push(field);
      else if (number === attributeField.t) {
        if (result.tensor !== undefined) malformed('an attribute has two tensors', field.start);
        result = { ...result, tensor: this.tensor(this.#message(field, 'a tensor')) };
      } else if (number === attributeField.g || number === attributeField.graphs) {
        graphs.push(this.#graph([this.#message(field, 'a graph')]));
      } else if (number === attributeField.ref)
        result = { ...result, refers: this.#text(field, 'an attribute') !== '' };
    }
    if (floatChunks.length > 0) result = { ...result, tensor: this.#floatList(outer, floatChunks) };
    return { ...result, graphs, ...(ints.length > 0 && !isLong ? { ints } : {}) };
  }

  /** Text of an attribute, such as the mode of a Resize, not necessarily UTF-8. */
  #latin(field: Field): string {
    this.#message(field, 'an attribute');
    const bytes = this.#skeleton.bytes(field.begin, Math.min(field.end, field.begin + 1000));
    return bytes === undefined ? '' : String.fromCharCode(...bytes);
  }

  /** The floats of an attribute as a tensor. */
  #floatList({ begin, end, start }: Field, chunks: readonly Field[]): OnnxTensor {
    const element = kindsById.get(1) as ElementKind;
    let bytes = 0;
    for (const chunk of chunks) {
      if (chunk.wire !== 5 && chunk.wire !== 2)
        malformed('floats of an attribute are stored as another type', chunk.start);
      bytes += chunk.end - chunk.begin;
    }
    if (bytes % 4 !== 0) malformed('floats of an attribute end within one', start);
    return {
      start,
      begin,
      end,
      name: '',
      element,
      shape: [bytes / 4],
      bytes,
      data: { kind: 'fixed', chunks, unit: 4 },
    };
  }

  // ---------------------------------------------------------------------------------------------------------------------- graphs

  #node(outer: Field): OnnxNode {
    const { start, begin, end } = this.#message(outer, 'a node');
    let [name, opType, domain] = ['', '', ''];
    const inputs: string[] = [];
    const outputs: string[] = [];
    const attributes = new Map<string, OnnxAttribute>();
    for (const field of this.#fields(begin, end)) {
      const { number } = field;
      if (number === nodeField.input) inputs.push(this.#text(field, 'the input of a node'));
      else if (number === nodeField.output) outputs.push(this.#text(field, 'the output of a node'));
      else if (number === nodeField.name) name = this.#text(field, 'the name of a node');
      else if (number === nodeField.opType) opType = this.#text(field, 'the type of a node');
      else if (number === nodeField.domain) domain = this.#text(field, 'the domain of a node');
      else if (number === nodeField.attribute) {
        const attribute = this.#attribute(field);
        if (attributes.has(attribute.name))
          malformed(`a node has two attributes ${quoted(attribute.name)}`, field.start);
        attributes.set(attribute.name, attribute);
      }
    }
    if (domain === 'ai.onnx') domain = '';
    return { start, begin, end, name, opType, domain, inputs, outputs, attributes };
  }

  #value(outer: Field): OnnxValue {
    const { start, begin, end } = this.#message(outer, 'a value');
    let name = '';
    let type = 0;
    let shape: (number | undefined)[] | undefined;
    for (const field of this.#fields(begin, end)) {
      if (field.number === 1) name = this.#text(field, 'the name of a value');
      if (field.number !== 2) continue;
      for (const kind of this.#fields(this.#message(field, 'a type').begin, field.end)) {
        if (kind.number !== 1) continue;
        for (const part of this.#fields(this.#message(kind, 'a type').begin, kind.end)) {
          if (part.number === 1) type = this.#integer(part, 'the type of a value');
          if (part.number === 1 && type !== 0)
            this.#checkType(type, `value ${quoted(name)}: its element type`, part.start, name);
          if (part.number === 2) shape = this.#shape(part);
        }
      }
    }
    return { start, end, name, type, shape };
  }

  #shape(outer: Field): (number | undefined)[] {
    this.#message(outer, 'a shape');
    const shape: (number | undefined)[] = [];
    for (const field of this.#fields(outer.begin, outer.end)) {
      if (field.number !== 1) continue;
      let dimension: number | undefined;
      for (const part of this.#fields(this.#message(field, 'a dimension').begin, field.end)) {
        if (part.number === 1) dimension = this.#integer(part, 'a dimension');
      }
      shape.push(dimension);
    }
    return shape;
  }

  #graph(messages: readonly Field[]): OnnxGraph {
    const nodes: OnnxNode[] = [];
    const initializers: OnnxTensor[] = [];
    const sparse: string[] = [];
    const inputs: OnnxValue[] = [];
    const outputs: OnnxValue[] = [];
    const values: OnnxValue[] = [];
    for (const { begin, end } of messages) {
      for (const field of this.#fields(begin, end)) {
        const { number } = field;
        if (number === graphField.node) nodes.push(this.#node(field));
        else if (number === graphField.initializer) initializers.push(this.tensor(this.#message(field, 'a tensor')));
        else if (number === graphField.sparse) sparse.push(this.#sparse(field));
        else if (number === graphField.input) inputs.push(this.#value(field));
        else if (number === graphField.output) outputs.push(this.#value(field));
        else if (number === graphField.valueInfo) values.push(this.#value(field));
      }
    }
    return { messages, nodes, initializers, sparse, inputs, outputs, values };
  }

  #sparse(outer: Field): string {
    this.#message(outer, 'a sparse tensor');
    for (const field of this.#fields(outer.begin, outer.end)) {
      if (field.number === 1) return this.tensor(this.#message(field, 'a tensor')).name;
    }
    return '';
  }

  #opset(outer: Field, opsets: Map<string, number>): void {
    this.#message(outer, 'opset_import');
    let [domain, version] = ['', 0];
    for (const field of this.#fields(outer.begin, outer.end)) {
      if (field.number === 1) domain = this.#text(field, 'a domain');
      if (field.number === 2) version = this.#integer(field, 'an opset version');
    }
    if (version < 0) malformed(`the opset of ${quoted(domain)} has the version ${version}`, outer.start);
    opsets.set(domain === 'ai.onnx' ? '' : domain, version);
  }

  #function(outer: Field): OnnxFunction {
    const { start, begin, end } = this.#message(outer, 'a function');
    let [name, domain] = ['', ''];
    const nodes: OnnxNode[] = [];
    const opsets = new Map<string, number>();
    const inputs: OnnxValue[] = [];
    const outputs: OnnxValue[] = [];
    const named = (field: Field, what: string): OnnxValue => {
      return { start: field.start, end: field.end, name: this.#text(field, what), type: 0, shape: undefined };
    };
    for (const field of this.#fields(begin, end)) {
      if (field.number === functionField.name) name = this.#text(field, 'the name of a function');
      else if (field.number === functionField.domain) domain = this.#text(field, 'the domain of a function');
      else if (field.number === functionField.input) inputs.push(named(field, 'the input of a function'));
      else if (field.number === functionField.output) outputs.push(named(field, 'the output of a function'));
      else if (field.number === functionField.node) nodes.push(this.#node(field));
      else if (field.number === functionField.opsetImport) this.#opset(field, opsets);
    }
    const nothing = { initializers: [], sparse: [], values: [] };
    return { name, domain, opsets, body: { messages: [{ start, begin, end }], nodes, inputs, outputs, ...nothing } };
  }

  /** Checks the fields of an unused message, if it is in the skeleton. */
  #walk({ begin, end }: Field): void {
    if (this.#skeleton.bytes(begin, end) === undefined) return;
    for (const _ of this.#fields(begin, end));
  }

  /** Parses the whole file. */
  model(size: number): OnnxProto {
    const opsets = new Map<string, number>();
    const graphs: Field[] = [];
    const functions: OnnxFunction[] = [];
    let [irVersion, producer, trains] = [0, '', false];
    for (const field of this.#fields(0, size)) {
      const { number } = field;
      if (number === modelField.irVersion) irVersion = this.#integer(field, 'ir_version');
      else if (number === 2) producer = this.#text(field, 'producer_name');
      else if (number === modelField.graph) graphs.push(this.#message(field, 'the graph'));
      else if (number === modelField.opsetImport) this.#opset(field, opsets);
      else if (number === modelField.functions) functions.push(this.#function(field));
      else if (number === modelField.trainingInfo) trains = true;
      else if (number === modelField.metadata) this.#walk(this.#message(field, 'metadata_props'));
    }
    if (graphs.length === 0) malformed('the file has no graph', 0);
    if (irVersion < 0) malformed(`ir_version is ${irVersion}`, 0);
    return { irVersion, producer, opsets, graph: this.#graph(graphs), functions, trains };
  }
}
