import type { QuantizeModelResult } from 'scalepoint/model';
import { download } from '../shared/copy.js';

/** Where a result is written. It is a file if the browser has one to offer, so that the result need not fit in memory. */
export interface SavePlace {
  /** The `output` option of `quantizeModel`; undefined means memory. */
  readonly output: FileSystemFileHandle | undefined;
  /** Hands the finished file to the visitor. */
  finish(result: QuantizeModelResult): Promise<void>;
  /** Removes the unfinished file, if it is this page's own. */
  discard(): Promise<void>;
}

type SavePicker = (options: { suggestedName: string }) => Promise<FileSystemFileHandle>;

/** Prefix of this page's files in the origin private file system. */
const prefix = 'scalepoint-';
/** Removes files that earlier visits left in the origin private file system. */
export async function removeLeftovers(): Promise<void> {
  try {
    const folder = await navigator.storage.getDirectory();
    for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) {
      if (name.startsWith(prefix)) await folder.removeEntry(name).catch(() => {});
    }
  } catch {
    // The browser has no such file system, so there is nothing to remove.
  }
}

/**
 * Chooses where to write a result. It opens the save dialog if the browser has one. Otherwise the place is a file in the origin private
 * file system, which is downloaded when finished. If the browser lacks that too, it is memory.
 * @returns undefined if the visitor closed the dialog
 */
export async function choosePlace(name: string): Promise<SavePlace | undefined> {
  const picker = (globalThis as { showSaveFilePicker?: SavePicker }).showSaveFilePicker;
  if (picker !== undefined) {
    try {
      const handle = await picker({ suggestedName: name });
      return { output: handle, async finish() {}, async discard() {} };
    } catch (error) {
      if (error instanceof DOMException && error.name === 'AbortError') return undefined;
      // Some frames may not open dialogs. The other places remain.
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
