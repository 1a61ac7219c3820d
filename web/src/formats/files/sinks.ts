/**
 * Opens outputs: memory, a path or an open file (Node), a file handle or a folder of the browser, a stream. A file appears under its name
 * whole or not at all.
 */

import { rangeError, ScalepointError, typeError } from '../../core/errors.js';
import type { NodeFileHandle, NodeWritableHandle } from '../../core/node.js';
import { ofType } from '../../core/option-problem.js';
import { aMoment, type Waiting } from '../../core/waiting.js';
import { allocate, fileIdOf, type InputFile, ioError, quoted } from './bytes.js';
import { isHandle } from './open.js';
import { type OutputNames, pathSink, writeAll } from './path-sink.js';
import type { ByteSink } from './sink.js';

export type { ByteSink } from './sink.js';

/** A sink whose bytes stay in memory. */
export interface MemorySink extends ByteSink {
  /** The result. Call after `finish`. */
  blob(): Blob;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
}

/** The sink of a result that stayed in memory. @throws TypeError if it went to an output */
export function inMemory<T>(kept: T | undefined): T {
  if (kept === undefined) throw new TypeError('the result was written to `output`; read it there');
  return kept;
}

/**
 * An output for a result: a path (Node), an open file (Node), a file handle of the browser (OPFS or a save dialog), a folder of the browser,
 * or a stream. A path and a browser's file handle show nothing until the result is whole. After an error, an open file is empty and a
 * stream aborted. Results in several files need a path or a folder, or stay in memory.
 */
export type ModelOutput =
  | string
  | URL
  | NodeWritableHandle
  | FileSystemFileHandle
  | FileSystemDirectoryHandle
  | WritableStream<Uint8Array<ArrayBuffer>>;

/** Results up to this size are put together in one array. Larger ones become a Blob of chunks, which the engine may keep on disk. */
const arrayLimit = 64 * 2 ** 20;
/** Size of these chunks in bytes. */
const blobChunk = 8 * 2 ** 20;

/** A sink in memory. @throws ScalepointError `OUT_OF_MEMORY` */
export function memorySink(size: number): MemorySink {
  if (size > arrayLimit) return blobSink();
  const bytes = allocate(size, ' of result: give an output');
  return {
    positional: true,
    retains: false,
    async write(position, chunk) {
      bytes.set(chunk, position);
    },
    async finish() {},
    async discard() {},
    blob: () => new Blob([bytes]),
    bytes: async () => bytes,
  };
}

function blobSink(): MemorySink {
  const blobs: { readonly position: number; readonly blob: Blob }[] = [];
  /** Written bytes that follow each other, by the position where they end. Several parts of a file grow at the same time. */
  const pending = new Map<number, { readonly position: number; readonly chunks: Uint8Array<ArrayBuffer>[] }>();
  let waiting = 0;
  let finished = false;
  // Join neighboring chunks before they become blobs.
  const flush = () => {
    for (const { position, chunks } of pending.values()) blobs.push({ position, blob: new Blob(chunks) });
    pending.clear();
    waiting = 0;
  };
  const whole = () => new Blob(blobs.map(({ blob }) => blob));
  return {
    positional: true,
    retains: false,
    async write(position, chunk) {
      const before = pending.get(position) ?? { position, chunks: [] };
      pending.delete(position);
      before.chunks.push(chunk.slice());
      pending.set(position + chunk.length, before);
      waiting += chunk.length;
      if (waiting >= blobChunk) flush();
    },
    async finish() {
      flush();
      blobs.sort((a, b) => a.position - b.position);
      finished = true;
    },
    async discard() {
      if (finished) return;
      blobs.length = 0;
      pending.clear();
    },
    blob: whole,
    async bytes() {
      const blob = whole();
      try {
        return new Uint8Array(await blob.arrayBuffer());
      } catch (cause) {
        throw new ScalepointError('OUT_OF_MEMORY', `there is no memory for ${blob.size} bytes: take blob()`, { cause });
      }
    },
  };
}

/** A sink in a file that the caller opened (Node) and closes. @throws RangeError if it is one of the inputs */
async function handleSink(handle: NodeWritableHandle, inputs: readonly InputFile[]): Promise<ByteSink> {
  const { stat } = handle as Partial<Pick<NodeFileHandle, 'stat'>>;
  const status = typeof stat === 'function' ? await stat.call(handle).catch(() => undefined) : undefined;
  const fileId = status && fileIdOf(status);
  const same = inputs.find((input) => input.handle === handle || (fileId !== undefined && input.fileId === fileId));
  if (same !== undefined) throw rangeError('output', { kind: 'apart', from: same.option }, handle);
  // Without this, the end of a longer file would remain. Devices cannot be truncated. Other failures show when bytes are written.
  await handle.truncate(0).catch(() => {});
  let finished = false;
  return {
    positional: true,
    retains: false,
    write: (position, bytes) => writeAll(handle, position, bytes, 'the open file'),
    async finish() {
      finished = true;
    },
    async discard() {
      if (!finished) await handle.truncate(0).catch(() => {});
    },
  };
}

