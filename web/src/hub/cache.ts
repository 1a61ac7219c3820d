/**
 * The cache that the hub's programs share on disk (Node). It is read, and never written. Mirrors github.com/huggingface/huggingface_hub at
 * ee0a4510, file_download.py: `models--OWNER--NAME/{refs/REVISION, snapshots/COMMIT/PATH, blobs/DIGEST}`.
 */
import { ScalepointError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import { quoted } from '../formats/files/bytes.js';
import type { HubEntry, HubListing } from './listing.js';
import { type HubName, isCommit } from './names.js';
import type { HubSettings } from './settings.js';

/** The folder of a model, and the modules to read it. Undefined outside of Node. */
function folderOf(id: string, { cache }: HubSettings) {
  const [fs, sync, paths] = [nodeModule('node:fs/promises'), nodeModule('node:fs'), nodeModule('node:path')];
  if (cache === undefined || fs === undefined || sync === undefined || paths === undefined) return undefined;
  return { fs, sync, paths, folder: paths.join(cache, `models--${id.replaceAll('/', '--')}`) };
}

/** The path of a file in the cache, if it is there as a whole: its size agrees, and its name among the blobs. */
export async function cachedPath(
  { id, commit }: Pick<HubListing, 'id' | 'commit'>,
  { path, size, oid }: HubEntry,
  settings: HubSettings,
): Promise<string | undefined> {
  const place = folderOf(id, settings);
  if (place === undefined || size === undefined) return undefined;
  const { fs, paths, folder } = place;
  const file = paths.join(folder, 'snapshots', commit, ...path.split('/'));
  try {
    const status = await fs.stat(file);
    if (!status.isFile() || status.size !== size) return undefined;
    // Windows has copies in place of links.
    const real = await fs.realpath(file);
    const isBlob = paths.basename(paths.dirname(real)) === 'blobs';
    return isBlob && oid !== undefined && paths.basename(real) !== oid ? undefined : file;
  } catch {
    return undefined;
  }
}

/** The listing of a snapshot, without asking the hub. @throws ScalepointError `NOT_FOUND` */
export async function cachedListing({ id, revision }: HubName, settings: HubSettings): Promise<HubListing> {
  const place = folderOf(id, settings);
  const files: HubEntry[] = [];
  let commit = revision;
  if (place !== undefined) {
    const { fs, sync, paths, folder } = place;
    const list = async (inside: readonly string[]): Promise<void> => {
      const base = paths.join(folder, 'snapshots', commit as string, ...inside);
      for (const name of (await fs.readdir(base)).sort()) {
        const status = await fs.stat(paths.join(base, name)).catch(() => undefined);
        if (status?.isDirectory()) await list([...inside, name]);
        else if (status?.isFile()) files.push({ path: [...inside, name].join('/'), size: status.size });
      }
    };
    try {
      if (!isCommit(commit)) {
        const ref = sync.readFileSync(paths.join(folder, 'refs', ...(revision ?? 'main').split('/')));
        commit = new TextDecoder().decode(ref).trim();
      }
      if (isCommit(commit)) await list([]);
    } catch {
      // The error below says it.
    }
  }
  if (isCommit(commit) && files.length > 0)
    return { id, revision, commit, files, isPrivate: false, isGated: false, card: {} };
  const what = `the cache of the hub has no ${id}${revision === undefined ? '' : ` at ${quoted(revision)}`}`;
  throw new ScalepointError('NOT_FOUND', `${what}, and HF_HUB_OFFLINE allows no request`);
}
