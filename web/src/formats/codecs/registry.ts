/** All codecs. A new codec is added to the list below. */
import { bitsAndBytes } from './bitsandbytes.js';
import { type CastForm, cast } from './cast.js';
import type { Codec, Form, Part } from './codec.js';
import { comfy } from './comfy.js';
import { compressedTensors } from './compressed-tensors.js';
import { copyCodec } from './copy.js';
import { dequantizeLinear } from './dequantize-linear.js';
import { ggml } from './ggml.js';
import { gptq } from './gptq.js';
import { lowRankCodec } from './low-rank.js';
import { matMulBnb4 } from './matmul-bnb4.js';
import { matMulNBits } from './matmul-nbits.js';
import { microscaled, mlxFloats } from './microscaled.js';
import { mlcCodec } from './mlc.js';
import { mlx } from './mlx.js';
import { nvfp4Blocks } from './nvfp4-blocks.js';
import { scaledElements } from './scaled-elements.js';

const codecs = new Map<string, Codec>();
const all = [
  copyCodec,
  cast,
  ggml,
  compressedTensors,
  comfy,
  dequantizeLinear,
  matMulNBits,
  matMulBnb4,
  gptq,
  mlx,
  mlcCodec,
  nvfp4Blocks,
  bitsAndBytes,
  microscaled,
  mlxFloats,
  scaledElements,
  lowRankCodec((form) => codecOf(form)),
];
for (const codec of all) codecs.set(codec.id, codec as unknown as Codec);

/** Adds a codec in this thread; workers know those of this file only. Returns a function that removes it. */
export function registerCodec<F extends Form>(codec: Codec<F>): () => void {
  codecs.set(codec.id, codec as unknown as Codec);
  return () => void codecs.delete(codec.id);
}

/** The codec of a form. */
export function codecOf({ codec: id }: Form): Codec {
  const codec = codecs.get(id);
  if (codec === undefined) throw new Error(`unknown codec ${id}`);
  return codec;
}

/** The form of float32 elements. */
export const float32Form: CastForm = { codec: 'cast', to: 'F32' };

/** The parts of a tensor in some form. */
export function partsOf(shape: readonly number[], form: Form): readonly Part[] {
  return codecOf(form).parts(shape, form);
}
