// Digests of results, and their comparison with the digests recorded in tests/golden.
import { expect } from 'vitest';

/** Digests by the names of their cases. */
export type Digests = Record<string, string>;

const utf8 = new TextEncoder();

/** Writes values as bytes. Types and lengths are written too, so that different values have different bytes. */
class Writer {
  #bytes = new Uint8Array(1 << 12);
  #length = 0;

  #reserve(count: number): number {
    const at = this.#length;
    this.#length += count;
    if (this.#length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(this.#length, 2 * this.#bytes.length));
      larger.set(this.#bytes.subarray(0, at));
      this.#bytes = larger;
    }
    return at;
  }

  #raw(bytes: Uint8Array): void {
    const at = this.#reserve(bytes.length);
    this.#bytes.set(bytes, at);
  }

  #text(text: string): void {
    if (this.#addAscii(`${text.length}:${text}`)) return;
    const bytes = utf8.encode(text);
    this.#raw(utf8.encode(`${bytes.length}:`));
    this.#raw(bytes);
  }

  /** Adds a text if it is ASCII: most are, and short. */
  #addAscii(text: string): boolean {
    const at = this.#reserve(text.length);
    const bytes = this.#bytes;
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (code > 127) {
        this.#length = at;
        return false;
      }
      bytes[at + i] = code;
    }
    return true;
  }

  #array(array: ArrayBufferView): void {
    this.#text(Object.prototype.toString.call(array).slice(8, -1));
    let view = array;
    // The bits of a NaN may depend on the processor, so every NaN becomes the same one.
    if (array instanceof Float32Array || array instanceof Float64Array) {
      let hasNaN = false;
      for (let i = 0; i < array.length && !hasNaN; i++) hasNaN = Number.isNaN(array[i]);
      if (hasNaN) view = array.map((v) => (Number.isNaN(v) ? Number.NaN : v));
    }
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    this.#text(`${bytes.length}`);
    this.#raw(bytes);
  }

  add(value: unknown): void {
    if (ArrayBuffer.isView(value)) this.#array(value);
    else if (Array.isArray(value)) {
      this.#text(`[${value.length}`);
      for (const item of value) this.add(item);
    } else if (typeof value === 'object' && value !== null) {
      const entries = Object.entries(value)
        .filter(([, item]) => item !== undefined)
        .sort(([a], [b]) => (a < b ? -1 : 1));
      this.#text(`{${entries.length}`);
      for (const [key, item] of entries) {
        this.#text(key);
        // The last digits of a logarithm may differ between engines.
        this.add(key === 'sqnrDb' ? (item as number).toPrecision(10) : item);
      }
    } else {
      this.#text(typeof value);
      this.#text(Object.is(value, -0) ? '-0' : String(value));
    }
  }

  bytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }
}

/** A plan or a report without its words: notes are left out, and of reasons only the fact remains that there is one. */
export function withoutWords<
  T extends { readonly notes: unknown; readonly tensors: readonly { readonly kept?: unknown }[] },
>({ notes: _, tensors, ...rest }: T) {
  return { ...rest, tensors: tensors.map((tensor) => (tensor.kept ? { ...tensor, kept: true } : tensor)) };
}

/** The first 64 bits of a SHA-256 of plain data (numbers, strings, typed arrays, and arrays and objects of these), in hexadecimal. */
export async function digestOf(...values: unknown[]): Promise<string> {
  const writer = new Writer();
  writer.add(values);
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', writer.bytes()));
  return [...hash.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Data of an error, without its message: its name, the option or code, and where it happened. */
export function factsOf(error: unknown): string {
  if (!(error instanceof Error)) return `thrown: ${String(error)}`;
  const values = error as Error & Record<string, unknown>;
  const facts = ['option', 'code', 'tensor', 'byteOffset'].flatMap((key) =>
    values[key] === undefined ? [] : [`${key} ${String(values[key])}`],
  );
  return `${error.name}${facts.length === 0 ? '' : ` (${facts.join(', ')})`}`;
}

/** The value that a call returns, or the facts about the error that it throws. */
export async function outcomeOf<T>(f: () => T | Promise<T>): Promise<{ value: T } | { error: string }> {
  try {
    return { value: await f() };
  } catch (error) {
    return { error: factsOf(error) };
  }
}

/** True if digests are recorded instead of compared. The variable is in the environment of Node. */
const isRecording = typeof process !== 'undefined' && process.env?.SCALEPOINT_RECORD !== undefined;

/** A file of recorded digests. */
export class Golden {
  readonly #name: string;
  readonly #recorded: Digests;
  readonly #found: Digests = {};

  /** @param recorded the content of the file */
  constructor(name: string, recorded: Digests) {
    this.#name = name;
    this.#recorded = recorded;
  }

  /** Fails unless a group has the same cases with the same digests as in the file. While recording, it stores them instead. */
  check(group: string, digests: Digests): void {
    const named = Object.fromEntries(Object.entries(digests).map(([name, digest]) => [`${group}: ${name}`, digest]));
    if (isRecording) {
      for (const [name, digest] of Object.entries(named)) {
        // Both builds must give the same digest.
        expect(this.#found[name] ?? digest, name).toBe(digest);
        this.#found[name] = digest;
      }
      return;
    }
    const recorded = Object.entries(this.#recorded).filter(([name]) => name.startsWith(`${group}: `));
    expect(named).toEqual(Object.fromEntries(recorded));
  }

  /** Writes the file while recording. Groups that did not run keep their digests. */
  async save(): Promise<void> {
    if (!isRecording) return;
    const { writeFile } = await import('node:fs/promises');
    const groupOf = (name: string) => name.slice(0, name.indexOf(': '));
    const groups = new Set(Object.keys(this.#found).map(groupOf));
    const kept = Object.entries(this.#recorded).filter(([name]) => !groups.has(groupOf(name)));
    const all = [...kept, ...Object.entries(this.#found)];
    const lines = all.map(([name, digest]) => `  ${JSON.stringify(name)}: ${JSON.stringify(digest)}`);
    await writeFile(new URL(`../../golden/${this.#name}`, import.meta.url), `{\n${lines.join(',\n')}\n}\n`);
  }
}
