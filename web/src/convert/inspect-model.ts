/** Reads the contents of model files: their headers, and single tensors. */

import { convertersFrom } from '../architectures/registry.js';
import type { NewParameters } from '../arrays/options.js';
import type { BlockTensor, LinearQuantizedTensor } from '../arrays/tensor.js';
import { ScalepointError, typeError } from '../core/errors.js';
import { codecOf } from '../formats/codecs/registry.js';
import { quoted } from '../formats/files/bytes.js';
import type { MetadataValue } from '../formats/format.js';
import type { ModelFormat, ResultFormat } from '../formats/registry.js';
import { type Opened, withModel } from './open.js';
import type { ModelInput, OpenOptions } from './recognize.js';
import { readStored, readTensorBytes, type Tensor, tensorNamed } from './stored-tensor.js';
import { checkOptions, checkWorkOptions, type WorkOptions, withCallbacks, workNames } from './work-options.js';
import { tensorFloats } from './writing.js';

function checkOpenOptions(options: OpenOptions, names: readonly string[] = ['signal']): void {
  checkOptions(options, names);
  checkWorkOptions(options as WorkOptions);
}

function checkTensorName(name: unknown): void {
  if (typeof name === 'string') return;
  throw typeError('name', { kind: 'text', form: 'the name of a tensor', examples: ['fc1.weight'] }, name);
}

/**
 * Lists the contents of a model. Reads headers only, and recognizes the format by the content, not by the name. Takes at most four times
 * the memory of the header, and 1 KiB for each tensor and each key of its metadata.
 * @example const { tensors } = await inspectModel('model.safetensors');
 * @throws ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE` or `IO`; TypeError if `file` is not a readable input; the signal's reason
 */
export async function inspectModel(file: ModelInput, options: OpenOptions = {}): Promise<ModelInfo> {
  checkOpenOptions(options);
  return withModel(file, options, async ({ format, model, beside }) => {
    const { bytes, files, tensors: stored, metadata } = model;
    // Find the conversion to another format that the model seems to allow. Ask no server for files beside it, and ignore their errors.
    let conversion: ModelInfo['conversion'];
    const besideFile = (name: string) => (beside.isRemote ? Promise.resolve(undefined) : beside.file(name));
    for (const converter of convertersFrom(format.name)) {
      const architecture = await converter.detect(model, { ...beside, file: besideFile }).catch((error: unknown) => {
        if (error instanceof ScalepointError || error instanceof TypeError) return undefined;
        throw error;
      });
      if (architecture === undefined) continue;
      conversion = { format: converter.result as ResultFormat, architecture };
      break;
    }
    options.signal?.throwIfAborted();
    // Tensors that are put together out of single elements have a source each behind the first file, which holds them.
    const apart = new Set(stored.flatMap(({ rearranged, file }) => (rearranged === true && file > 0 ? [file] : [])));
    const own = new Map([...files.keys()].filter((index) => !apart.has(index)).map((index, place) => [index, place]));
    return {
      format: format.name as ModelFormat,
      bytes,
      files: [...own.keys()].map((index) => files[index]?.name ?? ''),
      tensors: stored.map(({ name, dtype, shape, bytes: size, byteOffset, file: index }) => {
        return { name, dtype, shape, bytes: size, byteOffset, file: own.get(index) ?? 0 };
      }),
      metadata,
      ...(conversion && { conversion }),
    };
  });
}

/**
 * Reads one tensor of a model file into a new array. The calls of `scalepoint` take floats and blocks of ggml as they are.
 * @example const q = sp.quantize(await readTensor('model.safetensors', 'fc1.weight'));
 * @throws ScalepointError `NOT_FOUND`, and what `inspectModel` throws
 */
export async function readTensor(file: ModelInput, name: string, options: OpenOptions = {}): Promise<Tensor> {
  checkTensorName(name);
  checkOpenOptions(options);
  return withModel(file, options, ({ model }) => readStored(model, tensorNamed(model.tensors, name)));
}

/**
 * Reads all tensors of a model file one by one, in the order of their bytes. The file is open until the loop ends.
 * @example for await (const tensor of tensors('model.safetensors')) console.log(tensor.name, tensor.data.length);
 * @throws what `inspectModel` throws
 */
