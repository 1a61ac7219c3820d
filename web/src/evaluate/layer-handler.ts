/** Carries out jobs of the forward pass in the memory of one core. */

import { floatForm, LayerMemory } from '../arrays/layer-memory.js';
import { AttentionSpecRecord, RotarySpecRecord, RouteSpecRecord, SharesId, StatusId } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import { type Core, checkStatus } from '../core/memory.js';
import { Arena } from '../formats/codecs/codec.js';
import type { JobHandler } from '../workers/serve.js';
import type {
  LayerSpec,
  NormName,
  ProductName,
  ProductSpec,
  TransformerAnswer,
  TransformerJob,
  Watch,
  Watched,
} from './layer-jobs.js';

/** Copies floats to wasm memory. */
export function toWasm({ module }: Core, values: Float32Array, address: number): void {
  module.HEAPF32.set(values, address >>> 2);
}

/** A copy of floats in wasm memory. */
export function fromWasm({ module }: Core, address: number, n: number): Float32Array<ArrayBuffer> {
  return module.HEAPF32.slice(address >>> 2, (address >>> 2) + n);
}

/** Rows that pass the weights of a product at a time. */
const rowsAtOnce = 64;

/** Float weights in wasm memory, ready for products. */
class Product {
  readonly spec: ProductSpec;
  readonly #core: Core;
  readonly #matrix: LayerMemory;
  readonly #work: number;
  readonly #workBytes: number;

  constructor(spec: ProductSpec, core: Core, memory: Arena) {
    this.spec = spec;
    this.#core = core;
    this.#matrix = new LayerMemory(core, floatForm(spec.outputs, spec.inputs));
    this.#workBytes = core.module.layerWorkspaceBytes(this.#matrix.layer, rowsAtOnce);
    this.#work = memory.take(this.#workBytes);
    this.fill('bias', new Float32Array(spec.outputs));
  }

  dispose(): void {
    this.#matrix.dispose();
  }

