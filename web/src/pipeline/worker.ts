/**
 * The worker: takes batches of tiles, reads their bytes, converts them, hands over the results. Runs as a worker of the browser and of
 * Node. Its file holds all of its code, so that it can be served from anywhere. The other end is workers.ts.
 */
import { ScalepointError } from '../core/errors.js';
import { instantiateCore } from '../core/load.js';
import { nodeModule } from '../core/node.js';
import { type ReadBytes, readerOf, type WriteBytes, writerOf } from '../files/reference.js';
import { TileConverter } from './convert.js';
import { InputReader } from './inputs.js';
import { unpackBatch } from './messages.js';
import { fileOutlet, memoryOutlet } from './outputs.js';
import { type Input, inputsOf, TaskError } from './tasks.js';
import type { SystemError, WorkerReply, WorkerRequest } from './workers.js';

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

async function carryOut(request: WorkerRequest, port: Port): Promise<void> {
  if (request.kind === 'start') {
    sources = request.sources.map((reference) => reference && readerOf(reference));
    isNear = request.sources.map((reference) => reference !== undefined && reference.kind !== 'blob');
    const opened = request.sinks.map((reference) => reference && writerOf(reference));
    sinks = opened.filter((write) => write !== undefined);
    converter = new TileConverter(await instantiateCore(request.module));
    const locked = request.lock !== undefined && (await holdLock(request.lock));
    const reads = sources.map((read) => read !== undefined);
    port.postMessage({ kind: 'ready', locked, reads, writes: sinks.length === opened.length }, []);
    return;
  }
  const { id, given, spare } = request;
  if (converter === undefined) throw new Error('a batch came before the start');
  const batch = unpackBatch(request.batch);
  const wanted: Input[] = [];
  const others: Input[] = [];
  for (const task of batch.tasks) {
    for (const input of inputsOf(task)) (sources[input.file] === undefined ? others : wanted).push(input);
  }
  await inputs.begin(wanted, givenInputs(others, given));
  const { writes } = batch;
  const outlet = writes === undefined ? memoryOutlet(batch, spare) : fileOutlet(batch, writes, sinks);
  const findings = await converter.run(batch, inputs, outlet.put);
  const result = { ...findings, output: outlet.end(), written: writes !== undefined };
  const { buffer } = given;
  if (buffer.byteLength === 0) port.postMessage({ kind: 'result', id, result }, [result.output]);
  else port.postMessage({ kind: 'result', id, result, given: buffer }, [result.output, buffer]);
}

/** The given bytes by input: they follow each other. */
function givenInputs(inputs: readonly Input[], given: Uint8Array): Map<Input, Uint8Array> {
  let at = 0;
  const found = new Map<Input, Uint8Array>();
  for (const input of inputs) {
    const size = input.bytes * input.count;
    found.set(input, given.subarray(at, at + size));
    at += size;
  }
  return found;
}

// One after the other: all batches use the same memory.
let last: Promise<void> = Promise.resolve();

function receive(request: WorkerRequest, port: Port): void {
  last = last.then(async () => {
    try {
      await carryOut(request, port);
    } catch (error) {
      port.postMessage(failureOf(request, error), []);
    }
  });
}

/** What is told of an error of the system. It would lose its code on the way. */
function systemErrorOf(cause: unknown): SystemError | undefined {
  const { message, code, errno, syscall } = (cause ?? {}) as Partial<SystemError>;
  return cause instanceof Error && typeof code === 'string'
    ? { message: `${message}`, code, errno, syscall }
    : undefined;
}

function failureOf(request: WorkerRequest, error: unknown): WorkerReply {
  const cause = error instanceof TaskError ? error.cause : error;
  return {
    kind: 'failure',
    id: request.kind === 'batch' ? request.id : undefined,
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
