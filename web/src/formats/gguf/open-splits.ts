/**
 * Opens models in several GGUF files. The first file has the metadata of the model. Files are matched by their names, since no key identifies
 * the model, and their contents are compared.
 * Reference: github.com/ggml-org/llama.cpp v0.5.0, tools/gguf-split.
 */
import { rangeError, ScalepointError, typeError } from '../../core/errors.js';
import { exactly } from '../../core/option-problem.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import type { OpenFile, OpenInput } from '../format.js';
import { besideFile, inFile, shardSuffix } from '../shards.js';
import { type GgufTensor, padded } from './contents.js';
import { type GgufHeader, readGguf } from './header.js';
import { countKey, numberKey, splitCount, splitKeys, tensorsKey } from './splits.js';

/** One of several files. */
interface Split {
  readonly source: ByteSource;
  readonly header: GgufHeader;
  /** Number, from 0. */
  readonly index: number;
  readonly count: number;
  /** Number of tensors in all files. */
  readonly tensors: number;
  /** Name in errors. */
  readonly label: string;
}

function bad(label: string, message: string, place: { tensor?: string; byteOffset?: number } = {}): never {
  throw new ScalepointError('BAD_FILE', `${label}: ${message}`, place);
}

function keyOf({ metadata }: GgufHeader, key: string, label: string): number {
  const value = metadata[key];
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  return bad(label, value === undefined ? `it has no ${key}` : `its ${key} is not a number of files or tensors`);
}

function splitOf(source: ByteSource, header: GgufHeader, position: number): Split {
  const label = source.name === undefined ? `file ${position + 1}` : quoted(source.name);
  const [index, count] = [keyOf(header, numberKey, label), keyOf(header, countKey, label)];
  if (index >= count) bad(label, `it says that it is file ${index + 1} of ${count}`);
  const tensors = keyOf(header, tensorsKey, label);
  // A whole model may end with extra bytes. In a split one they mean that files were mixed up.
  const end = header.tensors.reduce(
    (last, { byteOffset, bytes }) => Math.max(last, byteOffset + bytes),
    header.dataOffset,
  );
  if (source.size > padded(end, header.alignment)) {
    bad(label, `it has ${source.size} bytes, but its tensors end at ${end}`, { byteOffset: end });
  }
  return { source, header, index, count, tensors, label };
}

/** An open model in several files. */
export interface OpenSplits {
  /** Files in order. */
  readonly files: readonly ByteSource[];
  /** Header of the first file, with the tensors of all files. */
  readonly header: GgufHeader;
  close(): Promise<void>;
}

/** Name of a file without its number and extension; undefined for other names. */
function stemOf(name: string, index: number, count: number): string | undefined {
  const end = shardSuffix(index, count, '.gguf');
  return name.toLowerCase().endsWith(end) ? name.slice(0, -end.length) : undefined;
}

/** Opens the other files of a model in the folder of the first, and adds them to `opened`. */
async function openOthers(
  { input, source }: OpenFile,
  header: GgufHeader,
  open: OpenInput,
  opened: ByteSource[],
): Promise<Split[]> {
  const count = splitCount(header);
  if (source.name === undefined) throw typeError('file', exactly(count, 'files'), 1);
  const first = splitOf(source, header, 0);
  const { label, index } = first;
  const stem = stemOf(source.name, index, count);
  if (stem === undefined) {
    bad(
      label,
      `it is file ${index + 1} of ${count}, but its name does not end with ${shardSuffix(index, count, '.gguf')}; pass a list of all files`,
    );
  }
  if (index !== 0)
    bad(label, `it is file ${index + 1} of ${count}; open ${quoted(stem + shardSuffix(0, count, '.gguf'))}`);
  const byName = besideFile(input, open, exactly(count, 'files'));
  const splits = [first];
  for (let i = 1; i < count; i++) {
    const name = stem + shardSuffix(i, count, '.gguf');
    const other = await byName(name);
    opened.push(other);
    splits.push(splitOf(other, await inFile(name, readGguf(other)), i));
  }
  return splits;
}

