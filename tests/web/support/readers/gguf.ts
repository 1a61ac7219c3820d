// MXFP4 and NVFP4 in GGUF, as ggml restores them and llama.cpp scales them. Written without knowledge of the encoder under test.
//   ggml-org/llama.cpp 01243c58 (ggml/src/ggml-quants.c; block sizes and types of ggml/include/ggml.h, values of ggml-impl.h)
import { must } from './safetensors.js';

/** A tensor: type of ggml, sizes with the row first, bytes. */
interface GgufTensor {
  readonly type: number;
  readonly sizes: readonly number[];
  readonly bytes: Uint8Array;
}

const blocks: Readonly<Record<number, readonly [elements: number, bytes: number]>> = {
  ...{ 0: [1, 4], 8: [32, 34], 14: [256, 210], 39: [32, 17], 40: [64, 36] },
};

/** Reads the tensors of a GGUF file, version 3, with an alignment of 32. */
export function readGguf(file: Uint8Array): Map<string, GgufTensor> {
  const view = new DataView(file.buffer, file.byteOffset, file.length);
  let at = 0;
  const u32 = () => {
    at += 4;
    return view.getUint32(at - 4, true);
  };
  const u64 = () => {
    at += 8;
    return Number(view.getBigUint64(at - 8, true));
  };
  const text = () => {
    const length = u64();
    at += length;
    return new TextDecoder().decode(file.subarray(at - length, at));
  };
  const widths = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
  const skip = (type: number): void => {
    if (type === 8) text();
    else if (type === 9) {
      const inner = u32();
      for (let left = u64(); left > 0; left--) skip(inner);
    } else at += widths[type]!;
  };
  must(u32() === 0x46554747 && u32() === 3, 'no GGUF of version 3');
  const [count, pairs] = [u64(), u64()];
  for (let i = 0; i < pairs; i++) {
    text();
    skip(u32());
  }
  const infos = Array.from({ length: count }, () => {
    const name = text();
    const sizes = Array.from({ length: u32() }, u64);
    return { name, sizes, type: u32(), offset: u64() };
  });
  const start = Math.ceil(at / 32) * 32;
  return new Map(
    infos.map(({ name, sizes, type, offset }) => {
      const block = blocks[type];
      must(block !== undefined && sizes[0]! % block[0] === 0 && offset % 32 === 0, `${name}: type ${type}`);
      const length = (sizes.reduce((a, b) => a * b, 1) / block[0]) * block[1];
      must(start + offset + length <= file.length, `${name} ends behind the file`);
      return [name, { type, sizes, bytes: file.subarray(start + offset, start + offset + length) }];
    }),
  );
}

/** Twice the values of float4. */
const doubled = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/** Half the value of an unsigned float8. */
function half8(byte: number): number {
  if (byte === 0 || byte === 0x7f) return 0;
  const [exponent, fraction] = [(byte >> 3) & 15, byte & 7];
  return (exponent === 0 ? fraction * 2 ** -9 : (1 + fraction / 8) * 2 ** (exponent - 7)) / 2;
}

/**
 * Numbers of a tensor in MXFP4 or NVFP4 (`dequantize_row_mxfp4`, `dequantize_row_nvfp4`).
 * @param whole scale of the whole tensor, which llama.cpp multiplies with the product of a matrix
 */
export function restoredBlocks({ type, sizes, bytes }: GgufTensor, whole = 1): Float32Array {
  const [elements, size] = blocks[type]!;
  const values = new Float32Array(sizes.reduce((a, b) => a * b, 1));
  for (let b = 0; b < values.length / elements; b++) {
    const block = bytes.subarray(b * size, (b + 1) * size);
    const group = type === 39 ? 32 : 16;
    for (let s = 0; s < elements / group; s++) {
      // E8M0 is halved, too: 2^(byte - 128).
      const scale = type === 39 ? 2 ** (block[0]! - 128) : Math.fround(half8(block[s]!) * whole);
      for (let j = 0; j < group / 2; j++) {
        const pair = block[(type === 39 ? 1 : 4) + (s * group) / 2 + j]!;
        const place = b * elements + s * group + j;
        values[place] = doubled[pair & 15]! * scale;
        values[place + group / 2] = doubled[pair >> 4]! * scale;
      }
    }
  }
  return values;
}

/** Numbers of 32 weights after `quantize_row_mxfp4_ref`. Ties go to the smaller code. */
export function mxfp4Rule(group: Float32Array): number[] {
  const most = Math.max(...group.map(Math.abs));
  const byte = most > 0 ? (Math.floor(Math.fround(Math.log2(most))) - 2 + 127) & 255 : 0;
  const scale = 2 ** (byte - 128);
  return [...group].map((v) => {
    let best = 0;
    for (let code = 1; code < 16; code++)
      if (Math.abs(Math.fround(doubled[code]! * scale - v)) < Math.abs(Math.fround(doubled[best]! * scale - v)))
        best = code;
    return doubled[best]! * scale;
  });
}
