/** Encodes messages of ONNX that are added to a model. */
import { joinedBytes } from '../../files/bytes.js';
import type { Int64 } from '../../files/protobuf.js';
import { attributeField, nodeField, type OnnxNode, tensorField } from './proto.js';

/** Bytes of a result: known bytes, a range of the model's file, or a part of a planned tensor. */
export type MessagePiece =
  | { readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly begin: number; readonly end: number }
  | { readonly tensor: number; readonly role: string; readonly size: number };

export function encodedSizeOf(pieces: readonly MessagePiece[]): number {
  return pieces.reduce((sum, piece) => {
    if ('bytes' in piece) return sum + piece.bytes.length;
    return sum + ('size' in piece ? piece.size : piece.end - piece.begin);
  }, 0);
}

/** The bytes of a message of known bytes alone. */
export function messageBytes(pieces: readonly MessagePiece[]): Uint8Array<ArrayBuffer> {
  const known = pieces.map((piece) => {
    if (!('bytes' in piece)) throw new Error('a message is made of known bytes');
    return piece.bytes;
  });
  return joinedBytes(known);
}

// -------------------------------------------------------------------------------------------------------------------------- bytes

/** Fails for a number that is not a whole one, or rounded, and for integers that int64 does not hold. */
function checkedInt64(value: Int64): bigint {
  const isExact = typeof value === 'bigint' ? BigInt.asIntN(64, value) === value : Number.isSafeInteger(value);
  if (!isExact) throw new RangeError(`${value} is not an exact int64`);
  return BigInt(value);
}

const utf8 = new TextEncoder();

/** Writes fields of a message, one behind the other. A result may have a hundred thousand nodes, so it goes without arrays of numbers. */
class FieldWriter {
  #bytes = new Uint8Array(512);
  #length = 0;

