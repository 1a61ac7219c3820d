/**
 * Reads arrays from files, whole or in parts: one from .npy, several from .npz, a zip archive of .npy files.
 * Reference: numpy.savez.
 */
import { ScalepointError } from '../../../core/errors.js';
import { type ByteSource, quoted } from '../../files/bytes.js';
import { badFile } from '../../files/errors.js';
import { openSource } from '../../files/open.js';
import { InflatedSource } from '../../inflated.js';
import { openNpy } from '../../npy/header.js';
import { npyMagic } from '../../npy/signature.js';
import type { TensorDType } from '../../safetensors/header.js';
import { checkEntriesApart, entriesOf, type PlacedEntry, placed, storedSource, type ZipEntry } from '../../zip.js';

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

/** Largest size of all arrays in bytes: a model in WebAssembly has less memory. */
const mostBytes = 2 ** 31;

/** Opens a .npy file. Closing the array closes it. */
async function openArray(source: ByteSource): Promise<OpenArray> {
  const { tensor, read } = await openNpy(source);
  const { dtype, shape, bytes } = tensor;
  return { dtype, shape, bytes, read, close: () => source.close() };
}

/** @param isWhole true if all of it will be read */
async function openEntry(source: ByteSource, place: PlacedEntry, isWhole: boolean): Promise<OpenArray> {
  if (place.entry.method === 0) return openArray(storedSource(source, place));
  const inflated = new InflatedSource(source, place);
  try {
    if (!isWhole && (await openNpy(inflated)).verbatim) return await openArray(inflated);
    // Columns are read in another order than they lie in the file.
    return await openArray(await openSource(await inflated.read(0, inflated.size)));
  } catch (error) {
    await inflated.close();
    throw error;
  }
}

/** The entries of a .npz file that are arrays, by name. @param most bytes of all together */
async function placesIn(
  source: ByteSource,
  check: (names: readonly string[]) => void,
  most: number,
): Promise<Map<string, PlacedEntry>> {
  // List the arrays.
  const { entries, listAt } = await entriesOf(source);
  const named = new Map<string, ZipEntry>();
  for (const entry of entries) {
    if (!entry.name.endsWith('.npy')) continue;
    const name = entry.name.slice(0, -'.npy'.length);
    if (named.has(name)) badFile(`${quoted(entry.name)} is in the zip archive twice`, entry.at);
    named.set(name, entry);
  }
  check([...named.keys()]);
  // Check the sizes.
  const total = [...named.values()].reduce((sum, { size }) => sum + size, 0);
  if (total > most) badFile(`the arrays of the zip archive take ${total} bytes, more than the ${most} allowed`, 0);
  const places = new Map<string, PlacedEntry>();
  for (const [name, entry] of named) places.set(name, await placed(source, entry));
  checkEntriesApart([...places.values()], listAt);
  return places;
}

async function closeAll(arrays: ReadonlyMap<string, OpenArray>): Promise<void> {
  for (const array of arrays.values()) await array.close();
}

/** Opens arrays. @param most bytes of all together */
async function openUpTo(
  most: number,
  source: ByteSource,
  check: (names: readonly string[]) => void,
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
  const isWhole = most < Number.POSITIVE_INFINITY;
  const arrays = new Map<string, OpenArray>();
  try {
    for (const [name, place] of await placesIn(source, check, most))
      arrays.set(name, await openEntry(source, place, isWhole));
    return arrays;
  } catch (error) {
    await closeAll(arrays);
    throw error;
  }
}

/**
 * Opens the arrays of a .npz file by name, or the one of a .npy file under the name `''`, for reading parts of them. Close them afterwards.
 * @param check gets the names first, and throws to end the reading
 * @throws ScalepointError `BAD_FILE`, `UNKNOWN_FORMAT`
 */
export function openArrays(
  source: ByteSource,
  check: (names: readonly string[]) => void,
): Promise<ReadonlyMap<string, OpenArray>> {
  return openUpTo(Number.POSITIVE_INFINITY, source, check);
}

/** Reads the arrays of a .npz file, whole. @throws ScalepointError `BAD_FILE` also if they are larger than a model can take */
export async function readArrays(
  source: ByteSource,
  check: (names: readonly string[]) => void,
): Promise<Map<string, NumpyArray>> {
  const arrays = await openUpTo(mostBytes, source, check);
  try {
    const found = new Map<string, NumpyArray>();
    for (const [name, { dtype, shape, bytes, read }] of arrays) {
      found.set(name, { dtype, shape, bytes: await read(0, bytes) });
    }
    return found;
  } finally {
    await closeAll(arrays);
  }
}
