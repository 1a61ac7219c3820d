// Forward passes of models in float64, written from the definitions of Hugging Face's transformers: their names, and rotary halves. It shares
// no code with the package.
import type { Weights } from './recipes.js';

/** Differences of a decoder from Llama. */
export interface Decoder {
  readonly layers: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly head: number;
  readonly theta: number;
  readonly epsilon: number;
  /** The frequencies of the rotary embedding, changed for a long context. */
  readonly frequencies?: (frequencies: readonly number[]) => readonly number[];
  /** A factor of the rotary embedding's sines and cosines. */
  readonly rotaryFactor?: number;
  /** Elements of a head that rotate. All of them by default. */
  readonly rotated?: number;
  /** True if a layer has a rotary embedding. */
  readonly rotates?: (layer: number) => boolean;
  /** The base of a layer's frequencies, where it differs from `theta`, and the divisor of all of its frequencies. */
  readonly local?: (layer: number) => { readonly theta: number; readonly divisor: number };
  /** How many tokens a layer looks back at. */
  readonly window?: (layer: number) => number;
  readonly attentionCap?: number;
  readonly finalCap?: number;
  /** The divisor of attention's scores, squared. The head's elements by default. */
  readonly scale?: number;
  readonly gemma?: boolean;
  readonly usedExperts?: number;
  /** Names of a layer's experts and their router. */
  readonly experts?: { readonly router: string; readonly expert: (e: number) => readonly [string, string, string] };
  /** Called with the inputs of each expert's matrix. */
  readonly reached?: (name: string, x: Float64Array) => void;
  /** The head's name, if it is not the embedding. */
  readonly headName?: string;
}

type Vector = Float64Array;

/** Weights by name. A bias that is missing is zero. */
class Reader {
  constructor(private readonly weights: Weights) {}

  has(name: string): boolean {
    return this.weights.has(name);
  }

  get(name: string): { readonly shape: readonly number[]; readonly values: Float32Array } {
    const found = this.weights.get(name);
    if (found === undefined) throw new Error(`no weight ${name}`);
    return found;
  }

  row(name: string, i: number): Vector {
    const { shape, values } = this.get(name);
    const width = shape[1]!;
    return Float64Array.from(values.subarray(i * width, (i + 1) * width));
  }

  linear(name: string, x: Vector): Vector {
    const { shape, values } = this.get(`${name}.weight`);
    const [rows, columns] = shape as [number, number];
    const y = new Float64Array(rows);
    for (let r = 0; r < rows; r++) {
      let sum = this.has(`${name}.bias`) ? this.get(`${name}.bias`).values[r]! : 0;
      for (let c = 0; c < columns; c++) sum += values[r * columns + c]! * x[c]!;
      y[r] = sum;
    }
    return y;
  }

  rms(name: string, x: Vector, epsilon: number, plus: number): Vector {
    const { values } = this.get(`${name}.weight`);
    const mean = x.reduce((sum, v) => sum + v * v, 0) / x.length;
    return x.map((v, i) => (v / Math.sqrt(mean + epsilon)) * (plus + values[i]!));
  }

  layerNorm(name: string, x: Vector, epsilon: number): Vector {
    const mean = x.reduce((sum, v) => sum + v, 0) / x.length;
    const variance = x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / x.length;
    const [weight, bias] = [this.get(`${name}.weight`).values, this.get(`${name}.bias`).values];
    return x.map((v, i) => ((v - mean) / Math.sqrt(variance + epsilon)) * weight[i]! + bias[i]!);
  }
}

const add = (a: Vector, b: Vector) => a.map((v, i) => v + b[i]!);
const multiply = (a: Vector, b: Vector) => a.map((v, i) => v * b[i]!);
const silu = (x: Vector) => x.map((v) => v / (1 + Math.exp(-v)));
const gelu = (x: Vector) => x.map((v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))));
const cap = (v: number, limit: number | undefined) => (limit === undefined ? v : limit * Math.tanh(v / limit));

