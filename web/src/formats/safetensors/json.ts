/** A strict JSON reader. `JSON.parse` silently keeps the last of two equal keys, and its errors have no byte offsets. */
import { ScalepointError } from '../../core/errors.js';
import { quoted } from '../../files/bytes.js';

/** The limit of serde_json, which the reference uses. Only values that are skipped can nest. */
const maxDepth = 128;
/** Members of an object, which are told from each other in memory. Headers have some thousands of tensors. */
export const maxMembers = 2 ** 20;
/** Members of an object that says little, such as metadata. */
export const maxExtras = 2 ** 16;

const quote = 0x22;
const backslash = 0x5c;
const isDigit = (byte: number | undefined) => byte !== undefined && byte >= 0x30 && byte <= 0x39;

/** Reads JSON from bytes. Errors are `BAD_FILE` with the offset in the file. */
export class JsonReader {
  position = 0;
  /** The tensor being read, for errors. */
  tensor: string | undefined;
  private readonly bytes: Uint8Array;
  private readonly origin: number;
  private readonly what: string;
  private readonly decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

  /** `origin` is the offset of the bytes in the file, `what` is what errors call them. */
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

  expect(character: string, where: string): void {
    if (!this.take(character)) this.fail(`expected '${character}' ${where}, got ${this.seen()}`);
  }

  /** A description of the next character, for errors. */
  private seen(): string {
    const byte = this.peek();
    if (byte === undefined) return `the end of the ${this.what}`;
    return byte > 0x20 && byte < 0x7f
      ? `'${String.fromCharCode(byte)}'`
      : `byte 0x${byte.toString(16).padStart(2, '0')}`;
  }

  string(what: string): string {
    if (this.peek() !== quote) this.fail(`expected ${what}, a string, got ${this.seen()}`);
    const start = this.position;
    let escaped = false;
    for (;;) {
      this.position++;
      const byte = this.bytes[this.position];
      if (byte === undefined) this.fail(`${what} has no closing quote`, start);
      if (byte < 0x20) this.fail(`${what} holds a control character`);
      if (byte === quote) break;
      if (byte === backslash) {
        escaped = true;
        this.position++;
      }
    }
    this.position++;
    let text: string;
    try {
      text = this.decoder.decode(this.bytes.subarray(start + 1, this.position - 1));
    } catch {
      this.fail(`${what} is not UTF-8`, start);
    }
    if (!escaped) return text;
    try {
      text = JSON.parse(`"${text}"`) as string;
    } catch {
      this.fail(`${what} has an unknown escape`, start);
    }
    // Half of a surrogate pair cannot be written as UTF-8.
    if (/\p{Surrogate}/u.test(text)) this.fail(`${what} has half of a surrogate pair`, start);
    return text;
  }

  /** A whole number of at least 0 that a double holds exactly, written in digits. */
  natural(what: string): number {
    if (!isDigit(this.peek())) this.fail(`expected ${what}, a whole number of at least 0, got ${this.seen()}`);
    const start = this.position;
    let value = 0;
    for (; isDigit(this.bytes[this.position]); this.position++) {
      value = value * 10 + (this.bytes[this.position] as number) - 0x30;
    }
    if (this.position - start > 1 && this.bytes[start] === 0x30) this.fail(`${what} has a leading zero`, start);
    const next = this.bytes[this.position];
    if (next === 0x2e || next === 0x45 || next === 0x65) this.fail(`${what} is no whole number in digits`, start);
    if (!Number.isSafeInteger(value)) this.fail(`${what} is too large`, start);
    return value;
  }

  /** At most so many whole numbers. */
  naturals(what: string, most: number): number[] {
    const values: number[] = [];
    this.expect('[', `before ${what}`);
    if (this.take(']')) return values;
    do {
      if (values.length === most) this.fail(`${what} has more than ${most} numbers`);
      values.push(this.natural(`a number of ${what}`));
    } while (this.take(','));
    this.expect(']', `after ${what}`);
    return values;
  }

  /** Reads an object of at most so many members. `member` is called with each key and its position, and has to read the value. */
  object(what: string, most: number, member: (key: string, position: number) => void): void {
    const keys = new Set<string>();
    this.expect('{', `at the start of ${what}`);
    if (this.take('}')) return;
    do {
      this.peek();
      const position = this.position;
      const key = this.string(`a key of ${what}`);
      if (keys.has(key)) this.fail(`${what} has the key ${quoted(key)} twice`, position);
      if (keys.size === most) this.fail(`${what} has more than ${most} members`, position);
      keys.add(key);
      this.expect(':', 'after a key');
      member(key, position);
    } while (this.take(','));
    this.expect('}', `at the end of ${what}`);
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
