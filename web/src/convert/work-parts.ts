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
import { partOf } from '../formats/shards.js';

/** The plan of a part: its files, and the tensors in them. @param text such as `3/16` */
export function partPlan(plan: FilePlan, text: unknown): FilePlan {
  const part = partOf(text);
  if (part === undefined) return plan;
  // Take neighbors, about the same number for each part.
  const all = plan.files.filter(({ isIndex }) => !isIndex);
  const begin = (number: number) => Math.floor(((number - 1) * all.length) / part.count);
  const own = all.slice(begin(part.number), begin(part.number + 1));
  // Number their tensors anew.
  const held = new Set<number>();
  for (const { segments } of own) for (const segment of segments) if ('tensor' in segment) held.add(segment.tensor);
  const kept = [...plan.tensors.keys()].filter((i) => held.has(i));
  const numbers = new Map(kept.map((i, number) => [i, number]));
  const files = own.map((file) => ({
    ...file,
    segments: file.segments.map((segment) =>
      'tensor' in segment ? { ...segment, tensor: numbers.get(segment.tensor) as number } : segment,
    ),
  }));
  const tensors = kept.map((i) => plan.tensors[i] as PlannedTensor);
  return { ...plan, files, tensors, others: plan.files.filter((file) => !own.includes(file)) };
}

/** The path or URL of a file of a result. */
type LocationOf = (file: OutputFile) => string | URL;

/** True if a file exists with its size and its header. */
async function isInPlace(location: FileInput, file: OutputFile, waiting: Waiting): Promise<boolean> {
  try {
    const source = await openWithin(waiting, location);
    try {
      if (source.size !== file.size) return false;
      // The first bytes differ for every model.
      const [first] = file.segments;
      let begin: Uint8Array = new Uint8Array(0);
      if (first?.at === 0 && 'made' in first) begin = madeBytes(first.made);
      else if (first?.at === 0 && 'bytes' in first) begin = first.bytes;
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
    if (!file.isIndex && !(await isInPlace(locationOf(file), file, waiting))) return false;
  }
  for (const file of others.filter(({ isIndex }) => isIndex)) {
    const location = locationOf(file);
    if (await isInPlace(location, file, waiting)) continue;
    try {
      const sink = await openSink(location, options);
      try {
        for (const segment of file.segments) if ('bytes' in segment) await sink.write(segment.at, segment.bytes);
        await sink.finish();
      } catch (error) {
        await sink.discard(error);
        throw error;
      }
    } catch (error) {
      // Another job was faster.
      const isTaken = error instanceof ScalepointError && error.code === 'EXISTS';
      if (!isTaken || !(await isInPlace(location, file, waiting))) throw error;
    }
  }
  return true;
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
    if (await isInPlace(location, file, waiting)) continue;
    if (overwrite) {
      await removeFile(location, options);
      continue;
    }
    const sink = await openSink(location, options);
    await sink.discard(undefined);
  }
}
