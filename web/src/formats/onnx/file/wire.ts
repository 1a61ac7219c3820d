/**
 * The wire format of protobuf, read from a file in steps. Weights are never loaded. The first pass reads the skeleton: everything but the
 * data of tensors and other long values. The skeleton is then parsed in memory, and each field keeps its offset in the file.
 * Reference: protobuf.dev/programming-guides/encoding
 */

import { ScalepointError } from '../../../core/errors.js';
import type { ByteSource } from '../../files/bytes.js';
import { countBefore } from './search.js';

/** @throws ScalepointError `BAD_FILE` */
export function malformed(message: string, byteOffset: number, tensor?: string): never {
  throw new ScalepointError('BAD_FILE', message, { byteOffset, tensor });
}

// ------------------------------------------------------------------------------------------------------------------------- fields

/** Encoding of a value: varint, 8 bytes, length and bytes, 4 bytes. Groups are refused. */
export type WireType = 0 | 1 | 2 | 5;

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
      const range = this.find(at);
      if (range === undefined) throw new Error(`byte ${at} was not read`);
      const field = fieldAt(range, at, end);
      yield field;
      at = field.end;
    }
  }
}

// --------------------------------------------------------------------------------------------------------------------------- scan

/** Fields of a message that are messages, and fields that hold data. The parser may enter these messages only. */
export interface ScanSchema {
  readonly messages: Readonly<Record<number, ScanSchema>>;
  readonly data: readonly number[];
}

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
export const mostDepth = 100;

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
    const bytes = new Uint8Array(this.#pending.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const piece of this.#pending) {
      bytes.set(piece, at);
      at += piece.length;
    }
    this.skeleton.add({ begin: this.#pendingBegin, bytes });
    this.#pending = [];
  }

  /** Loads the head of the field at an offset. */
  async #load(at: number): Promise<LoadedRange> {
    const { size } = this.#source;
    for (;;) {
      const { begin, bytes } = this.#window;
      const end = begin + bytes.length;
      if (at >= begin && Math.min(at + mostHead, size) <= end) return this.#window;
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
  async scan(begin: number, end: number, schema: ScanSchema, depth = 0): Promise<void> {
    if (depth > mostDepth) malformed(`messages are nested too deeply: more than ${mostDepth} levels`, begin);
    for (let at = begin; at < end; ) {
      const field = fieldAt(await this.#load(at), at, end);
      const child = schema.messages[field.number];
      const length = field.end - field.begin;
      if (field.wire === 2) {
        if (child !== undefined && length > smallMessage) await this.scan(field.begin, field.end, child, depth + 1);
        else if (length > (schema.data.includes(field.number) ? smallData : smallValue)) this.#skip(field);
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
export async function readSkeleton(source: ByteSource, schema: ScanSchema): Promise<Skeleton> {
  const scanner = new Scanner(source);
  await scanner.scan(0, source.size, schema);
  return scanner.finish();
}
