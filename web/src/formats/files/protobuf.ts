/**
 * Protobuf, read by schemas: of bytes in memory, or of a file in steps. Weights are never loaded. The first pass over a file reads the skeleton:
 * everything but elements and other long values. The skeleton is then parsed in memory, and each field keeps its offset in the file.
 * Reference: protobuf.dev/programming-guides/encoding
 */

import { ScalepointError } from '../../core/errors.js';
import { type ByteSource, joinedBytes } from './bytes.js';
import { countBefore } from './search.js';

/** @throws ScalepointError `BAD_FILE` */
export function malformed(message: string, byteOffset: number, tensor?: string): never {
  throw new ScalepointError('BAD_FILE', message, { byteOffset, tensor });
}

// ------------------------------------------------------------------------------------------------------------------------- fields

/** Encoding of a value: varint, 8 bytes, length and bytes, 4 bytes. Groups are refused. */
type WireType = 0 | 1 | 2 | 5;

/** An int64: a number up to a magnitude of 2^53 - 1, and a bigint beyond. */
export type Int64 = number | bigint;

/** A field of a message. Offsets are from the start of the file. */
export interface Field {
  readonly number: number;
  readonly wire: WireType;
  /** Offset of its tag. */
  readonly start: number;
  /** Offset of its value, behind the length if it has one. */
  readonly begin: number;
  readonly end: number;
  /** Lower and upper 32 bits of a varint. */
  readonly low: number;
  readonly high: number;
}

/** Bytes in memory, and their offset in the file. */
export interface LoadedRange {
  readonly begin: number;
  readonly bytes: Uint8Array;
}

/** The last varint read: its lower and upper 32 bits, and its end. */
const varint = { low: 0, high: 0, end: 0 };

/** Reads a varint at an offset of the file. `end`: the end of its message. */
export function readVarint({ begin, bytes }: LoadedRange, at: number, end: number): typeof varint {
  let [low, high] = [0, 0];
  for (let i = 0; ; i++) {
    if (i === 10) malformed('a number has more than 10 bytes', at);
    const byte = bytes[at - begin + i];
    if (byte === undefined || at + i >= end) malformed('the file ends within a number, or a message does', at);
    const bits = (byte as number) & 0x7f;
    if (i < 4) low |= bits << (7 * i);
    else if (i === 4) {
      low |= bits << 28;
      high |= bits >>> 4;
    } else high |= bits << (7 * i - 32);
    if ((byte as number) < 0x80) {
      varint.low = low >>> 0;
      varint.high = high >>> 0;
      varint.end = at + i + 1;
      return varint;
    }
  }
}

/** Bytes needed to read a field up to its value: those of its longest head. */
const mostHead = 20;

/** Reads the field at an offset, whose head must be in memory. @throws ScalepointError `BAD_FILE` */
function fieldAt(range: LoadedRange, start: number, end: number): Field {
  const tag = readVarint(range, start, end);
  const [number, wire] = [tag.high === 0 ? tag.low >>> 3 : 0, tag.low & 7];
  if (number === 0 || number >= 2 ** 29) malformed(`a field has the number ${number}`, start);
  const at = tag.end;
  if (wire === 0) {
    const { low, high, end: after } = readVarint(range, at, end);
    return { number, wire, start, begin: at, end: after, low, high };
  }
  if (wire === 1 || wire === 5) {
    const after = at + (wire === 1 ? 8 : 4);
    if (after > end) malformed(`field ${number} reaches beyond its message`, start);
    return { number, wire, start, begin: at, end: after, low: 0, high: 0 };
  }
  if (wire !== 2) malformed(`field ${number} has the wire type ${wire}${wire < 5 ? ', a group' : ''}`, start);
  const { low, high, end: begin } = readVarint(range, at, end);
  const after = begin + low + high * 2 ** 32;
  if (after > end) malformed(`field ${number} reaches beyond its message`, start);
  return { number, wire: 2, start, begin, end: after, low: 0, high: 0 };
}

// ----------------------------------------------------------------------------------------------------------------------- skeleton

/** The parts of a file that are in memory. */
export class Skeleton {
  readonly #ranges: LoadedRange[] = [];
  #last: LoadedRange | undefined;

  /** Adds a range behind all others. */
  add(range: LoadedRange): void {
    if (range.bytes.length > 0) this.#ranges.push(range);
  }

