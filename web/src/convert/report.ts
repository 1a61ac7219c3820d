/** Reports of conversions. */

import { ScalepointError } from '../core/errors.js';
import { type ErrorMeasures, type OutputErrors, standsForInfinity } from '../core/measure.js';
import { type Note, noteOf } from '../core/note.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { quoted, quotedNames } from '../formats/files/bytes.js';
import type { OpenModel } from '../formats/format.js';
import type { Rule } from '../formats/options.js';
import type { JudgedOutput } from '../formats/run.js';
import type { OutputBound } from './options.js';
import { infoOf, type ModelFilePlan, type ModelTotals, type PlannedTensorInfo, totalsOf } from './plan.js';

/** The result of converting a tensor, or the reason why it was kept. */
export interface TensorReport extends PlannedTensorInfo {
  /** Error of a converted tensor against the original. */
  readonly error?: ErrorMeasures | undefined;
  /** Number of elements of a float tensor that are NaN or infinite. */
  readonly nonFinite?: number | undefined;
}

/** A tensor that was raised. */
export interface RaisedTensor {
  /** Its name in the file. */
  readonly name: string;
  /** Its target before. */
  readonly from: string;
  /** Its target behind the step; `keep` for the type of the file. */
  readonly to: string;
  /** Bytes that it takes more. */
  readonly bytes: number;
}

/** The worst output of a result, and the size of the result in bytes. */
type StepOutput = JudgedOutput & {
  /** Size of all files. */
  readonly bytes: number;
};

/** A step of a repair: tensors that were raised together. */
export interface RepairStep {
  /** The tensors, the largest gain per byte first. */
  readonly tensors: readonly RaisedTensor[];
  /** The result before. */
  readonly before: StepOutput;
  /** The result with the tensors raised. */
  readonly after: StepOutput;
}

/** Tensors that were raised until outputs held `minOutput`. */
export interface OutputRepair {
  /** The given bound. */
  readonly bound: OutputBound;
  /** Each output of the result on each backend. */
  readonly outputs: readonly JudgedOutput[];
  /** The steps, in order; empty if the bound held from the start. */
  readonly steps: readonly RepairStep[];
  /** Rules that make the same result without running it, behind the given ones. */
  readonly rules: readonly Rule[];
  /** Number of results that were made in memory and run. */
  readonly runs: number;
}

/** The result of converting a model. */
export interface ModelReport {
  /** In the order of the input. */
  readonly tensors: readonly TensorReport[];
  /** Sums over all tensors. */
  readonly totals: ModelTotals;
  /** Notes about the result; mostly empty. */
  readonly notes: readonly Note[];
  /** With `minOutput`: the outputs, and the tensors that were raised. */
  readonly repair?: OutputRepair | undefined;
}

/** Code `QUALITY`: the result misses the required SQNR, or its outputs miss `minOutput`, and it was dropped. */
export class QualityError extends ScalepointError {
  /** The report of the dropped result. */
  readonly report: ModelReport;

  /** @param tensor its name; undefined if outputs missed their bound */
  constructor(message: string, tensor: string | undefined, report: ModelReport) {
    super('QUALITY', message, tensor === undefined ? {} : { tensor });
    this.report = report;
  }
}

/** The report of a plan. @param measures of each tensor that was read as floats */
export function reportOf(
  model: OpenModel,
  plan: ModelFilePlan,
  measures: readonly (ErrorMeasures | undefined)[],
): ModelReport {
  const tensors = plan.tensors.map((tensor, i): TensorReport => {
    const error = measures[i];
    const info: { -readonly [Key in keyof TensorReport]: TensorReport[Key] } = infoOf(tensor, plan);
    if (error === undefined) return info;
    info.nonFinite = error.nonFinite;
    if (tensor.kept === undefined) info.error = error;
    return info;
  });
  return {
    tensors,
    totals: totalsOf(tensors, model.bytes, plan),
    notes: [
      ...plan.notes,
      ...saturationNotes(tensors),
      ...hugeNotes(tensors),
      ...dampingNotes(plan, tensors),
      ...outputNotes(tensors),
    ],
  };
}

/** Notes about tensors that hold NaN or infinities, which are written as they are. */
export function nonFiniteNotes(tensors: readonly TensorReport[]): Note[] {
  const found = tensors.filter(({ nonFinite = 0 }) => nonFinite > 0);
  if (found.length === 0) return [];
  const names = found.map(({ name }) => name);
  const count = found.reduce((sum, { nonFinite = 0 }) => sum + nonFinite, 0);
  const are = count === 1 ? 'element that is' : 'elements that are';
  const text = `the result holds ${count} ${are} NaN or infinite, as its source does: ${quotedNames(names, 3)}`;
  return [noteOf('nonFinite', { tensors: names, count }, text)];
}

