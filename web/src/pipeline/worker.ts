/**
 * The worker: takes tiles, reads their bytes, converts them, hands the results over. Runs as a worker of the browser and of Node;
 * it holds all of its code, so that its file can be served from anywhere. The other end is workers.ts.
 */
import { ScalepointError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import { instantiateCore } from '../core/wasm.js';
import type { SourceReference } from '../files/bytes.js';
import { TileConverter } from './convert.js';
import type { WorkerReply, WorkerRequest } from './workers.js';

/** The other end of the messages. */
interface Port {
  postMessage(message: WorkerReply, transfer: Transferable[]): void;
}

let converter: TileConverter | undefined;
let files: readonly (SourceReference | undefined)[] = [];

/** Takes what a Blob gives, again and again. */
let bucket = new ArrayBuffer(0);

/** Reads a Blob into memory. Returns how many bytes there were. */
async function readBlob(view: Uint8Array, blob: Blob): Promise<number> {
  let reader: ReadableStreamBYOBReader;
  try {
    reader = blob.stream().getReader({ mode: 'byob' });
  } catch {
    // Not every engine reads Blobs into memory that is there already.
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

/** Reads bytes of a file into memory. */
async function readInto(view: Uint8Array, file: number, begin: number): Promise<void> {
  const reference = files[file];
  if (reference?.kind === 'blob') {
    let done = 0;
    try {
      done = await readBlob(view, reference.blob.slice(begin, begin + view.length));
    } catch (cause) {
      throw new ScalepointError('IO', `cannot read the file: ${cause instanceof Error ? cause.message : cause}`);
    }
    if (done !== view.length) throw new ScalepointError('CHANGED', 'the file became shorter while it was read');
    return;
  }
  const fs = nodeModule('node:fs');
  if (reference === undefined || fs === undefined) throw new Error(`file ${file} cannot be read here`);
  for (let done = 0; done < view.length; ) {
    let count: number;
    try {
      count = fs.readSync(reference.descriptor, view, done, view.length - done, begin + done);
    } catch (cause) {
      throw new ScalepointError('IO', `cannot read the file: ${cause instanceof Error ? cause.message : cause}`);
    }
    if (count === 0) throw new ScalepointError('CHANGED', 'the file became shorter while it was read');
    done += count;
  }
}

/** Takes a lock that is held until this worker ends. Tells whether it could be had. */
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
  const { id, task, inputs, spare } = request;
  if (converter === undefined) throw new Error('a task came before the start');
  const views = converter.prepare(task);
  const ranges = task.pieces.flatMap((piece) => piece.inputs);
  for (const [i, view] of views.entries()) {
    const given = inputs[i];
    const range = ranges[i];
    if (given !== undefined) view.set(given);
    else if (range !== undefined) {
      for (let k = 0; k < range.count; k++) {
        const part = view.subarray(k * range.bytes, (k + 1) * range.bytes);
        await readInto(part, range.file, range.begin + k * range.stride);
      }
    }
  }
  const result = converter.run(task, spare);
  port.postMessage({ kind: 'result', id, result }, Object.values(result.parts));
}

// One after the other: a task that waits for its file must not find its memory used by the next.
let last: Promise<void> = Promise.resolve();

function receive(request: WorkerRequest, port: Port): void {
  last = last.then(async () => {
    try {
      await carryOut(request, port);
    } catch (error) {
      const id = request.kind === 'task' ? request.id : undefined;
      const message = error instanceof Error ? error.message : String(error);
      port.postMessage(
        { kind: 'failure', id, message, ...(error instanceof ScalepointError ? { code: error.code } : {}) },
        [],
      );
    }
  });
}

const parent = nodeModule('node:worker_threads')?.parentPort;
if (parent) parent.on('message', (request) => receive(request as WorkerRequest, parent));
else {
  const scope = globalThis as unknown as Port & EventTarget;
  scope.addEventListener('message', (event) => receive((event as MessageEvent<WorkerRequest>).data, scope));
}
