/**
 * The forward pass of a language model, a layer at a time over all tokens. Each worker, or the calling thread in its place, holds the
 * weights of one layer, or of one expert, and takes slices of tokens. Hidden states stay in JavaScript memory. Results of slices are taken in
 * the order of the tokens, so that they do not depend on the number of workers.
 */
import { ScalepointError } from '../core/errors.js';
import { checkStatus } from '../core/memory.js';
import type { LanguageFacts, Metadata } from './facts.js';
import { fromWasm, toWasm } from './layer-handler.js';
import type {
  LayerSpec,
  NormName,
  NormSpec,
  ProductName,
  ProductSpec,
  TransformerAnswer,
  TransformerJob,
  Watch,
  Watched,
} from './layer-jobs.js';
import { type LayerWorkers, takeInOrder } from './layer-workers.js';

/** Gives the tensors of a model under llama.cpp's names, as floats. */
export interface LanguageTensors {
  /** True if the model has that tensor. */
  has(name: string): boolean;
  /** Rows and columns of a matrix, or 1 and the length of a vector. Matrices of experts stand one below the other. */
  size(name: string): readonly [rows: number, columns: number];
  /** Elements of consecutive rows. */
  read(name: string, row: number, rows: number): Promise<Float32Array<ArrayBuffer>>;
}

/** Takes inputs of products, in the order of the tokens. */
export interface InputWatcher {
  readonly watch: Watch;
  /** @param expert index of the expert whose product it is; undefined for weights that all tokens pass */
  take(watched: Watched, expert: number | undefined): void | Promise<void>;
}

const unwatched: InputWatcher = { watch: { squares: false, inputs: [] }, take() {} };

/** Floats of weights that are read at a time. */
const readSize = 1 << 20;

/** Floats of the head that a worker holds at a time. */
const headSize = 1 << 24;

/** Bytes of weights that a worker holds at most: its memory has 4 GiB, and some is left to activations, keys and values. */
export const mostHeldBytes = 3.8e9;

/** Tokens of a slice, at least one text. */
const sliceTokens = 512;

/** Norms of states, which may have no weights. */
const bareNorms: readonly string[] = ['attentionNorm', 'feedForwardNorm', 'headNorm'] satisfies NormName[];

/** Rows of weights to put into the memory of workers. */
interface ProductRows {
  readonly names: readonly string[];
  /** First row of each weight. */
  readonly row: number;
  /** Rows of each weight; undefined for all. */
  readonly rows?: number | undefined;
}

/** Tokens that reach each expert of a layer, with their shares, and the inputs of all. */
interface Routes {
  readonly experts: readonly { readonly tokens: number[]; readonly shares: number[] }[];
  readonly inputs: Float32Array<ArrayBuffer>;
}

/** A weight of a layer, and its place among the outputs of a product. */
export interface WeightOfLayer {
  readonly name: string;
  /** The first name of the product; undefined for experts. */
  readonly product: string | undefined;
  readonly from: number;
  readonly count: number;
}

/** Options of loading weights. */
interface LoadOptions {
  /** Checks that the weights fit each other. */
  readonly check?: ((specs: Partial<Record<ProductName, ProductSpec>>) => void) | undefined;
  readonly place?: number | undefined;
}

/** Copies rows to an array of their own. */
function gatherRows(
  from: Float32Array<ArrayBuffer>,
  width: number,
  rows: readonly number[],
): Float32Array<ArrayBuffer> {
  const to = new Float32Array(rows.length * width);
  for (const [i, row] of rows.entries()) to.set(from.subarray(row * width, (row + 1) * width), i * width);
  return to;
}

/** Carries out the layers of one model. */
export class LanguageForward {
  readonly #workers: LayerWorkers;
  readonly #facts: LanguageFacts;
  readonly #tensors: LanguageTensors;
  /** The layers whose weights are in memory. */
  #heldLayers: readonly LayerSpec[] = [];

  constructor(layerWorkers: LayerWorkers, facts: LanguageFacts, tensors: LanguageTensors) {
    this.#workers = layerWorkers;
    this.#facts = facts;
    this.#tensors = tensors;
  }

