import { byId, setText } from './dom.js';
import { announce } from './live.js';

const toastMilliseconds = 2500;
/** Milliseconds that the address of a download stays valid. A download that has begun no longer needs it. */
const downloadMilliseconds = 60_000;

let flashing: ReturnType<typeof setTimeout> | undefined;

/** Shows a short message at the bottom of the window and announces it to screen readers. */
function flash(words: string): void {
  const toast = byId('toast', HTMLElement);
  setText(toast, words);
  toast.hidden = false;
  announce(words, 0);
  clearTimeout(flashing);
  flashing = setTimeout(() => {
    toast.hidden = true;
  }, toastMilliseconds);
}

/** Copies text to the clipboard. `what` names the text in the message that follows. */
export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    flash(`${what} copied`);
  } catch {
    flash('The browser did not allow copying: select the text and copy it by hand');
  }
}

/** Makes buttons copy the text of the element that their `data-copies` names. */
export function startCopying(): void {
  document.addEventListener('click', ({ target }) => {
    const button = (target as Element).closest<HTMLElement>('[data-copies]');
    if (button === null) return;
    const { copies = '', name = '' } = button.dataset;
    void copy(byId(copies, HTMLElement).textContent ?? '', name);
  });
}

/** A value as a JSON file. */
export const jsonBlob = (value: unknown): Blob =>
  new Blob([`${JSON.stringify(value, null, 2)}\n`], { type: 'application/json' });

/** Saves a file as a download. `done` is called when the file is no longer needed. */
export function download(blob: Blob, name: string, done: () => void = () => {}): void {
  const address = URL.createObjectURL(blob);
  const anchor = document.createElement('a');
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => {
    URL.revokeObjectURL(address);
    done();
  }, downloadMilliseconds);
}
