/** Lists the files of a model on the hub, by one request, at a commit that stays for the whole run. */
import { ScalepointError } from '../core/errors.js';
import { askHub } from './ask.js';
import { type HubName, isCommit, isPlainPath } from './names.js';
import type { HubSettings } from './settings.js';

/** A file of a listing. */
export interface HubEntry {
  /** Its path in the repository. */
  readonly path: string;
  /** Its size in bytes; undefined if a mirror does not list it. */
  readonly size?: number | undefined;
  /** SHA-256 of a large file, SHA-1 of git for a small one. */
  readonly oid?: string | undefined;
}

/** The files of a model at a commit. Plain data, which may be posted to a worker. */
export interface HubListing {
  readonly id: string;
  /** The revision that was asked for, if one was. */
  readonly revision?: string | undefined;
  readonly commit: string;
  readonly files: readonly HubEntry[];
  readonly isPrivate: boolean;
  readonly isGated: boolean;
  /** Time of the last change in ms, if known. */
  readonly modified?: number | undefined;
  /** The metadata of its card: license, languages, and more. */
  readonly card: Readonly<Record<string, unknown>>;
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;

/** An entry of the API as ours; undefined for one that no repository can have. */
function entryOf(sibling: unknown): HubEntry | undefined {
  const { rfilename: path, size, blobId, lfs } = isObject(sibling) ? sibling : {};
  if (typeof path !== 'string' || !isPlainPath(path)) return undefined;
  const large = isObject(lfs) ? lfs : {};
  const oid = [large.sha256, blobId].find((id) => typeof id === 'string');
  const bytes = [size, large.size].find((count) => Number.isSafeInteger(count) && (count as number) >= 0);
  return { path, size: bytes as number | undefined, oid: oid as string | undefined };
}

/**
 * Lists a model. Asks for its description with sizes, which also pins the commit: the tree would take a request more for the commit, and one for
 * each 1,000 files.
 * @throws ScalepointError `ACCESS`, `NOT_FOUND`, `IO`, `BAD_FILE`
 */
export async function listModel(
  name: HubName,
  settings: HubSettings,
  signal?: AbortSignal | undefined,
): Promise<HubListing> {
  const { id, revision } = name;
  const route = `models/${id}/revision/${encodeURIComponent(revision ?? 'main')}?blobs=true`;
  const found = await askHub(settings, name, route, signal);
  const { sha, siblings, private: isPrivate, gated, lastModified, cardData } = isObject(found) ? found : {};
  if (!isCommit(sha) || !Array.isArray(siblings)) {
    throw new ScalepointError('BAD_FILE', `the listing of ${id} has no commit or no files`);
  }
  const entries = siblings.flatMap((one): [string, HubEntry][] => {
    const entry = entryOf(one);
    return entry === undefined ? [] : [[entry.path, entry]];
  });
  const time = typeof lastModified === 'string' ? Date.parse(lastModified) : Number.NaN;
  return {
    id,
    revision,
    commit: sha,
    files: [...new Map(entries).values()],
    isPrivate: isPrivate === true,
    isGated: gated === 'auto' || gated === 'manual' || gated === true,
    ...(Number.isFinite(time) && { modified: time }),
    card: isObject(cardData) ? cardData : {},
  };
}
