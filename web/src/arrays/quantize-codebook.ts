// Quantizes floats to codes of a codebook: blocks with one scale each, called absmax, and one list of values for all blocks.

import { checkKeys, checkShape, checkWhole, choiceIndex } from '../core/check.js';
import { DecisionId, PublishedCodebookId, StatusId } from '../core/door.js';
import { typeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile, tileSize } from '../core/memory.js';
import { type Expected, ofType, oneOf } from '../core/option-problem.js';
import type { WasmArray } from '../core/wasm-array.js';
import { checkOptionsOf } from './calls.js';
import { type CodebookAddresses, checkCount, valuesOf, withCodebookMemory } from './codebook.js';
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

const defaultBlockSize = 64;

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

/** A call under way. */
interface CodebookRun {
  readonly core: Core;
  readonly source: Source;
  readonly codebook: Codebook;
  readonly blockSize: number;
  /** True if absmax values are rounded for `absmaxType: 'int8'`. */
  readonly rounded: boolean;
  readonly codes: Sink;
  /** A CodebookJob. */
  readonly job: number;
  /** Address of all absmax values, and their number. */
  readonly absmax: number;
  readonly blocks: number;
}

/** See Scalepoint.quantizeCodebook. */
export function quantizeCodebook(
  core: Core,
  x: FloatInput,
  options: CodebookOptions,
): CodebookTensor & CodebookParameters {
  // Check the arguments.
  checkOptionsOf('quantizeCodebook', options);
  const codebook = codebookOf(options.codebook);
  const blockSize = options.blockSize === undefined ? defaultBlockSize : checkWhole(options.blockSize, 'blockSize', 1);
  const source = sourceOf(core, x, options.from, 'x');
  const n = source.length;
  const shape = checkShape(options.shape ?? source.shape, n);
  const blocks = Math.ceil(n / blockSize);
  const { out } = options;
  const codes = new Sink(core, 'uint8', n, out, 'out');
  checkApart(x, out, 'out');
  const absmax = new Sink(core, 'float32', blocks, undefined, 'absmax');
  const searched = choiceIndex(options, 'range', ['min-max', 'mse']) === 1;
  const rounded = choiceIndex(options, 'absmaxType', ['float32', 'int8']) === 1;
  const { count: values, decision } = codebook;
  // Find the values and the absmax, and make the codes.
  const learned = withCodebookMemory(core, blocks, { blockSize, values, decision }, (at: CodebookAddresses) => {
    const run: CodebookRun = {
      core,
      source,
      codebook,
      blockSize,
      rounded,
      codes,
      job: at.job,
      absmax: at.absmax,
      blocks,
    };
    core.module.HEAPF32.fill(0, at.absmax / 4, at.absmax / 4 + blocks);
    codebook.fill(core, at.codebook);
    if (searched) encodeSearched(run);
    else if (codebook.learned) encodeLearned(run);
    else encodeGiven(run);
    absmax.copy(0, blocks, at.absmax);
    return core.module.HEAPF32.slice(at.codebook / 4, at.codebook / 4 + values) as Float32Array<ArrayBuffer>;
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

/** Processes a tile of x: count floats at an address, which begin with element start. */
type TileVisitor = (x: number, count: number, start: number) => void;

/** True if the absmax of a block is known after one tile. Rounding needs those of many blocks. */
function isWithinTiles({ blockSize, rounded }: CodebookRun): boolean {
  return blockSize <= tileSize && !rounded;
}

/** Walks all elements in tiles of whole blocks, so that one visit does all work for them, or of parts of large blocks. */
function walk(run: CodebookRun, source: Source, step: TileVisitor): void {
  const { blockSize } = run;
  const size = isWithinTiles(run) ? Math.floor(tileSize / blockSize) * blockSize : tileSize;
  forEachTile(source.length, false, (start, count) => step(source.at(start, count), count, start), size);
}

/** Updates the absmax of blocks with elements. */
function observe({ core, source, job }: CodebookRun): TileVisitor {
  return (x, count, start) => {
    const status = core.module._observeAbsmax(job, x, count, start);
    if (status === StatusId.nonFinite) {
      throw nonFiniteError(source, core, x, count, start, 'codes of a codebook stand for finite values only');
    }
    checkStatus(status);
  };
}

/** Makes the codes of elements. */
function encode({ core, job, codes }: CodebookRun): TileVisitor {
  const tile = core.scratch.y;
  return (x, count, start) => {
    checkStatus(core.module._quantizeCodebook(job, x, count, start, codes.at(start, tile)));
    codes.put(start, count, tile);
  };
}

function roundIfAsked({ core, rounded, absmax, blocks }: CodebookRun): void {
  if (rounded) checkStatus(core.module.roundAbsmax(absmax, blocks));
}

/** Encodes with a known codebook. */
function encodeGiven(run: CodebookRun): void {
  const { core, source } = run;
  const [observing, encoding] = [observe(run), encode(run)];
  if (isWithinTiles(run)) {
    walk(run, source, (...piece) => {
      observing(...piece);
      encoding(...piece);
    });
    return;
  }
  withResident(core, source, (kept) => {
    walk(run, kept, observing);
    roundIfAsked(run);
    walk(run, kept, encoding);
  });
}

/** Encodes with a codebook that is learned for the largest magnitudes of blocks. */
function encodeLearned(run: CodebookRun): void {
  const { core, source } = run;
  const observing = observe(run);
  withResident(core, source, (kept) => {
    learn(run, (learnFrom) => {
      if (isWithinTiles(run)) {
        walk(run, kept, (...piece) => {
          observing(...piece);
          learnFrom(...piece);
        });
        return;
      }
      walk(run, kept, observing);
      roundIfAsked(run);
      walk(run, kept, learnFrom);
    });
    walk(run, kept, encode(run));
  });
}

/** Encodes with absmax values from a search. */
function encodeSearched(run: CodebookRun): void {
  const { core, source } = run;
  withWhole(core, source, (whole) => {
    // Find the largest magnitudes, and fail on values that are not finite.
    walk(run, whole, observe(run));
    searchScales(run, whole.at(0, whole.length));
    walk(run, whole, encode(run));
  });
}

/** Learns the codebook of the job. f passes all data to the learner. */
function learn({ core, job }: CodebookRun, f: (learnFrom: TileVisitor) => void): void {
  core.withMemory(core.module.codebookLearnerBytes(), (learner) => {
    const { module } = core;
    checkStatus(module.clearCodebookLearner(learner));
    f((x, count, start) => checkStatus(module.observeCodebook(job, x, count, start, learner)));
    checkStatus(module.learnCodebook(job, learner));
  });
}

/**
 * The search for the scales alternates with that for a learned codebook: number of rounds, of elements and of places that they come from.
 * Both are repeated once on all elements at the end.
 */
const rounds = 4;
const sampleSize = 2 ** 18;
const samplePlaces = 64;

/** Neighboring elements that begin at a block. */
interface SampleStretch {
  readonly start: number;
  readonly size: number;
}

/** All elements, or stretches from many places. */
function sampleOf(n: number, blockSize: number): readonly SampleStretch[] {
  const blocks = Math.ceil(n / blockSize);
  const wanted = Math.max(1, Math.floor(sampleSize / samplePlaces / blockSize));
  if (blocks <= wanted * samplePlaces) return [{ start: 0, size: n }];
  return Array.from({ length: samplePlaces }, (_, i) => {
    const start = Math.floor((i * (blocks - wanted)) / (samplePlaces - 1)) * blockSize;
    return { start, size: Math.min(wanted * blockSize, n - start) };
  });
}

/** Searches for the absmax of every block, and for the values of a learned codebook. Starts from the largest magnitudes. */
function searchScales(run: CodebookRun, x: number): void {
  const { core, job, blockSize, rounded, codebook } = run;
  const n = run.source.length;
  const search = ({ start, size }: SampleStretch, whether: boolean) =>
    checkStatus(core.module.searchAbsmax(job, x + start * 4, size, start, whether));
  const learnFrom = (stretches: readonly SampleStretch[]) =>
    learn(run, (step) => {
      for (const { start, size } of stretches) step(x + start * 4, size, start);
    });
  const all = { start: 0, size: n };
  if (codebook.learned) {
    const sample = sampleOf(n, blockSize);
    learnFrom([all]);
    for (let round = 0; round < rounds; round++) {
      for (const stretch of sample) search(stretch, false);
      learnFrom(sample);
    }
  }
  search(all, rounded);
  if (codebook.learned) learnFrom([all]);
}
