/**
 * The forward pass of a language model, a layer at a time over all tokens, so that the weights of one layer are in memory. Hidden states stay
 * in JavaScript memory; a slice of tokens after the other goes through wasm memory.
 */
import { AttentionSpec, RotarySpec } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import { type Core, checkStatus } from '../core/memory.js';
import { floatForm, LayerMemory } from '../layers/layer-memory.js';
import type { LanguageFacts } from './facts.js';

/** Gives the tensors of a model under llama.cpp's names, as floats. */
export interface LanguageTensors {
  /** True if the model has that tensor. */
  has(name: string): boolean;
  /** Rows and columns of a matrix, or 1 and the length of a vector. */
  size(name: string): readonly [rows: number, columns: number];
  /** Elements of consecutive rows. */
  read(name: string, row: number, rows: number): Promise<Float32Array>;
}

/**
 * Takes the inputs of a product before it is computed.
 * @param names of the weights that share these inputs
 * @param x address of `rows` rows of `columns` floats
 */
export type WatchInputs = (names: readonly string[], x: number, rows: number, columns: number) => void;

/** A matrix in wasm memory, ready for products. */
interface Product {
  readonly names: readonly string[];
  readonly inputs: number;
  readonly outputs: number;
  /** y = x W' + bias, for `rows` rows. */
  run(x: number, rows: number, y: number): void;
}

/** Rows that pass a layer of weights at a time. */
const rowsAtOnce = 64;

/** Floats of weights that are read at a time. */
const readSize = 1 << 20;

/** Tokens of a slice, at least one text. */
const sliceTokens = 512;

/** Memory that is freed together. */
class Memory {
  readonly #core: Core;
  readonly #frees: (() => void)[] = [];

  constructor(core: Core) {
    this.#core = core;
  }

  floats(n: number): number {
    return this.bytes(n * 4);
  }

