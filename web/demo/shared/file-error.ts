/** The page cannot use a file. The message says why, and what to do. */
export class FileError extends Error {
  override readonly name = 'FileError';
}

/** Stands for a file or a folder that the browser did not read. It is empty, and cannot be posted to workers. */
export class UnreadFile extends File {
  /** The reason, in a sentence for the visitor. */
  readonly why: string;

  constructor(name: string, why: string) {
    super([], name);
    this.why = why;
  }
}

/** True for an error of reading a file that was moved or changed, or that the browser may not read. Errors of workers have no cause. */
export function isUnreadable(error: unknown): boolean {
  const { name = '', code, cause, message = '' } = (error ?? {}) as Partial<Error & { code: unknown }>;
  if (code === 'IO') return isUnreadable(cause) || /^cannot read the file/i.test(message);
  return /^(NotFound|NotReadable|NotAllowed)Error$/.test(name);
}

/** The reason for such an error. */
export const unreadableText =
  'The browser could not read it: it was moved or changed after it was chosen, or this page may not read it. Choose it again.';
