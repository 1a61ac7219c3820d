/**
 * Where the hub is, and on whose behalf it is asked. In Node from the variables and files that the hub's own programs use; mirrors
 * github.com/huggingface/huggingface_hub at ee0a4510, constants.py and utils/_auth.py.
 */
import { rangeError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import { parsedUrl, usualEndpoint } from './names.js';

/** A key to private and gated models. It goes to the endpoint alone, and into no message. */
export interface HubToken {
  readonly text: string;
  /** Where it was found, for messages. */
  readonly from: string;
}

/** Where the hub is, and what may be asked. Plain data, which may be posted to a worker. */
export interface HubSettings {
  /** Address of the hub, without a slash at its end. */
  readonly endpoint: string;
  readonly token?: HubToken | undefined;
  /** True if nothing may be asked: only the cache is read. */
  readonly isOffline: boolean;
  /** The folder of the hub's cache on disk (Node). */
  readonly cache?: string | undefined;
  /** Seconds without an answer about a model, after which it is asked again. */
  readonly answerSeconds?: number | undefined;
  /** Seconds without a byte of a file, after which the rest is asked for again. */
  readonly fileSeconds?: number | undefined;
}

/** Options of `hubModel`. */
export interface HubOptions {
  /**
   * Token for private and gated models. It is sent to the endpoint alone.
   * @defaultValue in Node, that of `HF_TOKEN` or of `hf auth login`
   */
  readonly token?: string | undefined;
  /**
   * Address of the hub.
   * @defaultValue in Node `HF_ENDPOINT`, else `https://huggingface.co`
   */
  readonly endpoint?: string | undefined;
}

/** Seconds that the hub's programs wait, unless a variable states others. */
const usualSeconds = 10;

type Variables = Readonly<Record<string, string | undefined>>;

const variables = (): Variables => (globalThis as { process?: { env?: Variables } }).process?.env ?? {};

/** True for a variable that is on, as Python's huggingface_hub reads it. */
const isOn = (value: string | undefined) => /^(1|on|yes|true)$/i.test(value ?? '');

/** Seconds that a variable states. @throws RangeError naming it */
function secondsOf(env: Variables, name: string): number {
  const text = env[name] || String(usualSeconds);
  const seconds = Number(text);
  if (!(seconds > 0))
    throw rangeError(name, { kind: 'text', form: 'a number of seconds', examples: ['10', '60'] }, text);
  return seconds;
}

/** The folder of the hub's programs, and that of its cache. Undefined outside of Node. */
function foldersOf(env: Variables): { readonly home: string; readonly cache: string } | undefined {
  const [paths, os] = [nodeModule('node:path'), nodeModule('node:os')];
  if (paths === undefined || os === undefined) return undefined;
  const expanded = (path: string) => path.replace(/^~(?=[\\/]|$)/, () => os.homedir());
  const home = expanded(env.HF_HOME || paths.join(env.XDG_CACHE_HOME || paths.join('~', '.cache'), 'huggingface'));
  return { home, cache: expanded(env.HF_HUB_CACHE || env.HUGGINGFACE_HUB_CACHE || paths.join(home, 'hub')) };
}

/** The token of this computer's user. */
function ownToken(env: Variables, home: string | undefined): HubToken | undefined {
  if (isOn(env.HF_HUB_DISABLE_IMPLICIT_TOKEN)) return undefined;
  for (const from of ['HF_TOKEN', 'HUGGING_FACE_HUB_TOKEN']) {
    const text = env[from]?.trim();
    if (text) return { text, from };
  }
  const path = env.HF_TOKEN_PATH || (home && nodeModule('node:path')?.join(home, 'token'));
  try {
    const bytes = path === undefined ? undefined : nodeModule('node:fs')?.readFileSync(path);
    const text = new TextDecoder().decode(bytes).trim();
    return text === '' ? undefined : { text, from: `the file ${path}` };
  } catch {
    // Nobody has logged in.
    return undefined;
  }
}

/** The address of the hub without options: that of `HF_ENDPOINT`, or the usual one. */
export const hubEndpoint = () => (variables().HF_ENDPOINT || usualEndpoint).replace(/\/+$/, '');

/** The settings of this process, and those that are given. @throws RangeError naming the option or the variable, without its value if it is a token */
export function hubSettings({ token: given, endpoint: asked }: HubOptions = {}): HubSettings {
  const env = variables();
  const endpoint = (asked ?? hubEndpoint()).replace(/\/+$/, '');
  if (!/^https?:$/.test(parsedUrl(endpoint)?.protocol ?? '')) {
    const examples = [usualEndpoint];
    throw rangeError(
      asked === undefined ? 'HF_ENDPOINT' : 'endpoint',
      { kind: 'text', form: 'a URL', examples },
      endpoint,
    );
  }
  const folders = foldersOf(env);
  const token = given === undefined ? ownToken(env, folders?.home) : { text: given, from: 'the option token' };
  // A header takes no other characters, and an error of fetch would show the token.
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token.text))
    throw rangeError(token.from, { kind: 'text', form: 'a token of the hub', examples: ['hf_…'] });
  const isOffline = isOn(env.HF_HUB_OFFLINE) || isOn(env.TRANSFORMERS_OFFLINE);
  const [answerSeconds, fileSeconds] = ['HF_HUB_ETAG_TIMEOUT', 'HF_HUB_DOWNLOAD_TIMEOUT'].map((name) =>
    secondsOf(env, name),
  ) as [number, number];
  return { endpoint, token, isOffline, cache: folders?.cache, answerSeconds, fileSeconds };
}
