/** Statistics of models that a runtime runs on samples. */

import type { Opened } from '../convert/open.js';
import { ScalepointError } from '../core/errors.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import type { FileInput } from '../formats/files/bytes.js';
import { openInput, openWithin } from '../formats/files/open.js';
import type { ByteSink, ModelOutput } from '../formats/files/sinks.js';
import { tooFewToHoldBack } from '../formats/held-back.js';
import { rangesFile } from '../formats/ranges-file.js';
import type {
  CollectHooks,
  CollectResume,
  ModelRuns,
  ModelSamples,
  RunOptions,
  SummedInputs,
  UnreachedWeight,
} from '../formats/run.js';
import type { MomentsFile } from '../formats/statistics.js';
import { importanceOf } from './collect.js';
import { MomentsLayout } from './moments-file.js';
import type { PassState } from './pass-state.js';
import { momentsEnd, rangesEnd, type StatisticsFile, withOutputFiles } from './statistics-output.js';
import type { TextOptions } from './text-options.js';
import { isLanguageData, samplesOfTexts } from './text-samples.js';
import type { LanguageData } from './tokens.js';

/** Options of `calibrateModel`, checked. */
interface RunsOptions extends TextOptions {
  readonly output: ModelOutput | undefined;
  readonly overwrite: boolean;
  readonly moments: boolean;
  /** The share of samples that is held back from moments. */
  readonly heldBack: number;
  /** True if the caller gave it. */
  readonly isShareGiven: boolean;
  readonly ranges: boolean;
  readonly resume: boolean;
  readonly run: Pick<RunOptions, 'runtime' | 'dimensions'>;
}

/** Statistics, as `calibrateModel` gives them. */
interface RunStatistics extends Omit<MomentsFile, 'path'> {
  readonly tokens: number;
  readonly chunks: number;
  readonly heldBackChunks?: number | undefined;
  readonly weights: readonly string[];
  readonly unreached: readonly UnreachedWeight[];
  readonly moments?: MomentsFile | undefined;
  readonly ranges?: MomentsFile | undefined;
}

/** The files of samples. */
function filesIn(data: LanguageData | ModelSamples): readonly FileInput[] {
  if (typeof data !== 'object' || data === null || !('files' in data)) return [];
  const { files } = data;
  return Array.isArray(files) ? files : [files as FileInput];
}

/** Notes the files of samples among the inputs, before an output is opened. */
async function noteFiles(
  { inputs }: Opened,
  data: LanguageData | ModelSamples,
  signal: AbortSignal | undefined,
): Promise<void> {
  const waiting = waitingFor(signal);
  try {
    for (const file of filesIn(data)) await (await openInput(waiting, file, { inputs, option: 'data' })).close();
  } catch {
    // The run reports it by the name of the option.
  } finally {
    waiting.end();
  }
}

/** Data by which a run notices that its samples changed. Samples that come one after the other are compared as they come. */
async function stampOf(data: LanguageData | ModelSamples, waiting: Waiting): Promise<unknown> {
  const { stampsOf } = await import('./pass-state.js');
  if (typeof data !== 'object' || !('files' in data)) return null;
  const stamps: unknown[] = [];
  for (const file of filesIn(data)) {
    const source = await openWithin(waiting, file);
    try {
      stamps.push(...(await stampsOf([source])));
    } finally {
      await source.close();
    }
  }
  return stamps;
}

/** The part of a state that the runs of a format see. */
function resumeOf(state: PassState, damaged: (path: string) => Error): CollectResume {
  return {
    found: state.take() as CollectResume['found'],
    save: (now) => state.save(now),
    refused: (what) => (what === 'state' ? damaged(state.path) : state.changed(['the data'])),
  };
}

/** Outputs and callbacks of a `SumsWriter`. */
interface SumsPlaces {
  /** File of moments. */
  readonly output: Pick<StatisticsFile, 'sized'> | undefined;
  /** Keeps the moments of an interrupted run. */
  readonly state: PassState | undefined;
  /** Throws if samples are too few. */
  checkCount(count: number): void;
  readonly onProgress: RunsOptions['onProgress'];
}

/** Milliseconds after which a run lets the page draw. */
const drawEvery = 50;

/** Takes what a run collects: reports samples, and writes moments. */
class SumsWriter {
  readonly #places: SumsPlaces;
  #layout: MomentsLayout | undefined;
  #sink: Pick<ByteSink, 'write'> | undefined;
  #passed = 0;
  #rested = performance.now();

  constructor(places: SumsPlaces) {
    this.#places = places;
  }