/** A sink in a stream. Finishing closes it, which makes files of the browser visible. */
function streamSink(
  stream: WritableStream<Uint8Array<ArrayBuffer>> | FileSystemWritableFileStream,
  { soon }: Waiting,
): ByteSink {
  if (stream.locked) throw typeError('output', { kind: 'state', state: 'unlocked' }, stream);
  // A stream of `createWritable` of a browser's file handle also takes positions.
  const positional = 'seek' in stream && typeof stream.seek === 'function';
  const writer = (stream as WritableStream<unknown>).getWriter();
  // A broken stream also rejects this promise. `write` reports the error; an unhandled rejection would end the process.
  writer.closed.catch(() => {});
  let finished = false;
  let emptied = !positional;
  const guarded = async (action: () => Promise<void>) => {
    try {
      await action();
    } catch (cause) {
      throw cause instanceof ScalepointError ? cause : ioError('cannot write to the output', cause);
    }
  };
  return {
    positional,
    retains: !positional,
    write: (position, bytes) =>
      guarded(async () => {
        await writer.ready;
        // Without this, the end of a longer file would remain.
        if (!emptied) await writer.write({ type: 'truncate', size: 0 });
        emptied = true;
        await writer.write(positional ? { type: 'write', position, data: bytes } : bytes);
      }),
    finish: () =>
      soon(
        guarded(async () => {
          await writer.close();
          finished = true;
        }),
      ),
    async discard(reason) {
      if (finished) return;
      // Aborting waits for pending writes. A receiver that hangs must not delay the error.
      await aMoment(writer.abort(reason));
      writer.releaseLock();
    },
  };
}

/**
 * A sink in a file of the browser.
 * @param overwrite false: a file with content stays. undefined: it is replaced, unless somebody else writes it in the meantime
 * @throws RangeError if it is one of the inputs; ScalepointError `EXISTS`, `IO`
 */
async function browserSink(
  file: FileSystemFileHandle,
  overwrite: boolean | undefined,
  waiting: Waiting,
  inputs: readonly InputFile[],
): Promise<ByteSink> {
  for (const { handle, option } of inputs) {
    if (isHandle(handle) && (handle === file || (await file.isSameEntry?.(handle)))) {
      throw rangeError('output', { kind: 'apart', from: option }, file);
    }
  }
  // Without the mode, a second writer would see an empty file while the first one writes. Engines that do not know the mode let both write.
  const options = overwrite ? undefined : { keepExistingData: false, mode: 'exclusive' };
  const open = async () => {
    const before = await file.getFile();
    const stream = await file.createWritable(options);
    const { size, lastModified } = overwrite ? before : await file.getFile();
    const isChanged = size !== before.size || lastModified !== before.lastModified;
    if (!isChanged && !(overwrite === false && size > 0)) return stream;
    await aMoment(stream.abort());
    throw new ScalepointError('EXISTS', 'the output exists already');
  };
  try {
    return streamSink(await waiting.soon(open(), (late) => void aMoment(late.abort())), waiting);
  } catch (cause) {
    if (cause instanceof ScalepointError || waiting.signal?.aborted) throw cause;
    throw ioError('cannot write the file', cause);
  }
}

/** True if an output is a folder of the browser. */
export function isFolder(output: unknown): output is FileSystemDirectoryHandle {
  return typeof (output as { getFileHandle?: unknown } | null)?.getFileHandle === 'function';
}

/** A sink in a file of a browser's folder. After an error, a new file is removed again. */
async function folderSink(
  within: FileSystemDirectoryHandle,
  path: string,
  overwrite: boolean,
  waiting: Waiting,
  inputs: readonly InputFile[],
): Promise<ByteSink> {
  const [name = '', ...outer] = path.split('/').toReversed();
  let folder = within;
  for (const one of outer.toReversed()) folder = await waiting.soon(folder.getDirectoryHandle(one, { create: true }));
  const isNew = await waiting.soon(
    folder.getFileHandle(name).then(
      () => false,
      () => true,
    ),
  );
  const remove = async () => {
    if (isNew) await aMoment(folder.removeEntry(name));
  };
  try {
    const file = await waiting.soon(folder.getFileHandle(name, { create: true }));
    const sink = await browserSink(file, overwrite, waiting, inputs);
    let finished = false;
    return {
      ...sink,
      async finish() {
        await sink.finish();
        finished = true;
      },
      async discard(reason) {
        await sink.discard(reason);
        if (!finished) await remove();
      },
      withdraw: remove,
    };
  } catch (cause) {
    await remove();
    if (cause instanceof ScalepointError || waiting.signal?.aborted) throw cause;
    throw ioError(`cannot write ${quoted(name)}`, cause);
  }
}

/** Options of `openSink`. */
export interface SinkOptions extends OutputNames {
  /** undefined: only handles of files, which the user picked, may replace a file. */
  readonly overwrite: boolean | undefined;
  readonly waiting: Waiting;
  /** Name of the file in a folder. */
  readonly name?: string;
}

/**
 * Opens an output.
 * @throws TypeError if it cannot be written, RangeError if it is an input; ScalepointError `EXISTS` or `IO`; the signal's
 *   reason
 */
export async function openSink(
  output: ModelOutput,
  { overwrite, waiting, option, inputs, name = 'model' }: SinkOptions,
): Promise<ByteSink> {
  if (typeof output === 'string' || output instanceof URL) {
    return pathSink(output, overwrite ?? false, waiting, { ...(option && { option }), inputs });
  }
  if (typeof output === 'object' && output !== null) {
    if (typeof WritableStream !== 'undefined' && output instanceof WritableStream) return streamSink(output, waiting);
    if (isFolder(output)) return folderSink(output, name, overwrite ?? false, waiting, inputs);
    if ('createWritable' in output && typeof output.createWritable === 'function') {
      return browserSink(output, overwrite, waiting, inputs);
    }
    if ('write' in output && typeof output.write === 'function' && typeof output.truncate === 'function') {
      return waiting.soon(handleSink(output, inputs));
    }
  }
  throw typeError('output', ofType('path', 'WritableStream', 'file handle'), output);
}
