/** Values of JSON, and the first mistake in a JSON text. The messages of engines differ, and some have no position. */

/** True for a whole number of at least `least`. @param value of a file, which may have any type */
export const isCount = (value: unknown, least = 0): value is number =>
  Number.isSafeInteger(value) && Number(value) >= least;

/** Most characters of a word in an error. */
const mostShown = 20;

const space = /[ \t\n\r]*/y;
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON has none in its strings
const plain = /[^"\\\u0000-\u001f]*/y;
const escaped = /\\(?:["\\/bfnrt]|u[\dA-Fa-f]{4})/y;
const simple = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

/** Steps through a text up to the first mistake. */
class JsonScanner {
  readonly #text: string;
  /** Closing brackets of the objects and arrays around the position. */
  readonly #ends: string[] = [];
  /** True if a value ends at the position. */
  #isBehind = false;
  at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Steps over a match of a pattern at the position. Returns false without one. */
  #skip(pattern: RegExp): boolean {
    pattern.lastIndex = this.at;
    if (!pattern.test(this.#text) || pattern.lastIndex === this.at) return false;
    this.at = pattern.lastIndex;
    return true;
  }

  /** Steps over white space, and over a character if it comes next. */
  #take(character: string): boolean {
    this.#skip(space);
    if (this.#text[this.at] !== character) return false;
    this.at++;
    return true;
  }

  /** The error for the text at the position. */
  #expected(what: string): string {
    this.#skip(space);
    const rest = this.#text.slice(this.at, this.at + mostShown);
    const [character = ''] = rest;
    const [word = character] = /^[\w.+-]+/.exec(rest) ?? [];
    const code = character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0');
    const isShown = /^[^\p{C}\p{Z}\p{M}]/u.test(character);
    const seen = character === '' ? 'the end' : isShown ? `'${word}'` : `U+${code}`;
    return `expected ${what}, got ${seen}`;
  }

  /** Steps over a string after its first quote. Returns its mistake, if any. */
  #string(): string | undefined {
    const begin = this.at - 1;
    for (;;) {
      this.#skip(plain);
      const next = this.#text[this.at];
      if (next === '"') {
        this.at++;
        return undefined;
      }
      if (next === undefined) {
        this.at = begin;
        return 'a string has no closing quote';
      }
      if (next !== '\\')
        return next === '\n' || next === '\r' ? 'a string goes on in the next line' : 'a control character in a string';
      if (!this.#skip(escaped)) return 'an unknown escape in a string';
    }
  }

  /** Steps over a key and its colon. Returns the mistake, if any. */
  #key(): string | undefined {
    if (!this.#take('"')) return this.#expected('a key in double quotes');
    const wrong = this.#string();
    if (wrong !== undefined) return wrong;
    return this.#take(':') ? undefined : this.#expected("':'");
  }

  /** Steps over a simple value, or into an object or array. Returns the mistake, if any. */
  #begin(): string | undefined {
    for (const [open, close] of [
      ['{', '}'],
      ['[', ']'],
    ] as const) {
      if (!this.#take(open)) continue;
      this.#isBehind = this.#take(close);
      if (this.#isBehind) return undefined;
      this.#ends.push(close);
      return close === '}' ? this.#key() : undefined;
    }
    this.#isBehind = true;
    if (this.#take('"')) return this.#string();
    return this.#skip(simple) ? undefined : this.#expected('a value');
  }

  /** Steps over the comma or the bracket behind a member. Returns the mistake, if any. */
  #goOn(end: string): string | undefined {
    if (this.#take(',')) {
      this.#isBehind = false;
      return end === '}' ? this.#key() : undefined;
    }
    if (!this.#take(end)) return this.#expected(`',' or '${end}'`);
    this.#ends.pop();
    return undefined;
  }

  /** Steps over all of the text. Returns the first mistake, if any. */
  all(): string | undefined {
    do {
      const wrong = this.#isBehind ? this.#goOn(this.#ends.at(-1) as string) : this.#begin();
      if (wrong !== undefined) return wrong;
    } while (!this.#isBehind || this.#ends.length > 0);
    this.#skip(space);
    return this.at === this.#text.length ? undefined : this.#expected('the end');
  }
}

/** The first mistake in a JSON text, with its line and column counted from 1. Undefined for a correct text. */
export function whyNoJson(text: string): string | undefined {
  const scanner = new JsonScanner(text);
  const wrong = scanner.all();
  if (wrong === undefined) return undefined;
  // Count in place: an array of the characters of a long line would take many times its memory.
  let [line, column] = [1, 1];
  for (let i = 0; i < scanner.at; i++) {
    const code = text.charCodeAt(i);
    const isEnd = code === 0x0a || (code === 0x0d && (i + 1 === scanner.at || text.charCodeAt(i + 1) !== 0x0a));
    if (isEnd) line++;
    column = isEnd ? 1 : column + 1;
    // Two halves of a surrogate pair are one character.
    if (code > 0xffff >> 1 && (text.codePointAt(i) as number) > 0xffff && i + 1 < scanner.at) i++;
  }
  return `line ${line}, column ${column}: ${wrong}`;
}
