/** Opens model files. What they are is told by their content, not by their names. */
import type { Beside } from '../conversions/converter.js';
import { rangeError, ScalepointError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import type { ByteSource, FileInput } from '../files/bytes.js';
import { openWithin } from '../files/open.js';
import type { Format, OpenFile, OpenModel } from '../formats/format.js';
import { formats } from '../formats/registry.js';
import { besideOf, separated } from './beside.js';

/**
 * A model: a file; or a sharded safetensors model, as its index (`model.safetensors.index.json`, which in Node finds the shards beside
 * it) or as a list of the index and all shards; or a split GGUF model, as its first file (which in Node finds the others) or as a list of
 * all of them.
 * A list may also have what else is in the folder of a model, such as `config.json` and `tokenizer.json`. Without a list, that is looked
 * for beside a path or URL.
 */
export type ModelInput = FileInput | readonly FileInput[];

/** An open model, and what reads it. */
export interface Opened {
  readonly format: Format;
  readonly model: OpenModel;
  readonly beside: Beside;
}

/** What the first bytes of other common files mean, for the error. */
const strangers: readonly [name: string, start: readonly number[]][] = [
  ['a zip archive, such as a PyTorch or .npz file', [0x50, 0x4b, 0x03, 0x04]],
  ['a pickle, such as an old PyTorch file', [0x80, 0x02]],
  ['an HDF5 file', [0x89, 0x48, 0x44, 0x46]],
  ['a page of HTML or XML', [0x3c]],
  ['a git-lfs pointer in place of the file', [...new TextEncoder().encode('version https://git-lfs')]],
];

/** Bytes at the start of a file that tell its format. */
const headBytes = 32;

function startsWith(head: Uint8Array, bytes: readonly number[]): boolean {
  return bytes.every((byte, i) => head[i] === byte);
}

/** A list in a sentence: `a, b and c`. */
function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}

/** What can be read, in words. */
function supported(): string {
  const indices = formats().flatMap(({ index, label }) =>
    index ? [`the ${index.name} of a sharded ${label} model`] : [],
  );
  return listed([...formats().map(({ files }) => files), ...indices]);
}

/** The format of a file, and whether it is an index. Magic numbers are the surest sign, so that they come first. */
function formatOf(head: Uint8Array): { readonly format: Format; readonly isIndex: boolean } | undefined {
  const format =
    formats().find(({ magic }) => magic !== undefined && startsWith(head, magic)) ??
    formats().find((known) => known.sniff?.(head));
  if (format !== undefined) return { format, isIndex: false };
  const indexed = formats().find(({ index }) => index?.sniff(head));
  return indexed && { format: indexed, isIndex: true };
}

function headOf(source: ByteSource): Promise<Uint8Array> {
  return source.read(0, Math.min(headBytes, source.size));
}

/** The only one of several files that is a model with data in other files. Undefined if none is, or more than one. */
async function modelWithData(
  files: readonly OpenFile[],
): Promise<{ readonly format: Format; readonly first: number } | undefined> {
  const found: { format: Format; first: number }[] = [];
  for (const [first, { source }] of files.entries()) {
    const { format, isIndex } = formatOf(await headOf(source)) ?? {};
    if (isIndex) return undefined;
    // Data may begin like a model. The name of a model tells which it is.
    if (format?.takesData) found.push({ format, first });
  }
  const named = found.filter(({ format, first }) => {
    const name = files[first]?.source.name?.toLowerCase();
    return format.extensions.some((extension) => name?.endsWith(extension));
  });
  const sure = found.length === 1 ? found : named;
  return sure.length === 1 ? sure[0] : undefined;
}

/** Tells the format by the content. @throws ScalepointError `UNKNOWN_FORMAT` */
async function detect(source: ByteSource) {
  const head = await headOf(source);
  const found = formatOf(head);
  if (found !== undefined) return found;
  const stranger = strangers.find(([, bytes]) => startsWith(head, bytes))?.[0];
  const hex = [...head.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  let seen = `the file begins with ${hex}`;
  if (source.size === 0) seen = 'the file is empty';
  if (stranger !== undefined) seen = `the file looks like ${stranger} (it begins with ${hex})`;
  throw new ScalepointError('UNKNOWN_FORMAT', `${seen}; supported are ${supported()}`);
}

/** Opens a model whose files are open. */
async function openModel(given: readonly OpenFile[], waiting: Waiting): Promise<Opened> {
  const { model: files, beside } = await separated(given);
  const { format, model } = await openFiles(files, waiting);
  return { format, model, beside: besideOf(files[0] as OpenFile, beside, waiting) };
}

async function openFiles(files: readonly OpenFile[], waiting: Waiting): Promise<Omit<Opened, 'beside'>> {
  const withData = files.length > 1 ? await modelWithData(files) : undefined;
  if (withData !== undefined) {
    const { format, first } = withData;
    return {
      format,
      model: await format.open([files[first] as OpenFile, ...files.filter((_, i) => i !== first)], (input) =>
        openWithin(waiting, input),
      ),
    };
  }
  const found = await Promise.all(files.map(({ source }) => detect(source)));
  const index = found.findIndex(({ isIndex }) => isIndex);
  const first = Math.max(0, index);
  const areSplits = found.every(({ format }) => format.takesSplits && format === found[0]?.format);
  if (index < 0 && files.length > 1 && !areSplits) {
    const indices = formats().flatMap(({ index }) => (index ? [index.name] : []));
    throw rangeError('file', ofType(...indices), files.length);
  }
  const { format } = found[first] as (typeof found)[number];
  const others = files.filter((_, i) => i !== first);
  const open = (input: FileInput) => openWithin(waiting, input);
  return { format, model: await format.open([files[first] as OpenFile, ...others], open) };
}

/** How a model is opened. */
export interface OpenOptions {
  /** Stops the work; the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Opens a model, hands it to `use`, closes its files. All reading ends when the signal aborts. */
export async function withModel<T>(
  input: ModelInput,
  { signal }: OpenOptions,
  use: (opened: Opened) => Promise<T>,
): Promise<T> {
  const inputs: readonly FileInput[] = Array.isArray(input) ? input : [input as FileInput];
  if (inputs.length === 0) throw rangeError('file', { kind: 'number', min: 1, unit: 'file' }, 0);
  const waiting = waitingFor(signal);
  const files: OpenFile[] = [];
  try {
    for (const one of inputs) files.push({ input: one, source: await openWithin(waiting, one) });
    const opened = await openModel(files, waiting);
    try {
      return await use(opened);
    } finally {
      await opened.model.close?.();
    }
  } finally {
    for (const { source } of files) await source.close();
    waiting.end();
  }
}
