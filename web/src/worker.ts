/**
 * The worker: takes batches of tasks, reads their inputs, converts them, and hands over the results. Runs as a worker of the browser and of
 * Node. Its file holds all of its code, so that it can be served from anywhere. The other end is worker-pool.ts.
 */

import { fileOutput, memoryOutput } from './convert/batch-output.js';
import { type GivenBytes, InputReader } from './convert/input-reader.js';
import { type LastRanges, unpackBatch } from './convert/packed-batch.js';
import { inputPartsOf } from './convert/task.js';
import { TileConverter } from './convert/tile-converter.js';
import { instantiateCore } from './core/load.js';
import { nodeModule } from './core/node.js';
import { TransformerHand } from './evaluate/hand.js';
import { movable } from './evaluate/jobs.js';
import { type ReadBytes, readerOf, type WriteBytes, writerOf } from './formats/files/reference.js';
import { isScanJob, movableOf } from './search/jobs.js';
import { Share } from './search/share.js';
import { failureOf, type WorkerReply, type WorkerRequest } from './workers/messages.js';

/** The other end of the messages. */
interface Port {
  postMessage(message: WorkerReply, transfer: Transferable[]): void;
}

let converter: TileConverter | undefined;
let hand: TransformerHand | undefined;
let share: Share | undefined;
/** Files that this worker opened. */
let sources: readonly (ReadBytes | undefined)[] = [];
let sinks: readonly WriteBytes[] = [];

/** Reads bytes of a file into memory. */
function readInto(file: number, begin: number, target: Uint8Array, from: number, to: number): void | Promise<void> {
  const read = sources[file];
  if (read === undefined) throw new Error(`file ${file} cannot be read here`);
  return read(begin, target, from, to);
}

/** For each source, whether it is a local file. */
let isNear: readonly boolean[] = [];

const inputs = new InputReader(readInto, (file) => isNear[file] === true);

/** Takes a lock and holds it until this worker ends. Returns false if the lock was refused. */
function holdLock(name: string): Promise<boolean> {
  return new Promise((resolve) => {
    const held = () => {
      resolve(true);
      return new Promise(() => {});
    };
    navigator.locks.request(name, held).catch(() => resolve(false));
  });
}

/** Bytes of a batch as they arrive. */
class Received implements GivenBytes {
  readonly #port: Port;
  /** Consumed from the front. Undefined ends the list after a failed read. */
  readonly #chunks: (Uint8Array<ArrayBuffer> | undefined)[] = [];
  /** Continues after a chunk has arrived. */
  #goOn = () => {};

  constructor(port: Port) {
    this.#port = port;
  }

  areOf(file: number): boolean {
    return sources[file] === undefined;
  }

  push(chunk: Uint8Array<ArrayBuffer> | undefined): void {
    this.#chunks.push(chunk);
    this.#goOn();
  }

  take(target: Uint8Array): void | Promise<void> {
    const done = this.#takeSome(target);
    return done < target.length ? this.#takeRest(target.subarray(done)) : undefined;
  }

  /** Gives back the chunks that are left. */
  end(): void {
    for (const chunk of this.#chunks) if (chunk !== undefined) giveBack(chunk, this.#port);
  }

  async #takeRest(target: Uint8Array): Promise<void> {
    for (let done = 0; done < target.length; done += this.#takeSome(target.subarray(done))) {
      if (this.#chunks.length > 0) continue;
      await new Promise<void>((resolve) => {
        this.#goOn = resolve;
      });
    }
  }

  /** Takes the bytes that are here. Returns their count. */
  #takeSome(target: Uint8Array): number {
    let done = 0;
    while (done < target.length && this.#chunks.length > 0) {
      const [chunk] = this.#chunks;
      if (chunk === undefined) throw new Error('the bytes of a batch could not be read');
      const bytes = chunk.subarray(0, target.length - done);
      target.set(bytes, done);
      done += bytes.length;
      if (bytes.length < chunk.length) this.#chunks[0] = chunk.subarray(bytes.length);
      else giveBack(this.#chunks.shift() as Uint8Array<ArrayBuffer>, this.#port);
    }
    return done;
  }
}

function giveBack({ buffer }: Uint8Array<ArrayBuffer>, port: Port): void {
  port.postMessage({ kind: 'taken', memory: buffer }, [buffer]);
}

/** Bytes for unfinished batches, by the ids of the batches. */
const given = new Map<number, Received>();

const lastRanges: LastRanges = {};

async function carryOut(request: Exclude<WorkerRequest, { kind: 'bytes' }>, port: Port): Promise<void> {
  if (request.kind === 'start') {
    sources = request.sources.map((reference) => reference && readerOf(reference));
    isNear = request.sources.map((reference) => reference !== undefined && reference.kind !== 'blob');
    const opened = request.sinks.map((reference) => reference && writerOf(reference));
    sinks = opened.filter((write) => write !== undefined);
    const core = await instantiateCore('core', request.module);
    converter = new TileConverter(core);
    hand = new TransformerHand(core);
    share = new Share(core);
    const locked = request.lock !== undefined && (await holdLock(request.lock));
    const reads = sources.map((read) => read !== undefined);
    port.postMessage({ kind: 'ready', locked, reads, writes: sinks.length === opened.length }, []);
    return;
  }
  if (converter === undefined || hand === undefined || share === undefined)
    throw new Error('a batch came before the start');
  if (request.kind === 'job') {
    const { id, job } = request;
    if (isScanJob(job)) {
      const answer = share.carryOut(job);
      port.postMessage({ kind: 'answer', id, answer }, movableOf(answer));
      return;
    }
    const answer = hand.carryOut(job);
    port.postMessage({ kind: 'answer', id, answer }, movable(answer));
    return;
  }
  await convertBatch(converter, request, port);
}

async function convertBatch(
  tiles: TileConverter,
  request: Extract<WorkerRequest, { kind: 'batch' }>,
  port: Port,
): Promise<void> {
  const { id, spare } = request;
  const batch = unpackBatch(request.batch, lastRanges);
  await inputs.begin(batch.tasks.flatMap(inputPartsOf), given.get(id));
  const { writes } = batch;
  const output = writes === undefined ? memoryOutput(batch, spare) : fileOutput(batch, writes, sinks);
  const converted = await tiles.run(batch, inputs, output.put);
  const result = { ...converted, output: output.end(), written: writes !== undefined };
  port.postMessage({ kind: 'result', id, result }, [result.output]);
}

// Batches run one after the other, because they share the memory of the converter.
let last: Promise<void> = Promise.resolve();

function receive(request: WorkerRequest, port: Port): void {
  if (request.kind === 'bytes') {
    const batch = given.get(request.id);
    if (batch !== undefined) batch.push(request.bytes);
    else if (request.bytes !== undefined) giveBack(request.bytes, port);
    return;
  }
  const id = request.kind === 'start' ? undefined : request.id;
  if (request.kind === 'batch') given.set(request.id, new Received(port));
  last = last.then(async () => {
    try {
      await carryOut(request, port);
    } catch (error) {
      port.postMessage(failureOf(id, error), []);
    }
    given.get(id ?? -1)?.end();
    given.delete(id ?? -1);
  });
}

const parent = nodeModule('node:worker_threads')?.parentPort;
if (parent) parent.on('message', (request) => receive(request as WorkerRequest, parent));
else {
  const scope = globalThis as unknown as Port & EventTarget;
  scope.addEventListener('message', (event) => receive((event as MessageEvent<WorkerRequest>).data, scope));
}
