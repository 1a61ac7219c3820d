/** A strict JSON reader. `JSON.parse` silently keeps the last of duplicate keys, and its errors lack byte offsets. */
import { ScalepointError } from '../../core/errors.js';
import { quoted } from '../files/bytes.js';

/** Largest depth, as in serde_json, which the reference uses. Only skipped values can nest. */
const maxDepth = 128;
/** Largest number of members of an object, whose keys are compared in memory. Headers have some thousands of tensors. */
export const maxMembers = 2 ** 20;
/** Largest number of members of a minor object, such as metadata. */
export const maxExtras = 2 ** 16;

/** Number of members up to which keys are compared one by one. */
const fewMembers = 8;

/** Length and number of cached strings: keys and types that every tensor repeats. */
const shortString = 16;
const mostShort = 64;

const quote = 0x22;
const backslash = 0x5c;

/** Reads JSON from bytes. Errors are `BAD_FILE` with the offset in the file. */
export class JsonReader {
  position = 0;
  /** The tensor being read, for errors. */
  tensor: string | undefined;
  private readonly bytes: Uint8Array;
  private readonly origin: number;
  private readonly what: string;
  private readonly decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  /** Short ASCII strings by a hash of their bytes. Comparing them is faster than decoding. */
  private readonly short: (string | undefined)[] = new Array(mostShort).fill(undefined);

  /** Unused lists of keys for reuse, with arbitrary contents. */
  private readonly spare: string[][] = [];

  /** `origin`: offset of the bytes in the file. `what`: their name in errors. */
  constructor(bytes: Uint8Array, origin: number, what = 'header') {
    this.bytes = bytes;
    this.origin = origin;
    this.what = what;
  }

  fail(message: string, position = this.position): never {
    const place = this.tensor === undefined ? this.what : `tensor ${quoted(this.tensor)}`;
    throw new ScalepointError('BAD_FILE', `${place}: ${message}`, {
      tensor: this.tensor,
      byteOffset: this.origin + position,
    });
  }

