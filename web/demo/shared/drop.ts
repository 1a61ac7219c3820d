import { byId } from './dom.js';
import { filesIn } from './entries.js';
import { type Handle, noteHandle } from './handles.js';

/** Time without a dragover event after which a drag has ended. During a drag the events come every 50 to 350 milliseconds. */
const silenceMilliseconds = 600;

/** Handlers of files and texts. Another page that is shown in this document replaces them. */
interface Takers {
  files(files: readonly File[]): void;
  text(text: string): void;
}
let takers: Takers | undefined;

const holdsFile = (data: DataTransfer | null) => data?.types.includes('Files') ?? false;
const holdsText = (data: DataTransfer | null) => data?.types.includes('text/plain') ?? false;

const typed =
  'textarea, select, [contenteditable], input:not([type="range"], [type="radio"], [type="checkbox"], [type="file"])';

/** True if an event belongs to a field that takes texts itself. */
const isTyping = ({ target }: Event) => target instanceof Element && target.closest(typed) !== null;

/** A text as a file, for handlers of files. */
export const fileOfText = (text: string) => new File([text], 'The text', { type: 'text/plain' });

/**
 * Accepts files and texts dropped or pasted anywhere on the page, and shows an overlay during a drag. Texts that go into a field are left
 * to the field.
 * @param onText the default makes a file of a text
 */
export function startDropping(
  onFiles: (files: readonly File[]) => void,
  onText: (text: string) => void = (text) => onFiles([fileOfText(text)]),
): void {
  const isFirst = takers === undefined;
  takers = { files: onFiles, text: onText };
  if (isFirst) listen();
}

/** An item of a drop, where the browser gives handles. */
type Item = DataTransferItem & { getAsFileSystemHandle?(): Promise<Handle | null> };

/** The dropped files; for folders, those of their models. Call it while the event is handled. */
function filesOf(data: DataTransfer): readonly File[] | Promise<readonly File[]> {
  const items = [...data.items].filter(({ kind }) => kind === 'file') as Item[];
  const handles = items.map((item) =>
    item.getAsFileSystemHandle?.().then(
      (handle) => handle ?? undefined,
      () => undefined,
    ),
  );
  const entries = items.map((item) => item.webkitGetAsEntry?.());
  if (!entries.some((entry) => entry?.isDirectory)) {
    const files = [...data.files];
    for (const [i, file] of files.entries()) noteHandle([file], handles[i]);
    return files;
  }
  const found = entries.map(async (entry, i) => {
    const files = entry ? await filesIn(entry) : [];
    noteHandle(files, handles[i]);
    return files;
  });
  return Promise.all(found).then((all) => all.flat());
}

/** Passes the files or the text of an event on. */
function take(event: Event, data: DataTransfer | null): void {
  if (holdsFile(data)) {
    event.preventDefault();
    if (data === null) return;
    const open = (found: readonly File[]) => {
      if (found.length > 0) takers?.files(found);
    };
    const files = filesOf(data);
    if (files instanceof Promise) void files.then(open);
    else open(files);
    return;
  }
  const text = data?.getData('text/plain') ?? '';
  if (text.trim() === '' || isTyping(event)) return;
  event.preventDefault();
  takers?.text(text);
}

function listen(): void {
  const overlay = byId('overlay', HTMLElement);
  let silence: ReturnType<typeof setTimeout> | undefined;
  /** True during a drag that began on this page. Its content is not offered to the page again. */
  let isOwn = false;
  const hide = () => {
    clearTimeout(silence);
    overlay.hidden = true;
  };
  addEventListener('dragstart', () => {
    isOwn = true;
  });
  addEventListener('dragend', () => {
    isOwn = false;
  });
  addEventListener('dragover', (event) => {
    const isText = holdsText(event.dataTransfer) && !isOwn && !isTyping(event);
    if (!holdsFile(event.dataTransfer) && !isText) return;
    event.preventDefault();
    overlay.hidden = false;
    // Browsers repeat dragover during a drag, but do not report reliably that the drag has left the window.
    clearTimeout(silence);
    silence = setTimeout(hide, silenceMilliseconds);
  });
  addEventListener('drop', (event) => {
    hide();
    if (!isOwn) take(event, event.dataTransfer);
  });
  addEventListener('paste', (event) => take(event, event.clipboardData));
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide();
  });
}
