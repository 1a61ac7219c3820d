/** Opens the files of a model and recognizes their format by their content, not by their names. */
import { rangeError, ScalepointError } from '../core/errors.js';
import { asImportError } from '../core/imported.js';
import { nodeModule } from '../core/node.js';
import { ofType } from '../core/option-problem.js';
import { tagOf } from '../core/realms.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import type { ByteSource, FileInput } from '../formats/files/bytes.js';
import { fileOfHandle, type InputNotes, isHandle, openInput, urlFileName, withAddress } from '../formats/files/open.js';
import type { OpenFile } from '../formats/format.js';
import { type FormatSignature, signatures } from '../formats/signatures.js';
import { separated } from './beside.js';
import { modelInFolder } from './folder.js';

/**
 * A model. One of:
 * - a file;
 * - in Node, the path of a folder with one model;
 * - the index of a sharded safetensors model (`model.safetensors.index.json`), whose shards Node finds beside it, or a list of the index and
 *   all shards;
 * - the first file of a split GGUF model, whose other files Node finds beside it, or a list of all its files.
 *
 * A list may also hold the other files of the model's folder, such as `config.json` and `tokenizer.json`. Without a list, they are looked for
 * beside a path or URL.
 */
export type ModelInput = GivenFile | readonly GivenFile[] | FileList;

/** A file of a model, or its handle in the browser. */
type GivenFile = FileInput | FileSystemFileHandle;

