/**
 * States from which an interrupted run goes on (Node): of evaluations, of calibrations, and of results in parts. A state is one file, which is replaced as a whole: a header in JSON with the facts that
 * decide about the result, arrays of numbers, and a digest. A run that is killed leaves the last whole state. Moments of finished layers
 * go to a file beside it, whose digests the header holds.
 */

import { buildId, version } from '../../core/core.mjs';
import { ScalepointError } from '../../core/errors.js';
import type { WritableFileHandle } from '../../core/node.js';
import { ofType } from '../../core/option-problem.js';
import { waitingFor } from '../../core/waiting.js';
import { type ByteSource, ioError } from './bytes.js';
import { sha256Of } from './checksums.js';
import { nodeFiles } from './handle.js';
import { openWithin } from './open.js';
import { checkOutput, writeAll } from './path-sink.js';
import { type ByteSink, openSink, type SinkOptions } from './sinks.js';

/** The facts that decide about a result, such as the stamps of the files of a model, by words for them: the model, the data, the options. */
export type StateFacts = Readonly<Record<string, unknown>>;

/** Arrays of a state. */
type StateArray = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

/** The contents of a state. */
export interface SavedState {
  /** Plain data about the arrays. */
  readonly about: unknown;
  readonly arrays: readonly StateArray[];
}

/** Options of `StateFile.open`. */
export interface StateOptions extends Partial<Omit<SinkOptions, 'overwrite'>> {
  /** True begins anew where the interrupted run differs. */
  readonly overwrite: boolean;
  /** Words for the way to begin anew. @defaultValue to remove the file */
  readonly remedy?: string;
}

/** A piece of the file of moments, by which a change of it is noticed. */
type WrittenPiece = readonly [position: number, length: number, digest: string];

interface Header {
  readonly format: string;
  readonly version: string;
  readonly facts: StateFacts;
  readonly about: unknown;
  readonly arrays: readonly { readonly bytes: 4 | 8; readonly length: number }[];
  readonly moments: readonly WrittenPiece[];
}

const formatName = 'scalepoint.pass';
const versionName = `${version} ${buildId}`;

/** The beginning of the header of each state. Files of other programs lack it. */
const headerStart = `{"format":"${formatName}",`;

/** Longest header in bytes. */
const mostHeader = 1 << 26;

/** Bytes that are copied at a time. */
const copyBytes = 8 << 20;

/** Bytes of the digest at the end of a state: that of the digests of the header and of `copyBytes` of an array each. */
const sealBytes = 32;

/** JSON has no infinities, and no NaN. */
const numberKey = 'scalepoint:number';
const jsonOf = (value: unknown) =>
  JSON.stringify(value, (_, item) =>
    typeof item === 'number' && !Number.isFinite(item) ? { [numberKey]: String(item) } : item,
  );
const parseJson = (text: string): unknown =>
  JSON.parse(text, (_, item) =>
    typeof item === 'object' && item !== null && numberKey in item ? Number(item[numberKey]) : item,
  );

const paddedTo8 = (bytes: number) => Math.ceil(bytes / 8) * 8;

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
}

/** The modules of Node for files. @throws TypeError in other engines */
const stateModules = () => nodeFiles('resume', ofType('undefined'), true, 'states are files, which need Node');

/** Bytes at both ends of a file that its stamp covers. */
const stampBytes = 1 << 20;

