/** The files of statistics: importance, and beside it files of more. They appear together or not at all. */

import type { Opened } from '../convert/open.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import {
  type ByteSink,
  inMemory,
  type MemorySink,
  type ModelOutput,
  memorySink,
  openSink,
} from '../formats/files/sinks.js';
import { type StateFacts, StateFile } from '../formats/files/state-file.js';
import { importanceFile } from '../formats/gguf/importance-matrix.js';
import type { MomentsFile } from '../formats/statistics.js';
import type { TextOptions } from './texts.js';

/** A file to be written: to a place, or to memory once its size is known. */
export class StatisticsFile {
  readonly #path: string | URL | undefined;
  #sink: ByteSink | undefined;
  #memory: MemorySink | undefined;
  #size = 0;
  isDone = false;

  constructor(sink: ByteSink | undefined, path?: string | URL) {
    this.#sink = sink;
    this.#path = path;
  }

  /** The place of the bytes. */
  sized(size: number): ByteSink {
    this.#size = size;
    this.#sink ??= this.#memory = memorySink(size);
    return this.#sink;
  }

  async finish(): Promise<void> {
    await this.#sink?.finish();
    this.isDone = true;
  }

  async discard(error: unknown): Promise<void> {
    if (this.isDone) await this.#sink?.withdraw?.();
    else await this.#sink?.discard(error);
  }

  result(): MomentsFile {
    return {
      size: this.#size,
      path: this.#path,
      bytes: async () => inMemory(this.#memory).bytes(),
      blob: async () => inMemory(this.#memory).blob(),
    };
  }
}

/** Options of `calibrateModel`, checked. */
export interface CalibrationOptions extends TextOptions {
  readonly output: ModelOutput | undefined;
  readonly overwrite: boolean;
  /** True goes on behind an interrupted run. Then the output is a path. */
  readonly resume: boolean;
  readonly moments: boolean;
  /** The share of chunks or samples that is held back from moments. */
  readonly heldBack: number;
  /** True if the caller gave it. */
  readonly isShareGiven: boolean;
}

/** The files of a run, and what ends with them. */
export interface OpenOutputs {
  /** The importance. */
  readonly main: StatisticsFile;
  /** Files beside it, by the ends of their names. */
  readonly beside: ReadonlyMap<string, StatisticsFile>;
  readonly waiting: Waiting;
  /** Opens the state of an interrupted run, or prepares one; undefined if the run is not to go on. The end of the run removes it. */
  openState(facts: StateFacts): Promise<StateFile | undefined>;
}

/**
 * Opens the files, hands them to `use`, and finishes them in order, or discards all.
 * @param ends of the names of files beside the output
 */
export async function withOutputFiles<T>(
  { inputs }: Opened,
  { output, overwrite, signal, resume }: Pick<CalibrationOptions, 'output' | 'overwrite' | 'signal' | 'resume'>,
  ends: readonly string[],
  use: (outputs: OpenOutputs) => Promise<T>,
): Promise<T> {
  const waiting = waitingFor(signal);
  const files: StatisticsFile[] = [];
  let state: StateFile | undefined;
  try {
    // Open the outputs first, so that a file that exists ends the call before the work.
    const options = { overwrite, waiting, inputs };
    for (const end of ['', ...ends]) {
      const beside = output instanceof URL ? new URL(`${output.href}${end}`) : `${output}${end}`;
      const path = typeof output === 'string' || output instanceof URL ? beside : undefined;
      const place = path ?? (end === '' ? output : undefined);
      files.push(new StatisticsFile(place === undefined ? undefined : await openSink(place, options), path));
    }
    const [main, ...others] = files as [StatisticsFile, ...StatisticsFile[]];
    const result = await use({
      main,
      beside: new Map(others.map((file, i) => [ends[i] as string, file])),
      waiting,
      async openState(facts) {
        if (!resume || !(typeof output === 'string' || output instanceof URL)) return undefined;
        state = await StateFile.open({ beside: output }, facts, { ...options, option: 'output' });
        return state;
      },
    });
    // The main file appears last.
    for (const file of files.toReversed()) await file.finish();
    files.length = 0;
    await state?.remove();
    return result;
  } catch (error) {
    for (const file of files) await file.discard(error);
    throw error;
  } finally {
    await state?.close();
    waiting.end();
  }
}

/** Sums over the inputs that some weights share. */
export interface InputSums {
  /** The weights: in llama.cpp's names, or for ONNX in those of the model. */
  readonly names: readonly string[];
  readonly columns: number;
  /** Number of matrices that share the columns. @defaultValue 1 */
  readonly matrices?: number | undefined;
  /** Rows that were counted. */
  rows: number;
  /** Rows that reached each matrix, for experts. @defaultValue `rows` for each */
  readonly counts?: Float64Array<ArrayBuffer> | undefined;
  /** Sum of squares of each column, of one matrix after the other. */
  readonly squares: Float64Array<ArrayBuffer>;
}

/** Writes sums as an importance matrix of llama.cpp. Returns the weights that it has numbers for. */
export async function writeImportance(
  to: StatisticsFile,
  sums: readonly InputSums[],
  about: { readonly chunks: number; readonly chunkSize: number },
): Promise<string[]> {
  const entries = sums.flatMap(({ names, squares, rows, matrices = 1, counts }) =>
    names.map((name) => ({ name, sums: squares, counts: counts ?? new Float64Array(matrices).fill(rows) })),
  );
  const file = importanceFile(entries, about);
  await to.sized(file.length).write(0, file);
  return entries.map(({ name }) => name);
}
