// Signing in to the hub: OAuth with PKCE, whose client is public and has no secret.
import { hubApp } from './hub-link.js';

/** State of a sign-in, kept until the hub sends the visitor back. */
const pendingKey = 'scalepoint-hub-sign-in';

/** Rights to read what the visitor may read. */
const readScopes = 'openid profile read-repos gated-repos';

/** Rights that a push needs, too: to make repositories and to fill these, and to open pull requests. */
const pushScopes = `${readScopes} contribute-repos write-discussions`;

/** The channel on which a window with the hub's answer hands it to the page that waits for it. */
const channelName = 'scalepoint-hub-sign-in';

/** Milliseconds within which the page that waits has to take an answer. */
const handoverMilliseconds = 2000;

const textOf = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');
const randomText = () => textOf(crypto.getRandomValues(new Uint8Array(32)));
const here = () => location.origin + location.pathname;

/** The page of the hub that asks the visitor, and what its answer is checked with. */
async function begin(scope: string) {
  const { endpoint, client } = hubApp();
  const [verifier, state] = [randomText(), randomText()];
  const challenge = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier));
  const address = new URL(`${endpoint}/oauth/authorize`);
  address.search = new URLSearchParams({
    client_id: client,
    redirect_uri: here(),
    response_type: 'code',
    scope,
    state,
    code_challenge: textOf(new Uint8Array(challenge)),
    code_challenge_method: 'S256',
  }).toString();
  return { address, verifier, state };
}

/** Fetches the token for an answer of the hub. @throws Error in words for the visitor */
async function tokenFor(answer: URLSearchParams, verifier: string): Promise<string> {
  const { endpoint, client } = hubApp();
  const code = answer.get('code');
  if (code === null) throw new Error(answer.get('error_description') ?? 'the hub gave no reason');
  const response = await fetch(`${endpoint}/oauth/token`, {
    method: 'POST',
    body: new URLSearchParams({
      client_id: client,
      grant_type: 'authorization_code',
      code,
      redirect_uri: here(),
      code_verifier: verifier,
    }),
    credentials: 'omit',
    referrerPolicy: 'no-referrer',
  });
  const { access_token: token } = (await response.json().catch(() => ({}))) as { access_token?: unknown };
  if (!response.ok || typeof token !== 'string') throw new Error(`the hub answered ${response.status}: try again`);
  return token;
}

/** Leaves for the page of the hub that asks the visitor. @param name typed so far, for the return */
export async function signIn(name: string): Promise<void> {
  const { address, ...checks } = await begin(readScopes);
  sessionStorage.setItem(pendingKey, JSON.stringify({ ...checks, hash: location.hash, name }));
  location.assign(address);
}

/**
 * Signs in with the rights to push, in a window of its own: this page and its result stay. Gives the token.
 * @throws Error in words for the visitor
 */
export async function signInToPush(signal: AbortSignal): Promise<string> {
  // Opened at once, because browsers allow it only right after a click.
  const opened = open('', '_blank');
  if (opened === null) throw new Error('the browser opened no window: allow it, or give a token');
  const { address, verifier, state } = await begin(pushScopes);
  const channel = new BroadcastChannel(channelName);
  try {
    const answer = await new Promise<URLSearchParams>((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason), { once: true });
      channel.onmessage = ({ data }: MessageEvent<string>) => {
        const given = new URLSearchParams(data);
        if (given.get('state') !== state) return;
        channel.postMessage(state);
        resolve(given);
      };
      opened.location.href = address.href;
    });
    return await tokenFor(answer, verifier);
  } finally {
    channel.close();
  }
}

/** Hands an answer of the hub to the page that waits for it in another window. Returns whether one does. */
async function handOver(answer: URLSearchParams): Promise<boolean> {
  const channel = new BroadcastChannel(channelName);
  const isTaken = new Promise<boolean>((resolve) => {
    channel.onmessage = ({ data }) => {
      if (data === answer.get('state')) resolve(true);
    };
    setTimeout(() => resolve(false), handoverMilliseconds);
  });
  channel.postMessage(answer.toString());
  return isTaken.finally(() => channel.close());
}

/**
 * Takes the answer of the hub out of the address, and fetches the token.
 * @returns undefined if the address has no answer to a sign-in of this tab; `elsewhere` if another window waited for it
 * @throws Error in words for the visitor
 */
export async function finishSignIn(): Promise<
  { readonly token: string; readonly name: string } | 'elsewhere' | undefined
> {
  const answer = new URLSearchParams(location.search);
  if (answer.get('state') === null) return undefined;
  const kept = JSON.parse(sessionStorage.getItem(pendingKey) ?? '{}') as Partial<
    Record<'verifier' | 'state' | 'hash' | 'name', string>
  >;
  const { verifier, state, hash = location.hash, name = '' } = kept;
  history.replaceState(null, '', here() + hash);
  if (answer.get('state') !== state && (await handOver(answer))) return 'elsewhere';
  sessionStorage.removeItem(pendingKey);
  if (verifier === undefined) return undefined;
  if (answer.get('state') !== state) throw new Error('the answer belongs to another attempt to sign in: try again');
  return { token: await tokenFor(answer, verifier), name };
}