/** Stamps by which changes of files are noticed: name, size, time of the last change if known, and a digest of both ends. */
export function stampFiles(files: readonly ByteSource[]): Promise<unknown[]> {
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

/** The state of a run. */
export class StateFile {
  readonly #path: string;
  readonly #facts: StateFacts;
  readonly #options: SinkOptions;
  readonly #remedy: string;
  /** The state that an interrupted run left, until it is taken. */
  #found: SavedState | undefined;
  #moments: WritableFileHandle | undefined;
  /** Pieces of the file of moments as they were written, by position. */
  readonly #pieces = new Map<number, WrittenPiece>();
  /** True if this run, or the interrupted one, has a file of moments. */
  #hasMoments: boolean;

  private constructor(
    path: string,
    facts: StateFacts,
    { remedy, ...options }: StateOptions,
    before: Pick<Awaited<ReturnType<typeof readState>>, 'found' | 'moments'>,
  ) {
    this.#path = path;
    this.#facts = facts;
    this.#options = { waiting: waitingFor(undefined), inputs: [], ...options, overwrite: true };
    this.#remedy = remedy ?? `remove ${JSON.stringify(path)} to begin anew`;
    this.#found = before.found;
    for (const piece of before.found === undefined ? [] : before.moments) this.#pieces.set(piece[0], piece);
    this.#hasMoments = before.moments.length > 0;
  }

  /**
   * Opens a state, or prepares a new one.
   * @param place its path, or the output beside which it lies, as `.NAME.resume`
   * @throws RangeError if a file of the state is an input; ScalepointError `CHANGED` if facts or the version differ, `BAD_FILE` for damaged
   *   files
   */
  static async open(
    place: { readonly path: string | URL } | { readonly beside: string | URL },
    facts: StateFacts,
    options: StateOptions,
  ): Promise<StateFile> {
    const { fs, paths, urls } = stateModules();
    const given = 'path' in place ? place.path : place.beside;
    const named = given instanceof URL ? urls.fileURLToPath(given) : given;
    const path = 'path' in place ? named : paths.join(paths.dirname(named), `.${paths.basename(named)}.resume`);
    const exists = await fs.lstat(path).then(
      () => true,
      () => false,
    );
    const { waiting = waitingFor(undefined), inputs = [] } = options;
    await checkOutput(path, true, { ...options, inputs });
    if (!exists) return new StateFile(path, facts, options, { found: undefined, moments: [] });
    const source = await openWithin(waiting, path);
    try {
      const before = await readState(source, path);
      const isSame = (key: string) => jsonOf(before.facts[key]) === jsonOf(facts[key]);
      const changed = Object.keys(facts).filter((key) => !isSame(key));
      if (before.found === undefined) changed.push('the version of scalepoint');
      if (changed.length === 0) return new StateFile(path, facts, options, before);
      const state = new StateFile(path, facts, options, { ...before, found: undefined });
      if (options.overwrite) return state;
      throw state.changed(changed);
    } finally {
      await source.close();
    }
  }

  /** The error for a state of another run. @param facts those that differ */
  changed(facts: readonly string[]): ScalepointError {
    const text = `${facts.join(' and ')} changed since the interrupted run; ${this.#remedy}`;
    return new ScalepointError('CHANGED', text, { path: this.#path });
  }

  /** The error for a state that no run has written. */
  damaged(): ScalepointError {
    return damagedState(this.#path);
  }

  /** The state that an interrupted run left. Gives it once, because it is large. */
  take(): SavedState | undefined {
    const found = this.#found;
    this.#found = undefined;
    return found;
  }

  async save({ about, arrays }: SavedState): Promise<void> {
    const header: Header = {
      format: formatName,
      version: versionName,
      facts: this.#facts,
      about,
      arrays: arrays.map((array) => ({ bytes: array.BYTES_PER_ELEMENT as 4 | 8, length: array.length })),
      moments: [...this.#pieces.values()],
    };
    const text = new TextEncoder().encode(jsonOf(header));
    const start = new Uint8Array(8 + paddedTo8(text.length)).fill(0x20);
    new DataView(start.buffer).setBigUint64(0, BigInt(start.length - 8), true);
    start.set(text, 8);
    const digests = [...(await sha256(start))];
    const sink = await openSink(this.#path, this.#options);
    try {
      await sink.write(0, start);
      let at = start.length;
      for (const { buffer, byteOffset, byteLength } of arrays) {
        for (let done = 0; done < byteLength; done += copyBytes) {
          const bytes = new Uint8Array(buffer, byteOffset + done, Math.min(copyBytes, byteLength - done));
          digests.push(...(await sha256(bytes)));
        }
        await sink.write(at, new Uint8Array(buffer, byteOffset, byteLength));
        if (paddedTo8(byteLength) > byteLength) await sink.write(at + byteLength, new Uint8Array(4));
        at += paddedTo8(byteLength);
      }
      await sink.write(at, await sha256(Uint8Array.from(digests)));
      await sink.finish();
    } catch (error) {
      await sink.discard(error);
      throw error;
    }
  }

  /** A file beside the state that holds the moments of finished layers. @param isNew empties it */
  async moments(isNew: boolean): Promise<Pick<ByteSink, 'write'>> {
    const path = this.#momentsPath;
    await checkOutput(path, true, this.#options);
    this.#hasMoments = true;
    const handle = await stateModules()
      .fs.open(path, isNew ? 'w+' : 'r+')
      .catch((cause) => {
        throw ioError(`cannot write ${JSON.stringify(path)}`, cause);
      });
    this.#moments = handle;
    return {
      write: async (position, bytes) => {
        await writeAll(handle, position, bytes, JSON.stringify(path));
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
        if (digest !== undefined && digest !== (await sha256Of(bytes))) throw damagedState(this.#momentsPath);
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
    const { fs } = stateModules();
    await fs.rm(this.#path, { force: true });
    // A file of this name that no run wrote is somebody else's.
    if (this.#hasMoments) await fs.rm(this.#momentsPath, { force: true });
  }

  get #momentsPath(): string {
    return `${this.#path}.moments`;
  }
}

function damagedState(path: string): ScalepointError {
  return new ScalepointError('BAD_FILE', `${JSON.stringify(path)} is damaged; remove it to begin anew`, { path });
}

/**
 * Reads a state. Of other versions, which have other layouts, only the facts count.
 * @throws ScalepointError `BAD_FILE` if it differs from the state that was written
 */
async function readState(
  source: ByteSource,
  path: string,
): Promise<Pick<Header, 'facts' | 'moments'> & { readonly found: SavedState | undefined }> {
  const begin = new TextDecoder('latin1').decode(await source.read(0, Math.min(source.size, 8 + headerStart.length)));
  if (begin.slice(8) !== headerStart) {
    const message = `${JSON.stringify(path)} is not the state of an interrupted run: choose another name, or move this file`;
    throw new ScalepointError('BAD_FILE', message, { path });
  }
  const length = Number(new DataView((await source.read(0, 8)).buffer).getBigUint64(0, true));
  if (!(length <= Math.min(mostHeader, source.size - 8))) throw damagedState(path);
  const start = await source.read(0, 8 + length);
  let header: Partial<Header> | null;
  try {
    header = parseJson(new TextDecoder().decode(start.subarray(8))) as Partial<Header> | null;
  } catch {
    throw damagedState(path);
  }
  const { version: writer, facts, about, arrays, moments } = header ?? {};
  const areListed = Array.isArray(arrays) && Array.isArray(moments) && !moments.some((one) => !Array.isArray(one));
  if (typeof writer !== 'string' || typeof facts !== 'object' || facts === null || !areListed) throw damagedState(path);
  if (writer !== versionName) return { facts, moments, found: undefined };
  // Check the sizes before memory is taken.
  const sizes = arrays.map((one: Partial<Header['arrays'][number]> | null) => {
    const isArray =
      (one?.bytes === 4 || one?.bytes === 8) && Number.isSafeInteger(one.length) && Number(one.length) >= 0;
    return isArray ? Number(one.bytes) * Number(one.length) : Number.NaN;
  });
  const size = sizes.reduce((sum, bytes) => sum + paddedTo8(bytes), start.length + sealBytes);
  if (size !== source.size) throw damagedState(path);
  // Read the arrays, and compare the digest.
  const digests = [...(await sha256(start))];
  const found: StateArray[] = [];
  let at = start.length;
  for (const [i, bytes] of sizes.entries()) {
    const target = new Uint8Array(bytes);
    for (let done = 0; done < bytes; done += copyBytes) {
      const piece = await source.read(at + done, at + Math.min(bytes, done + copyBytes));
      digests.push(...(await sha256(piece)));
      target.set(piece, done);
    }
    found.push(arrays[i]?.bytes === 4 ? new Float32Array(target.buffer) : new Float64Array(target.buffer));
    at += paddedTo8(bytes);
  }
  const seal = await sha256(Uint8Array.from(digests));
  const stated = await source.read(at, at + sealBytes);
  if (seal.some((byte, i) => byte !== stated[i])) throw damagedState(path);
  return { facts, moments, found: { about, arrays: found } };
}
