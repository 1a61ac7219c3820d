// WebLLM's folders as the sources have them: how tvmjs loads arrays, which parameters a model has, and the rule of MLC-LLM's group
// quantization. Written without knowledge of the encoder under test.
//   mlc-ai/mlc-llm 01ced331 (quantization/group_quantization.py, model/*/*_loader.py), 00c44c3c (quantization/utils.py), 1de5d727 (interface/convert_weight.py); apache/tvm 016a5a09 (web/src/runtime.ts), 09067173 (contrib/tvmjs.py)
import { createHash } from 'node:crypto';
import { check, numbersOf, type StoredTensor } from './compressed.js';
import { bfloat16, evenRound, type FloatFormat, float16, float32, nearest } from './floats.js';
import { product } from './models.js';

type Json = Readonly<Record<string, unknown>>;

/** Form of a result: the float type of all arithmetic. */
export type MlcForm = 'q4f16_1' | 'q4f32_1';

const formats: Readonly<Record<MlcForm, FloatFormat>> = { q4f16_1: float16, q4f32_1: float32 };

/** An array of the cache, decoded as `arrayDecodeStorage` does. */
interface Decoded {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly stored: StoredTensor;
}

interface Shard {
  readonly dataPath: string;
  readonly format: string;
  readonly nbytes: number;
  readonly md5sum: string;
  readonly records: readonly {
    readonly name: string;
    readonly shape: readonly number[];
    readonly dtype: string;
    readonly format: string;
    readonly nbytes: number;
    readonly byteOffset: number;
  }[];
}

const width: Readonly<Record<string, number>> = { float32: 4, float16: 2, uint32: 4 };
const typeNames: Readonly<Record<string, string>> = { float32: 'BF16', float16: 'F16', uint32: 'U32' };

/** Loads all arrays, by both names of the list. */
export function loadCache(files: ReadonlyMap<string, Uint8Array>): { arrays: Map<string, Decoded>; metadata: Json } {
  const [list, older] = ['tensor-cache.json', 'ndarray-cache.json'].map((name) => {
    const bytes = files.get(name);
    check(bytes !== undefined, `missing: ${name}`);
    return new TextDecoder().decode(bytes);
  }) as [string, string];
  check(list === older, 'the lists differ');
  const { records, metadata } = JSON.parse(list) as { records: Shard[]; metadata: Json };
  const arrays = new Map<string, Decoded>();
  for (const [i, shard] of records.entries()) {
    check(shard.dataPath === `params_shard_${i}.bin` && shard.format === 'raw-shard', `shard ${i}: ${shard.dataPath}`);
    const bytes = files.get(shard.dataPath);
    check(bytes !== undefined && bytes.length === shard.nbytes, `shard ${i}: ${bytes?.length} bytes`);
    check(createHash('md5').update(bytes).digest('hex') === shard.md5sum, `shard ${i}: MD5`);
    let at = 0;
    for (const { name, shape, dtype, format, nbytes, byteOffset } of shard.records) {
      check(!arrays.has(name), `twice: ${name}`);
      check(format === 'f32-to-bf16' && byteOffset === at, `${name}: ${format} at ${byteOffset}`);
      const size = dtype === 'float32' ? 2 : width[dtype];
      check(size !== undefined && nbytes === size * product(shape), `${name}: ${nbytes} bytes of ${dtype}`);
      at += nbytes;
      const stored = {
        dtype: typeNames[dtype]!,
        shape: [...shape],
        bytes: bytes.subarray(byteOffset, byteOffset + nbytes),
      };
      arrays.set(name, { dtype, shape, stored });
    }
    check(at === shard.nbytes, `shard ${i}: ${shard.nbytes - at} bytes too many`);
  }
  const sizes = [...arrays.values()].map(({ dtype, shape }) => product(shape) * width[dtype]!);
  check(metadata.ParamSize === arrays.size, `ParamSize ${metadata.ParamSize}`);
  check(metadata.ParamBytes === sizes.reduce((a, b) => a + b, 0), `ParamBytes ${metadata.ParamBytes}`);
  return { arrays, metadata };
}

/** A parameter: the weights that are joined along the first axis, and true for linear layers and embeddings. */
export interface MlcParameter {
  readonly name: string;
  readonly from: readonly string[];
  readonly codes: boolean;
  /** A number that the loader adds to the weights. */
  readonly add: number;
}

