/**
 * Opens models in several GGUF files. The first file has the metadata of the model. Files are matched by their names, since no key identifies
 * the model, and their contents are compared.
 * Reference: github.com/ggml-org/llama.cpp v0.5.0, tools/gguf-split.
 */
import { rangeError, ScalepointError, typeError } from '../../core/errors.js';
import { exactly } from '../../core/option-problem.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import { isCount } from '../files/json.js';
import type { OpenFile, OpenInput } from '../format.js';
import { besideFile, inFile, shardSuffix } from '../shards.js';
import { alignedTo, type GgufTensor } from './contents.js';
import { type GgufHeader, readGguf } from './header.js';
import { countKey, numberKey, splitCount, splitKeys, tensorsKey } from './pairs.js';

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

function badSplit(label: string, message: string, place: { tensor?: string; byteOffset?: number } = {}): never {
  throw new ScalepointError('BAD_FILE', `${label}: ${message}`, place);
}

function splitKey({ metadata }: GgufHeader, key: string, label: string): number {
  const value = metadata[key];
  if (isCount(value)) return value;
  return badSplit(label, value === undefined ? `it has no ${key}` : `its ${key} is not a number of files or tensors`);
}

function splitOf(source: ByteSource, header: GgufHeader, position: number): Split {
  const label = source.name === undefined ? `file ${position + 1}` : quoted(source.name);
  const [index, count] = [splitKey(header, numberKey, label), splitKey(header, countKey, label)];
  if (index >= count) badSplit(label, `it says that it is file ${index + 1} of ${count}`);
  const tensors = splitKey(header, tensorsKey, label);
  // A whole model may end with extra bytes. In a split one they mean that files were mixed up.
  const end = header.tensors.reduce(
    (last, { byteOffset, bytes }) => Math.max(last, byteOffset + bytes),
    header.dataOffset,
  );
  if (source.size > alignedTo(end, header.alignment)) {
    badSplit(label, `it has ${source.size} bytes, but its tensors end at ${end}`, { byteOffset: end });
  }
  return { source, header, index, count, tensors, label };
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
    badSplit(
      label,
      `it is file ${index + 1} of ${count}, but its name does not end with ${shardSuffix(index, count, '.gguf')}; pass a list of all files`,
    );
  }
  if (index !== 0)
    badSplit(label, `it is file ${index + 1} of ${count}; open ${quoted(stem + shardSuffix(0, count, '.gguf'))}`);
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

/**
 * Opens a model in several files: all of them in any order, or the first by its path, beside which the others are found.
 * @param header of the first given file
 * @throws TypeError or RangeError if the files cannot be found, or belong to several models; ScalepointError `BAD_FILE` if they contradict
 *   each other, `NOT_FOUND` or `IO` if one is missing. Files opened here are closed on failure.
 */
export async function openSplits(files: readonly OpenFile[], header: GgufHeader, open: OpenInput) {
  const [first] = files as [OpenFile];
  const opened: ByteSource[] = [];
  const close = async () => {
    for (const source of opened) await source.close();
  };
  try {
    const splits = files.length > 1 ? await readGiven(files) : await openOthers(first, header, open, opened);
    const [main] = splits as [Split];
    const { count, tensors: expected, label } = main;
    // Put them into their order.
    const ordered: Split[] = [];
    for (const split of splits) {
      if (split.count !== count)
        badSplit(split.label, `it is one of ${split.count} files, but ${label} is one of ${count}`);
      if (split.tensors !== expected) {
        badSplit(split.label, `it belongs to a model of ${split.tensors} tensors, but ${label} to one of ${expected}`);
      }
      const other = ordered[split.index];
      if (other !== undefined)
        badSplit(split.label, `it is file ${split.index + 1} of ${count}, and so is ${other.label}`);
      ordered[split.index] = split;
    }
    for (let i = 0; i < count; i++) {
      if (ordered[i] !== undefined) continue;
      const stem = main.source.name === undefined ? undefined : stemOf(main.source.name, main.index, count);
      const name = stem === undefined ? '' : `, ${quoted(stem + shardSuffix(i, count, '.gguf'))},`;
      throw new ScalepointError('NOT_FOUND', `file ${i + 1} of ${count}${name} is missing`);
    }

    // Compare their keys and the names of their tensors.
    const [start] = ordered as [Split];
    const pairs = new Map(start.header.pairs.map(({ key, bytes }) => [key, bytes]));
    const seen = new Map<string, Split>();
    for (const split of ordered) {
      for (const { key, bytes } of split.header.pairs) {
        const own = pairs.get(key);
        const isSame = own?.length === bytes.length && own.every((byte, i) => byte === bytes[i]);
        if (own === undefined || splitKeys.includes(key) || isSame) continue;
        const message = `its ${quoted(key)} is another than that of ${start.label}: they belong to different models`;
        badSplit(split.label, message);
      }
      for (const { name } of split.header.tensors) {
        const other = seen.get(name);
        if (other !== undefined)
          badSplit(split.label, `tensor ${quoted(name)} is in ${other.label} as well`, { tensor: name });
        seen.set(name, split);
      }
    }
    if (seen.size !== expected) {
      badSplit(start.label, `it belongs to a model of ${expected} tensors, but the files hold ${seen.size}`);
    }
    const tensors = ordered.flatMap(({ header: own }, file) =>
      own.tensors.map((tensor): GgufTensor => ({ ...tensor, file })),
    );
    return { files: ordered.map(({ source }) => source), header: { ...start.header, tensors }, close };
  } catch (error) {
    await close();
    throw error;
  }
}