export async function* tensors(file: ModelInput, options: OpenOptions = {}): AsyncGenerator<Tensor, void, void> {
  checkOpenOptions(options);
  let close = () => {};
  const closed = new Promise<void>((resolve) => {
    close = resolve;
  });
  let work: Promise<void> | undefined;
  const opened = await new Promise<Opened>((resolve, reject) => {
    work = withModel(file, options, (model) => {
      resolve(model);
      return closed;
    });
    work.catch(reject);
  });
  try {
    for (const tensor of opened.model.tensors) yield await readStored(opened.model, tensor);
  } finally {
    close();
    await work;
  }
}

/**
 * Reads one tensor of a model file into a new array of floats: floats of any type; codes with their scales and zero
 * points, by the name of the weight (`X.weight`, also where the file holds `X.weight_packed`); blocks of GGUF.
 * @example const { shape, data } = await readFloats('model.int8.safetensors', 'conv1.weight');
 * @throws ScalepointError `NOT_FOUND`; `UNSUPPORTED_DTYPE` if the tensor does not stand for floats; and what `inspectModel` throws
 */
export async function readFloats(file: ModelInput, name: string, options: WorkOptions = {}): Promise<FloatTensor> {
  checkTensorName(name);
  checkOpenOptions(options, workNames);
  options.signal?.throwIfAborted();
  return withCallbacks(options, (own) =>
    withModel(file, own, async ({ format, model }) => {
      const source = tensorNamed(await format.tensors(model), name);
      const { shape, form, type } = source;
      if (codecOf(form).decode === undefined) throw unreadable(name, `${type} is not a readable float type`);
      return { name, shape, data: await tensorFloats(source, format.name, model.files, own) };
    }),
  );
}

/**
 * Reads one quantized tensor of a model file as `scalepoint` has it, for `dequantize`, `compare` or `linear`: integer codes by the name of
 * the weight, or blocks of GGUF.
 * @example const layer = sp.linear(await readQuantized('model.int4.safetensors', 'fc1.weight'));
 * @throws ScalepointError `NOT_FOUND`; `UNSUPPORTED_DTYPE` if the tensor has no integer codes; and what `inspectModel` throws
 */
export async function readQuantized(
  file: ModelInput,
  name: string,
  options: OpenOptions = {},
): Promise<(LinearQuantizedTensor<Int8Array<ArrayBuffer>> & NewParameters) | BlockTensor<Uint8Array<ArrayBuffer>>> {
  checkTensorName(name);
  checkOpenOptions(options);
  return withModel(file, options, async ({ format, model }) => {
    const { shape, form, parts, type } = tensorNamed(await format.tensors(model), name);
    const codec = codecOf(form);
    const bytes: Record<string, Uint8Array<ArrayBuffer>> = {};
    for (const { role, tensor } of codec.codes === undefined ? [] : parts)
      bytes[role] = await readTensorBytes(model, tensor);
    const found = codec.codes?.(shape, form, bytes);
    if (found === undefined) throw unreadable(name, `${type} has no integer codes and no blocks`);
    return found;
  });
}

/** A tensor in a model. */
export interface ModelTensor {
  /** Its name in the file. */
  readonly name: string;
  /** As the format spells it: `F32`, `BF16`, `I64`, `Q4_K`. */
  readonly dtype: string;
  /** Row-major: the last dimension runs fastest. Empty for a scalar. */
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** Offset of its first byte from the start of its file. */
  readonly byteOffset: number;
  /** Index of its file in a sharded model, from 0. */
  readonly file: number;
}

/** The contents of a model. */
export interface ModelInfo {
  /** The format of the file. */
  readonly format: ModelFormat;
  /** Size of its files in bytes. */
  readonly bytes: number;
  /** Names of its files; an empty string for a file without a name. */
  readonly files: readonly string[];
  /** In the order of their bytes. A .npy file has one, named after the file. */
  readonly tensors: readonly ModelTensor[];
  /**
   * The strings of safetensors' `__metadata__`, or the key-value pairs of a GGUF file, whose long arrays are shown by their length and
   * first elements. Without a prototype, as `__proto__` may be a key.
   */
  readonly metadata: Readonly<Record<string, MetadataValue>>;
  /** Set if the model can be converted to another format. The targets of that format are then valid, too. */
  readonly conversion?:
    | {
        /** Format of the results. */
        readonly format: ResultFormat;
        /** The architecture, as that format calls it. */
        readonly architecture: string;
      }
    | undefined;
}

/** A tensor as floats. */
export interface FloatTensor {
  /** Its name in the file. */
  readonly name: string;
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
  /** Its values. */
  readonly data: Float32Array<ArrayBuffer>;
}

/** The error for a tensor that a call cannot read. */
export function unreadable(name: string, message: string): ScalepointError {
  return new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${message}`, { tensor: name });
}
