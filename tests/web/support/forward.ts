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
  /** Count of tokens that a layer looks back at. */
  readonly window?: (layer: number) => number;
  readonly attentionCap?: number;
  readonly finalCap?: number;
  /** The divisor of attention's scores, squared. The head's elements by default. */
  readonly scale?: number;
  readonly gemma?: boolean;
  readonly usedExperts?: number;
  /** Names of a layer's experts and their router. */
  readonly experts?: { readonly router: string; readonly expert: (e: number) => readonly [string, string, string] };
  /** Rule for the shares of experts, in place of the softmax over the scores of the chosen ones. */
  readonly shares?: {
    /** `chosen`: as above; `all`: by the softmax over all scores; `sigmoid`: each by itself. */
    readonly of: 'chosen' | 'all' | 'sigmoid';
    /** True if they are divided by their sum. */
    readonly normalized?: boolean;
    readonly factor?: number;
    /** Name of what is added to the shares where experts are chosen. */
    readonly bias?: string;
  };
  /** Names of the experts that all tokens pass, and of their gate, which is a sigmoid. */
  readonly shared?: readonly [gate: string, up: string, down: string];
  readonly sharedFused?: readonly [gateAndUp: string, down: string];
  readonly sharedGate?: string;
  /** Name of gates and ups of all experts in one tensor, and of their downs. */
  readonly stacked?: readonly [gateAndUp: string, down: string];
  /** Called with the inputs of each expert's matrix. */
  readonly reached?: (name: string, x: Float64Array) => void;
  /** The head's name, if it is not the embedding. */
  readonly headName?: string;
  /** True if norms subtract the mean. Their biases are read where the model has some. */
  readonly layerNorms?: boolean;
  /** True if norms that do not subtract the mean have biases. */
  readonly rmsBiases?: boolean;
  /** Added to the weights of norms; 1 for Gemma. */
  readonly normPlus?: number;
  /** Names of norms. `undefined` for those that the model lacks. */
  readonly norms?: {
    readonly attention?: string | undefined;
    readonly attentionAfter?: string | undefined;
    readonly feedForward?: string | undefined;
    readonly feedForwardAfter?: string | undefined;
    readonly final?: string;
    readonly query?: string;
    readonly key?: string;
  };
  /**
   * Norms of queries and keys: over a head, over all heads together, over each head with weights of its own (in
   * tensors, or in rows of one), or behind the rotation.
   */
  readonly headNorms?: 'head' | 'all' | 'each' | 'rows' | 'rotated';
  /** True if the rotary embedding pairs neighbors. */
  readonly neighbors?: boolean;
  /** True if attention and feed-forward part take the same states. */
  readonly parallel?: boolean;
  readonly act?: (x: Float64Array) => Float64Array;
  /** Names of the feed-forward part's matrices. Without a gate, the activation is of what `up` gives. */
  readonly mlp?: { readonly gate?: string; readonly up: string; readonly down: string };
  /** Names of layers, attention, its output, and the embedding. */
  readonly prefix?: string;
  readonly attentionPrefix?: string;
  readonly attentionOutput?: string;
  readonly embedding?: string;
  /** Name of a matrix that holds, one group after the other, queries that share a key, this key and its value. */
  readonly grouped?: string;
  readonly embeddingFactor?: number;
  readonly residualFactor?: number;
  readonly logitFactor?: number;
  /** Bound of queries, keys and values. */
  readonly clamp?: number;
  /** The rotary embedding of a layer, where it differs. */
  readonly rotaryOf?: (layer: number) => {
    readonly frequencies?: (frequencies: readonly number[]) => readonly number[];
    readonly factor: number;
  };
  /** Name of the matrix that holds gate and up, and of the one behind it. */
  readonly fusedName?: string;
  readonly fusedDown?: string;
  /** Name of the matrix that holds all queries, keys and values. */
  readonly togetherName?: string;
  /** Name of a norm behind the embedding. */
  readonly embeddingNorm?: string;
  /** True for layers with LFM2's short convolution in the place of attention. */
  readonly convolves?: (layer: number) => boolean;
  /** True if queries see later tokens, too. */
  readonly bothSides?: boolean;
  /** The output of a layer's attention, in place of the above, and that of its feed-forward part. */
  readonly attend?: (read: Reader, prefix: string, layer: number, x: readonly Vector[]) => Vector[];
  readonly grow?: (read: Reader, prefix: string, x: Vector) => Vector;
  /** Name of a table whose rows are added to the embedding, by positions. */
  readonly positions?: string;
  /** A factor of the queries of a position. */
  readonly temperature?: (position: number) => number;
}

