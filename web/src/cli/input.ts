/** FILE of a command line: a file, the model in a folder, or standard input. */
import { fstat, read } from 'node:fs';
import { type FileHandle, mkdtemp, open, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type FileInput, type NodeFileHandle, ScalepointError } from '../model.js';
import { formats, problemOf } from '../tooling.js';
import { systemText, UsageError } from './process.js';
import { listed } from './text.js';

/** A file to read. */
export interface Input {
  /** Name in texts and reports: the path, or `standard input`. */
  readonly name: string;
  readonly file: FileInput;
  /** False for standard input, which has no folder. */
  readonly isPath: boolean;
  close(): Promise<void>;
}

// ------------------------------------------------------------------------------------------------------------------------ folders

const mostNames = 5;

/** Rank of a file as the model of a folder, the lowest first: an index, then the names that loaders look for. */
function rank(name: string, extension: string): number {
  if (extension.endsWith('.json')) return 0;
  return name.toLowerCase() === `model${extension}` ? 1 : 2;
}

/** True if a file belongs to a split model, after its first file. */
function isFurther(name: string, extension: string): boolean {
  const takesSplits = formats().some((format) => format.takesSplits && format.extensions.includes(extension));
  const [, number] = /-(\d{5,})-of-\d{5,}\.\w+$/.exec(name) ?? [];
  return takesSplits && number !== undefined && Number(number) !== 1;
}

/** The model in a folder. @throws ScalepointError `IO` or `NOT_FOUND` */
async function modelIn(folder: string): Promise<string> {
  const label = JSON.stringify(folder);
  let names: string[];
  try {
    names = (await readdir(folder)).sort();
  } catch (cause) {
    throw new ScalepointError('IO', `cannot read ${label}: ${systemText(cause)}`, { cause });
  }
  const ends = formats()
    .flatMap(({ extensions }) => extensions)
    .sort((a, b) => b.length - a.length);
  const models = names.flatMap((name) => {
    const extension = ends.find((end) => name.toLowerCase().endsWith(end));
    return extension === undefined || name.startsWith('.') || isFurther(name, extension)
      ? []
      : [{ name, rank: rank(name, extension) }];
  });
  const best = Math.min(...models.map((model) => model.rank));
  const [first, second] = models.filter((model) => model.rank === best);
  if (first === undefined) {
    throw new ScalepointError('NOT_FOUND', `the folder ${label} holds no ${ends.join(', ')} file`);
  }
  if (second !== undefined) {
    const all = models.filter((model) => model.rank === best).map(({ name }) => name);
    throw new ScalepointError(
      'NOT_FOUND',
      `the folder ${label} holds several models; name one: ${listed(all, mostNames)}`,
    );
  }
  return join(folder, first.name);
}

// ----------------------------------------------------------------------------------------------------------------- standard input

const [statOf, readFrom] = [promisify(fstat), promisify(read)];

/** A file that standard input was redirected from. */
const redirected: NodeFileHandle = {
  fd: 0,
  read: (buffer, offset, length, position) => readFrom(0, buffer, offset, length, position),
  stat: () => statOf(0),
};

/** Copies a pipe into a file without a name, as models are read from many places at once. */
async function copied(signal: AbortSignal | undefined): Promise<FileHandle> {
  const folder = await mkdtemp(join(tmpdir(), 'scalepoint-'));
  const handle = await open(join(folder, 'stdin'), 'wx+').finally(() => rm(folder, { recursive: true, force: true }));
  const stop = () => process.stdin.destroy(signal?.reason);
  signal?.addEventListener('abort', stop);
  try {
    for await (const chunk of process.stdin) await handle.writeFile(chunk as Uint8Array);
    signal?.throwIfAborted();
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

async function standardInput(signal: AbortSignal | undefined): Promise<Input> {
  if (process.stdin.isTTY)
    throw new UsageError('standard input is a terminal; name a file, or give one by < or a pipe');
  const input = { name: 'standard input', isPath: false };
  try {
    if ((await statOf(0)).isFile()) return { ...input, file: redirected, close: async () => {} };
    const handle = await copied(signal);
    return { ...input, file: handle, close: () => handle.close() };
  } catch (cause) {
    if (signal?.aborted) throw signal.reason;
    throw new ScalepointError('IO', `cannot read standard input: ${systemText(cause)}`, { cause });
  }
}

/** Resolves a FILE of the command line. @throws ScalepointError or UsageError */
async function inputOf(text: string, signal?: AbortSignal): Promise<Input> {
  if (text === '-') return standardInput(signal);
  // Other problems are reported when the file is opened.
  const isFolder = await stat(text).then(
    (status) => status.isDirectory(),
    () => false,
  );
  const path = isFolder ? await modelIn(text) : text;
  return { name: path, file: path, isPath: true, close: async () => {} };
}

/** Calls `use` with a FILE of the command line, then closes it. */
export async function withInput<T>(text: string, use: (input: Input) => Promise<T>, signal?: AbortSignal): Promise<T> {
  const input = await inputOf(text, signal);
  try {
    return await use(input);
  } catch (error) {
    // The files that an index names are looked for beside it.
    const isIndex = !input.isPath && problemOf(error)?.option === 'file';
    throw isIndex ? new UsageError(`${input.name} cannot be an index; name its file, or the folder`) : error;
  } finally {
    await input.close();
  }
}
