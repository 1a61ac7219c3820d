/** Requests to the hub, and its refusals in words. */
import { ScalepointError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import { quoted } from '../formats/files/bytes.js';
import { answered, bytesOf, drop, fetchError, StalledError, secondsAsked, Tries } from '../formats/files/ranged.js';
import { type HubName, parsedUrl, usualEndpoint } from './names.js';
import type { HubSettings } from './settings.js';

/** Redirects that are followed. */
const mostRedirects = 5;

/** Bytes of an error's body that are read. */
const mostErrorBytes = 1 << 14;

/** Largest answer of the API in bytes. A model with 10,000 files takes some 3 MB. */
const mostAnswerBytes = 50_000_000;

/** A request to the hub. */
export interface HubRequest {
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal | undefined;
  /** Seconds to wait for an answer. */
  readonly seconds?: number | undefined;
  /** Looks at each answer on the way to the file (Node). Pages see the last one alone. */
  readonly check?: (response: Response) => void;
}

/**
 * Fetches from the hub, or from an address to which it led. The token goes to the endpoint alone. In Node, each redirect is looked at before it
 * is followed; in a page, the browser follows, and drops the token on the way to another origin.
 */
export async function fetchFromHub(
  { endpoint, token }: HubSettings,
  address: URL,
  { headers = {}, signal, seconds, check }: HubRequest,
): Promise<Response> {
  const hub = new URL(endpoint);
  const redirect = nodeModule('node:fs') === undefined ? 'follow' : 'manual';
  let url = address;
  for (let redirects = 0; ; redirects++) {
    const own = url.origin === hub.origin && token !== undefined ? { Authorization: `Bearer ${token.text}` } : {};
    const response = await answered(url.host, { seconds, signal }, (signal) =>
      fetch(url, {
        headers: { ...headers, ...own },
        redirect,
        credentials: 'omit',
        referrerPolicy: 'no-referrer',
        signal,
      }),
    );
    if (response.status < 300 || response.status > 399 || !response.headers.has('location')) return response;
    check?.(response);
    drop(response);
    const location = response.headers.get('location') as string;
    const next = parsedUrl(location, url);
    // Mirrors may send on to the hub that they stand for.
    if (next?.origin === usualEndpoint) [next.protocol, next.host] = [hub.protocol, hub.host];
    if (
      redirects === mostRedirects ||
      next === undefined ||
      (next.protocol !== 'https:' && next.protocol !== hub.protocol)
    ) {
      const why = redirects === mostRedirects ? `more than ${mostRedirects} times` : 'to an address that is not https';
      throw new ScalepointError('IO', `cannot fetch from ${hub.host}: the server redirects ${why}`);
    }
    url = next;
  }
}

/** The start of a body as text. */
async function startOfBody(
  response: Response,
  most: number,
  limits: Parameters<typeof bytesOf>[2],
): Promise<{ readonly text: string; readonly isWhole: boolean }> {
  const decoder = new TextDecoder();
  let [text, bytes] = ['', 0];
  for await (const chunk of bytesOf(response, 'an answer of the hub', limits)) {
    bytes += chunk.length;
    text += decoder.decode(chunk, { stream: true });
    if (bytes > most) return { text, isWhole: false };
  }
  return { text: text + decoder.decode(), isWhole: true };
}

/** The error for a refusal of the hub. It says what the hub says, and what helps. @param action words for the work */
export async function hubRefusal(
  response: Response,
  { endpoint, token, answerSeconds: seconds }: HubSettings,
  { id, revision, path, action = 'fetch' }: HubName & { readonly action?: string },
): Promise<ScalepointError> {
  const { status, headers } = response;
  const code = headers.get('x-error-code');
  const { text } = await startOfBody(response, mostErrorBytes, { seconds, signal: undefined }).catch(() => ({
    text: '',
  }));
  // The API answers in JSON, and the way to files in plain text.
  let said = headers.get('x-error-message') ?? '';
  try {
    if (said === '') said = String((JSON.parse(text) as { error?: unknown }).error ?? '');
  } catch {
    if (!text.trimStart().startsWith('<')) said = text;
  }
  said = said
    .replace(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, 300);
  if (token !== undefined) said = said.replaceAll(token.text, '…');
  const page = `${endpoint}/${id}`;
  const logIn = 'set HF_TOKEN, or run hf auth login';
  const access = (message: string) => new ScalepointError('ACCESS', message);
  const missing = (message: string) => new ScalepointError('NOT_FOUND', message);
  if (status === 429) {
    const seconds = secondsAsked(response);
    const when = seconds === undefined ? 'try again in five minutes' : `it is filled again in ${Math.ceil(seconds)} s`;
    const more = token === undefined ? `; with a token it is larger: ${logIn}` : '';
    return new ScalepointError('IO', `the hub's quota of requests is used up; ${when}${more}`);
  }
  if (code === 'GatedRepo') {
    if (token === undefined) return access(`${id} is gated: ask for access at ${page}, then ${logIn}`);
    const scope = 'a fine-grained token also needs read access to public gated repositories';
    return access(`${id} is gated, and the token of ${token.from} has no access: ask for it at ${page}; ${scope}`);
  }
  if (code === 'RevisionNotFound')
    return missing(`${id} has no revision ${quoted(revision ?? 'main')}; ${page} lists them`);
  if (code === 'EntryNotFound') return missing(`${id} has no file ${quoted(path ?? '')}`);
  if (/invalid credentials/i.test(said)) {
    return access(`the hub refuses the token of ${token?.from}: run hf auth login for a new one, or unset it`);
  }
  if (code === 'RepoNotFound' || status === 401) {
    if (token === undefined)
      return access(`${id} does not exist, or is private: check the name; for a private model, ${logIn}`);
    return access(`${id} does not exist, or the token of ${token.from} may not read it: check both`);
  }
  if (status === 403) return access(`the hub refuses ${id}${said === '' ? '' : `: ${said}`}`);
  const what = `cannot ${action} ${id}: the server answered ${status}${said === '' ? '' : `, ${quoted(said)}`}`;
  return new ScalepointError('IO', what);
}

/** Asks the API, as often as it takes. @throws ScalepointError */
export async function askHub(
  settings: HubSettings,
  name: HubName,
  route: string,
  signal: AbortSignal | undefined,
): Promise<unknown> {
  const tries = new Tries(signal);
  const label = `the listing of ${name.id}`;
  const limits = { signal, seconds: settings.answerSeconds };
  for (;;) {
    let response: Response;
    try {
      response = await fetchFromHub(settings, new URL(`${settings.endpoint}/api/${route}`), limits);
    } catch (cause) {
      signal?.throwIfAborted();
      if (cause instanceof StalledError) {
        await tries.again(cause);
        continue;
      }
      throw cause instanceof ScalepointError ? cause : fetchError(label, cause);
    }
    const passed = await tries.passed(response, (refused) => hubRefusal(refused, settings, name));
    if (passed === undefined) continue;
    let failure: unknown;
    try {
      const { text, isWhole } = await startOfBody(passed, mostAnswerBytes, limits);
      if (isWhole) return JSON.parse(text);
    } catch (cause) {
      signal?.throwIfAborted();
      failure = cause;
      if (!(cause instanceof SyntaxError)) {
        await tries.again(cause instanceof StalledError ? cause : fetchError(label, cause));
        continue;
      }
    }
    throw new ScalepointError('BAD_FILE', `${label} is not the JSON of a hub`, { cause: failure });
  }
}
