// Handles of files and folders, with which the browser opens them again on the next visit. Not all browsers give them.

/** A handle, and the permission to read it, which lasts until the browser asks again. */
export type Handle = (FileSystemFileHandle | FileSystemDirectoryHandle) & {
  queryPermission?(): Promise<PermissionState>;
  requestPermission?(): Promise<PermissionState>;
};

const handles = new WeakMap<File, Promise<Handle | undefined>>();

/** Notes the handle with which files came: that of a file, or of the folder around them. */
export function noteHandle(files: readonly File[], handle: Handle | Promise<Handle | undefined> | undefined): void {
  if (handle !== undefined) for (const file of files) handles.set(file, Promise.resolve(handle));
}

/** The handles of files, each once; undefined if one of them came without. */
export async function handlesOf(files: readonly File[]): Promise<readonly Handle[] | undefined> {
  const found = new Set<Handle>();
  for (const file of files) {
    const handle = await handles.get(file)?.catch(() => undefined);
    if (handle === undefined) return undefined;
    found.add(handle);
  }
  return [...found];
}

/** Dialogs that give handles. */
interface Dialogs {
  showOpenFilePicker?(options: { multiple: boolean }): Promise<FileSystemFileHandle[]>;
  showDirectoryPicker?(): Promise<FileSystemDirectoryHandle>;
}

/** Has the visitor choose files, or a folder. Nothing if the dialog was closed; undefined if the browser has none that gives handles. */
export async function chooseHandles(kind: 'files' | 'folder'): Promise<readonly Handle[] | undefined> {
  const { showOpenFilePicker, showDirectoryPicker } = globalThis as Dialogs;
  try {
    if (kind === 'files') return await showOpenFilePicker?.({ multiple: true });
    return showDirectoryPicker && [await showDirectoryPicker()];
  } catch (error) {
    // Some frames may not open such dialogs.
    return error instanceof DOMException && error.name === 'AbortError' ? [] : undefined;
  }
}
