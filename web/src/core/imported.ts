// Parts of the package that are imported on demand, and the errors of places that cannot.
import { ScalepointError } from './errors.js';

/** Messages of engines for a dynamic import that the place forbids, and for a file that is missing. */
const forbidden = /import\(\) is disallowed|dynamic(ally)? import.*(not supported|not allowed|disallowed)/i;
const notFound = /dynamically imported module|importing a module script failed/i;

/** The error for a failed import of a part of the package: `IMPORT`, with what to do. Other errors stay. */
export function asImportError(error: unknown): unknown {
  if (!(error instanceof TypeError) || 'option' in error) return error;
  const isForbidden = forbidden.test(error.message);
  if (!isForbidden && !notFound.test(error.message)) return error;
  const message = isForbidden
    ? "parts of the package are imported on demand, which service workers do not allow: import from 'scalepoint/inline', which is one file"
    : 'a part of the package could not be loaded: serve all files of one version, and reload the page after an update';
  return new ScalepointError('IMPORT', message, { cause: error });
}

/** Waits for a part of the package. @throws ScalepointError `IMPORT` */
export function imported<T>(part: Promise<T>): Promise<T> {
  return part.catch((error: unknown) => {
    throw asImportError(error);
  });
}
