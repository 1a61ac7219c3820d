/**
 * Opens the files of a model, and recognizes their format by their content, not by their names. Finds the files beside it, such as its
 * configuration and its tokenizer, which are given with the model or lie in its folder.
 */

import type { Beside } from '../architectures/converter.js';
import { isFileBeside } from '../architectures/registry.js';
import { rangeError, ScalepointError, typeError } from '../core/errors.js';
import { asImportError } from '../core/imported.js';
import { nodeModule } from '../core/node.js';
import { ofType } from '../core/option-problem.js';
import { tagOf } from '../core/realms.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import { type ByteSource, type FileInput, isFarFile, isMissing, quoted, tooLongError } from '../formats/files/bytes.js';
import {
  decodedName,
  fileOfHandle,
  type InputNotes,
  isHandle,
  openInput,
  urlFileName,
  withAddress,
} from '../formats/files/open.js';
import type { OpenFile } from '../formats/format.js';
import { type FormatSignature, signatures } from '../formats/signatures.js';
import { modelInFolder } from './folder.js';
import { withHub } from './named.js';

/**
 * A model. One of:
 * - a file;
 * - in Node, the path of a folder with one model;
 * - the index of a sharded safetensors model (`model.safetensors.index.json`), whose shards Node finds beside it, or a list of the index and
 *   all shards;
 * - the first file of a split GGUF model, whose other files Node finds beside it, or a list of all its files.
 *
 * - a model of the Hugging Face hub: `hf:owner/name`, `hf:owner/name:Q4_K_M`, `hf:owner/name@revision/path`, or the address of its page.
 *
 * A list may also hold the other files of the model's folder, such as `config.json` and `tokenizer.json`. Without a list, they are looked for
 * beside a path, a URL or a file of the hub.
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
      // Take the File of a handle, the URL of a text, or the model in a folder (Node). A promise that was given in place of a file must not
      // be awaited here.
      let input: FileInput;
      if (isHandle(one)) input = (await waiting.soon(fileOfHandle(one))).file;
      else {
        input = (await waiting.soon(withHub(one, signal))).file;
        const isAddress = input instanceof URL && input.protocol === 'file:';
        const path = isAddress ? nodeModule('node:url')?.fileURLToPath(input as URL) : input;
        const stat = typeof path === 'string' ? nodeModule('node:fs/promises')?.stat(path) : undefined;
        // Other problems are reported when the file is opened.
        const status = stat && (await waiting.soon(stat.catch(() => undefined)));
        if (status?.isDirectory()) input = await waiting.soon(modelInFolder(path as string));
      }
      files.push({ input, source: await openInput(waiting, input, notes, { given: one }) });
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

/** Finds the format of a file or of an index. Magic numbers come first because they are the surest sign. */
function findFormat(head: Uint8Array): { readonly format: FormatSignature; readonly isIndex: boolean } | undefined {
  const format =
    signatures.find(({ magic }) => magic?.every((byte, i) => head[i] === byte)) ??
    signatures.find((known) => known.sniff?.(head));
  if (format !== undefined) return { format, isIndex: false };
  // The index of safetensors is recognized last: other indices are JSON, too.
  const indexed = signatures.findLast(({ index }) => index?.sniff(head));
  if (indexed !== undefined) return { format: indexed, isIndex: true };
  const damaged = signatures.find((known) => known.resembles?.(head));
  return damaged && { format: damaged, isIndex: false };
}

/** True for the first bytes of a file that some format reads. */
export function isModelStart(head: Uint8Array): boolean {
  return findFormat(head.subarray(0, modelStartBytes)) !== undefined;
}

