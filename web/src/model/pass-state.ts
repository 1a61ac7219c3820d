/**
 * States of runs of models, so that an interrupted run goes on behind the last finished layer or sample (Node). A state is one file, which is
 * replaced as a whole: a header in JSON with the facts that decide about the result, and arrays of numbers. A run that is killed leaves the
 * last whole state.
 */
import { buildId, version } from '../core/core.mjs';
import { ScalepointError, typeError } from '../core/errors.js';
import { type NodeModules, nodeModule, type WritableFileHandle } from '../core/node.js';
import { ofType } from '../core/option-problem.js';
import { type ByteSource, ioError } from '../files/bytes.js';
import { openWithin } from '../files/open.js';
import { checkNoInput, writeAll } from '../files/path-sink.js';
import { type ByteSink, openSink, type SinkOptions } from '../files/sinks.js';
import type { Numbers, SavedState } from '../language/saved-state.js';

/** The facts that decide about a result. */
export interface RunFacts {
  /** Stamps of the files of the models. */
  readonly model: unknown;
  /** The tokens or samples. */
  readonly data: unknown;
  readonly options: unknown;
}

interface Header {
  readonly format: string;
  readonly version: string;
  readonly facts: RunFacts;
  readonly about: unknown;
  readonly arrays: readonly { readonly bytes: 4 | 8; readonly length: number }[];
}

const formatName = 'scalepoint.pass';

/** Longest header in bytes. */
const mostHeader = 1 << 26;

/** Bytes that are copied at a time. */
const copyBytes = 8 << 20;

const padded = (bytes: number) => Math.ceil(bytes / 8) * 8;

/** @throws TypeError in other engines than Node */
function nodePaths(option: string): Pick<NodeModules, 'node:fs/promises' | 'node:path' | 'node:url'> {
  const [fs, paths, urls] = [nodeModule('node:fs/promises'), nodeModule('node:path'), nodeModule('node:url')];
  if (fs === undefined || paths === undefined || urls === undefined) {
    throw typeError(option, ofType('undefined'), true, {
      kind: 'because',
      message: 'states are files, which need Node',
    });
  }
  return { 'node:fs/promises': fs, 'node:path': paths, 'node:url': urls };
}

/** The path that a string or a URL means. */
export function pathOf(given: unknown): string {
  return given instanceof URL ? nodePaths('resume')['node:url'].fileURLToPath(given) : String(given);
}

/** The place of the state of a run that writes to a path. */
export function besideOutput(output: unknown): string {
  const { 'node:path': paths } = nodePaths('resume');
  const path = pathOf(output);
  return paths.join(paths.dirname(path), `.${paths.basename(path)}.resume`);
}

