import { byId } from './dom.js';
import { filesOf } from './folder.js';

/** Time without a dragover event after which a drag has ended. During a drag the events come every 50 to 350 milliseconds. */
const silenceMilliseconds = 600;

/** What is done with files. Another page that is shown in this document replaces it. */
let handle: ((files: readonly File[]) => void) | undefined;

const holdsFile = (data: DataTransfer | null) => data?.types.includes('Files') ?? false;

/** Accepts files that are dropped anywhere on the page, or pasted, and shows an overlay while a file is dragged over it. */
export function startDropping(onFiles: (files: readonly File[]) => void): void {
  const isFirst = handle === undefined;
  handle = onFiles;
  if (isFirst) listen();
}

function listen(): void {
  const overlay = byId('overlay', HTMLElement);
  let silence: ReturnType<typeof setTimeout> | undefined;
  const hide = () => {
    clearTimeout(silence);
    overlay.hidden = true;
  };
  const take = (event: Event, data: DataTransfer | null) => {
    if (!holdsFile(data)) return;
    event.preventDefault();
    if (data === null) return;
    const files = filesOf(data);
    const open = (found: readonly File[]) => {
      if (found.length > 0) handle?.(found);
    };
    if (files instanceof Promise) void files.then(open);
    else open(files);
  };
  addEventListener('dragover', (event) => {
    if (!holdsFile(event.dataTransfer)) return;
    event.preventDefault();
    overlay.hidden = false;
    // Browsers repeat dragover during a drag, but do not report reliably that the drag has left the window.
    clearTimeout(silence);
    silence = setTimeout(hide, silenceMilliseconds);
  });
  addEventListener('drop', (event) => {
    hide();
    take(event, event.dataTransfer);
  });
  addEventListener('paste', (event) => take(event, event.clipboardData));
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide();
  });
}
