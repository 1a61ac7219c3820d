// ggml's blocks: quantizes floats to blocks, and checks and restores the blocks of a caller.

import {
  type BlockSearch,
  type BlockType,
  type BlockTypeInfo,
  blockFacts,
  blocksOfShape,
  blockTypeInfo,
  blockTypeInfoAt,
  blockTypes,
  checkSearched,
  isBlockType,
} from '../core/blocks.js';
import { checkShape, readChoice, sizeOfShape } from '../core/check.js';
import { BlockSearchId, StatusId, stepSize } from '../core/door.js';
import { rangeError, ScalepointError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile, tileSize } from '../core/memory.js';
import { exactly, type Hint, mention, oneOf } from '../core/option-problem.js';
import type { WasmArray } from '../core/wasm-array.js';
import { checkOptionsOf } from './calls.js';
import { checkEach, checkMatrix, checkWeight } from './job.js';
import type { GivenTensor, Restore, Weights } from './kind.js';
import { checkApart, Sink } from './sink.js';
import {
  addressOf,
  CodeSource,
  type FloatInput,
  type FloatTile,
  type HalfFormat,
  nonFiniteError,
  type Source,
  sourceOf,
} from './source.js';
import { type BlockTensor, plain } from './tensor.js';
import { typeNameError } from './type-names.js';

/** Options of `quantizeBlocks`. */
export interface BlockOptions<Data extends Uint8Array | WasmArray = Uint8Array | WasmArray> {
  /** Its product is the number of elements, its last dimension a multiple of the block's. @defaultValue [length] */
  shape?: readonly number[] | undefined;
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
  /**
   * The importance of each column, as in an importance matrix of llama.cpp: the weight of its squared errors. One number for each index of
   * the last dimension, finite and not negative. Q8_0, MXFP4, TQ1_0, TQ2_0, Q1_0 and Q2_0 ignore it. IQ2_XXS, IQ2_XS and IQ1_S require it,
   * as in ggml.
   * @defaultValue equal importance
   */
  weights?: FloatInput | undefined;
  /**
   * 'best' tries more scales than ggml, and fits the stored ones. In each block the sum of squared errors, weighted by `weights` if given,
   * is at most that of ggml's search. The format and the size are the same. A million elements take 0.1 to 0.5 seconds. TQ1_0, TQ2_0, Q1_0,
   * Q2_0 and the types IQ1 to IQ3 have no such search. Needs `load({ blocks: true })`.
   * @defaultValue 'usual': ggml's own search
   */
  search?: BlockSearch | undefined;
  /** A Uint8Array or a WasmArray of uint8, as long as the blocks, to fill instead of a new array. */
  out?: Data | undefined;
}

/** See Scalepoint.quantizeBlocks. */
export function quantizeBlocks(core: Core, x: FloatInput, type: BlockType, options: BlockOptions): BlockTensor {
  checkOptionsOf('quantizeBlocks', options);
  if (!isBlockType(type)) throw typeNameError('type', blockTypes, type);
  const info = blockTypeInfo(type);
  const source = sourceOf(core, x, options.from, 'x');
  const shape = checkShape(options.shape ?? source.shape, source.length);
  checkBlocks(core, info, 'type');
  const { out } = options;
  const { elements, bytes } = info;
  const blocks = new Sink(core, 'uint8', blocksOfShape(info, shape, source.length, 'shape') * bytes, out, 'out');
  checkApart(x, out, 'out');
  const search = readChoice(options, 'search', ['usual', 'best']);
  if (search === 'best') {
    checkSearched(type, 'type');
    if (!core.hasBlocks(info.id, BlockSearchId.best))
      throw rangeError('search', oneOf(['usual']), search, inLargeModule);
  }
  if (options.weights !== undefined || search === 'best') {
    const weights = options.weights === undefined ? undefined : weightsOf(core, options.weights, shape);
    quantizeRows(core, source, info, weights, BlockSearchId[search], blocks);
  } else {
    if (info.needsWeights)
      throw rangeError('weights', { kind: 'required' }, undefined, { kind: 'with', options: [mention('type', type)] });
    const tile = core.scratch.y;
    forEachTile(source.length, source.inPlace && blocks.address !== undefined, (start, count) => {
      const at = (start / elements) * bytes;
      const from = source.at(start, count);
      const status = core.module._quantizeBlocks(from, count, info.id, blocks.at(at, tile));
      if (status !== StatusId.ok) failBlocks(core, source, status, { x: from, count, start, info });
      blocks.put(at, (count / elements) * bytes, tile);
    });
  }
  return plain({ kind: 'blocks', type: info.name, shape, data: blocks.result as Uint8Array | WasmArray });
}