async function digestOf(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Bytes at both ends of a file that its stamp covers. */
const stampBytes = 1 << 20;

/** Stamps by which changes of files are noticed: name, size, time of the last change if known, and a digest of both ends. */
export function stampsOf(files: readonly ByteSource[]): Promise<unknown[]> {
  return Promise.all(
    files.map(async (file) => {
      const { size, name, reference } = file;
      const first = await file.read(0, Math.min(size, stampBytes));
      const last = await file.read(Math.max(0, size - stampBytes), size);
      const time = reference?.kind === 'path' ? (reference.stamp.mtimeMs ?? null) : null;
      return [name ?? null, size, time, await digestOf(first), await digestOf(last)];
    }),
  );
}

/** A digest of tokens. */
export const digestOfTokens = (ids: Uint32Array): Promise<string> => digestOf(new Uint8Array(ids.slice().buffer));

const isSame = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

/** The state of a run. */
export class PassState {
  readonly #path: string;
  readonly #facts: RunFacts;
  readonly #options: SinkOptions;
  /** The state that an interrupted run left, until it is taken. */
  #found: SavedState | undefined;
  #moments: WritableFileHandle | undefined;
  /** True if this run, or the interrupted one, has a file of moments. */
  #hasMoments = false;

  private constructor(path: string, facts: RunFacts, options: SinkOptions, found: SavedState | undefined) {
    this.#path = path;
    this.#facts = facts;
    this.#options = { ...options, overwrite: true };
    this.#found = found;
  }

  /**
   * Opens a state, or prepares a new one.
   * @param options with `overwrite`, it begins anew where the interrupted run differs
   * @throws RangeError if a file of the state is an input; ScalepointError `CHANGED` if models, tokens, options or the version differ, `BAD_FILE` for damaged files
   */
  static async open(path: string, facts: RunFacts, options: SinkOptions): Promise<PassState> {
    const { 'node:fs/promises': fs } = nodePaths('resume');
    const exists = await fs.lstat(path).then(
      () => true,
      () => false,
    );
    await checkNoInput(path, options);
    if (!exists) return new PassState(path, facts, options, undefined);
    const source = await openWithin(options.waiting, path);
    try {
      const header = await readHeader(source, path);
      const hasMoments = (header.facts.options as { moments?: unknown } | undefined)?.moments === true;
      const changed = [
        ...(isSame(header.facts.model, facts.model) ? [] : ['the model']),
        ...(isSame(header.facts.data, facts.data) ? [] : ['the data']),
        ...(isSame(header.facts.options, facts.options) ? [] : ['the options']),
        ...(header.version === versionName ? [] : ['the version of scalepoint']),
      ];
      if (changed.length > 0) {
        const fresh = new PassState(path, facts, options, undefined);
        fresh.#hasMoments = hasMoments;
        if (options.overwrite) return fresh;
        throw fresh.changed(changed);
      }
      const found = { about: header.about, arrays: await readArrays(source, header) };
      const state = new PassState(path, facts, options, found);
      state.#hasMoments = hasMoments;
      return state;
    } finally {
      await source.close();
    }
  }

  get path(): string {
    return this.#path;
  }

  /** The error for a state of another run. @param what differs */
  changed(what: readonly string[]): ScalepointError {
    const text = `${what.join(' and ')} changed since the interrupted run; remove ${JSON.stringify(this.#path)} to begin anew`;
    return new ScalepointError('CHANGED', text, { path: this.#path });
  }

  /** The state that an interrupted run left. Gives it once, because it is large. */
  take(): SavedState | undefined {
    const found = this.#found;
    this.#found = undefined;
    return found;
  }

  async save({ about, arrays }: SavedState): Promise<void> {
    const facts: Header = {
      format: formatName,
      version: versionName,
      facts: this.#facts,
      about,
      arrays: arrays.map((array) => ({ bytes: array.BYTES_PER_ELEMENT as 4 | 8, length: array.length })),
    };
    const text = new TextEncoder().encode(JSON.stringify(facts));
    const start = new Uint8Array(8 + padded(text.length)).fill(0x20);
    new DataView(start.buffer).setBigUint64(0, BigInt(start.length - 8), true);
    start.set(text, 8);
    const sink = await openSink(this.#path, this.#options);
    try {
      await sink.write(0, start);
      let at = start.length;
      for (const { buffer, byteOffset, byteLength } of arrays) {
        await sink.write(at, new Uint8Array(buffer, byteOffset, byteLength));
        if (padded(byteLength) > byteLength) await sink.write(at + byteLength, new Uint8Array(4));
        at += padded(byteLength);
      }
      await sink.finish();
    } catch (error) {
      await sink.discard(error);
      throw error;
    }
  }

  /** A file beside the state that holds the moments of finished layers. @param isNew empties it */
  async moments(isNew: boolean): Promise<Pick<ByteSink, 'write'>> {
    const { 'node:fs/promises': fs } = nodePaths('resume');
    await checkNoInput(this.#momentsPath, this.#options);
    this.#hasMoments = true;
    const handle = await fs.open(this.#momentsPath, isNew ? 'w+' : 'r+').catch((cause) => {
      throw ioError(`cannot write ${JSON.stringify(this.#momentsPath)}`, cause);
    });
    this.#moments = handle;
    return {
      write: async (position, bytes) => {
        await writeAll(handle, position, bytes, JSON.stringify(this.#momentsPath));
        await handle.datasync();
      },
    };
  }

  /** Copies the moments to their place. */
  async copyMoments(size: number, to: ByteSink): Promise<void> {
    const source = await openWithin(this.#options.waiting, this.#momentsPath);
    try {
      for (let at = 0; at < size; at += copyBytes) {
        await to.write(at, await source.read(at, Math.min(size, at + copyBytes)));
      }
    } finally {
      await source.close();
    }
  }

  /** Closes open files. The state stays. */
  async close(): Promise<void> {
    await this.#moments?.close();
    this.#moments = undefined;
  }

  /** Removes the state, once the result is there. */
  async remove(): Promise<void> {
    await this.close();
    const { 'node:fs/promises': fs } = nodePaths('resume');
    // A file of this name that no run wrote is somebody else's.
    for (const path of [this.#path, ...(this.#hasMoments ? [this.#momentsPath] : [])])
      await fs.rm(path, { force: true });
  }

  get #momentsPath(): string {
    return `${this.#path}.moments`;
  }
}

const versionName = `${version} ${buildId}`;

/** The error for a state that no run has written. */
export function damaged(path: string): ScalepointError {
  return new ScalepointError('BAD_FILE', `${JSON.stringify(path)} is damaged; remove it to begin anew`, { path });
}

/** Reads the header of a state, and checks the sizes that it states. */
async function readHeader(source: ByteSource, path: string): Promise<Header & { readonly start: number }> {
  if (source.size < 8) throw damaged(path);
  const length = Number(new DataView((await source.read(0, 8)).buffer).getBigUint64(0, true));
  if (!(length <= Math.min(mostHeader, source.size - 8))) throw damaged(path);
  let header: Partial<Header> | null;
  try {
    header = JSON.parse(new TextDecoder().decode(await source.read(8, 8 + length))) as Partial<Header> | null;
  } catch {
    throw damaged(path);
  }
  const { format, version, facts, about, arrays } = header ?? {};
  if (format !== formatName || typeof version !== 'string' || typeof facts !== 'object' || !Array.isArray(arrays)) {
    throw damaged(path);
  }
  const isArray = ({ bytes, length }: Partial<Header['arrays'][number]>) =>
    (bytes === 4 || bytes === 8) && Number.isSafeInteger(length) && (length as number) >= 0;
  if (!arrays.every((one) => typeof one === 'object' && one !== null && isArray(one))) throw damaged(path);
  const size = arrays.reduce((sum, { bytes, length }) => sum + padded(bytes * length), 8 + length);
  if (size !== source.size) throw damaged(path);
  return { format, version, facts: facts as RunFacts, about, arrays, start: 8 + length };
}

async function readArrays(source: ByteSource, { arrays, start }: Header & { start: number }): Promise<Numbers[]> {
  const found: Numbers[] = [];
  let at = start;
  for (const { bytes, length } of arrays) {
    const array = bytes === 4 ? new Float32Array(length) : new Float64Array(length);
    const target = new Uint8Array(array.buffer);
    for (let done = 0; done < target.length; done += copyBytes) {
      const end = Math.min(target.length, done + copyBytes);
      target.set(await source.read(at + done, at + end), done);
    }
    found.push(array);
    at += padded(target.length);
  }
  return found;
}