  #reserve(count: number): void {
    if (this.#length + count <= this.#bytes.length) return;
    const larger = new Uint8Array(2 * (this.#length + count));
    larger.set(this.#bytes);
    this.#bytes = larger;
  }

  /** Begins a message. */
  start(): this {
    this.#length = 0;
    return this;
  }

  /** An int64. Negative ones take ten bytes. */
  varint(value: Int64): this {
    this.#reserve(10);
    if (typeof value === 'number' && value >= 0 && value < 2 ** 31 && Number.isInteger(value)) {
      let small = value;
      for (; small > 127; small >>>= 7) this.#bytes[this.#length++] = (small & 127) | 128;
      this.#bytes[this.#length++] = small;
      return this;
    }
    let rest = BigInt.asUintN(64, checkedInt64(value));
    for (; rest >= 128n; rest >>= 7n) this.#bytes[this.#length++] = Number(rest & 127n) | 128;
    this.#bytes[this.#length++] = Number(rest);
    return this;
  }

  integer(number: number, value: Int64): this {
    return this.varint(number * 8).varint(value);
  }

  float(number: number, value: number): this {
    this.varint(number * 8 + 5).#reserve(4);
    new DataView(this.#bytes.buffer).setFloat32(this.#length, value, true);
    this.#length += 4;
    return this;
  }

  bytes(number: number, bytes: ArrayLike<number>): this {
    this.varint(number * 8 + 2)
      .varint(bytes.length)
      .#reserve(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
    return this;
  }

  text(number: number, text: string): this {
    // Write short ASCII at once.
    const begin = this.#length;
    if (text.length < 128) {
      this.varint(number * 8 + 2).#reserve(1 + text.length);
      this.#bytes[this.#length++] = text.length;
      let i = 0;
      for (let code = text.charCodeAt(0); code < 128; code = text.charCodeAt(++i)) this.#bytes[this.#length++] = code;
      if (i === text.length) return this;
      this.#length = begin;
    }
    return this.bytes(number, utf8.encode(text));
  }

  /** The bytes of the message. */
  take(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.#length);
  }
}

/** The writers of fields and of attributes, which keep their memory. */
const [writer, attributeWriter] = [new FieldWriter(), new FieldWriter()];

export function integerField(number: number, value: Int64): Uint8Array<ArrayBuffer> {
  return writer.start().integer(number, value).take();
}

export function textField(number: number, text: string): Uint8Array<ArrayBuffer> {
  return writer.start().text(number, text).take();
}

/** A field that holds pieces. */
export function piecesField(number: number, pieces: readonly MessagePiece[]): MessagePiece[] {
  const head = writer
    .start()
    .varint(number * 8 + 2)
    .varint(encodedSizeOf(pieces))
    .take();
  return [{ bytes: head }, ...pieces];
}

export function bytesPiece(bytes: ArrayLike<number>): MessagePiece {
  return { bytes: Uint8Array.from(bytes) };
}

// ------------------------------------------------------------------------------------------------------------------------ messages

/** A value with its shape, as ValueInfoProto. Dimensions without a fixed size have names. */
export function valuePieces(name: string, type: number, shape: readonly (number | string)[]): MessagePiece[] {
  const dimensions = shape.flatMap((size) =>
    piecesField(1, [bytesPiece(typeof size === 'string' ? textField(2, size) : integerField(1, size))]),
  );
  const tensor = [bytesPiece(integerField(1, type)), ...piecesField(2, dimensions)];
  return [bytesPiece(textField(1, name)), ...piecesField(2, piecesField(1, tensor))];
}

/** Value of an attribute. Whole numbers are integers. */
export type AttributeValue = number | { readonly float: number } | string | readonly Int64[];

/** A node to be added. */
export interface NewNode {
  readonly opType: string;
  /** @defaultValue ai.onnx */
  readonly domain?: string;
  readonly name?: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  /** Encoded attributes of another node. */
  readonly copied?: readonly MessagePiece[];
}

/** A node with one output, named after it. */
export function nodeFor(
  output: string,
  opType: string,
  inputs: readonly string[],
  attributes: NewNode['attributes'] = {},
): NewNode {
  return { opType, name: output, inputs, outputs: [output], attributes };
}

/** A Cast to a type, given by number, named after its output. */
export function castNode(from: string, to: string, type: number): NewNode {
  return nodeFor(to, 'Cast', [from], { to: type });
}

/** Numbers of the types of attributes, besides their fields. */
const attributeTypes = { f: 1, i: 2, s: 3, t: 4, ints: 7 } as const;

function attributeBytes(name: string, value: AttributeValue): Uint8Array<ArrayBuffer> {
  attributeWriter.start().text(attributeField.name, name);
  const end = (type: keyof typeof attributeTypes) =>
    attributeWriter.integer(attributeField.type, attributeTypes[type]).take();
  if (typeof value === 'number') {
    attributeWriter.integer(attributeField.i, value);
    return end('i');
  }
  if (typeof value === 'string') {
    attributeWriter.text(attributeField.s, value);
    return end('s');
  }
  if ('float' in value) {
    attributeWriter.float(attributeField.f, value.float);
    return end('f');
  }
  for (const one of value) attributeWriter.integer(attributeField.ints, one);
  return end('ints');
}

/** An attribute as a field of a node. */
export function attributePieces(name: string, value: AttributeValue): MessagePiece[] {
  return piecesField(nodeField.attribute, [{ bytes: attributeBytes(name, value) }]);
}

/** The attribute `value` of a constant, with the message of its tensor, as a field of a node. */
export function valueAttributePieces(tensor: readonly MessagePiece[]): MessagePiece[] {
  const head = writer.start().text(attributeField.name, 'value').integer(attributeField.type, attributeTypes.t).take();
  return piecesField(nodeField.attribute, [{ bytes: head }, ...piecesField(attributeField.t, tensor)]);
}

/** Encoded attributes of a node. */
export function attributePiecesOf({ attributes }: Pick<OnnxNode, 'attributes'>): MessagePiece[] {
  return [...attributes.values()].map(({ start, end }) => ({ begin: start, end }));
}

/** A node as a field of a graph or of a function. */
export function nodePieces(
  { opType, domain = '', name = '', inputs, outputs, attributes = {}, copied = [] }: NewNode,
  field: number,
): MessagePiece[] {
  writer.start();
  for (const input of inputs) writer.text(nodeField.input, input);
  for (const output of outputs) writer.text(nodeField.output, output);
  if (name !== '') writer.text(nodeField.name, name);
  writer.text(nodeField.opType, opType);
  for (const [key, value] of Object.entries(attributes)) writer.bytes(nodeField.attribute, attributeBytes(key, value));
  if (domain !== '') writer.text(nodeField.domain, domain);
  return piecesField(field, [{ bytes: writer.take() }, ...copied]);
}

/** A tensor to be added, with elements from the plan or known bytes. */
export interface NewTensor {
  readonly name: string;
  /** Number of its type. */
  readonly type: number;
  readonly shape: readonly number[];
  readonly data: MessagePiece;
}

/** Location of a tensor's elements in another file. */
export interface External {
  readonly location: string;
  readonly offset: number;
  readonly length: number;
}

/** The message of a tensor. @param external location of its elements, if they are in another file */
export function tensorPieces({ name, type, shape, data }: NewTensor, external?: External): MessagePiece[] {
  writer.start();
  for (const dimension of shape) writer.integer(tensorField.dims, dimension);
  writer.integer(tensorField.type, type);
  if (name !== '') writer.text(tensorField.name, name);
  const head = { bytes: writer.take() };
  return [head, ...(external === undefined ? piecesField(tensorField.raw, [data]) : externalPieces(external))];
}

/** Fields of a tensor for an external location. */
export function externalPieces({ location, offset, length }: External): MessagePiece[] {
  const entries = Object.entries({ location, offset: String(offset), length: String(length) });
  const fields = entries.map(([key, value]) => attributeWriter.start().text(1, key).text(2, value).take());
  writer.start();
  for (const field of fields) writer.bytes(tensorField.external, field);
  return [{ bytes: writer.integer(tensorField.location, 1).take() }];
}

/** int64 elements, little-endian. */
export function int64Piece(values: readonly Int64[]): MessagePiece {
  const bytes = new Uint8Array(8 * values.length);
  const view = new DataView(bytes.buffer);
  values.forEach((value, i) => {
    view.setBigInt64(8 * i, checkedInt64(value), true);
  });
  return { bytes };
}