/** The large module of the core has all types and searches. */
const inLargeModule: Hint = { kind: 'load', option: mention('blocks', true) };

/** @throws RangeError naming the option if the module has no blocks of that type */
function checkBlocks(core: Core, { id, name }: BlockTypeInfo, option: string): void {
  if (!core.hasBlocks(id, BlockSearchId.usual)) throw rangeError(option, oneOf(['Q8_0', 'Q4_0']), name, inLargeModule);
}

/** The importance of the columns. @throws RangeError or TypeError naming `weights` */
function weightsOf(core: Core, given: FloatInput, shape: readonly number[]): Float32Array {
  const source = sourceOf(core, given, undefined, 'weights');
  const columns = shape.at(-1) ?? 1;
  if (source.length !== columns) {
    throw rangeError('weights', exactly(columns, 'elements'), source.length);
  }
  const weights = new Float32Array(columns);
  forEachTile(columns, false, (start, count) => {
    weights.set(core.view('float32', source.at(start, count), count) as Float32Array, start);
  });
  checkEach(weights, checkWeight, 'weights');
  return weights;
}

/** Quantizes whole rows at a time if they have weights, because the weights of some types depend on a row; single blocks otherwise. */
function quantizeRows(
  core: Core,
  source: Source,
  info: BlockTypeInfo,
  weights: Float32Array | undefined,
  search: BlockSearchId,
  blocks: Sink,
): void {
  const columns = weights?.length ?? info.elements;
  const step = Math.max(1, Math.floor(stepSize / columns)) * columns;
  const bytesOf = (count: number) => (count / info.elements) * info.bytes;
  core.withMemory(4 * columns + 4 * step + bytesOf(step), (memory) => {
    const [x, tile] = [memory + 4 * columns, memory + 4 * (columns + step)];
    const counted = weights?.length ?? 0;
    if (weights !== undefined) core.module.HEAPF32.set(weights, memory / 4);
    forEachTile(
      source.length,
      false,
      (start, count) => {
        const from = addressOf(core, source, start, count, 4, x);
        const to = blocks.at(bytesOf(start), tile);
        const status = core.module.quantizeWeightedBlocks(from, count, info.id, memory, counted, search, to);
        if (status === StatusId.overflow) {
          const text = `too large for ${info.name} blocks, which would restore infinities`;
          throw new ScalepointError('OVERFLOW', `x[${start}] to x[${start + count - 1}]: ${text}`);
        }
        if (status !== StatusId.ok) failBlocks(core, source, status, { x: from, count, start, info });
        blocks.put(bytesOf(start), bytesOf(count), tile);
      },
      step,
    );
  });
}

