/**
 * Reads arrays from files, whole or in parts: one from .npy, several from .npz, a zip archive of .npy files.
 * Reference: numpy.savez.
 */
import { ScalepointError } from '../../../core/errors.js';
import { type ByteSource, quoted } from '../../files/bytes.js';
import { badFile } from '../../files/errors.js';
import { openSource } from '../../files/open.js';
import { openNpy } from '../../npy/header.js';
import { npyMagic } from '../../npy/signature.js';
import type { TensorDType } from '../../safetensors/header.js';
import {
  checkEntriesApart,
  entriesOf,
  InflatedSource,
  type PlacedEntry,
  placed,
  storedSource,
  type ZipEntry,
} from '../../zip.js';

/** An array in memory, row by row, little-endian. */
export interface NumpyArray {
  readonly dtype: TensorDType;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** An array in a file. */
export interface OpenArray extends Pick<NumpyArray, 'dtype' | 'shape'> {
  /** Size in bytes. */
  readonly bytes: number;
  /** Reads bytes of it. Reading from begin to end takes one pass over packed ones. */
  read(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  close(): Promise<void>;
}

/** Largest size in bytes of arrays that are in memory together: a model in WebAssembly has less. */
export const mostBytes = 2 ** 31;

/** Opens a .npy file. Closing the array closes it. */
async function openArray(source: ByteSource): Promise<OpenArray> {
  const { tensor, read } = await openNpy(source);
  const { dtype, shape, bytes } = tensor;
  return { dtype, shape, bytes, read, close: () => source.close() };
}

/**
 * Opens the arrays of a .npz file by name, or the one of a .npy file under the name `''`, for reading parts of them. Close them afterwards.
 * @param check gets the names first, and throws to end the reading
 * @param most bytes of all together, if they will be read whole
 * @throws ScalepointError `BAD_FILE`, `UNKNOWN_FORMAT`
 */
export async function openArrays(
  source: ByteSource,
  check: (names: readonly string[]) => void,
  most = Number.POSITIVE_INFINITY,
): Promise<ReadonlyMap<string, OpenArray>> {
  const head = await source.read(0, Math.min(6, source.size));
  if (npyMagic.every((byte, i) => head[i] === byte)) {
    check(['']);
    // The file is the caller's.
    return new Map([['', { ...(await openArray(source)), close: async () => {} }]]);
  }
  if (head[0] !== 0x50 || head[1] !== 0x4b) {
    const name = quoted(source.name ?? 'a file of inputs');
    throw new ScalepointError('UNKNOWN_FORMAT', `${name} is not a .npy or .npz file`);
  }
  // List the arrays, and check their sizes and places.
  const { entries, listAt } = await entriesOf(source);
  const named = new Map<string, ZipEntry>();
  for (const entry of entries) {
    if (!entry.name.endsWith('.npy')) continue;
    const name = entry.name.slice(0, -'.npy'.length);
    if (named.has(name)) badFile(`${quoted(entry.name)} is in the zip archive twice`, entry.at);
    named.set(name, entry);
  }
  check([...named.keys()]);
  const total = [...named.values()].reduce((sum, { size }) => sum + size, 0);
  if (total > most) badFile(`the arrays of the zip archive take ${total} bytes, more than the ${most} allowed`, 0);
  const places = new Map<string, PlacedEntry>();
  for (const [name, entry] of named) places.set(name, await placed(source, entry));
  checkEntriesApart([...places.values()], listAt);
  // Open them.
  const arrays = new Map<string, OpenArray>();
  try {
    for (const [name, place] of places) {
      if (place.entry.method === 0) {
        arrays.set(name, await openArray(storedSource(source, place)));
        continue;
      }
      const inflated = new InflatedSource(source, place);
      try {
        const isRead = most === Number.POSITIVE_INFINITY && (await openNpy(inflated)).verbatim;
        // Columns are read in another order than they lie in the file.
        const from = isRead ? inflated : await openSource(await inflated.read(0, inflated.size));
        arrays.set(name, await openArray(from));
      } catch (error) {
        await inflated.close();
        throw error;
      }
    }
    return arrays;
  } catch (error) {
    for (const array of arrays.values()) await array.close();
    throw error;
  }
}

/** Reads the arrays of a .npz file, whole. @throws ScalepointError `BAD_FILE` also if they are larger than a model can take */
export async function readNumpyArrays(
  source: ByteSource,
  check: (names: readonly string[]) => void,
): Promise<Map<string, NumpyArray>> {
  const arrays = await openArrays(source, check, mostBytes);
  try {
    const found = new Map<string, NumpyArray>();
    for (const [name, { dtype, shape, bytes, read }] of arrays) {
      found.set(name, { dtype, shape, bytes: await read(0, bytes) });
    }
    return found;
  } finally {
    for (const array of arrays.values()) await array.close();
  }
}
