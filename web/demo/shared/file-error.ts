/** The page cannot use a file. The message says why, and what to do. */
export class FileError extends Error {
  override readonly name = 'FileError';
}