/** Options of calls that open a model. */
export interface OpenOptions {
  /** Stops the work; the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Opens the files of a model, hands them to `use`, and closes them. All reading ends when the signal aborts, with its reason: also where
 * a reader takes the end for a fault of the file.
 */
export async function withFiles<T>(
  input: ModelInput,
  { signal, notes = { inputs: [], option: 'file' } }: OpenOptions & { readonly notes?: InputNotes },
  use: (files: readonly OpenFile[], waiting: Waiting) => Promise<T>,
): Promise<T> {
  // A page's form gives a list of files. The name of an object may be one that cannot be read.
  let isList = false;
  try {
    isList = Array.isArray(input) || tagOf(input) === 'FileList';
  } catch {}
  const inputs = isList ? [...(input as Iterable<GivenFile>)] : [input as GivenFile];
  if (inputs.length === 0) throw rangeError('file', { kind: 'number', min: 1, unit: 'file' }, 0);
  const waiting = waitingFor(signal);
  const files: OpenFile[] = [];
  try {
    for (const one of inputs) {
      signal?.throwIfAborted();
      const { file } = await waiting.soon(fileOfInput(one));
      files.push({ input: file, source: await openInput(waiting, file, notes, { given: one }) });
    }
    return await use(files, waiting);
  } catch (error) {
    signal?.throwIfAborted();
    throw asImportError(error);
  } finally {
    for (const { source } of files) await source.close();
    waiting.end();
  }
}

/** The files of a model by their purpose. */
export interface RecognizedFiles {
  readonly format: FormatSignature;
  /** The files of the model in the order that `Format.open` expects: the model or the index first. */
  readonly model: readonly OpenFile[];
  /** The first given file of the model. Files beside the model are looked for in its folder. */
  readonly first: OpenFile;
  /** Given files that are not part of the model, such as its configuration. */
  readonly beside: readonly OpenFile[];
}

/** Bytes at the start of a file that are enough to recognize its format. */
export const modelStartBytes = 1024;

function startsWith(head: Uint8Array, bytes: readonly number[]): boolean {
  return bytes.every((byte, i) => head[i] === byte);
}

/** Finds the format of a file or of an index. Magic numbers come first because they are the surest sign. */
function findFormat(head: Uint8Array): { readonly format: FormatSignature; readonly isIndex: boolean } | undefined {
  const format =
    signatures().find(({ magic }) => magic !== undefined && startsWith(head, magic)) ??
    signatures().find((known) => known.sniff?.(head));
  if (format !== undefined) return { format, isIndex: false };
  // The index of safetensors is recognized last: other indices are JSON, too.
  const indexed = signatures().findLast(({ index }) => index?.sniff(head));
  if (indexed !== undefined) return { format: indexed, isIndex: true };
  const damaged = signatures().find((known) => known.resembles?.(head));
  return damaged && { format: damaged, isIndex: false };
}

/** True for the first bytes of a file that some format reads. */
export function isModelStart(head: Uint8Array): boolean {
  return findFormat(head.subarray(0, modelStartBytes)) !== undefined;
}

function firstBytes(source: ByteSource): Promise<Uint8Array> {
  return source.read(0, Math.min(modelStartBytes, source.size));
}

/** Finds the only file that is a model with data in other files. Undefined unless there is exactly one. */
async function modelWithData(
  files: readonly OpenFile[],
): Promise<{ readonly format: FormatSignature; readonly first: number } | undefined> {
  const found: { format: FormatSignature; first: number }[] = [];
  for (const [first, { source }] of files.entries()) {
    const { format, isIndex } = findFormat(await firstBytes(source)) ?? {};
    if (isIndex) return undefined;
    // Data may begin like a model by chance; the extension decides then.
    if (format?.takesData) found.push({ format, first });
  }
  const named = found.filter(({ format, first }) => {
    const name = files[first]?.source.name?.toLowerCase();
    return format.extensions.some((extension) => name?.endsWith(extension));
  });
  const sure = found.length === 1 ? found : named;
  return sure.length === 1 ? sure[0] : undefined;
}

/** First bytes of other common files, whose names the error mentions. */
const strangers: readonly [name: string, start: string][] = [
  ['a zip archive, such as a .npz file', 'PK\x03\x04'],
  ['an HDF5 file', '\x89HDF'],
  ['a page of HTML or XML', '<'],
  ['a git-lfs pointer in place of the file', 'version https://git-lfs'],
];

/** Recognizes the format by the content. @throws ScalepointError `UNKNOWN_FORMAT` */
async function detectFormat(source: ByteSource) {
  const head = await firstBytes(source);
  const found = findFormat(head);
  if (found !== undefined) return found;
  const stranger = strangers.find(([, start]) =>
    startsWith(
      head,
      [...start].map((letter) => letter.charCodeAt(0)),
    ),
  )?.[0];
  const hex = [...head.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  let seen = `the file begins with ${hex}`;
  if (source.size === 0) seen = 'the file is empty';
  if (stranger !== undefined) seen = `the file looks like ${stranger} (it begins with ${hex})`;
  const indices = signatures().flatMap(({ index, label }) =>
    index ? [`the ${index.name} of a sharded ${label} model`] : [],
  );
  const readable = [...signatures().map(({ files }) => files), ...indices];
  const list = `${readable.slice(0, -1).join(', ')} and ${readable.at(-1)}`;
  throw new ScalepointError('UNKNOWN_FORMAT', `${seen}; supported are ${list}`);
}

/**
 * Recognizes the format of open files, and separates the files of the model from those beside it.
 * @throws RangeError if they do not belong together; ScalepointError `UNKNOWN_FORMAT`
 */
export async function recognize(given: readonly OpenFile[]): Promise<RecognizedFiles> {
  const { model: files, beside } = await separated(given);
  const others = { first: files[0] as OpenFile, beside };
  const withFirst = (first: number) => [files[first] as OpenFile, ...files.filter((_, i) => i !== first)];
  const withData = files.length > 1 ? await modelWithData(files) : undefined;
  if (withData !== undefined) return { format: withData.format, model: withFirst(withData.first), ...others };
  const found = await Promise.all(files.map(({ source }) => detectFormat(source)));
  const index = found.findIndex(({ isIndex }) => isIndex);
  const first = Math.max(0, index);
  const areSplits = found.every(({ format }) => format.takesSplits && format === found[0]?.format);
  if (index < 0 && files.length > 1 && !areSplits) {
    const indices = signatures().flatMap(({ index }) => (index ? [index.name] : []));
    throw rangeError('file', ofType(...indices), files.length);
  }
  const { format } = found[first] as (typeof found)[number];
  return { format, model: withFirst(first), ...others };
}

/** The URL of a text that begins like one, with the name of its file; undefined for paths. @throws RangeError naming `file` */
export function urlOfText(text: string): { readonly url: URL; readonly name: string } | undefined {
  const url = withAddress(text);
  return url instanceof URL ? { url, name: urlFileName(url) || url.hostname } : undefined;
}

/**
 * An input as files are opened: the URL of a text, the model in a folder (Node), the File of a handle, or the input itself.
 * @throws RangeError naming `file`; ScalepointError `IO` or `NOT_FOUND`
 */
async function fileOfInput(input: FileInput | FileSystemFileHandle): Promise<{ readonly file: FileInput }> {
  if (isHandle(input)) return fileOfHandle(input);
  const file = withAddress(input);
  const isAddress = file instanceof URL && file.protocol === 'file:';
  const path = isAddress ? nodeModule('node:url')?.fileURLToPath(file) : typeof file === 'string' ? file : undefined;
  // A promise that was given in place of a file must not be awaited here.
  if (path === undefined) return { file };
  // Other problems are reported when the file is opened.
  const status = await nodeModule('node:fs/promises')
    ?.stat(path)
    .catch(() => undefined);
  if (!status?.isDirectory()) return { file };
  return { file: await modelInFolder(path) };
}
