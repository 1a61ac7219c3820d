/** Writes the result of a plan into sinks. */

import type { ErrorMeasures } from '../core/measure.js';
import type { Waiting } from '../core/waiting.js';
import { elementsOf } from '../formats/codecs/elements.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { ByteSink } from '../formats/files/sinks.js';
import type { FilePlan, PlannedTensor } from '../formats/format.js';
import type { BatchWrite } from './batches.js';
import type { Checksums } from './checksums.js';
import { runSteps, type StartedBatch } from './engine.js';
import { storedBytes } from './logical-tensor.js';
import { type Progress, TensorProgress } from './progress.js';
import { stepsOf } from './steps.js';
import type { BatchResult } from './task.js';
import { tensorError } from './tensor-errors.js';
import type { TileRunner } from './tile-runner.js';

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

/** Indices of the tensors without tiles: empty tensors, and those that are copied together with the bytes around them. */
function* withoutTiles({ tensors, files }: FilePlan): Generator<number, void> {
  const placed = new Uint8Array(tensors.length);
  for (const { segments } of files) for (const part of segments) if ('tensor' in part) placed[part.tensor] = 1;
  for (const [i, { source }] of tensors.entries()) if (placed[i] === 0 || storedBytes(source) === 0) yield i;
}

/** True if bytes of a plan have to pass the calling thread in the order of positions, for checksums of its files. */
export function hasChecksums(plan: FilePlan): boolean {
  return plan.files.some(({ segments }) => segments.some((segment) => 'md5' in segment));
}

/** The checksums of a plan. Few results have any, so that their code is loaded with the first one. */
async function checksumsFor(plan: FilePlan): Promise<Checksums | undefined> {
  return hasChecksums(plan) ? new (await import('./checksums.js')).Checksums(plan) : undefined;
}

/** Writes the output of batches. */
class PlanWriter {
  readonly #sinks: readonly ByteSink[];
  readonly #runner: TileRunner;
  /** Where each sink that takes no positions ends so far. */
  readonly #ends = new Map<ByteSink, number>();
  readonly #checksums: Checksums | undefined;

  constructor({ sinks, runner }: WriteWork, checksums: Checksums | undefined) {
    this.#sinks = sinks;
    this.#runner = runner;
    this.#checksums = checksums;
  }

  /** Writes the output of a batch, and its known bytes. */
  async write(batch: StartedBatch, { output, written = false }: BatchResult, waiting: Waiting): Promise<void> {
    if (written) return;
    const [first] = batch.known;
    const isAlone = batch.tiles.length === 0 && batch.known.length === 1;
    const bytes = isAlone && first !== undefined ? first.bytes : new Uint8Array(output);
    // Fill memory first, because held parts may be known bytes of the same batch.
    for (const { into, position, offset, bytes: count } of batch.writes) {
      into?.set(bytes.subarray(offset, offset + count), position);
    }
    if (!isAlone) for (const known of batch.known) bytes.set(known.bytes, known.offset);
    for (const write of batch.writes) if (write.into === undefined) await this.#writeBytes(write, bytes, waiting);
    if (batch.tiles.length > 0 && !this.#sinks.some(({ retains }) => retains)) this.#runner.recycle(output);
  }

  async #writeBytes(
    { file, position, offset, bytes, tile }: BatchWrite,
    output: Uint8Array<ArrayBuffer>,
    { soon }: Waiting,
  ): Promise<void> {
    const sink = this.#sinks[file] as ByteSink;
    const end = this.#ends.get(sink) ?? 0;
    const isSummed = this.#checksums?.add(file, output.subarray(offset, offset + bytes));
    if (!(sink.positional && !isSummed) && position !== end)
      throw new Error(`bytes for ${position} came when ${end} was the end`);
    this.#ends.set(sink, position + bytes);
    try {
      await soon(sink.write(position, output.subarray(offset, offset + bytes)));
    } catch (error) {
      throw tile === undefined ? error : tensorError(error, tile.tensor, []);
    }
  }
}

/**
 * Writes the result of a plan, but does not finish the sinks. Returns the measures of every tensor that was read as floats, in the order
 * of the plan. The runner cannot be used again after an error.
 * @throws ScalepointError, the signal's reason, or an error that onProgress throws
 */
export async function writePlan(work: WriteWork): Promise<(ErrorMeasures | undefined)[]> {
  const { plan, files, sinks, runner, signal, onProgress } = work;
  const { tensors } = plan;
  const sequential = hasChecksums(plan) || sinks.some(({ positional }) => !positional);
  const reported = (index: number) => {
    const { source, kept } = tensors[index] as PlannedTensor;
    return {
      phase: kept === undefined ? 'quantize' : 'copy',
      tensor: source.name,
      bytes: storedBytes(source),
    } as const;
  };
  const progress = new TensorProgress(tensors.length, reported, onProgress);
  const checksums = await checksumsFor(plan);
  const writer = new PlanWriter(work, checksums);
  const sums = await runSteps({
    steps: stepsOf(
      plan,
      sequential,
      (file) => files[file]?.isFar === true,
      plan.moments === undefined ? undefined : files.length - 1,
    ),
    tensors: tensors.length,
    files,
    runner,
    progress,
    signal,
    take: (batch, result, waiting) => writer.write(batch, result, waiting),
  });
  await checksums?.write(sinks);
  for (const i of withoutTiles(plan)) progress.add(i, storedBytes((tensors[i] as PlannedTensor).source));
  signal?.throwIfAborted();
  return sums.measures(tensors);
}

/** Count of floats that a plan converts. It decides whether workers pay. */
export function convertedElements({ tensors }: Pick<FilePlan, 'tensors'>): number {
  return tensors.reduce((sum, { kept, source }) => sum + (kept === undefined ? elementsOf(source.shape) : 0), 0);
}
