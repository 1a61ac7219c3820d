/** Encodes messages of ONNX that are added to a model. */
import { attributeField, type Int64, nodeField, type OnnxNode, tensorField } from './proto.js';

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

// -------------------------------------------------------------------------------------------------------------------------- bytes

/** Fails for a number that is not a whole one, or rounded, and for integers that int64 does not hold. */
function checkedInt64(value: Int64): bigint {
  const isExact = typeof value === 'bigint' ? BigInt.asIntN(64, value) === value : Number.isSafeInteger(value);
  if (!isExact) throw new RangeError(`${value} is not an exact int64`);
  return BigInt(value);
}

/** Encodes an int64. Negative ones take ten bytes. */
function varint(value: Int64): number[] {
  const bytes: number[] = [];
  if (typeof value === 'number' && value >= 0 && value < 2 ** 31 && Number.isInteger(value)) {
    let small = value;
    for (; small > 127; small >>>= 7) bytes.push((small & 127) | 128);
    bytes.push(small);
    return bytes;
  }
  let rest = BigInt.asUintN(64, checkedInt64(value));
  while (rest >= 128n) {
    bytes.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  return [...bytes, Number(rest)];
}

export function integerField(number: number, value: Int64): number[] {
  return [...varint(number * 8), ...varint(value)];
}

function bytesField(number: number, bytes: ArrayLike<number>): number[] {
  return [...varint(number * 8 + 2), ...varint(bytes.length), ...Array.from(bytes)];
}

const utf8 = new TextEncoder();

export function textField(number: number, text: string): number[] {
  return bytesField(number, utf8.encode(text));
}

function floatField(number: number, value: number): number[] {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setFloat32(0, value, true);
  return [...varint(number * 8 + 5), ...bytes];
}

/** A field that holds pieces. */
export function piecesField(number: number, pieces: readonly MessagePiece[]): MessagePiece[] {
  return [{ bytes: Uint8Array.from([...varint(number * 8 + 2), ...varint(encodedSizeOf(pieces))]) }, ...pieces];
}

export function bytesPiece(bytes: readonly number[]): MessagePiece {
  return { bytes: Uint8Array.from(bytes) };
}

// ------------------------------------------------------------------------------------------------------------------------ messages

/** A value with its shape, as ValueInfoProto. */
export function valuePieces(name: string, type: number, shape: readonly number[]): MessagePiece[] {
  const dimensions = shape.flatMap((size) => piecesField(1, [bytesPiece(integerField(1, size))]));
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

/** A Cast to a type, given by number, named after its output. */
export function castNode(from: string, to: string, type: number): NewNode {
  return { opType: 'Cast', name: to, inputs: [from], outputs: [to], attributes: { to: type } };
}

function attributeBytes(name: string, value: AttributeValue): number[] {
  const bytes = textField(attributeField.name, name);
  if (typeof value === 'number')
    return [...bytes, ...integerField(attributeField.i, value), ...integerField(attributeField.type, 2)];
  if (typeof value === 'string')
    return [...bytes, ...textField(attributeField.s, value), ...integerField(attributeField.type, 3)];
  if ('float' in value) {
    return [...bytes, ...floatField(attributeField.f, value.float), ...integerField(attributeField.type, 1)];
  }
  const ints = value.flatMap((one) => integerField(attributeField.ints, one));
  return [...bytes, ...ints, ...integerField(attributeField.type, 7)];
}

/** An attribute as a field of a node. */
export function attributePieces(name: string, value: AttributeValue): MessagePiece[] {
  return piecesField(nodeField.attribute, [bytesPiece(attributeBytes(name, value))]);
}

/** Encoded attributes of a node. */
export function attributePiecesOf({ attributes }: Pick<OnnxNode, 'attributes'>): MessagePiece[] {
  return [...attributes.values()].map(({ start, end }) => ({ begin: start, end }));
}

/** Collects the bytes of a message. A result may have a hundred thousand nodes, so it goes without arrays of numbers. */
class Writer {
  #bytes = new Uint8Array(512);
  #length = 0;

  /** Begins a message. */
  start(): void {
    this.#length = 0;
  }

  #reserve(count: number): void {
    if (this.#length + count <= this.#bytes.length) return;
    const larger = new Uint8Array(2 * (this.#length + count));
    larger.set(this.#bytes);
    this.#bytes = larger;
  }

  bytesField(number: number, bytes: ArrayLike<number>): void {
    const head = [...varint(number * 8 + 2), ...varint(bytes.length)];
    this.#reserve(head.length + bytes.length);
    this.#bytes.set(head, this.#length);
    this.#bytes.set(bytes, this.#length + head.length);
    this.#length += head.length + bytes.length;
  }

  /** @param number less than 16 */
  textField(number: number, text: string): void {
    if (text.length > 127) {
      this.bytesField(number, utf8.encode(text));
      return;
    }
    // Write ASCII at once.
    this.#reserve(2 + text.length);
    const [bytes, at] = [this.#bytes, this.#length + 2];
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (code > 127) {
        this.bytesField(number, utf8.encode(text));
        return;
      }
      bytes[at + i] = code;
    }
    bytes[at - 2] = number * 8 + 2;
    bytes[at - 1] = text.length;
    this.#length = at + text.length;
  }

  /** The bytes of the message. */
  taken(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.#length);
  }
}

/** Keeps its memory from node to node. */
const writer = new Writer();

/** A node as a field of a graph or of a function. */
export function nodePieces(
  { opType, domain = '', name = '', inputs, outputs, attributes = {}, copied = [] }: NewNode,
  field: number,
): MessagePiece[] {
  writer.start();
  for (const input of inputs) writer.textField(nodeField.input, input);
  for (const output of outputs) writer.textField(nodeField.output, output);
  if (name !== '') writer.textField(nodeField.name, name);
  writer.textField(nodeField.opType, opType);
  for (const [key, value] of Object.entries(attributes)) {
    writer.bytesField(nodeField.attribute, attributeBytes(key, value));
  }
  if (domain !== '') writer.textField(nodeField.domain, domain);
  return piecesField(field, [{ bytes: writer.taken() }, ...copied]);
}

/** A tensor to be added, with elements from the plan or known bytes. */
export interface NewTensor {
  readonly name: string;
  /** Number of its type. */
  readonly type: number;
  readonly shape: readonly number[];
  readonly data: MessagePiece;
}

function headOf({ name, type, shape }: NewTensor): number[] {
  return [
    ...shape.flatMap((dimension) => integerField(tensorField.dims, dimension)),
    ...integerField(tensorField.type, type),
    ...(name === '' ? [] : textField(tensorField.name, name)),
  ];
}

/** The message of a tensor. */
export function tensorPieces(tensor: NewTensor): MessagePiece[] {
  return [bytesPiece(headOf(tensor)), ...piecesField(tensorField.raw, [tensor.data])];
}

/** Location of a tensor's elements in another file. */
export interface External {
  readonly location: string;
  readonly offset: number;
  readonly length: number;
}

/** Fields of a tensor for an external location. */
export function externalPieces({ location, offset, length }: External): MessagePiece[] {
  const entries = Object.entries({ location, offset: String(offset), length: String(length) });
  const fields = entries.flatMap(([key, value]) =>
    bytesField(tensorField.external, [...textField(1, key), ...textField(2, value)]),
  );
  return [bytesPiece([...fields, ...integerField(tensorField.location, 1)])];
}

/** The message of a tensor with external elements. */
export function externalTensorPieces(tensor: NewTensor, external: External): MessagePiece[] {
  return [bytesPiece(headOf(tensor)), ...externalPieces(external)];
}

/** A message of opset_import. */
export function opsetPieces(domain: string, version: number, field: number): MessagePiece[] {
  return piecesField(field, [
    bytesPiece([...(domain === '' ? [] : textField(1, domain)), ...integerField(2, version)]),
  ]);
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
