/** Reports of conversions. */

import { ScalepointError } from '../core/errors.js';
import { type ErrorMeasures, standsForInfinity } from '../core/measure.js';
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

/** The largest number of float16, and a root mean square that no trained weights reach: embeddings of T5 have some 10 to 20. */
const [largestHalf, mostUsual] = [65504, 100];

/**
 * The report of a plan.
 * @param measures of each tensor that was read as floats
 * @param isWritten true for a result, whose NaN and infinities are noted
 */
export function reportOf(
  model: OpenModel,
  plan: ModelFilePlan,
  measures: readonly (ErrorMeasures | undefined)[],
  isWritten = false,
): ModelReport {
  const tensors = plan.tensors.map((tensor, i): TensorReport => {
    const error = measures[i];
    const info: { -readonly [Key in keyof TensorReport]: TensorReport[Key] } = infoOf(tensor, plan);
    if (error === undefined) return info;
    info.nonFinite = error.nonFinite;
    if (tensor.kept === undefined) info.error = error;
    return info;
  });
  const notes = [...plan.notes];
  /** Adds a note about the tensors that have something in common, if there are any. */
  const note = (
    kind: Note['kind'],
    found: readonly TensorReport[],
    data: object,
    text: (names: readonly string[]) => string,
  ) => {
    const names = found.map(({ name }) => name);
    if (names.length > 0) notes.push(noteOf(kind, { tensors: names, ...data }, text(names)));
  };
  // Note numbers beyond the largest one of their new type.
  const beyond = tensors.filter(({ error }) => error?.saturated !== undefined);
  const saturated = beyond.reduce((sum, { error }) => sum + (error?.saturated ?? 0), 0);
  note('saturated', beyond, { count: saturated, to: beyond[0]?.to }, (names) => {
    const are = saturated === 1 ? 'number is' : 'numbers are';
    return `${saturated} ${are} beyond ${beyond[0]?.to} and became its largest one: ${quotedNames(names, 1)}`;
  });
  // Note weights whose numbers are too large to be those of a trained model. The length of a tensor as a vector is at least its largest
  // number, and its root mean square at most. Plain floats share no scale.
  const huge = tensors.filter(({ shape, to, error }) => {
    if (error === undefined || error.relativeL2 === 0 || /^(BF16|F16|F32|F64)$/.test(to)) return false;
    const rootMeanSquare = error.rmse / error.relativeL2;
    return rootMeanSquare > mostUsual && rootMeanSquare * Math.sqrt(elementsOf(shape)) > largestHalf;
  });
  const hugeText =
    'numbers of this size round those that share a scale with them to 0, and may be infinite where a program computes in float16: ';
  note('hugeValues', huge, {}, (names) => hugeText + quotedNames(names, 3));
  // Note moments that could not be factored with the wanted damping.
  const damped = tensors.filter(({ error }, i) => {
    const wanted = plan.tensors[i]?.feedback?.damping;
    return wanted !== undefined && (error?.output?.damping ?? 0) > wanted;
  });
  const damping = damped.reduce((most, { error }) => Math.max(most, error?.output?.damping ?? 0), 0);
  note('dampedMore', damped, { damping }, (names) => {
    return `the second moments are not positive definite, so more was added to them, up to ${damping}: ${quotedNames(names)}`;
  });
  // Note codes with feedback that were no better, and errors that nothing was held back for.
  const plain = tensors.filter(({ error }) => error?.output?.plain === 1);
  note('outputsNoBetter', plain, {}, (names) => {
    return `rounded to the nearest, because GPTQ made their outputs no better: ${quotedNames(names)}`;
  });
  const judged = tensors.filter(({ error }) => error?.output?.heldBack === false);
  note('notHeldBack', judged, {}, (names) => {
    return `their moments hold no data back, so errors of outputs are those on the data that codes were fitted to: ${quotedNames(names)}`;
  });
  // Note NaN and infinities, which are written as they are.
  const strange = tensors.filter(({ nonFinite = 0 }, i) => isWritten && nonFinite > 0 && !plan.tensors[i]?.infinities);
  const count = strange.reduce((sum, { nonFinite = 0 }) => sum + nonFinite, 0);
  note('nonFinite', strange, { count }, (names) => {
    const are = count === 1 ? 'element that is' : 'elements that are';
    return `the result holds ${count} ${are} NaN or infinite, as its source does: ${quotedNames(names, 3)}`;
  });
  return { tensors, totals: totalsOf(tensors, model.bytes, plan), notes };
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
