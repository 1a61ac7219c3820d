/** Carries out batches in the calling thread. */

import type { Core } from '../core/memory.js';
import type { Note } from '../core/note.js';
import type { ByteSource } from '../formats/files/bytes.js';
import { memoryOutput } from './batch-output.js';
import { CacheOwners } from './cache-owners.js';
import { type InputReader, inputReaderFor } from './input-reader.js';
import { type Batch, type BatchResult, inputPartsOf } from './task.js';
import { TileConverter } from './tile-converter.js';
import type { TileRunner } from './tile-runner.js';

/** Milliseconds that this thread may work without a pause. */
const busyMilliseconds = 8;

/** Carries out batches in this thread, one after the other. */
export class CallingThread implements TileRunner {
  readonly concurrency = 1;
  readonly note?: Note;
  readonly #core: Core;
  readonly #converter: TileConverter;
  readonly #inputs: InputReader;
  readonly #owners = new CacheOwners<TileConverter>(1);
  #last: Promise<unknown> = Promise.resolve();
  #spare: ArrayBuffer | undefined;
  #rested = performance.now();
  #ended: { readonly reason: unknown } | undefined;

  private constructor(core: Core, files: readonly ByteSource[], note: Note | undefined) {
    this.#core = core;
    this.#converter = new TileConverter(core);
    this.#inputs = inputReaderFor(files);
    if (note !== undefined) this.note = note;
  }

  /** Instantiates the core for this thread. @param note for the report */
  static async start(module: WebAssembly.Module, files: readonly ByteSource[], note?: Note): Promise<CallingThread> {
    // Imported here, so that programs that only look into files load no wasm.
    const load = await import('../core/load.js');
    return new CallingThread(await load.instantiateCore('core', module), files, note);
  }

  run(asked: Batch): Promise<BatchResult> {
    const { batch } = this.#owners.assign(asked);
    const result = this.#last.then(() => this.#run(batch));
    this.#last = result.catch(() => {});
    return result;
  }

  async #run(batch: Batch): Promise<BatchResult> {
    this.#check();
    await this.#inputs.begin(batch.tasks.flatMap(inputPartsOf));
    // It becomes the output of this batch, and may come back through `recycle`.
    const spare = this.#spare;
    this.#spare = undefined;
    const output = memoryOutput(batch, spare);
    const converted = await this.#converter.run(batch, this.#inputs, output.put, () => this.#pause());
    this.#owners.add(converted, this.#converter);
    return { ...converted, output: output.end() };
  }

  #check(): void {
    if (this.#ended !== undefined) throw this.#ended.reason;
  }

  /** Lets the page draw and react to a cancel. Only every few milliseconds, because browsers delay each of these waits. */
  async #pause(): Promise<void> {
    if (performance.now() - this.#rested > busyMilliseconds) {
      await new Promise((resolve) => setTimeout(resolve));
      this.#rested = performance.now();
    }
    this.#check();
  }

  recycle(output: ArrayBuffer): void {
    this.#spare = output;
  }

  dispose(reason?: unknown): void {
    this.#ended ??= { reason };
    this.#core.dispose();
  }
}
