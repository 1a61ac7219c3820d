/** Makes a model smaller: opens the outputs, carries out the plan, and reports sizes and errors. */
import { rangeError, ScalepointError } from '../core/errors.js';
import { type ErrorMeasures, standsForInfinity } from '../core/measure.js';
import { type Note, noteOf } from '../core/note.js';
import { mention, ofType } from '../core/option-problem.js';
import { waitingFor } from '../core/waiting.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { type ByteSource, quoted, quotedNames } from '../formats/files/bytes.js';
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
import { isInFolder, type OpenModel, type OutputFile } from '../formats/format.js';
import type { PlanChoices, Rule } from '../formats/options.js';
import type { ResultFormat } from '../formats/registry.js';
import type { FoldedNorm, JudgedOutput, OutputRunOptions } from '../formats/run.js';
import { fileName } from '../formats/shards.js';
import type { Opened } from './open.js';
import type { OutputBound } from './options.js';
import {
  infoOf,
  type ModelFilePlan,
  type ModelTotals,
  outputName,
  type PlannedFile,
  type PlannedTensorInfo,
  planFor,
  totalsOf,
  usualOutput,
} from './plan.js';
import { startRunner } from './start.js';
import type { TileRunner } from './task.js';
import type { WorkOptions } from './work-options.js';
import { clearIndex, completeResult } from './work-parts.js';
import { convertedElements, writePlan } from './writing.js';

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
   * With `minOutput` or `foldOutliers`: the inputs, the runtime, and the backends on which outputs must hold, as for `compareModels`.
   * @defaultValue random inputs, on wasm, with the installed onnxruntime-web
   */
  readonly run?: OutputRunOptions | undefined;
}

