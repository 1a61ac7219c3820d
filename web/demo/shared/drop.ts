import { byId } from './dom.js';

/** Time without a dragover event after which a drag has ended. During a drag the events come every 50 to 350 milliseconds. */
const silenceMilliseconds = 600;

/** Accepts files dropped anywhere on the page, and shows an overlay while a file is dragged over it. */
export function startDropping(onFiles: (files: readonly File[]) => void): void {
  const overlay = byId('overlay', HTMLElement);
  let silence: ReturnType<typeof setTimeout> | undefined;
  const hide = () => {
    clearTimeout(silence);
    overlay.hidden = true;
  };
  const holdsFile = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
  addEventListener('dragover', (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    overlay.hidden = false;
    // Browsers repeat dragover during a drag, but do not report reliably that the drag has left the window.
    clearTimeout(silence);
    silence = setTimeout(hide, silenceMilliseconds);
  });
  addEventListener('drop', (event) => {
    hide();
    if (!holdsFile(event)) return;
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length > 0) onFiles(files);
  });
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide();
  });
}
