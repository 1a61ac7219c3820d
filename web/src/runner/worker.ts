/**
 * The worker: takes batches of tiles, reads their bytes, converts them, hands over the results. Runs as a worker of the browser and of
 * Node. Its file holds all of its code, so that it can be served from anywhere. The other end is workers.ts.
 */
import { ScalepointError } from '../core/errors.js';
import { instantiateCore } from '../core/load.js';
import { nodeModule } from '../core/node.js';
import { type ReadBytes, readerOf, type WriteBytes, writerOf } from '../files/reference.js';
import { TileConverter } from './convert.js';
import { type LastRanges, unpackBatch } from './messages.js';
import { inputsOf, TaskError } from './task.js';
import { type GivenBytes, InputReader } from './tile-input.js';
import { fileOutlet, memoryOutlet } from './tile-output.js';
import type { SystemError, WorkerReply, WorkerRequest } from './worker-pool.js';

/** The other end of the messages. */
interface Port {
  postMessage(message: WorkerReply, transfer: Transferable[]): void;
}

let converter: TileConverter | undefined;
/** Files that this worker opened. */
let sources: readonly (ReadBytes | undefined)[] = [];
let sinks: readonly WriteBytes[] = [];

/** Reads bytes of a file into memory. */
function readInto(file: number, begin: number, target: Uint8Array, from: number, to: number): void | Promise<void> {
  const read = sources[file];
  if (read === undefined) throw new Error(`file ${file} cannot be read here`);
  return read(begin, target, from, to);
}

/** Which of them are files of the system. */
let isNear: readonly boolean[] = [];

const inputs = new InputReader(readInto, (file) => isNear[file] === true);

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** Takes a lock and holds it until this worker ends. Returns whether that worked. */
function holdLock(name: string): Promise<boolean> {
  return new Promise((resolve) => {
    const held = () => {
      resolve(true);
      return new Promise(() => {});
    };
    navigator.locks.request(name, held).catch(() => resolve(false));
  });
}

/** Bytes of a batch as they come. */
class Received implements GivenBytes {
  readonly #port: Port;
  /** The first one is taken from. Undefined: no more will come. */
  readonly #pieces: (Uint8Array<ArrayBuffer> | undefined)[] = [];
  /** Goes on once a piece has come. */
  #goOn = () => {};

  constructor(port: Port) {
    this.#port = port;
  }

  areOf(file: number): boolean {
    return sources[file] === undefined;
  }

  push(piece: Uint8Array<ArrayBuffer> | undefined): void {
    this.#pieces.push(piece);
    this.#goOn();
  }

  take(place: Uint8Array): void | Promise<void> {
    const done = this.#takeSome(place);
    return done < place.length ? this.#takeRest(place.subarray(done)) : undefined;
  }

  /** Gives back what is left. */
  end(): void {
    for (const piece of this.#pieces) if (piece !== undefined) giveBack(piece, this.#port);
  }

  async #takeRest(place: Uint8Array): Promise<void> {
    for (let done = 0; done < place.length; done += this.#takeSome(place.subarray(done))) {
      if (this.#pieces.length > 0) continue;
      await new Promise<void>((resolve) => {
        this.#goOn = resolve;
      });
    }
  }

  /** Takes what is here. Returns how many bytes that is. */
  #takeSome(place: Uint8Array): number {
    let done = 0;
    while (done < place.length && this.#pieces.length > 0) {
      const [piece] = this.#pieces;
      if (piece === undefined) throw new Error('the bytes of a batch could not be read');
      const bytes = piece.subarray(0, place.length - done);
      place.set(bytes, done);
      done += bytes.length;
      if (bytes.length < piece.length) this.#pieces[0] = piece.subarray(bytes.length);
      else giveBack(this.#pieces.shift() as Uint8Array<ArrayBuffer>, this.#port);
    }
    return done;
  }
}

function giveBack({ buffer }: Uint8Array<ArrayBuffer>, port: Port): void {
  port.postMessage({ kind: 'taken', memory: buffer }, [buffer]);
}

/** What batches that are not done are given, by their ids. */
const given = new Map<number, Received>();

/** What tiles of a tensor have in common. */
const lastRanges: LastRanges = {};

async function carryOut(request: Exclude<WorkerRequest, { kind: 'bytes' }>, port: Port): Promise<void> {
  if (request.kind === 'start') {
    sources = request.sources.map((reference) => reference && readerOf(reference));
    isNear = request.sources.map((reference) => reference !== undefined && reference.kind !== 'blob');
    const opened = request.sinks.map((reference) => reference && writerOf(reference));
    sinks = opened.filter((write) => write !== undefined);
    converter = new TileConverter(await instantiateCore('core', request.module));
    const locked = request.lock !== undefined && (await holdLock(request.lock));
    const reads = sources.map((read) => read !== undefined);
    port.postMessage({ kind: 'ready', locked, reads, writes: sinks.length === opened.length }, []);
    return;
  }
  const { id, spare } = request;
  if (converter === undefined) throw new Error('a batch came before the start');
  const batch = unpackBatch(request.batch, lastRanges);
  await inputs.begin(batch.tasks.flatMap(inputsOf), given.get(id));
  const { writes } = batch;
  const outlet = writes === undefined ? memoryOutlet(batch, spare) : fileOutlet(batch, writes, sinks);
  const findings = await converter.run(batch, inputs, outlet.put);
  const result = { ...findings, output: outlet.end(), written: writes !== undefined };
  port.postMessage({ kind: 'result', id, result }, [result.output]);
}

// One after the other: all batches use the same memory.
let last: Promise<void> = Promise.resolve();

function receive(request: WorkerRequest, port: Port): void {
  if (request.kind === 'bytes') {
    const batch = given.get(request.id);
    if (batch !== undefined) batch.push(request.bytes);
    else if (request.bytes !== undefined) giveBack(request.bytes, port);
    return;
  }
  const id = request.kind === 'batch' ? request.id : undefined;
  if (id !== undefined) given.set(id, new Received(port));
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

/** What is told of an error of the system. It would lose its code on the way. */
function systemErrorOf(cause: unknown): SystemError | undefined {
  const { message, code, errno, syscall } = (cause ?? {}) as Partial<SystemError>;
  return cause instanceof Error && typeof code === 'string'
    ? { message: `${message}`, code, errno, syscall }
    : undefined;
}

function failureOf(id: number | undefined, error: unknown): WorkerReply {
  const cause = error instanceof TaskError ? error.cause : error;
  return {
    kind: 'failure',
    id,
    task: error instanceof TaskError ? error.task : 0,
    writing: error instanceof TaskError && error.writing,
    message: messageOf(cause),
    ...(cause instanceof ScalepointError
      ? { code: cause.code, byteOffset: cause.byteOffset, cause: systemErrorOf(cause.cause) }
      : {}),
  };
}

const parent = nodeModule('node:worker_threads')?.parentPort;
if (parent) parent.on('message', (request) => receive(request as WorkerRequest, parent));
else {
  const scope = globalThis as unknown as Port & EventTarget;
  scope.addEventListener('message', (event) => receive((event as MessageEvent<WorkerRequest>).data, scope));
}
