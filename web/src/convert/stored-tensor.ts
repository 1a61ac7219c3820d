/** Reads tensors as files store them. */
import { type BlockType, blockTypes } from '../core/blocks.js';
import { ScalepointError } from '../core/errors.js';
import { type ByteSource, quoted } from '../formats/files/bytes.js';
import type { OpenModel, SourceTensor } from '../formats/format.js';

/** Arrays that hold elements as files store them. */
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

// The array of each element type. Types that are not listed are bytes.
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

/**
 * A tensor with its elements, in the array that belongs to its `dtype`. `quantize`, `compare` and the other calls of `scalepoint` take
 * tensors of floats and blocks as they are.
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
      /** ggml's name of the blocks, under the name that types of other tensors have. */
      readonly dtype: BlockType;
      /** Its blocks, byte for byte. */
      readonly data: Uint8Array<ArrayBuffer>;
    }
  | {
      /** Its type in the file: of safetensors or ONNX, or ggml's name of blocks that `dequantize` does not restore. */
      readonly dtype:
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
      /** Its bytes, as the file holds them. */
      readonly data: Uint8Array<ArrayBuffer>;
    }
);

/** The array of each element type, at run time. */
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

/** The tensor of that name. @throws ScalepointError `NOT_FOUND` */
export function tensorNamed<T extends { readonly name: string }>(tensors: readonly T[], name: string): T {
  const tensor = tensors.find((candidate) => candidate.name === name);
  if (tensor !== undefined) return tensor;
  throw new ScalepointError('NOT_FOUND', `the file has no tensor ${quoted(name)}`, { tensor: name });
}

/** Reads the bytes of a tensor into a buffer of their own. */
export async function readTensorBytes({ files }: OpenModel, tensor: SourceTensor): Promise<Uint8Array<ArrayBuffer>> {
  const { file, byteOffset } = tensor;
  const bytes = await (files[file] as ByteSource).read(byteOffset, byteOffset + tensor.bytes);
  // Bytes in memory are read as views at any alignment. From elsewhere they come in a buffer of their own.
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : bytes.slice();
}

/** Reads a tensor of an open model into a new array. */
export async function readStored(model: OpenModel, tensor: SourceTensor): Promise<Tensor> {
  const { name, dtype, shape } = tensor;
  const own = await readTensorBytes(model, tensor);
  const array = (Object.hasOwn(arrays, dtype) && arrays[dtype]) || Uint8Array;
  const data = new array(own.buffer);
  const block = blockTypes.find((type) => type === dtype);
  return { name, shape, dtype, data, ...(block && { kind: 'blocks', type: block }) } as Tensor;
}
