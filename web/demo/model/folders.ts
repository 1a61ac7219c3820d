// Results that are folders, such as those for WebLLM, or of GGUF files that are turned back: which models can have them, and where they are written.
import { type ModelFormat, type ModelTarget, planModel } from 'scalepoint/model';
import { converters } from '../../src/tooling.js';
import { byId, setText } from '../shared/dom.js';
import { FileError, type ModelFile } from '../shared/files.js';
import { inputOf } from '../shared/page-files.js';
import { infoOf } from './choice.js';
import { heldNames, hold, removeFile, type SavePlace } from './save.js';

type FolderPicker = (options: { mode: 'readwrite' }) => Promise<FileSystemDirectoryHandle>;

/** The dialog for folders, if the browser has one. */
const pickerOf = () => (globalThis as { showDirectoryPicker?: FolderPicker }).showDirectoryPicker;

/** True if the browser can write folders. */
export const writesFolders = () => pickerOf() !== undefined;

/** The model, with the formats of folders that it can be converted to. Few models can, so it tries to plan one of each. */
export async function withFolders(model: ModelFile): Promise<ModelFile> {
  if (!writesFolders()) return model;
  const folders: ModelFormat[] = [];
  for (const { from, result, turnsBack = false } of converters()) {
    const { isFolder = false, targets } = infoOf(result as ModelFormat);
    const to = targets[0]?.name as ModelTarget | undefined;
    if (!(isFolder || turnsBack) || to === undefined || !from.includes(model.format)) continue;
    const options = turnsBack ? { to, requantize: true } : { to };
    const plan = await planModel(inputOf(model.files), options).catch(() => undefined);
    if (plan !== undefined) folders.push(result as ModelFormat);
  }
  return folders.length === 0 ? model : { ...model, folders };
}

/**
 * Asks for a folder, and removes what saves that were cut off left in it. Undefined if the browser shows no such dialog, null if the visitor
 * closed it.
 */
export async function chooseFolder(): Promise<FileSystemDirectoryHandle | null | undefined> {
  try {
    const folder = await pickerOf()?.({ mode: 'readwrite' });
    if (folder !== undefined) await tidyFolder(folder).catch(() => {});
    return folder;
  } catch (error) {
    // Some frames may not open dialogs.
    return error instanceof DOMException && error.name === 'AbortError' ? null : undefined;
  }
}

/** The name of an empty file that marks an entry beside it as unfinished. Those of the command line have hexadecimal digits for `page`. */
const markOf = (name: string) => `.scalepoint-page-${name}.partial`;
const markPattern = /^\.scalepoint-page-(.+)\.partial$/;

/** The name of the file that Chromium writes to until it is whole. A process that is killed leaves it beside the empty file. */
const swapOf = (name: string) => `${name}.crswap`;

async function namesIn(folder: FileSystemDirectoryHandle): Promise<string[]> {
  const names: string[] = [];
  for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
  return names;
}

/** Removes an entry. Returns false if it is not there, is in use, or is a folder that holds something. */
const isRemoved = (folder: FileSystemDirectoryHandle, name: string) =>
  folder.removeEntry(name).then(
    () => true,
    () => false,
  );

/** Removes a file that is empty still, with what was written for it. Returns true if the name is free. */
async function removeUnfinished(folder: FileSystemDirectoryHandle, name: string): Promise<boolean> {
  const file = await folder.getFileHandle(name).catch(() => undefined);
  if (file !== undefined && ((await file.getFile()).size > 0 || !(await isRemoved(folder, name)))) return false;
  await isRemoved(folder, swapOf(name));
  return true;
}

/**
 * Removes what saves of this page that were cut off left in a folder, and says so. Files with content stay, and so do the folders that they
 * are in. Those of other tabs stay.
 */
async function tidyFolder(folder: FileSystemDirectoryHandle): Promise<void> {
  const used = await heldNames().catch(() => undefined);
  // Without locks, nobody knows.
  if (used === undefined) return;
  const removed: string[] = [];
  const left: string[] = [];
  const there = await namesIn(folder);
  for (const mark of there) {
    const [, name] = markPattern.exec(mark) ?? [];
    if (name === undefined || used.has(mark)) continue;
    const inner = await folder.getDirectoryHandle(name).catch(() => undefined);
    if (inner !== undefined) {
      const inside = new Set(await namesIn(inner));
      for (const one of inside) if (inside.has(swapOf(one))) await removeUnfinished(inner, one);
      if (await isRemoved(folder, name)) removed.push(name);
      else left.push(name);
    } else if ((await removeUnfinished(folder, name)) && (there.includes(name) || there.includes(swapOf(name)))) {
      removed.push(name);
    }
    // As long as a part of a result is there, its mark says so.
    if (!left.includes(name)) await isRemoved(folder, mark);
  }
  const saved = `a save that was cut off left in the folder ${folder.name}`;
  const words = [
    ...(removed.length === 0 ? [] : [`Removed ${removed.join(', ')}, which ${saved}.`]),
    ...(left.length === 0 ? [] : [`${left.join(', ')}, which ${saved}, is unfinished.`]),
  ];
  if (words.length > 0) setText(byId('tidied', HTMLElement), words.join(' '));
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

/** An unused name in a folder, which is marked as unfinished until `release` is called. */
async function takeName(folder: FileSystemDirectoryHandle, wanted: string) {
  const name = await freeName(folder, wanted);
  const unlock = hold(markOf(name));
  // A long name leaves no room for it.
  await folder.getFileHandle(markOf(name), { create: true }).catch(() => {});
  const release = async () => {
    await isRemoved(folder, markOf(name));
    unlock();
  };
  return { name, release };
}

/** The files in a folder and in those within it, by their paths. */
async function filesIn(folder: FileSystemDirectoryHandle, above = ''): Promise<{ path: string; content: File }[]> {
  const found = [];
  for (const name of await namesIn(folder)) {
    const file = await folder.getFileHandle(name).catch(() => undefined);
    if (file !== undefined) found.push({ path: above + name, content: await file.getFile() });
    else found.push(...(await filesIn(await folder.getDirectoryHandle(name), `${above}${name}/`)));
  }
  return found;
}

/** A new file in a folder, as the place of a result. */
export async function newFilePlace(folder: FileSystemDirectoryHandle, wanted: string): Promise<SavePlace> {
  const { name, release } = await takeName(folder, wanted);
  const output = await folder.getFileHandle(name, { create: true });
  return {
    output,
    async finish() {
      await release();
      return { files: async () => [{ path: name, content: await output.getFile() }], drop() {} };
    },
    async discard() {
      await removeFile(folder, name);
      await release();
    },
  };
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
  const { name: own, release } = await takeName(parent, name);
  const output = await parent.getDirectoryHandle(own, { create: true });
  return {
    output,
    async finish() {
      await release();
      return { files: () => filesIn(output), drop() {} };
    },
    async discard() {
      await parent.removeEntry(own, { recursive: true }).catch(() => {});
      await release();
    },
  };
}
