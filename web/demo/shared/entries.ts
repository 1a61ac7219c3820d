import { isUnreadable, UnreadFile, unreadableText } from './file-error.js';
import type { Handle } from './handles.js';

/** The files of a dropped entry or a handle: itself, or those of the model in a folder. One that cannot be read has its reason. */
export async function filesIn(entry: FileSystemEntry | Handle): Promise<readonly File[]> {
  try {
    if ('kind' in entry && entry.kind === 'file') return [await entry.getFile()];
    if ('isFile' in entry && entry.isFile)
      return [await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject))];
    // Only the formats know the files of a model. Pages that do not open models load them here.
    const { modelFilesIn } = await import('./folder.js');
    const found = await modelFilesIn(entry as FileSystemDirectoryEntry | FileSystemDirectoryHandle);
    return found.length > 0
      ? found
      : [new UnreadFile(entry.name, `The folder ${entry.name} holds no file of a model.`)];
  } catch (error) {
    const lost = 'A part of this page could not be loaded. Check the connection, and drop it again.';
    return [new UnreadFile(entry.name, isUnreadable(error) ? unreadableText : lost)];
  }
}
