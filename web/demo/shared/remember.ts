// Settings that this browser keeps for the next visit. Storage may be forbidden; the site works without it.

const prefix = 'scalepoint-';

/** The text remembered under a name, or an empty one. */
export function recall(name: string): string {
  try {
    return localStorage.getItem(prefix + name) ?? '';
  } catch {
    return '';
  }
}

/** Remembers a text under a name, or forgets it if it is empty. */
export function remember(name: string, text: string): void {
  try {
    if (text === '') localStorage.removeItem(prefix + name);
    else localStorage.setItem(prefix + name, text);
  } catch {
    // Without storage it lasts until the page is closed.
  }
}
