// The result of MLC-LLM for a folder, written from its sources: names and joined matrices by python/mlc_llm/model/*/*_loader.py, codes by
// _quantize of python/mlc_llm/quantization/group_quantization.py and pack_weight of utils.py, mlc-ai/mlc-llm at 01ced331; shards and the
// index by python/tvm/contrib/tvmjs.py, apache/tvm at 0906717. Nothing here is ours.
import { createHash } from 'node:crypto';
import type { Weights } from './recipes.js';

/** The nearest number of a binary format, ties to even. */
function nearest(x: number, mantissa: number, smallest: number): number {
  if (x === 0 || !Number.isFinite(x)) return x;
  const exponent = Math.max(smallest, Math.floor(Math.log2(Math.abs(x))));
  const step = 2 ** (exponent - mantissa);
  const [low, part] = [Math.floor(x / step), x / step - Math.floor(x / step)];
  return step * (part > 0.5 || (part === 0.5 && low % 2 !== 0) ? low + 1 : low);
}

const float16 = (x: number) => nearest(x, 10, -14);
const bfloat16 = (x: number) => nearest(x, 7, -126);

/** Half to even. */
function rint(x: number): number {
  const low = Math.floor(x);
  const part = x - low;
  return part > 0.5 || (part === 0.5 && low % 2 !== 0) ? low + 1 : low;
}

/** Bits of a number that the format holds. */
function bits16(x: number, mantissa: number, bias: number): number {
  const sign = Object.is(x, -0) || x < 0 ? 0x8000 : 0;
  if (x === 0) return sign;
  const exponent = Math.max(1 - bias, Math.floor(Math.log2(Math.abs(x))));
  const whole = Math.abs(x) * 2 ** (mantissa - exponent);
  return sign | (whole < 2 ** mantissa ? whole : ((exponent + bias) << mantissa) | (whole - 2 ** mantissa));
}

export type Quantization = 'q4f16_1' | 'q4f32_1';

/** An array as a shard holds it. */
export interface CacheArray {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: string;
  readonly bytes: Uint8Array;
}

const littleEndian16 = (words: readonly number[]) => new Uint8Array(Uint16Array.from(words).buffer);

/** Floats of the model, which are stored as bfloat16 if they are float32. */
function floatArray(name: string, shape: readonly number[], values: readonly number[], how: Quantization): CacheArray {
  if (how === 'q4f16_1')
    return { name, shape, dtype: 'float16', bytes: littleEndian16(values.map((x) => bits16(float16(x), 10, 15))) };
  const words = values.map((x) => bits16(bfloat16(Math.fround(x)), 7, 127));
  return { name, shape, dtype: 'float32', bytes: littleEndian16(words) };
}

/** A weight of rows as codes and scales. */
function quantizedArrays(module: string, rows: number, columns: number, values: readonly number[], how: Quantization) {
  const as = how === 'q4f16_1' ? float16 : Math.fround;
  const words: number[] = [];
  const scales: number[] = [];
  for (let at = 0; at < values.length; at += 32) {
    const group = values.slice(at, at + 32).map(as);
    const scale = as(Math.max(...group.map(Math.abs)) / 7);
    scales.push(scale);
    for (let word = 0; word < 4; word++) {
      let packed = 0;
      for (let r = 0; r < 8; r++) {
        const code = rint(as(as((group[8 * word + r] as number) / scale) + 7));
        // tir.max(a, 0) is 0 for NaN.
        const low = Number.isNaN(code) ? 0 : Math.max(code, 0);
        packed += Math.min(low, 14) * 16 ** r;
      }
      words.push(packed);
    }
  }
  const bytes = new Uint8Array(Uint32Array.from(words).buffer);
  return [
    { name: `${module}.q_weight`, shape: [rows, columns / 8], dtype: 'uint32', bytes },
    floatArray(`${module}.q_scale`, [rows, columns / 32], scales, how),
  ];
}

/** Sources of a parameter: tensors of the folder, and a number added to them. */
type Recipe = readonly [
  module: string,
  kind: 'weight' | 'weight-floats' | 'bias',
  tensors: readonly string[],
  add: number,
];

