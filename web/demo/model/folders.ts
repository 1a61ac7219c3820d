// Results that are folders, such as those for WebLLM: which models can have them, and where they are written.
import { type ModelFormat, type ModelTarget, planModel } from 'scalepoint/model';
import { converters } from '../../src/tooling.js';
import { FileError, type ModelFile } from '../shared/files.js';
import { infoOf } from './choice.js';
import type { SavePlace } from './save.js';

type FolderPicker = (options: { mode: 'readwrite' }) => Promise<FileSystemDirectoryHandle>;

/** The dialog for folders, if the browser has one. */
const pickerOf = () => (globalThis as { showDirectoryPicker?: FolderPicker }).showDirectoryPicker;

/** True if the browser can write folders. */
export const writesFolders = () => pickerOf() !== undefined;

/** The model, with the format of folders that it can be converted to. Few models can, so it tries to plan one. */
export async function withFolder(model: ModelFile): Promise<ModelFile> {
  if (!writesFolders()) return model;
  for (const { from, result } of converters()) {
    const { isFolder, targets } = infoOf(result as ModelFormat);
    const to = targets[0]?.name as ModelTarget | undefined;
    if (!isFolder || to === undefined || !from.includes(model.format)) continue;
    const plan = await planModel([...model.files], { to }).catch(() => undefined);
    if (plan !== undefined) return { ...model, folder: result as ModelFormat };
  }
  return model;
}

/** Asks for a folder. Undefined if the browser shows no such dialog, null if the visitor closed it. */
export async function chooseFolder(): Promise<FileSystemDirectoryHandle | null | undefined> {
  try {
    return await pickerOf()?.({ mode: 'readwrite' });
  } catch (error) {
    // Some frames may not open dialogs.
    return error instanceof DOMException && error.name === 'AbortError' ? null : undefined;
  }
}

/** An unused name in a folder: `name`, or `name` with a number. */
async function freeName(folder: FileSystemDirectoryHandle, name: string): Promise<string> {
  const [, stem = name, extension = ''] = /^(.*?)(\.[^.]*)?$/.exec(name) ?? [];
  for (let i = 1; ; i++) {
    const wanted = i === 1 ? name : `${stem}-${i}${extension}`;
    const isTaken = await folder.getFileHandle(wanted).then(
      () => true,
      // A folder has that name.
      (error: unknown) => error instanceof DOMException && error.name === 'TypeMismatchError',
    );
    if (!isTaken) return wanted;
  }
}

/** A new file in a folder: `name`, or with a number. */
export async function newFile(folder: FileSystemDirectoryHandle, name: string): Promise<FileSystemFileHandle> {
  return folder.getFileHandle(await freeName(folder, name), { create: true });
}

/**
 * Chooses the folder of a result: a new one in a folder that the visitor picks. It is removed if saving fails.
 * @returns undefined if the visitor closed the dialog
 * @throws FileError if the browser shows no dialog
 */
export async function chooseFolderPlace(name: string): Promise<SavePlace | undefined> {
  const parent = await chooseFolder();
  if (parent === null) return undefined;
  if (parent === undefined) {
    throw new FileError('This result is a folder, and this browser lets the page write none. Use the command line.');
  }
  const own = await freeName(parent, name);
  return {
    output: await parent.getDirectoryHandle(own, { create: true }),
    async finish() {},
    async discard() {
      await parent.removeEntry(own, { recursive: true }).catch(() => {});
    },
  };
}
