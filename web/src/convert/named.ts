/** Inputs that are named as on the hub, and results that go there. The code that asks it is loaded with the first name. */
import { imported } from '../core/imported.js';
import type { FarFile } from '../formats/files/bytes.js';
import { withAddress } from '../formats/files/open.js';
import type { PushFile, PushOptions, PushResult } from '../hub/push.js';
import type { HubOptions } from '../hub/settings.js';

/**
 * The input that a text or an address names on the hub, at a commit that stays. Other inputs as they are, texts of addresses as URLs.
 * @throws RangeError naming `file` for a wrong name; ScalepointError `ACCESS`, `NOT_FOUND`, `IO`
 */
export async function withHub<T>(
  input: T,
  signal: AbortSignal | undefined,
): Promise<{ readonly file: T | URL | FarFile }> {
  // An object, because a promise that was given in place of a file must not be awaited here.
  const file = withAddress(input);
  const isAddress = file instanceof URL && /^https?:$/.test(file.protocol);
  if (!isAddress && !(typeof input === 'string' && /^hf:/i.test(input))) return { file };
  const { namedOnHub } = await imported(import('./hub.js'));
  return { file: (await namedOnHub(input, signal)) ?? file };
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
  options: HubOptions & { readonly signal?: AbortSignal | undefined } = {},
): Promise<FarFile> {
  const { openHubModel } = await imported(import('./hub.js'));
  return openHubModel(name, options);
}

/**
 * Pushes files to a repository of the hub, in one commit, and makes the repository if it does not exist. Files that are there with the same bytes
 * are not uploaded again, and those of somebody else are never replaced unless asked for. Needs the package @huggingface/hub.
 * @example await pushModel([{ path: 'tiny-Q4_K_M.gguf', content: blob }], { repository: 'me/tiny-GGUF', token });
 * @throws RangeError naming the option; ScalepointError `ACCESS`, `NOT_FOUND`, `EXISTS`, `CHANGED`, `RUNTIME`, `IO`
 */
export async function pushModel(files: readonly PushFile[], options: PushOptions): Promise<PushResult> {
  const { openPush } = await imported(import('../hub/push.js'));
  return (await openPush(options))(files);
}
