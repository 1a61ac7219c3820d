// A reader of safetensors by the format's README: a length, a header of JSON, and data without gaps.

import { product } from '../models.js';
import { bfloat16, type FloatFormat, float16, float32, numberOf } from './floats.js';

const sizes: Readonly<Record<string, number>> = {
  ...{ F64: 64, F32: 32, F16: 16, BF16: 16, F8_E4M3: 8, F8_E8M0: 8, I64: 64, I32: 32, U32: 32, I16: 16, I8: 8 },
  ...{ U8: 8, BOOL: 8 },
};

/** An array of a file. */
export interface Stored {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/** Arrays and metadata of a file. */
export interface Contents {
  readonly tensors: Map<string, Stored>;
  readonly metadata: Readonly<Record<string, string>>;
}

/** Fails with a message unless a condition holds. */
export function must(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Error(message);
}

export function readSafetensors(file: Uint8Array): Contents {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  must(8 + length <= file.length, 'the header is longer than the file');
  const { __metadata__: metadata = {}, ...entries } = JSON.parse(
    new TextDecoder().decode(file.subarray(8, 8 + length)),
  );
  const tensors = new Map<string, Stored>();
  const ends: (readonly [number, number])[] = [];
  for (const [name, { dtype, shape, data_offsets }] of Object.entries<{
    dtype: string;
    shape: number[];
    data_offsets: [number, number];
  }>(entries)) {
    const bits = sizes[dtype];
    must(bits !== undefined, `${name}: type ${dtype}`);
    const [begin, end] = data_offsets;
    must((end - begin) * 8 === product(shape) * bits, `${name}: ${end - begin} bytes`);
    ends.push([begin, end]);
    tensors.set(name, { dtype, shape, bytes: file.subarray(8 + length + begin, 8 + length + end) });
  }
  ends.sort(([a, x], [b, y]) => a - b || x - y);
  let at = 0;
  for (const [begin, end] of ends) {
    must(begin === at, `a gap or an overlap at byte ${at}`);
    at = end;
  }
  must(8 + length + at === file.length, 'bytes behind the last array');
  return { tensors, metadata };
}

/** 32-bit words, least significant byte first. */
export function wordsOf({ bytes }: Stored): Uint32Array {
  return Uint32Array.from({ length: bytes.length / 4 }, (_, i) =>
    new DataView(bytes.buffer, bytes.byteOffset).getUint32(4 * i, true),
  );
}

/** Numbers of an array of floats. */
export function floatsOf({ dtype, bytes }: Stored): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (dtype === 'F32') return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  const format: FloatFormat | undefined = { F16: float16, BF16: bfloat16, F32: float32 }[dtype];
  must(format !== undefined, `${dtype} instead of a float type`);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => numberOf(view.getUint16(2 * i, true), format));
}
