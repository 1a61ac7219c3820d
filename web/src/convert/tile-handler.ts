/** Carries out batches of tiles in a worker: reads their inputs, converts them, and writes the results or sends them back. */
import { errorData } from '../core/errors.js';
import type { Core } from '../core/memory.js';
import { type ReadBytes, readerOf, type WriteBytes, writerOf } from '../formats/files/reference.js';
import type { JobHandler, SendData } from '../workers/serve.js';
import { type GivenBytes, InputReader, inputPartsOf } from './input-reader.js';
import { type BatchResult, TaskError } from './task.js';
import { fileOutput, memoryOutput, TileConverter } from './tile-converter.js';
import {
  type BatchBytes,
  type BatchFailure,
  type LastRanges,
  type OpenedFiles,
  type TakenBytes,
  type TileJob,
  unpackBatch,
} from './tile-jobs.js';

/** Bytes of a batch as they arrive. */
class Received implements GivenBytes {
  /** True for files whose bytes arrive here. */
  readonly areOf: (file: number) => boolean;
  readonly #giveBack: (chunk: Uint8Array<ArrayBuffer>) => void;
  /** Consumed from the front. Undefined ends the list after a failed read. */
  readonly #chunks: (Uint8Array<ArrayBuffer> | undefined)[] = [];
  /** Continues after a chunk has arrived. */
  #goOn = () => {};

  constructor(areOf: (file: number) => boolean, giveBack: (chunk: Uint8Array<ArrayBuffer>) => void) {
    this.areOf = areOf;
    this.#giveBack = giveBack;
  }

  push(chunk: Uint8Array<ArrayBuffer> | undefined): void {
    this.#chunks.push(chunk);
    this.#goOn();
  }

  take(target: Uint8Array): void | Promise<void> {
    // Take the bytes that are here.
    let done = 0;
    while (done < target.length && this.#chunks.length > 0) {
      const [chunk] = this.#chunks;
      if (chunk === undefined) throw new Error('the bytes of a batch could not be read');
      const bytes = chunk.subarray(0, target.length - done);
      target.set(bytes, done);
      done += bytes.length;
      if (bytes.length < chunk.length) this.#chunks[0] = chunk.subarray(bytes.length);
      else this.#giveBack(this.#chunks.shift() as Uint8Array<ArrayBuffer>);
    }
    if (done === target.length) return;
    // Wait for the next ones.
    const arrived = new Promise<void>((resolve) => {
      this.#goOn = resolve;
    });
    return arrived.then(() => this.take(target.subarray(done)));
  }

  /** Gives back the chunks that are left. */
  end(): void {
    for (const chunk of this.#chunks) if (chunk !== undefined) this.#giveBack(chunk);
  }
}

/** Carries out jobs on tiles. */
export class TileHandler implements JobHandler {
  readonly #converter: TileConverter;
  readonly #giveBack: (chunk: Uint8Array<ArrayBuffer>) => void;
  /** Files that this worker opened. */
  #sources: readonly (ReadBytes | undefined)[] = [];
  #sinks: readonly WriteBytes[] = [];
  /** For each source, true if it is a local file. */
  #isNear: readonly boolean[] = [];
  readonly #inputs: InputReader;
  readonly #last: LastRanges = {};
  /** Bytes for batches that wait or are under way, by the numbers of the batches. */
  readonly #given = new Map<number, Received>();
  /** Number of the last batch that ended. */
  #ended = -1;

  constructor(core: Core, send: SendData) {
    this.#converter = new TileConverter(core);
    this.#giveBack = ({ buffer }) => send({ memory: buffer } satisfies TakenBytes, [buffer]);
    const readInto = (file: number, begin: number, target: Uint8Array, from: number, to: number) => {
      const read = this.#sources[file];
      if (read === undefined) throw new Error(`file ${file} cannot be read here`);
      return read(begin, target, from, to);
    };
    this.#inputs = new InputReader(readInto, (file) => this.#isNear[file] === true);
  }

  async carryOut(job: TileJob): Promise<OpenedFiles | BatchResult | BatchFailure> {
    if (job.kind === 'open') return this.#open(job);
    try {
      return await this.#convert(job);
    } catch (error) {
      const { task, writing, cause } = error instanceof TaskError ? error : { task: 0, writing: false, cause: error };
      return { failed: { task, writing, error: errorData(cause) } };
    } finally {
      this.#given.get(job.number)?.end();
      this.#given.delete(job.number);
      this.#ended = job.number;
    }
  }

  movable(answer: OpenedFiles | BatchResult | BatchFailure): ArrayBuffer[] {
    return 'output' in answer ? [answer.output] : [];
  }

  receive({ number, bytes }: BatchBytes): void {
    if (number > this.#ended) this.#receivedFor(number).push(bytes);
    else if (bytes !== undefined) this.#giveBack(bytes);
  }

  #receivedFor(number: number): Received {
    let received = this.#given.get(number);
    if (received === undefined) {
      received = new Received((file) => this.#sources[file] === undefined, this.#giveBack);
      this.#given.set(number, received);
    }
    return received;
  }

  #open({ sources, sinks }: Extract<TileJob, { kind: 'open' }>): OpenedFiles {
    this.#sources = sources.map((reference) => reference && readerOf(reference));
    this.#isNear = sources.map((reference) => reference !== undefined && reference.kind !== 'blob');
    const opened = sinks.map((reference) => reference && writerOf(reference));
    this.#sinks = opened.filter((write) => write !== undefined);
    return { reads: this.#sources.map((read) => read !== undefined), writes: this.#sinks.length === opened.length };
  }

  async #convert({ number, batch: packed, spare }: Extract<TileJob, { kind: 'batch' }>): Promise<BatchResult> {
    const batch = unpackBatch(packed, this.#last);
    await this.#inputs.begin(batch.tasks.flatMap(inputPartsOf), this.#receivedFor(number));
    const { writes } = batch;
    const output = writes === undefined ? memoryOutput(batch, spare) : fileOutput(batch, writes, this.#sinks);
    const converted = await this.#converter.run(batch, this.#inputs, output.put);
    return { ...converted, output: output.end(), written: writes !== undefined };
  }
}
