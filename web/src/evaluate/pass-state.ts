/**
 * States of runs of models, so that an interrupted run goes on behind the last finished layer or sample (Node). A state is one file, which is
 * replaced as a whole: a header in JSON with the facts that decide about the result, and arrays of numbers. A run that is killed leaves the
 * last whole state.
 */

import { buildId, version } from '../core/core.mjs';
import { ScalepointError, typeError } from '../core/errors.js';
import { type NodeModules, nodeModule, type WritableFileHandle } from '../core/node.js';
import { ofType } from '../core/option-problem.js';
import { type ByteSource, ioError } from '../formats/files/bytes.js';
import { openWithin } from '../formats/files/open.js';
import { checkNoInput, writeAll } from '../formats/files/path-sink.js';
import { sha256Of } from '../formats/files/sha256.js';
import { type ByteSink, openSink, type SinkOptions } from '../formats/files/sinks.js';
import type { Numbers, SavedState } from './saved-state.js';

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
  /** Pieces of the file of moments. */
  readonly moments: readonly WrittenPiece[];
}

/** A piece of a file, by which a change of it is noticed. */
type WrittenPiece = readonly [position: number, length: number, digest: string];

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

/** Bytes of the digest at the end of a state. */
const sealBytes = 32;

/** The digest of a state: that of the digests of its pieces. */
class Seal {
  readonly #digests: Uint8Array[] = [];

  async add(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.#digests.push(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)));
  }

  async finish(): Promise<Uint8Array<ArrayBuffer>> {
    const all = new Uint8Array(sealBytes * this.#digests.length);
    for (const [i, digest] of this.#digests.entries()) all.set(digest, sealBytes * i);
    return new Uint8Array(await crypto.subtle.digest('SHA-256', all));
  }
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
      return [name ?? null, size, time, await sha256Of(first), await sha256Of(last)];
    }),
  );
}

/** A digest of tokens. */
export const digestOfTokens = (ids: Uint32Array): Promise<string> => sha256Of(new Uint8Array(ids.slice().buffer));

const isSame = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

