/** Makes a model smaller: opens the outputs, carries out the plan, and reports. */
import { rangeError } from '../core/errors.js';
import { mention, ofType } from '../core/option-problem.js';
import { waitingFor } from '../core/waiting.js';
import type { ByteSource } from '../formats/files/bytes.js';
import { openWithin } from '../formats/files/open.js';
import { makeFolder, pathSink } from '../formats/files/path-sink.js';
import {
  type ByteSink,
  isFolder,
  type MemorySink,
  type ModelOutput,
  memorySink,
  openSink,
} from '../formats/files/sinks.js';
import { type FilePlan, isInFolder, type OutputFile } from '../formats/format.js';
import type { PlanChoices } from '../formats/options.js';
import type { OutputRunOptions } from '../formats/run.js';
import { fileName } from '../formats/shards.js';
import type { Opened } from './open.js';
import { entriesFor } from './options.js';
import { type ModelFilePlan, outputName, type PlannedFile, planFor, usualOutput } from './plan.js';
import { checkQuality, type ModelReport, reportOf } from './report.js';
import { startRunner } from './start.js';
import type { TileRunner } from './task.js';
import type { WorkOptions } from './work-options.js';
import { clearIndex, completeResult } from './work-parts.js';
import { convertedElements, hasChecksums, writePlan } from './writing.js';

/** Options of `quantizeModel`, without those of formats. */
export interface ResultOptions extends WorkOptions {
  /**
   * Destination of the result: a path or an open file (Node), a FileSystemFileHandle, a WritableStream. A path and a FileSystemFileHandle
   * show nothing until the result is whole. A result in several files goes to a path, after which all of them are named, or into a
   * FileSystemDirectoryHandle, where they are named `model`.
   * @defaultValue memory, see `result.bytes()` and `result.blob()`
   */
  readonly output?: ModelOutput | undefined;
  /**
   * Allows `output` to replace a file.
   * @defaultValue false; true for a FileSystemFileHandle, because the browser asks when the user picks a file that exists
   */
  readonly overwrite?: boolean | undefined;
  /**
   * The lowest SQNR in decibels that a converted tensor may have; below it nothing is written.
   * @defaultValue no limit
   */
  readonly minSqnrDb?: number | undefined;
  /**
   * ONNX: the lowest quality of each output, as a cosine to the output of the original, above 0 and at most 1, or as an SQNR, such as `'40dB'`.
   * The result is run in memory, and while the worst output is below, tensors are raised to the next better type, the largest gain of the
   * output per byte first: q2, q4, q8-blocks, fp16, then the type of the file; int4-weights, int8 and uint8 by way of int8-weights or
   * uint8-weights. Tensors that `rules` name keep their type. A result is made and run once, and for each round of raising at most 38 times;
   * behind 6 rounds, everything is left as it is in the file. `report.repair` lists the steps. If the bound cannot be reached, a
   * QualityError names the best, and nothing is written.
   * @defaultValue no limit
   */
  readonly minOutput?: number | `${number}dB` | undefined;
  /**
   * With `minOutput`: the inputs, the runtime, and the backends on which outputs must hold, as for `compareModels`.
   * @defaultValue random inputs, on wasm, with the installed onnxruntime-web
   */
  readonly run?: OutputRunOptions | undefined;
}

/** The result of `quantizeOpen`. */
export interface Quantized {
  readonly report: ModelReport;
  /** The contents of files beside the result, by the names of their options. */
  readonly sidecars: Readonly<Record<string, unknown>>;
  /** The files of the result, if they are in memory. */
  readonly memory: readonly MemorySink[] | undefined;
  /** The files of the result, the main one first. */
  readonly files: readonly PlannedFile[];
  /** True if all parts of the work are done. */
  readonly isWhole: boolean;
}

/** The contents of the files beside a result: the given ones with new entries, or without entries that are no longer true. */
function sidecarsFor({ format }: Opened, plan: FilePlan, choices: PlanChoices): Record<string, unknown> {
  const given = choices as unknown as Readonly<Record<string, unknown>>;
  const contents: Record<string, unknown> = {};
  const types = plan.tensors.map(({ source }) => source.type);
  const { decoded } = plan;
  for (const [option, { sidecar }] of Object.entries(entriesFor(format, choices.to))) {
    if (sidecar === undefined) continue;
    const addition = plan.sidecars.find((planned) => planned.option === option);
    const before = given[option];
    if (addition !== undefined) {
      const content = before ?? addition.base ?? (sidecar.isCompleted ? undefined : {});
      contents[option] = content && sidecar.merge(content, addition.value, addition.also, decoded);
    } else if (before !== undefined) {
      // A copy holds the codes that the given content describes.
      contents[option] = before;
      if (choices.to === 'copy' && sidecar.fits(types)) continue;
      // Drop an entry that describes codes of another method, which the result does not hold.
      sidecar.merge(before, {}, {}, decoded);
      contents[option] = sidecar.without(before);
    }
  }
  return Object.fromEntries(Object.entries(contents).filter(([, content]) => content !== undefined));
}

