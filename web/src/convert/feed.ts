/**
 * Sends a worker the inputs that it cannot read by itself. They travel in chunks, in the order in which the worker puts them into its
 * memory. Few chunks are under way at a time, so that this thread never holds the whole of a large tile.
 */
import { allocate, type ByteSource } from '../formats/files/bytes.js';
import { type InputSlice, inputPartsOf, inputReaderFor, slicesInTurn } from './input-reader.js';
import { TaskError, type TileTask } from './task.js';

/** Size of a chunk in bytes. Large enough to be worth a request to a server. */
const chunkBytes = 1 << 21;

/** Chunks that are being read or wait in the worker. The next ones are on their way while it works on a tile. */
const mostChunks = 3;

/** Chunks of a batch with large results, which take memory in the worker. */
const fewerChunks = 2;
const largeResult = 1 << 24;

/** A batch whose inputs are sent. */
export interface FedBatch {
  readonly id: number;
  readonly tasks: readonly TileTask[];
  /** True if the worker has ended the batch, and needs no further input. */
  isOver(): boolean;
}

/** The files and the worker of a Feed. */
export interface FeedOptions {
  readonly files: readonly ByteSource[];
  /** True if the worker has opened a file by itself. */
  isOpen(file: number): boolean;
  /** Memory of earlier chunks, shared by all workers. Reused, because garbage would pile up. */
  readonly spare: ArrayBuffer[];
  /** Sends the next bytes of a batch. */
  send(id: number, bytes: Uint8Array<ArrayBuffer>): void;
}

/** Sends one worker its inputs. */
export class Feed {
  readonly #options: FeedOptions;
  /** Memory of earlier reads. */
  readonly #spare: ArrayBuffer[] = [];
  /** Chunks under way. */
  #count = 0;
  /** Continues after a chunk has come back. */
  #goOn = () => {};
  /** Settles when the reads of all batches so far have begun. */
  #begun: Promise<unknown> = Promise.resolve();
  /** Settles when all chunks so far are sent or given up. */
  #sent: Promise<unknown> = Promise.resolve();

  constructor(options: FeedOptions) {
    this.#options = options;
  }

  /** Sends all inputs of a batch. Batches take turns. @throws TaskError */
  async give(batch: FedBatch): Promise<void> {
    const begun = this.#begun.then(() => this.#begin(batch));
    this.#begun = begun.catch(() => {});
    await Promise.all(await begun);
  }

  /** Takes memory back from the worker. */
  takeBack(memory: ArrayBuffer): void {
    this.#count--;
    if (memory.byteLength === chunkBytes) this.#options.spare.push(memory);
    this.#goOn();
  }

  /** Begins to read the chunks of a batch, each as soon as there is room for it. Returns a promise for each that settles when it is sent. */
  async #begin(batch: FedBatch): Promise<Promise<void>[]> {
    const { files, isOpen } = this.#options;
    const isWanted = (file: number) => !isOpen(file);
    const reader = inputReaderFor(files, this.#spare);
    await reader.begin(batch.tasks.flatMap(inputPartsOf).filter(({ file }) => isWanted(file)));
    const results = batch.tasks.flatMap((task) => (task.kind === 'encode' ? task.outputs : []));
    const most = results.reduce((sum, { bytes }) => sum + bytes, 0) < largeResult ? mostChunks : fewerChunks;
    const sent: Promise<void>[] = [];
    let failed = false;
    const isOver = () => failed || batch.isOver();
    /** Reads slices that travel together, and sends them behind those before. */
    const deliver = async (
      slices: readonly InputSlice[],
      memory: Uint8Array<ArrayBuffer>,
      before: Promise<unknown>,
    ) => {
      try {
        let at = 0;
        for (const { task, part } of slices) {
          const size = part.bytes * part.count;
          const target = memory.subarray(at, at + size);
          at += size;
          await reader.put(part, target).catch((cause: unknown) => {
            throw new TaskError(task, cause);
          });
        }
      } catch (error) {
        await before;
        failed = true;
        this.takeBack(memory.buffer);
        throw error;
      }
      await before;
      if (isOver()) this.takeBack(memory.buffer);
      else this.#options.send(batch.id, memory);
    };
    let slices: InputSlice[] = [];
    let size = 0;
    const flush = async () => {
      while (this.#count >= most && !isOver()) await this.#room();
      if (!isOver() && size > 0) {
        this.#count++;
        const delivered = deliver(slices, this.#memory(size), this.#sent);
        this.#sent = delivered.catch(() => {});
        sent.push(delivered);
      }
      slices = [];
      size = 0;
    };
    for (const slice of slicesInTurn(batch.tasks, isWanted, chunkBytes)) {
      const bytes = slice.part.bytes * slice.part.count;
      if (size > 0 && size + bytes > chunkBytes) await flush();
      if (isOver()) break;
      slices.push(slice);
      size += bytes;
    }
    if (!isOver()) await flush();
    return sent;
  }

  /** Waits until a chunk has come back, or a batch has ended. */
  #room(): Promise<void> {
    return new Promise((resolve) => {
      this.#goOn = resolve;
    });
  }

  #memory(bytes: number): Uint8Array<ArrayBuffer> {
    // Chunks of about this size share their memory.
    const size = bytes > chunkBytes / 4 ? chunkBytes : bytes;
    const spare = size === chunkBytes ? this.#options.spare.pop() : undefined;
    return new Uint8Array(spare ?? allocate(size, ' of input').buffer, 0, bytes);
  }
}
