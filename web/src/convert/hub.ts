/** Models of the hub among the inputs of calls. */
import { type FarFile, type FileInput, quoted } from '../formats/files/bytes.js';
import { openSource, withAddress } from '../formats/files/open.js';
import { type HubName, hubNameOf, hubNameText, usualEndpoint } from '../hub/names.js';
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

/**
 * The input that a text or an address names on the hub, at a commit that stays. Other inputs as they are, texts of addresses as URLs.
 * @throws RangeError naming `file` for a wrong name; ScalepointError `ACCESS`, `NOT_FOUND`, `IO`
 */
export async function withHub<T>(
  input: T,
  signal: AbortSignal | undefined,
): Promise<{ readonly file: T | URL | FarFile }> {
  const isText = typeof input === 'string';
  // An object, because a promise that was given in place of a file must not be awaited here.
  if (!(isText && /^hf:/i.test(input))) {
    const url = withAddress(input);
    if (!(url instanceof URL && /^https?:$/.test(url.protocol))) return { file: url };
  }
  const name = hubNameOf(input, hubEndpoint());
  if (name === undefined) return { file: withAddress(input) };
  return { file: fileInRepository(await openRepository(name, hubSettings(), signal), name) };
}

/**
 * Opens a model of the hub by one request. Its commit is pinned, so that several calls read the same files, and each file is asked for as
 * rarely as possible. Calls also take names of the hub as texts; this is for a token of another user, or for several calls.
 * @param name `owner/name`, `hf:owner/name:Q4_K_M`, `hf:owner/name@revision/path`, or the address of a page of the hub
 * @example const file = await hubModel('hf:owner/name', { token });
 * @throws RangeError naming the argument; ScalepointError `ACCESS`, `NOT_FOUND`, `IO`
 */
export async function hubModel(
  name: string | URL,
  { signal, ...options }: HubOptions & { readonly signal?: AbortSignal | undefined } = {},
): Promise<FarFile> {
  const settings = hubSettings(options);
  const isBare = typeof name === 'string' && /^[\w.-]+\/[\w.-]+([@:/].*)?$/.test(name) && !/^hf:|^https?:/i.test(name);
  const found =
    hubNameOf(isBare ? `hf:${name}` : name, settings.endpoint) ?? hubNameOf(`hf:${String(name)}`, usualEndpoint);
  return fileInRepository(await openRepository(found as HubName, settings, signal), found as HubName);
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
