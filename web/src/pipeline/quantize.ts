/** Makes a model smaller: opens the outputs, carries out the plan, reports. */
import { rangeError } from '../core/errors.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import { type ByteSink, type MemorySink, type ModelOutput, memorySink, openSink } from '../files/sinks.js';
import type { FilePlan, OutputFile } from '../formats/format.js';
import type { PlanChoices } from '../formats/options.js';
import { carryOut, convertedElements } from './engine.js';
import { entriesFor } from './maker.js';
import type { Opened } from './open.js';
import { planFor } from './plan.js';
import { checkQuality, type ModelReport, reportOf } from './report.js';
import { startRunner, type WorkOptions } from './start.js';
import type { TileRunner } from './workers.js';

/** Options of `quantizeModel`, without those of formats. */
export interface ResultOptions extends WorkOptions {
  /**
   * Where the result goes: a path or an open file (Node), a FileSystemFileHandle, a WritableStream. A path and a FileSystemFileHandle
   * show nothing until the result is whole.
   * @defaultValue memory, see `result.bytes()` and `result.blob()`
   */
  readonly output?: ModelOutput;
  /**
   * Whether `output` may replace a file.
   * @defaultValue false
   */
  readonly overwrite?: boolean;
  /**
   * The lowest SQNR in decibels that a converted tensor may have; below it nothing is written.
   * @defaultValue none
   */
  readonly minSqnrDb?: number;
}

/** What came of it. */
export interface Quantized {
  readonly report: ModelReport;
  /** The contents of files beside the result, by option. */
  readonly sidecars: Readonly<Record<string, unknown>>;
  /** The result, if it is in memory. */
  readonly memory: MemorySink | undefined;
}

/** The contents of the files beside a result, those that were given with what is to be added, or without what is true no longer. */
function sidecarsOf({ format }: Opened, plan: FilePlan, choices: PlanChoices): Record<string, unknown> {
  const given = choices as unknown as Readonly<Record<string, unknown>>;
  const contents: Record<string, unknown> = {};
  for (const [option, { sidecar }] of Object.entries(entriesFor(format, choices.to))) {
    if (sidecar === undefined) continue;
    const addition = plan.sidecars.find((planned) => planned.option === option);
    const before = given[option];
    const content = addition
      ? sidecar.merge(before ?? {}, addition.value)
      : before === undefined
        ? undefined
        : sidecar.without(before);
    if (content !== undefined) contents[option] = content;
  }
  return contents;
}

/** Where a file of a result goes. */
function outputOf(output: ModelOutput, { suffix }: OutputFile): ModelOutput {
  if (suffix === '') return output;
  if (typeof output === 'string') return output + suffix;
  if (output instanceof URL) return new URL(output.href + suffix);
  throw rangeError('output', 'the result has several files, which only a path has room for');
}

/** The name of a result that goes to a path. */
function nameOf(output: ModelOutput | undefined): string | undefined {
  if (output instanceof URL) return decodeURIComponent(output.pathname.split('/').pop() ?? '') || undefined;
  return typeof output === 'string' ? output.split(/[\\/]/).pop() || undefined : undefined;
}

/** Opens a sink for each file. What was opened is discarded if one of them cannot be. */
async function openSinks(
  { files }: FilePlan,
  { model }: Opened,
  { output, overwrite = false }: ResultOptions,
  waiting: Waiting,
): Promise<ByteSink[]> {
  const inputs = model.files.flatMap(({ identity }) => identity ?? []);
  const options = { overwrite, waiting, inputs };
  const sinks: ByteSink[] = [];
  if (output === undefined && files.length > 1) {
    throw rangeError('output', 'the result has several files, which only a path has room for');
  }
  try {
    for (const file of files) {
      sinks.push(output === undefined ? memorySink(file.size) : await openSink(outputOf(output, file), options));
    }
    return sinks;
  } catch (error) {
    for (const sink of sinks) await sink.discard(error);
    throw error;
  }
}

/** Quantizes an open model. See `quantizeModel`. */
export async function quantizeOpen(opened: Opened, choices: PlanChoices, options: ResultOptions): Promise<Quantized> {
  const { output, minSqnrDb, onProgress, signal } = options;
  const { model } = opened;
  const plan = await planFor(opened, choices, nameOf(output));
  const sidecars = sidecarsOf(opened, plan, choices);
  const waiting = waitingFor(signal);
  let sinks: readonly ByteSink[] = [];
  let runner: TileRunner | undefined;
  let failure: unknown;
  try {
    sinks = await openSinks(plan, opened, options, waiting);
    runner = await waiting.soon(
      startRunner(convertedElements(plan), { sources: model.files, sinks }, options),
      (late) => late.dispose(),
    );
    const measures = await carryOut({ plan, files: model.files, sinks, runner, signal, onProgress });
    const made = reportOf(model, plan, measures);
    const report = runner.note === undefined ? made : { ...made, notes: [...made.notes, runner.note] };
    if (minSqnrDb !== undefined) checkQuality(report, minSqnrDb);
    // The first file is the main one. It appears when all others are there.
    for (const sink of sinks.toReversed()) await sink.finish();
    return { report, sidecars, memory: output === undefined ? (sinks[0] as MemorySink) : undefined };
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    runner?.dispose(failure);
    for (const sink of sinks) await sink.discard(failure);
    waiting.end();
  }
}
