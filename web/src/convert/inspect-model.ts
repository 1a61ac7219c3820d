/** Reads the contents of model files: their headers, and single tensors. */

import { convertersFrom } from '../architectures/registry.js';
import type { NewParameters } from '../arrays/options.js';
import type { BlockTensor, LinearQuantizedTensor } from '../arrays/tensor.js';
import { ScalepointError, typeError } from '../core/errors.js';
import type { Codes, Part } from '../formats/codecs/codec.js';
import { codecOf, float32Form, partsOf } from '../formats/codecs/registry.js';
import { quoted } from '../formats/files/bytes.js';
import { memorySink } from '../formats/files/sinks.js';
import type { FilePlan, MetadataValue } from '../formats/format.js';
import type { ModelFormat, ResultFormat } from '../formats/registry.js';
import { type Opened, withModel } from './open.js';
import type { ModelInput, OpenOptions } from './recognize.js';
import { withRunner } from './start.js';
import { readNamed, readStored, readTensorBytes, type Tensor, tensorNamed } from './stored-tensor.js';
import { checkOptions, checkWorkOptions, type WorkOptions, withCallbacks, workNames } from './work-options.js';
import { convertedElements, writePlan } from './writing.js';

/** Checks the options of a call that makes no file. */
function checkReadOptions(options: WorkOptions): void {
  checkOptions(options, workNames);
  checkWorkOptions(options);
  options.signal?.throwIfAborted();
}

function checkOpenOptions(options: OpenOptions): void {
  checkOptions(options, ['signal']);
  checkWorkOptions(options as WorkOptions);
}

function checkName(name: unknown): void {
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
  return withModel(file, options, async (opened) => {
    const info = await describeModel(opened);
    // Errors of files beside the model are ignored.
    options.signal?.throwIfAborted();
    return info;
  });
}

/**
 * Reads one tensor of a model file into a new array. The calls of `scalepoint` take floats and blocks of ggml as they are.
 * @example const q = sp.quantize(await readTensor('model.safetensors', 'fc1.weight'));
 * @throws ScalepointError `NOT_FOUND`, and what `inspectModel` throws
 */
export async function readTensor(file: ModelInput, name: string, options: OpenOptions = {}): Promise<Tensor> {
  checkName(name);
  checkOpenOptions(options);
  return withModel(file, options, (opened) => readNamed(opened.model, name));
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
  checkName(name);
  checkReadOptions(options);
  return withCallbacks(options, (own) => withModel(file, own, (opened) => readAsFloats(opened, name, own)));
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
  checkName(name);
  checkOpenOptions(options);
  return withModel(file, options, (opened) => readCodes(opened, name));
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

/**
 * The conversion to another format that a model seems to allow. Ignores errors of files beside the model, so that `inspectModel` does not
 * fail, and asks no server for such files.
 */
async function conversionOf({ format, model, beside }: Opened): Promise<Pick<ModelInfo, 'conversion'>> {
  const file = (name: string) => (beside.isRemote ? Promise.resolve(undefined) : beside.file(name));
  for (const converter of convertersFrom(format.name)) {
    const architecture = await converter.detect(model, { ...beside, file }).catch((error: unknown) => {
      if (error instanceof ScalepointError || error instanceof TypeError) return undefined;
      throw error;
    });
    if (architecture !== undefined) return { conversion: { format: converter.result as ResultFormat, architecture } };
  }
  return {};
}

/** Describes an open model. */
export async function describeModel(opened: Opened): Promise<ModelInfo> {
  const { format, model } = opened;
  const { bytes, files, tensors, metadata } = model;
  return {
    format: format.name as ModelFormat,
    bytes,
    files: files.map(({ name }) => name ?? ''),
    tensors: tensors.map(({ name, dtype, shape, bytes: size, byteOffset, file }) => {
      return { name, dtype, shape, bytes: size, byteOffset, file };
    }),
    metadata,
    ...(await conversionOf(opened)),
  };
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

/** Reads one tensor as floats. Codes are decoded with their scales. @throws ScalepointError `NOT_FOUND`, `UNSUPPORTED_DTYPE` */
export async function readAsFloats(
  { format, model }: Opened,
  name: string,
  options: WorkOptions,
): Promise<FloatTensor> {
  const source = tensorNamed(await format.tensors(model), name);
  if (codecOf(source.form).decode === undefined) {
    const message = `tensor ${quoted(name)}: ${source.type} is not a readable float type`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: name });
  }
  const [part] = partsOf(source.shape, float32Form) as readonly [Part];
  const plan: FilePlan = {
    format: format.name,
    files: [{ suffix: '', size: part.bytes, segments: [{ at: 0, tensor: 0, role: part.role }] }],
    tensors: [{ source, form: float32Form, parts: [part] }],
    notes: [],
    sidecars: [],
  };
  const sink = memorySink(part.bytes);
  const { signal, onProgress } = options;
  const { files } = model;
  await withRunner(convertedElements(plan), { sources: files, sinks: [sink] }, options, (runner) =>
    writePlan({ plan, files, sinks: [sink], runner, signal, onProgress }),
  );
  await sink.finish();
  const bytes = await sink.bytes();
  const own = bytes.byteLength === bytes.buffer.byteLength ? bytes : bytes.slice();
  return { name, shape: source.shape, data: new Float32Array(own.buffer) };
}

/** Reads the codes of one tensor. @throws ScalepointError `NOT_FOUND`, `UNSUPPORTED_DTYPE` */
export async function readCodes({ format, model }: Opened, name: string): Promise<Codes> {
  const { shape, form, parts, type } = tensorNamed(await format.tensors(model), name);
  const codec = codecOf(form);
  const fail = (): never => {
    const message = `tensor ${quoted(name)}: ${type} has no integer codes and no blocks`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: name });
  };
  if (codec.codes === undefined) return fail();
  const bytes: Record<string, Uint8Array<ArrayBuffer>> = {};
  for (const { role, tensor } of parts) bytes[role] = await readTensorBytes(model, tensor);
  return codec.codes(shape, form, bytes) ?? fail();
}
