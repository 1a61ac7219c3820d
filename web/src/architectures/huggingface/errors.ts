/** Errors about a folder. Each names the file, and the key if one is at fault. */
import { ScalepointError } from '../../core/errors.js';
import type { Hint } from '../../core/option-problem.js';

/** Fails because a file is wrong, or contradicts another one. */
export function badFolderFile(file: string, message: string, tensor?: string, hint?: Hint): never {
  throw new ScalepointError('BAD_FILE', `${file}: ${message}`, { tensor, hint });
}

/** Fails because of config.json. */
export function badConfig(message: string, tensor?: string): never {
  badFolderFile('config.json', message, tensor);
}

/** Fails because a folder of sound files lacks one, or a file lacks a part. @param missing `tokenizer.json`, `byte tokens` */
export function incomplete(file: string, message: string, missing: string, hint?: Hint): never {
  throw new ScalepointError('INCOMPLETE', `${file}: ${message}`, { missing, hint });
}

/** Fails because a valid file describes something that cannot be converted. */
export function unsupported(file: string, message: string, hint?: Hint): never {
  throw new ScalepointError('UNKNOWN_FORMAT', `${file}: ${message}`, { hint });
}

/** Fails because a valid config.json describes something that cannot be converted. */
export function unsupportedConfig(message: string): never {
  unsupported('config.json', message);
}
