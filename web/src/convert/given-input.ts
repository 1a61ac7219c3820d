/** Inputs in other forms than `formats/files/open.ts` reads: addresses as texts, folders, and file handles of the browser. */
import { nodeModule } from '../core/node.js';
import type { FileInput } from '../formats/files/bytes.js';
import { fileOfHandle, isHandle, urlFileName, withAddress } from '../formats/files/open.js';

/** The URL of a text that begins like one, with the name of its file; undefined for paths. @throws RangeError naming `file` */
export function urlOfText(text: string): { readonly url: URL; readonly name: string } | undefined {
  const url = withAddress(text);
  return url instanceof URL ? { url, name: urlFileName(url) || url.hostname } : undefined;
}

/** Path of an input in the file system of Node; undefined for others. */
function pathOf(input: unknown): string | undefined {
  if (typeof input === 'string') return input;
  return input instanceof URL && input.protocol === 'file:' ? nodeModule('node:url')?.fileURLToPath(input) : undefined;
}

/**
 * An input as files are opened: the URL of a text, the model in a folder (Node), the File of a handle, or the input itself.
 * @throws RangeError naming `file`; ScalepointError `IO` or `NOT_FOUND`
 */
export async function fileOfInput(input: FileInput | FileSystemFileHandle): Promise<{ readonly file: FileInput }> {
  if (isHandle(input)) return fileOfHandle(input);
  const file = withAddress(input);
  const path = pathOf(file);
  // A promise that was given in place of a file must not be awaited here.
  if (path === undefined) return { file };
  // Other problems are reported when the file is opened.
  const status = await nodeModule('node:fs/promises')
    ?.stat(path)
    .catch(() => undefined);
  if (!status?.isDirectory()) return { file };
  const folder = await import('./folder.js');
  return { file: await folder.modelInFolder(path) };
}
