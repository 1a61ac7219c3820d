/**
 * Reads pickles as data. The opcodes build values on a stack; names come from a fixed list, and nothing is imported, called or executed.
 * Reference: Lib/pickletools.py of CPython 3.13, which describes each opcode; protocols 2 to 5.
 */
import { ScalepointError } from '../../core/errors.js';
import { quoted } from '../files/bytes.js';
import {
  type DictValue,
  type GlobalValue,
  type ListValue,
  type Meaning,
  meaningOf,
  type PickleValue,
  type TensorValue,
} from './values.js';

/** Largest pickle in bytes. A tensor takes some 200. */
export const mostPickleBytes = 2 ** 27;

/** Most memory of the values of a pickle in bytes, so that a small file cannot fill the memory. A tensor takes some 3000 with its parts. */
const mostMemory = 2 ** 29;

/** Bytes that values take in V8 at most. `value` is that of a number, with its place in an array that grew; `entry` that in a map. */
const memory = { value: 32, text: 32, bytes: 112, object: 128, list: 96, dict: 240, entry: 64, tensor: 192 };

/** Largest integer in bytes. */
const mostIntegerBytes = 64;

/** Most dimensions of a tensor. */
const mostDimensions = 64;

/** Longest name of a module or class. */
const mostNameBytes = 1000;

/** The pickle goes on behind the bytes at hand. */
class UnfinishedPickle extends Error {}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** A whole number from 0 on; undefined for other values. */
function countOf(value: PickleValue | undefined): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

/** Lists of such numbers. */
function countsOf(value: PickleValue | undefined): number[] | undefined {
  if (!isKind(value, 'list') || value.items.length > mostDimensions) return undefined;
  const counts = value.items.map(countOf);
  return counts.includes(undefined) ? undefined : (counts as number[]);
}

/** True for a value of a kind. */
export function isKind<K extends (PickleValue & object & { kind: string })['kind']>(
  value: PickleValue | undefined,
  kind: K,
): value is Extract<PickleValue, { kind: K }> {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === kind;
}

