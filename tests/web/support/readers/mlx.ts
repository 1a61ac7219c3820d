// MLX and mlx-lm as their sources have it: how a folder is loaded, what codes stand for, and the rules that make codes. Written without
// knowledge of the encoder under test.
//   ml-explore/mlx 0e18bb05 (backend/cpu/quantized.cpp), 0087b782 (ops.cpp), 00703ea6 (metal/kernels/fp_quantized.h), 1c845607 (fp4.h),
//   0ae28ee7 (fp8.h), 0154acf1 (nn/layers/quantized.py); ml-explore/mlx-lm 003da2e9 (utils.py), 17772c05 (models/llama.py),
//   144d58ce (qwen3.py), 0161813f (qwen3_moe.py, mixtral.py), 04e6af1f (switch_layers.py)
import { product } from '../models.js';
import { codeOf, e2m1, e4m3, evenRound, exponentOf, type FloatFormat, nearest, numberOf, powerOf } from './floats.js';
import { floatsOf, must, type Stored, wordsOf } from './safetensors.js';

type Json = Readonly<Record<string, unknown>>;

/** Parameters of a quantized module. */
export interface Quantization {
  readonly group_size: number;
  readonly bits: number;
  readonly mode: string;
}

const f = Math.fround;

// ------------------------------------------------------------------------------------------------------------------------ models

/** A module with weights. `codes` is true for those that have `to_quantized`. */
interface Module {
  readonly path: string;
  readonly shape: readonly number[];
  readonly codes: boolean;
  readonly bias?: boolean;
}

/** Modules of a language model, as the classes of mlx-lm make them. */
function modulesOf(config: Json): Module[] {
  const number = (key: string) => config[key] as number;
  const type = { mistral: 'llama' }[config.model_type as string] ?? (config.model_type as string);
  const [hidden, heads, inner] = [number('hidden_size'), number('num_attention_heads'), number('intermediate_size')];
  const keyHeads = (config.num_key_value_heads as number | undefined) ?? heads;
  const head = (config.head_dim as number | undefined) ?? hidden / heads;
  const tied = (config.tie_word_embeddings as boolean | undefined) ?? type === 'llama';
  const bias = type === 'llama' && config.attention_bias === true;
  const linear = (path: string, out: number, into: number, hasBias = false): Module => {
    return { path, shape: [out, into], codes: true, bias: hasBias };
  };
  const norm = (path: string, size: number): Module => ({ path, shape: [size], codes: false });
  const modules = [linear('model.embed_tokens', number('vocab_size'), hidden), norm('model.norm', hidden)];
  if (!tied) modules.push(linear('lm_head', number('vocab_size'), hidden));
  for (let i = 0; i < number('num_hidden_layers'); i++) {
    const p = `model.layers.${i}`;
    modules.push(norm(`${p}.input_layernorm`, hidden), norm(`${p}.post_attention_layernorm`, hidden));
    modules.push(linear(`${p}.self_attn.q_proj`, heads * head, hidden, bias));
    for (const name of ['k', 'v']) modules.push(linear(`${p}.self_attn.${name}_proj`, keyHeads * head, hidden, bias));
    modules.push(linear(`${p}.self_attn.o_proj`, hidden, heads * head, bias));
    if (type.startsWith('qwen3')) for (const n of ['q', 'k']) modules.push(norm(`${p}.self_attn.${n}_norm`, head));
    const isMixtral = type === 'mixtral';
    const sparse =
      isMixtral ||
      (type === 'qwen3_moe' && !(config.mlp_only_layers as number[]).includes(i) && number('num_experts') > 0);
    if (!sparse) {
      for (const name of ['gate', 'up']) modules.push(linear(`${p}.mlp.${name}_proj`, inner, hidden));
      modules.push(linear(`${p}.mlp.down_proj`, hidden, inner));
      continue;
    }
    const block = `${p}.${isMixtral ? 'block_sparse_moe' : 'mlp'}`;
    const count = number(isMixtral ? 'num_local_experts' : 'num_experts');
    const width = isMixtral ? inner : number('moe_intermediate_size');
    modules.push(linear(`${block}.gate`, count, hidden));
    for (const name of ['gate', 'up'])
      modules.push({ path: `${block}.switch_mlp.${name}_proj`, shape: [count, width, hidden], codes: true });
    modules.push({ path: `${block}.switch_mlp.down_proj`, shape: [count, hidden, width], codes: true });
  }
  return modules;
}

