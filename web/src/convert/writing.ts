/** Writes the result of a plan into sinks. */
import type { ErrorMeasures } from '../core/measure.js';
import type { Part } from '../formats/codecs/codec.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { float32Form, partsOf } from '../formats/codecs/registry.js';
import type { ByteSource } from '../formats/files/bytes.js';
import { Md5 } from '../formats/files/checksums.js';
import { type ByteSink, memorySink } from '../formats/files/sinks.js';
import type { FilePlan, LogicalTensor, PlannedTensor } from '../formats/format.js';
import { runSteps, TensorProgress } from './engine.js';
import { announceReads, storedBytes, tensorError } from './logical-tensor.js';
import { withRunner } from './start.js';
import { stepsOf } from './steps.js';
import type { TileRunner } from './task.js';
import { isLookedAt } from './tiles.js';
import type { Progress, WorkOptions } from './work-options.js';

/** A plan, its files, and the runner for it. */
export interface WriteWork {
  readonly plan: FilePlan;
  /** Those of the model, then the plan's `moments`. */
  readonly files: readonly ByteSource[];
  /** One for each file of the plan. */
  readonly sinks: readonly ByteSink[];
  readonly runner: TileRunner;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/**
 * Writes the result of a plan, but does not finish the sinks. Returns the measures of every tensor that was read as floats, in the order
 * of the plan. The runner cannot be used again after an error.
 * @throws ScalepointError, the signal's reason, or an error that onProgress throws
 */
export async function writePlan(work: WriteWork): Promise<(ErrorMeasures | undefined)[]> {
  const { plan, files, sinks, runner, signal, onProgress } = work;
  const { tensors, moments } = plan;
  announceReads(
    files,
    plan.files.flatMap(({ segments }) =>
      segments.flatMap((segment) => ('tensor' in segment ? (tensors[segment.tensor] as PlannedTensor) : [])),
    ),
    isLookedAt,
  );
  const progress = new TensorProgress(
    tensors.length,
    (index) => {
      const { source, kept } = tensors[index] as PlannedTensor;
      return { phase: kept === undefined ? 'quantize' : 'copy', tensor: source.name, bytes: storedBytes(source) };
    },
    onProgress,
  );
  // Collect the files with a checksum, and the tensors with tiles: not those that are copied together with the bytes around them.
  const checksums = new Map<number, Md5>();
  const hasTiles = new Uint8Array(tensors.length);
  for (const { segments } of plan.files) {
    for (const segment of segments) {
      if ('md5' in segment) checksums.set(segment.md5, new Md5());
      else if ('tensor' in segment) hasTiles[segment.tensor] = 1;
    }
  }
  // Bytes have to pass this thread in the order of positions, for checksums, too.
  const sequential = checksums.size > 0 || sinks.some(({ positional }) => !positional);
  // Where each sink that takes no positions ends so far.
  const ends = sinks.map(() => 0);
  const retains = sinks.some((sink) => sink.retains);
  const sums = await runSteps({
    steps: stepsOf(plan, {
      sequential,
      files,
      momentsFile: moments === undefined ? undefined : files.length - 1,
    }),
    tensors: tensors.length,
    files,
    runner,
    progress,
    signal,
    async take({ tiles, known, writes }, { output, written = false }, { soon }) {
      if (written) return;
      const [first] = known;
      const isAlone = tiles.length === 0 && known.length === 1;
      const memory = isAlone && first !== undefined ? first.bytes : new Uint8Array(output);
      // Fill memory first, because held parts may be known bytes of the same batch.
      for (const { into, position, offset, bytes } of writes)
        into?.set(memory.subarray(offset, offset + bytes), position);
      if (!isAlone) for (const { bytes, offset } of known) memory.set(bytes, offset);
      for (const { file, position, offset, bytes, tile, into } of writes) {
        if (into !== undefined) continue;
        const sink = sinks[file] as ByteSink;
        const part = memory.subarray(offset, offset + bytes);
        const checksum = checksums.get(file);
        checksum?.update(part);
        if ((!sink.positional || checksum !== undefined) && position !== ends[file])
          throw new Error(`bytes for ${position} came when ${ends[file]} was the end`);
        ends[file] = position + bytes;
        try {
          await soon(sink.write(position, part));
        } catch (error) {
          throw tile === undefined ? error : tensorError(error, tile.tensor, []);
        }
      }
      if (tiles.length > 0 && !retains) runner.recycle(output);
    },
  });
  // Write the checksums, which are known only now.
  const digits = new Map([...checksums].map(([file, sum]) => [file, new TextEncoder().encode(sum.hex())]));
  for (const [file, { segments }] of plan.files.entries()) {
    for (const segment of segments) {
      const found = 'md5' in segment ? digits.get(segment.md5) : undefined;
      if (found !== undefined) await (sinks[file] as ByteSink).write(segment.at, found);
    }
  }
  for (const [i, { source }] of tensors.entries()) {
    const bytes = storedBytes(source);
    if (hasTiles[i] === 0 || bytes === 0) progress.add(i, bytes);
  }
  signal?.throwIfAborted();
  return sums.measures(tensors);
}

/** Count of floats that a plan converts. It decides whether workers pay. */
export function convertedElements({ tensors }: Pick<FilePlan, 'tensors'>): number {
  return tensors.reduce((sum, { kept, source }) => sum + (kept === undefined ? elementsOf(source.shape) : 0), 0);
}

/** Makes the parts of one tensor in memory, one behind the other. Those that follow from the shape come last. */
export async function makeTensor(
  tensor: PlannedTensor,
  { format, moments }: Pick<FilePlan, 'format' | 'moments'>,
  files: readonly ByteSource[],
  options: WorkOptions,
) {
  let size = 0;
  const segments = tensor.parts.flatMap(({ role, bytes, constant }) => {
    if (constant !== undefined) return [];
    const at = size;
    size += bytes;
    return [{ at, tensor: 0, role }];
  });
  const output = { suffix: '', size, segments };
  const plan: FilePlan = { format, moments, files: [output], tensors: [tensor], notes: [], sidecars: [] };
  const sink = memorySink(size);
  const sinks = [sink];
  const { signal, onProgress } = options;
  const [error] = await withRunner(convertedElements(plan), { sources: files, sinks }, options, (runner) =>
    writePlan({ plan, files, sinks, runner, signal, onProgress }),
  );
  await sink.finish();
  let bytes = await sink.bytes();
  const places = new Map(segments.map(({ role, at }) => [role, at]));
  // Give the bytes a buffer of their own, with room for constants.
  const all = tensor.parts.reduce((sum, part) => sum + part.bytes, 0);
  if (bytes.buffer.byteLength !== all) {
    const made = bytes;
    bytes = new Uint8Array(all);
    bytes.set(made);
  }
  for (const { role, constant } of tensor.parts) {
    if (constant === undefined) continue;
    bytes.set(constant, size);
    places.set(role, size);
    size += constant.length;
  }
  return { bytes, places, error };
}

/** A tensor as floats. */
export async function tensorFloats(
  source: LogicalTensor,
  format: FilePlan['format'],
  files: readonly ByteSource[],
  options: WorkOptions,
): Promise<Float32Array<ArrayBuffer>> {
  const parts = partsOf(source.shape, float32Form) as readonly Part[];
  const { bytes } = await makeTensor({ source, form: float32Form, parts }, { format }, files, options);
  return new Float32Array(bytes.buffer);
}
