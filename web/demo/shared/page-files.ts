// Files of a model on a page: those that the visitor dropped, and those on the hub, which are read where they lie.
import type { FarFile } from 'scalepoint/model';
import { type HubListing, HubRepository, type HubSettings } from '../../src/tooling.js';
import { withPath } from './file-path.js';

/** A file of a model on the hub. Plain data, which may be posted to workers. */
export interface HubPageFile {
  readonly name: string;
  readonly size: number;
  /** Its path in the repository. */
  readonly path: string;
  /** Its path behind the name of the repository, as files of dropped folders have it. */
  readonly webkitRelativePath: string;
  readonly listing: HubListing;
  /** With the token, which goes to the hub alone. */
  readonly settings: HubSettings;
}

/** A file of a model. All files of one model are of the same kind, and the first one of the hub is the model. */
export type PageFile = File | HubPageFile;

/** True for a file of a model on the hub. */
export const isOnHub = (file: PageFile | undefined): file is HubPageFile => file !== undefined && 'listing' in file;

/** The repositories of this thread: their headers and small files are fetched once. */
const repositories = new Map<string, HubRepository>();

function hubFileOf({ path, listing, settings }: HubPageFile) {
  const key = JSON.stringify([settings, listing.id, listing.commit]);
  const repository = repositories.get(key) ?? new HubRepository(listing, settings);
  repositories.set(key, repository);
  return repository.need(path);
}

/** Files as the input of a call of the package. */
export function inputOf(files: readonly PageFile[]): File[] | FarFile {
  const [main] = files;
  return isOnHub(main) ? hubFileOf(main) : ([...files] as File[]);
}

/** A small file as a whole. */
export async function wholeFile(file: PageFile): Promise<File> {
  if (!isOnHub(file)) return file;
  const source = await hubFileOf(file).open(undefined);
  if (typeof source === 'string') throw new TypeError('pages have no cache of the hub');
  if (source instanceof Blob) return withPath(new File([source], file.name), file.webkitRelativePath);
  const bytes = await source.read(0, source.size);
  await source.close();
  return withPath(new File([bytes], file.name), file.webkitRelativePath);
}
