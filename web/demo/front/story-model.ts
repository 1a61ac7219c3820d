import type { Layer, Scalepoint } from 'scalepoint';
import { type NetworkTensor, type Storage, storedWeights, type Tensors } from './network.js';

/** Sizes of a small llama, as its config.json has them. */
export interface StoryConfig {
  readonly num_hidden_layers: number;
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_attention_heads: number;
  readonly max_position_embeddings: number;
  readonly vocab_size: number;
  readonly rms_norm_eps: number;
  readonly rope_theta: number;
  readonly bos_token_id: number;
  readonly eos_token_id: number;
}

/** The model as it was fetched: float32 values of every tensor. */
export interface StoryModel {
  readonly config: StoryConfig;
  readonly tensors: Tensors;
}

interface Block {
  readonly norm: Float32Array;
  readonly query: Layer;
  readonly key: Layer;
  readonly value: Layer;
  readonly output: Layer;
  readonly secondNorm: Float32Array;
  readonly gate: Layer;
  readonly up: Layer;
  readonly down: Layer;
}

const tensorOf = ({ tensors }: StoryModel, name: string): NetworkTensor => {
  const tensor = tensors[`${name}.weight`];
  if (tensor === undefined) throw new TypeError(`the storyteller has no tensor ${name}`);
  return tensor;
};

/**
 * The storyteller with its weights stored in one way. Scalepoint computes the products with the weights; norms, positions and attention are
 * in JavaScript. It writes with the most probable token each time, so that equal weights write equal stories.
 */
export class Storyteller {
  /** Bytes of all tensors. */
  readonly bytes: number;
  readonly #config: StoryConfig;
  readonly #blocks: readonly Block[];
  readonly #embeddings: Float32Array;
  readonly #logits: Layer;
  readonly #lastNorm: Float32Array;

  private constructor(
    model: StoryModel,
    made: { blocks: readonly Block[]; embeddings: Float32Array; logits: Layer; bytes: number },
  ) {
    this.#config = model.config;
    this.#blocks = made.blocks;
    this.#embeddings = made.embeddings;
    this.#logits = made.logits;
    this.#lastNorm = tensorOf(model, 'model.norm').data;
    this.bytes = made.bytes + this.#lastNorm.byteLength;
  }

  /** Stores the weights, layer by layer. `pause` comes before each, so that a page stays quick. */
  static async create(
    core: Scalepoint,
    model: StoryModel,
    storage: Storage,
    pause: () => Promise<unknown> = async () => {},
  ): Promise<Storyteller> {
    let bytes = 0;
    const layer = (name: string): Layer => {
      const stored = storedWeights(core, tensorOf(model, name), storage);
      bytes += stored.bytes;
      return stored.layer();
    };
    const norm = (name: string): Float32Array => {
      const { data } = tensorOf(model, name);
      bytes += data.byteLength;
      return data;
    };
    // The embeddings are the output layer, too.
    const stored = storedWeights(core, tensorOf(model, 'model.embed_tokens'), storage);
    bytes += stored.bytes;
    const [embeddings, logits] = [stored.restored(), stored.layer()];
    const blocks: Block[] = [];
    for (let i = 0; i < model.config.num_hidden_layers; i++) {
      await pause();
      const at = (name: string) => `model.layers.${i}.${name}`;
      blocks.push({
        norm: norm(at('input_layernorm')),
        query: layer(at('self_attn.q_proj')),
        key: layer(at('self_attn.k_proj')),
        value: layer(at('self_attn.v_proj')),
        output: layer(at('self_attn.o_proj')),
        secondNorm: norm(at('post_attention_layernorm')),
        gate: layer(at('mlp.gate_proj')),
        up: layer(at('mlp.up_proj')),
        down: layer(at('mlp.down_proj')),
      });
    }
    return new Storyteller(model, { blocks, embeddings, logits, bytes });
  }

