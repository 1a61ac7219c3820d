/**
 * Models in several safetensors files. An index, `model.safetensors.index.json`, maps each tensor to a file in the same folder. It is
 * untrusted: only plain file names are accepted, and everything in it is compared with the headers of the files.
 */
import { ScalepointError, typeError } from '../../core/errors.js';
import { type ByteSource, type FileInput, quoted } from '../files/bytes.js';
import { openSource } from '../files/open.js';
import type { OpenInput } from '../format.js';
import { besideFile, inFile, type OpenByName } from '../shards.js';
import { readSafetensors, type SafetensorsHeader, type TensorInfo } from './header.js';
import { JsonReader, maxExtras, maxMembers } from './json.js';

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

/** Checks that a name from an index is a file of the kind in the same folder, on any system. */
function checkFileName(name: string, kind: ShardKind, json: JsonReader, position: number): void {
  // Refuse other folders, drives and streams of Windows, and control characters.
  const strange = name === '' || /[/\\:]|\.\./.test(name) || [...name].some((c) => c < ' ' || c === '\x7f');
  if (strange) json.fail(`the file name ${quoted(name)} is not a plain name`, position);
  if (!kind.names.test(name)) {
    json.fail(`the file ${quoted(name)} is not called ${kind.end}; other formats cannot be read`, position);
  }
}

function readWeightMap(json: JsonReader, kind: ShardKind): Map<string, string> {
  const map = new Map<string, string>();
  // Share equal strings: many tensors lie in few files.
  const files = new Map<string, string>();
  json.object('weight_map', maxMembers, (tensor) => {
    json.tensor = tensor;
    json.peek();
    const { position } = json;
    const name = json.string('the name of its file');
    const known = files.get(name);
    if (known === undefined) {
      checkFileName(name, kind, json, position);
      files.set(name, name);
    }
    map.set(tensor, known ?? name);
    json.tensor = undefined;
  });
  return map;
}

/**
 * Reads and checks an index.
 * @throws ScalepointError `BAD_FILE` with the offset, and the tensor if one is at fault
 */
export async function readIndex(source: ByteSource, kind = safetensorsKind): Promise<ShardIndex> {
  if (source.size > maxIndexBytes) {
    throw new ScalepointError(
      'BAD_FILE',
      `index: the file has ${source.size} bytes, more than the ${maxIndexBytes} allowed`,
      { byteOffset: maxIndexBytes },
    );
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
    } else if (key === 'weight_map') found.weightMap = readWeightMap(json, kind);
    else json.skip(2);
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

/** Finds files by name among those given. */
function amongGiven(given: readonly ByteSource[]): OpenByName {
  return async (name) => {
    const [source, other] = given.filter((candidate) => candidate.name === name);
    if (source === undefined) {
      throw new ScalepointError(
        'NOT_FOUND',
        `the index names the file ${quoted(name)}, which is not among those given`,
      );
    }
    if (other !== undefined) throw typeError('file', { kind: 'distinct' }, name);
    return source;
  };
}

/** Compares the headers with the index. @throws ScalepointError `BAD_FILE` */
function checkHeaders(
  { weightMap }: ShardIndex,
  names: readonly string[],
  headers: readonly SafetensorsHeader[],
): void {
  const fail = (tensor: string, message: string): never => {
    throw new ScalepointError('BAD_FILE', `tensor ${quoted(tensor)}: ${message}`, { tensor });
  };
  const seen = new Map<string, string>();
  headers.forEach(({ tensors }, i) => {
    const file = names[i] as string;
    for (const { name } of tensors) {
      const other = seen.get(name);
      if (other !== undefined) fail(name, `it is in two files, ${quoted(other)} and ${quoted(file)}`);
      seen.set(name, file);
    }
  });
  for (const [tensor, file] of weightMap) {
    const where = seen.get(tensor);
    if (where === file) continue;
    const instead = where === undefined ? 'which does not have it' : `but it is in ${quoted(where)}`;
    fail(tensor, `the index says that it is in ${quoted(file)}, ${instead}`);
  }
  for (const [tensor, file] of seen) {
    if (!weightMap.has(tensor)) fail(tensor, `it is in ${quoted(file)}, but not in the index`);
  }
}

/**
 * Opens a model in several files.
 * @param input the index as given by the caller. Without given files, they are opened in its folder.
 * @param source the index
 * @param given the files, in any order. Files that the index does not name are ignored.
 * @param openInput opens the others
 * @param kind safetensors by default
 * @throws TypeError if the files cannot be found by name; ScalepointError `BAD_FILE` if the index or a file is invalid or they contradict
 *   each other, `NOT_FOUND` or `IO` with the name of a missing file. Opened files are closed on failure.
 */
export async function openShards(
  input: FileInput,
  source: ByteSource,
  given: readonly ByteSource[] = [],
  openInput: OpenInput = openSource,
  kind = safetensorsKind,
): Promise<Shards> {
  const open =
    given.length > 0 ? amongGiven(given) : besideFile(input, openInput, { kind: 'number', min: 2, unit: 'files' });
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
    checkHeaders(index, names, headers);
    const metadata = Object.create(null) as Record<string, string>;
    for (const header of headers) {
      for (const [key, value] of Object.entries(header.metadata)) if (!(key in metadata)) metadata[key] = value;
    }
    return {
      files,
      tensors: headers.flatMap(({ tensors }) => tensors),
      metadata,
      bytes,
      index,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
