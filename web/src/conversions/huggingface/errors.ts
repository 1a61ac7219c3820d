/** The errors of a folder. Each names the file, and the key where there is one. */
import { ScalepointError } from '../../core/errors.js';
import type { Hint } from '../../core/option-problem.js';

/** Fails because a file is wrong, or contradicts another one. */
export function badFile(file: string, message: string, tensor?: string, hint?: Hint): never {
  throw new ScalepointError('BAD_FILE', `${file}: ${message}`, { tensor, hint });
}

/** Fails because a file is good, but nothing here can convert what it describes. */
export function unsupported(file: string, message: string): never {
  throw new ScalepointError('UNKNOWN_FORMAT', `${file}: ${message}`);
}

/** A name from a file for an error message. It is cut if it is long. */
export function quoted(name: string): string {
  return JSON.stringify(name.length > 300 ? `${name.slice(0, 297)}...` : name);
}
