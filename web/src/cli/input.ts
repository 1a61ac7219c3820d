/** FILE of a command line: a file, the model in a folder or on the hub, a URL, or standard input. */
import { fstat, read } from 'node:fs';
import { type FileHandle, mkdtemp, open, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type FileInput, ScalepointError } from '../model.js';
import {
  type HubFile,
  isModelStart,
  modelInFolder,
  modelStartBytes,
  type NodeFileHandle,
  namedOnHub,
  onnxFolder,
  problemOf,
  urlOfText,
  usualNames,
} from '../tooling.js';
import { UsageError } from './process.js';
import { systemText } from './system-text.js';

/** A file to read. */
export interface Input {
  /** Name in texts and reports: the path, the URL, the name on the hub, or `standard input`. */
  readonly name: string;
  readonly file: FileInput;
  /** True for a path. Others have no folder in the file system. */
  readonly isPath: boolean;
  /** Name of the file, for the name of a result; undefined for standard input. */
  readonly fileName: string | undefined;
  /** Name of the folder that was given in its place. */
  readonly folderName?: string | undefined;
  /** A remark on the choice of the file in a folder. */
  readonly remark?: string;
  close(): Promise<void>;
}

// ----------------------------------------------------------------------------------------------------------------- standard input

const [statOf, readFrom] = [promisify(fstat), promisify(read)];

/** A file that standard input was redirected from. */
const redirected: NodeFileHandle = {
  fd: 0,
  read: (buffer, offset, length, position) => readFrom(0, buffer, offset, length, position),
  stat: () => statOf(0),
};

/** Copies a pipe into a file without a name, as models are read from many places at once. Stops after the first bytes if they are not those of a model. */
async function copied(signal: AbortSignal | undefined): Promise<FileHandle> {
  const folder = await mkdtemp(join(tmpdir(), 'scalepoint-'));
  const handle = await open(join(folder, 'stdin'), 'wx+').finally(() => rm(folder, { recursive: true, force: true }));
  const stop = () => process.stdin.destroy(signal?.reason);
  signal?.addEventListener('abort', stop);
  try {
    let begin: Uint8Array = new Uint8Array(0);
    for await (const chunk of process.stdin) {
      await handle.writeFile(chunk as Uint8Array);
      if (begin.length >= modelStartBytes) continue;
      begin = Buffer.concat([begin, chunk as Uint8Array]);
      // A pipe may have no end.
      if (begin.length >= modelStartBytes && !isModelStart(begin)) break;
    }
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
  const input = { name: 'standard input', isPath: false, fileName: undefined };
  try {
    if ((await statOf(0)).isFile()) return { ...input, file: redirected, close: async () => {} };
    const handle = await copied(signal);
    return { ...input, file: handle, close: () => handle.close() };
  } catch (cause) {
    if (signal?.aborted) throw signal.reason;
    throw new ScalepointError('IO', `cannot read standard input: ${systemText(cause)}`, { cause });
  }
}

/** The file that a text names on the hub; undefined for other texts. @throws UsageError for a wrong name, ScalepointError */
export async function hubFileNamed(text: string, signal?: AbortSignal): Promise<HubFile | undefined> {
  try {
    return await namedOnHub(text, signal);
  } catch (error) {
    const problem = problemOf(error);
    throw problem === undefined
      ? error
      : new UsageError((error as Error).message.replace(/^file: /, ''), { cause: error });
  }
}

/** Resolves a FILE of the command line. @throws ScalepointError or UsageError */
async function inputOf(text: string, signal?: AbortSignal): Promise<Input> {
  if (text === '-') return standardInput(signal);
  const close = async () => {};
  const hub = await hubFileNamed(text, signal);
  if (hub !== undefined) {
    // A usual name of a file says nothing beside those of other models.
    const model = hub.repository.listing.id.split('/')[1] as string;
    const fileName = hub.name.replace(usualNames, () => model);
    return { name: text, file: hub, isPath: false, fileName, close };
  }
  const { url, name } = urlOfText(text) ?? {};
  if (url !== undefined && url.protocol !== 'file:')
    return { name: text, file: url, isPath: false, fileName: name, close };
  const named = url === undefined ? text : fileURLToPath(url);
  // The configuration of a model stands for its folder.
  const given = basename(named) === 'config.json' ? dirname(named) : named;
  // Other problems are reported when the file is opened.
  const isFolder = await stat(given).then(
    (status) => status.isDirectory(),
    () => false,
  );
  const path = isFolder ? await modelInFolder(given) : given;
  // A model in a folder of the folder is one of several.
  const part = isFolder && resolve(dirname(path)) !== resolve(given) ? basename(dirname(path)) : undefined;
  const remark =
    part &&
    part !== onnxFolder &&
    `${given} is a pipeline of diffusers; ${part} is read, and its other models are folders to give on their own`;
  const folderName = isFolder ? basename(resolve(given)) : undefined;
  return {
    name: path,
    file: path,
    isPath: true,
    fileName: basename(path),
    folderName,
    close,
    ...(remark && { remark }),
  };
}

/** Calls `use` with the FILEs of the command line, then closes them. */
export async function withInputs<T>(
  texts: readonly string[],
  use: (inputs: readonly Input[]) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const inputs: Input[] = [];
  try {
    for (const text of texts) inputs.push(await inputOf(text, signal));
    return await use(inputs);
  } catch (error) {
    // The files that an index names are looked for beside it.
    const index =
      problemOf(error)?.option === 'file' ? inputs.find(({ fileName }) => fileName === undefined) : undefined;
    throw index ? new UsageError(`${index.name} cannot be an index; name its file, or the folder`) : error;
  } finally {
    for (const input of inputs) await input.close();
  }
}

/** Opens one FILE, and closes it after use. */
export const withInput = <T>(text: string, use: (input: Input) => Promise<T>, signal?: AbortSignal): Promise<T> =>
  withInputs([text], ([input]) => use(input as Input), signal);