  /** Continues tokens, one token for each step. It ends with the story, or where the model has no more positions. */
  *write(begin: readonly number[]): Generator<number, void, void> {
    const { max_position_embeddings: most, bos_token_id: first, eos_token_id: last } = this.#config;
    const text = new Attention(this.#config);
    let next = this.#read(text, first);
    for (const token of begin) next = this.#read(text, token);
    while (next !== last && text.length < most) {
      yield next;
      next = this.#read(text, next);
    }
  }

  /** Reads a token, and returns the most probable one after it. */
  #read(text: Attention, token: number): number {
    const { hidden_size: width, rms_norm_eps: epsilon } = this.#config;
    const x = this.#embeddings.slice(token * width, (token + 1) * width);
    for (const [i, block] of this.#blocks.entries()) {
      const input = normalized(x, block.norm, epsilon);
      const context = text.attend(i, block.query.forward(input), block.key.forward(input), block.value.forward(input));
      add(x, block.output.forward(context));
      const inner = normalized(x, block.secondNorm, epsilon);
      const [gate, up] = [block.gate.forward(inner), block.up.forward(inner)];
      for (let j = 0; j < gate.length; j++) gate[j] = (gate[j]! / (1 + Math.exp(-gate[j]!))) * up[j]!;
      add(x, block.down.forward(gate));
    }
    text.length++;
    const logits = this.#logits.forward(normalized(x, this.#lastNorm, epsilon));
    let best = 0;
    for (let i = 1; i < logits.length; i++) if (logits[i]! > logits[best]!) best = i;
    return best;
  }

  /** Frees the layers. */
  dispose(): void {
    this.#logits.dispose();
    for (const { norm: _, secondNorm: __, ...layers } of this.#blocks) {
      for (const layer of Object.values(layers)) layer.dispose();
    }
  }
}

/** Keys and values of the tokens of a text. */
class Attention {
  /** Tokens that are read. */
  length = 0;
  readonly #config: StoryConfig;
  readonly #keys: readonly Float32Array[];
  readonly #values: readonly Float32Array[];
  /** Cosines and sines of the angle of each pair at each position. */
  readonly #turns: Float32Array;

  constructor(config: StoryConfig) {
    this.#config = config;
    const { num_hidden_layers: layers, hidden_size: width, max_position_embeddings: most, rope_theta: base } = config;
    const room = () => Array.from({ length: layers }, () => new Float32Array(most * width));
    [this.#keys, this.#values] = [room(), room()];
    const half = this.#head / 2;
    this.#turns = new Float32Array(most * half * 2);
    for (let position = 0, at = 0; position < most; position++) {
      for (let i = 0; i < half; i++) {
        const angle = position * base ** (-i / half);
        this.#turns[at++] = Math.cos(angle);
        this.#turns[at++] = Math.sin(angle);
      }
    }
  }

  get #head(): number {
    return this.#config.hidden_size / this.#config.num_attention_heads;
  }

  /** Turns the pairs (i, i + half) of each head by the angle of this position. */
  #rotate(x: Float32Array): void {
    const [head, half] = [this.#head, this.#head / 2];
    for (let from = 0; from < x.length; from += head) {
      for (let i = 0; i < half; i++) {
        const turn = 2 * (this.length * half + i);
        const [cosine, sine] = [this.#turns[turn]!, this.#turns[turn + 1]!];
        const [a, b] = [x[from + i]!, x[from + i + half]!];
        x[from + i] = a * cosine - b * sine;
        x[from + i + half] = b * cosine + a * sine;
      }
    }
  }

  /** Means of the values of all tokens so far, weighted by how well their keys fit the query. */
  attend(layer: number, query: Float32Array, key: Float32Array, value: Float32Array): Float32Array<ArrayBuffer> {
    const [head, width, position] = [this.#head, query.length, this.length];
    const [keys, values] = [this.#keys[layer]!, this.#values[layer]!];
    this.#rotate(query);
    this.#rotate(key);
    keys.set(key, position * width);
    values.set(value, position * width);
    const context = new Float32Array(width);
    const weights = new Float32Array(position + 1);
    for (let from = 0; from < width; from += head) {
      let most = Number.NEGATIVE_INFINITY;
      for (let t = 0; t <= position; t++) {
        let sum = 0;
        for (let i = from; i < from + head; i++) sum += query[i]! * keys[t * width + i]!;
        weights[t] = sum / Math.sqrt(head);
        most = Math.max(most, weights[t]!);
      }
      let all = 0;
      for (let t = 0; t <= position; t++) all += weights[t] = Math.exp(weights[t]! - most);
      for (let t = 0; t <= position; t++) {
        const share = weights[t]! / all;
        for (let i = from; i < from + head; i++) context[i]! += share * values[t * width + i]!;
      }
    }
    return context;
  }
}

function normalized(x: Float32Array, weights: Float32Array, epsilon: number): Float32Array<ArrayBuffer> {
  let sum = 0;
  for (const value of x) sum += value * value;
  const scale = 1 / Math.sqrt(sum / x.length + epsilon);
  const y = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) y[i] = x[i]! * scale * weights[i]!;
  return y;
}

function add(x: Float32Array, y: Float32Array): void {
  for (let i = 0; i < x.length; i++) x[i]! += y[i]!;
}