  /** Fills in rows, or the bias. */
  fill(row: number | 'bias', values: Float32Array): void {
    const { module } = this.#core;
    const { layer } = this.#matrix;
    this.#core.withMemory(values.byteLength, (at) => {
      toWasm(this.#core, values, at);
      const n = values.length;
      checkStatus(row === 'bias' ? module.setLayerBias(layer, at, n) : module.setLayerFloats(layer, row, at, n));
    });
  }

  /** y = x W' + bias, for `rows` rows. */
  run(x: number, rows: number, y: number): void {
    const { module } = this.#core;
    const { inputs, outputs } = this.spec;
    for (let row = 0; row < rows; row += rowsAtOnce) {
      const n = Math.min(rowsAtOnce, rows - row);
      const [from, to] = [x + row * inputs * 4, y + row * outputs * 4];
      checkStatus(module._layerForward(this.#matrix.layer, from, n, to, this.#work, this.#workBytes));
    }
  }
}

/** Tokens on their way through a layer, with memory for the wide states between its products. */
interface Slice {
  readonly layer: LayerSpec;
  readonly tokens: number;
  readonly wide: number;
  readonly mixed: number;
  readonly watch: Watch;
  readonly watched: Watched[];
}

const nothing = (): TransformerAnswer => ({ values: new Float32Array(0), watched: [] });

type Job<Kind extends TransformerJob['kind']> = Extract<TransformerJob, { kind: Kind }>;

/** Weights that are in memory together. */
class HeldWeights {
  /** Memory of norms and of scratch of products, until other weights come. */
  readonly memory: Arena;
  readonly products = new Map<ProductName, Product>();
  readonly norms = new Map<NormName, { readonly weight: number; readonly bias: number; readonly width: number }>();
  isCentered = false;
  epsilon = 0;
  /** Addresses of the keys and values of a text's tokens, once they are kept. */
  kept: { readonly keys: number; readonly values: number } | undefined;

  constructor(core: Core) {
    this.memory = new Arena(core);
  }

  release(): void {
    for (const product of this.products.values()) product.dispose();
    this.memory.release();
    this.products.clear();
    this.norms.clear();
    this.kept = undefined;
  }
}

/** Holds the weights of a layer, or of several ones in places of their own, and passes tokens through them. */
export class LayerHandler implements JobHandler {
  readonly #core: Core;
  /** Memory of one job. */
  readonly #work: Arena;
  readonly #places = new Map<number, HeldWeights>();
  /** The weights of the current job. */
  #held: HeldWeights;
  /** Addresses of sums of second moments. */
  readonly #moments = new Map<string, number>();

  constructor(core: Core) {
    this.#core = core;
    this.#held = new HeldWeights(core);
    this.#work = new Arena(core);
  }

  /** @throws ScalepointError `NON_FINITE` naming the layer or the weight, `OUT_OF_MEMORY` */
  carryOut(job: TransformerJob): TransformerAnswer {
    const { place = 0 } = job as { readonly place?: number };
    this.#held = this.#places.get(place) ?? new HeldWeights(this.#core);
    this.#places.set(place, this.#held);
    try {
      switch (job.kind) {
        case 'begin':
          return this.#begin(job);
        case 'fill':
          this.#product(job.product).fill(job.row, job.values);
          return nothing();
        case 'layer':
          return this.#layer(job);
        case 'expert':
          return this.#expert(job);
        case 'logits':
          return this.#logits(job);
        case 'headInputs':
          return this.#headInputs(job);
        case 'addMoments':
          return this.#addMoments(job);
        case 'takeMoments':
          return this.#takeMoments(job);
      }
    } finally {
      this.#work.release();
    }
  }

  /** Memory that moves with an answer. */
  movable({ values, watched, routes }: TransformerAnswer): ArrayBuffer[] {
    const others = routes === undefined ? [] : [routes.chosen, routes.shares, routes.inputs];
    const inputs = watched.flatMap(({ squares, x }) => (x === undefined ? [squares] : [squares, x]));
    return [values, ...others, ...inputs].map(({ buffer }) => buffer);
  }

  #product(name: ProductName): Product {
    const product = this.#held.products.get(name);
    if (product === undefined) throw new Error(`no weights for ${name}`);
    return product;
  }

  #begin({ products, norms, isCentered, epsilon }: Job<'begin'>): TransformerAnswer {
    const held = this.#held;
    held.release();
    held.isCentered = isCentered;
    held.epsilon = epsilon;
    for (const [name, spec] of Object.entries(products)) {
      held.products.set(name as ProductName, new Product(spec, this.#core, held.memory));
    }
    for (const [name, { weight, bias }] of Object.entries(norms)) {
      const addresses = {
        weight: held.memory.place(weight),
        bias: bias === undefined ? 0 : held.memory.place(bias),
      };
      held.norms.set(name as NormName, { ...addresses, width: weight.length });
    }
    return nothing();
  }

  /** Normalizes rows of floats. Without such a norm, they stay as they are. */
  #norm(name: NormName, from: number, floats: number, to: number): void {
    const { models } = this.#core;
    const { norms, isCentered, epsilon } = this.#held;
    const norm = norms.get(name);
    if (norm === undefined) {
      if (from !== to) models.HEAPF32.copyWithin(to >>> 2, from >>> 2, (from >>> 2) + floats);
      return;
    }
    const { weight, bias, width } = norm;
    const rows = floats / width;
    if (isCentered) {
      checkStatus(models.layerNorm(from, rows, weight, bias, width, epsilon, to));
      return;
    }
    checkStatus(models.rmsNorm(from, rows, weight, width, epsilon, 0, to));
    if (bias === 0) return;
    for (let row = 0; row < rows; row++) checkStatus(models.addScaled(1, bias, width, to + row * width * 4));
  }

  /** Computes a product of all tokens, and collects its inputs or outputs. */
  #apply(name: ProductName, x: number, y: number, { tokens, watch, watched }: Slice): void {
    const product = this.#product(name);
    if (watch.squares) watched.push(this.#watchedInputs(product.spec, x, tokens, watch));
    product.run(x, tokens, y);
    const { names, outputs } = product.spec;
    if (!watch.outputs?.includes(names[0] as string)) return;
    const values = fromWasm(this.#core, y, tokens * outputs);
    watched.push({ names, rows: tokens, columns: outputs, squares: new Float64Array(0), x: values });
  }

  /** Statistics of the inputs of a product. */
  #watchedInputs(
    { names, inputs: columns }: Omit<ProductSpec, 'outputs'>,
    x: number,
    rows: number,
    watch: Watch,
  ): Watched {
    const core = this.#core;
    const n = rows * columns;
    const [key] = names as [string];
    if (core.module.firstNonFinite(x, n) < n) {
      throw new ScalepointError('NON_FINITE', `the inputs of ${key} are not finite`, { tensor: key });
    }
    const squares = core.withMemory(8 * columns, (sums) => {
      const from = sums >>> 3;
      core.module.HEAPF64.fill(0, from, from + columns);
      checkStatus(core.module.addSquares(x, n, 0, sums, columns));
      return core.module.HEAPF64.slice(from, from + columns);
    });
    return { names, rows, columns, squares, x: watch.inputs.includes(key) ? fromWasm(core, x, n) : undefined };
  }

  #layer({ layer, states, textSize, watch, kept }: Job<'layer'>): TransformerAnswer {
    const core = this.#core;
    const { products, norms } = this.#held;
    const takeFloats = (n: number) => this.#work.take(4 * n);
    const { models } = core;
    const { hidden, heads, keyHeads, headSize, isParallel, normsRotated } = layer;
    const floats = states.length;
    const tokens = floats / hidden;
    const [queries, keys] = [heads * headSize, keyHeads * headSize];

    // Take memory for a slice.
    const together = this.#product('together').spec;
    const widthOf = (name: ProductName, side: 'inputs' | 'outputs') => products.get(name)?.spec[side] ?? 0;
    const x = this.#work.place(states);
    const [normed, added] = [takeFloats(floats), takeFloats(floats)];
    const widest = [together.outputs, widthOf('up', 'outputs'), widthOf('sharedUp', 'outputs'), layer.experts];
    const wide = takeFloats(tokens * Math.max(...widest));
    const q = takeFloats(tokens * queries);
    // Keys and values of the text's other tokens stand before these, if they are kept.
    const before = kept?.from ?? 0;
    const [allKeys, allValues] = this.#keysAndValues(keys, before + tokens, kept?.room);
    const [k, v] = [allKeys + before * keys * 4, allValues + before * keys * 4];
    const mixed = takeFloats(tokens * Math.max(queries, widthOf('down', 'inputs'), widthOf('sharedDown', 'inputs')));
    const slice: Slice = { layer, tokens, wide, mixed, watch, watched: [] };
    const add = () => checkStatus(models.addScaled(layer.residualScale, added, floats, x));

    // Attend.
    this.#norm('attentionNorm', x, floats, normed);
    this.#apply('together', normed, wide, slice);
    if (layer.clamp > 0) checkStatus(models.clampFloats(layer.clamp, wide, tokens * together.outputs));
    // Copy the columns of queries, keys and values to arrays of their own.
    let column = wide;
    for (let token = 0; token < tokens; token++) {
      for (const [to, columns] of [
        [q, queries],
        [k, keys],
        [v, keys],
      ] as const) {
        models.HEAPF32.copyWithin((to >>> 2) + token * columns, column >>> 2, (column >>> 2) + columns);
        column += columns * 4;
      }
    }
    if (normsRotated) this.#rotate(q, k, before, textSize, slice);
    this.#norm('queryNorm', q, tokens * queries, q);
    this.#norm('keyNorm', k, tokens * keys, k);
    if (!normsRotated) this.#rotate(q, k, before, textSize, slice);
    const { attentionScale: scale, attentionCap: softcap, window } = layer;
    const attention = { heads, keyHeads, headSize, scale, softcap, window, causal: true, textSize, before };
    const scratch = takeFloats(textSize);
    const sinks = layer.sinks === undefined ? 0 : this.#work.place(layer.sinks);
    core.withRecord(AttentionSpecRecord, attention, (record) =>
      checkStatus(models.attend(q, allKeys, allValues, sinks, tokens, record, scratch, mixed)),
    );
    this.#apply('output', mixed, added, slice);
    this.#norm('attentionAfter', added, floats, added);
    // A parallel feed-forward part reads the inputs of attention, unless it has a norm of its own.
    if (isParallel && norms.has('feedForwardNorm')) this.#norm('feedForwardNorm', x, floats, normed);
    add();

    // Feed forward, or find the experts of each token.
    if (!isParallel) this.#norm('feedForwardNorm', x, floats, normed);
    let routes: TransformerAnswer['routes'];
    if (layer.experts > 0) {
      this.#apply('router', normed, wide, slice);
      routes = this.#route(wide, normed, slice);
      if (products.has('sharedUp')) {
        this.#feedForward(['sharedUp', 'sharedDown'], normed, added, slice);
        if (products.has('sharedGate')) this.#scaleShared(normed, added, slice);
        add();
      }
    } else {
      this.#feedForward(['up', 'down'], normed, added, slice);
      this.#norm('feedForwardAfter', added, floats, added);
      add();
    }
    if (core.module.firstNonFinite(x, floats) < floats) {
      throw new ScalepointError('NON_FINITE', `the states behind layer ${layer.index} are not finite`);
    }
    return { values: fromWasm(core, x, floats), watched: slice.watched, ...(routes && { routes }) };
  }

  /** Memory for keys and values: of one job, or of a text with that room. */
  #keysAndValues(width: number, tokens: number, room: number | undefined): readonly [keys: number, values: number] {
    const take = (memory: Arena, n: number) => memory.take(n * width * 4);
    if (room === undefined) return [take(this.#work, tokens), take(this.#work, tokens)];
    if (tokens > room) throw new RangeError(`there is room for ${room} tokens, and ${tokens} are read`);
    const { memory } = this.#held;
    this.#held.kept ??= { keys: take(memory, room), values: take(memory, room) };
    return [this.#held.kept.keys, this.#held.kept.values];
  }

  /** Turns queries and keys, if the layer does. @param before tokens of the text before these */
  #rotate(q: number, k: number, before: number, textSize: number, { layer, tokens }: Slice): void {
    const { rotary, heads, keyHeads, headSize } = layer;
    if (rotary === undefined) return;
    const core = this.#core;
    const n = rotary.frequencies.length;
    const [positions, frequencies] = [this.#work.take(tokens * 4), this.#work.take(n * 8)];
    core.module.HEAPF64.set(rotary.frequencies, frequencies >>> 3);
    for (let i = 0; i < tokens; i++) core.module.HEAPU32[(positions >>> 2) + i] = (before + i) % textSize;
    for (const [at, count] of [
      [q, heads],
      [k, keyHeads],
    ] as const) {
      const spec = { heads: count, headSize, pairs: rotary.pairs, factor: rotary.factor };
      core.withRecord(RotarySpecRecord, spec, (record) =>
        checkStatus(core.models.rotate(at, tokens, record, positions, frequencies, n)),
      );
    }
  }

  #feedForward([up, down]: readonly [ProductName, ProductName], x: number, y: number, slice: Slice): void {
    const { models } = this.#core;
    const { layer, tokens, wide, mixed } = slice;
    const width = this.#product(down).spec.inputs;
    const { outputs } = this.#product(up).spec;
    this.#apply(up, x, wide, slice);
    for (let token = 0; token < tokens; token++) {
      const at = wide + token * outputs * 4;
      const factors = outputs === width ? 0 : at + width * 4;
      checkStatus(models.applyGate(layer.gate, at, factors, width, mixed + token * width * 4));
    }
    this.#apply(down, mixed, y, slice);
  }

  /** Multiplies outputs of the expert that all tokens share by its share of each token: a sigmoid. */
  #scaleShared(x: number, outputs: number, slice: Slice): void {
    const core = this.#core;
    const { tokens, layer } = slice;
    const takeForTokens = () => this.#work.take(tokens * 4);
    const [scores, shares, chosen] = [takeForTokens(), takeForTokens(), takeForTokens()];
    this.#apply('sharedGate', x, scores, slice);
    const spec = { experts: 1, used: 1, shares: SharesId.sigmoid, normalized: false, scale: 1 };
    core.withRecord(RouteSpecRecord, spec, (record) =>
      checkStatus(core.models.routeExperts(scores, 0, tokens, record, chosen, shares)),
    );
    for (const [token, share] of fromWasm(core, shares, tokens).entries()) {
      core.models.scaleFloats(share, outputs + token * layer.hidden * 4, layer.hidden);
    }
  }

  /** Finds the experts of each token. @param x inputs of the experts */
  #route(scores: number, x: number, { layer, tokens }: Slice): NonNullable<TransformerAnswer['routes']> {
    const core = this.#core;
    const { index, hidden, experts, usedExperts: used } = layer;
    const n = tokens * used;
    const [chosen, shares] = [this.#work.take(n * 4), this.#work.take(n * 4)];
    const biases = layer.routerBias === undefined ? 0 : this.#work.place(layer.routerBias);
    const { shares: kind, sharesScale: scale, normalizesShares: normalized } = layer;
    const status = core.withRecord(RouteSpecRecord, { experts, used, shares: kind, normalized, scale }, (record) =>
      core.models.routeExperts(scores, biases, tokens, record, chosen, shares),
    );
    if (status === StatusId.nonFinite) {
      throw new ScalepointError('NON_FINITE', `the scores of the experts of layer ${index} are not finite`);
    }
    checkStatus(status);
    return {
      chosen: core.module.HEAPU32.slice(chosen >>> 2, (chosen >>> 2) + n),
      shares: fromWasm(core, shares, n),
      inputs: fromWasm(core, x, tokens * hidden),
    };
  }

  #expert({ layer, x, watch }: Job<'expert'>): TransformerAnswer {
    const tokens = x.length / layer.hidden;
    const width = this.#product('down').spec.inputs;
    const at = this.#work.place(x);
    const [wide, mixed] = [this.#work.take(8 * tokens * width), this.#work.take(4 * tokens * width)];
    const watched: Watched[] = [];
    this.#feedForward(['up', 'down'], at, at, { layer, tokens, wide, mixed, watch, watched });
    return { values: fromWasm(this.#core, at, x.length), watched };
  }

  #logits({ states, scale, cap }: Job<'logits'>): TransformerAnswer {
    const core = this.#core;
    const head = this.#product('head');
    const tokens = states.length / head.spec.inputs;
    const n = tokens * head.spec.outputs;
    const [x, y] = [this.#work.place(states), this.#work.take(n * 4)];
    this.#norm('headNorm', x, states.length, x);
    head.run(x, tokens, y);
    if (scale !== 1) core.models.scaleFloats(scale, y, n);
    if (cap > 0) checkStatus(core.models.capSoftly(cap, y, n));
    return { values: fromWasm(core, y, n), watched: [] };
  }

  #headInputs({ name, states, watch }: Job<'headInputs'>): TransformerAnswer {
    const { width: inputs } = this.#held.norms.get('headNorm') ?? { width: 0 };
    const x = this.#work.place(states);
    this.#norm('headNorm', x, states.length, x);
    const watched = this.#watchedInputs({ names: [name], inputs }, x, states.length / inputs, watch);
    return { ...nothing(), watched: [watched] };
  }

  #addMoments({ name, x, columns }: Job<'addMoments'>): TransformerAnswer {
    const core = this.#core;
    let sums = this.#moments.get(name);
    if (sums === undefined) {
      const size = 8 * columns * columns;
      sums = core.allocate(size);
      core.module.HEAPU8.fill(0, sums, sums + size);
      this.#moments.set(name, sums);
    }
    const scratchBytes = Number(core.models.momentsScratchBytes(columns));
    const [at, scratch] = [this.#work.place(x), this.#work.take(scratchBytes)];
    const status = core.models.addMoments(at, x.length / columns, columns, scratch, sums);
    if (status === StatusId.nonFinite) {
      const text = `the moments of the inputs of ${name} are not finite`;
      throw new ScalepointError('NON_FINITE', text, { tensor: name });
    }
    checkStatus(status);
    return nothing();
  }

  #takeMoments({ name, columns, rows }: Job<'takeMoments'>): TransformerAnswer {
    const core = this.#core;
    const sums = this.#moments.get(name);
    if (sums === undefined) throw new Error(`no moments of ${name}`);
    const means = this.#work.take(4 * columns * columns);
    core.models.finishMoments(sums, columns, rows, means);
    core.release(sums);
    this.#moments.delete(name);
    return { values: fromWasm(core, means, columns * columns), watched: [] };
  }
}
