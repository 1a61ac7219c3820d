// Repositories of the hub for tests: files that are bytes or are made on demand, commits, and branches.
import { createHash } from 'node:crypto';

/**
 * The content of a file that is made on demand. `sha256` saves hashing a large one.
 * @typedef {{ size: number, read: (offset: number, length: number) => Uint8Array, sha256?: string }} MadeFile
 */
/** @typedef {Readonly<Record<string, string | Uint8Array | MadeFile>>} Files by path */
/**
 * A repository as tests state it.
 * @typedef {object} RepositoryData
 * @property {Files} files
 * @property {boolean} [private]
 * @property {'auto' | 'manual' | false} [gated]
 * @property {boolean} [disabled]
 * @property {Record<string, unknown>} [cardData]
 * @property {string[]} [tags]
 * @property {'lfs' | 'xet'} [storage] of its large files; LFS unless stated
 * @property {string} [author] of its first commit
 */
/** @typedef {{ path: string, size: number, isLarge: boolean, read: (offset: number, length: number) => Uint8Array, sha256: () => string, oid: () => string, xetHash?: string }} Entry */
/** @typedef {{ id: string, title: string, author: string, date: string, parent: string | undefined, files: Map<string, Entry>, touched: ReadonlySet<string> }} Commit */

/** Files of at least this size, or with these names, are LFS or Xet files. */
const largeFrom = 10_000_000;
const largeNames = /\.(safetensors|gguf|bin|onnx|onnx_data|pt|pth|h5|msgpack|npz|npy|zip|model)$/;

/** @param {string} algorithm @param {string | Uint8Array} bytes */
export const hex = (algorithm, bytes) => createHash(algorithm).update(bytes).digest('hex');

/** @param {string} path @param {number} size */
export const isLarge = (path, size) => size >= largeFrom || largeNames.test(path);

/** Makes a function that is run once. @template T @param {() => T} make */
function once(make) {
  /** @type {{ value: T } | undefined} */
  let made;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** @param {string} path @param {string | Uint8Array | MadeFile} content @param {'lfs' | 'xet'} storage @returns {Entry} */
export function entryOf(path, content, storage) {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  const { size, read } =
    bytes instanceof Uint8Array
      ? {
          size: bytes.length,
          read: (/** @type {number} */ offset, /** @type {number} */ length) => bytes.subarray(offset, offset + length),
        }
      : bytes;
  const large = isLarge(path, size);
  const sha256 = once(() => {
    if (!(bytes instanceof Uint8Array) && bytes.sha256 !== undefined) return bytes.sha256;
    const hash = createHash('sha256');
    for (let at = 0; at < size; at += 1 << 23) hash.update(read(at, Math.min(1 << 23, size - at)));
    return hash.digest('hex');
  });
  const oid = once(() => {
    const stored = large ? pointerTo(sha256(), size) : Buffer.from(read(0, size));
    return hex('sha1', Buffer.concat([Buffer.from(`blob ${stored.length}\0`), stored]));
  });
  const xetHash = storage === 'xet' && large ? hex('sha256', `xet ${sha256()}`) : undefined;
  return { path, size, isLarge: large, read, sha256, oid, ...(xetHash !== undefined && { xetHash }) };
}

/** Bytes that hardly compress, always the same ones. @param {number} length */
export function randomBytes(length, seed = 1) {
  const bytes = new Uint8Array(length);
  let state = seed;
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[i] = state >>> 24;
  }
  return bytes;
}

/** The text that git keeps in place of a large file. @param {string} sha256 @param {number} size */
export const pointerTo = (sha256, size) =>
  Buffer.from(`version https://git-lfs.github.com/spec/v1\noid sha256:${sha256}\nsize ${size}\n`);

/** A repository with its history. */
export class Repository {
  /** @type {Map<string, Commit>} */
  commits = new Map();
  /** Commits by branch; `refs/pr/1` is a pull request. @type {Map<string, string>} */
  branches = new Map();

  /** @param {string} id @param {RepositoryData} data */
  constructor(id, data) {
    this.id = id;
    this.isPrivate = data.private ?? false;
    this.gated = data.gated ?? false;
    this.isDisabled = data.disabled ?? false;
    this.cardData = data.cardData ?? {};
    this.tags = data.tags ?? [];
    this.storage = data.storage ?? 'lfs';
    const entries = Object.entries(data.files).map(([path, content]) => entryOf(path, content, this.storage));
    this.commit('main', { title: 'initial commit', author: data.author ?? 'somebody', set: entries });
  }

  /**
   * Adds a commit to a branch.
   * @param {string} branch @param {{ title: string, author: string, set?: readonly Entry[], deleted?: readonly string[], parent?: string | undefined }} change
   */
  commit(branch, { title, author, set = [], deleted = [], parent = this.branches.get(branch) }) {
    const files = new Map(parent === undefined ? [] : this.commits.get(parent)?.files);
    for (const entry of set) files.set(entry.path, entry);
    for (const path of deleted) files.delete(path);
    const id = hex('sha1', `${this.id} ${this.commits.size} ${title}`);
    const date = new Date(1_780_000_000_000 + this.commits.size * 60_000).toISOString();
    const touched = new Set([...set.map(({ path }) => path), ...deleted]);
    this.commits.set(id, { id, title, author, date, parent, files, touched });
    this.branches.set(branch, id);
    return id;
  }

  /** Puts files of a test into a branch, as a commit of somebody. @param {Files} files */
  change(files, { branch = 'main', author = 'somebody', title = 'Update files' } = {}) {
    const set = Object.entries(files).map(([path, content]) => entryOf(path, content, this.storage));
    return this.commit(branch, { title, author, set });
  }

  /** The commit of a revision: a branch, a full commit, or a reference. @param {string} revision */
  commitOf(revision) {
    return this.commits.get(this.branches.get(revision === 'HEAD' ? 'main' : revision) ?? revision);
  }

  /** The commits that lead to one, the newest first. @param {Commit | undefined} last */
  history(last) {
    /** @type {Commit[]} */
    const list = [];
    for (let at = last; at !== undefined; at = at.parent === undefined ? undefined : this.commits.get(at.parent)) {
      list.push(at);
    }
    return list;
  }

  /** All bytes of a file of a revision, for tests. @param {string} path */
  bytes(path, revision = 'main') {
    const entry = this.commitOf(revision)?.files.get(path);
    return entry === undefined ? undefined : new Uint8Array(entry.read(0, entry.size));
  }
}
