// Integers with scales and zero points: checks and restores those of a caller.
import { checkBoolean, checkOwnShape, sizeOfShape } from '../core/check.js';
import { LinearJobRecord, type QuantizationSpecRecord } from '../core/door.js';
import { rangeError, typeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import { whole } from '../core/option-problem.js';
import type { WasmArray } from '../core/wasm-array.js';
import {
  checkEach,
  checkMatrix,
  checkScale,
  checkZeroPoint,
  type Layout,
  layoutOf,
  perTensor,
  resolveGranularity,
  specOfDType,
} from './job.js';
import type { CodedVectors, GivenTensor, Restore, Weights } from './kind.js';
import { PackedCodes, packTiles, unpackTiles, withDType } from './pack.js';
import { withParameters } from './parameters.js';
import { addressOf, type CodeReader, CodeSource, checkUnchanged, parametersOf, type Source } from './source.js';
import {
  type CodeArray,
  type DType,
  type DTypeInfo,
  dtypeInfoAt,
  type Granularity,
  type LinearQuantizedTensor,
} from './tensor.js';

/** Type and shape of packed codes, for `unpack`. */
export interface PackedTensor {
  /** Type of the codes. */
  readonly dtype: DType;
  /** Its product is the number of codes. */
  readonly shape: readonly number[];
}

/** A tensor of kind 'linear', checked. */
export class GivenLinear implements GivenTensor {
  readonly shape: readonly number[];
  readonly length: number;
  readonly inPlace: boolean;
  readonly #core: Core;
  readonly #what: string;
  readonly #codes: CodeReader;
  readonly #info: DTypeInfo;
  readonly #granularity: Granularity;
  readonly #layout: Layout;
  readonly #spec: QuantizationSpecRecord;
  readonly #scale: Float32Array;
  readonly #zeroPoint: Int32Array;

  constructor(core: Core, q: LinearQuantizedTensor, what: string) {
    this.#core = core;
    this.#what = what;
    this.#info = dtypeInfoAt(q.dtype, `${what}.dtype`);
    const { packed } = q;
    this.#codes =
      packed !== undefined && checkBoolean(packed, `${what}.packed`)
        ? new PackedCodes(core, q.data, sizeOfShape(q.shape, `${what}.shape`), this.#info, `${what}.data`)
        : new CodeSource(core, q.data, this.#info.storage, `${what}.data`);
    this.length = this.#codes.length;
    this.inPlace = this.#codes.inPlace;
    this.shape = checkOwnShape(q.shape, this.length, `${what}.shape`);
    this.#granularity = resolveGranularity(q.granularity, this.shape, `${what}.granularity`);
    this.#layout = layoutOf(this.#granularity, this.shape, this.length);
    this.#spec = specOfDType(this.#info);
    const { parameters } = this.#layout;
    this.#scale = parametersOf(core, q.scale, Float32Array, parameters, `${what}.scale`);
    this.#zeroPoint = parametersOf(core, q.zeroPoint, Int32Array, parameters, `${what}.zeroPoint`);
    checkEach(this.#scale, checkScale, `${what}.scale`);
    checkEach(this.#zeroPoint, checkZeroPoint, `${what}.zeroPoint`);
  }

  #checkParameters(): void {
    const { parameters } = this.#layout;
    checkUnchanged(this.#scale, parameters, `${this.#what}.scale`);
    checkUnchanged(this.#zeroPoint, parameters, `${this.#what}.zeroPoint`);
  }

  /** Calls f with the address of a LinearJobRecord of this tensor. */
  #withJob<T>(f: (job: number) => T): T {
    const core = this.#core;
    return withParameters(core, this.#layout, this.#spec, ({ job, scale, zeroPoint }) => {
      this.#checkParameters();
      core.module.HEAPF32.set(this.#scale, scale / 4);
      core.module.HEAP32.set(this.#zeroPoint, zeroPoint / 4);
      return f(job);
    });
  }

  restore<T>(f: (restore: Restore) => T): T {
    return this.#withJob((job) =>
      f((start, count, to) => {
        const codes = this.#codes.at(start, count);
        checkStatus(this.#core.module._dequantizeLinear(job, codes, count, start, to));
      }),
    );
  }

  addErrors(x: Source, sums: number): void {
    this.#withJob((job) => {
      forEachTile(x.length, x.inPlace && this.inPlace, (start, count) => {
        const from = x.at(start, count);
        const codes = this.#codes.at(start, count);
        checkStatus(this.#core.module._accumulateCodeError(job, from, count, start, codes, sums));
      });
    });
  }

  pack(out: unknown): Uint8Array | WasmArray {
    const core = this.#core;
    const { bits } = this.#info;
    return withDType(core, this.#info, (record) =>
      packTiles(core, this.#codes, out, { bits, run: (from, n, to) => core.module._pack(from, n, record, to) }),
    );
  }

  asVectors(): CodedVectors | undefined {
    const [count, dimension] = checkMatrix(this.shape, `${this.#what}.shape`);
    const { bits, signed } = this.#info;
    if (bits > 8 || !signed || this.#groupSize(dimension) !== dimension) return undefined;
    if (this.#zeroPoint.some((zero) => zero !== 0)) return undefined;
    return {
      count,
      dimension,
      codes: (row, rows, own) => {
        const codes = addressOf(this.#core, this.#codes, row * dimension, rows * dimension, 1, own);
        this.#checkCodes(codes, row * dimension, rows * dimension);
        return codes;
      },
      copyScales: (row, rows, to) => this.#copyParameters(row, rows, to),
    };
  }

  asWeights(): Weights | undefined {
    const core = this.#core;
    const [outputs, inputs] = checkMatrix(this.shape, `${this.#what}.shape`);
    const { bits } = this.#info;
    const groupSize = this.#groupSize(inputs);
    if (bits > 8 || groupSize === undefined) return undefined;
    const groups = Math.ceil(inputs / groupSize);
    const [first = 0] = this.#zeroPoint;
    const common = this.#zeroPoint.every((zero) => zero === first);
    return {
      outputs,
      inputs,
      groupSize,
      bits: bits <= 4 ? 4 : 8,
      zeroPoints: !common,
      zeroPoint: common ? first : 0,
      // For each row the scales, then the zero points; and room for the codes.
      ownBytes: (rows) => rows * (groups * 8 + inputs),
      fill: (layer, row, rows, own) => {
        const n = rows * groups;
        this.#copyParameters(row * groups, n, own);
        const codes = addressOf(core, this.#codes, row * inputs, rows * inputs, 1, own + 8 * n);
        this.#checkCodes(codes, row * inputs, rows * inputs);
        const job = { layout: perTensor, spec: this.#spec, scale: own, zeroPoint: own + 4 * n, parameters: n };
        core.withRecord(LinearJobRecord, job, (record) =>
          checkStatus(core.module.setLayerCodes(layer, row, codes, rows * inputs, record)),
        );
      },
    };
  }

  /** Checks codes at an address, which begin with element `start`, because layers pack them into fewer bits. */
  #checkCodes(at: number, start: number, count: number): void {
    const { module } = this.#core;
    const index = withDType(this.#core, this.#info, (record) => module.firstOutside(at, count, record));
    if (index === count) return;
    const { qmin, qmax } = this.#info;
    const code = (qmin < 0 ? module.HEAP8 : module.HEAPU8)[at + index];
    throw rangeError(`${this.#what}.data[${start + index}]`, whole(qmin, qmax), code);
  }

  /** Writes n scales, then n zero points, to an address. Repeats a single one. */
  #copyParameters(start: number, n: number, to: number): void {
    const { HEAPF32, HEAP32 } = this.#core.module;
    this.#checkParameters();
    if (this.#scale.length === 1) {
      HEAPF32.fill(this.#scale[0] as number, to / 4, to / 4 + n);
      HEAP32.fill(this.#zeroPoint[0] as number, to / 4 + n, to / 4 + 2 * n);
    } else {
      HEAPF32.set(this.#scale.subarray(start, start + n), to / 4);
      HEAP32.set(this.#zeroPoint.subarray(start, start + n), to / 4 + n);
    }
  }

  /** Number of columns of a matrix that share a scale; undefined unless each row has its own scales, or all rows share one. */
  #groupSize(inputs: number): number | undefined {
    const granularity = this.#granularity;
    if (granularity.kind === 'per-tensor') return inputs;
    if (granularity.kind === 'per-channel' && granularity.axis === 0) return inputs;
    if (granularity.kind === 'per-group' && granularity.axis === 1) return Math.min(granularity.groupSize, inputs);
    return undefined;
  }
}

/** The codes of a tensor of kind 'linear'. */
export function unpackLinear(core: Core, bytes: unknown, q: PackedTensor, out: unknown): CodeArray | WasmArray {
  if (typeof q !== 'object' || q === null) {
    throw typeError('q', { kind: 'object', keys: ['dtype', 'shape'] }, q);
  }
  const info = dtypeInfoAt(q.dtype, 'q.dtype');
  const { bits, storage } = info;
  const n = sizeOfShape(q.shape, 'q.shape');
  return withDType(core, info, (record) => {
    const run = (from: number, count: number, to: number) => core.module._unpack(from, count, record, to);
    return unpackTiles(core, bytes, out, { n, bits, storage, run });
  });
}