/** The largest number of float16, and a root mean square that no trained weights reach: embeddings of T5 have some 10 to 20. */
const [largestHalf, mostUsual] = [65504, 100];

/**
 * Notes about weights whose numbers are too large to be those of a trained model. The length of a tensor as a vector is at least its largest
 * number, and its root mean square at most.
 */
function hugeNotes(tensors: readonly TensorReport[]): Note[] {
  const huge = tensors.filter(({ shape, to, error }) => {
    // Plain floats share no scale.
    if (error === undefined || error.relativeL2 === 0 || /^(BF16|F16|F32|F64)$/.test(to)) return false;
    const rootMeanSquare = error.rmse / error.relativeL2;
    return rootMeanSquare > mostUsual && rootMeanSquare * Math.sqrt(elementsOf(shape)) > largestHalf;
  });
  if (huge.length === 0) return [];
  const names = huge.map(({ name }) => name);
  const text =
    'numbers of this size round those that share a scale with them to 0, and may be infinite where a program computes in float16: ' +
    quotedNames(names, 3);
  return [noteOf('hugeValues', { tensors: names }, text)];
}

/** Notes about moments that could not be factored with the wanted damping. */
function dampingNotes(plan: ModelFilePlan, tensors: readonly TensorReport[]): Note[] {
  const more = tensors.filter(({ error }, i) => {
    const wanted = plan.tensors[i]?.feedback?.damping;
    return wanted !== undefined && (error?.output?.damping ?? 0) > wanted;
  });
  if (more.length === 0) return [];
  const names = more.map(({ name }) => name);
  const most = more.reduce((a, { error }) => Math.max(a, error?.output?.damping ?? 0), 0);
  const text = `the second moments are not positive definite, so more was added to them, up to ${most}: ${quotedNames(names)}`;
  return [noteOf('dampedMore', { tensors: names, damping: most }, text)];
}

/** Notes about codes with feedback that were no better, and about errors that nothing was held back for. */
function outputNotes(tensors: readonly TensorReport[]): Note[] {
  const namesOf = (is: (output: OutputErrors) => boolean) =>
    tensors.flatMap(({ name, error }) => (error?.output !== undefined && is(error.output) ? [name] : []));
  const plain = namesOf((output) => output.plain === 1);
  const fitted = namesOf((output) => !output.heldBack);
  const notes: Note[] = [];
  if (plain.length > 0) {
    const text = `rounded to the nearest, because GPTQ made their outputs no better: ${quotedNames(plain)}`;
    notes.push(noteOf('outputsNoBetter', { tensors: plain }, text));
  }
  if (fitted.length > 0) {
    const text = `their moments hold no data back, so errors of outputs are those on the data that codes were fitted to: ${quotedNames(fitted)}`;
    notes.push(noteOf('notHeldBack', { tensors: fitted }, text));
  }
  return notes;
}

/** Notes about numbers beyond the largest one of their new type. */
function saturationNotes(tensors: readonly TensorReport[]): Note[] {
  const beyond = tensors.filter(({ error }) => error?.saturated !== undefined);
  const [first] = beyond;
  if (first === undefined) return [];
  const count = beyond.reduce((sum, { error }) => sum + (error?.saturated ?? 0), 0);
  const names = beyond.map(({ name }) => name);
  const are = count === 1 ? 'number is' : 'numbers are';
  const text = `${count} ${are} beyond ${first.to} and became its largest one: ${quotedNames(names, 1)}`;
  return [noteOf('saturated', { tensors: names, count, to: first.to }, text)];
}

/** Ignores single numbers that stand for infinity. @throws QualityError if the SQNR of another tensor is below `minSqnrDb` */
export function checkQuality(report: ModelReport, minSqnrDb: number): void {
  const missed = report.tensors
    .flatMap(({ name, shape, error }) => {
      if (error === undefined || error.sqnrDb >= minSqnrDb) return [];
      const isInfinity = standsForInfinity(elementsOf(shape), error.maxAbsoluteError);
      return isInfinity ? [] : [{ name, db: error.sqnrDb }];
    })
    .sort((a, b) => a.db - b.db);
  const [worst] = missed;
  if (worst === undefined) return;
  const list = missed.slice(0, 3).map(({ name, db }) => `${quoted(name)} (${db.toFixed(2)} dB)`);
  const more = missed.length > list.length ? ` and ${missed.length - list.length} more` : '';
  const message = `SQNR below ${minSqnrDb} dB, nothing was written: ${list.join(', ')}${more}`;
  throw new QualityError(message, worst.name, report);
}