/** The result of `quantizeOpen`. */
export interface Quantized {
  readonly format: ResultFormat;
  readonly report: ModelReport;
  /** The contents of files beside the result, by the names of their options. */
  readonly sidecars: Readonly<Record<string, unknown>>;
  /** The files of the result, if they are in memory. */
  readonly memory: readonly MemorySink[] | undefined;
  /** The files of the result, the main one first. */
  readonly files: readonly PlannedFile[];
  /** True if all but one of the files lie beside the weights. */
  readonly isSingle: boolean;
  /** True if all parts of the work are done. */
  readonly isWhole: boolean;
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
  const { others, decoded } = plan;
  // Find the contents of files beside the result: the given ones with new entries, or without entries that are no longer true.
  const sidecars: Record<string, unknown> = {};
  const types = plan.tensors.map(({ source }) => source.type);
  for (const [option, { sidecar }] of Object.entries(plan.entries)) {
    if (sidecar === undefined) continue;
    const addition = plan.sidecars.find((planned) => planned.option === option);
    const before = (choices as unknown as Readonly<Record<string, unknown>>)[option];
    let content: unknown = before;
    if (addition !== undefined) {
      content = before ?? addition.base ?? (sidecar.isCompleted ? undefined : {});
      content &&= sidecar.merge(content, addition.value, addition.also, decoded);
    } else if (before !== undefined && !(choices.to === 'copy' && sidecar.fits(types))) {
      // Drop an entry that describes codes of another method, which the result does not hold. A copy holds those of the given content.
      sidecar.merge(before, {}, {}, decoded);
      content = sidecar.without(before);
    }
    if (content !== undefined) sidecars[option] = content;
  }
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
    // The folder of the result, and those in it.
    const folders = plan.files.filter(isInFolder).map(({ suffix }) => suffix.slice(0, suffix.lastIndexOf('/')));
    for (const suffix of isPath ? new Set([...(folders.length > 0 ? [''] : []), ...folders].sort()) : []) {
      const [outer, remove] = [removeFolder, await makeFolder(locationOf({ suffix, size: 0, segments: [] }))];
      removeFolder = () => remove().then(outer);
    }
    for (const file of plan.files) {
      // A folder of the browser takes the name in it alone.
      const name = isInFolder(file) ? file.suffix.slice(1) : fileName(called ?? usual, file);
      if (output === undefined) sinks.push(memorySink(file.size));
      else sinks.push(await openSink(outputFor(output, file), { ...place, overwrite: options.overwrite, name }));
    }
    // Workers must not write into files whose checksum is taken.
    const hasChecksums = plan.files.some(({ segments }) => segments.some((segment) => 'md5' in segment));
    const direct = hasChecksums ? sinks.map(() => ({ reference: undefined })) : sinks;
    runner = await startRunner(convertedElements(plan), { sources: files, sinks: direct }, options);
    // Write the result, and report.
    const measures = await writePlan({ plan, files, sinks, runner, signal, onProgress });
    const made = reportOf(model, plan, measures, true);
    const report = runner.note === undefined ? made : { ...made, notes: [...made.notes, runner.note] };
    // Tensors below the required quality, the worst first. Single numbers may stand for infinity.
    const missed = report.tensors
      .flatMap(({ name, shape, error }) => {
        if (error === undefined || minSqnrDb === undefined || error.sqnrDb >= minSqnrDb) return [];
        const isInfinity = standsForInfinity(elementsOf(shape), error.maxAbsoluteError);
        return isInfinity ? [] : [{ name, db: error.sqnrDb }];
      })
      .sort((a, b) => a.db - b.db);
    const [worst] = missed;
    if (worst !== undefined) {
      const list = missed.slice(0, 3).map(({ name, db }) => `${quoted(name)} (${db.toFixed(2)} dB)`);
      const more = missed.length > list.length ? ` and ${missed.length - list.length} more` : '';
      const message = `SQNR below ${minSqnrDb} dB, nothing was written: ${list.join(', ')}${more}`;
      throw new QualityError(message, worst.name, report);
    }
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
      format: plan.format as ResultFormat,
      report,
      sidecars,
      memory: output === undefined ? (sinks as readonly ByteSink[] as readonly MemorySink[]) : undefined,
      files: plan.files.map((file) => ({ name: fileName(given ?? usual, file), bytes: file.size })),
      isSingle: plan.files.filter(({ isBeside }) => !isBeside).length === 1,
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

/** The result of converting a tensor, or the reason why it was kept. */
export interface TensorReport extends PlannedTensorInfo {
  /** Error of a converted tensor against the original. */
  readonly error?: ErrorMeasures | undefined;
  /** Number of elements of a float tensor that are NaN or infinite. */
  readonly nonFinite?: number | undefined;
}

/** A tensor that was raised. */
export interface RaisedTensor {
  /** Its name in the file. */
  readonly name: string;
  /** Its target before. */
  readonly from: string;
  /** Its target behind the step; `keep` for the type of the file. */
  readonly to: string;
  /** Bytes that it takes more. */
  readonly bytes: number;
}

/** The worst output of a result, and the size of the result in bytes. */
type StepOutput = JudgedOutput & {
  /** Size of all files. */
  readonly bytes: number;
};

/** A step of a repair: tensors that were raised together. */
export interface RepairStep {
  /** The tensors, the largest gain per byte first. */
  readonly tensors: readonly RaisedTensor[];
  /** The result before. */
  readonly before: StepOutput;
  /** The result with the tensors raised. */
  readonly after: StepOutput;
}

/** Tensors that were raised until outputs held `minOutput`. */
export interface OutputRepair {
  /** The given bound. */
  readonly bound: OutputBound;
  /** Each output of the result on each backend. */
  readonly outputs: readonly JudgedOutput[];
  /** The steps, in order; empty if the bound held from the start. */
  readonly steps: readonly RepairStep[];
  /** Rules that make the same result without running it, behind the given ones. */
  readonly rules: readonly Rule[];
  /** Number of results that were made in memory and run. */
  readonly runs: number;
}

/** Norms that were folded, because that brought the outputs closer to those of the original. */
export interface OutputFolding {
  /** The norms; empty if none can be folded, or if the outputs did not get closer. */
  readonly norms: readonly FoldedNorm[];
  /** The worst outputs on samples that did not give the factors; undefined if no norm can be folded. */
  readonly judged?:
    | {
        /** That without folds. */
        readonly before: JudgedOutput;
        /** That with folds. */
        readonly after: JudgedOutput;
      }
    | undefined;
}

/** The result of converting a model. */
export interface ModelReport {
  /** In the order of the input. */
  readonly tensors: readonly TensorReport[];
  /** Sums over all tensors. */
  readonly totals: ModelTotals;
  /** Notes about the result; mostly empty. */
  readonly notes: readonly Note[];
  /** With `minOutput`: the outputs, and the tensors that were raised. */
  readonly repair?: OutputRepair | undefined;
  /** With `foldOutliers: true`: the norms that were folded, and the outputs. */
  readonly folding?: OutputFolding | undefined;
}

/** Code `QUALITY`: the result misses the required SQNR, or its outputs miss `minOutput`, and it was dropped. */
export class QualityError extends ScalepointError {
  /** The report of the dropped result. */
  readonly report: ModelReport;

