import { type BlockType, blockTypes, type Scalepoint } from 'scalepoint';
import { inspectModel, type ModelFormat, type ModelTensor, readTensor, type Tensor } from 'scalepoint/model';
import { type DataSet, textData } from './data.js';
import { formatBytes, formatMany } from './format.js';
import { parseNumbers } from './numbers.js';

/** A model file, with tensors to choose from. */
export interface TensorFile {
  readonly kind: 'tensors';
  readonly name: string;
  readonly format: ModelFormat;
  /** One file, or an index and all of its shards. */
  readonly files: readonly File[];
  readonly tensors: readonly ModelTensor[];
  readonly read: (tensor: ModelTensor) => Promise<DataSet>;
}

/** What a file holds: numbers, or tensors to choose from. */
export type OpenedFile = { readonly kind: 'data'; readonly data: DataSet } | TensorFile;

/** The page cannot use a file. The message says why, and what to do. */
export class FileError extends Error {
  override readonly name = 'FileError';
}

/** Most numbers read at once. As float32 they take 512 MiB; with codes and restored numbers they still fit in the memory of a tab. */
const mostNumbers = 2 ** 27;
/** Largest text file. Parsing takes many times its size, for the string and a list of numbers. */
const mostTextBytes = 32 * 2 ** 20;

const supported = 'This page reads .safetensors, .gguf, .npy, text with numbers, and raw float32.';

/** First bytes of common files that must not be read as raw float32. */
const strangers: readonly { readonly magic: readonly number[]; readonly what: string }[] = [
  { magic: [0x50, 0x4b, 0x03, 0x04], what: 'a zip archive (.npz and PyTorch files are such; unpack it first)' },
  { magic: [0x80, 0x02], what: 'a Python pickle' },
  { magic: [0x89, 0x48, 0x44, 0x46], what: 'an HDF5 file' },
  { magic: [0x89, 0x50, 0x4e, 0x47], what: 'a PNG picture' },
  { magic: [0xff, 0xd8, 0xff], what: 'a JPEG picture' },
  { magic: [0x25, 0x50, 0x44, 0x46], what: 'a PDF document' },
  { magic: [0x1f, 0x8b], what: 'a gzip archive (unpack it first)' },
];

const stemOf = (name: string) => name.replace(/\.[^.]*$/, '').replace(/[^\w.-]+/g, '-') || 'numbers';

const startsWith = (bytes: Uint8Array, magic: readonly number[]) => magic.every((byte, i) => bytes[i] === byte);

/** Whether a file starts like safetensors: eight bytes with the length of the header, then the brace of its JSON. */
function looksLikeSafetensors(head: Uint8Array, size: number): boolean {
  if (head.length < 10 || head[8] !== 0x7b) return false;
  const length = new DataView(head.buffer, head.byteOffset).getBigUint64(0, true);
  return length >= 2n && length <= BigInt(size - 8);
}

/** Whether a file starts like text: no control bytes except tab, line feed and carriage return. */
function looksLikeText(head: Uint8Array): boolean {
  return head.length > 0 && head.every((byte) => byte >= 0x20 || byte === 9 || byte === 10 || byte === 13);
}

/** The dtypes of tensors that this page quantizes. */
export const floatTypes: readonly string[] = ['F64', 'F32', 'F16', 'BF16', ...blockTypes];

/**
 * The values of a tensor as float32. F16 and BF16 convert exactly. F64 is rounded to float32, as `quantize` rounds it. Blocks are
 * dequantized.
 */
function toFloat32(
  core: Scalepoint,
  { name, dtype, shape, data }: Tensor,
): { values: Float32Array; from?: 'float16' | 'bfloat16' } {
  if (dtype === 'F32' && data instanceof Float32Array) return { values: data };
  if (dtype === 'F64' && data instanceof Float64Array) return { values: Float32Array.from(data) };
  if (data instanceof Uint16Array && (dtype === 'F16' || dtype === 'BF16')) {
    const from = dtype === 'F16' ? 'float16' : 'bfloat16';
    return { values: core.castToFloat32(data, from), from };
  }
  if (data instanceof Uint8Array && floatTypes.includes(dtype)) {
    return { values: core.dequantize({ kind: 'blocks', type: dtype as BlockType, shape, data }) };
  }
  throw new FileError(
    `${name} holds ${dtype}. This page quantizes floats and ggml's blocks: ${floatTypes.join(', ')}. Choose another tensor.`,
  );
}

