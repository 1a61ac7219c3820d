/** Carries out jobs of the forward pass in the memory of one core. */

import { floatForm, LayerMemory } from '../arrays/layer-memory.js';
import { AttentionSpecRecord, RotarySpecRecord, RouteSpecRecord, SharesId, StatusId } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import { type Core, checkStatus } from '../core/memory.js';
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

/** Memory that is freed together. */
class Memory {
  readonly core: Core;
  readonly #frees: (() => void)[] = [];

  constructor(core: Core) {
    this.core = core;
  }

  floats(n: number): number {
    return this.bytes(n * 4);
  }

  bytes(n: number): number {
    const address = this.core.allocate(n);
    this.own(() => this.core.release(address));
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

  constructor(spec: ProductSpec, memory: Memory) {
    const { core } = memory;
    this.spec = spec;
    this.#core = core;
    const matrix = new LayerMemory(core, floatForm(spec.outputs, spec.inputs));
    memory.own(() => matrix.dispose());
    this.#matrix = matrix;
    this.#workBytes = core.module.layerWorkspaceBytes(matrix.layer, rowsAtOnce);
    this.#work = memory.bytes(this.#workBytes);
    this.setBias(new Float32Array(spec.outputs));
  }

  setRows(row: number, values: Float32Array): void {
    const core = this.#core;
    core.withMemory(values.byteLength, (at) => {
      toWasm(core, values, at);
      checkStatus(core.module.setLayerFloats(this.#matrix.layer, row, at, values.length));
    });
  }

  setBias(values: Float32Array): void {
    const core = this.#core;
    core.withMemory(values.byteLength, (at) => {
      toWasm(core, values, at);
      checkStatus(core.module.setLayerBias(this.#matrix.layer, at, values.length));
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

const nothing = (): TransformerAnswer => ({ values: new Float32Array(0), watched: [] });

type Job<Kind extends TransformerJob['kind']> = Extract<TransformerJob, { kind: Kind }>;

/** Holds the weights of a layer, and passes tokens through it. */
export class LayerHandler implements JobHandler {
  readonly #core: Core;
  readonly #weights: Memory;
  readonly #products = new Map<ProductName, Product>();
  readonly #norms = new Map<NormName, { readonly weight: number; readonly bias: number; readonly width: number }>();
  #isCentered = false;
  #epsilon = 0;
  /** Addresses of sums of second moments. */
  readonly #moments = new Map<string, number>();

  constructor(core: Core) {
    this.#core = core;
    this.#weights = new Memory(core);
  }

  /** @throws ScalepointError `NON_FINITE` naming the layer or the weight, `OUT_OF_MEMORY` */
  carryOut(job: TransformerJob): TransformerAnswer {
    switch (job.kind) {
      case 'begin':
        return this.#begin(job);
      case 'rows':
        this.#product(job.product).setRows(job.row, job.values);
        return nothing();
      case 'bias':
        this.#product(job.product).setBias(job.values);
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
  }

  /** Memory that moves with an answer. */
  movable({ values, watched, routes }: TransformerAnswer): ArrayBuffer[] {
    const others = routes === undefined ? [] : [routes.chosen, routes.shares, routes.inputs];
    const all = [
      values,
      ...others,
      ...watched.flatMap(({ squares, x }) => (x === undefined ? [squares] : [squares, x])),
    ];
    return all.map(({ buffer }) => buffer);
  }

  #product(name: ProductName): Product {
    const product = this.#products.get(name);
    if (product === undefined) throw new Error(`no weights for ${name}`);
    return product;
  }

  #begin({ products, norms, isCentered, epsilon }: Job<'begin'>): TransformerAnswer {
    this.#isCentered = isCentered;
    this.#epsilon = epsilon;
    this.#weights.release();
    this.#products.clear();
    this.#norms.clear();
    for (const [name, spec] of Object.entries(products)) {
      this.#products.set(name as ProductName, new Product(spec, this.#weights));
    }
    const place = (values: Float32Array<ArrayBuffer>) => {
      const address = this.#weights.floats(values.length);
      toWasm(this.#core, values, address);
      return address;
    };
    for (const [name, { weight, bias }] of Object.entries(norms)) {
      const addresses = { weight: place(weight), bias: bias === undefined ? 0 : place(bias) };
      this.#norms.set(name as NormName, { ...addresses, width: weight.length });
    }
    return nothing();
  }

  /** Normalizes rows of floats. Without such a norm, they stay as they are. */
  #norm(name: NormName, from: number, floats: number, to: number): void {
    const { models } = this.#core;
    const norm = this.#norms.get(name);
    if (norm === undefined) {
      if (from !== to) models.HEAPF32.copyWithin(to >>> 2, from >>> 2, (from >>> 2) + floats);
      return;
    }
    const { weight, bias, width } = norm;
    const rows = floats / width;
    if (this.#isCentered) {
      checkStatus(models.layerNorm(from, rows, weight, bias, width, this.#epsilon, to));
      return;
    }
    checkStatus(models.rmsNorm(from, rows, weight, width, this.#epsilon, 0, to));
    if (bias === 0) return;
    for (let row = 0; row < rows; row++) checkStatus(models.addScaled(1, bias, width, to + row * width * 4));
  }

  /** Computes a product, and collects its inputs. */
  #apply(name: ProductName, x: number, rows: number, y: number, watch: Watch, watched: Watched[]): void {
    const product = this.#product(name);
    const { names, inputs } = product.spec;
    if (watch.squares) watched.push(this.#watched(names, x, rows, inputs, watch));
    product.run(x, rows, y);
  }

  #watched(names: readonly string[], x: number, rows: number, columns: number, watch: Watch): Watched {
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

  #layer({ layer, states, textSize, watch }: Job<'layer'>): TransformerAnswer {
    const core = this.#core;
    const { models } = core;
    const { index, hidden, heads, keyHeads, headSize, residualScale, isParallel, normsRotated } = layer;
    const tokens = states.length / hidden;
    const floats = states.length;
    const [queries, keys] = [heads * headSize, keyHeads * headSize];
    const watched: Watched[] = [];
    const work = new Memory(core);
    try {
      // Take memory for a slice.
      const together = this.#product('together').spec;
      const widthOf = (name: ProductName, side: 'inputs' | 'outputs') => this.#products.get(name)?.spec[side] ?? 0;
      const x = work.floats(floats);
      const normed = work.floats(floats);
      const added = work.floats(floats);
      const widest = Math.max(
        together.outputs,
        widthOf('up', 'outputs'),
        widthOf('sharedUp', 'outputs'),
        layer.experts,
      );
      const wide = work.floats(tokens * widest);
      const [q, k, v] = [work.floats(tokens * queries), work.floats(tokens * keys), work.floats(tokens * keys)];
      const mixed = work.floats(tokens * Math.max(queries, widthOf('down', 'inputs'), widthOf('sharedDown', 'inputs')));
      toWasm(core, states, x);
      const add = (from: number) => checkStatus(models.addScaled(residualScale, from, floats, x));

      // Attend.
      this.#norm('attentionNorm', x, floats, normed);
      this.#apply('together', normed, tokens, wide, watch, watched);
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
      if (normsRotated) this.#rotate(layer, tokens, textSize, q, k, work);
      this.#norm('queryNorm', q, tokens * queries, q);
      this.#norm('keyNorm', k, tokens * keys, k);
      if (!normsRotated) this.#rotate(layer, tokens, textSize, q, k, work);
      const attention: AttentionSpecRecord = {
        heads,
        keyHeads,
        headSize,
        scale: layer.attentionScale,
        softcap: layer.attentionCap,
        window: layer.window,
        causal: true,
        textSize,
      };
      const scratch = work.floats(textSize);
      const sinks = layer.sinks === undefined ? 0 : work.floats(heads);
      if (layer.sinks !== undefined) toWasm(core, layer.sinks, sinks);
      core.withRecord(AttentionSpecRecord, attention, (record) =>
        checkStatus(models.attend(q, k, v, sinks, tokens, record, scratch, mixed)),
      );
      this.#apply('output', mixed, tokens, added, watch, watched);
      this.#norm('attentionAfter', added, floats, added);
      // A parallel feed-forward part reads the inputs of attention, unless it has a norm of its own.
      if (isParallel && this.#norms.has('feedForwardNorm')) this.#norm('feedForwardNorm', x, floats, normed);
      add(added);

      // Feed forward, or find the experts of each token.
      if (!isParallel) this.#norm('feedForwardNorm', x, floats, normed);
      if (layer.experts > 0) {
        this.#apply('router', normed, tokens, wide, watch, watched);
        const routes = this.#route(layer, wide, tokens, normed, work);
        if (this.#products.has('sharedUp')) {
          const shares = this.#products.has('sharedGate') ? work.floats(tokens) : undefined;
          if (shares !== undefined) this.#sharesOfShared(normed, tokens, shares, work, watch, watched);
          this.#feedForward(layer, ['sharedUp', 'sharedDown'], normed, tokens, wide, mixed, added, watch, watched);
          for (let token = 0; shares !== undefined && token < tokens; token++) {
            const share = models.HEAPF32[(shares >>> 2) + token] as number;
            models.scaleFloats(share, added + token * hidden * 4, hidden);
          }
          add(added);
        }
        return { values: this.#finiteStates(index, x, floats), watched, routes };
      }
      this.#feedForward(layer, ['up', 'down'], normed, tokens, wide, mixed, added, watch, watched);
      this.#norm('feedForwardAfter', added, floats, added);
      add(added);
      return { values: this.#finiteStates(index, x, floats), watched };
    } finally {
      work.release();
    }
  }

  /** Turns queries and keys, if the layer does. */
  #rotate(layer: LayerSpec, tokens: number, textSize: number, q: number, k: number, work: Memory): void {
    const { rotary, heads, keyHeads, headSize } = layer;
    if (rotary === undefined) return;
    const core = this.#core;
    const n = rotary.frequencies.length;
    const [positions, frequencies] = [work.bytes(tokens * 4), work.bytes(n * 8)];
    core.module.HEAPF64.set(rotary.frequencies, frequencies >>> 3);
    for (let i = 0; i < tokens; i++) core.module.HEAPU32[(positions >>> 2) + i] = i % textSize;
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

  #feedForward(
    { gate }: LayerSpec,
    [up, down]: readonly [ProductName, ProductName],
    x: number,
    tokens: number,
    wide: number,
    mixed: number,
    y: number,
    watch: Watch,
    watched: Watched[],
  ): void {
    const { models } = this.#core;
    const width = this.#product(down).spec.inputs;
    const { outputs } = this.#product(up).spec;
    this.#apply(up, x, tokens, wide, watch, watched);
    for (let token = 0; token < tokens; token++) {
      const at = wide + token * outputs * 4;
      const factors = outputs === width ? 0 : at + width * 4;
      checkStatus(models.applyGate(gate, at, factors, width, mixed + token * width * 4));
    }
    this.#apply(down, mixed, tokens, y, watch, watched);
  }

  /** The share of each token that passes the expert which all tokens share: a sigmoid. */
  #sharesOfShared(x: number, tokens: number, shares: number, work: Memory, watch: Watch, watched: Watched[]): void {
    const core = this.#core;
    const [scores, chosen] = [work.floats(tokens), work.bytes(tokens * 4)];
    this.#apply('sharedGate', x, tokens, scores, watch, watched);
    const spec = { experts: 1, used: 1, shares: SharesId.sigmoid, normalized: false, scale: 1 };
    core.withRecord(RouteSpecRecord, spec, (record) =>
      checkStatus(core.models.routeExperts(scores, 0, tokens, record, chosen, shares)),
    );
  }

  #route(layer: LayerSpec, scores: number, tokens: number, x: number, work: Memory) {
    const core = this.#core;
    const { index, hidden, experts, usedExperts, routerBias } = layer;
    const n = tokens * usedExperts;
    const [chosen, shares] = [work.bytes(n * 4), work.floats(n)];
    const biases = routerBias === undefined ? 0 : work.floats(experts);
    if (routerBias !== undefined) toWasm(core, routerBias, biases);
    const { shares: kind, sharesScale: scale, normalizesShares: normalized } = layer;
    const spec = { experts, used: usedExperts, shares: kind, normalized, scale };
    const status = core.withRecord(RouteSpecRecord, spec, (record) =>
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

  #finiteStates(layer: number, x: number, n: number): Float32Array<ArrayBuffer> {
    if (this.#core.module.firstNonFinite(x, n) < n) {
      throw new ScalepointError('NON_FINITE', `the states behind layer ${layer} are not finite`);
    }
    return fromWasm(this.#core, x, n);
  }

  #expert({ layer, x, watch }: Job<'expert'>): TransformerAnswer {
    const core = this.#core;
    const tokens = x.length / layer.hidden;
    const width = this.#product('down').spec.inputs;
    const watched: Watched[] = [];
    const work = new Memory(core);
    try {
      const at = work.floats(x.length);
      toWasm(core, x, at);
      const [wide, mixed] = [work.floats(tokens * width * 2), work.floats(tokens * width)];
      this.#feedForward(layer, ['up', 'down'], at, tokens, wide, mixed, at, watch, watched);
      return { values: fromWasm(core, at, x.length), watched };
    } finally {
      work.release();
    }
  }

  #logits({ states, scale, cap }: Job<'logits'>): TransformerAnswer {
    const core = this.#core;
    const { inputs, outputs } = this.#product('head').spec;
    const tokens = states.length / inputs;
    const work = new Memory(core);
    try {
      const [x, y] = [work.floats(states.length), work.floats(tokens * outputs)];
      toWasm(core, states, x);
      this.#norm('headNorm', x, states.length, x);
      this.#product('head').run(x, tokens, y);
      if (scale !== 1) core.models.scaleFloats(scale, y, tokens * outputs);
      if (cap > 0) checkStatus(core.models.capSoftly(cap, y, tokens * outputs));
      return { values: fromWasm(core, y, tokens * outputs), watched: [] };
    } finally {
      work.release();
    }
  }

  #headInputs({ name, states, watch }: Job<'headInputs'>): TransformerAnswer {
    const { width } = this.#norms.get('headNorm') ?? { width: 0 };
    const core = this.#core;
    return core.withMemory(states.byteLength, (x) => {
      toWasm(core, states, x);
      this.#norm('headNorm', x, states.length, x);
      const watched = this.#watched([name], x, states.length / width, width, watch);
      return { ...nothing(), watched: [watched] };
    });
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
    const to = sums;
    core.withMemory(x.byteLength, (at) => {
      toWasm(core, x, at);
      const status = core.withMemory(Number(core.models.momentsScratchBytes(columns)), (scratch) =>
        core.models.addMoments(at, x.length / columns, columns, scratch, to),
      );
      if (status === StatusId.nonFinite) {
        throw new ScalepointError('NON_FINITE', `the moments of the inputs of ${name} are not finite`, {
          tensor: name,
        });
      }
      checkStatus(status);
    });
    return nothing();
  }

  #takeMoments({ name, columns, rows }: Job<'takeMoments'>): TransformerAnswer {
    const core = this.#core;
    const sums = this.#moments.get(name);
    if (sums === undefined) throw new Error(`no moments of ${name}`);
    const n = columns * columns;
    const values = core.withMemory(4 * n, (means) => {
      core.models.finishMoments(sums, columns, rows, means);
      return fromWasm(core, means, n);
    });
    core.release(sums);
    this.#moments.delete(name);
    return { values, watched: [] };
  }
}