/** A weight that mlx-lm loads: its numbers, and the parameters if it has codes. */
export interface Loaded {
  readonly shape: readonly number[];
  readonly values: Float32Array;
  readonly quantization?: Quantization;
}

/** Weights that a model has no place for are errors, as with `load_weights(strict=True)`. */
function sanitize(config: Json, weights: Map<string, Stored>): Map<string, Stored> {
  const kept = new Map([...weights].filter(([name]) => !name.includes('self_attn.rotary_emb.inv_freq')));
  const tied =
    (config.tie_word_embeddings as boolean | undefined) ?? /^(llama|mistral)$/.test(String(config.model_type));
  if (tied) kept.delete('lm_head.weight');
  return kept;
}

/** Loads a folder as `mlx_lm.utils.load_model` does, strictly. */
export function loadMlx(config: Json, stored: Map<string, Stored>): Map<string, Loaded> {
  const quantization = config.quantization as Quantization & Readonly<Record<string, Quantization | false>>;
  must(quantization !== undefined, 'config.json has no quantization');
  const weights = sanitize(config, stored);
  const left = new Set(weights.keys());
  const take = (name: string, shape: readonly number[], type?: string): Stored => {
    const found = weights.get(name);
    must(found !== undefined, `missing: ${name}`);
    must(String(found.shape) === String(shape), `${name}: shape ${found.shape} instead of ${shape}`);
    must(type === undefined || found.dtype === type, `${name}: type ${found.dtype} instead of ${type}`);
    left.delete(name);
    return found;
  };
  const loaded = new Map<string, Loaded>();
  for (const { path, shape, codes, bias } of modulesOf(config)) {
    const stated = path in quantization ? quantization[path]! : undefined;
    const has = stated === undefined ? codes && weights.has(`${path}.scales`) : stated !== false;
    const values = (name: string, of: readonly number[]) => ({ shape: of, values: floatsOf(take(name, of)) });
    if (bias) loaded.set(`${path}.bias`, values(`${path}.bias`, [shape[0]!]));
    if (!has) {
      loaded.set(`${path}.weight`, values(`${path}.weight`, shape));
      continue;
    }
    const own = { ...(stated ?? quantization) } as Quantization;
    const params = { group_size: own.group_size, bits: own.bits, mode: own.mode ?? 'affine' };
    loaded.set(`${path}.weight`, { shape, ...restored(path, shape, params, take), quantization: params });
  }
  must(left.size === 0, `parameters not in the model: ${[...left]}`);
  return loaded;
}

/** Checks the arrays of a quantized module, and restores its weights. */
function restored(
  path: string,
  shape: readonly number[],
  quantization: Quantization,
  take: (name: string, shape: readonly number[], type?: string) => Stored,
) {
  const { group_size: group, bits, mode } = quantization;
  const columns = shape.at(-1)!;
  const places: Readonly<Record<string, [readonly number[], readonly number[]]>> = {
    affine: [
      [32, 64, 128],
      [2, 3, 4, 5, 6, 8],
    ],
    ...{ mxfp4: [[32], [4]], nvfp4: [[16], [4]], mxfp8: [[32], [8]] },
  };
  const [groupSizes, widths] = places[mode]!;
  must(groupSizes.includes(group) && widths.includes(bits), `${path}: ${mode} of ${bits} bits in groups of ${group}`);
  must(columns % group === 0, `${path}: rows of ${columns} in groups of ${group}`);
  const words = wordsOf(take(`${path}.weight`, [...shape.slice(0, -1), (columns * bits) / 32], 'U32'));
  const scaleShape = [...shape.slice(0, -1), columns / group];
  const count = product(shape);
  if (mode !== 'affine') {
    const scales = take(`${path}.scales`, scaleShape, 'U8').bytes;
    return { values: smallValues(words, scales, quantization, count) };
  }
  const scales = take(`${path}.scales`, scaleShape);
  const biases = take(`${path}.biases`, scaleShape, scales.dtype);
  return { values: affineValues(words, floatsOf(scales), floatsOf(biases), quantization, count) };
}

