/** Describes models, and reads single tensors. */
import type { Codes, Part } from '../codecs/codec.js';
import { codecOf, float32Form, partsOf } from '../codecs/registry.js';
import { convertersFrom } from '../conversions/registry.js';
import { type BlockType, blockTypes } from '../core/blocks.js';
import { ScalepointError } from '../core/errors.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import { memorySink } from '../files/sinks.js';
import type { FilePlan, ModelContents, OpenModel, SourceTensor } from '../formats/format.js';
import type { ModelFormat, ResultFormat } from '../formats/registry.js';
import { type WorkOptions, withRunner } from '../pipeline/start.js';
import { convertedElements, writePlan } from '../pipeline/writing.js';
import type { Opened } from './open.js';

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
  /** Where its bytes begin, from the start of its file. */
  readonly byteOffset: number;
  /** Which file of a sharded model, from 0. */
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
  readonly metadata: ModelContents['metadata'];
  /** Set if the model can be converted to another format, whose targets may then be asked for. */
  readonly conversion?: {
    /** Format of the results. */
    readonly format: ResultFormat;
    /** The architecture, as that format calls it. */
    readonly architecture: string;
  };
}

/**
 * The conversion to another format that a model seems to allow. Files beside the model must not make `inspectModel` fail, and no server is
 * asked for them.
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

/** The array that holds a tensor's elements as they are stored. */
export type TensorData =
  | Float32Array
  | Float64Array
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array;

/** Element types whose arrays are not bytes. */
interface ElementArrays {
  F32: Float32Array<ArrayBuffer>;
  F64: Float64Array<ArrayBuffer>;
  /** The bits. */
  F16: Uint16Array<ArrayBuffer>;
  /** The bits. */
  BF16: Uint16Array<ArrayBuffer>;
  /** Pairs: real and imaginary part. */
  C64: Float32Array<ArrayBuffer>;
  I8: Int8Array<ArrayBuffer>;
  U8: Uint8Array<ArrayBuffer>;
  I16: Int16Array<ArrayBuffer>;
  U16: Uint16Array<ArrayBuffer>;
  I32: Int32Array<ArrayBuffer>;
  U32: Uint32Array<ArrayBuffer>;
  I64: BigInt64Array<ArrayBuffer>;
  U64: BigUint64Array<ArrayBuffer>;
}

/** Element types that are given as bytes: of safetensors and ONNX, and the blocks of ggml that nothing here restores. */
export type OtherDType =
  | 'BOOL'
  | 'F4'
  | `F6_${string}`
  | `F8_${string}`
  | 'C128'
  | 'STRING'
  | 'I2'
  | 'U2'
  | 'I4'
  | 'U4'
  | `IQ${string}`
  | `TQ${string}`
  | `Q8_${string}`
  | 'NVFP4';

/**
 * A tensor with its elements in the array for its `dtype`. `quantize`, `compare` and the other calls of `scalepoint` take tensors of floats
 * and blocks as they are.
 */
export type Tensor = {
  /** Its name in the file. */
  readonly name: string;
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
} & (
  | {
      [T in keyof ElementArrays]: {
        /** Its type in the file. */
        readonly dtype: T;
        /** Its elements in row-major order. */
        readonly data: ElementArrays[T];
      };
    }[keyof ElementArrays]
  | {
      /** A quantized tensor of `scalepoint`, for `dequantize`. */
      readonly kind: 'blocks';
      /** ggml's name of the blocks. */
      readonly type: BlockType;
      /** The same, as other tensors have it. */
      readonly dtype: BlockType;
      /** Its blocks, byte for byte. */
      readonly data: Uint8Array<ArrayBuffer>;
    }
  | {
      /** Its type in the file. */
      readonly dtype: OtherDType;
      /** Its bytes, as the file holds them. */
      readonly data: Uint8Array<ArrayBuffer>;
    }
);

/** Array constructors by type; other types are read as bytes. */
const arrays: Readonly<Record<string, new (buffer: ArrayBuffer) => TensorData>> = {
  F32: Float32Array,
  C64: Float32Array,
  F64: Float64Array,
  F16: Uint16Array,
  BF16: Uint16Array,
  U16: Uint16Array,
  I8: Int8Array,
  I16: Int16Array,
  I32: Int32Array,
  U32: Uint32Array,
  I64: BigInt64Array,
  U64: BigUint64Array,
};

function named<T extends { readonly name: string }>(tensors: readonly T[], name: string): T {
  const tensor = tensors.find((candidate) => candidate.name === name);
  if (tensor !== undefined) return tensor;
  throw new ScalepointError('NOT_FOUND', `the file has no tensor ${quoted(name)}`, { tensor: name });
}

/** Reads the bytes of a tensor into a buffer of their own. */
async function bytesOf({ files }: OpenModel, tensor: SourceTensor): Promise<Uint8Array<ArrayBuffer>> {
  const { file, byteOffset } = tensor;
  const bytes = await (files[file] as ByteSource).read(byteOffset, byteOffset + tensor.bytes);
  // Bytes in memory are read as views at any alignment. Other sources give a buffer of its own.
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : bytes.slice();
}

/** Reads one tensor into a new array. @throws ScalepointError `NOT_FOUND` */
export async function read(opened: Opened, name: string): Promise<Tensor> {
  return readStored(opened, named(opened.model.tensors, name));
}

/** Reads a tensor of an open model. */
export async function readStored({ model }: Opened, tensor: SourceTensor): Promise<Tensor> {
  const { name, dtype, shape } = tensor;
  const own = await bytesOf(model, tensor);
  const array = (Object.hasOwn(arrays, dtype) && arrays[dtype]) || Uint8Array;
  const data = new array(own.buffer);
  const block = blockTypes.find((type) => type === dtype);
  return { name, shape, dtype, data, ...(block && { kind: 'blocks', type: block }) } as Tensor;
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
  const source = named(await format.tensors(model), name);
  if (codecOf(source.form).decode === undefined) {
    const message = `tensor ${quoted(name)}: ${source.type} is no float type that can be read`;
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
  const { shape, form, parts, type } = named(await format.tensors(model), name);
  const codec = codecOf(form);
  const fail = (): never => {
    const message = `tensor ${quoted(name)}: ${type} has no integer codes and no blocks`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: name });
  };
  if (codec.codes === undefined) return fail();
  const bytes: Record<string, Uint8Array<ArrayBuffer>> = {};
  for (const { role, tensor } of parts) bytes[role] = await bytesOf(model, tensor);
  return codec.codes(shape, form, bytes) ?? fail();
}
