/**
 * Names of models on the hub: `hf:owner/name`, `hf://models/owner/name@revision/path`, `hf:owner/name:Q4_K_M`, and addresses of the hub's
 * pages. Mirrors github.com/huggingface/huggingface_hub at ee0a4510, utils/_hf_uris.py and utils/_validators.py, but for the tag behind the
 * colon, which llama.cpp and Ollama have.
 */
import { rangeError } from '../core/errors.js';

/** A model on the hub, or a file or folder of it. */
export interface HubName {
  /** Owner and name. */
  readonly id: string;
  /** Branch, tag, commit or reference; the main branch by default. */
  readonly revision?: string | undefined;
  /** Path of a file or folder. */
  readonly path?: string | undefined;
  /** The type of the wanted file, such as Q4_K_M. */
  readonly tag?: string | undefined;
}

/** The hub without `HF_ENDPOINT`. */
export const usualEndpoint = 'https://huggingface.co';

/** Hosts of pages of the usual hub. */
const pageHosts: readonly string[] = ['huggingface.co', 'www.huggingface.co', 'hf.co'];

/** First parts of names and addresses of other things than models. */
const otherThings: readonly string[] = ['datasets', 'spaces', 'kernels', 'buckets'];

/** Pages of a file or folder. */
const routes: readonly string[] = ['blob', 'raw', 'resolve', 'tree', 'blame'];

/** Names of models, for errors. */
export const nameForm = {
  kind: 'text',
  form: 'the name of a model on the hub',
  examples: ['hf:owner/name', 'hf:owner/name:Q4_K_M', 'hf:owner/name@main/file.gguf'],
} as const;

/** True for a path that stays in its repository, on every system. */
export function isPlainPath(path: string): boolean {
  const parts = path.split('/');
  return parts.every((part) => part !== '' && part !== '.' && part !== '..') && !/[\\\0]/.test(path);
}

/** True for the name of a commit. */
export const isCommit = (text: unknown): text is string => typeof text === 'string' && /^[0-9a-f]{40}$/.test(text);

/** True for an owner and a name as the hub allows them. */
function isId(id: string): boolean {
  const isNamed = /^[\w.-]{1,96}\/[\w.-]{1,96}$/.test(id) && id.length <= 97;
  return isNamed && !/--|\.\.|\.git$|(^|\/)[.-]|[.-](\/|$)/.test(id);
}

/** True for a name that git takes for a branch, a tag or a commit. */
const isRevision = (text: string) => text.length <= 255 && /^[^\s\p{Cc}~^:?*[\\]+$/u.test(text) && isPlainPath(text);

/** Decodes a part of an address. Undefined for bytes that are not UTF-8. */
function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** A text as a URL; undefined for other texts. */
export function parsedUrl(text: string, base?: URL): URL | undefined {
  try {
    return new URL(text, base);
  } catch {
    return undefined;
  }
}

/** Splits a revision from the path behind it. A slash in a revision is written %2F, except in `refs/pr/1` and `refs/convert/NAME`. */
function splitRevision(parts: readonly string[]): Pick<HubName, 'revision' | 'path'> {
  const count = parts[0] === 'refs' && (parts[1] === 'pr' || parts[1] === 'convert') ? 3 : 1;
  const path = parts.slice(count).join('/');
  return { revision: parts.slice(0, count).join('/'), ...(path !== '' && { path }) };
}

/** The parts of an address on a page of the hub; undefined for other addresses. */
function pageParts(url: URL, endpoint: string): string[] | undefined {
  const own = parsedUrl(endpoint) ?? new URL(usualEndpoint);
  const prefix = own.pathname.replace(/\/$/, '');
  const isOwn = url.origin === own.origin && url.pathname.startsWith(`${prefix}/`);
  if (!isOwn && !(pageHosts.includes(url.hostname) && /^https?:$/.test(url.protocol))) return undefined;
  const path = isOwn ? url.pathname.slice(prefix.length) : url.pathname;
  const parts = path.split('/').filter((part) => part !== '');
  return parts[0] === 'api' ? undefined : parts;
}

/**
 * Reads a name of the hub, or an address of one of its pages. Undefined for other texts and addresses.
 * @throws RangeError naming `file` if it is a wrong name
 */
export function hubNameOf(given: unknown, endpoint = usualEndpoint): HubName | undefined {
  let name: HubName | undefined;
  if (typeof given === 'string' && /^hf:/i.test(given)) {
    const text = given.replace(/^hf:(\/\/)?/i, '').replace(/^models\/(?=[^/]+\/)/, '');
    const [kind = ''] = text.split('/');
    if (otherThings.includes(kind)) throw rangeError('file', nameForm, given);
    const [, id = '', revised, revision = '', tag, path] =
      /^([^/@:]*\/[^/@:]*)(@((?:refs\/(?:pr|convert)\/)?[^/:]*))?(?::([^/]*)|\/(.*))?$/s.exec(text) ?? [];
    name = {
      id,
      ...(revised !== undefined && { revision: decoded(revision) ?? '' }),
      ...(path !== undefined && path !== '' && { path: path.replace(/\/$/, '') }),
      ...(tag !== undefined && { tag }),
    };
  } else {
    const isAddress = typeof given === 'string' && /^https?:\/\//i.test(given);
    const url = isAddress ? parsedUrl(given) : given;
    if (!(url instanceof URL)) return undefined;
    const parts = pageParts(url, endpoint);
    if (parts === undefined) return undefined;
    const [owner = '', model = '', route, ...rest] = parts;
    if (otherThings.includes(owner) || (route !== undefined && (!routes.includes(route) || rest.length === 0)))
      throw rangeError('file', nameForm, url.href);
    // The page of a model shows a file beside it.
    const shown = url.searchParams.get('show_file_info');
    const place = route === undefined ? { ...(shown && { path: shown }) } : splitRevision(rest);
    const [revision, path] = [place.revision, place.path].map((text) => text && (decoded(text) ?? '..'));
    name = { id: `${owner}/${model}`, ...(revision && { revision }), ...(path && { path }) };
  }
  const { id, revision, path, tag } = name;
  const isRight =
    isId(id) &&
    (revision === undefined || isRevision(revision)) &&
    (path === undefined || isPlainPath(path)) &&
    (tag === undefined || /^[\w.-]+$/.test(tag));
  if (!isRight) throw rangeError('file', nameForm, given instanceof URL ? given.href : given);
  return name;
}

/** A name as text, as `hubNameOf` reads it. */
export function hubNameText({ id, revision, path, tag }: HubName): string {
  const at =
    revision === undefined
      ? ''
      : `@${/^refs\/(pr|convert)\//.test(revision) ? revision : encodeURIComponent(revision)}`;
  return `hf:${id}${at}${path === undefined ? '' : `/${path}`}${tag === undefined ? '' : `:${tag}`}`;
}