/** Reads one tensor of a model file. */
async function readOne(core: Scalepoint, files: readonly File[], entry: ModelTensor, title: string): Promise<DataSet> {
  const count = entry.shape.reduce((a, b) => a * b, 1);
  if (count === 0)
    throw new FileError(`${entry.name} is empty: its shape is [${entry.shape.join(', ')}]. Choose another tensor.`);
  if (count > mostNumbers) {
    throw new FileError(
      `${entry.name} holds ${formatMany(count, 'number')}, more than this page takes at once (${formatMany(mostNumbers, 'number')}). Choose a smaller tensor, or use the package in your own code.`,
    );
  }
  const tensor = await readTensor(files, entry.name);
  const { values, from } = toFloat32(core, tensor);
  return {
    title,
    values,
    shape: [...tensor.shape],
    stored: { name: entry.dtype, bytes: entry.bytes },
    origin: { kind: 'file', tensor: entry.name, ...(from !== undefined && { from }) },
    stem: stemOf(`${entry.name}.`),
  };
}

/** Reads a file as raw little-endian float32. */
async function readRaw(file: File): Promise<DataSet> {
  if (file.size > mostNumbers * 4) {
    throw new FileError(
      `${file.name} is larger than this page takes at once (${formatBytes(mostNumbers * 4)}). Cut it into pieces, or use the package in your own code.`,
    );
  }
  const bytes = await file.arrayBuffer();
  const view = new DataView(bytes);
  const values = new Float32Array(bytes.byteLength / 4);
  for (let i = 0; i < values.length; i++) values[i] = view.getFloat32(i * 4, true);
  // Bytes of another format rarely give floats of ordinary magnitude.
  const odd = values.reduce((n, x) => n + Number(!(Math.abs(x) < 1e12 && (x === 0 || Math.abs(x) > 1e-30))), 0);
  return {
    title: file.name,
    values,
    shape: [values.length],
    stored: { name: 'float32', bytes: file.size },
    origin: { kind: 'raw' },
    stem: stemOf(file.name),
    note:
      odd > values.length / 10
        ? 'Read as raw float32, but many of the numbers are absurd or not finite: it may be something else.'
        : 'Read as raw float32, little-endian: its size is a multiple of 4, and nothing says that it is anything else.',
  };
}

/**
 * Detects the format of a file, then reads its numbers or lists its tensors.
 * @throws FileError if the page does not read such files; ScalepointError if the file violates its format
 */
export async function openFile(core: Scalepoint, files: readonly File[]): Promise<OpenedFile> {
  const file = files.find(({ name }) => /\.json$/i.test(name)) ?? (files[0] as File);
  if (file.size === 0) throw new FileError(`${file.name} is empty. ${supported}`);
  const head = new Uint8Array(await file.slice(0, 4096).arrayBuffer());
  const numpy = startsWith(head, [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59]);
  const gguf = startsWith(head, [0x47, 0x47, 0x55, 0x46]);
  const safetensors = looksLikeSafetensors(head, file.size) || /\.safetensors(\.index\.json)?$/i.test(file.name);
  if (numpy || gguf || safetensors || files.length > 1) {
    const { format, tensors } = await inspectModel(files);
    const [first] = tensors;
    if (first === undefined) throw new FileError(`${file.name} holds no tensors. ${supported}`);
    if (numpy) {
      const data = await readOne(core, files, first, file.name);
      return { kind: 'data', data: { ...data, stem: stemOf(file.name) } };
    }
    return {
      kind: 'tensors',
      name: file.name,
      format,
      files,
      tensors,
      read: (tensor) => readOne(core, files, tensor, `${tensor.name} in ${file.name}`),
    };
  }
  const stranger = strangers.find(({ magic }) => startsWith(head, magic));
  if (stranger !== undefined) throw new FileError(`${file.name} is ${stranger.what}. ${supported}`);
  if (/\.onnx$/i.test(file.name)) throw new FileError(`${file.name} is an ONNX model. ${supported}`);
  if (looksLikeText(head)) {
    if (file.size > mostTextBytes) {
      throw new FileError(
        `${file.name} is a text of ${formatBytes(file.size)}, more than this page takes (${formatBytes(mostTextBytes)}). Save the numbers as .npy instead.`,
      );
    }
    const parsed = parseNumbers(await file.text());
    if (parsed.values.length === 0) throw new FileError(`${file.name} is a text without numbers. ${supported}`);
    return { kind: 'data', data: textData(parsed, file.name, stemOf(file.name)) };
  }
  if (file.size % 4 === 0) return { kind: 'data', data: await readRaw(file) };
  throw new FileError(
    `${file.name} is of no format known here, and its ${formatMany(file.size, 'byte')} are no whole number of float32. ${supported}`,
  );
}