  /** @param tensor its name; undefined if outputs missed their bound */
  constructor(message: string, tensor: string | undefined, report: ModelReport) {
    super('QUALITY', message, tensor === undefined ? {} : { tensor });
    this.report = report;
  }
}

/** The largest number of float16, and a root mean square that no trained weights reach: embeddings of T5 have some 10 to 20. */
const [largestHalf, mostUsual] = [65504, 100];

/**
 * The report of a plan.
 * @param measures of each tensor that was read as floats
 * @param isWritten true for a result, whose NaN and infinities are noted
 */
export function reportOf(
  model: OpenModel,
  plan: ModelFilePlan,
  measures: readonly (ErrorMeasures | undefined)[],
  isWritten = false,
): ModelReport {
  const tensors = plan.tensors.map((tensor, i): TensorReport => {
    const error = measures[i];
    const info: { -readonly [Key in keyof TensorReport]: TensorReport[Key] } = infoOf(tensor, plan);
    if (error === undefined) return info;
    info.nonFinite = error.nonFinite;
    if (tensor.kept === undefined) info.error = error;
    return info;
  });
  const notes = [...plan.notes];
  // Numbers beyond the largest one of their new type.
  const beyond = tensors.filter(({ error }) => error?.saturated !== undefined);
  const saturated = beyond.reduce((sum, { error }) => sum + (error?.saturated ?? 0), 0);
  // Weights whose numbers are too large to be those of a trained model. The length of a tensor as a vector is at least its largest number,
  // and its root mean square at most. Plain floats share no scale.
  const huge = tensors.filter(({ shape, to, error }) => {
    if (error === undefined || error.relativeL2 === 0 || /^(BF16|F16|F32|F64)$/.test(to)) return false;
    const rootMeanSquare = error.rmse / error.relativeL2;
    return rootMeanSquare > mostUsual && rootMeanSquare * Math.sqrt(elementsOf(shape)) > largestHalf;
  });
  // Moments that could not be factored with the wanted damping.
  const damped = tensors.filter(({ error }, i) => {
    const wanted = plan.tensors[i]?.feedback?.damping;
    return wanted !== undefined && (error?.output?.damping ?? 0) > wanted;
  });
  const damping = damped.reduce((most, { error }) => Math.max(most, error?.output?.damping ?? 0), 0);
  // NaN and infinities, which are written as they are.
  const strange = tensors.filter(({ nonFinite = 0 }, i) => isWritten && nonFinite > 0 && !plan.tensors[i]?.infinities);
  const count = strange.reduce((sum, { nonFinite = 0 }) => sum + nonFinite, 0);
  // Note each of these facts that holds for some tensors, and codes with feedback that were no better, and errors that nothing was held
  // back for.
  const facts = [
    {
      kind: 'saturated',
      found: beyond,
      data: { count: saturated, to: beyond[0]?.to },
      text: `${saturated} ${saturated === 1 ? 'number is' : 'numbers are'} beyond ${beyond[0]?.to} and became its largest one`,
      most: 1,
    },
    {
      kind: 'hugeValues',
      found: huge,
      text: 'numbers of this size round those that share a scale with them to 0, and may be infinite where a program computes in float16',
      most: 3,
    },
    {
      kind: 'dampedMore',
      found: damped,
      data: { damping },
      text: `the second moments are not positive definite, so more was added to them, up to ${damping}`,
    },
    {
      kind: 'outputsNoBetter',
      found: tensors.filter(({ error }) => error?.output?.plain === 1),
      text: 'rounded to the nearest, because GPTQ made their outputs no better',
    },
    {
      kind: 'notHeldBack',
      found: tensors.filter(({ error }) => error?.output?.heldBack === false),
      text: 'their moments hold no data back, so errors of outputs are those on the data that codes were fitted to',
    },
    {
      kind: 'nonFinite',
      found: strange,
      data: { count },
      text: `the result holds ${count} ${count === 1 ? 'element that is' : 'elements that are'} NaN or infinite, as its source does`,
      most: 3,
    },
  ];
  for (const { kind, found, data, text, most } of facts) {
    const names = found.map(({ name }) => name);
    if (names.length > 0) notes.push(noteOf(kind, { tensors: names, ...data }, `${text}: ${quotedNames(names, most)}`));
  }
  return { tensors, totals: totalsOf(tensors, model.bytes, plan), notes };
}