/** Parameters of an architecture, with the names of the weights that MLC-LLM's loader joins. */
export function parametersOf(architecture: string, layers: number, tied: boolean): MlcParameter[] {
  const [phi, qwen] = [architecture === 'Phi3ForCausalLM', architecture.startsWith('Qwen')];
  const all: MlcParameter[] = [];
  const coded = (name: string, ...from: string[]) => all.push({ name, from, codes: true, add: 0 });
  const norm = (name: string, from = name) =>
    all.push({ name, from: [from], codes: false, add: architecture.startsWith('Gemma') ? 1 : 0 });
  coded(phi ? 'transformer.embd.weight' : 'model.embed_tokens.weight', 'model.embed_tokens.weight');
  norm(phi ? 'transformer.norm.weight' : 'model.norm.weight', 'model.norm.weight');
  if (!tied) coded('lm_head.weight', 'lm_head.weight');
  for (let i = 0; i < layers; i++) {
    const from = `model.layers.${i}`;
    const to = phi ? `transformer.h.${i}` : from;
    const attention = phi ? `${to}.mixer` : `${to}.self_attn`;
    const joined = qwen ? `${attention}.c_attn` : `${attention}.qkv_proj`;
    const parts = (end: string) => ['q', 'k', 'v'].map((part) => `${from}.self_attn.${part}_proj.${end}`);
    coded(`${joined}.weight`, ...(phi ? [`${from}.self_attn.qkv_proj.weight`] : parts('weight')));
    if (architecture === 'Qwen2ForCausalLM')
      all.push({ name: `${joined}.bias`, from: parts('bias'), codes: false, add: 0 });
    coded(`${attention}.${phi ? 'out' : 'o'}_proj.weight`, `${from}.self_attn.o_proj.weight`);
    const gates = phi ? ['gate_up'] : ['gate', 'up'];
    coded(`${to}.mlp.gate_up_proj.weight`, ...gates.map((name) => `${from}.mlp.${name}_proj.weight`));
    coded(`${to}.mlp.down_proj.weight`, `${from}.mlp.down_proj.weight`);
    norm(`${to}.${phi ? 'ln' : 'input_layernorm'}.weight`, `${from}.input_layernorm.weight`);
    const norms = ['post_attention_layernorm'];
    if (architecture === 'Gemma2ForCausalLM') norms.push('pre_feedforward_layernorm', 'post_feedforward_layernorm');
    if (architecture === 'Qwen3ForCausalLM') norms.push('self_attn.q_norm', 'self_attn.k_norm');
    for (const name of norms) norm(`${to}.${name}.weight`, `${from}.${name}.weight`);
  }
  return all;
}

/** Codes and scales of a matrix. */
export interface MlcCodes {
  readonly words: Uint32Array;
  readonly scales: Float32Array;
}

/** `_quantize` for 4 bits in groups of 32 along rows. Every operation is rounded to the model's type. */
export function mlcCodes(weights: Float32Array, columns: number, form: MlcForm): MlcCodes {
  const format = formats[form];
  const round = (x: number) => nearest(x, format);
  const values = weights.map(round);
  const perRow = Math.ceil(columns / 32);
  const rows = weights.length / columns;
  const words = new Uint32Array(rows * perRow * 4);
  const scales = new Float32Array(rows * perRow);
  for (let g = 0; g < scales.length; g++) {
    const start = Math.floor(g / perRow) * columns + (g % perRow) * 32;
    const own = values.subarray(start, Math.min(start + 32, (Math.floor(g / perRow) + 1) * columns));
    const scale = round(Math.max(...own.map(Math.abs)) / 7);
    scales[g] = scale;
    for (const [i, w] of own.entries()) {
      const moved = evenRound(round(round(w / scale) + 7));
      // max(NaN, 0) is 0: the comparison is false.
      const code = moved > 0 ? Math.min(moved, 14) : 0;
      words[g * 4 + (i >>> 3)]! |= code << (4 * (i & 7));
    }
  }
  return { words, scales };
}

/** Scales as the cache holds them: float32 is stored as bfloat16. */
export const storedScales = (scales: Float32Array, form: MlcForm) =>
  form === 'q4f32_1' ? scales.map((s) => nearest(s, bfloat16)) : scales;

/** A parameter of the cache: its numbers, and its codes if it has any. */
export function readParameter(
  arrays: ReadonlyMap<string, Decoded>,
  { name, codes }: MlcParameter,
  [rows, columns = 1]: readonly number[],
  form: MlcForm,
): { values: Float32Array; codes?: MlcCodes; names: string[] } {
  const type = form === 'q4f16_1' ? 'float16' : 'float32';
  const take = (own: string, shape: readonly number[], dtype: string): StoredTensor => {
    const array = arrays.get(own);
    check(array !== undefined, `missing: ${own}`);
    check(String(array.shape) === String(shape), `${own}: shape ${array.shape} instead of ${shape}`);
    check(array.dtype === dtype, `${own}: ${array.dtype} instead of ${dtype}`);
    return array.stored;
  };
  if (!codes)
    return {
      values: Float32Array.from(numbersOf(take(name, columns === 1 ? [rows!] : [rows!, columns], type))),
      names: [name],
    };
  const base = name.replace(/weight$/, '');
  const perRow = Math.ceil(columns / 32);
  const packed = take(`${base}q_weight`, [rows!, perRow * 4], 'uint32');
  const words = new Uint32Array(new Uint8Array(packed.bytes).buffer);
  const scales = Float32Array.from(numbersOf(take(`${base}q_scale`, [rows!, perRow], type)));
  const values = new Float32Array(rows! * columns);
  for (let i = 0; i < values.length; i++) {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const word = words[row * perRow * 4 + (column >>> 3)]!;
    const code = (word >>> (4 * (column & 7))) & 15;
    // `_dequantize` multiplies in the model's type.
    values[i] = nearest((code - 7) * scales[row * perRow + (column >>> 5)]!, formats[form]);
  }
  return { values, codes: { words, scales }, names: [`${base}q_weight`, `${base}q_scale`] };
}
