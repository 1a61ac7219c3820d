/**
 * The worker: takes batches of tiles, reads their bytes, converts them, hands over the results. Runs as a worker of the browser and of
 * Node. Its file holds all of its code, so that it can be served from anywhere. The other end is workers.ts.
 */
import { ScalepointError } from '../core/errors.js';
import { instantiateCore } from '../core/load.js';
import { nodeModule } from '../core/node.js';
import { checkCount, ioError, type SourceReference, shorterError } from '../files/bytes.js';
import { TileConverter } from './convert.js';
import { InputReader } from './inputs.js';
import { type Batch, type Input, inputsOf, TaskError } from './tasks.js';
import type { WorkerReply, WorkerRequest } from './workers.js';

/** The other end of the messages. */
interface Port {
  postMessage(message: WorkerReply, transfer: Transferable[]): void;
}

let converter: TileConverter | undefined;
let files: readonly (SourceReference | undefined)[] = [];

/** Memory for what a Blob gives, used again and again. */
let bucket = new ArrayBuffer(0);

/** Reads a Blob into memory. Returns how many bytes there were. */
async function readBlob(view: Uint8Array, blob: Blob): Promise<number> {
  let reader: ReadableStreamBYOBReader;
  try {
    reader = blob.stream().getReader({ mode: 'byob' });
  } catch {
    // Not every engine can read a Blob into existing memory.
    const bytes = new Uint8Array(await blob.arrayBuffer());
    view.set(bytes.subarray(0, view.length));
    return bytes.length;
  }
  if (bucket.byteLength === 0) bucket = new ArrayBuffer(2 ** 20);
  for (let done = 0; ; ) {
    const { value, done: ended } = await reader.read(new Uint8Array(bucket));
    if (value !== undefined) bucket = value.buffer;
    if (ended || value === undefined) return done;
    view.set(value, done);
    done += value.length;
  }
}

/** Reads bytes of a Blob into memory. */
async function readPart(blob: Blob, begin: number, target: Uint8Array): Promise<void> {
  let done = 0;
  try {
    done = await readBlob(target, blob.slice(begin, begin + target.length));
  } catch (cause) {
    throw ioError('cannot read the file', cause);
  }
  if (done !== target.length) throw shorterError('the file', begin + done);
}

/** Reads bytes of a file into memory. */
async function readInto(file: number, begin: number, target: Uint8Array): Promise<void> {
  const reference = files[file];
  if (reference?.kind === 'blob') return readPart(reference.blob, begin, target);
  const fs = nodeModule('node:fs');
  if (reference === undefined || fs === undefined) throw new Error(`file ${file} cannot be read here`);
  const { descriptor } = reference;
  for (let done = 0; done < target.length; ) {
    const [left, position] = [target.length - done, begin + done];
    let count: number;
    let size: number;
    try {
      count = fs.readSync(descriptor, target, done, left, position);
      size = count === 0 ? fs.fstatSync(descriptor).size : 0;
    } catch (cause) {
      throw ioError('cannot read the file', cause);
    }
    done += checkCount(count, left, 'cannot read the file');
    if (count > 0) continue;
    if (size <= position) throw shorterError('the file', position);
    throw new ScalepointError('IO', 'cannot read the file: no more bytes came', { byteOffset: position });
  }
}

const inputs = new InputReader(readInto);

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
    ({ files } = request);
    converter = new TileConverter(await instantiateCore(request.module));
    const locked = request.lock !== undefined && (await holdLock(request.lock));
    port.postMessage({ kind: 'ready', locked }, []);
    return;
  }
  const { id, batch, given, spare } = request;
  if (converter === undefined) throw new Error('a batch came before the start');
  await inputs.begin(batch, givenInputs(batch, given));
  const result = await converter.run(batch, inputs, spare);
  const { buffer } = given;
  if (buffer.byteLength === 0) port.postMessage({ kind: 'result', id, result }, [result.output]);
  else port.postMessage({ kind: 'result', id, result, given: buffer }, [result.output, buffer]);
}

/** Which of the given bytes belong to which input: those of the files that cannot be read here, in their order. */
function givenInputs({ tasks }: Batch, given: Uint8Array): Map<Input, Uint8Array> {
  let at = 0;
  const found = new Map<Input, Uint8Array>();
  for (const input of tasks.flatMap(inputsOf)) {
    if (files[input.file] !== undefined) continue;
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

function failureOf(request: WorkerRequest, error: unknown): WorkerReply {
  const cause = error instanceof TaskError ? error.cause : error;
  return {
    kind: 'failure',
    id: request.kind === 'batch' ? request.id : undefined,
    task: error instanceof TaskError ? error.task : 0,
    message: messageOf(cause),
    ...(cause instanceof ScalepointError ? { code: cause.code, byteOffset: cause.byteOffset } : {}),
  };
}

const parent = nodeModule('node:worker_threads')?.parentPort;
if (parent) parent.on('message', (request) => receive(request as WorkerRequest, parent));
else {
  const scope = globalThis as unknown as Port & EventTarget;
  scope.addEventListener('message', (event) => receive((event as MessageEvent<WorkerRequest>).data, scope));
}
