/** Folders of results (Node). */
import { ioError, quoted } from './bytes.js';
import { codeOf, nodeFiles } from './path-sink.js';

/**
 * Makes a folder unless it exists (Node). Returns a function that removes it again if it was made and nothing is in it, which never throws.
 * @throws ScalepointError `IO`
 */
export async function makeFolder(path: string | URL): Promise<() => Promise<void>> {
  const { fs, urls } = nodeFiles();
  const named = path instanceof URL ? urls.fileURLToPath(path) : path;
  try {
    await fs.mkdir(named);
  } catch (cause) {
    if (codeOf(cause) === 'EEXIST') return async () => {};
    throw ioError(`cannot make the folder ${quoted(named)}`, cause, named);
  }
  return async () => {
    await fs.rmdir(named).catch(() => {});
  };
}