/** Reads a pickle from the beginning of its bytes. */
class PickleReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #origin: number;
  #at = 0;
  /** Offset of the current opcode. */
  #opcodeAt = 0;
  #counted = 0;
  #stack: PickleValue[] = [];
  /** Lengths of the stack at each mark. */
  readonly #marks: number[] = [];
  readonly #memo = new Map<number, PickleValue>();

  /** @param origin offset of the bytes in the file, for errors */
  constructor(bytes: Uint8Array, origin: number) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#origin = origin;
  }

  /** Offset behind the pickle, in its bytes. */
  get end(): number {
    return this.#at;
  }

  /** @throws ScalepointError `BAD_FILE` with the position of the opcode */
  fail(message: string): never {
    throw new ScalepointError('BAD_FILE', `pickle: ${message}`, { byteOffset: this.#origin + this.#opcodeAt });
  }

  /** The value. @throws ScalepointError `BAD_FILE`; UnfinishedPickle if it goes on behind the bytes */
  read(): PickleValue {
    for (;;) {
      this.#opcodeAt = this.#at;
      const opcode = this.#byte();
      if (opcode === 0x2e) {
        if (this.#marks.length > 0 || this.#stack.length !== 1) this.fail('its end leaves several values, or none');
        return this.#stack[0] as PickleValue;
      }
      const step = PickleReader.#steps[opcode];
      // Not read: protocols 0 and 1, registered extensions, buffers outside of the file.
      if (step === undefined) this.fail(`opcode 0x${opcode.toString(16)} is not read`);
      step(this);
    }
  }

  // ---------------------------------------------------------------------------------------------------------------- bytes

  #take(length: number): number {
    const at = this.#at;
    if (at + length > this.#bytes.length) throw new UnfinishedPickle();
    this.#at = at + length;
    return at;
  }

  #byte(): number {
    return this.#view.getUint8(this.#take(1));
  }

  #uint32(): number {
    return this.#view.getUint32(this.#take(4), true);
  }

  #uint64(): number {
    const value = Number(this.#view.getBigUint64(this.#take(8), true));
    if (value > mostPickleBytes) this.fail(`a length of ${value} bytes is too large`);
    return value;
  }

  /** Bytes of the pickle, without a copy. */
  #slice(length: number): Uint8Array {
    if (length > mostPickleBytes) this.fail(`a length of ${length} bytes is too large`);
    const at = this.#take(length);
    this.#count(memory.bytes);
    return this.#bytes.subarray(at, at + length);
  }

  #text(length: number): string {
    const bytes = this.#slice(length);
    this.#count(memory.text + 2 * length);
    try {
      return utf8.decode(bytes);
    } catch {
      return this.fail('a text is not UTF-8');
    }
  }

  /** A line without its end. */
  #line(): string {
    const begin = this.#at;
    const end = this.#bytes.indexOf(0x0a, begin);
    if (end < 0 && this.#bytes.length - begin <= mostNameBytes) throw new UnfinishedPickle();
    if (end < 0 || end - begin > mostNameBytes) this.fail(`a name has more than ${mostNameBytes} bytes`);
    const text = this.#text(end - begin);
    this.#at = end + 1;
    return text;
  }

  /** A little-endian integer with a sign. */
  #integer(length: number): number | bigint {
    if (length > mostIntegerBytes) this.fail(`an integer has more than ${mostIntegerBytes} bytes`);
    let value = 0n;
    for (const byte of this.#slice(length).toReversed()) value = (value << 8n) | BigInt(byte);
    value = BigInt.asIntN(8 * length, value);
    const small = Number(value);
    return Number.isSafeInteger(small) ? small : value;
  }

  // ---------------------------------------------------------------------------------------------------------------- stack

  /** Counts bytes before they are taken. Those given back count, too, as a few bytes of a packed pickle can ask for many values. */
  #count(bytes: number): void {
    this.#counted += bytes;
    if (this.#counted > mostMemory) this.fail(`its values take more than ${mostMemory} bytes of memory`);
  }

  #push(value: PickleValue): void {
    this.#count(memory.value);
    this.#stack.push(value);
  }

  #list(items: PickleValue[]): ListValue {
    this.#count(memory.list + memory.value * items.length);
    return { kind: 'list', items };
  }

  #dict(): DictValue {
    this.#count(memory.dict);
    return { kind: 'dict', entries: new Map() };
  }

  #pop(): PickleValue {
    if (this.#stack.length <= (this.#marks.at(-1) ?? 0)) this.fail('a value is missing on the stack');
    return this.#stack.pop() as PickleValue;
  }

  #top(): PickleValue {
    if (this.#stack.length <= (this.#marks.at(-1) ?? 0)) this.fail('a value is missing on the stack');
    return this.#stack.at(-1) as PickleValue;
  }

  /** Takes the values since the last mark off the stack. */
  #popMark(): PickleValue[] {
    const mark = this.#marks.pop();
    if (mark === undefined) this.fail('a mark is missing on the stack');
    return this.#stack.splice(mark);
  }

  /** Takes values off the stack, in the order in which they were put there. */
  #popMany(count: number): PickleValue[] {
    const items: PickleValue[] = [];
    for (let i = 0; i < count; i++) items.unshift(this.#pop());
    return items;
  }

  #mark(): void {
    this.#count(memory.value);
    this.#marks.push(this.#stack.length);
  }

  #append(items: readonly PickleValue[]): void {
    const to = this.#top();
    if (isKind(to, 'other')) return;
    if (!isKind(to, 'list')) this.fail('values are appended to something that is not a list');
    // An array has room for 17 as soon as it grows.
    this.#count(memory.value * items.length + (to.items.length === 0 ? memory.object : 0));
    for (const item of items) to.items.push(item);
  }

  #set(items: readonly PickleValue[]): void {
    const to = this.#top();
    if (items.length % 2 !== 0) this.fail('a key has no value');
    if (isKind(to, 'other')) return;
    if (!isKind(to, 'dict')) this.fail('keys are set in something that is not a dictionary');
    this.#count((memory.entry / 2) * items.length);
    for (let i = 0; i < items.length; i += 2) to.entries.set(items[i] as PickleValue, items[i + 1] as PickleValue);
  }

  #memoize(index: number): void {
    this.#count(memory.entry);
    this.#memo.set(index, this.#top());
  }

  #recall(index: number): void {
    if (!this.#memo.has(index)) this.fail(`the memo has no value ${index}`);
    this.#push(this.#memo.get(index) as PickleValue);
  }

  // ------------------------------------------------------------------------------------------------------------------ names

  /** A name of the list. @throws ScalepointError naming it */
  #global(module: string, name: string): void {
    const path = `${module}.${name}`;
    const meaning = meaningOf(path);
    if (meaning === undefined) {
      this.fail(`it asks for ${quoted(path)}, which is not read: save a state_dict, not a whole module`);
    }
    this.#count(memory.object + 2 * path.length);
    this.#push({ kind: 'global', path, meaning });
  }

  #stackGlobal(): void {
    const [name, module] = [this.#pop(), this.#pop()];
    if (typeof name !== 'string' || typeof module !== 'string') this.fail('the name of a class is not a text');
    this.#global(module, name);
  }

  /** The value that a call stands for. */
  #call(callee: PickleValue, given: PickleValue): PickleValue {
    if (!isKind(callee, 'global')) this.fail('it calls something that is not a name');
    if (!isKind(given, 'list')) this.fail(`the arguments of ${callee.path} are not a tuple`);
    const { items } = given;
    switch (callee.meaning.kind) {
      case 'dict':
        return this.#dictOf(callee.path, items);
      case 'list': {
        const from = isKind(items[0], 'list') ? items[0].items : [];
        this.#count(memory.value * from.length);
        return this.#list([...from]);
      }
      case 'tensor':
        return this.#tensorOf(callee, callee.meaning, items);
      case 'parameter':
        return isKind(items[0], 'tensor') ? items[0] : this.fail(`${callee.path} is called without a tensor`);
      case 'fromType': {
        const [rebuild, type, more] = items;
        if (!isKind(type, 'global')) this.fail(`${callee.path} is called without a class`);
        if (!isKind(rebuild, 'global') || rebuild.meaning.kind === 'fromType') {
          this.fail(`${callee.path} is called without a function that rebuilds a tensor`);
        }
        return this.#call(rebuild, more ?? null);
      }
      case 'other':
        this.#count(memory.object);
        return { kind: 'other', path: callee.path };
      default:
        return this.fail(`it calls ${callee.path}`);
    }
  }

  #dictOf(path: string, items: readonly PickleValue[]): DictValue {
    const made = this.#dict();
    for (const argument of items) {
      if (isKind(argument, 'dict')) {
        this.#count(memory.entry * argument.entries.size);
        for (const [key, value] of argument.entries) made.entries.set(key, value);
      }
      if (!isKind(argument, 'list')) continue;
      this.#count(memory.entry * argument.items.length);
      for (const pair of argument.items) {
        if (!isKind(pair, 'list') || pair.items.length !== 2)
          this.fail(`${path} is made of something other than pairs`);
        made.entries.set(pair.items[0] as PickleValue, pair.items[1] as PickleValue);
      }
    }
    return made;
  }

  #tensorOf(
    { path }: GlobalValue,
    { typed }: Extract<Meaning, { kind: 'tensor' }>,
    items: readonly PickleValue[],
  ): TensorValue {
    const [storage, first, size, stride] = items;
    if (!isKind(storage, 'storage')) this.fail(`${path} is called without a storage`);
    const [offset, shape, strides] = [countOf(first), countsOf(size), countsOf(stride)];
    if (offset === undefined || shape === undefined || strides?.length !== shape.length) {
      this.fail(`${path} is called with a wrong offset, size or stride`);
    }
    const [given, metadata] = typed ? [items[6], items[7]] : [undefined, items[6]];
    if (typed && (!isKind(given, 'global') || given.meaning.kind !== 'elementType')) {
      this.fail(`${path} is called without an element type`);
    }
    // Bits of a view that negates its elements, or conjugates them.
    if (isKind(metadata, 'dict')) this.#count(memory.value * metadata.entries.size);
    if (isKind(metadata, 'dict') && [...metadata.entries.values()].includes(true)) {
      this.fail('a tensor is a negated or conjugated view; save its copy');
    }
    const type = isKind(given, 'global') && given.meaning.kind === 'elementType' ? given.meaning.type : storage.type;
    this.#count(memory.tensor + 2 * memory.value * shape.length);
    return { kind: 'tensor', storage, type, offset, shape, strides, at: this.#origin + this.#opcodeAt };
  }

  #storage(id: PickleValue): PickleValue {
    const items = isKind(id, 'list') ? id.items : [];
    const [word, type, key, , size, view] = items;
    const count = countOf(size);
    if (word !== 'storage' || !isKind(type, 'global') || type.meaning.kind !== 'storage' || count === undefined) {
      this.fail('a persistent value is not a storage');
    }
    if (typeof key !== 'string') this.fail('the key of a storage is not a text');
    const first = isKind(view, 'list') ? countOf(view.items[1]) : 0;
    if (first === undefined) this.fail('the view of a storage has no offset');
    const at = this.#origin + this.#opcodeAt;
    this.#count(memory.object);
    return { kind: 'storage', key, type: type.meaning.type, count, first, at };
  }

  /** Sets the state of an object. Only objects whose state does not matter have one. */
  #build(): void {
    this.#pop();
    const to = this.#top();
    if (isKind(to, 'dict') || isKind(to, 'other') || isKind(to, 'tensor')) return;
    this.fail(`it sets the state of ${isKind(to, 'global') ? to.path : 'something that has none'}`);
  }

  // ---------------------------------------------------------------------------------------------------------------- opcodes

  /** Steps by opcode. Lists stand for lists, tuples and sets. */
  static readonly #steps: Readonly<Record<number, (to: PickleReader) => void>> = {
    // Stack and memo.
    40: (to) => to.#mark(),
    48: (to) => void (to.#marks.at(-1) === to.#stack.length ? to.#marks.pop() : to.#pop()),
    49: (to) => void to.#popMark(),
    50: (to) => to.#push(to.#top()),
    104: (to) => to.#recall(to.#byte()),
    106: (to) => to.#recall(to.#uint32()),
    113: (to) => to.#memoize(to.#byte()),
    114: (to) => to.#memoize(to.#uint32()),
    148: (to) => to.#memoize(to.#memo.size),

    // Plain values.
    78: (to) => to.#push(null),
    136: (to) => to.#push(true),
    137: (to) => to.#push(false),
    74: (to) => to.#push(to.#view.getInt32(to.#take(4), true)),
    75: (to) => to.#push(to.#byte()),
    77: (to) => to.#push(to.#view.getUint16(to.#take(2), true)),
    138: (to) => to.#push(to.#integer(to.#byte())),
    139: (to) => to.#push(to.#integer(to.#uint32())),
    71: (to) => to.#push(to.#view.getFloat64(to.#take(8))),
    88: (to) => to.#push(to.#text(to.#uint32())),
    84: (to) => to.#push(to.#text(to.#uint32())),
    140: (to) => to.#push(to.#text(to.#byte())),
    85: (to) => to.#push(to.#text(to.#byte())),
    141: (to) => to.#push(to.#text(to.#uint64())),
    66: (to) => to.#push(to.#slice(to.#uint32())),
    67: (to) => to.#push(to.#slice(to.#byte())),
    142: (to) => to.#push(to.#slice(to.#uint64())),
    150: (to) => to.#push(to.#slice(to.#uint64())),

    // Lists and dictionaries.
    41: (to) => to.#push(to.#list([])),
    93: (to) => to.#push(to.#list([])),
    143: (to) => to.#push(to.#list([])),
    125: (to) => to.#push(to.#dict()),
    116: (to) => to.#push(to.#list(to.#popMark())),
    108: (to) => to.#push(to.#list(to.#popMark())),
    145: (to) => to.#push(to.#list(to.#popMark())),
    133: (to) => to.#push(to.#list(to.#popMany(1))),
    134: (to) => to.#push(to.#list(to.#popMany(2))),
    135: (to) => to.#push(to.#list(to.#popMany(3))),
    97: (to) => to.#append(to.#popMany(1)),
    101: (to) => to.#append(to.#popMark()),
    144: (to) => to.#append(to.#popMark()),
    115: (to) => to.#set(to.#popMany(2)),
    117: (to) => to.#set(to.#popMark()),
    100(to) {
      const items = to.#popMark();
      to.#push(to.#dict());
      to.#set(items);
    },

    // Names, calls and storages.
    99: (to) => to.#global(to.#line(), to.#line()),
    147: (to) => to.#stackGlobal(),
    82: (to) => to.#push(to.#call(...(to.#popMany(2) as [PickleValue, PickleValue]))),
    129: (to) => to.#push(to.#call(...(to.#popMany(2) as [PickleValue, PickleValue]))),
    98: (to) => to.#build(),
    81: (to) => to.#push(to.#storage(to.#pop())),
    // Classes of before protocol 2.
    105(to) {
      to.#global(to.#line(), to.#line());
      to.fail('opcode 0x69 is not read');
    },

    // Frames and the version.
    128(to) {
      const version = to.#byte();
      if (version < 2 || version > 5) to.fail(`protocol ${version} is not read; 2 to 5 are`);
    },
    149: (to) => void to.#take(8),
  };
}

/**
 * Reads a pickle from the beginning of its bytes, and where it ends in them; undefined if it goes on behind them.
 * @param origin offset of the bytes in the file, for errors
 * @throws ScalepointError `BAD_FILE`
 */
export function pickleIn(bytes: Uint8Array, origin: number): { value: PickleValue; end: number } | undefined {
  const reader = new PickleReader(bytes, origin);
  try {
    return { value: reader.read(), end: reader.end };
  } catch (error) {
    if (error instanceof UnfinishedPickle) return undefined;
    throw error;
  }
}
