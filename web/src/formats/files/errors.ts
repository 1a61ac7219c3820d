/** Errors about the contents of files. */
import { ScalepointError } from '../../core/errors.js';
import { quoted } from './bytes.js';

/** Fails because a file is damaged at an offset. @throws ScalepointError `BAD_FILE` */
export function badFile(message: string, byteOffset: number): never {
  throw new ScalepointError('BAD_FILE', message, { byteOffset });
}

/** Fails because a tensor is missing or does not fit. @throws ScalepointError `BAD_FILE` */
export function badTensor(tensor: string, message: string, byteOffset?: number): never {
  throw new ScalepointError('BAD_FILE', `tensor ${quoted(tensor)}: ${message}`, { tensor, byteOffset });
}

/** Fails because statistics are damaged, those of a weight if it is known. @throws ScalepointError `BAD_FILE` */
export function badStatistics(message: string, weight?: string, byteOffset?: number): never {
  const place = weight === undefined ? '' : `${quoted(weight)}: `;
  throw new ScalepointError('BAD_FILE', `${place}${message}`, { tensor: weight, byteOffset });
}
