/** Reads the inputs of tasks. */
import type { ByteSource } from '../files/bytes.js';
import type { Input } from './tasks.js';

/** Reads the bytes of an input into memory. */
export async function readInput(input: Input, files: readonly ByteSource[], target: Uint8Array): Promise<void> {
  const { file, begin, bytes, count, stride } = input;
  const source = files[file] as ByteSource;
  for (let i = 0; i < count; i++) {
    const part = target.subarray(i * bytes, (i + 1) * bytes);
    const from = begin + i * stride;
    if (source.readInto === undefined) part.set(await source.read(from, from + bytes));
    else await source.readInto(from, part);
  }
}