/** The output for a file of a result. */
function outputFor(output: ModelOutput, file: OutputFile): ModelOutput {
  if (isFolder(output)) return output;
  if (typeof output === 'string') return fileName(output, file);
  if (output instanceof URL) return new URL(fileName(output.href, file));
  if (file.suffix === '') return output;
  throw rangeError('output', ofType('path', 'FileSystemDirectoryHandle'), output);
}

/**
 * Quantizes an open model. See `quantizeModel`.
 * @param called the name of the result if the output has no name. By default `model`, with the usual extension.
 * @param check called with the plan before any work
 */
export async function quantizeOpen(
  opened: Opened,
  choices: PlanChoices,
  options: ResultOptions,
  {
    called,
    check,
  }: { readonly called?: string | undefined; readonly check?: ((plan: ModelFilePlan) => void) | undefined } = {},
): Promise<Quantized> {
  const { output, overwrite = false, minSqnrDb, onProgress, signal } = options;
  const { model, inputs } = opened;
  // Plan the result.
  const given = outputName(output) ?? called;
  const plan = await planFor(opened, choices, given);
  check?.(plan);
  const usual = usualOutput(plan.format);
  const sidecars = sidecarsFor(opened, plan, choices);
  const { others } = plan;
  const isPath = typeof output === 'string' || output instanceof URL;
  if (others !== undefined && !isPath)
    throw rangeError('output', ofType('path'), output, { kind: 'with', options: [mention('part')] });
  const locationOf = (file: OutputFile) => outputFor(output as ModelOutput, file) as string | URL;
  const waiting = waitingFor(signal);
  const place = { overwrite, waiting, inputs };
  const sinks: ByteSink[] = [];
  let removeFolder = async () => {};
  let moments: ByteSource | undefined;
  let runner: TileRunner | undefined;
  let failure: unknown;
  try {
    // Open the moments and the outputs, and start the workers.
    moments = plan.moments === undefined ? undefined : await openWithin(waiting, plan.moments);
    const files = moments === undefined ? model.files : [...model.files, moments];
    if (others !== undefined) await clearIndex(others, locationOf, place);
    if (isPath && plan.files.some(isInFolder)) removeFolder = await makeFolder(output);
    for (const file of plan.files) {
      // A folder of the browser takes the name alone.
      const name = fileName(called ?? usual, file)
        .split('/')
        .at(-1) as string;
      if (output === undefined) sinks.push(memorySink(file.size));
      else sinks.push(await openSink(outputFor(output, file), { ...place, overwrite: options.overwrite, name }));
    }
    // Workers must not write into files whose checksum is taken.
    const direct = hasChecksums(plan) ? sinks.map(() => ({ reference: undefined })) : sinks;
    runner = await startRunner(convertedElements(plan), { sources: files, sinks: direct }, options);
    // Write the result, and report.
    const measures = await writePlan({ plan, files, sinks, runner, signal, onProgress });
    const made = reportOf(model, plan, measures, true);
    const report = runner.note === undefined ? made : { ...made, notes: [...made.notes, runner.note] };
    if (minSqnrDb !== undefined) checkQuality(report, minSqnrDb);
    // Make the result visible, the main file last. If one fails, those before it are removed again, except where they replaced a file.
    const done: ByteSink[] = [];
    try {
      for (const sink of sinks.toReversed()) {
        await sink.finish();
        done.push(sink);
      }
    } catch (error) {
      for (const sink of done) await sink.withdraw?.();
      throw error;
    }
    return {
      report,
      sidecars,
      memory: output === undefined ? (sinks as readonly ByteSink[] as readonly MemorySink[]) : undefined,
      files: plan.files.map((file) => ({ name: fileName(given ?? usual, file), bytes: file.size })),
      isWhole: others === undefined || (await completeResult(others, locationOf, place)),
    };
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    runner?.dispose(failure);
    for (const sink of sinks) await sink.discard(failure);
    if (failure !== undefined) await removeFolder();
    await moments?.close();
    waiting.end();
  }
}

/**
 * Writes a small file beside a result, such as its config.json (Node). It appears whole or not at all.
 * @throws ScalepointError `EXISTS` if the file is there and `overwrite` is false, `IO`
 */
export async function writeSidecar(path: string | URL, text: string, overwrite = false): Promise<void> {
  const sink = await pathSink(path, overwrite);
  try {
    await sink.write(0, new TextEncoder().encode(text));
    await sink.finish();
  } finally {
    await sink.discard(undefined);
  }
}
