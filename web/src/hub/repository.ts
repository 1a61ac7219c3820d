/** The files of a model on the hub as inputs: each is opened where it lies, in the cache or on a server. */
import { ScalepointError } from '../core/errors.js';
import { type ByteSource, type FarFile, quotedNames } from '../formats/files/bytes.js';
import { RangedFile } from '../formats/files/ranged.js';
import { fetchFromHub, hubRefusal } from './ask.js';
import { cachedListing, cachedPath } from './cache.js';
import { type HubEntry, type HubListing, listModel } from './listing.js';
import { type HubName, hubNameText } from './names.js';
import type { HubSettings } from './settings.js';

/** Largest file in bytes that is kept once it was read as a whole, such as a tokenizer. */
const mostKept = 1 << 25;

/** A model on the hub at a commit. */
export class HubRepository {
  readonly listing: HubListing;
  /** Private, so that no text shows the token. */
  readonly #settings: HubSettings;
  readonly #entries: ReadonlyMap<string, HubEntry>;
  readonly #files = new Map<string, HubFile>();

  constructor(listing: HubListing, settings: HubSettings) {
    this.listing = listing;
    this.#settings = settings;
    this.#entries = new Map(listing.files.map((entry) => [entry.path, entry]));
  }

  get settings(): HubSettings {
    return this.#settings;
  }

  /** The file at a path; undefined if the listing has none. */
  file(path: string): HubFile | undefined {
    const entry = this.#entries.get(path);
    if (entry === undefined) return undefined;
    const file = this.#files.get(path) ?? new HubFile(this, entry);
    this.#files.set(path, file);
    return file;
  }

  /** The file at a path. @throws ScalepointError `NOT_FOUND` with the names of some files that are there */
  need(path: string): HubFile {
    const file = this.file(path);
    if (file !== undefined) return file;
    const { id, files } = this.listing;
    const there =
      files.length === 0
        ? 'it is empty'
        : `it has ${quotedNames(
            files.map((one) => one.path),
            5,
          )}`;
    throw new ScalepointError('NOT_FOUND', `${id} has no file ${JSON.stringify(path)}; ${there}`);
  }
}

/** Lists a model: from the cache where nothing may be asked. @throws ScalepointError `ACCESS`, `NOT_FOUND`, `IO`, `BAD_FILE` */
export async function openRepository(
  name: HubName,
  settings: HubSettings,
  signal?: AbortSignal | undefined,
): Promise<HubRepository> {
  const listing = settings.isOffline ? await cachedListing(name, settings) : await listModel(name, settings, signal);
  return new HubRepository(listing, settings);
}

/** A file of a model on the hub. */
export class HubFile implements FarFile {
  readonly name: string;
  readonly folder: string;
  readonly repository: HubRepository;
  readonly entry: HubEntry;
  readonly #ranged: RangedFile;
  /** The bytes, once they were read as a whole. */
  #kept: Promise<Uint8Array<ArrayBuffer>> | undefined;

  constructor(repository: HubRepository, entry: HubEntry) {
    const { listing, settings } = repository;
    const { id, commit } = listing;
    const { path, size, oid } = entry;
    const { fileSeconds: seconds } = settings;
    const parts = path.split('/');
    this.repository = repository;
    this.entry = entry;
    this.name = parts.at(-1) as string;
    this.folder = parts.at(-2) ?? (id.split('/')[1] as string);
    const label = hubNameText({ id, path });
    // The way to the file states facts about it, which must be those of the listing.
    const check = ({ headers }: Response) => {
      const digest = headers.get('x-linked-etag')?.replace(/^W\/|"/g, '');
      const facts = [
        [commit, headers.get('x-repo-commit')],
        [oid, digest],
        [size, headers.get('x-linked-size')],
      ];
      const isSame = facts.every(([own, given]) => own === undefined || given == null || String(own) === given);
      if (isSame) return;
      throw new ScalepointError('CHANGED', `${label} is not the file that the hub listed at ${commit.slice(0, 7)}`);
    };
    this.#ranged = new RangedFile({
      label,
      address: new URL(`${settings.endpoint}/${id}/resolve/${commit}/${parts.map(encodeURIComponent).join('/')}`),
      size,
      seconds,
      fetch: (address, headers, signal) => fetchFromHub(settings, address, { headers, signal, seconds, check }),
      refusal: (response) => hubRefusal(response, settings, { id, revision: commit, path }),
    });
  }

  /** In plans and reports, a file is its name. */
  toJSON(): string {
    return this.address;
  }

  /** Its name in texts, with the commit. */
  get address(): string {
    const { id, commit } = this.repository.listing;
    return hubNameText({ id, revision: commit, path: this.entry.path });
  }

  beside(path: string): HubFile | undefined {
    const parts = this.entry.path.split('/').slice(0, -1);
    for (const part of path.split('/')) {
      if (part === '..') {
        if (parts.pop() === undefined) return undefined;
      } else parts.push(part);
    }
    // Listings have plain paths alone.
    return this.repository.file(parts.join('/'));
  }

  async open(signal: AbortSignal | undefined): Promise<ByteSource | Blob | string> {
    const { listing, settings } = this.repository;
    const cached = await cachedPath(listing, this.entry, settings);
    if (cached !== undefined) return cached;
    if (settings.isOffline) {
      const what = `the cache of the hub lacks ${this.entry.path} of ${listing.id}`;
      throw new ScalepointError('NOT_FOUND', `${what}, and HF_HUB_OFFLINE allows no request`);
    }
    const source = await this.#ranged.open(signal);
    if (source instanceof Blob || source.size > mostKept) return source;
    return {
      ...source,
      read: async (begin, end) => {
        if (this.#kept === undefined && begin === 0 && end === source.size) {
          this.#kept = source.read(begin, end);
          this.#kept.catch(() => {
            this.#kept = undefined;
          });
        }
        return this.#kept === undefined ? source.read(begin, end) : (await this.#kept).slice(begin, end);
      },
    };
  }
}