/** Throws the error for the status of a call over a tile. */
function failBlocks(
  core: Core,
  source: Source,
  status: StatusId,
  tile: FloatTile & { readonly info: BlockTypeInfo },
): never {
  const { module, scratch } = core;
  if (status === StatusId.nonFinite) throw nonFiniteError(core, source, tile, "ggml's blocks hold finite values only");
  if (status === StatusId.overflow) {
    // Find the block in question: quantize the blocks one by one.
    const { x, start } = tile;
    const { elements, id, name } = tile.info;
    let at = 0;
    while (module._quantizeBlocks(x + at * 4, elements, id, scratch.y) === StatusId.ok) at += elements;
    const where = `x[${start + at}] to x[${start + at + elements - 1}]`;
    throw new ScalepointError('OVERFLOW', `${where}: too large for a ${name} block, which would restore infinities`);
  }
  checkStatus(status);
  throw new Error('scalepoint: unexpected status of the core');
}

/** A tensor of kind 'blocks', checked. */
export class GivenBlocks implements GivenTensor {
  readonly shape: readonly number[];
  readonly length: number;
  readonly inPlace: boolean;
  readonly #core: Core;
  readonly #what: string;
  readonly #bytes: CodeSource;
  readonly #info: BlockTypeInfo;

  constructor(core: Core, q: BlockTensor, what: string) {
    this.#core = core;
    this.#what = what;
    this.#info = blockTypeInfoAt(q.type, `${what}.type`);
    this.#bytes = new CodeSource(core, q.data, 'uint8', `${what}.data`);
    this.inPlace = this.#bytes.inPlace;
    this.length = sizeOfShape(q.shape, `${what}.shape`);
    this.shape = q.shape;
    const bytes = blocksOfShape(this.#info, q.shape, this.length, `${what}.shape`) * this.#info.bytes;
    if (this.#bytes.length !== bytes) {
      throw rangeError(`${what}.data`, exactly(bytes, 'bytes'), this.#bytes.length);
    }
  }

  /** Checks that the module restores the type. Not part of the constructor, because files hold blocks of any type as they are. */
  #checkType(): void {
    checkBlocks(this.#core, this.#info, `${this.#what}.type`);
  }

  #restore(start: number, count: number, to: number): void {
    const { elements, bytes, id } = this.#info;
    const from = this.#bytes.at((start / elements) * bytes, (count / elements) * bytes);
    checkStatus(this.#core.module._dequantizeBlocks(from, count, id, to));
  }

  restore<T>(f: (restore: Restore) => T): T {
    this.#checkType();
    return f((start, count, to) => this.#restore(start, count, to));
  }

  addErrors(x: Source, sums: number): void {
    this.#checkType();
    const { module, scratch } = this.#core;
    // The second scratch tile holds blocks, and then the floats that they stand for.
    const restored = scratch.y + tileSize * 2;
    forEachTile(x.length, false, (start, count) => {
      const from = x.at(start, count);
      this.#restore(start, count, restored);
      checkStatus(module._accumulateError(from, restored, count, sums));
    });
  }

  asWeights(): Weights | undefined {
    const core = this.#core;
    const { elements, bytes, id, name } = this.#info;
    const [outputs, inputs] = checkMatrix(this.shape, `${this.#what}.shape`);
    const { layerBits: bits, scale } = blockFacts(name);
    if (bits === 0) return undefined;
    const rowBytes = (inputs / elements) * bytes;
    return {
      outputs,
      inputs,
      groupSize: elements,
      bits,
      zeroPoints: false,
      zeroPoint: 0,
      ownBytes: (rows) => rows * rowBytes,
      fill: (layer, row, rows, own) => {
        const from = addressOf(core, this.#bytes, row * rowBytes, rows * rowBytes, 1, own);
        // The scale of a block is a float16. An exponent of all ones stands for NaN and infinities.
        for (let at = 0; at < rows * rowBytes; at += bytes) {
          if (((core.module.HEAPU8[from + at + scale.at + 1] as number) & 0x7c) === 0x7c) {
            const path = `${this.#what}.data[${row * rowBytes + at}]`;
            throw rangeError(path, { kind: 'state', state: 'finiteScale' }, Number.NaN);
          }
        }
        checkStatus(core.module.setLayerBlocks(layer, row, from, rows * rowBytes, id));
      },
    };
  }
}