  /** The next byte that is not white space; undefined at the end. */
  peek(): number | undefined {
    for (;;) {
      const byte = this.bytes[this.position];
      if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d) return byte;
      this.position++;
    }
  }

  /** Steps over a character if it is the next one. */
  take(character: string): boolean {
    if (this.peek() !== character.charCodeAt(0)) return false;
    this.position++;
    return true;
  }

  /** @param of owner of the character, for errors; passed separately so that no text is built without an error */
  expect(character: string, where: string, of = ''): void {
    if (!this.take(character)) this.fail(`expected '${character}' ${where}${of}, got ${this.seen()}`);
  }

  /** A description of the next character, for errors. */
  private seen(): string {
    const byte = this.peek();
    if (byte === undefined) return `the end of the ${this.what}`;
    return byte > 0x20 && byte < 0x7f
      ? `'${String.fromCharCode(byte)}'`
      : `byte 0x${byte.toString(16).padStart(2, '0')}`;
  }

  /** @param of owner of the string, for errors */
  string(what: string, of = ''): string {
    const { bytes } = this;
    if (this.peek() !== quote) this.fail(`expected ${what}${of}, a string, got ${this.seen()}`);
    const start = this.position;
    let end = start + 1;
    let escaped = false;
    let bits = 0;
    for (; ; end++) {
      const byte = bytes[end];
      if (byte === quote) break;
      if (byte === undefined || byte < 0x20) {
        this.position = end;
        if (byte === undefined) this.fail(`${what}${of} has no closing quote`, start);
        this.fail(`${what}${of} holds a control character`);
      }
      if (byte === backslash) {
        escaped = true;
        end++;
      }
      bits |= byte;
    }
    this.position = end + 1;
    const begin = start + 1;
    if (!escaped && bits < 0x80 && end - start <= shortString) {
      // Look for a short string of ASCII among those before.
      const length = end - begin;
      const place = (length * 5 + (bytes[begin] as number) + 3 * (bytes[end - 1] as number)) % mostShort;
      const known = this.short[place];
      if (known?.length === length) {
        let i = 0;
        while (i < length && known.charCodeAt(i) === bytes[begin + i]) i++;
        if (i === length) return known;
      }
      const text = String.fromCharCode(...bytes.subarray(begin, end));
      this.short[place] = text;
      return text;
    }
    let text: string;
    try {
      text = this.decoder.decode(bytes.subarray(begin, end));
    } catch {
      this.fail(`${what}${of} is not UTF-8`, start);
    }
    if (!escaped) return text;
    try {
      text = JSON.parse(`"${text}"`) as string;
    } catch {
      this.fail(`${what}${of} has an unknown escape`, start);
    }
    // Refuse half of a surrogate pair, which UTF-8 cannot represent.
    if (/\p{Surrogate}/u.test(text)) this.fail(`${what}${of} has half of a surrogate pair`, start);
    return text;
  }

  /** A whole number of at least 0 that a double holds exactly, written in digits. @param of owner of the number, for errors */
  natural(what: string, of = ''): number {
    const { bytes } = this;
    this.peek();
    const start = this.position;
    let at = start;
    let value = 0;
    for (let digit = (bytes[at] ?? 0) - 0x30; digit >= 0 && digit <= 9; digit = (bytes[++at] ?? 0) - 0x30)
      value = value * 10 + digit;
    if (at === start) this.fail(`expected ${what}${of}, a whole number of at least 0, got ${this.seen()}`);
    this.position = at;
    if (at - start > 1 && bytes[start] === 0x30) this.fail(`${what}${of} has a leading zero`, start);
    const next = bytes[at];
    if (next === 0x2e || next === 0x45 || next === 0x65)
      this.fail(`${what}${of} is not a whole number in digits`, start);
    if (!Number.isSafeInteger(value)) this.fail(`${what}${of} is too large`, start);
    return value;
  }

  /** Reads an array of at most `most` whole numbers, `most` being at least 2. */
  naturals(what: string, most: number): number[] {
    this.expect('[', 'before ', what);
    if (this.take(']')) return [];
    // Build arrays of exact size: growing ones reserve room for more than a dozen numbers, and each tensor has two.
    const first = this.natural('a number of ', what);
    if (!this.take(',')) {
      this.expect(']', 'after ', what);
      return [first];
    }
    const values = [first, this.natural('a number of ', what)];
    while (this.take(',')) {
      if (values.length === most) this.fail(`${what} has more than ${most} numbers`);
      values.push(this.natural('a number of ', what));
    }
    this.expect(']', 'after ', what);
    return values;
  }

  /** Reads an object of at most `most` members. `member` is called with each key and its position, and must read the value. */
  object(what: string, most: number, member: (key: string, position: number) => void): void {
    // Compare few keys in a list, which is faster for entries.
    const few = this.spare.pop() ?? [];
    let count = 0;
    let keys: Set<string> | undefined;
    this.expect('{', 'at the start of ', what);
    if (this.take('}')) return;
    do {
      this.peek();
      const position = this.position;
      const key = this.string('a key of ', what);
      const at = keys === undefined ? few.indexOf(key) : -1;
      const isKnown = keys?.has(key) ?? (at >= 0 && at < count);
      if (isKnown) this.fail(`${what} has the key ${quoted(key)} twice`, position);
      if (count === most) this.fail(`${what} has more than ${most} members`, position);
      few[Math.min(count, fewMembers)] = key;
      count++;
      if (keys !== undefined) keys.add(key);
      else if (count > fewMembers) keys = new Set(few);
      this.expect(':', 'after a key');
      member(key, position);
    } while (this.take(','));
    this.expect('}', 'at the end of ', what);
    this.spare.push(few);
  }

  /** Steps over a value. */
  skip(depth: number): void {
    if (depth > maxDepth) this.fail(`the JSON nests deeper than ${maxDepth} levels`);
    const byte = this.peek();
    if (byte === 0x7b) this.object('a value', maxExtras, () => this.skip(depth + 1));
    else if (byte === quote) this.string('a value');
    else if (this.take('[')) {
      if (this.take(']')) return;
      do this.skip(depth + 1);
      while (this.take(','));
      this.expect(']', 'after a list');
    } else {
      const start = this.position;
      while (/[-+.\w]/.test(String.fromCharCode(this.bytes[this.position] ?? 0))) this.position++;
      const word = this.decoder.decode(this.bytes.subarray(start, this.position));
      if (!/^(true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?)$/.test(word)) {
        this.position = start;
        this.fail(`expected a value, got ${this.seen()}`);
      }
    }
  }
}