/** The parameters of an architecture, by the modules of its _model.py. */
export function recipesOf(architecture: string, layers: number, tied: boolean): Recipe[] {
  const add = architecture.startsWith('Gemma') ? 1 : 0;
  const phi = architecture === 'Phi3ForCausalLM';
  const qwen = architecture.startsWith('Qwen');
  const all: Recipe[] = [
    [phi ? 'transformer.embd' : 'model.embed_tokens', 'weight', ['model.embed_tokens.weight'], 0],
    [phi ? 'transformer.norm' : 'model.norm', 'weight-floats', ['model.norm.weight'], add],
  ];
  if (!tied) all.push(['lm_head', 'weight', ['lm_head.weight'], 0]);
  for (let i = 0; i < layers; i++) {
    const from = `model.layers.${i}`;
    const to = phi ? `transformer.h.${i}` : from;
    const attention = phi ? `${to}.mixer` : `${to}.self_attn`;
    const joined = qwen ? `${attention}.c_attn` : `${attention}.qkv_proj`;
    const each = (end: string) => ['q', 'k', 'v'].map((name) => `${from}.self_attn.${name}_proj.${end}`);
    all.push([joined, 'weight', phi ? [`${from}.self_attn.qkv_proj.weight`] : each('weight'), 0]);
    if (architecture === 'Qwen2ForCausalLM') all.push([joined, 'bias', each('bias'), 0]);
    all.push([phi ? `${attention}.out_proj` : `${attention}.o_proj`, 'weight', [`${from}.self_attn.o_proj.weight`], 0]);
    const gates = phi
      ? [`${from}.mlp.gate_up_proj.weight`]
      : [`${from}.mlp.gate_proj.weight`, `${from}.mlp.up_proj.weight`];
    all.push([`${to}.mlp.gate_up_proj`, 'weight', gates, 0]);
    all.push([`${to}.mlp.down_proj`, 'weight', [`${from}.mlp.down_proj.weight`], 0]);
    const norms = ['post_attention_layernorm'];
    if (!phi) norms.push('input_layernorm');
    if (architecture === 'Gemma2ForCausalLM') norms.push('pre_feedforward_layernorm', 'post_feedforward_layernorm');
    if (architecture === 'Qwen3ForCausalLM') norms.push('self_attn.q_norm', 'self_attn.k_norm');
    for (const name of norms) all.push([`${to}.${name}`, 'weight-floats', [`${from}.${name}.weight`], add]);
    if (phi) all.push([`${to}.ln`, 'weight-floats', [`${from}.input_layernorm.weight`], add]);
  }
  return all;
}

/** The arrays of a model in the order of the tensors in a file. */
export function arraysOf(
  recipes: readonly Recipe[],
  weights: Weights,
  order: readonly string[],
  how: Quantization,
): CacheArray[] {
  const seen = new Set<string>();
  const arrays: CacheArray[] = [];
  for (const tensor of order) {
    for (const [module, kind, tensors, add] of recipes) {
      if (!tensors.includes(tensor) || seen.has(`${module} ${kind}`)) continue;
      seen.add(`${module} ${kind}`);
      const parts = tensors.map((name) => weights.get(name)!);
      const values = parts.flatMap((part) => [...part.values].map((x) => Math.fround(x + add)));
      const rows = parts.reduce((sum, { shape }) => sum + shape[0]!, 0);
      const columns = parts[0]!.shape[1]!;
      if (kind === 'weight') arrays.push(...quantizedArrays(module, rows, columns, values, how));
      else arrays.push(floatArray(`${module}.${kind === 'bias' ? 'bias' : 'weight'}`, [rows], values, how));
    }
  }
  return arrays;
}

/** The shards of arrays, and the index. */
export function cacheOf(arrays: readonly CacheArray[], parameters: number) {
  const cap = 32 * 1024 * 1024;
  const shards: { readonly bytes: Uint8Array; readonly records: object[] }[] = [];
  let pending: { record: Record<string, unknown>; bytes: Uint8Array }[] = [];
  let size = 0;
  const joined = (parts: readonly Uint8Array[]) => Uint8Array.from(Buffer.concat(parts));
  const commit = () => {
    if (size > 0)
      shards.push({ bytes: joined(pending.map(({ bytes }) => bytes)), records: pending.map(({ record }) => record) });
    pending = [];
    size = 0;
  };
  for (const { name, shape, dtype, bytes } of arrays) {
    const record: Record<string, unknown> = { name, shape, dtype, format: 'f32-to-bf16', nbytes: bytes.length };
    if (size + bytes.length >= cap) {
      if (bytes.length * 2 >= cap) {
        record.byteOffset = 0;
        shards.push({ bytes, records: [record] });
        continue;
      }
      commit();
    }
    record.byteOffset = size;
    pending.push({ record, bytes });
    size += bytes.length;
  }
  commit();
  const itemSizes: Record<string, number> = { uint32: 4, float16: 2, float32: 4 };
  const total = arrays.reduce((sum, { shape, dtype }) => sum + shape.reduce((a, b) => a * b, 1) * itemSizes[dtype]!, 0);
  return {
    shards: shards.map(({ bytes }) => bytes),
    index: {
      metadata: { ParamSize: arrays.length, ParamBytes: total, BitsPerParam: (total * 8) / parameters },
      records: shards.map(({ bytes, records }, i) => ({
        dataPath: `params_shard_${i}.bin`,
        format: 'raw-shard',
        nbytes: bytes.length,
        records,
        md5sum: createHash('md5').update(bytes).digest('hex'),
      })),
    },
  };
}