/** The code at a position of a stream of bits, the least significant bit first. */
function codeAt(words: Uint32Array, bits: number, i: number): number {
  let code = 0;
  for (let b = 0; b < bits; b++) {
    const at = i * bits + b;
    code += ((words[at >>> 5]! >>> (at & 31)) & 1) << b;
  }
  return code;
}

/** code * scale + bias in float32, as `_qmm_t_simd` has it. */
function affineValues(
  words: Uint32Array,
  scales: Float32Array,
  biases: Float32Array,
  { group_size: group, bits }: Quantization,
  count: number,
): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => {
    const g = Math.floor(i / group);
    return f(f(codeAt(words, bits, i) * scales[g]!) + biases[g]!);
  });
}

function smallValues(words: Uint32Array, scales: Uint8Array, { group_size: group, bits }: Quantization, count: number) {
  return Float32Array.from({ length: count }, (_, i) => {
    const byte = scales[Math.floor(i / group)]!;
    const scale = group === 16 ? numberOf(byte, e4m3) : powerOf(byte);
    return scale * numberOf(codeAt(words, bits, i), bits === 4 ? e2m1 : e4m3);
  });
}

// ------------------------------------------------------------------------------------------------------------------------- rules

/** Codes, scales and biases of a matrix. */
export interface Codes {
  readonly words: Uint32Array;
  readonly scales: ArrayLike<number>;
  readonly biases: ArrayLike<number>;
}

function pack(codes: readonly number[], bits: number): Uint32Array {
  const words = new Uint32Array((codes.length * bits) / 32);
  for (const [i, code] of codes.entries())
    for (let b = 0; b < bits; b++) {
      const at = i * bits + b;
      if ((code >>> b) & 1) words[at >>> 5]! |= 1 << (at & 31);
    }
  return words;
}

/** The affine rule of MLX's CPU build (`quantize` in backend/cpu/quantized.cpp). Scales and biases are stored in the weight's type. */
export function affineCodes(values: Float32Array, bits: number, group: number, format: FloatFormat): Codes {
  const bins = 2 ** bits - 1;
  const codes: number[] = [];
  const scales: number[] = [];
  const biases: number[] = [];
  for (let start = 0; start < values.length; start += group) {
    const own = values.subarray(start, start + group);
    const [least, most] = [Math.min(...own), Math.max(...own)];
    const fromLeast = Math.abs(least) > Math.abs(most);
    let scale = Math.max(f(f(most - least) / bins), f(1e-7));
    if (!fromLeast) scale = -scale;
    const edge = fromLeast ? least : most;
    const q0 = evenRound(f(edge / scale));
    let bias = 0;
    if (q0 !== 0) {
      scale = f(edge / q0);
      bias = edge;
    }
    for (const w of own) {
      const code = evenRound(f(f(w - bias) / scale));
      // The comparisons of std::max and std::min turn NaN into 0.
      codes.push(code > 0 ? Math.min(code, bins) : 0);
    }
    scales.push(nearest(scale, format));
    biases.push(nearest(bias, format));
  }
  return { words: pack(codes, bits), scales, biases };
}

/** The least power of two that is not below a number, as its exponent plus 127; 127 for zero, as the CPU build has it. */
function powerFrom(x: number): number {
  if (x === 0) return 127;
  const exponent = exponentOf(x);
  return Math.min(254, Math.max(0, (2 ** exponent < x ? exponent + 1 : exponent) + 127));
}

/** The rule of MLX's kernels for GPUs: E8M0 rounded up, or E4M3 to the nearest; numbers to the nearest, ties to even. */
export function smallCodes(values: Float32Array, mode: string): Codes {
  const [group, bits] = mode === 'nvfp4' ? [16, 4] : [32, mode === 'mxfp4' ? 4 : 8];
  const codes: number[] = [];
  const scales: number[] = [];
  for (let start = 0; start < values.length; start += group) {
    const own = values.subarray(start, start + group);
    const wanted = f(Math.max(...own.map(Math.abs)) / (bits === 4 ? 6 : 448));
    const byte = group === 16 ? codeOf(wanted, e4m3) : powerFrom(wanted);
    const scale = group === 16 ? numberOf(byte, e4m3) : powerOf(byte);
    scales.push(byte);
    for (const w of own) codes.push(codeOf(scale === 0 ? 0 : f(w / scale), bits === 4 ? e2m1 : e4m3));
  }
  return { words: pack(codes, bits), scales, biases: [] };
}
