// Quantizes floats to codes of a codebook: blocks with one scale each, called absmax, and one list of values for all blocks.

import { checkKeys, checkShape, checkWhole, readChoice } from '../core/check.js';
import { DecisionId, PublishedCodebookId, StatusId } from '../core/door.js';
import { typeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile, tileSize } from '../core/memory.js';
import { type Expected, ofType, oneOf } from '../core/option-problem.js';
import type { WasmArray } from '../core/wasm-array.js';
import { checkOptionsOf } from './calls.js';
import { checkCount, valuesOf, withCodebookMemory } from './codebook.js';
import { checkApart, Sink } from './sink.js';
import {
  type FloatInput,
  type HalfFormat,
  nonFiniteError,
  type Source,
  sourceOf,
  withResident,
  withWhole,
} from './source.js';
import { type CodebookParameters, type CodebookTensor, plain } from './tensor.js';
import { codebookNames, typeNameError } from './type-names.js';

/** Source of the values of the codes. */
export type CodebookSource =
  /** The 4-bit codebooks of bitsandbytes, with its decision thresholds. */
  | 'nf4'
  | 'fp4'
  /** 2 to 256 finite values in any order. Each quotient x / absmax gets the nearest one. */
  | Float32Array
  | {
      /** Number of values, 2 to 256, learned for a small squared error of these data. */
      readonly learn: number;
    };

/** Options of `quantizeCodebook`. */
export interface CodebookOptions<Data extends Uint8Array | WasmArray = Uint8Array | WasmArray> {
  /** The values of the codes: named, given or learned. */
  codebook: CodebookSource;
  /** Consecutive elements that share an absmax; the last block may be shorter. @defaultValue 64 */
  blockSize?: number | undefined;
  /**
   * 'mse': chooses each absmax for the least squared error, together with a learned codebook. An absmax may then be negative, which mirrors
   * a codebook with more values on one side. Needs room for all of x in wasm memory.
   * @defaultValue 'min-max': the largest magnitude in the block
   */
  range?: 'min-max' | 'mse' | undefined;
  /**
   * 'int8': the absmax values of each 256 blocks are integer multiples of one bfloat16. `sp.quantize(q.absmax, { dtype: 'int8', shape:
   * [blocks], granularity: { kind: 'per-group', groupSize: 256 } })` then stores them in 8.06 bits each without loss, unless they are below
   * 1e-36.
   * @defaultValue 'float32'
   */
  absmaxType?: 'float32' | 'int8' | undefined;
  /** Its product is the number of elements. @defaultValue [length] */
  shape?: readonly number[] | undefined;
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
  /** A Uint8Array or a WasmArray of uint8 for the codes, one a byte, to fill instead of a fresh one. */
  out?: Data | undefined;
}

/** A checked `codebook` option. */
interface Codebook {
  /** Number of values. */
  readonly count: number;
  readonly decision: DecisionId;
  readonly learned: boolean;
  /** Writes the values to an address, unless they are learned. */
  fill(core: Core, at: number): void;
}

/** Values of each of bitsandbytes' codebooks: one for each code of four bits. */
const publishedCount = 16;

/** Values of the option. */
const codebookForm: Expected = {
  kind: 'anyOf',
  of: [oneOf(codebookNames), ofType('Float32Array'), { kind: 'object', keys: ['learn'] }],
};

function codebookOf(codebook: unknown): Codebook {
  if (codebook === 'nf4' || codebook === 'fp4') {
    return {
      count: publishedCount,
      decision: DecisionId[codebook],
      learned: false,
      fill: (core, at) => core.module.publishedCodebook(PublishedCodebookId[codebook], at),
    };
  }
  if (typeof codebook === 'object' && codebook !== null && 'learn' in codebook) {
    checkKeys(codebook, ['learn'], 'codebook');
    const count = checkCount(codebook.learn, 'codebook.learn');
    return { count, decision: DecisionId.nearest, learned: true, fill() {} };
  }
  if (typeof codebook === 'string') throw typeNameError('codebook', codebookNames, codebook, codebookForm);
  if (!ArrayBuffer.isView(codebook)) throw typeError('codebook', codebookForm, codebook);
  const values = valuesOf(codebook, 'codebook');
  return {
    count: values.length,
    decision: DecisionId.nearest,
    learned: false,
    fill: (core, at) => core.module.HEAPF32.set(values, at / 4),
  };
}

/** Processes a tile of x: count floats at an address, which begin with element start. */
type TileVisitor = (x: number, count: number, start: number) => void;

/**
 * The search for the scales alternates with that for a learned codebook: number of rounds, of elements and of places that they come from.
 * Both are repeated once on all elements at the end.
 */
const rounds = 4;
const sampleSize = 2 ** 18;
const samplePlaces = 64;