/** Reads the files that were given. */
async function readGiven(files: readonly OpenFile[]): Promise<Split[]> {
  const splits: Split[] = [];
  for (const [i, { source }] of files.entries()) {
    const header = await inFile(source.name, readGguf(source));
    if (splitCount(header) < 2) {
      const label = source.name === undefined ? `file ${i + 1}` : quoted(source.name);
      throw rangeError('file', exactly(1, 'file'), files.length, {
        kind: 'because',
        message: `${label} is a model by itself`,
      });
    }
    splits.push(splitOf(source, header, i));
  }
  return splits;
}

/** Puts files into their order. @throws ScalepointError `BAD_FILE`, `NOT_FOUND` */
function inOrder(splits: readonly Split[]): Split[] {
  const [{ count, tensors, label, source }] = splits as [Split];
  const ordered: Split[] = [];
  for (const split of splits) {
    if (split.count !== count) bad(split.label, `it is one of ${split.count} files, but ${label} is one of ${count}`);
    if (split.tensors !== tensors) {
      bad(split.label, `it belongs to a model of ${split.tensors} tensors, but ${label} to one of ${tensors}`);
    }
    const other = ordered[split.index];
    if (other !== undefined) bad(split.label, `it is file ${split.index + 1} of ${count}, and so is ${other.label}`);
    ordered[split.index] = split;
  }
  for (let i = 0; i < count; i++) {
    if (ordered[i] !== undefined) continue;
    const stem = source.name === undefined ? undefined : stemOf(source.name, splits[0]?.index ?? 0, count);
    const name = stem === undefined ? '' : `, ${quoted(stem + shardSuffix(i, count, '.gguf'))},`;
    throw new ScalepointError('NOT_FOUND', `file ${i + 1} of ${count}${name} is missing`);
  }
  return ordered;
}

const isSame = (a: Uint8Array, b: Uint8Array) => a.length === b.length && a.every((byte, i) => byte === b[i]);

/** Compares the keys of the files, in order. @throws ScalepointError `BAD_FILE` */
function checkTogether(splits: readonly Split[]): void {
  const [first] = splits as [Split];
  const pairs = new Map(first.header.pairs.map(({ key, bytes }) => [key, bytes]));
  const seen = new Map<string, Split>();
  for (const split of splits) {
    for (const { key, bytes } of split.header.pairs) {
      const own = pairs.get(key);
      if (own === undefined || splitKeys.includes(key) || isSame(own, bytes)) continue;
      bad(split.label, `its ${quoted(key)} is another than that of ${first.label}: they belong to different models`);
    }
    for (const { name } of split.header.tensors) {
      const other = seen.get(name);
      if (other !== undefined)
        bad(split.label, `tensor ${quoted(name)} is in ${other.label} as well`, { tensor: name });
      seen.set(name, split);
    }
  }
  if (seen.size !== first.tensors) {
    bad(first.label, `it belongs to a model of ${first.tensors} tensors, but the files hold ${seen.size}`);
  }
}

/**
 * Opens a model in several files: all of them in any order, or the first by its path, beside which the others are found.
 * @param header of the first given file
 * @throws TypeError or RangeError if the files cannot be found, or belong to several models; ScalepointError `BAD_FILE` if they contradict
 *   each other, `NOT_FOUND` or `IO` if one is missing. Files opened here are closed on failure.
 */
export async function openSplits(files: readonly OpenFile[], header: GgufHeader, open: OpenInput): Promise<OpenSplits> {
  const [first] = files as [OpenFile];
  const opened: ByteSource[] = [];
  const close = async () => {
    for (const source of opened) await source.close();
  };
  try {
    const splits = inOrder(files.length > 1 ? await readGiven(files) : await openOthers(first, header, open, opened));
    checkTogether(splits);
    const tensors = splits.flatMap(({ header: own }, file) =>
      own.tensors.map((tensor): GgufTensor => ({ ...tensor, file })),
    );
    const [{ header: main }] = splits as [Split];
    return { files: splits.map(({ source }) => source), header: { ...main, tensors }, close };
  } catch (error) {
    await close();
    throw error;
  }
}
