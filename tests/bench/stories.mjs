// Shared by benchmarks of language models: texts that a model draws, divergences on them, and figures with standard errors.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { evaluateModel, inspectModel, readFloats } from '../../dist/model.js';
import { generator } from '../../scripts/site/storyteller/stories.mjs';

/** y = x W'. @param {Float32Array} x @param {Float32Array} w @param {number} rows */
function product(x, w, rows) {
  const n = x.length;
  const y = new Float32Array(rows);
  for (let row = 0, at = 0; row < rows; row++) {
    let [a, b, c, d] = [0, 0, 0, 0];
    for (let i = 0; i < n; i += 4, at += 4) {
      a += x[i] * w[at];
      b += x[i + 1] * w[at + 1];
      c += x[i + 2] * w[at + 2];
      d += x[i + 3] * w[at + 3];
    }
    y[row] = a + b + (c + d);
  }
  return y;
}

/** @param {Float32Array} x @param {Float32Array} weights @param {number} epsilon */
function normalized(x, weights, epsilon) {
  const scale = 1 / Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length + epsilon);
  return x.map((v, i) => v * scale * weights[i]);
}

/** Turns the pairs (i, i + half) of each head. @param {Float32Array} x @param {number} head @param {number} position @param {number} base */
function rotate(x, head, position, base) {
  for (let i = 0; i < head / 2; i++) {
    const angle = position * base ** ((-2 * i) / head);
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    for (let at = i; at < x.length; at += head) {
      const [a, b] = [x[at], x[at + head / 2]];
      x[at] = a * c - b * s;
      x[at + head / 2] = b * c + a * s;
    }
  }
}

/** A small llama in a folder, a token at a time, in plain JavaScript. */
class Drawer {
  #config;
  /** @type {Map<string, Float32Array>} */
  #weights = new Map();

  /** @param {string} folder */
  static async open(folder) {
    const drawer = new Drawer();
    drawer.#config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
    const file = join(folder, 'model.safetensors');
    const read = async (name) => drawer.#weights.set(name, (await readFloats(file, name)).data);
    for (let i = 0; i < drawer.#config.num_hidden_layers; i++) {
      const parts = ['q', 'k', 'v', 'o'].map((one) => `self_attn.${one}_proj`);
      const inner = ['gate', 'up', 'down'].map((one) => `mlp.${one}_proj`);
      for (const name of [...parts, ...inner, 'input_layernorm', 'post_attention_layernorm'])
        await read(`model.layers.${i}.${name}.weight`);
    }
    await read('model.norm.weight');
    // Tied weights stand under either name.
    const { tensors } = await inspectModel(file);
    const names = ['lm_head.weight', 'model.embed_tokens.weight'];
    await read(names.find((name) => tensors.some((tensor) => tensor.name === name)));
    return drawer;
  }

