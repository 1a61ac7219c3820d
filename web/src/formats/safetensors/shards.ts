/**
 * Models in several safetensors files. An index, `model.safetensors.index.json`, maps each tensor to a file in the same folder. It is
 * untrusted: only plain file names are accepted, and everything in it is compared with the headers of the files.
 */
import { ScalepointError, typeError } from '../../core/errors.js';
import { type ByteSource, type FileInput, quoted } from '../files/bytes.js';
import { badFile, badTensor } from '../files/errors.js';
import { openSource } from '../files/open.js';
import type { OpenFile, OpenInput, OpenModel } from '../format.js';
import { besideFile, inFile, type OpenByName } from '../shards.js';
import {
  JsonReader,
  maxExtras,
  maxMembers,
  readSafetensors,
  type SafetensorsHeader,
  type TensorInfo,
} from './header.js';
import { beginsAsIndex } from './signature.js';

/** The contents of an index. */
export interface ShardIndex {
  /** For each tensor the name of its file, in the order of the index. */
  readonly weightMap: ReadonlyMap<string, string>;
  /** The values of `metadata`, such as `total_size`, as long as they are short. Without a prototype, as `__proto__` may be a key. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** Largest index: that of a header, because an index repeats the names of headers. */
const maxIndexBytes = 100_000_000;

/** Largest metadata of an index that is read. Nothing depends on it. */
const maxMetadataBytes = 2 ** 16;

/** The contents of one file of a model. */
export interface ShardContents extends SafetensorsHeader {
  /** Sources behind the file, which give its bytes in another order. */
  readonly derived?: readonly ByteSource[];
}

/** The kind of the files that an index names. */
interface ShardKind {
  readonly names: RegExp;
  /** The usual end of their names. */
  readonly end: string;
  /** @param index of the file in the model */
  read(source: ByteSource, index: number): Promise<ShardContents>;
}

const safetensorsKind: ShardKind = { names: /\.safetensors$/i, end: '.safetensors', read: readSafetensors };

/**
 * Reads and checks an index.
 * @throws ScalepointError `BAD_FILE` with the offset, and the tensor if one is at fault
 */
export async function readIndex(source: ByteSource, kind = safetensorsKind): Promise<ShardIndex> {
  if (source.size > maxIndexBytes) {
    const message = `index: the file has ${source.size} bytes, more than the ${maxIndexBytes} allowed`;
    badFile(message, maxIndexBytes);
  }
  const bytes = await source.read(0, source.size);
  const json: JsonReader = new JsonReader(bytes, 0, 'index');
  const metadata = Object.create(null) as Record<string, unknown>;
  const found: { weightMap?: Map<string, string> } = {};
  let room = maxMetadataBytes;
  json.object('the index', maxExtras, (key) => {
    if (key === 'metadata') {
      json.object('metadata', maxExtras, (name) => {
        json.peek();
        const start = json.position;
        json.skip(3);
        const size = json.position - start;
        room -= size + name.length;
        if (room < 0) return;
        metadata[name] = JSON.parse(new TextDecoder().decode(bytes.subarray(start, json.position)));
      });
    } else if (key === 'weight_map') {
      const map = new Map<string, string>();
      // Share equal strings: many tensors lie in few files.
      const files = new Map<string, string>();
      json.object('weight_map', maxMembers, (tensor) => {
        json.tensor = tensor;
        json.peek();
        const { position } = json;
        const name = json.string('the name of its file');
        if (!files.has(name)) {
          // Refuse other folders, drives and streams of Windows, and control characters.
          const isStrange = name === '' || /[/\\:]|\.\./.test(name) || [...name].some((c) => c < ' ' || c === '\x7f');
          if (isStrange) json.fail(`the file name ${quoted(name)} is not a plain name`, position);
          if (!kind.names.test(name))
            json.fail(`the file ${quoted(name)} is not called ${kind.end}; other formats cannot be read`, position);
          files.set(name, name);
        }
        map.set(tensor, files.get(name) ?? name);
        json.tensor = undefined;
      });
      found.weightMap = map;
    } else json.skip(2);
  });
  if (json.peek() !== undefined) json.fail('there is more than spaces after the closing brace');
  const { weightMap } = found;
  if (weightMap === undefined) json.fail('weight_map is missing', 0);
  if (weightMap.size === 0) json.fail('weight_map is empty', 0);
  return { weightMap, metadata };
}

/** An open model in several files. */
export interface Shards {
  /** Files with the tensors, sorted by name. */
  readonly files: readonly ByteSource[];
  /** Tensors in the order of the files, and of their bytes in each. */
  readonly tensors: readonly TensorInfo[];
  /** `__metadata__` of the files. The first file with a key determines its value. Without a prototype. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Size of the files, without the index. */
  readonly bytes: number;
  /** The index. */
  readonly index: ShardIndex;
  /** Closes the files opened here, but not the given ones. */
  close(): Promise<void>;
}

/**
 * Opens a model in several files.
 * @param input the index as given by the caller. Without given files, they are opened in its folder.
 * @param source the index
 * @param given the files, in any order. Files that the index does not name are ignored.
 * @param how the way to open other files, and their kind, which is safetensors by default
 * @throws TypeError if the files cannot be found by name; ScalepointError `BAD_FILE` if the index or a file is invalid or they contradict
 *   each other, `NOT_FOUND` or `IO` with the name of a missing file. Opened files are closed on failure.
 */
export async function openShards(
  input: FileInput,
  source: ByteSource,
  given: readonly ByteSource[] = [],
  { openInput = openSource, kind = safetensorsKind }: { openInput?: OpenInput; kind?: ShardKind } = {},
): Promise<Shards> {
  const openGiven: OpenByName = async (name) => {
    const [file, other] = given.filter((candidate) => candidate.name === name);
    if (other !== undefined) throw typeError('file', { kind: 'distinct' }, name);
    const message = `the index names the file ${quoted(name)}, which is not among those given`;
    if (file === undefined) throw new ScalepointError('NOT_FOUND', message);
    return file;
  };
  const open = given.length > 0 ? openGiven : besideFile(input, openInput, { kind: 'number', min: 2, unit: 'files' });
  const index = await inFile(source.name, readIndex(source, kind));
  const names = [...new Set(index.weightMap.values())].sort();
  const files: ByteSource[] = [];
  let bytes = 0;
  const close = async () => {
    for (const file of files) if (!given.includes(file)) await file.close();
  };
  try {
    const headers: ShardContents[] = [];
    for (const name of names) {
      const file = await open(name);
      files.push(file);
      bytes += file.size;
      const header = await inFile(name, kind.read(file, files.length - 1));
      headers.push(header);
      files.push(...(header.derived ?? []));
    }
    // Compare the headers with the index.
    const seen = new Map<string, string>();
    for (const [i, { tensors }] of headers.entries()) {
      const file = names[i] as string;
      for (const { name } of tensors) {
        const other = seen.get(name);
        if (other !== undefined) badTensor(name, `it is in two files, ${quoted(other)} and ${quoted(file)}`);
        seen.set(name, file);
      }
    }
    for (const [tensor, file] of index.weightMap) {
      const where = seen.get(tensor);
      const instead = where === undefined ? 'which does not have it' : `but it is in ${quoted(where)}`;
      if (where !== file) badTensor(tensor, `the index says that it is in ${quoted(file)}, ${instead}`);
    }
    for (const [tensor, file] of seen)
      if (!index.weightMap.has(tensor)) badTensor(tensor, `it is in ${quoted(file)}, but not in the index`);
    const metadata = Object.create(null) as Record<string, string>;
    for (const header of headers) {
      for (const [key, value] of Object.entries(header.metadata)) if (!(key in metadata)) metadata[key] = value;
    }
    return { files, tensors: headers.flatMap(({ tensors }) => tensors), metadata, bytes, index, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Opens a file, or an index and the files that it names. @throws ScalepointError `BAD_FILE`, and errors of `openShards` */
export async function openSafetensors(files: readonly OpenFile[], open: OpenInput): Promise<OpenModel> {
  const [{ input, source }, ...others] = files as [OpenFile, ...OpenFile[]];
  const head = await source.read(0, Math.min(32, source.size));
  if (beginsAsIndex(head)) {
    const given = others.map((other) => other.source);
    return openShards(input, source, given, { openInput: open });
  }
  const { tensors, metadata } = await readSafetensors(source);
  return { bytes: source.size, files: [source], tensors, metadata };
}