/** See Scalepoint.quantizeCodebook. */
export function quantizeCodebook(
  core: Core,
  x: FloatInput,
  options: CodebookOptions,
): CodebookTensor & CodebookParameters {
  // Check the arguments.
  checkOptionsOf('quantizeCodebook', options);
  const codebook = codebookOf(options.codebook);
  const { blockSize = 64 } = options;
  checkWhole(blockSize, 'blockSize', 1);
  const source = sourceOf(core, x, options.from, 'x');
  const n = source.length;
  const shape = checkShape(options.shape ?? source.shape, n);
  const blocks = Math.ceil(n / blockSize);
  const { out } = options;
  const codes = new Sink(core, 'uint8', n, out, 'out');
  checkApart(x, out, 'out');
  const absmax = new Sink(core, 'float32', blocks, undefined, 'absmax');
  const isSearched = readChoice(options, 'range', ['min-max', 'mse']) === 'mse';
  const isRounded = readChoice(options, 'absmaxType', ['float32', 'int8']) === 'int8';
  const { count: values, decision } = codebook;
  const { module } = core;
  // Take tiles of whole blocks, so that one visit does all work for them, or parts of large blocks. Rounding needs the absmax of many blocks.
  const isWithinTiles = blockSize <= tileSize && !isRounded;
  const step = isWithinTiles ? Math.floor(tileSize / blockSize) * blockSize : tileSize;
  const walk = (from: Source, ...visitors: readonly TileVisitor[]) =>
    forEachTile(
      n,
      false,
      (start, count) => {
        const at = from.at(start, count);
        for (const visit of visitors) visit(at, count, start);
      },
      step,
    );
  const learned = withCodebookMemory(core, blocks, { blockSize, values, decision }, (at) => {
    const { job } = at;
    const observe: TileVisitor = (from, count, start) => {
      const status = module._observeAbsmax(job, from, count, start);
      if (status === StatusId.nonFinite) {
        throw nonFiniteError(
          core,
          source,
          { x: from, count, start },
          'codes of a codebook stand for finite values only',
        );
      }
      checkStatus(status);
    };
    const encode: TileVisitor = (from, count, start) => {
      const tile = core.scratch.y;
      checkStatus(module._quantizeCodebook(job, from, count, start, codes.at(start, tile)));
      codes.put(start, count, tile);
    };
    /** Learns the codebook. f passes all data to the learner. */
    const learn = (f: (learnFrom: TileVisitor) => void) =>
      core.withMemory(module.codebookLearnerBytes(), (learner) => {
        checkStatus(module.clearCodebookLearner(learner));
        f((from, count, start) => checkStatus(module.observeCodebook(job, from, count, start, learner)));
        checkStatus(module.learnCodebook(job, learner));
      });
    module.HEAPF32.fill(0, at.absmax / 4, at.absmax / 4 + blocks);
    codebook.fill(core, at.codebook);
    if (isSearched) {
      withWhole(core, source, (whole) => {
        // Find the largest magnitudes, and fail on values that are not finite.
        walk(whole, observe);
        // Sample blocks from many places, unless there are few.
        const wanted = Math.max(1, Math.floor(sampleSize / samplePlaces / blockSize));
        const all = { start: 0, size: n };
        const isSmall = blocks <= wanted * samplePlaces;
        const sample = Array.from({ length: isSmall ? 1 : samplePlaces }, (_, i) => {
          const start = Math.floor((i * (blocks - wanted)) / (samplePlaces - 1)) * blockSize;
          return isSmall ? all : { start, size: Math.min(wanted * blockSize, n - start) };
        });
        // Search for the absmax of each block, and for the values of a learned codebook.
        const first = whole.at(0, n);
        const search = ({ start, size }: typeof all, rounded: boolean) =>
          checkStatus(module.searchAbsmax(job, first + start * 4, size, start, rounded));
        const learnFrom = (stretches: readonly (typeof all)[]) =>
          learn((visit) => {
            for (const { start, size } of stretches) visit(first + start * 4, size, start);
          });
        if (codebook.learned) learnFrom([all]);
        for (let round = 0; codebook.learned && round < rounds; round++) {
          for (const stretch of sample) search(stretch, false);
          learnFrom(sample);
        }
        search(all, isRounded);
        if (codebook.learned) learnFrom([all]);
        walk(whole, encode);
      });
    } else if (isWithinTiles && !codebook.learned) walk(source, observe, encode);
    else {
      withResident(core, source, (kept) => {
        if (!isWithinTiles) walk(kept, observe);
        if (isRounded) checkStatus(module.roundAbsmax(at.absmax, blocks));
        if (codebook.learned) learn((visit) => (isWithinTiles ? walk(kept, observe, visit) : walk(kept, visit)));
        walk(kept, encode);
      });
    }
    absmax.copy(0, blocks, at.absmax);
    return module.HEAPF32.slice(at.codebook / 4, at.codebook / 4 + values) as Float32Array<ArrayBuffer>;
  });
  return plain({
    kind: 'codebook',
    codebook: learned,
    blockSize,
    absmax: absmax.result as Float32Array<ArrayBuffer>,
    data: codes.result as Uint8Array | WasmArray,
    shape,
  });
}
