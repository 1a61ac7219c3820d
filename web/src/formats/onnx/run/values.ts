/** Values of runs as numbers, and their comparison. Nothing here needs the core, which running models does not load. */
import { addSums, measuresOf, mismatchesOf, nonFiniteOf, sumCount, sumIndex } from '../../../core/measure.js';
import { fromHalf } from '../../codecs/floats-in.js';
import type {
  ComparedOutput,
  EvaluatedOutput,
  OutputsEvaluation,
  RunReport,
  RunTensor,
  SkippedOutputReason,
} from '../../run.js';

/** Values by name. */
export type Values = ReadonlyMap<string, RunTensor>;

/** Types of numbers in the runtime: the name of each in files, and the array that holds it. That of float16 holds the words of its bits. */
export const numberTypes = {
  float16: { dtype: 'F16', array: Uint16Array },
  float32: { dtype: 'F32', array: Float32Array },
  float64: { dtype: 'F64', array: Float64Array },
  int8: { dtype: 'I8', array: Int8Array },
  uint8: { dtype: 'U8', array: Uint8Array },
  int16: { dtype: 'I16', array: Int16Array },
  uint16: { dtype: 'U16', array: Uint16Array },
  int32: { dtype: 'I32', array: Int32Array },
  uint32: { dtype: 'U32', array: Uint32Array },
  int64: { dtype: 'I64', array: BigInt64Array },
  uint64: { dtype: 'U64', array: BigUint64Array },
  bool: { dtype: 'BOOL', array: Uint8Array },
} as const;

export const isNumberType = (type: string): type is keyof typeof numberTypes => Object.hasOwn(numberTypes, type);

/** Numbers of a numeric tensor. */
export function runtimeNumbers({ type, data }: RunTensor): ArrayLike<number> {
  if (type === 'float16' && data instanceof Uint16Array) return Float32Array.from(data, fromHalf);
  if (type === 'int64' || type === 'uint64') return Float64Array.from(data as ArrayLike<bigint>, Number);
  return data as ArrayLike<number>;
}

/** Error sums of two values of one shape in double precision, and the count of their elements that are NaN or infinite in one alone. */
export function comparedSums(a: RunTensor, b: RunTensor): { sums: Float64Array; mismatched: number } {
  const [x, y] = [runtimeNumbers(a), runtimeNumbers(b)];
  const sums = new Float64Array(sumCount);
  let [squaredError, absoluteError, largest, squaredX, squaredY, product, nonFinite] = [0, 0, 0, 0, 0, 0, 0];
  for (let i = 0; i < x.length; i++) {
    const [v, w] = [x[i] as number, y[i] as number];
    const error = Math.abs(v - w);
    if (!Number.isFinite(v) || !Number.isFinite(w)) {
      nonFinite++;
      continue;
    }
    squaredError += error * error;
    absoluteError += error;
    if (error > largest) largest = error;
    squaredX += v * v;
    squaredY += w * w;
    product += v * w;
  }
  sums[sumIndex.squaredError] = squaredError;
  sums[sumIndex.absoluteError] = absoluteError;
  sums[sumIndex.maxAbsoluteError] = largest;
  sums[sumIndex.squaredX] = squaredX;
  sums[sumIndex.squaredY] = squaredY;
  sums[sumIndex.product] = product;
  sums[sumIndex.nonFinite] = nonFinite;
  return { sums, mismatched: nonFiniteOf(sums) > 0 ? mismatchesOf(x, y) : 0 };
}

const onlyInA: SkippedOutputReason = { kind: 'onlyInA', text: 'only A has it' };
const onlyInB: SkippedOutputReason = { kind: 'onlyInB', text: 'only B has it' };

/** The reason not to compare two values; undefined if they can be compared. */
export function whyNotCompared(a: RunTensor | undefined, b: RunTensor | undefined): SkippedOutputReason | undefined {
  if (a === undefined) return onlyInB;
  if (b === undefined) return onlyInA;
  if (a.dims.join() !== b.dims.join()) {
    const text = `shapes ${a.dims.join('×')} and ${b.dims.join('×')}`;
    return { kind: 'shapes', a: a.dims, b: b.dims, text };
  }
  const hasTexts = [a, b].some(({ type }) => type === 'string');
  return hasTexts ? { kind: 'notNumbers', text: 'texts' } : undefined;
}

/** Compares two values of a name that can be compared. */
export function compareValue(name: string, a: RunTensor, b: RunTensor): ComparedOutput {
  const { sums, mismatched } = comparedSums(a, b);
  return { name, shape: a.dims, error: measuresOf(sums, a.data.length), mismatched };
}

/** Compares the outputs of two models. */
export function compareOutputs(before: Values, after: Values): Pick<RunReport, 'outputs' | 'skippedOutputs'> {
  const outputs: ComparedOutput[] = [];
  const skippedOutputs: RunReport['skippedOutputs'][number][] = [];
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    const [a, b] = [before.get(name), after.get(name)];
    const reason = whyNotCompared(a, b);
    if (reason !== undefined) skippedOutputs.push({ name, reason });
    else if (a !== undefined && b !== undefined) outputs.push(compareValue(name, a, b));
  }
  return { outputs, skippedOutputs };
}

/** Errors of an output so far. */
interface SampleErrors {
  readonly sums: Float64Array;
  count: number;
  mismatched: number;
  worst: EvaluatedOutput['worst'];
}

/** Compares the outputs of a model, A, with those of a reference, B, one sample after the other. */
export class ComparedSamples {
  readonly #errors = new Map<string, SampleErrors>();
  readonly #skipped = new Map<string, SkippedOutputReason>();
  #samples = 0;

  /** Adds a sample. Returns the number of samples. */
  add(reference: Values, outputs: Values): number {
    const sample = this.#samples++;
    for (const name of new Set([...reference.keys(), ...outputs.keys()])) {
      const [x, y] = [reference.get(name), outputs.get(name)];
      const reason = this.#skipped.get(name) ?? whyNotCompared(y, x);
      if (reason !== undefined) this.#skipped.set(name, reason);
      if (reason !== undefined || x === undefined || y === undefined) continue;
      const { sums, mismatched } = comparedSums(x, y);
      const error = measuresOf(sums, x.data.length);
      const known = this.#errors.get(name);
      if (known === undefined) {
        this.#errors.set(name, { sums, count: x.data.length, mismatched, worst: { sample, error } });
        continue;
      }
      addSums(known.sums, sums);
      known.count += x.data.length;
      known.mismatched += mismatched;
      if (error.sqnrDb < known.worst.error.sqnrDb) known.worst = { sample, error };
    }
    return this.#samples;
  }

  result(): OutputsEvaluation {
    const compared = [...this.#errors].filter(([name]) => !this.#skipped.has(name));
    return {
      samples: this.#samples,
      outputs: compared.map(([name, { sums, count, mismatched, worst }]) => {
        return { name, error: measuresOf(sums, count), mismatched, worst };
      }),
      skippedOutputs: [...this.#skipped].map(([name, reason]) => ({ name, reason })),
    };
  }
}
