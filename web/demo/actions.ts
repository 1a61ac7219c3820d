import type { Scalepoint } from 'scalepoint';
import { type DataSet, statisticsOf } from './data.js';
import { byId, setText } from './dom.js';
import { quantize } from './evaluate.js';
import { announce } from './live.js';
import { explainQuantizing, showProblem } from './problems.js';
import { dtypeOf, type Settings } from './settings.js';
import { snippet } from './snippet.js';

const toastMilliseconds = 2500;
/** How long the address of a download stays valid. A download that has begun no longer needs it. */
const downloadMilliseconds = 10_000;

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

/** Saves bytes as a download. */
function save(bytes: Uint8Array<ArrayBuffer>, name: string): void {
  const address = URL.createObjectURL(new Blob([bytes]));
  const anchor = document.createElement('a');
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), downloadMilliseconds);
}

/** Sets up the buttons that copy the code, copy a link and download the packed codes. */
export function startActions(core: Scalepoint, current: () => { data: DataSet; settings: Settings }): void {
  byId('copy', HTMLButtonElement).addEventListener('click', () => {
    const { data, settings } = current();
    void copy(snippet(data, settings), 'Code');
  });
  byId('link', HTMLButtonElement).addEventListener('click', () => void copy(location.href, 'Link'));
  byId('download', HTMLButtonElement).addEventListener('click', () => {
    const { data, settings } = current();
    try {
      const packed = core.pack(quantize(core, data.values, settings, data.shape));
      save(Uint8Array.from(packed), `${data.stem}.${dtypeOf(settings)}.bin`);
    } catch (error) {
      showProblem('settings', explainQuantizing(error, statisticsOf(data.values)));
    }
  });
}
