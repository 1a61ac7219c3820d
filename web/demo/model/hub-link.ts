// Facts about the hub that are there before the panels: its address, the name in the link, and the token of this tab.
import { byId } from '../shared/dom.js';

/** The hub of this page, and the id of the app with which visitors sign in there; empty without one. A Space has an app of its own. */
export function hubApp(): { readonly endpoint: string; readonly client: string } {
  const { endpoint = '', client = '' } = byId('hub', HTMLFormElement).dataset;
  const space = (globalThis as { huggingface?: { variables?: Record<string, string> } }).huggingface?.variables;
  return { endpoint, client: space?.OAUTH_CLIENT_ID ?? client };
}

/** The token of this tab, which ends with it. */
const tokenKey = 'scalepoint-hub-token';

export function storedToken(): string {
  try {
    return sessionStorage.getItem(tokenKey) ?? '';
  } catch {
    // The browser keeps nothing for this page.
    return '';
  }
}

/** Keeps a token for this tab; an empty one is forgotten. */
export function storeToken(token: string): void {
  try {
    if (token === '') sessionStorage.removeItem(tokenKey);
    else sessionStorage.setItem(tokenKey, token);
  } catch {
    // It is asked for again.
  }
}

/** The name in a link, which `nameInLink` wrote. */
export const nameInLink = (hash: string): string | undefined =>
  new URLSearchParams(hash.replace(/^#/, '')).get('model') ?? undefined;

/** A name as part of a link, legible. */
export const linkOf = (name: string): string =>
  `model=${encodeURIComponent(name).replace(/%(2F|3A|40)/g, (text) => decodeURIComponent(text))}`;
