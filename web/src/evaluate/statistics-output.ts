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
import type { MomentsFile } from '../formats/statistics.js';

/** The place of a file beside an output; undefined for memory. */
function besideOutput(output: ModelOutput | undefined, end: string): string | URL | undefined {
  if (typeof output === 'string') return `${output}${end}`;
  return output instanceof URL ? new URL(`${output.href}${end}`) : undefined;
}

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
    if (this.#sink === undefined) {
      this.#memory = memorySink(size);
      this.#sink = this.#memory;
    }
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

/** End of the name of a file of moments, behind that of the statistics. */
export const momentsEnd = '.moments.safetensors';

/** End of the name of a file of ranges of activations, behind that of the statistics. */
export const rangesEnd = '.ranges.safetensors';

/** Options of the outputs. */
interface OutputOptions {
  readonly output: ModelOutput | undefined;
  readonly overwrite: boolean;
  readonly signal: AbortSignal | undefined;
  /** Ends of names of files beside the output. */
  readonly beside: readonly string[];
}

/** Opens the files, hands them to `use`, and finishes them in order, or discards all. */
export async function withOutputFiles<T>(
  { inputs }: Opened,
  { output, overwrite, signal, beside }: OutputOptions,
  use: (files: readonly StatisticsFile[], waiting: Waiting) => Promise<T>,
): Promise<T> {
  const waiting = waitingFor(signal);
  const files: StatisticsFile[] = [];
  try {
    // Open the outputs first, so that a file that exists ends the call before the work.
    const options = { overwrite, waiting, inputs };
    const place = besideOutput(output, '');
    files.push(new StatisticsFile(output === undefined ? undefined : await openSink(output, options), place));
    for (const end of beside) {
      const path = besideOutput(output, end);
      files.push(new StatisticsFile(path === undefined ? undefined : await openSink(path, options), path));
    }
    const result = await use(files, waiting);
    // The main file appears last.
    for (const file of files.toReversed()) await file.finish();
    return result;
  } catch (error) {
    for (const file of files) await file.discard(error);
    throw error;
  } finally {
    waiting.end();
  }
}