function softmax(x: readonly number[]): number[] {
  const most = Math.max(...x);
  const powers = x.map((v) => Math.exp(v - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((v) => v / sum);
}

/** Rotates the first elements of a head: element i with element i + n/2. */
function rotate(head: Vector, position: number, frequencies: readonly number[], factor: number): Vector {
  const n = frequencies.length;
  const result = Float64Array.from(head);
  for (let i = 0; i < n; i++) {
    const [cos, sin] = [Math.cos(position * frequencies[i]!) * factor, Math.sin(position * frequencies[i]!) * factor];
    result[i] = head[i]! * cos - head[i + n]! * sin;
    result[i + n] = head[i + n]! * cos + head[i]! * sin;
  }
  return result;
}

/** The frequencies of a rotary embedding. */
function rotaryFrequencies(theta: number, rotated: number): number[] {
  return Array.from({ length: rotated / 2 }, (_, i) => theta ** ((-2 * i) / rotated));
}

/** Attention over heads. `sees` tells which keys a query takes. */
function attend(
  queries: readonly Vector[],
  keys: readonly Vector[],
  values: readonly Vector[],
  { heads, keyHeads, head, scale = head, attentionCap }: Decoder,
  sees: (query: number, key: number) => boolean,
): Vector[] {
  return queries.map((query, t) => {
    const result = new Float64Array(heads * head);
    for (let h = 0; h < heads; h++) {
      const k = Math.floor(h / (heads / keyHeads));
      const scores = keys.map((key, s) => {
        if (!sees(t, s)) return -Infinity;
        let sum = 0;
        for (let i = 0; i < head; i++) sum += query[h * head + i]! * key[k * head + i]!;
        return cap(sum / Math.sqrt(scale), attentionCap);
      });
      softmax(scores).forEach((weight, s) => {
        for (let i = 0; i < head; i++) result[h * head + i]! += weight * values[s]![k * head + i]!;
      });
    }
    return result;
  });
}

const slices = (x: Vector, size: number) =>
  Array.from({ length: x.length / size }, (_, i) => x.slice(i * size, (i + 1) * size));

function joined(parts: readonly Vector[]): Vector {
  return Float64Array.from(parts.flatMap((part) => [...part]));
}

function attention(read: Reader, model: Decoder, prefix: string, layer: number, x: readonly Vector[]): Vector[] {
  const { heads, keyHeads, head, theta, epsilon, rotated = head } = model;
  const width = { q: heads * head, k: keyHeads * head };
  const local = model.local?.(layer);
  const plain = rotaryFrequencies(local?.theta ?? theta, rotated).map((f) => f / (local?.divisor ?? 1));
  const frequencies = model.frequencies?.(plain) ?? plain;
  const turn = (all: Vector, t: number, norm: string) =>
    joined(
      slices(all, head).map((one) => {
        const normed = read.has(`${norm}.weight`) ? read.rms(norm, one, epsilon, model.gemma ? 1 : 0) : one;
        return (model.rotates?.(layer) ?? true) ? rotate(normed, t, frequencies, model.rotaryFactor ?? 1) : normed;
      }),
    );
  const parts = x.map((one) => {
    if (!read.has(`${prefix}qkv_proj.weight`))
      return ['q', 'k', 'v'].map((name) => read.linear(`${prefix}${name}_proj`, one));
    const all = read.linear(`${prefix}qkv_proj`, one);
    return [all.slice(0, width.q), all.slice(width.q, width.q + width.k), all.slice(width.q + width.k)];
  });
  const window = model.window?.(layer) ?? Infinity;
  const mixed = attend(
    parts.map(([q], t) => turn(q!, t, `${prefix}q_norm`)),
    parts.map(([, k], t) => turn(k!, t, `${prefix}k_norm`)),
    parts.map(([, , v]) => v!),
    model,
    (query, key) => key <= query && query - key < window,
  );
  return mixed.map((one) => read.linear(`${prefix}o_proj`, one));
}

function feedForward(read: Reader, model: Decoder, prefix: string, x: Vector): Vector {
  if (model.experts !== undefined) return mixture(read, model, prefix, x);
  const act = model.gemma ? gelu : silu;
  if (read.has(`${prefix}mlp.gate_up_proj.weight`)) {
    const both = read.linear(`${prefix}mlp.gate_up_proj`, x);
    const half = both.length / 2;
    return read.linear(`${prefix}mlp.down_proj`, multiply(act(both.slice(0, half)), both.slice(half)));
  }
  const [gate, up] = ['gate', 'up'].map((name) => read.linear(`${prefix}mlp.${name}_proj`, x));
  return read.linear(`${prefix}mlp.down_proj`, multiply(act(gate!), up!));
}

/** The best experts, weighted by the softmax over their own scores. */
function mixture(read: Reader, { experts, usedExperts, reached }: Decoder, prefix: string, x: Vector): Vector {
  const scores = read.linear(`${prefix}${experts!.router}`, x);
  const best = [...scores.keys()].sort((a, b) => scores[b]! - scores[a]!).slice(0, usedExperts);
  const shares = softmax(best.map((e) => scores[e]!));
  return best
    .map((e, i) => {
      const [gate, up, down] = experts!.expert(e).map((name) => prefix + name);
      const inner = multiply(silu(read.linear(gate!, x)), read.linear(up!, x));
      reached?.(gate!, x);
      reached?.(down!, inner);
      return read.linear(down!, inner).map((v) => v * shares[i]!);
    })
    .reduce(add);
}

/** Logits behind each token of a text. */
export function decoderLogits(weights: Weights, model: Decoder, tokens: readonly number[]): Vector[] {
  const read = new Reader(weights);
  const plus = model.gemma ? 1 : 0;
  const norm = (name: string, all: readonly Vector[]) => all.map((one) => read.rms(name, one, model.epsilon, plus));
  const embedding = 'model.embed_tokens.weight';
  let x = tokens.map((token) => read.row(embedding, token));
  if (model.gemma) x = x.map((one) => one.map((v) => v * Math.sqrt(one.length)));
  for (let i = 0; i < model.layers; i++) {
    const prefix = `model.layers.${i}.`;
    let mixed = attention(read, model, `${prefix}self_attn.`, i, norm(`${prefix}input_layernorm`, x));
    if (model.gemma) mixed = norm(`${prefix}post_attention_layernorm`, mixed);
    x = x.map((one, t) => add(one, mixed[t]!));
    const before = norm(`${prefix}${model.gemma ? 'pre_feedforward' : 'post_attention'}_layernorm`, x);
    let grown = before.map((one) => feedForward(read, model, prefix, one));
    if (model.gemma) grown = norm(`${prefix}post_feedforward_layernorm`, grown);
    x = x.map((one, t) => add(one, grown[t]!));
  }
  const head = (model.headName ?? embedding).replace(/\.weight$/, '');
  return norm('model.norm', x).map((one) => read.linear(head, one).map((v) => cap(v, model.finalCap)));
}

/** The parts of an encoder. */
export interface Encoder {
  readonly layers: number;
  readonly heads: number;
  readonly epsilon: number;
  /** The base of the rotary embedding, if it is Nomic's model and not BERT. */
  readonly theta?: number;
}

/** The vector of each token of a text, all of the first kind. */
export function encoderVectors(weights: Weights, model: Encoder, tokens: readonly number[]): Vector[] {
  const read = new Reader(weights);
  const nomic = model.theta !== undefined;
  const row = (name: string, i: number) => read.row(`embeddings.${name}_embeddings.weight`, i);
  let x = tokens.map((token, t) => {
    const sum = add(row('word', token), row('token_type', 0));
    return nomic
      ? read.layerNorm('emb_ln', sum, model.epsilon)
      : read.layerNorm('embeddings.LayerNorm', add(sum, row('position', t)), model.epsilon);
  });
  const head = x[0]!.length / model.heads;
  const shape = { ...model, keyHeads: model.heads, head, theta: model.theta ?? 1 };
  for (let i = 0; i < model.layers; i++) {
    const parts = x.map((one) =>
      nomic
        ? slices(read.linear(`encoder.layers.${i}.attn.Wqkv`, one), one.length)
        : ['query', 'key', 'value'].map((name) => read.linear(`encoder.layer.${i}.attention.self.${name}`, one)),
    );
    const turn = (all: Vector, t: number) =>
      nomic ? joined(slices(all, head).map((one) => rotate(one, t, rotaryFrequencies(shape.theta, head), 1))) : all;
    const mixed = attend(
      parts.map(([q], t) => turn(q!, t)),
      parts.map(([, k], t) => turn(k!, t)),
      parts.map(([, , v]) => v!),
      shape,
      () => true,
    );
    x = x.map((one, t) => (nomic ? nomicBlock : bertBlock)(read, model, i, one, mixed[t]!));
  }
  return x;
}

function bertBlock(read: Reader, { epsilon }: Encoder, i: number, x: Vector, mixed: Vector): Vector {
  const prefix = `encoder.layer.${i}.`;
  const out = read.linear(`${prefix}attention.output.dense`, mixed);
  const y = read.layerNorm(`${prefix}attention.output.LayerNorm`, add(x, out), epsilon);
  const inner = gelu(read.linear(`${prefix}intermediate.dense`, y));
  return read.layerNorm(`${prefix}output.LayerNorm`, add(y, read.linear(`${prefix}output.dense`, inner)), epsilon);
}

function nomicBlock(read: Reader, { epsilon }: Encoder, i: number, x: Vector, mixed: Vector): Vector {
  const prefix = `encoder.layers.${i}.`;
  const y = read.layerNorm(`${prefix}norm1`, add(x, read.linear(`${prefix}attn.out_proj`, mixed)), epsilon);
  const inner = multiply(read.linear(`${prefix}mlp.fc11`, y), silu(read.linear(`${prefix}mlp.fc12`, y)));
  return read.layerNorm(`${prefix}norm2`, add(y, read.linear(`${prefix}mlp.fc2`, inner)), epsilon);
}
