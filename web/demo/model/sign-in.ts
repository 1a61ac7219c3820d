// Signing in to the hub, for a token that reads: OAuth with PKCE, whose client is public and has no secret.

/** State of a sign-in, kept until the hub sends the visitor back. */
const pendingKey = 'scalepoint-hub-sign-in';

/** Rights to read what the visitor may read. */
const scopes = 'openid profile read-repos gated-repos';

const textOf = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');
const randomText = () => textOf(crypto.getRandomValues(new Uint8Array(32)));
const here = () => location.origin + location.pathname;

/** Leaves for the page of the hub that asks the visitor. @param client id of the app @param name typed so far, for the return */
export async function signIn(endpoint: string, client: string, name: string): Promise<void> {
  const [verifier, state] = [randomText(), randomText()];
  sessionStorage.setItem(pendingKey, JSON.stringify({ verifier, state, hash: location.hash, name }));
  const challenge = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier));
  const address = new URL(`${endpoint}/oauth/authorize`);
  address.search = new URLSearchParams({
    client_id: client,
    redirect_uri: here(),
    response_type: 'code',
    scope: scopes,
    state,
    code_challenge: textOf(new Uint8Array(challenge)),
    code_challenge_method: 'S256',
  }).toString();
  location.assign(address);
}

/**
 * Takes the answer of the hub out of the address, and fetches the token.
 * @returns undefined if the address has no answer to a sign-in of this tab
 * @throws Error in words for the visitor
 */
export async function finishSignIn(
  endpoint: string,
  client: string,
): Promise<{ readonly token: string; readonly name: string } | undefined> {
  const answer = new URLSearchParams(location.search);
  const kept = sessionStorage.getItem(pendingKey);
  if (kept === null || answer.get('state') === null) return undefined;
  sessionStorage.removeItem(pendingKey);
  const { verifier, state, hash, name } = JSON.parse(kept) as Record<'verifier' | 'state' | 'hash' | 'name', string>;
  history.replaceState(null, '', here() + hash);
  if (answer.get('state') !== state) throw new Error('the answer belongs to another attempt to sign in: try again');
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
  return { token, name };
}
