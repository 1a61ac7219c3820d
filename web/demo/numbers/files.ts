import { type BlockType, blockTypes, type Scalepoint } from 'scalepoint';
import { type ModelTensor, readTensor, type Tensor } from 'scalepoint/model';
import { FileError, type ModelFile, mainFile, modelExtensions, openModelFiles } from '../shared/files.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { headOf, looksLikeText, strangerOf } from '../shared/strangers.js';
import { type DataSet, textData } from './data.js';
import { readText } from './numbers.js';

/** A model file, with tensors to choose from. */
export interface TensorFile extends ModelFile {
  readonly kind: 'tensors';
  readonly read: (tensor: ModelTensor) => Promise<DataSet>;
}

/** Content of a file: numbers, or tensors to choose from. */
export type OpenedFile = { readonly kind: 'data'; readonly data: DataSet } | TensorFile;

/** Most numbers read at once. As float32 they take 512 MiB; with codes and restored numbers they still fit in the memory of a tab. */
const mostNumbers = 2 ** 27;
/** Largest text file. Parsing takes many times its size, for the string and a list of numbers. */
const mostTextBytes = 32 * 2 ** 20;

const supported = `This page reads ${modelExtensions()}, text with numbers, and raw float32.`;

const stemOf = (name: string) => name.replace(/\.[^.]*$/, '').replace(/[^\w.-]+/g, '-') || 'numbers';

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
  const file = mainFile(files);
  if (file.size === 0) throw new FileError(`${file.name} is empty. ${supported}`);
  const head = await headOf(file);
  const model = await openModelFiles(files);
  if (model !== undefined) {
    const [first] = model.tensors;
    if (model.format === 'npy' && first !== undefined) {
      const data = await readOne(core, files, first, file.name);
      return { kind: 'data', data: { ...data, stem: stemOf(file.name) } };
    }
    const read = (tensor: ModelTensor) => readOne(core, files, tensor, `${tensor.name} in ${file.name}`);
    return { kind: 'tensors', ...model, read };
  }
  const stranger = strangerOf(head);
  if (stranger !== undefined) throw new FileError(`${file.name} is ${stranger}. ${supported}`);
  if (looksLikeText(head)) {
    if (file.size > mostTextBytes) {
      throw new FileError(
        `${file.name} is a text of ${formatBytes(file.size)}, more than this page takes (${formatBytes(mostTextBytes)}). Save the numbers as .npy instead.`,
      );
    }
    const result = readText(await file.text());
    if (result.kind === 'refused') throw new FileError(`${file.name} cannot be read. ${result.why}`);
    if (result.kind === 'question') {
      throw new FileError(
        `${file.name} can be read in several ways: “${result.question.word}” may be one number or more. Paste its text instead; the page then asks what the commas mean.`,
      );
    }
    const { parsed } = result;
    if (parsed.values.length === 0) throw new FileError(`${file.name} is a text without numbers. ${supported}`);
    return { kind: 'data', data: textData(parsed, file.name, stemOf(file.name)) };
  }
  if (file.size % 4 === 0) return { kind: 'data', data: await readRaw(file) };
  throw new FileError(
    `${file.name} has no format that this page knows, and its ${formatMany(file.size, 'byte')} are not a whole number of float32 values. ${supported}`,
  );
}