/** The state of a run. */
export class PassState {
  readonly #path: string;
  readonly #facts: RunFacts;
  readonly #options: SinkOptions;
  /** The state that an interrupted run left, until it is taken. */
  #found: SavedState | undefined;
  #moments: WritableFileHandle | undefined;
  /** Parts of the file of moments as they were written, by position. */
  readonly #pieces = new Map<number, WrittenPiece>();
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
      // A state of this version is read as a whole first, so that nothing of a changed one counts.
      const arrays = header.version === versionName ? await readArrays(source, header, path) : [];
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
      const found = { about: header.about, arrays };
      const state = new PassState(path, facts, options, found);
      for (const piece of header.moments) state.#pieces.set(piece[0], piece);
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
      moments: [...this.#pieces.values()],
    };
    const text = new TextEncoder().encode(JSON.stringify(facts));
    const start = new Uint8Array(8 + padded(text.length)).fill(0x20);
    new DataView(start.buffer).setBigUint64(0, BigInt(start.length - 8), true);
    start.set(text, 8);
    const seal = new Seal();
    const sink = await openSink(this.#path, this.#options);
    try {
      await seal.add(start);
      await sink.write(0, start);
      let at = start.length;
      for (const { buffer, byteOffset, byteLength } of arrays) {
        for (let done = 0; done < byteLength; done += copyBytes) {
          await seal.add(new Uint8Array(buffer, byteOffset + done, Math.min(copyBytes, byteLength - done)));
        }
        await sink.write(at, new Uint8Array(buffer, byteOffset, byteLength));
        if (padded(byteLength) > byteLength) await sink.write(at + byteLength, new Uint8Array(4));
        at += padded(byteLength);
      }
      await sink.write(at, await seal.finish());
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
        for (let at = 0; at < bytes.length; at += copyBytes) {
          const piece = bytes.slice(at, at + copyBytes);
          this.#pieces.set(position + at, [position + at, piece.length, await sha256Of(piece)]);
        }
      },
    };
  }

  /** Copies the moments to their place. @throws ScalepointError `BAD_FILE` if another program changed them */
  async copyMoments(size: number, to: ByteSink): Promise<void> {
    const source = await openWithin(this.#options.waiting, this.#momentsPath);
    try {
      const starts = [...this.#pieces.keys()].sort((a, b) => a - b);
      for (let at = 0, next = 0; at < size; ) {
        while (next < starts.length && (starts[next] as number) < at) next++;
        const start = starts[next] ?? size;
        const [, length, digest] = (start === at ? this.#pieces.get(at) : undefined) ?? [];
        const bytes = await source.read(at, Math.min(size, at + (length ?? Math.min(copyBytes, start - at))));
        if (digest !== undefined && digest !== (await sha256Of(bytes))) throw damaged(this.#momentsPath);
        await to.write(at, bytes);
        at += bytes.length;
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

/** The beginning of the header of each state. Files of other programs lack it. */
const headerStart = `{"format":"${formatName}",`;

/** Reads the header of a state, and checks the sizes that it states. */
async function readHeader(source: ByteSource, path: string): Promise<Header & { readonly start: number }> {
  const begin = new TextDecoder('latin1').decode(await source.read(0, Math.min(source.size, 8 + headerStart.length)));
  if (begin.slice(8) !== headerStart) {
    const message = `${JSON.stringify(path)} is not the state of an interrupted run: choose another name, or move this file`;
    throw new ScalepointError('BAD_FILE', message, { path });
  }
  const length = Number(new DataView((await source.read(0, 8)).buffer).getBigUint64(0, true));
  if (!(length <= Math.min(mostHeader, source.size - 8))) throw damaged(path);
  let header: Partial<Header> | null;
  try {
    header = JSON.parse(new TextDecoder().decode(await source.read(8, 8 + length))) as Partial<Header> | null;
  } catch {
    throw damaged(path);
  }
  const { format, version, facts, about, arrays, moments } = header ?? {};
  const isObject = (value: unknown) => typeof value === 'object' && value !== null;
  if (format !== formatName || typeof version !== 'string' || !isObject(facts) || !Array.isArray(arrays)) {
    throw damaged(path);
  }
  // Other versions have other layouts.
  if (version !== versionName)
    return { format, version, facts: facts as RunFacts, about, arrays: [], moments: [], start: 0 };
  const isArray = ({ bytes, length }: Partial<Header['arrays'][number]>) =>
    (bytes === 4 || bytes === 8) && Number.isSafeInteger(length) && (length as number) >= 0;
  if (!arrays.every((one) => typeof one === 'object' && one !== null && isArray(one))) throw damaged(path);
  const size = arrays.reduce((sum, { bytes, length }) => sum + padded(bytes * length), 8 + length + sealBytes);
  if (size !== source.size || !Array.isArray(moments) || !moments.every((one) => Array.isArray(one)))
    throw damaged(path);
  return {
    format,
    version,
    facts: facts as RunFacts,
    about,
    arrays,
    moments: moments as unknown as WrittenPiece[],
    start: 8 + length,
  };
}

/** Reads the arrays of a state. @throws ScalepointError `BAD_FILE` if it differs from the state that was written */
async function readArrays(
  source: ByteSource,
  { arrays, start }: Header & { start: number },
  path: string,
): Promise<Numbers[]> {
  const found: Numbers[] = [];
  const seal = new Seal();
  await seal.add(await source.read(0, start));
  let at = start;
  for (const { bytes, length } of arrays) {
    const array = bytes === 4 ? new Float32Array(length) : new Float64Array(length);
    const target = new Uint8Array(array.buffer);
    for (let done = 0; done < target.length; done += copyBytes) {
      const end = Math.min(target.length, done + copyBytes);
      const bytes = await source.read(at + done, at + end);
      await seal.add(bytes);
      target.set(bytes, done);
    }
    found.push(array);
    at += padded(target.length);
  }
  const own = await seal.finish();
  const stated = await source.read(at, at + sealBytes);
  if (own.some((byte, i) => byte !== stated[i])) throw damaged(path);
  return found;
}