/** Finds the only file that is a model with data in other files. Undefined unless there is exactly one. */
async function modelWithData(
  files: readonly OpenFile[],
): Promise<{ readonly format: FormatSignature; readonly first: number } | undefined> {
  const found: { format: FormatSignature; first: number }[] = [];
  for (const [first, { source }] of files.entries()) {
    const { format, isIndex } = findFormat(await source.read(0, Math.min(modelStartBytes, source.size))) ?? {};
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

/** The error for a file that begins like no model. */
function unknownFormat(head: Uint8Array, size: number): ScalepointError {
  const text = String.fromCharCode(...head.subarray(0, 64));
  const stranger = strangers.find(([, start]) => text.startsWith(start))?.[0];
  const hex = [...head.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  let seen = `the file begins with ${hex}`;
  if (size === 0) seen = 'the file is empty';
  if (stranger !== undefined) seen = `the file looks like ${stranger} (it begins with ${hex})`;
  const indices = signatures.flatMap(({ index, label }) =>
    index ? [`the ${index.name} of a sharded ${label} model`] : [],
  );
  const readable = [...new Set(signatures.map(({ files }) => files)), ...indices];
  const list = `${readable.slice(0, -1).join(', ')} and ${readable.at(-1)}`;
  return new ScalepointError('UNKNOWN_FORMAT', `${seen}; supported are ${list}`);
}

/**
 * Recognizes the format of open files, and separates the files of the model from those beside it.
 * @throws RangeError if they do not belong together; ScalepointError `UNKNOWN_FORMAT`
 */
export async function recognize(given: readonly OpenFile[]): Promise<RecognizedFiles> {
  const { model: files, beside } = await separated(given);
  let chosen = files.length > 1 ? await modelWithData(files) : undefined;
  if (chosen === undefined) {
    const found = await Promise.all(
      files.map(async ({ source }) => {
        const head = await source.read(0, Math.min(modelStartBytes, source.size));
        const known = findFormat(head);
        if (known === undefined) throw unknownFormat(head, source.size);
        return known;
      }),
    );
    const index = found.findIndex(({ isIndex }) => isIndex);
    const areSplits = found.every(({ format }) => format.takesSplits && format === found[0]?.format);
    if (index < 0 && files.length > 1 && !areSplits) {
      const indices = signatures.flatMap(({ index }) => (index ? [index.name] : []));
      throw rangeError('file', ofType(...indices), files.length);
    }
    const first = Math.max(0, index);
    chosen = { format: (found[first] as (typeof found)[number]).format, first };
  }
  const { format, first } = chosen;
  const model = [files[first] as OpenFile, ...files.filter((_, i) => i !== first)];
  return { format, model, first: files[0] as OpenFile, beside };
}

/** The URL of a text that begins like one, with the name of its file; undefined for paths. @throws RangeError naming `file` */
export function urlOfText(text: string): { readonly url: URL; readonly name: string } | undefined {
  const url = withAddress(text);
  return url instanceof URL ? { url, name: urlFileName(url) || url.hostname } : undefined;
}

/** Names of files that accompany a model, and names of indices, which list the files of a model. */
const besides = /\.(json|txt|model|jinja|md)$/i;
const indices = /(^|\.)index\.json$/i;

/** The path of a File within the folder that the user chose, else its name. */
function folderPath({ input, source }: OpenFile): string {
  const { webkitRelativePath } = input as { webkitRelativePath?: unknown };
  return typeof webkitRelativePath === 'string' && webkitRelativePath !== '' ? webkitRelativePath : (source.name ?? '');
}

/** Bytes at the start of an index that contain `weight_map`. */
const indexHead = 1 << 16;

const indexStart = ({ source }: OpenFile) => source.read(0, Math.min(source.size, indexHead));

/** Separates the files of a model from those beside it. If there are no others, all files belong to the model. */
async function separated(
  files: readonly OpenFile[],
): Promise<{ model: readonly OpenFile[]; beside: readonly OpenFile[] }> {
  const model: OpenFile[] = [];
  let beside: OpenFile[] = [];
  for (const file of files) {
    const { name = '' } = file.source;
    const isBeside = (besides.test(name) && !indices.test(name)) || isFileBeside(name, folderPath(file));
    (isBeside ? beside : model).push(file);
  }
  // The index of a model with data in other files may be JSON, too.
  for (const file of beside) {
    const head = await indexStart(file);
    if (!signatures.some(({ takesData, sniff }) => takesData === true && sniff?.(head) === true)) continue;
    model.push(file);
    beside = beside.filter((other) => other !== file);
  }
  if (model.length === 0) return { model: files, beside: [] };
  if (model.length > 1 && !model.some(({ source: { name = '' } }) => indices.test(name))) {
    // Browsers rename files that are saved twice, so that names prove nothing.
    for (const file of beside) {
      if (!new TextDecoder().decode(await indexStart(file)).includes('"weight_map"')) continue;
      model.push(file);
      beside = beside.filter((other) => other !== file);
      break;
    }
  }
  return { model, beside };
}

/** Largest size of a file beside a model, in bytes. Tokenizers of some models have 35 MB. */
const mostBytes = 100_000_000;

async function contentOf(name: string, source: ByteSource): Promise<Uint8Array<ArrayBuffer>> {
  if (source.size > mostBytes) throw tooLongError(quoted(name), mostBytes);
  return source.read(0, source.size);
}

/**
 * The files beside a model.
 * @param beside the files that were given with it
 * @param notes takes the files that are read
 */
export function besideOf(
  { input }: OpenFile,
  beside: readonly OpenFile[],
  waiting: Waiting,
  notes: InputNotes,
): Beside {
  // Locate files in the folder of a path or URL.
  let folder: string | undefined;
  let locate: ((name: string) => FileInput | undefined) | undefined;
  const paths = nodeModule('node:path');
  if (isFarFile(input)) {
    folder = input.folder;
    locate = (name) => input.beside(name);
  } else if (input instanceof URL) {
    folder = decodedName(input.pathname.split('/').at(-2) ?? '');
    locate = (name) => new URL(name.split('/').map(encodeURIComponent).join('/'), input);
  } else if (typeof input === 'string' && paths !== undefined) {
    const path = paths.dirname(paths.resolve(input));
    folder = paths.basename(path);
    locate = (name) => paths.join(path, name);
  }
  if (locate === undefined || beside.length > 0) {
    // Find files among the given ones, by their paths in the folder or by their names.
    const given = beside.map(folderPath);
    const [top] = (given.find((path) => path.includes('/')) ?? '').split('/');
    return {
      folder: top || undefined,
      isRemote: false,
      async file(name) {
        const [found, other] = beside.filter((_, i) => given[i] === name || given[i] === `${top}/${name}`);
        if (found === undefined) return undefined;
        if (other !== undefined) throw typeError('file', { kind: 'distinct' }, name);
        return contentOf(name, found.source);
      },
    };
  }
  const locateFile = locate;
  return {
    folder: folder || undefined,
    isRemote: input instanceof URL && input.protocol !== 'file:',
    async file(name) {
      const open = async (path: string): Promise<ByteSource | undefined> => {
        const located = locateFile(path);
        if (located === undefined) return undefined;
        try {
          return await openInput(waiting, located, notes, { most: mostBytes });
        } catch (error) {
          if (isMissing(error)) return undefined;
          throw error;
        }
      };
      // The settings of models for transformers.js lie above their folder onnx.
      const isInside = folder === 'onnx' && /\.onnx($|\?)/i.test(isFarFile(input) ? input.name : String(input));
      const source = (await open(name)) ?? (isInside ? await open(`../${name}`) : undefined);
      if (source === undefined) return undefined;
      try {
        return await contentOf(name, source);
      } finally {
        await source.close();
      }
    },
  };
}