  /** The range that holds a byte; undefined if it was not read. */
  find(at: number): LoadedRange | undefined {
    const holds = (range: LoadedRange | undefined) =>
      range !== undefined && at >= range.begin && at < range.begin + range.bytes.length;
    if (holds(this.#last)) return this.#last;
    const found = this.#ranges[countBefore(this.#ranges, ({ begin }) => begin <= at) - 1];
    if (!holds(found)) return undefined;
    this.#last = found;
    return found;
  }

  /** Begin of the first range behind a byte. */
  next(at: number): number {
    return this.#ranges[countBefore(this.#ranges, ({ begin }) => begin <= at)]?.begin ?? Number.POSITIVE_INFINITY;
  }

  /** The bytes [begin, end), sharing memory with the skeleton; undefined if some were not read. */
  bytes(begin: number, end: number): Uint8Array | undefined {
    if (begin === end) return new Uint8Array(0);
    const range = this.find(begin);
    if (range === undefined || end > range.begin + range.bytes.length) return undefined;
    return range.bytes.subarray(begin - range.begin, end - range.begin);
  }

  /** The fields of a message that lies at [begin, end). */
  *fields(begin: number, end: number): Generator<Field> {
    for (let at = begin; at < end; ) {
      const field = this.field(at, end);
      yield field;
      at = field.end;
    }
  }

  /** The fields of a message that have a number. */
  fieldsOf({ begin, end }: Pick<Field, 'begin' | 'end'>, number: number): Field[] {
    return [...this.fields(begin, end)].filter((field) => field.number === number);
  }

  /** The field at an offset of a message. `end`: the end of that message. */
  field(at: number, end: number): Field {
    const range = this.find(at);
    if (range === undefined) throw new Error(`byte ${at} was not read`);
    return fieldAt(range, at, end);
  }
}

// ------------------------------------------------------------------------------------------------------------------------ schemas

/** A field of messages, which may occur several times. */
export interface FieldSchema<T> {
  readonly number: number;
  /** Words for it in errors. */
  readonly what: string;
  /** Schema of the message that it holds, with long values that the skeleton may leave out. */
  readonly message?: () => MessageSchema;
  /** True for elements of tensors, which the skeleton leaves out unless they are few. */
  readonly isData?: boolean;
  /** The value without the field. */
  readonly initial: T;
  /** The value with another occurrence. @param before the value so far */
  next(reader: MessageReader, field: Field, before: T): T;
}

/** The fields of a message by name. Fields that it lacks are skipped. */
// biome-ignore lint/suspicious/noExplicitAny: each field has another type of values.
export type MessageSchema = Readonly<Record<string, FieldSchema<any>>>;

/** The values of a message. */
export type Message<Schema extends MessageSchema> = {
  readonly [Name in keyof Schema]: Schema[Name] extends FieldSchema<infer T> ? T : never;
};

/** Reads the value of one field. @param what words for it in errors */
export type ReadField<T> = (reader: MessageReader, field: Field, what: string) => T;

/** A field whose last occurrence counts. */
export function one<T>(number: number, what: string, read: ReadField<T>, otherwise: T): FieldSchema<T> {
  return { number, what, initial: otherwise, next: (reader, field) => read(reader, field, what) };
}

/** A list without values, which all messages share. */
const noValues = Object.freeze([]) as unknown as never[];

/** Adds a value to a list of a message. */
function appended<T>(list: T[], value: T): T[] {
  if (list.length === 0) return [value];
  list.push(value);
  return list;
}

/** A field that occurs any number of times. */
export function many<T>(number: number, what: string, read: ReadField<T>): FieldSchema<T[]> {
  return {
    number,
    what,
    initial: noValues,
    next: (reader, field, before) => appended(before, read(reader, field, what)),
  };
}

/** A field with any number of messages of a schema, whose long values the skeleton may leave out. */
export function messages<Schema extends MessageSchema>(
  number: number,
  what: string,
  message: () => Schema,
): FieldSchema<Message<Schema>[]> {
  return { ...many(number, what, (reader, field) => reader.inside(message(), field, what)), message };
}

/** A field that is not read, and its message, if that may hold long values. */
export function unread(number: number, message?: () => MessageSchema): FieldSchema<undefined> {
  return { number, what: '', ...(message && { message }), initial: undefined, next: () => undefined };
}

/** A field with a list of integers, one or many packed in each occurrence. */
export function integers(number: number, what: string): FieldSchema<Int64[]> {
  return { number, what, initial: noValues, next: (reader, field, before) => reader.integers(field, what, before) };
}

/** A schema, prepared for reading. A file may have a hundred thousand messages of it. */
interface PreparedSchema {
  /** The fields by their numbers. */
  readonly fields: readonly ({ readonly name: string; readonly reads: FieldSchema<unknown> } | undefined)[];
  /** The values of an empty message. */
  readonly empty: Readonly<Record<string, unknown>>;
}

const preparedSchemas = new WeakMap<MessageSchema, PreparedSchema>();

function prepared(schema: MessageSchema): PreparedSchema {
  const known = preparedSchemas.get(schema);
  if (known !== undefined) return known;
  const entries = Object.entries(schema);
  const fields: { name: string; reads: FieldSchema<unknown> }[] = [];
  for (const [name, reads] of entries) fields[reads.number] = { name, reads };
  const made = { fields, empty: Object.fromEntries(entries.map(([name, { initial }]) => [name, initial])) };
  preparedSchemas.set(schema, made);
  return made;
}

/** The schema of a message in a field; undefined if the field holds none, or an unknown one. */
export function messageIn(schema: MessageSchema | undefined, number: number): MessageSchema | undefined {
  return schema && prepared(schema).fields[number]?.reads.message?.();
}

/** The signed integer of a varint: a bigint where a number would be rounded. */
function signed({ low, high }: Pick<Field, 'low' | 'high'>): Int64 {
  const value = (high | 0) * 2 ** 32 + low;
  return Number.isSafeInteger(value) ? value : (BigInt(high | 0) << 32n) + BigInt(low);
}

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

// Kinds of values.
export const text: ReadField<string> = (reader, field, what) => {
  const bytes = reader.bytes(field, what);
  try {
    return strict.decode(bytes);
  } catch {
    return malformed(`${what} is not UTF-8`, field.start);
  }
};
export const bytes: ReadField<Uint8Array> = (reader, field, what) => reader.bytes(field, what);
/** The place of a value of several bytes. */
export const place: ReadField<Field> = (reader, field, what) => reader.expect(field, 2, what);
/** The place of a value in any encoding. */
export const anyPlace: ReadField<Field> = (_reader, field) => field;
export const int64: ReadField<Int64> = (reader, field, what) => signed(reader.expect(field, 0, what));
/** A signed integer of magnitude up to 2^53 - 1. */
export const integer: ReadField<number> = (reader, field, what) => {
  const value = int64(reader, field, what);
  return typeof value === 'number' ? value : malformed(`${what} is ${value}`, field.start);
};
export const float: ReadField<number> = (reader, field, what) => {
  const { buffer, byteOffset } = reader.skeleton.bytes(reader.expect(field, 5, what).begin, field.end) as Uint8Array;
  return new DataView(buffer, byteOffset).getFloat32(0, true);
};

/** Reads messages of a skeleton. @throws ScalepointError `BAD_FILE` */
export class MessageReader {
  readonly skeleton: Skeleton;
  #depth = 0;

  constructor(skeleton: Skeleton) {
    this.skeleton = skeleton;
  }

  /** The values of a message, which may come in several parts. */
  read<Schema extends MessageSchema>(
    schema: Schema,
    ...parts: readonly Pick<Field, 'begin' | 'end'>[]
  ): Message<Schema> {
    const { fields, empty } = prepared(schema);
    const values = { ...empty };
    if (++this.#depth > mostDepth) nestedTooDeeply(parts[0]?.begin ?? 0);
    for (const { begin, end } of parts) {
      for (let at = begin; at < end; ) {
        const field = this.skeleton.field(at, end);
        const known = fields[field.number];
        if (known !== undefined) values[known.name] = known.reads.next(this, field, values[known.name]);
        at = field.end;
      }
    }
    this.#depth--;
    return values as Message<Schema>;
  }

  /** The values of a message in a field. */
  inside<Schema extends MessageSchema>(schema: Schema, field: Field, what: string): Message<Schema> {
    return this.read(schema, this.expect(field, 2, what));
  }

  /** A field of a wire type. */
  expect(field: Field, wire: WireType, what: string): Field {
    if (field.wire !== wire) malformed(`${what} has the wire type ${field.wire} in place of ${wire}`, field.start);
    return field;
  }

  bytes(field: Field, what: string): Uint8Array {
    const { begin, end, start } = this.expect(field, 2, what);
    return this.skeleton.bytes(begin, end) ?? malformed(`${what} has ${end - begin} bytes, which is too long`, start);
  }

  /** Adds the integers of a repeated field to a list. */
  integers(field: Field, what: string, to: Int64[]): Int64[] {
    if (field.wire !== 2) return appended(to, int64(this, field, what));
    this.bytes(field, what);
    let list = to;
    for (let at = field.begin; at < field.end; ) {
      const read = readVarint(this.skeleton.find(at) as LoadedRange, at, field.end);
      list = appended(list, signed(read));
      at = read.end;
    }
    return list;
  }
}

function nestedTooDeeply(at: number): never {
  return malformed(`messages are nested too deeply: more than ${mostDepth} levels`, at);
}

// --------------------------------------------------------------------------------------------------------------------------- scan

/** Largest message that is always part of the skeleton. */
const smallMessage = 256;
/** Largest data of a tensor, and largest other value, in the skeleton. */
const smallData = 256;
const smallValue = 1 << 16;
/** Bytes of the first read behind a gap, which mostly needs only the next head. Short reads of local files are cheap. */
const firstWindow = 1 << 17;
const nearWindow = 1 << 12;
/** Growth of each further read, up to the longest. */
const windowGrowth = 16;
const longestWindow = 1 << 20;
/** Largest depth of messages, as in protobuf's own readers. */
const mostDepth = 100;

/** Scans a file once, from start to end. */
class Scanner {
  readonly skeleton = new Skeleton();
  readonly #source: ByteSource;
  /** Bytes in memory, and the offset up to which they are in the skeleton or skipped. */
  #window: LoadedRange = { begin: 0, bytes: new Uint8Array(0) };
  #done = 0;
  /** Next bytes for the skeleton. */
  #pending: Uint8Array[] = [];
  #pendingBegin = 0;
  /** Bytes of the first read behind a gap, and of the last read. */
  readonly #first: number;
  #length: number;

  constructor(source: ByteSource) {
    this.#source = source;
    this.#first = source.identity === undefined ? firstWindow : nearWindow;
    this.#length = this.#first;
  }

  /** Takes bytes up to an offset into the skeleton. */
  #keep(end: number): void {
    const { begin, bytes } = this.#window;
    const piece = bytes.slice(this.#done - begin, Math.max(0, end - begin));
    this.#pending.push(piece);
    this.#done += piece.length;
  }

  /** Skips a value, whose head is in memory. */
  #skip({ begin, end }: Field): void {
    this.#keep(begin);
    this.#flush();
    this.#done = end;
    this.#pendingBegin = end;
  }

  #flush(): void {
    this.skeleton.add({ begin: this.#pendingBegin, bytes: joinedBytes(this.#pending) });
    this.#pending = [];
  }

  /** True if the head of the field at an offset is in memory. */
  #isLoaded(at: number): boolean {
    const { begin, bytes } = this.#window;
    return at >= begin && Math.min(at + mostHead, this.#source.size) <= begin + bytes.length;
  }

  /** Loads the head of the field at an offset. */
  async #load(at: number): Promise<LoadedRange> {
    for (;;) {
      if (this.#isLoaded(at)) return this.#window;
      const end = this.#window.begin + this.#window.bytes.length;
      this.#length = this.#done < end ? Math.min(longestWindow, this.#length * windowGrowth) : this.#first;
      if (this.#done < end) this.#keep(Math.min(at, end));
      await this.#read(this.#length);
    }
  }

  /** Reads the next bytes. */
  async #read(length: number): Promise<void> {
    const begin = this.#done;
    this.#window = { begin, bytes: await this.#source.read(begin, Math.min(this.#source.size, begin + length)) };
  }

  /** Scans a message. */
  async scan(begin: number, end: number, schema: MessageSchema, depth = 0): Promise<void> {
    if (depth > mostDepth) nestedTooDeeply(begin);
    const { fields } = prepared(schema);
    for (let at = begin; at < end; ) {
      const field = fieldAt(this.#isLoaded(at) ? this.#window : await this.#load(at), at, end);
      const { message = undefined, isData = false } = fields[field.number]?.reads ?? {};
      const length = field.end - field.begin;
      if (field.wire === 2) {
        if (message !== undefined && length > smallMessage) {
          await this.scan(field.begin, field.end, message(), depth + 1);
        } else if (length > (isData ? smallData : smallValue)) this.#skip(field);
      }
      at = field.end;
    }
  }

  /** Finishes at the end of the file. */
  async finish(): Promise<Skeleton> {
    const { size } = this.#source;
    for (;;) {
      const { begin, bytes } = this.#window;
      if (this.#done < begin + bytes.length) this.#keep(begin + bytes.length);
      if (this.#done >= size) break;
      await this.#read(longestWindow);
    }
    this.#flush();
    return this.skeleton;
  }
}

/** Reads the skeleton of a file that holds one message. @throws ScalepointError `BAD_FILE` */
export async function readSkeleton(source: ByteSource, schema: MessageSchema): Promise<Skeleton> {
  const scanner = new Scanner(source);
  await scanner.scan(0, source.size, schema);
  return scanner.finish();
}