  /** The weights of a layer that all tokens pass, those that share their inputs together, and the columns of these inputs. */
  inputsOf(index: number): { readonly names: readonly string[]; readonly columns: number }[] {
    const { router: _, sharedGate: _gate, ...products } = this.#productsOf(index);
    return Object.values(products).map(({ names }) => ({ names, columns: this.#columnsOf(names) }));
  }

  /** The weights of a layer that become codes, with the outputs that they have in a product of that first name; of experts without. */
  weightsOf(index: number): readonly WeightOfLayer[] {
    const products = this.inputsOf(index).map(({ names }) => names);
    const weights = products.flatMap((names) => {
      let next = 0;
      return names.map((name): WeightOfLayer => {
        const from = next;
        next += this.#tensors.size(name)[0];
        return { name, product: names[0], from, count: next - from };
      });
    });
    if (!this.#isRouted(index)) return weights;
    const experts = Object.values(this.#expertOf(index, 0)).flatMap(({ names }) => names);
    return [...weights, ...experts.map((name) => ({ name, product: undefined, from: 0, count: 0 }))];
  }

  /** The same model with other elements of one tensor. @param change gets rows of it, as they are read */
  changed(name: string, change: (rows: Float32Array<ArrayBuffer>) => Float32Array<ArrayBuffer>): LanguageForward {
    const tensors = this.#tensors;
    return new LanguageForward(this.#workers, this.#facts, {
      has: (one) => tensors.has(one),
      size: (one) => tensors.size(one),
      async read(one, row, rows) {
        const values = await tensors.read(one, row, rows);
        return one === name ? change(values) : values;
      },
    });
  }

  /** The bias of a weight; undefined without. */
  async biasOf(name: string): Promise<Float32Array | undefined> {
    const bias = name.replace(/\.weight$/, '.bias');
    return this.#tensors.has(bias) ? this.#tensors.read(bias, 0, this.#tensors.size(bias)[0]) : undefined;
  }

  /** True if tokens of a layer choose experts. The first layers of some models are dense. */
  #isRouted(index: number): boolean {
    return this.#facts.experts > 0 && this.#tensors.has(`blk.${index}.ffn_gate_inp.weight`);
  }

  #columnsOf(names: readonly string[]): number {
    return this.#tensors.size(names[0] as string)[1];
  }

  /** Weights of a layer: of queries, keys and values, of the attention's output, and of the feed-forward part or the router. */
  #productsOf(index: number): Partial<Record<ProductName, ProductRows>> {
    const all = (...names: readonly string[]) => ({
      names: names.map((name) => `blk.${index}.${name}.weight`),
      row: 0,
    });
    const has = (name: string) => this.#tensors.has(`blk.${index}.${name}.weight`);
    const attention = {
      together: has('attn_qkv') ? all('attn_qkv') : all('attn_q', 'attn_k', 'attn_v'),
      output: all('attn_output'),
    };
    if (this.#isRouted(index)) {
      const shared = has('ffn_up_shexp') && {
        sharedUp: all('ffn_gate_shexp', 'ffn_up_shexp'),
        sharedDown: all('ffn_down_shexp'),
        ...(has('ffn_gate_inp_shexp') && { sharedGate: all('ffn_gate_inp_shexp') }),
      };
      return { ...attention, router: all('ffn_gate_inp'), ...shared };
    }
    return { ...attention, up: has('ffn_gate') ? all('ffn_gate', 'ffn_up') : all('ffn_up'), down: all('ffn_down') };
  }

  /** Weights of an expert: rows of the matrices of all experts. */
  #expertOf(index: number, expert: number): Partial<Record<ProductName, ProductRows>> {
    const rowsOf = (...names: readonly string[]) => {
      const full = names.map((name) => `blk.${index}.${name}.weight`);
      const rows = this.#tensors.size(full[0] as string)[0] / this.#facts.experts;
      return { names: full, row: expert * rows, rows };
    };
    return { up: rowsOf('ffn_gate_exps', 'ffn_up_exps'), down: rowsOf('ffn_down_exps') };
  }

  /** Hidden states of tokens, `hidden` floats each. */
  async embed(ids: Uint32Array): Promise<Float32Array<ArrayBuffer>> {
    const { hidden, embeddingScale } = this.#facts;
    const { core } = this.#workers;
    const states = new Float32Array(ids.length * hidden);
    // Read each row once.
    const tokensOf = new Map<number, number[]>();
    for (const [token, id] of ids.entries()) {
      const tokens = tokensOf.get(id);
      if (tokens === undefined) tokensOf.set(id, [token]);
      else tokens.push(token);
    }
    for (const [id, tokens] of tokensOf) {
      const read = await this.#tensors.read('token_embd.weight', id, 1);
      const row = core.withMemory(hidden * 4, (at) => {
        toWasm(core, read, at);
        core.models.scaleFloats(embeddingScale, at, hidden);
        return fromWasm(core, at, hidden);
      });
      for (const token of tokens) states.set(row, token * hidden);
    }
    return states;
  }