export type Vector = Float64Array;

/** Weights by name. A bias that is missing is zero. */
export class Reader {
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

  layerNorm(name: string, x: Vector, epsilon: number, plus = 0): Vector {
    const mean = x.reduce((sum, v) => sum + v, 0) / x.length;
    const variance = x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / x.length;
    const weight = this.has(`${name}.weight`) ? this.get(`${name}.weight`).values : undefined;
    const bias = this.has(`${name}.bias`) ? this.get(`${name}.bias`).values : undefined;
    return x.map(
      (v, i) => ((v - mean) / Math.sqrt(variance + epsilon)) * (plus + (weight?.[i] ?? 1)) + (bias?.[i] ?? 0),
    );
  }
}

export const add = (a: Vector, b: Vector) => a.map((v, i) => v + b[i]!);
export const multiply = (a: Vector, b: Vector) => a.map((v, i) => v * b[i]!);
export const silu = (x: Vector) => x.map((v) => v / (1 + Math.exp(-v)));
export const gelu = (x: Vector) =>
  x.map((v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))));
/** The nearest float16, of two equally near ones the even one, for numbers within its range. */
function half(v: number): number {
  const unit = 2 ** (Math.max(-14, Math.floor(Math.log2(Math.abs(v) || 1))) - 10);
  const floor = Math.floor(v / unit);
  const rest = v / unit - floor;
  return (rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor) * unit;
}

/** The GELU, which ggml looks up in a table of float16. */
export const tableGelu = (x: Float64Array) => gelu(x.map(half)).map(half);

export const scaled = (x: Float64Array, factor: number) => x.map((v) => v * factor);

/** A norm without weights. */
export function bareNorm(x: Float64Array, epsilon: number): Float64Array {
  const mean = x.reduce((sum, v) => sum + v * v, 0) / x.length;
  return scaled(x, 1 / Math.sqrt(mean + epsilon));
}

/** The square of what is above 0. */
export const relu2 = (x: Vector) => x.map((v) => Math.max(0, v) ** 2);
const cap = (v: number, limit: number | undefined) => (limit === undefined ? v : limit * Math.tanh(v / limit));

