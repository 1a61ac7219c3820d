import type { QuantizeModelResult } from 'scalepoint/model';

/** A place for a result, so that it never lies in memory as a whole where the browser has another place for it. */
export interface SavePlace {
  /** What `quantizeModel` writes to; undefined for memory. */
  readonly output: FileSystemFileHandle | undefined;
  /** Gives the finished file to the visitor. */
  finish(result: QuantizeModelResult): Promise<void>;
  /** Removes what is there. */
  discard(): Promise<void>;
}

type SavePicker = (options: { suggestedName: string }) => Promise<FileSystemFileHandle>;

/** Files of this page in the origin's private file system begin so. */
const prefix = 'scalepoint-';
/** A download has its own hold on the bytes once it has begun; until then the file has to stay. */
const downloadMilliseconds = 60_000;

/** Hands a file to the browser as a download. */
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

/** Removes files that earlier visits left behind. */
export async function removeLeftovers(): Promise<void> {
  try {
    const folder = await navigator.storage.getDirectory();
    for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) {
      if (name.startsWith(prefix)) await folder.removeEntry(name).catch(() => {});
    }
  } catch {
    // Without such a file system there is nothing to remove.
  }
}

/**
 * Asks where to put a result: the save dialog where the browser has one, else a file of this page's own that becomes a download, else
 * memory. Undefined if the visitor closed the dialog.
 */
export async function choosePlace(name: string): Promise<SavePlace | undefined> {
  const picker = (globalThis as { showSaveFilePicker?: SavePicker }).showSaveFilePicker;
  if (picker !== undefined) {
    try {
      const handle = await picker({ suggestedName: name });
      return { output: handle, async finish() {}, async discard() {} };
    } catch (error) {
      if (error instanceof DOMException && error.name === 'AbortError') return undefined;
      // Some frames may not open dialogs; the other ways remain.
    }
  }
  try {
    const folder = await navigator.storage.getDirectory();
    const temporary = `${prefix}${crypto.randomUUID()}`;
    const handle = await folder.getFileHandle(temporary, { create: true });
    const discard = () => folder.removeEntry(temporary).catch(() => {});
    return {
      output: handle,
      async finish() {
        download(await handle.getFile(), name, () => void discard());
      },
      discard,
    };
  } catch {
    return {
      output: undefined,
      async finish(result) {
        download(await result.blob(), name);
      },
      async discard() {},
    };
  }
}
