// ggml's own quantizers, from llama.cpp's shared libraries (Node only).
import { join } from 'node:path';
import { type BlockType, type BlockTypeInfo, blockTypeInfo } from 'scalepoint';
import { native, once } from './native.js';

const ggml = once(() => native().koffi.load(join(native().folder, 'libggml-base.so')));

const quantizeChunk = once(
  () =>
    ggml().func(
      'size_t ggml_quantize_chunk(int type, void *from, void *to, int64_t start, int64_t rows, int64_t row, void *importance)',
    ) as (
      type: number,
      from: Float32Array,
      to: Uint8Array,
      start: number,
      rows: number,
      row: number,
      importance: Float32Array | null,
    ) => number,
);

/** A type of ggml: one with loops in the package, or facts of another. */
type Type = BlockType | Pick<BlockTypeInfo, 'name' | 'id' | 'elements' | 'bytes'>;

const factsOf = (type: Type) => (typeof type === 'string' ? blockTypeInfo(type) : type);

/** Quantizes with ggml. With importance, one number for each column, x is rows of as many; else its blocks are rows. */
export function ggmlQuantize(type: Type, x: Float32Array, importance?: Float32Array): Uint8Array<ArrayBuffer> {
  const { id, elements, bytes } = factsOf(type);
  if (x.length % elements !== 0) throw new RangeError(`x: ${x.length} elements are no whole number of blocks`);
  const blocks = new Uint8Array((x.length / elements) * bytes);
  const row = importance?.length ?? elements;
  const written = quantizeChunk()(id, x, blocks, 0, x.length / row, row, importance ?? null);
  if (written !== blocks.length) throw new Error(`ggml wrote ${written} bytes, not ${blocks.length}`);
  return blocks;
}

const dequantizers = new Map<string, (blocks: Uint8Array, x: Float32Array, n: number) => void>();

/** Dequantizes with ggml. */
export function ggmlDequantize(type: Type, blocks: Uint8Array): Float32Array<ArrayBuffer> {
  const { name: typeName, elements, bytes } = factsOf(type);
  if (blocks.length % bytes !== 0) throw new RangeError(`blocks: ${blocks.length} bytes are no whole number of them`);
  let dequantize = dequantizers.get(typeName);
  if (dequantize === undefined) {
    // The names are in lower case, except for the K.
    const name = `dequantize_row_${typeName.toLowerCase().replace(/k$/, 'K')}`;
    dequantize = ggml().func(`void ${name}(void *blocks, void *x, int64_t n)`) as typeof dequantize & object;
    dequantizers.set(typeName, dequantize);
  }
  const x = new Float32Array((blocks.length / bytes) * elements);
  dequantize(blocks, x, x.length);
  return x;
}

const requiresImportance = once(
  () => ggml().func('bool ggml_quantize_requires_imatrix(int type)') as (type: number) => boolean,
);

/** True if ggml refuses to quantize without the importance of columns. */
export function ggmlRequiresImportance(type: BlockType): boolean {
  return requiresImportance()(blockTypeInfo(type).id);
}
