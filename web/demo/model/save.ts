// Places to save to: a file that the visitor picks, or a download.
import type { QuantizeModelResult } from 'scalepoint/model';
import type { PushFile } from '../../src/tooling.js';
import { download } from '../shared/copy.js';

/** The files of a finished result, for what the visitor does with them next. */
export interface SavedFiles {
  /** The files by their paths, the main one first. @throws DOMException if they are gone */
  files(): Promise<readonly PushFile[]>;
  /** Says that they are no longer needed here. */
  drop(): void;
}

/** Destination of a result. It is a file or a folder if the browser can write one, so that the result need not fit in memory. */
export interface SavePlace {
  /** The `output` option of `quantizeModel`; undefined means memory. */
  readonly output: FileSystemFileHandle | FileSystemDirectoryHandle | undefined;
  /** Hands the finished file to the visitor. */
  finish(result: QuantizeModelResult): Promise<SavedFiles>;
  /** Removes the unfinished file, unless it existed before. */
  discard(): Promise<void>;
}

type SavePicker = (options: { suggestedName: string }) => Promise<FileSystemFileHandle & { remove?(): Promise<void> }>;

/** Prefix of the site's files in the origin private file system, and of the locks of those that are in use. */
const prefix = 'scalepoint-';

/** Holds a lock until the returned function is called. Other tabs see from it that the file is in use. */
export function hold(name: string): () => void {
  let release = () => {};
  const released = new Promise<void>((done) => {
    release = done;
  });
  void navigator.locks?.request(name, () => released);
  return release;
}

/** The names of what this tab and others hold. @throws DOMException or TypeError where the browser has no locks */
export async function heldNames(): Promise<Set<string | undefined>> {
  const { held = [] } = await navigator.locks.query();
  return new Set(held.map(({ name }) => name));
}

/** Removes files that earlier visits left in the origin private file system. Those of other tabs stay. Returns their number. */
export async function removeLeftovers(): Promise<number> {
  let removed = 0;
  try {
    const folder = await navigator.storage.getDirectory();
    const used = await heldNames();
    for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) {
      if (!name.startsWith(prefix) || used.has(name)) continue;
      await folder.removeEntry(name).then(
        () => removed++,
        () => {},
      );
    }
  } catch {
    // The browser has no such file system or no locks, so nothing is removed.
  }
  return removed;
}

/** A file that the visitor chose. A new one is empty until the result is whole, and is removed if saving fails. */
async function chosenPlace(handle: Awaited<ReturnType<SavePicker>>): Promise<SavePlace> {
  const { size } = await handle.getFile();
  return {
    output: handle,
    async finish() {
      return { files: async () => [{ path: handle.name, content: await handle.getFile() }], drop() {} };
    },
    async discard() {
      if (size === 0) await handle.remove?.().catch(() => {});
    },
  };
}

/** Removal of a file is retried while its writer is still being closed: pause between attempts, and their number. */
const removalMilliseconds = 50;
const removalTries = 100;

/** Removes a file. On a busy machine it stays locked for a moment after its writer was stopped. */
export async function removeFile(folder: FileSystemDirectoryHandle, name: string): Promise<void> {
  for (let i = 0; i < removalTries; i++) {
    const problem: unknown = await folder.removeEntry(name).then(
      () => undefined,
      (error: unknown) => error,
    );
    if (!(problem instanceof DOMException && problem.name === 'NoModificationAllowedError')) return;
    await new Promise((done) => setTimeout(done, removalMilliseconds));
  }
}

/** A file in the origin private file system, which is downloaded when it is whole. */
async function privatePlace(name: string): Promise<SavePlace> {
  const folder = await navigator.storage.getDirectory();
  const temporary = `${prefix}${crypto.randomUUID()}`;
  const release = hold(temporary);
  const handle = await folder.getFileHandle(temporary, { create: true });
  const discard = async () => {
    await removeFile(folder, temporary);
    release();
  };
  return {
    output: handle,
    async finish() {
      const file = await handle.getFile();
      const downloaded = new Promise<void>((done) => download(file, name, done));
      const files = async () => [{ path: name, content: file }];
      return { files, drop: () => void downloaded.then(discard) };
    },
    discard,
  };
}

/**
 * Chooses the destination of a result. Opens the save dialog if the browser has one. Otherwise the destination is a file in the origin
 * private file system, or memory if the browser lacks that too.
 * @returns undefined if the visitor closed the dialog
 */
export async function choosePlace(name: string): Promise<SavePlace | undefined> {
  const picker = (globalThis as { showSaveFilePicker?: SavePicker }).showSaveFilePicker;
  if (picker !== undefined) {
    try {
      return await chosenPlace(await picker({ suggestedName: name }));
    } catch (error) {
      if (error instanceof DOMException && error.name === 'AbortError') return undefined;
      // Some frames may not open dialogs. The other places remain.
    }
  }
  try {
    return await privatePlace(name);
  } catch {
    return {
      output: undefined,
      async finish(result) {
        const content = await result.blob();
        download(content, name);
        return { files: async () => [{ path: name, content }], drop() {} };
      },
      async discard() {},
    };
  }
}
