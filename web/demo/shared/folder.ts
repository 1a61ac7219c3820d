import { filesBeside, folderRank, isFileBeside, onnxFolder, pipelineIndex, pipelinePart } from '../../src/tooling.js';
import { withPath } from './file-path.js';

/** Folders inside of a model's folder whose files belong to it. */
const inner = filesBeside.flatMap((path) => (path.includes('/') ? [path.split('/')[0] as string] : []));

/** Names of files that describe a model. */
const beside = /\.(json|txt|model|jinja|md)$/i;
const index = /\.index\.json$/i;

/** Files whose paths begin with the name of the folder. */
export interface FolderFile {
  readonly path: string;
  readonly file: File;
}

/** The files of the folder in a folder that has the model, of a pipeline of diffusers or of transformers.js; undefined for other folders. */
function innerFiles(files: readonly FolderFile[], top: readonly FolderFile[]): readonly FolderFile[] | undefined {
  const isPipeline = top.some(({ file }) => file.name === pipelineIndex);
  const part = isPipeline ? pipelinePart(files.map(({ path }) => path.split('/')[1] ?? '')) : onnxFolder;
  const inPart = files.filter(({ path }) => path.split('/').length > 2 && path.split('/')[1] === part);
  if (inPart.length === 0) return undefined;
  return inPart.map(({ path, file }) => ({ path: path.slice(path.indexOf('/') + 1), file }));
}

/**
 * The files of a folder that make up a model: an index before a single file, `model` before others; then the files that describe it.
 * Without a model, one file of the folder.
 */
export function modelInFolder(files: readonly FolderFile[]): readonly FolderFile[] {
  const top = files.filter(({ path }) => path.split('/').length === 2 && !path.split('/')[1]?.startsWith('.'));
  const ranked = top.flatMap((one) => {
    const rank = folderRank(one.file.name);
    return rank === undefined ? [] : [{ one, rank }];
  });
  const models = ranked.filter(({ one }) => !index.test(one.file.name)).map(({ one }) => one);
  const best = ranked.reduce((least, { rank }) => Math.min(least, rank), Number.POSITIVE_INFINITY);
  const first = ranked.filter(({ rank }) => rank === best).map(({ one }) => one);
  let main = first.length === 1 ? first : [];
  // An index, which is among the files below, comes with all files of its format.
  if (first.some(({ file }) => index.test(file.name))) {
    main = ranked.flatMap(({ one, rank }) => (rank <= best + 2 && models.includes(one) ? [one] : []));
  }
  const within = ranked.length === 0 ? innerFiles(files, top) : undefined;
  if (within !== undefined) {
    const chosen = modelInFolder(within).map(({ file }) => file);
    // A model for transformers.js has its settings in the folder above.
    const hasAbove = within.every(({ path }) => path.startsWith(`${onnxFolder}/`));
    const above = hasAbove ? top.filter(({ file }) => beside.test(file.name)) : [];
    return [...files.filter(({ file }) => chosen.includes(file)), ...above];
  }
  // Opening this file explains the problem.
  if (main.length === 0) return models.length > 0 ? models : top.slice(0, 1);
  const others = files.filter(
    (one) =>
      (beside.test(one.file.name) && top.includes(one)) ||
      (inner.includes(one.path.split('/')[1] ?? '') && isFileBeside(one.file.name, one.path)),
  );
  return [...main, ...others];
}

const readAll = async (folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> => {
  const reader = folder.createReader();
  const all: FileSystemEntry[] = [];
  // Browsers give some at a time, and nothing at the end.
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return all;
    for (const entry of some) all.push(entry);
  }
};

/** A file or a folder, of a drop or behind a handle. */
interface Entry {
  readonly name: string;
  /** Begins with the name of the folder that was dropped or chosen. */
  readonly path: string;
  /** The file; undefined for a folder. */
  readonly file?: () => Promise<File>;
  /** Entries of the folder. */
  readonly list: () => Promise<readonly Entry[]>;
}

const entryOf = (entry: FileSystemEntry): Entry => ({
  name: entry.name,
  get path() {
    return entry.fullPath.slice(1);
  },
  ...(entry.isFile && {
    file: () => new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject)),
  }),
  list: async () => (await readAll(entry as FileSystemDirectoryEntry)).map(entryOf),
});

const entryBehind = (handle: FileSystemFileHandle | FileSystemDirectoryHandle, path: string): Entry => ({
  name: handle.name,
  path,
  ...(handle.kind === 'file' && { file: () => handle.getFile() }),
  async list() {
    const found: Entry[] = [];
    const inside = (
      handle as unknown as { values(): AsyncIterable<FileSystemFileHandle | FileSystemDirectoryHandle> }
    ).values();
    for await (const one of inside) found.push(entryBehind(one, `${path}/${one.name}`));
    return found;
  },
});

async function filesIn(folder: Entry, depth: number): Promise<FolderFile[]> {
  const found: FolderFile[] = [];
  for (const { name, path, file, list } of await folder.list()) {
    if (file !== undefined) found.push({ path, file: withPath(await file(), path) });
    else if (depth > 0 && ([...inner, onnxFolder].includes(name) || pipelinePart([name]) !== undefined)) {
      for (const one of await filesIn({ name, path, list }, depth - 1)) found.push(one);
    }
  }
  return found;
}

/** The files of the model in a folder that was dropped or chosen. */
export async function modelFilesIn(
  folder: FileSystemDirectoryEntry | FileSystemDirectoryHandle,
): Promise<readonly File[]> {
  const entry = 'kind' in folder ? entryBehind(folder, folder.name) : entryOf(folder);
  return modelInFolder(await filesIn(entry, 1)).map(({ file }) => file);
}