  hooks(): CollectHooks {
    return {
      onSample: (progress) => this.#report(progress),
      onSums: (sums, isFirst) => this.#begin(sums, isFirst),
      takeMoments: async ({ names }, means, isHeldBack) => {
        if (this.#sink !== undefined) await this.#layout?.write(this.#sink, names[0] as string, means, isHeldBack);
      },
    };
  }

  /** Copies moments that the state kept. */
  async finish(): Promise<void> {
    const { output, state } = this.#places;
    if (state === undefined || output === undefined || this.#layout === undefined) return;
    await state.copyMoments(this.#layout.size, output.sized(this.#layout.size));
  }

  async #report({ pass, passes, done, total }: Parameters<CollectHooks['onSample']>[0]): Promise<void> {
    this.#passed = done;
    this.#places.onProgress?.({ phase: 'calibrate', unit: 'samples', pass, passes, done, total });
    if (performance.now() - this.#rested < drawEvery) return;
    await new Promise((resolve) => setTimeout(resolve));
    this.#rested = performance.now();
  }

  async #begin(sums: readonly SummedInputs[], isFirst: boolean): Promise<void> {
    const { output, state, checkCount } = this.#places;
    // Leave no state of a run that cannot go on.
    if (isFirst) {
      try {
        checkCount(this.#passed);
      } catch (error) {
        await state?.remove();
        throw error;
      }
    }
    if (output === undefined) return;
    const held = sums.reduce((most, { heldBackRows }) => Math.max(most, heldBackRows), 0);
    const inputs = sums.map(({ names, columns, heldBackRows }) => ({ names, columns, heldBack: heldBackRows > 0 }));
    this.#layout = new MomentsLayout(inputs, { tokens: mostRows(sums) - held, heldBack: held });
    const sink = output.sized(this.#layout.size);
    this.#sink = (await state?.moments(isFirst)) ?? sink;
    if (isFirst) await this.#sink.write(0, this.#layout.header);
  }
}

/** Collects statistics of a model by running it. See `calibrateModel`. */
export async function calibrateRuns(
  opened: Opened,
  runs: ModelRuns,
  data: LanguageData | ModelSamples,
  { output, overwrite, moments, heldBack, isShareGiven, ranges, resume, run, ...others }: RunsOptions,
): Promise<RunStatistics> {
  const { signal, onProgress } = others;
  await noteFiles(opened, data, signal);
  const files = resume ? await import('./pass-state.js') : undefined;
  const place = files?.besideOutput(output);
  const beside = [...(moments ? [momentsEnd] : []), ...(ranges ? [rangesEnd] : [])];
  let state: PassState | undefined;
  try {
    const made = await withOutputFiles(
      opened,
      { output, overwrite, signal, beside },
      async ([main, ...more], waiting) => {
        const [second, third] = [moments ? more[0] : undefined, ranges ? more.at(-1) : undefined];
        const samples = isLanguageData(data) ? await samplesOfTexts(opened, runs, data, others) : data;
        const checkCount = (count: number) => {
          if (count < 2 && isShareGiven && heldBack > 0) throw tooFewToHoldBack('data', count, 2, 'samples');
        };
        if (Array.isArray(samples)) checkCount(samples.length);

        // Find the state of an interrupted run.
        if (files !== undefined && place !== undefined) {
          const stamps = { model: await files.stampsOf(opened.model.files), data: await stampOf(data, waiting) };
          const { dimensions = {} } = run;
          state = await files.PassState.open(
            place,
            { ...stamps, options: { moments, heldBack, ranges, dimensions } },
            { overwrite, waiting, option: 'output', inputs: opened.inputs },
          );
        }
        const options = {
          ...run,
          option: 'data',
          moments,
          heldBack,
          ranges,
          signal,
          open: (input: FileInput) => openWithin(waiting, input),
          resume: files && state && resumeOf(state, files.damaged),
        };

        // Run the model.
        const writer = new SumsWriter({ output: second, state, checkCount, onProgress });
        const found = await runs.collect(samples, options, writer.hooks());
        await writer.finish();
        if (found.sums.length === 0) {
          throw new ScalepointError(
            'RUNTIME',
            'no inputs of weights were reached: the model has no such products, or no sample runs them',
          );
        }

        // Write the importance, then the ranges.
        const tokens = mostRows(found.sums);
        const { file, weights } = importanceOf(found.sums, found.samples, Math.ceil(tokens / found.samples));
        await main?.sized(file.length).write(0, file);
        const { unreached, samples: chunks } = found;
        const { size, path, bytes, blob } = (main as NonNullable<typeof main>).result();
        const made = { tokens, chunks, weights, unreached, size, path, bytes, blob };
        if (third !== undefined) {
          const file = rangesFile(found.ranges, chunks);
          await third.sized(file.length).write(0, file);
        }
        return {
          ...made,
          ...(second === undefined ? {} : { moments: second.result(), heldBackChunks: found.heldBack }),
          ...(third === undefined ? {} : { ranges: third.result() }),
        };
      },
    );
    await state?.remove();
    return made;
  } finally {
    await state?.close();
  }
}

/** Rows that the inputs of a weight had, at most. */
function mostRows(sums: readonly { readonly rows: number }[]): number {
  return sums.reduce((most, { rows }) => Math.max(most, rows), 0);
}
