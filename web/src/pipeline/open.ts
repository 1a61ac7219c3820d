/** Opens model files of every format that can be read: what they are is told by their content, not by their names. */

import { ScalepointError } from '../core/errors.js';
import { show } from '../core/show.js';
import { type ByteSource, type FileInput, openSource } from '../files/bytes.js';
import { type GgufHeader, type MetadataValue, readGguf } from '../formats/gguf/header.js';
import { npyMagic, openNpy } from '../formats/npy/header.js';
import { readSafetensors } from '../formats/safetensors/header.js';
import { openShards } from '../formats/safetensors/shards.js';
import type { SourceTensor } from './plan.js';

/** A file format that can be read. */
export type ModelFormat = 'safetensors' | 'gguf' | 'npy';

/**
 * A model: a file; or a sharded safetensors model, as its index (`model.safetensors.index.json`, which in Node finds the shards beside
 * it) or as a list of the index and all shards.
 */
export type ModelInput = FileInput | readonly FileInput[];

/** An open model. */
export interface OpenModel {
  readonly format: ModelFormat;
  /** Size of its files in bytes. */
  readonly bytes: number;
  /** What the tensors' `file` counts. */
  readonly files: readonly ByteSource[];
  /** In the order of their bytes. */
  readonly tensors: readonly SourceTensor[];
  /** Without a prototype, as `__proto__` may be a key. */
  readonly metadata: Readonly<Record<string, MetadataValue>>;
  /** Of a GGUF file. */
  readonly gguf?: GgufHeader;
}

/** What the first bytes of other common files mean, for the error. */
const strangers: readonly [name: string, start: readonly number[]][] = [
  ['a zip archive, such as a PyTorch or .npz file', [0x50, 0x4b, 0x03, 0x04]],
  ['a pickle, such as an old PyTorch file', [0x80, 0x02]],
  ['an HDF5 file', [0x89, 0x48, 0x44, 0x46]],
  ['a page of HTML or XML', [0x3c]],
  ['an ONNX file', [0x08]],
  ['a git-lfs pointer in place of the file', [...new TextEncoder().encode('version https://git-lfs')]],
];

const ggufMagic = [0x47, 0x47, 0x55, 0x46];
const brace = 0x7b;

/** Tells the format by the content. @throws ScalepointError `UNKNOWN_FORMAT` */
async function detectFormat(source: ByteSource): Promise<ModelFormat | 'index'> {
  const start = await source.read(0, Math.min(32, source.size));
  const startsWith = (bytes: readonly number[]) => bytes.every((byte, i) => start[i] === byte);
  if (startsWith(npyMagic)) return 'npy';
  if (startsWith(ggufMagic)) return 'gguf';
  // Of safetensors only this byte is fixed; the reader checks the rest and says what is wrong. A header of so many bytes that its
  // length begins like JSON has zeros next to it, as text has not.
  const isLength = start[0] !== brace || (start[6] === 0 && start[7] === 0);
  if (start[8] === brace && isLength) return 'safetensors';
  const first = start.find((byte) => byte !== 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d);
  if (first === brace) return 'index';
  const stranger = strangers.find(([, bytes]) => startsWith(bytes))?.[0];
  const hex = [...start.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  let seen = `the file begins with ${hex}`;
  if (source.size === 0) seen = 'the file is empty';
  if (stranger !== undefined) seen = `the file looks like ${stranger} (it begins with ${hex})`;
  throw new ScalepointError(
    'UNKNOWN_FORMAT',
    `${seen}; supported are safetensors, GGUF, .npy and the index.json of a sharded safetensors model`,
  );
}

async function readModel(source: ByteSource, format: ModelFormat): Promise<OpenModel> {
  if (format === 'gguf') {
    const gguf = await readGguf(source);
    const tensors = gguf.tensors.map((tensor) => ({ ...tensor, file: 0 }));
    return { format, bytes: source.size, files: [source], tensors, metadata: gguf.metadata, gguf };
  }
  if (format === 'safetensors') {
    const { tensors, metadata } = await readSafetensors(source);
    return {
      format,
      bytes: source.size,
      files: [source],
      tensors: tensors.map((tensor) => ({ ...tensor, file: 0 })),
      metadata,
    };
  }
  const { tensor, verbatim, read } = await openNpy(source);
  const metadata = Object.create(null) as Record<string, string>;
  // Elements that have to be rearranged have no place of their own in the file: they are read as a file of nothing else.
  const rearranged: ByteSource = { ...source, size: tensor.bytes, reference: undefined, read, readInto: undefined };
  return {
    format,
    bytes: source.size,
    files: [verbatim ? source : rearranged],
    tensors: [verbatim ? { ...tensor, file: 0 } : { ...tensor, byteOffset: 0, rearranged: true, file: 0 }],
    metadata,
  };
}

/** Opens a model, hands it to `use`, closes its files. */
export async function withModel<T>(input: ModelInput, use: (model: OpenModel) => Promise<T>): Promise<T> {
  const inputs: readonly FileInput[] = Array.isArray(input) ? input : [input as FileInput];
  if (inputs.length === 0) throw new RangeError(`file: expected at least one file, got ${show(input)}`);
  const sources: ByteSource[] = [];
  try {
    for (const file of inputs) sources.push(await openSource(file));
    const formats = await Promise.all(sources.map(detectFormat));
    const index = formats.indexOf('index');
    const first = sources[0] as ByteSource;
    if (index < 0 && sources.length === 1) return await use(await readModel(first, formats[0] as ModelFormat));
    if (index < 0) {
      throw new RangeError(`file: ${sources.length} files, but none of them is the index.json of a sharded model`);
    }
    const shards = await openShards(
      inputs[index] as FileInput,
      sources[index] as ByteSource,
      sources.filter((_, i) => i !== index),
    );
    try {
      return await use({ format: 'safetensors', ...shards });
    } finally {
      await shards.close();
    }
  } finally {
    for (const source of sources) await source.close();
  }
}
