/** Models of the hub among the inputs of calls. */
import { rangeError } from '../core/errors.js';
import { type FarFile, type FileInput, quoted } from '../formats/files/bytes.js';
import { openSource } from '../formats/files/open.js';
import { type HubName, hubNameOf, hubNameText, nameForm } from '../hub/names.js';
import { HubFile, type HubRepository, openRepository } from '../hub/repository.js';
import { type HubOptions, hubEndpoint, hubSettings } from '../hub/settings.js';
import { modelInList } from './folder.js';

/** The file that a name means: the file of its path, or the model in the folder or the repository. @throws ScalepointError `NOT_FOUND` */
export function fileInRepository(repository: HubRepository, { path = '', ...name }: HubName): HubFile {
  const { files } = repository.listing;
  const exact = repository.file(path);
  if (exact !== undefined) return exact;
  const start = path === '' ? '' : `${path}/`;
  const inside = files.flatMap((file) => (file.path.startsWith(start) ? file.path.slice(start.length) : []));
  if (inside.length === 0 && path !== '') return repository.need(path);
  const nameWith = (choice: Partial<HubName>) =>
    hubNameText({ ...name, tag: undefined, ...choice, ...(choice.path && { path: start + choice.path }) });
  const label = path === '' ? name.id : `the folder ${quoted(path)} of ${name.id}`;
  return repository.need(start + modelInList(inside, name.tag, label, nameWith));
}

/** The file of the hub that a text or an address names; undefined for others. See `withHub`. */
export async function namedOnHub(input: unknown, signal: AbortSignal | undefined): Promise<HubFile | undefined> {
  const name = hubNameOf(input, hubEndpoint());
  return name && fileInRepository(await openRepository(name, hubSettings(), signal), name);
}

/** Opens a model by its name. See `hubModel`. */
export async function openHubModel(
  name: string | URL,
  { signal, ...options }: HubOptions & { readonly signal?: AbortSignal | undefined },
): Promise<HubFile> {
  const settings = hubSettings(options);
  const isBare = typeof name === 'string' && !/^(hf|https?):/i.test(name);
  const found = hubNameOf(isBare ? `hf:${name}` : name, settings.endpoint);
  if (found === undefined) throw rangeError('name', nameForm, String(name));
  return fileInRepository(await openRepository(found, settings, signal), found);
}

/** The file of the hub that an input is; undefined for other inputs. */
export const hubFileOf = (input: FileInput): HubFile | undefined => (input instanceof HubFile ? input : undefined);

/** The text of a small file of the hub. @throws ScalepointError */
export async function readHubText(file: FarFile): Promise<string> {
  const source = await openSource(file);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(await source.read(0, source.size));
  } finally {
    await source.close();
  }
}