  bytes(n: number): number {
    const address = this.#core.allocate(n);
    this.own(() => this.#core.release(address));
    return address;
  }

  /** Frees something else together with the memory. */
  own(free: () => void): void {
    this.#frees.push(free);
  }

  release(): void {
    for (const free of this.#frees.splice(0)) free();
  }
}

/** Carries out the layers of one model in the memory of one core. */
export class LanguageForward {
  readonly #core: Core;
  readonly #facts: LanguageFacts;
  readonly #tensors: LanguageTensors;

  constructor(core: Core, facts: LanguageFacts, tensors: LanguageTensors) {
    this.#core = core;
    this.#facts = facts;
    this.#tensors = tensors;
  }

  /** The weights of a layer, those that share their inputs together, and the columns of these inputs. */
  inputsOf(index: number): { readonly names: readonly string[]; readonly columns: number }[] {
    return this.#productsOf(index).map((names) => ({ names, columns: this.#tensors.size(names[0] as string)[1] }));
  }

  /** Names of the weights of a layer: of queries, keys and values, of the attention's output, and of the feed-forward part. */
  #productsOf(index: number) {
    const own = (name: string) => `blk.${index}.${name}.weight`;
    const fused = this.#tensors.has(own('attn_qkv'));
    return [
      fused ? [own('attn_qkv')] : [own('attn_q'), own('attn_k'), own('attn_v')],
      [own('attn_output')],
      this.#tensors.has(own('ffn_gate')) ? [own('ffn_gate'), own('ffn_up')] : [own('ffn_up')],
      [own('ffn_down')],
    ] as const;
  }

  /** Hidden states of tokens, `hidden` floats each. @throws RangeError for ids that the model lacks */
  async embed(ids: Uint32Array): Promise<Float32Array<ArrayBuffer>> {
    const { hidden, embeddingScale } = this.#facts;
    const name = 'token_embd.weight';
    const states = new Float32Array(ids.length * hidden);
    // Read each row once.
    const tokensOf = new Map<number, number[]>();
    for (const [token, id] of ids.entries()) {
      const tokens = tokensOf.get(id);
      if (tokens === undefined) tokensOf.set(id, [token]);
      else tokens.push(token);
    }
    const memory = new Memory(this.#core);
    try {
      const address = memory.floats(hidden);
      for (const [id, tokens] of tokensOf) {
        const { models } = this.#core;
        models.HEAPF32.set(await this.#tensors.read(name, id, 1), address >>> 2);
        models.scaleFloats(embeddingScale, address, hidden);
        const row = models.HEAPF32.subarray(address >>> 2, (address >>> 2) + hidden);
        for (const token of tokens) states.set(row, token * hidden);
      }
    } finally {
      memory.release();
    }
    return states;
  }

  /**
   * Carries out a layer on all tokens. `states` become those behind it.
   * @param textSize tokens of a text; the last one may be shorter
   * @param onSlice called after each slice, with the tokens done
   */
  async layer(
    index: number,
    states: Float32Array<ArrayBuffer>,
    textSize: number,
    watch: WatchInputs,
    onSlice: (tokens: number) => void | Promise<void>,
  ): Promise<void> {
    const { hidden } = this.#facts;
    const weights = new Memory(this.#core);
    try {
      const run = await this.#prepare(index, weights);
      const tokens = states.length / hidden;
      const step = Math.max(1, Math.floor(sliceTokens / textSize)) * textSize;
      for (let first = 0; first < tokens; first += step) {
        const n = Math.min(step, tokens - first);
        run(states.subarray(first * hidden, (first + n) * hidden), n, textSize, watch);
        await onSlice(first + n);
      }
    } finally {
      weights.release();
    }
  }

  /** Reads the weights of a layer. The result carries it out on some tokens. */
  async #prepare(index: number, memory: Memory) {
    const core = this.#core;
    const { hidden, heads, keyHeads, headSize, epsilon, gate } = this.#facts;
    const own = (name: string) => `blk.${index}.${name}`;
    const vector = (name: string) => this.#vector(own(`${name}.weight`), memory);

    // Read norms and matrices.
    const attentionNorm = await vector('attn_norm');
    const feedForwardNorm = await vector('ffn_norm');
    const queryNorm = await vector('attn_q_norm');
    const keyNorm = await vector('attn_k_norm');
    const attentionAfter = await vector('post_attention_norm');
    const feedForwardAfter = await vector('post_ffw_norm');
    const [togetherNames, outputNames, upNames, downNames] = this.#productsOf(index);
    const together = await this.#product(togetherNames, memory);
    const output = await this.#product(outputNames, memory);
    const up = await this.#product(upNames, memory);
    const down = await this.#product(downNames, memory);
    const [queries, keys] = [heads * headSize, keyHeads * headSize];
    const feedForward = down.inputs;
    if (together.outputs !== queries + 2 * keys || up.outputs !== 2 * feedForward || output.inputs !== queries) {
      throw new ScalepointError('BAD_FILE', `the matrices of layer ${index} do not fit its heads`);
    }
    const rotary = this.#facts.rotary(index);
    const frequencies = rotary === undefined ? 0 : memory.bytes(rotary.frequencies.byteLength);
    if (rotary !== undefined) core.module.HEAPF64.set(rotary.frequencies, frequencies >>> 3);

    return (states: Float32Array<ArrayBuffer>, tokens: number, textSize: number, watch: WatchInputs): void => {
      const { models } = core;
      const work = new Memory(core);
      try {
        // Take memory for a slice.
        const x = work.floats(tokens * hidden);
        const normed = work.floats(tokens * hidden);
        const wide = work.floats(tokens * Math.max(together.outputs, up.outputs));
        const [q, k, v] = [work.floats(tokens * queries), work.floats(tokens * keys), work.floats(tokens * keys)];
        const mixed = work.floats(tokens * Math.max(queries, feedForward));
        const positions = work.bytes(tokens * 4);
        const scratch = work.floats(textSize);
        const heap = () => models.HEAPF32;
        const norm = (from: number, rows: number, weight: number, width: number, to: number) =>
          checkStatus(models.rmsNorm(from, rows, weight, width, epsilon, 0, to));
        const add = (from: number) => checkStatus(models.addResidual(from, tokens * hidden, x));
        const apply = (matrix: Product, from: number, to: number) => {
          watch(matrix.names, from, tokens, matrix.inputs);
          matrix.run(from, tokens, to);
        };
        heap().set(states, x >>> 2);
        for (let i = 0; i < tokens; i++) models.HEAPU32[(positions >>> 2) + i] = i % textSize;

        // Attend.
        norm(x, tokens, attentionNorm, hidden, normed);
        apply(together, normed, wide);
        split(heap(), wide >>> 2, tokens, [
          [q >>> 2, queries],
          [k >>> 2, keys],
          [v >>> 2, keys],
        ]);
        if (queryNorm !== 0) norm(q, tokens * heads, queryNorm, headSize, q);
        if (keyNorm !== 0) norm(k, tokens * keyHeads, keyNorm, headSize, k);
        if (rotary !== undefined) {
          const n = rotary.frequencies.length;
          for (const [at, count] of [
            [q, heads],
            [k, keyHeads],
          ] as const) {
            const spec = { heads: count, headSize, pairs: rotary.pairs, factor: rotary.factor };
            core.withRecord(RotarySpec, spec, (record) =>
              checkStatus(models.rotate(at, tokens, record, positions, frequencies, n)),
            );
          }
        }
        const attention: AttentionSpec = {
          heads,
          keyHeads,
          headSize,
          scale: this.#facts.attentionScale,
          softcap: this.#facts.attentionCap,
          window: this.#facts.window(index),
          causal: true,
          textSize,
        };
        core.withRecord(AttentionSpec, attention, (record) =>
          checkStatus(models.attend(q, k, v, tokens, record, scratch, mixed)),
        );
        apply(output, mixed, normed);
        if (attentionAfter !== 0) norm(normed, tokens, attentionAfter, hidden, normed);
        add(normed);

        // Feed forward.
        norm(x, tokens, feedForwardNorm, hidden, normed);
        apply(up, normed, wide);
        for (let token = 0; token < tokens; token++) {
          const at = wide + token * up.outputs * 4;
          checkStatus(models.applyGate(gate, at, at + feedForward * 4, feedForward, mixed + token * feedForward * 4));
        }
        apply(down, mixed, normed);
        if (feedForwardAfter !== 0) norm(normed, tokens, feedForwardAfter, hidden, normed);
        add(normed);
        states.set(heap().subarray(x >>> 2, (x >>> 2) + tokens * hidden));
      } finally {
        work.release();
      }
    };
  }

  /** Number of tokens that the model knows. */
  get vocabulary(): number {
    return this.#tensors.size(this.#head)[0];
  }

  get #head(): string {
    return this.#tensors.has('output.weight') ? 'output.weight' : 'token_embd.weight';
  }

  /**
   * Logits of some tokens, one row of `vocabulary` numbers for each, from the states behind the last layer. The head is read in pieces, so
   * that large vocabularies fit.
   */
  async logits(states: Float32Array<ArrayBuffer>, watch: WatchInputs): Promise<Float32Array<ArrayBuffer>> {
    const core = this.#core;
    const { hidden, epsilon, finalCap } = this.#facts;
    const { vocabulary } = this;
    const tokens = states.length / hidden;
    const all = new Float32Array(tokens * vocabulary);
    const memory = new Memory(core);
    try {
      const weight = await this.#vector('output_norm.weight', memory);
      const x = memory.floats(tokens * hidden);
      core.module.HEAPF32.set(states, x >>> 2);
      checkStatus(core.models.rmsNorm(x, tokens, weight, hidden, epsilon, 0, x));
      watch([this.#head], x, tokens, hidden);
      const step = Math.max(1, Math.floor((16 * readSize) / hidden));
      for (let row = 0; row < vocabulary; row += step) {
        const n = Math.min(step, vocabulary - row);
        const piece = new Memory(core);
        try {
          const product = await this.#product([this.#head], piece, row, n);
          const y = piece.floats(tokens * n);
          product.run(x, tokens, y);
          if (finalCap > 0) checkStatus(core.models.capSoftly(finalCap, y, tokens * n));
          for (let token = 0; token < tokens; token++) {
            const from = (y >>> 2) + token * n;
            all.set(core.module.HEAPF32.subarray(from, from + n), token * vocabulary + row);
          }
        } finally {
          piece.release();
        }
      }
    } finally {
      memory.release();
    }
    return all;
  }

  /** The address of a vector; 0 if the model lacks it. */
  async #vector(name: string, memory: Memory): Promise<number> {
    if (!this.#tensors.has(name)) return 0;
    const values = await this.#tensors.read(name, 0, 1);
    const address = memory.floats(values.length);
    this.#core.module.HEAPF32.set(values, address >>> 2);
    return address;
  }

  /** Matrices of the same inputs, one above the other, with their biases. */
  async #product(weights: readonly string[], memory: Memory, firstRow = 0, someRows?: number): Promise<Product> {
    const core = this.#core;
    const sizes = weights.map((name) => this.#tensors.size(name));
    const inputs = sizes[0]?.[1] ?? 0;
    const outputs = someRows ?? sizes.reduce((sum, [rows]) => sum + rows, 0);
    const { module } = core;
    const matrix = new LayerMemory(core, floatForm(outputs, inputs));
    memory.own(() => matrix.dispose());
    const bias = new Float32Array(outputs);
    const step = Math.max(1, Math.floor(readSize / inputs));
    const piece = memory.floats(Math.max(outputs, Math.min(outputs, step) * inputs));
    let at = 0;
    for (const [i, name] of weights.entries()) {
      const rows = someRows ?? (sizes[i] as readonly [number, number])[0];
      if (sizes[i]?.[1] !== inputs)
        throw new ScalepointError('BAD_FILE', `${name} has other inputs than ${weights[0]}`);
      for (let row = 0; row < rows; row += step) {
        const n = Math.min(step, rows - row);
        module.HEAPF32.set(await this.#tensors.read(name, firstRow + row, n), piece >>> 2);
        checkStatus(module.setLayerFloats(matrix.layer, at + row, piece, n * inputs));
      }
      const biasName = name.replace(/\.weight$/, '.bias');
      if (this.#tensors.has(biasName)) bias.set(await this.#tensors.read(biasName, 0, 1), at);
      at += rows;
    }
    module.HEAPF32.set(bias, piece >>> 2);
    checkStatus(module.setLayerBias(matrix.layer, piece, outputs));
    const workBytes = module.layerWorkspaceBytes(matrix.layer, rowsAtOnce);
    const work = memory.bytes(workBytes);
    const run = (x: number, rows: number, y: number) => {
      for (let row = 0; row < rows; row += rowsAtOnce) {
        const n = Math.min(rowsAtOnce, rows - row);
        checkStatus(
          module._layerForward(matrix.layer, x + row * inputs * 4, n, y + row * outputs * 4, work, workBytes),
        );
      }
    };
    return { names: weights, inputs, outputs, run };
  }
}

/** Copies columns of rows to arrays of their own. */
function split(
  heap: Float32Array,
  from: number,
  rows: number,
  parts: readonly (readonly [to: number, columns: number])[],
): void {
  const width = parts.reduce((sum, [, columns]) => sum + columns, 0);
  for (let row = 0; row < rows; row++) {
    let at = from + row * width;
    for (const [to, columns] of parts) {
      heap.copyWithin(to + row * columns, at, at + columns);
      at += columns;
    }
  }
}
