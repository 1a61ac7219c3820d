/** Makes a model smaller: opens the outputs, carries out the plan, and reports. */
import { rangeError } from '../core/errors.js';
import { mention, ofType } from '../core/option-problem.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import type { ByteSource } from '../formats/files/bytes.js';
import { openWithin } from '../formats/files/open.js';
import { makeFolder } from '../formats/files/path-sink.js';
import {
  type ByteSink,
  isFolder,
  type MemorySink,
  type ModelOutput,
  memorySink,
  openSink,
} from '../formats/files/sinks.js';
import { type FilePlan, fileName, isInFolder, type OutputFile } from '../formats/format.js';
import type { PlanChoices, Sidecar } from '../formats/options.js';
import type { OutputRunOptions } from '../formats/run.js';
import { entriesFor } from './maker.js';
import type { Opened } from './open.js';
import { type ModelFilePlan, nameOf, type PlannedFile, planFor, usualOutput } from './plan.js';
import { checkQuality, type ModelReport, nonFiniteNotes, reportOf } from './report.js';
import { startRunner, type WorkOptions } from './start.js';
import type { TileRunner } from './tile-runner.js';
import { clearIndex, completeResult, type LocationOf } from './work-parts.js';
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

/**
 * The content of a file beside a result.
 * @param before the given content
 * @param addition the entry to add; undefined to add nothing
 * @param isCopy true if the result holds the codes that the given content describes
 * @param decoded methods of quantization of weights that were decoded
 */
function contentOf(
  sidecar: Sidecar,
  before: unknown,
  addition: FilePlan['sidecars'][number] | undefined,
  isCopy: boolean,
  decoded: readonly string[] | undefined,
): unknown {
  if (addition !== undefined) {
    const content = before ?? addition.base ?? (sidecar.isCompleted ? undefined : {});
    return content && sidecar.merge(content, addition.value, addition.also, decoded);
  }
  if (before === undefined || isCopy) return before;
  // Drop an entry that describes codes of another method, which the result does not hold.
  sidecar.merge(before, {}, {}, decoded);
  return sidecar.without(before);
}

/** The contents of the files beside a result: the given ones with new entries, or without entries that are no longer true. */
function sidecarsOf({ format }: Opened, plan: FilePlan, choices: PlanChoices): Record<string, unknown> {
  const given = choices as unknown as Readonly<Record<string, unknown>>;
  const contents: Record<string, unknown> = {};
  const types = plan.tensors.map(({ source }) => source.type);
  for (const [option, { sidecar }] of Object.entries(entriesFor(format, choices.to))) {
    if (sidecar === undefined) continue;
    const addition = plan.sidecars.find((planned) => planned.option === option);
    const before = given[option];
    const content = contentOf(sidecar, before, addition, choices.to === 'copy' && sidecar.fits(types), plan.decoded);
    if (content !== undefined) contents[option] = content;
  }
  return contents;
}

/** The output for a file of a result. */
function outputOf(output: ModelOutput, file: OutputFile): ModelOutput {
  if (isFolder(output)) return output;
  if (typeof output === 'string') return fileName(output, file);
  if (output instanceof URL) return new URL(fileName(output.href, file));
  if (file.suffix === '') return output;
  throw rangeError('output', ofType('path', 'FileSystemDirectoryHandle'), output);
}

/** The locations of the files of all parts. */
function locationsOf(output: ModelOutput | undefined): LocationOf {
  if (typeof output !== 'string' && !(output instanceof URL))
    throw rangeError('output', ofType('path'), output, { kind: 'with', options: [mention('part')] });
  return (file) => outputOf(output, file) as string | URL;
}

/** Makes the folder of a result whose files are in one. Returns a function that removes it again unless files are in it. */
async function folderFor({ files }: FilePlan, output: ModelOutput | undefined): Promise<() => Promise<void>> {
  const isPath = typeof output === 'string' || output instanceof URL;
  if (!isPath || !files.some(isInFolder)) return async () => {};
  return makeFolder(output);
}

/** Opens a sink for each file. If one cannot be opened, those before it are discarded. */
async function openSinks(
  { files }: FilePlan,
  { inputs }: Opened,
  { output, overwrite }: ResultOptions,
  called: string,
  waiting: Waiting,
): Promise<ByteSink[]> {
  const options = { overwrite, waiting, inputs };
  const sinks: ByteSink[] = [];
  try {
    for (const file of files) {
      // A folder of the browser takes the name alone.
      const name = fileName(called, file).split('/').at(-1) as string;
      if (output === undefined) sinks.push(memorySink(file.size));
      else sinks.push(await openSink(outputOf(output, file), { ...options, name }));
    }
    return sinks;
  } catch (error) {
    for (const sink of sinks) await sink.discard(error);
    throw error;
  }
}

/** Makes the files of a result visible. If one fails, those before it are removed again, except where they replaced a file. */
async function finish(sinks: readonly ByteSink[]): Promise<void> {
  const done: ByteSink[] = [];
  try {
    // The main file comes last, when all others are there.
    for (const sink of sinks.toReversed()) {
      await sink.finish();
      done.push(sink);
    }
  } catch (error) {
    for (const sink of done) await sink.withdraw?.();
    throw error;
  }
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
  called?: string,
  check?: (plan: ModelFilePlan) => void,
): Promise<Quantized> {
  const { output, overwrite = false, minSqnrDb, onProgress, signal } = options;
  const { model } = opened;
  // Plan the result.
  const given = nameOf(output) ?? called;
  const plan = await planFor(opened, choices, given);
  check?.(plan);
  const name = given ?? usualOutput(plan.format);
  const sidecars = sidecarsOf(opened, plan, choices);
  const { others } = plan;
  const locationOf = others && locationsOf(output);
  const waiting = waitingFor(signal);
  const place = { overwrite, waiting, inputs: opened.inputs };
  let sinks: readonly ByteSink[] = [];
  let removeFolder = async () => {};
  let moments: ByteSource | undefined;
  let runner: TileRunner | undefined;
  let failure: unknown;
  try {
    // Open the moments, the outputs, and start the workers.
    moments = plan.moments === undefined ? undefined : await openWithin(waiting, plan.moments);
    const files = moments === undefined ? model.files : [...model.files, moments];
    if (locationOf !== undefined) await clearIndex(others ?? [], locationOf, place);
    removeFolder = await folderFor(plan, output);
    sinks = await openSinks(plan, opened, options, called ?? usualOutput(plan.format), waiting);
    // Workers must not write into files whose checksum is taken.
    const direct = hasChecksums(plan) ? sinks.map(() => ({ reference: undefined })) : sinks;
    runner = await startRunner(convertedElements(plan), { sources: files, sinks: direct }, options);
    // Write the result, and report.
    const measures = await writePlan({ plan, files, sinks, runner, signal, onProgress });
    const made = reportOf(model, plan, measures);
    const more = [
      ...nonFiniteNotes(made.tensors.filter((_, i) => !plan.tensors[i]?.infinities)),
      ...(runner.note === undefined ? [] : [runner.note]),
    ];
    const report = more.length === 0 ? made : { ...made, notes: [...made.notes, ...more] };
    if (minSqnrDb !== undefined) checkQuality(report, minSqnrDb);
    // Make the result visible.
    await finish(sinks);
    const isWhole = locationOf === undefined || (await completeResult(others ?? [], locationOf, place));
    return {
      report,
      sidecars,
      memory: output === undefined ? (sinks as readonly MemorySink[]) : undefined,
      files: plan.files.map((file) => ({ name: fileName(name, file), bytes: file.size })),
      isWhole,
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
