/**
 * Work in parts: several jobs make one result, each its share of the files, without contact to the others. Each job plans the whole result
 * from headers alone, so that it knows the files of all jobs. The job that finds all other files complete writes the index.
 */
import { ScalepointError } from '../core/errors.js';
import type { Waiting } from '../core/waiting.js';
import type { FileInput } from '../formats/files/bytes.js';
import { openWithin } from '../formats/files/open.js';
import { removeFile } from '../formats/files/path-sink.js';
import { openSink, type SinkOptions } from '../formats/files/sinks.js';
import { type FilePlan, madeBytes, type OutputFile, type PlannedTensor } from '../formats/format.js';
import { partOf, type WorkPart } from '../formats/shards.js';

/** The files of a part: neighbors, about the same number for each part. */
function shareOf(files: readonly OutputFile[], { number, count }: WorkPart): OutputFile[] {
  const at = (before: number) => Math.floor((before * files.length) / count);
  return files.slice(at(number - 1), at(number));
}

/** The plan of a part: its files, and the tensors in them. @param text such as `3/16`; undefined for the whole */
export function partPlan(plan: FilePlan, text: unknown): FilePlan {
  const part = partOf(text);
  if (part === undefined) return plan;
  const own = shareOf(
    plan.files.filter(({ isIndex }) => !isIndex),
    part,
  );
  const numbers = new Map<number, number>();
  const tensors: PlannedTensor[] = [];
  const held = new Set(
    own.flatMap(({ segments }) => segments.flatMap((segment) => ('tensor' in segment ? [segment.tensor] : []))),
  );
  for (const [i, tensor] of plan.tensors.entries()) {
    if (!held.has(i)) continue;
    numbers.set(i, tensors.length);
    tensors.push(tensor);
  }
  const files = own.map((file) => ({
    ...file,
    segments: file.segments.map((segment) =>
      'tensor' in segment ? { ...segment, tensor: numbers.get(segment.tensor) as number } : segment,
    ),
  }));
  return { ...plan, files, tensors, others: plan.files.filter((file) => !own.includes(file)) };
}

/** The path or URL of a file of a result. */
export type LocationOf = (file: OutputFile) => string | URL;

/** The first bytes of a file, which differ for every model. */
function beginOf({ segments }: OutputFile): Uint8Array {
  const [first] = segments;
  if (first === undefined || first.at > 0) return new Uint8Array(0);
  if ('made' in first) return madeBytes(first.made);
  return 'bytes' in first ? first.bytes : new Uint8Array(0);
}

/** True if a file exists with its size and its header. */
async function isThere(location: FileInput, file: OutputFile, waiting: Waiting): Promise<boolean> {
  try {
    const source = await openWithin(waiting, location);
    try {
      if (source.size !== file.size) return false;
      const begin = beginOf(file);
      const found = await source.read(0, begin.length);
      return begin.every((byte, i) => found[i] === byte);
    } finally {
      await source.close();
    }
  } catch (error) {
    if (error instanceof ScalepointError) return false;
    throw error;
  }
}

/**
 * Writes the index if all other files are in place. Two jobs that end at the same time may both write it, with the same bytes.
 * @param others the files of the other parts, and the index
 * @returns true if the result is whole
 */
export async function completeResult(
  others: readonly OutputFile[],
  locationOf: LocationOf,
  options: SinkOptions,
): Promise<boolean> {
  const { waiting } = options;
  for (const file of others) {
    if (!file.isIndex && !(await isThere(locationOf(file), file, waiting))) return false;
  }
  for (const file of others.filter(({ isIndex }) => isIndex)) {
    const location = locationOf(file);
    if (await isThere(location, file, waiting)) continue;
    try {
      await write(file, location, options);
    } catch (error) {
      // Another job was faster.
      const isTaken = error instanceof ScalepointError && error.code === 'EXISTS';
      if (!isTaken || !(await isThere(location, file, waiting))) throw error;
    }
  }
  return true;
}

/** Writes a file of known bytes. */
async function write({ segments }: OutputFile, location: string | URL, options: SinkOptions): Promise<void> {
  const sink = await openSink(location, options);
  try {
    for (const segment of segments) if ('bytes' in segment) await sink.write(segment.at, segment.bytes);
    await sink.finish();
  } catch (error) {
    await sink.discard(error);
    throw error;
  }
}

/**
 * Removes the index of another result, which would name files that are about to be replaced.
 * @param options with `overwrite: false`, such an index is an error
 * @throws ScalepointError `EXISTS`
 */
export async function clearIndex(
  others: readonly OutputFile[],
  locationOf: LocationOf,
  options: SinkOptions,
): Promise<void> {
  const { overwrite, waiting } = options;
  for (const file of others.filter(({ isIndex }) => isIndex)) {
    const location = locationOf(file);
    if (await isThere(location, file, waiting)) continue;
    if (overwrite) {
      await removeFile(location, options);
      continue;
    }
    const sink = await openSink(location, options);
    await sink.discard(undefined);
  }
}