  #weight(name) {
    return this.#weights.get(`${name}.weight`);
  }

  /** Chances of the next token. @param {number} token @param {number} position @param {Float32Array[][]} cache */
  #next(token, position, cache) {
    const {
      hidden_size: d,
      intermediate_size: inner,
      num_attention_heads: heads,
      rms_norm_eps: epsilon,
    } = this.#config;
    const { num_key_value_heads: groups, rope_theta: base = 1e4, vocab_size: vocabulary } = this.#config;
    const head = d / heads;
    const output = this.#weight('lm_head') ?? this.#weight('model.embed_tokens');
    const x = output.slice(token * d, (token + 1) * d);
    const add = (y) => {
      for (let i = 0; i < d; i++) x[i] += y[i];
    };
    for (let layer = 0; layer < this.#config.num_hidden_layers; layer++) {
      const own = (name) => this.#weight(`model.layers.${layer}.${name}`);
      const n = normalized(x, own('input_layernorm'), epsilon);
      const q = product(n, own('self_attn.q_proj'), d);
      const k = product(n, own('self_attn.k_proj'), groups * head);
      const v = product(n, own('self_attn.v_proj'), groups * head);
      rotate(q, head, position, base);
      rotate(k, head, position, base);
      const [keys, values] = cache[layer];
      keys.push(k);
      values.push(v);
      const context = new Float32Array(d);
      for (let h = 0; h < heads; h++) {
        const from = Math.floor((h * groups) / heads) * head;
        const scores = keys.map((key) => {
          let sum = 0;
          for (let i = 0; i < head; i++) sum += q[h * head + i] * key[from + i];
          return sum / Math.sqrt(head);
        });
        const most = Math.max(...scores);
        const chances = scores.map((score) => Math.exp(score - most));
        const all = chances.reduce((a, b) => a + b);
        for (const [t, value] of values.entries()) {
          for (let i = 0; i < head; i++) context[h * head + i] += (chances[t] / all) * value[from + i];
        }
      }
      add(product(context, own('self_attn.o_proj'), d));
      const m = normalized(x, own('post_attention_layernorm'), epsilon);
      const up = product(m, own('mlp.up_proj'), inner);
      const gate = product(m, own('mlp.gate_proj'), inner).map((a, i) => (a / (1 + Math.exp(-a))) * up[i]);
      add(product(gate, own('mlp.down_proj'), d));
    }
    const logits = product(normalized(x, this.#weight('model.norm'), epsilon), output, vocabulary);
    const most = logits.reduce((a, b) => Math.max(a, b));
    return logits.map((logit) => Math.exp(logit - most));
  }

  /** @param {number} length @param {() => number} random */
  draw(length, random) {
    const { bos_token_id: first, eos_token_id: last, num_hidden_layers: layers } = this.#config;
    const ids = Uint32Array.of(first, ...new Uint32Array(length - 1));
    const cache = Array.from({ length: layers }, () => [[], []]);
    for (let i = 0; i + 1 < length; i++) {
      const chances = this.#next(ids[i], i, cache);
      let left = random() * chances.reduce((a, b) => a + b);
      const drawn = chances.findIndex((chance) => {
        left -= chance;
        return left <= 0;
      });
      // A story that ends is followed by another one.
      ids[i + 1] = drawn === last || drawn < 0 ? first : drawn;
    }
    return ids;
  }
}

/**
 * Draws texts from a llama with tied embeddings in a folder.
 * @param {string} folder @param {{ seed: number, texts: number, length: number }} options
 */
export async function drawTexts(folder, { seed, texts, length }) {
  const drawer = await Drawer.open(folder);
  const random = generator(seed);
  return Array.from({ length: texts }, () => drawer.draw(length, random));
}

/** @param {readonly Uint32Array[]} texts */
export const joined = (texts) => Uint32Array.from(texts.flatMap((text) => [...text]));

/**
 * Mean divergence from the reference in each text. Its second half counts.
 * @param {Uint8Array | string} model @param {Uint8Array | string} reference @param {readonly Uint32Array[]} texts
 */
export async function divergences(model, reference, texts) {
  const found = [];
  for (const text of texts)
    found.push((await evaluateModel(model, { reference, text, chunkSize: text.length })).kl.value);
  return found;
}

/** The mean and its standard error. @param {readonly number[]} values */
export function meanOf(values) {
  const n = values.length;
  const value = values.reduce((a, b) => a + b, 0) / n;
  return { value, error: Math.sqrt(values.reduce((a, b) => a + (b - value) ** 2, 0) / (n - 1) / n) };
}

/** Mean of a by mean of b, of the same texts, and its standard error to first order. @param {readonly number[]} a @param {readonly number[]} b */
export function ratioOf(a, b) {
  const below = meanOf(b).value;
  const value = meanOf(a).value / below;
  return { value, error: meanOf(a.map((x, i) => x - value * b[i])).error / below };
}

/** @param {{ value: number, error: number }} figure @param {number} digits */
export const show = ({ value, error }, digits) => `${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