export function softmax(x: readonly number[]): number[] {
  const most = Math.max(...x);
  const powers = x.map((v) => Math.exp(v - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((v) => v / sum);
}

/** Rotates the first elements of a head: element i with element i + n/2, or neighbors. */
export function rotate(
  head: Vector,
  position: number,
  frequencies: readonly number[],
  factor: number,
  neighbors = false,
): Vector {
  const n = frequencies.length;
  const result = Float64Array.from(head);
  for (let i = 0; i < n; i++) {
    const [a, b] = neighbors ? [2 * i, 2 * i + 1] : [i, i + n];
    const [cos, sin] = [Math.cos(position * frequencies[i]!) * factor, Math.sin(position * frequencies[i]!) * factor];
    result[a] = head[a]! * cos - head[b]! * sin;
    result[b] = head[b]! * cos + head[a]! * sin;
  }
  return result;
}

/** The frequencies of a rotary embedding. */
export function rotaryFrequencies(theta: number, rotated: number): number[] {
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

export const dot = (a: Vector, b: Vector) => a.reduce((sum, v, i) => sum + v * b[i]!, 0);
export const sigmoid = (v: number) => 1 / (1 + Math.exp(-v));

/**
 * What the heads of each query mix of the values, one after the other. Heads of queries share those of keys where there are fewer.
 * @param score the score of a key by its product with the query; -Infinity leaves it out
 * @param sinks scores without values, one for each head
 */
export function mixed(
  queries: readonly Vector[][],
  keys: readonly Vector[][],
  values: readonly Vector[][],
  score: (product: number, query: number, key: number, head: number) => number,
  sinks?: ArrayLike<number>,
): Vector[] {
  return queries.map((heads, t) =>
    joined(
      heads.map((query, h) => {
        const of = Math.floor((h * keys[0]!.length) / heads.length);
        const scores = keys.map((key, s) => score(dot(query, key[of]!), t, s, h));
        const shares = softmax(sinks === undefined ? scores : [...scores, sinks[h]!]);
        return values.map((value, s) => scaled(value[of]!, shares[s]!)).reduce(add);
      }),
    ),
  );
}

export const slices = (x: Vector, size: number) =>
  Array.from({ length: x.length / size }, (_, i) => x.slice(i * size, (i + 1) * size));

export function joined(parts: readonly Vector[]): Vector {
  return Float64Array.from(parts.flatMap((part) => [...part]));
}

function attention(read: Reader, model: Decoder, prefix: string, layer: number, x: readonly Vector[]): Vector[] {
  const { heads, keyHeads, head, theta, epsilon, rotated = head } = model;
  const width = { q: heads * head, k: keyHeads * head };
  const local = model.local?.(layer);
  const plain = rotaryFrequencies(local?.theta ?? theta, rotated).map((f) => f / (local?.divisor ?? 1));
  const own = model.rotaryOf?.(layer) ?? { frequencies: model.frequencies, factor: model.rotaryFactor ?? 1 };
  const frequencies = own.frequencies?.(plain) ?? plain;
  const kind = model.headNorms ?? 'head';
  const plus = plusOf(model);
  const normed = (name: string, one: Vector, h: number): Vector => {
    if (kind === 'each') return read.layerNorm(name.replace('#', String(h)), one, epsilon);
    if (!read.has(`${name}.weight`)) return one;
    if (kind === 'rows') return multiply(read.layerNorm('', one, epsilon), read.row(`${name}.weight`, h));
    return model.layerNorms === true ? read.layerNorm(name, one, epsilon) : read.rms(name, one, epsilon, plus);
  };
  const turn = (all: Vector, t: number, norm: string) =>
    joined(
      slices(kind === 'all' ? read.rms(norm, all, epsilon, plus) : all, head).map((one, h) => {
        const before = kind === 'all' || kind === 'rotated' ? one : normed(norm, one, h);
        const turned =
          (model.rotates?.(layer) ?? true) ? rotate(before, t, frequencies, own.factor, model.neighbors) : before;
        return kind === 'rotated' ? normed(norm, turned, h) : turned;
      }),
    );
  const bound = (all: Vector) =>
    all.map((v) => Math.max(-(model.clamp ?? Infinity), Math.min(model.clamp ?? Infinity, v)));
  const parts = x.map((one) => {
    if (model.grouped !== undefined) {
      const groups = slices(read.linear(`${prefix}${model.grouped}`, one), (heads / keyHeads + 2) * head);
      return [
        joined(groups.map((group) => group.slice(0, -2 * head))),
        joined(groups.map((group) => group.slice(-2 * head, -head))),
        joined(groups.map((group) => group.slice(-head))),
      ];
    }
    const together = `${prefix}${model.togetherName ?? 'qkv_proj'}`;
    if (!read.has(`${together}.weight`))
      return ['q', 'k', 'v'].map((name) => bound(read.linear(`${prefix}${name}_proj`, one)));
    const all = read.linear(together, one);
    return [all.slice(0, width.q), all.slice(width.q, width.q + width.k), all.slice(width.q + width.k)];
  });
  const window = model.window?.(layer) ?? Infinity;
  const mixed = attend(
    parts.map(([q], t) =>
      turn(q!, t, `${prefix}${model.norms?.query ?? 'q_norm'}`).map((v) => v * (model.temperature?.(t) ?? 1)),
    ),
    parts.map(([, k], t) => turn(k!, t, `${prefix}${model.norms?.key ?? 'k_norm'}`)),
    parts.map(([, , v]) => v!),
    model,
    model.bothSides === true
      ? (query, key) => Math.abs(query - key) < window
      : (query, key) => key <= query && query - key < window,
  );
  return mixed.map((one) => read.linear(`${prefix}${model.attentionOutput ?? 'o_proj'}`, one));
}

const plusOf = ({ gemma = false, normPlus = gemma ? 1 : 0 }: Decoder) => normPlus;

function feedForward(read: Reader, model: Decoder, prefix: string, x: Vector): Vector {
  if (model.experts !== undefined && read.has(`${prefix}${model.experts.router}.weight`))
    return mixture(read, model, prefix, x);
  const act = model.act ?? (model.gemma ? gelu : silu);
  if (model.mlp !== undefined) {
    const { gate, up, down } = model.mlp;
    const grown = read.linear(prefix + up, x);
    return read.linear(
      prefix + down,
      gate === undefined ? act(grown) : multiply(act(read.linear(prefix + gate, x)), grown),
    );
  }
  const fused = prefix + (model.fusedName ?? 'mlp.gate_up_proj');
  if (read.has(`${fused}.weight`)) {
    const both = read.linear(fused, x);
    const half = both.length / 2;
    return read.linear(
      `${prefix}${model.fusedDown ?? 'mlp.down_proj'}`,
      multiply(act(both.slice(0, half)), both.slice(half)),
    );
  }
  const [gate, up] = ['gate', 'up'].map((name) => read.linear(`${prefix}mlp.${name}_proj`, x));
  return read.linear(`${prefix}mlp.down_proj`, multiply(act(gate!), up!));
}

/** A matrix among those of a tensor, times a vector. */
function oneOf(read: Reader, name: string, index: number, x: Vector): Vector {
  const { shape, values } = read.get(name);
  const [, rows, columns] = shape as [number, number, number];
  return Float64Array.from({ length: rows }, (_, r) => {
    const at = (index * rows + r) * columns;
    return x.reduce((sum, v, c) => sum + v * values[at + c]!, 0);
  });
}

/** A matrix [inputs, outputs] among those of a tensor, times a vector; of the outputs, each `step`-th from `first` on. */
export function turnedOf(
  read: Reader,
  name: string,
  e: number,
  x: Vector,
  first = 0,
  step = 1,
  count?: number,
): Vector {
  const { shape, values } = read.get(name);
  const [inputs, outputs] = shape.slice(-2) as [number, number];
  return Float64Array.from({ length: count ?? outputs }, (_, o) =>
    x.reduce((sum, v, i) => sum + v * values[(e * inputs + i) * outputs + first + o * step]!, 0),
  );
}

/** The output of an expert. */
function expertOf(read: Reader, { experts, stacked, reached }: Decoder, prefix: string, e: number, x: Vector): Vector {
  if (stacked !== undefined) {
    const both = oneOf(read, prefix + stacked[0], e, x);
    const half = both.length / 2;
    return oneOf(read, prefix + stacked[1], e, multiply(silu(both.slice(0, half)), both.slice(half)));
  }
  const [gate, up, down] = experts!.expert(e).map((name) => prefix + name);
  const inner = multiply(silu(read.linear(gate!, x)), read.linear(up!, x));
  reached?.(gate!, x);
  reached?.(down!, inner);
  return read.linear(down!, inner);
}

/** The best experts, weighted by their shares, and those that all tokens pass. */
function mixture(read: Reader, model: Decoder, prefix: string, x: Vector): Vector {
  const { experts, usedExperts, shares: wish = { of: 'chosen' }, shared, sharedFused, sharedGate } = model;
  const scores = read.linear(`${prefix}${experts!.router}`, x);
  const all = wish.of === 'sigmoid' ? [...scores].map(sigmoid) : wish.of === 'all' ? softmax([...scores]) : [...scores];
  const bias = wish.bias === undefined ? undefined : read.get(prefix + wish.bias).values;
  const rank = (e: number) => all[e]! + (bias?.[e] ?? 0);
  const best = [...all.keys()].sort((a, b) => rank(b) - rank(a)).slice(0, usedExperts);
  const chosen = best.map((e) => all[e]!);
  const sum = wish.normalized === true ? chosen.reduce((a, b) => a + b, 0) : 1;
  const shares = wish.of === 'chosen' ? softmax(chosen) : chosen.map((v) => (v / sum) * (wish.factor ?? 1));
  const routed = best.map((e, i) => expertOf(read, model, prefix, e, x).map((v) => v * shares[i]!)).reduce(add);
  let common: Vector | undefined;
  if (shared !== undefined) {
    const [gate, up, down] = shared.map((name) => prefix + name);
    common = read.linear(down!, multiply(silu(read.linear(gate!, x)), read.linear(up!, x)));
  } else if (sharedFused !== undefined) {
    const both = read.linear(prefix + sharedFused[0], x);
    const half = both.length / 2;
    common = read.linear(prefix + sharedFused[1], multiply(silu(both.slice(0, half)), both.slice(half)));
  }
  if (common === undefined) return routed;
  const opened = sharedGate === undefined ? 1 : sigmoid(read.linear(prefix + sharedGate, x)[0]!);
  return add(
    routed,
    common.map((v) => v * opened),
  );
}

/** LFM2's short convolution: what one projection gives is weighted by a second, mixed over tokens, and weighted by a third. */
function convolution(read: Reader, prefix: string, x: readonly Vector[]): Vector[] {
  const { shape, values } = read.get(`${prefix}conv.conv.weight`);
  const size = shape[2]!;
  const parts = x.map((one) => slices(read.linear(`${prefix}conv.in_proj`, one), one.length));
  const weighted = parts.map(([before, , own]) => multiply(before!, own!));
  return parts.map(([, after], t) => {
    const mixed = after!.map((v, c) => {
      let sum = 0;
      // The last weight is of the token itself.
      for (let k = 0; k < size; k++) sum += values[c * size + k]! * (weighted[t - size + 1 + k]?.[c] ?? 0);
      return v * sum;
    });
    return read.linear(`${prefix}conv.out_proj`, mixed);
  });
}

/** Names of the norms of Llama, or of Gemma 2 and 3. */
const usualNorms = (gemma: boolean) => ({
  attention: 'input_layernorm',
  attentionAfter: gemma ? 'post_attention_layernorm' : undefined,
  feedForward: gemma ? 'pre_feedforward_layernorm' : 'post_attention_layernorm',
  feedForwardAfter: gemma ? 'post_feedforward_layernorm' : undefined,
});

/** The vectors of a text behind the last norm. */
export function decoderStates(weights: Weights, model: Decoder, tokens: readonly number[]): Vector[] {
  const read = new Reader(weights);
  const plus = plusOf(model);
  const norm = (name: string | undefined, all: readonly Vector[]) =>
    name === undefined || (model.embeddingNorm !== undefined && !read.has(`${name}.weight`))
      ? [...all]
      : all.map((one) =>
          model.layerNorms === true
            ? read.layerNorm(name, one, model.epsilon, plus)
            : model.rmsBiases === true
              ? add(read.rms(name, one, model.epsilon, plus), Float64Array.from(read.get(`${name}.bias`).values))
              : read.rms(name, one, model.epsilon, plus),
        );
  const names = { ...usualNorms(model.gemma === true), ...model.norms };
  let x = tokens.map((token) => read.row(model.embedding ?? 'model.embed_tokens.weight', token));
  const factor = model.embeddingFactor ?? (model.gemma ? Math.sqrt(x[0]!.length) : 1);
  x = x.map((one) => one.map((v) => v * factor));
  const { positions } = model;
  if (positions !== undefined) x = x.map((one, t) => add(one, read.row(positions, t)));
  if (model.embeddingNorm !== undefined) x = norm(model.embeddingNorm, x);
  const residual = (all: readonly Vector[]) => all.map((one) => one.map((v) => v * (model.residualFactor ?? 1)));
  for (let i = 0; i < model.layers; i++) {
    const prefix = `${model.prefix ?? 'model.layers.'}${i}.`;
    const of = (name: string | undefined) => (name === undefined ? undefined : prefix + name);
    const grow = (all: readonly Vector[]) =>
      all.map((one) => model.grow?.(read, prefix, one) ?? feedForward(read, model, prefix, one));
    const first = norm(of(names.attention), x);
    const attended =
      model.attend !== undefined
        ? model.attend(read, prefix, i, first)
        : model.convolves?.(i) === true
          ? convolution(read, prefix, first)
          : attention(read, model, `${prefix}${model.attentionPrefix ?? 'self_attn.'}`, i, first);
    const mixed = residual(norm(of(names.attentionAfter), attended));
    const before = model.parallel === true && names.feedForward === undefined ? first : undefined;
    const states = x;
    x = x.map((one, t) => add(one, mixed[t]!));
    const grown = grow(before ?? norm(of(names.feedForward), model.parallel === true ? states : x));
    const added = residual(norm(of(names.feedForwardAfter), grown));
    x = x.map((one, t) => add(one, added[t]!));
  }
  return norm(names.final ?? 'model.norm', x);
}

/** Logits behind each token of a text. */
export function decoderLogits(weights: Weights, model: Decoder, tokens: readonly number[]): Vector[] {
  const read = new Reader(weights);
  const head = (model.headName ?? model.embedding ?? 'model.embed_tokens.weight').replace(/\.weight$/, '');
  return decoderStates(weights, model, tokens).map((one) =>
    read.linear(head, one).map((v) => cap(v * (model.logitFactor ?? 1), model.finalCap)),
  );
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
  const inner = read.has(`${prefix}mlp.fc12.weight`)
    ? multiply(read.linear(`${prefix}mlp.fc11`, y), silu(read.linear(`${prefix}mlp.fc12`, y)))
    : gelu(read.linear(`${prefix}mlp.fc1`, y));
  return read.layerNorm(`${prefix}norm2`, add(y, read.linear(`${prefix}mlp.fc2`, inner)), epsilon);
}