  /**
   * Carries out a layer on all tokens. `states` become those behind it.
   * @param textSize tokens of a text; the last one may be shorter
   * @param onTokens called with the tokens done
   */
  async layer(
    index: number,
    states: Float32Array<ArrayBuffer>,
    textSize: number,
    onTokens: (tokens: number) => void | Promise<void>,
    watcher: InputWatcher = unwatched,
  ): Promise<void> {
    const layer = await this.#layerOf(index);
    const { hidden, experts, usedExperts } = layer;
    await this.#begin(layer);
    const tokens = states.length / hidden;
    const routes: Routes = {
      experts: Array.from({ length: experts }, () => ({ tokens: [], shares: [] })),
      inputs: new Float32Array(experts > 0 ? states.length : 0),
    };
    const step = Math.max(1, Math.floor(sliceTokens / textSize)) * textSize;
    const run = (slice: number, worker: number) => {
      const part = states.slice(slice * step * hidden, (slice + 1) * step * hidden);
      const job = { kind: 'layer', layer, states: part, textSize, watch: watcher.watch } as const;
      return this.#workers.ask(worker, job, [part.buffer]);
    };
    await takeInOrder(
      this.#workers,
      Math.ceil(tokens / step),
      run,
      async (slice, { values, watched, routes: found }) => {
        states.set(values, slice * step * hidden);
        for (const one of watched) await watcher.take(one, undefined);
        const done = Math.min(tokens, (slice + 1) * step);
        if (found === undefined) return onTokens(done);
        routes.inputs.set(found.inputs, slice * step * hidden);
        for (const [i, expert] of found.chosen.entries()) {
          routes.experts[expert]?.tokens.push(slice * step + Math.floor(i / usedExperts));
          routes.experts[expert]?.shares.push(found.shares[i] as number);
        }
        // Experts are the other half of the layer.
        return onTokens(Math.floor(done / 2));
      },
    );
    if (experts === 0) return;
    const before = Math.floor(tokens / 2);
    await this.#experts(layer, states, routes, watcher, (done) =>
      onTokens(before + Math.floor(((tokens - before) * done) / experts)),
    );
  }

  async #layerOf(index: number): Promise<LayerSpec> {
    const { layers: _, context: _context, isParallel, window, rotary, experts, ...others } = this.#facts;
    const [bias, sinks] = [`blk.${index}.exp_probs_b.bias`, `blk.${index}.attn_sinks.weight`];
    return {
      ...others,
      index,
      experts: this.#isRouted(index) ? experts : 0,
      isParallel: isParallel(this.#tensors.has(`blk.${index}.ffn_norm.weight`)),
      window: window(index),
      rotary: rotary(index),
      sinks: this.#tensors.has(sinks) ? await this.#tensors.read(sinks, 0, 1) : undefined,
      routerBias: this.#tensors.has(bias) ? await this.#tensors.read(bias, 0, 1) : undefined,
    };
  }

  /** Puts the weights of a layer into the memory of all workers. */
  async #begin({ index, experts }: LayerSpec, place?: number): Promise<void> {
    const own = (name: string) => `blk.${index}.${name}.weight`;
    const products = this.#productsOf(index);
    const { normsBetween } = this.#facts;
    // The first norm of Falcon is that of the feed-forward part, if there is a second one.
    const hasSecond = this.#tensors.has(own('attn_norm_2'));
    const norms: Readonly<Partial<Record<NormName, string>>> = {
      attentionNorm: own(hasSecond ? 'attn_norm_2' : 'attn_norm'),
      queryNorm: own('attn_q_norm'),
      keyNorm: own('attn_k_norm'),
      ...(normsBetween ? {} : { attentionAfter: own('post_attention_norm') }),
      feedForwardNorm: own(hasSecond ? 'attn_norm' : normsBetween ? 'post_attention_norm' : 'ffn_norm'),
      feedForwardAfter: own('post_ffw_norm'),
    };
    const check: LoadOptions['check'] = (made) => {
      const { heads, keyHeads, headSize, hidden } = this.#facts;
      const [queries, keys] = [heads * headSize, keyHeads * headSize];
      const { together, output, up, down, router, sharedUp, sharedDown, sharedGate } = made;
      const isFeedForward = (first: ProductSpec | undefined, second: ProductSpec | undefined) =>
        first?.inputs === hidden &&
        second?.outputs === hidden &&
        (first.outputs === 2 * second.inputs || first.outputs === second.inputs);
      const fits =
        together?.inputs === hidden &&
        together.outputs === queries + 2 * keys &&
        output?.inputs === queries &&
        output.outputs === hidden &&
        (experts > 0
          ? router?.inputs === hidden &&
            router.outputs === experts &&
            (sharedUp === undefined || isFeedForward(sharedUp, sharedDown)) &&
            (sharedGate === undefined || (sharedGate.inputs === hidden && sharedGate.outputs === 1))
          : isFeedForward(up, down));
      if (!fits) throw new ScalepointError('BAD_FILE', `the matrices of layer ${index} do not fit its heads`);
    };
    await this.#load([...Array(this.#workers.count).keys()], products, norms, { check, place });
  }

  /** Has some workers hold weights and norms. */
  async #load(
    indices: readonly number[],
    products: Partial<Record<ProductName, ProductRows>>,
    norms: Readonly<Partial<Record<NormName, string>>>,
    { check, place }: LoadOptions = {},
  ): Promise<void> {
    const toAll = async (job: TransformerJob) => {
      await Promise.all(indices.map((worker) => this.#workers.ask(worker, job)));
    };
    const entries = Object.entries(products) as [ProductName, ProductRows][];
    const specs = Object.fromEntries(entries.map(([name, rows]) => [name, this.#specOf(rows)]));
    check?.(specs);
    const read: Partial<Record<NormName, NormSpec>> = {};
    const { epsilon, isCentered, hasBareNorms, hidden } = this.#facts;
    for (const [name, tensor] of Object.entries(norms)) {
      if (!this.#tensors.has(tensor)) {
        if (hasBareNorms && bareNorms.includes(name))
          read[name as NormName] = { weight: new Float32Array(hidden).fill(1) };
        continue;
      }
      if (this.#tensors.size(tensor)[0] > 1) {
        const message = `the outputs of models whose heads have norms of their own (${tensor}) cannot be computed here`;
        throw new ScalepointError('UNKNOWN_FORMAT', message, { tensor });
      }
      const biasName = tensor.replace(/\.weight$/, '.bias');
      const bias = this.#tensors.has(biasName) ? await this.#tensors.read(biasName, 0, 1) : undefined;
      read[name as NormName] = { weight: await this.#tensors.read(tensor, 0, 1), bias };
    }
    await toAll({ kind: 'begin', place, products: specs, norms: read, epsilon, isCentered });
    for (const [product, { names, row: first, rows }] of entries) {
      const { outputs, inputs } = specs[product] as ProductSpec;
      const step = Math.max(1, Math.floor(readSize / inputs));
      const bias = new Float32Array(outputs);
      let at = 0;
      for (const name of names) {
        const count = rows ?? this.#tensors.size(name)[0];
        for (let row = 0; row < count; row += step) {
          const values = await this.#tensors.read(name, first + row, Math.min(step, count - row));
          await toAll({ kind: 'fill', place, product, row: at + row, values });
        }
        // A tied head has a bias of its own.
        const biasName = product === 'head' ? 'output.bias' : name.replace(/\.weight$/, '.bias');
        if (this.#tensors.has(biasName))
          bias.set(
            (await this.#tensors.read(biasName, 0, this.#tensors.size(biasName)[0])).subarray(first, first + count),
            at,
          );
        at += count;
      }
      if (bias.some((value) => value !== 0)) await toAll({ kind: 'fill', place, product, row: 'bias', values: bias });
    }
  }

  #specOf({ names, rows }: ProductRows): ProductSpec {
    const inputs = this.#columnsOf(names);
    const wrong = names.find((name) => this.#tensors.size(name)[1] !== inputs);
    if (wrong !== undefined) throw new ScalepointError('BAD_FILE', `${wrong} has other inputs than ${names[0]}`);
    return { names, inputs, outputs: names.reduce((sum, name) => sum + (rows ?? this.#tensors.size(name)[0]), 0) };
  }

  /** Carries out the experts of a layer, each on the tokens that reach it. */
  async #experts(
    layer: LayerSpec,
    states: Float32Array<ArrayBuffer>,
    routes: Routes,
    watcher: InputWatcher,
    onExpert: (done: number) => void | Promise<void>,
  ): Promise<void> {
    const { index, hidden, experts, residualScale } = layer;
    const { core } = this.#workers;
    const run = async (expert: number, worker: number) => {
      const { tokens } = routes.experts[expert] as Routes['experts'][number];
      if (tokens.length === 0) return [];
      const check: LoadOptions['check'] = ({ up, down }) => {
        if (up?.inputs === hidden && down?.outputs === hidden && up.outputs === 2 * down.inputs) return;
        throw new ScalepointError('BAD_FILE', `the matrices of the experts of layer ${index} do not fit`);
      };
      await this.#load([worker], this.#expertOf(index, expert), {}, { check });
      const answers: TransformerAnswer[] = [];
      for (let first = 0; first < tokens.length; first += sliceTokens) {
        const x = gatherRows(routes.inputs, hidden, tokens.slice(first, first + sliceTokens));
        answers.push(await this.#workers.ask(worker, { kind: 'expert', layer, x, watch: watcher.watch }, [x.buffer]));
      }
      return answers;
    };
    await takeInOrder(this.#workers, experts, run, async (expert, answers) => {
      let first = 0;
      for (const { values, watched } of answers) {
        for (const one of watched) await watcher.take(one, expert);
        const rows = values.length / hidden;
        const all = routes.experts[expert] as Routes['experts'][number];
        const [tokens, shares] = [all.tokens.slice(first, first + rows), all.shares.slice(first, first + rows)];
        first += rows;
        // Add the outputs of the expert to the states of its tokens.
        const before = gatherRows(states, hidden, tokens);
        const after = core.withMemory(values.byteLength * 2, (x) => {
          const y = x + values.byteLength;
          toWasm(core, values, x);
          toWasm(core, before, y);
          for (const [i, share] of shares.entries()) {
            checkStatus(core.models.addScaled(share * residualScale, x + i * hidden * 4, hidden, y + i * hidden * 4));
          }
          if (core.module.firstNonFinite(y, values.length) < values.length) {
            throw new ScalepointError('NON_FINITE', `the states behind layer ${index} are not finite`);
          }
          return fromWasm(core, y, values.length);
        });
        for (const [i, token] of tokens.entries()) {
          states.set(after.subarray(i * hidden, (i + 1) * hidden), token * hidden);
        }
      }
      await onExpert(expert + 1);
    });
  }

  /**
   * Puts the weights of all layers and the head into the memory of the workers, for `read`.
   * @param onLayer called with the number of layers that are there
   * @throws ScalepointError `UNKNOWN_FORMAT` for models with experts, `OUT_OF_MEMORY`
   */
  async hold(onLayer: (layers: number) => void | Promise<void>): Promise<void> {
    const { layers, experts, architecture } = this.#facts;
    if (experts > 0) {
      const text = `${architecture} models with experts are not written with here; those without experts are`;
      throw new ScalepointError('UNKNOWN_FORMAT', text);
    }
    // Refuse what cannot fit, before much of it is read.
    const all = Array.from({ length: layers }, (_, index) => Object.values(this.#productsOf(index))).flat();
    const numbers = [...all.flatMap(({ names }) => names), this.#head].reduce((sum, name) => {
      const [rows, columns] = this.#tensors.size(name);
      return sum + rows * columns;
    }, 0);
    if (4 * numbers > mostHeldBytes) {
      const [need, most] = [4 * numbers, mostHeldBytes].map((bytes) => `${(bytes / 1e9).toFixed(1)} GB`);
      const text = `the weights take ${need} as floats, in which they are computed with, and at most ${most} fit into the memory of a worker`;
      throw new ScalepointError('OUT_OF_MEMORY', text);
    }
    const held: LayerSpec[] = [];
    for (let index = 0; index < layers; index++) {
      const layer = await this.#layerOf(index);
      await this.#begin(layer, index);
      held.push(layer);
      await onLayer(held.length);
    }
    const options = { check: this.#checkHead, place: layers };
    const head = { names: [this.#head], row: 0 };
    await this.#load([...Array(this.#workers.count).keys()], { head }, { headNorm: 'output_norm.weight' }, options);
    this.#heldLayers = held;
  }

  /**
   * Reads tokens of one text, which follow `from` others that were read before. Tokens that were read from there on are forgotten. The
   * weights are held (`hold`).
   * @param room tokens of the text in all, the same number in every call
   * @param count tokens at the end whose logits are wanted
   * @returns a row of `vocabulary` logits for each of these
   */
  async read(ids: Uint32Array, from: number, room: number, count: number): Promise<Float32Array<ArrayBuffer>> {
    const { hidden, layers, logitScale: scale, finalCap: cap } = this.#facts;
    let states = await this.embed(ids);
    for (const [place, layer] of this.#heldLayers.entries()) {
      const { watch } = unwatched;
      const job = { kind: 'layer', place, layer, states, textSize: room, watch, kept: { room, from } } as const;
      states = (await this.#workers.ask(0, job, [states.buffer])).values;
    }
    states = states.slice((ids.length - count) * hidden);
    return (await this.#workers.ask(0, { kind: 'logits', place: layers, states, scale, cap }, [states.buffer])).values;
  }

  readonly #checkHead: LoadOptions['check'] = ({ head }) => {
    if (head?.inputs === this.#facts.hidden) return;
    throw new ScalepointError('BAD_FILE', 'the head does not fit the states');
  };

  /** Number of tokens that the model knows. */
  get vocabulary(): number {
    return this.#tensors.size(this.#head)[0];
  }

  get #head(): string {
    return this.#tensors.has('output.weight') ? 'output.weight' : 'token_embd.weight';
  }

  /** The weight of the head, which may be the table of the tokens, and the columns of its inputs. */
  get head(): { readonly names: readonly string[]; readonly columns: number } {
    return { names: [this.#head], columns: this.#facts.hidden };
  }

  /** Has a watcher see the inputs of the head, in the order of the tokens. @param states behind the last layer */
  async headInputs(states: Float32Array<ArrayBuffer>, { watch, take }: InputWatcher): Promise<void> {
    const { hidden } = this.#facts;
    await this.#load([...Array(this.#workers.count).keys()], {}, { headNorm: 'output_norm.weight' });
    const step = sliceTokens * hidden;
    const run = (slice: number, worker: number) => {
      const part = states.slice(slice * step, (slice + 1) * step);
      return this.#workers.ask(worker, { kind: 'headInputs', name: this.#head, states: part, watch }, [part.buffer]);
    };
    await takeInOrder(this.#workers, Math.ceil(states.length / step), run, async (_, { watched }) => {
      for (const one of watched) await take(one, undefined);
    });
  }

  /**
   * Logits of some tokens, one row of `vocabulary` numbers for each, from the states behind the last layer. The head is read in pieces, so
   * that large vocabularies fit.
   */
  async logits(states: Float32Array<ArrayBuffer>): Promise<Float32Array<ArrayBuffer>> {
    const { hidden, logitScale: scale, finalCap: cap } = this.#facts;
    const { vocabulary } = this;
    const tokens = states.length / hidden;
    const all = new Float32Array(tokens * vocabulary);
    const step = Math.max(1, Math.floor(headSize / hidden));
    const rowsOfPiece = (piece: number) => Math.min(step, vocabulary - piece * step);
    const run = async (piece: number, worker: number) => {
      const head = { names: [this.#head], row: piece * step, rows: rowsOfPiece(piece) };
      await this.#load([worker], { head }, { headNorm: 'output_norm.weight' }, { check: this.#checkHead });
      return this.#workers.ask(worker, { kind: 'logits', states, scale, cap });
    };
    await takeInOrder(this.#workers, Math.ceil(vocabulary / step), run, (piece, { values }) => {
      const rows = rowsOfPiece(piece);
      for (let token = 0; token < tokens; token++) {
        all.set(values.subarray(token * rows, (token + 1) * rows), token * vocabulary + piece * step);
      }
    });
    return all;
  }
}

/** A model that is ready to be run. */
export interface RunnableLanguage {
  readonly layerWorkers: LayerWorkers;
  readonly facts: LanguageFacts;
  readonly forward: LanguageForward;
  /** Id that begins each chunk; undefined if the model adds none. */
  readonly beginning: number | undefined;
  readonly metadata: Metadata;
}
