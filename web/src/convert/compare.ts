/** Compares two models: pairs their tensors by name, and reports the errors. */
import type { Converted, Converter } from '../architectures/converter.js';
import { asOption, ScalepointError, typeError } from '../core/errors.js';
import { addSums, type ErrorMeasures, measuresOf, normOf, standsForInfinity, sumCount } from '../core/measure.js';
import { ofType } from '../core/option-problem.js';
import type { Rectangle } from '../formats/codecs/codec.js';
import { elementsOf, rectanglesOf } from '../formats/codecs/elements.js';
import { codecOf } from '../formats/codecs/registry.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { LogicalTensor, PlannedTensor } from '../formats/format.js';
import { formats } from '../formats/registry.js';
import type { RunOptions, RunReport } from '../formats/run.js';
import { runSteps } from './engine.js';
import { type Opened, withModel } from './open.js';
import { makersFor, modelCalls } from './options.js';
import { TensorProgress } from './progress.js';
import type { ModelInput } from './recognize.js';
import { gridOf, rectangleInput } from './rectangle-input.js';
import { withRunner } from './start.js';
import type { Steps } from './steps.js';
import { checkOptions, checkRunOptions, checkWorkOptions, type WorkOptions, withCallbacks } from './work-options.js';

/** A tensor that both models have. */
export interface ComparedTensor {
  /** Its name in both models. */
  readonly name: string;
  /** The shape that both have. */
  readonly shape: readonly number[];
  /** Its type in the first model; I4 or I8 for packed codes. */
  readonly a: string;
  /** Its type in the second model, likewise. */
  readonly b: string;
  /** Error of b against a. */
  readonly error: ErrorMeasures;
  /** Number of elements that are NaN or infinite in one model, and another value in the other. `error` leaves them out. */
  readonly mismatched: number;
}

/** The reason why a tensor of both models was not compared. Programs decide by the kind, never by the text. */
type SkippedReason =
  /** It has another shape in the second model. */
  | {
      readonly kind: 'shapes';
      /** Its shape in the first model. */
      readonly a: readonly number[];
      /** Its shape in the second model. */
      readonly b: readonly number[];
      /** The reason in a few words. */
      readonly text: string;
    }
  /** One of them is of a type that does not stand for floats, or is not known. */
  | {
      readonly kind: 'nonFloat';
      /** That type. */
      readonly dtype: string;
      /** The reason in a few words. */
      readonly text: string;
    };

/** The result of `compareModels`; with `run`, also the comparison of the models' outputs. */
export interface CompareReport extends Partial<RunReport> {
  /** In the order of a. */
  readonly tensors: readonly ComparedTensor[];
  /** Error over all tensors, except single numbers beyond float16, which stand for infinity in masks. */
  readonly total: ErrorMeasures;
  /** Tensors of both that were not compared, with the reason. */
  readonly skipped: readonly {
    /** Its name in both models. */
    readonly name: string;
    /** The reason, as data and in words. */
    readonly reason: SkippedReason;
    /** True if the shapes or types differ. False if both have the same type, from which no floats can be read. */
    readonly differs: boolean;
  }[];
  /** Names of tensors that only the first model has. */
  readonly onlyInA: readonly string[];
  /** Names of tensors that only the second model has. */
  readonly onlyInB: readonly string[];
}

type SkippedTensor = CompareReport['skipped'][number];

// ------------------------------------------------------------------------------------------------------------------------ pairing

/** A matrix in the orientation of the other model, which may hold its transpose. */
function alike(tensor: LogicalTensor, other: LogicalTensor): LogicalTensor {
  const { turned } = tensor;
  if (turned === undefined || other.turned !== undefined || other.shape.join() !== turned.shape.join()) return tensor;
  // A square matrix has the same shape both ways. Then only the operators that read it decide.
  return other.isTurned || turned.shape.join() !== tensor.shape.join() ? { ...tensor, ...turned } : tensor;
}

/** The reason why two tensors of one name cannot be compared; undefined if they can. */
function obstacle(pair: TensorPair): Omit<SkippedTensor, 'name'> | undefined {
  const [a, b] = pair;
  if (a.shape.join() !== b.shape.join()) {
    const text = `shapes ${a.shape.join('×')} and ${b.shape.join('×')}`;
    return { reason: { kind: 'shapes', a: a.shape, b: b.shape, text }, differs: true };
  }
  const unreadable = pair.find(({ form }) => codecOf(form).decode === undefined);
  if (unreadable === undefined) return undefined;
  const { type: dtype } = unreadable;
  const text = `${dtype} is not a readable float type`;
  return { reason: { kind: 'nonFloat', dtype, text }, differs: a.type !== b.type };
}

/** The converted model; undefined if it cannot be converted. Its tensors are then compared by their own names. */
async function convertedIfPossible(
  converter: Converter,
  { model, beside }: Opened,
  { model: other }: Opened,
): Promise<Converted | undefined> {
  try {
    const choices = { missingBytes: 'keep', requantize: true, ...converter.choicesLike?.(other) };
    return await converter.convert(model, beside, choices);
  } catch (error) {
    if (error instanceof ScalepointError && error.code !== 'IO') return undefined;
    throw error;
  }
}

/** The tensors of a model by name; in the format of the other model, if it can be converted to that. */
async function tensorsOf(opened: Opened, other: Opened): Promise<Map<string, LogicalTensor>> {
  const { format, model } = opened;
  const maker = makersFor(format).find((known) => known.converter?.result === other.format.name);
  const converted = maker?.converter && (await convertedIfPossible(maker.converter, opened, other));
  const tensors = converted?.tensors ?? (await format.tensors(model));
  return new Map(tensors.map((tensor) => [tensor.name, tensor]));
}

/** The tensors to compare, and the others. */
interface Pairing extends Pick<CompareReport, 'skipped' | 'onlyInA' | 'onlyInB'> {
  readonly pairs: readonly TensorPair[];
}

async function pairsOf(a: Opened, b: Opened): Promise<Pairing> {
  const [inA, inB] = [await tensorsOf(a, b), await tensorsOf(b, a)];
  const pairs: TensorPair[] = [];
  const skipped: SkippedTensor[] = [];
  for (const [name, tensor] of inA) {
    const other = inB.get(name);
    if (other === undefined) continue;
    const pair: TensorPair = [alike(tensor, other), alike(other, tensor)];
    const reason = obstacle(pair);
    if (reason === undefined) pairs.push(pair);
    else skipped.push({ name, ...reason });
  }
  return {
    pairs,
    skipped,
    onlyInA: [...inA.keys()].filter((name) => !inB.has(name)),
    onlyInB: [...inB.keys()].filter((name) => !inA.has(name)),
  };
}

// ---------------------------------------------------------------------------------------------------------------------- comparing

/** The measures over all pairs, without single numbers that stand for infinity. */
function totalOf(pairs: readonly TensorPair[], sums: readonly Float64Array[]): ErrorMeasures {
  const all = new Float64Array(sumCount);
  let elements = 0;
  for (const [i, [{ shape }]] of pairs.entries()) {
    const [own, n] = [sums[i] as Float64Array, elementsOf(shape)];
    if (standsForInfinity(n, normOf(own))) continue;
    addSums(all, own);
    elements += n;
  }
  return measuresOf(all, elements);
}

/** Compares two open models. See `compareModels`. */
export async function compareOpen(a: Opened, b: Opened, options: WorkOptions): Promise<CompareReport> {
  const { pairs, ...rest } = await pairsOf(a, b);
  const { sums, mismatched } = await comparePairs(pairs, [a.model.files, b.model.files], options);
  const tensors = pairs.map(([{ name, shape, type }, other], i): ComparedTensor => {
    const error = measuresOf(sums[i] as Float64Array, elementsOf(shape));
    return { name, shape, a: type, b: other.type, error, mismatched: mismatched[i] as number };
  });
  return { tensors, total: totalOf(pairs, sums), ...rest };
}

/** Options of `compareModels`. */
export interface CompareModelsOptions extends WorkOptions {
  /**
   * ONNX: also runs both models on the same inputs, with onnxruntime-web, and compares their outputs.
   * @defaultValue false
   */
  readonly run?: boolean | RunOptions | undefined;
}

/** Runs two models. @throws ScalepointError `RUNTIME` if models of these formats cannot be run */
async function compareRuns(a: Opened, b: Opened, options: RunOptions, signal?: AbortSignal): Promise<RunReport> {
  const runs = formats().filter((format) => format.compareRuns !== undefined);
  const other = [a, b].find(({ format }) => format.compareRuns === undefined || format !== a.format);
  if (other === undefined && a.format.compareRuns !== undefined) {
    return a.format.compareRuns(a.model, b.model, options, a.readOptionFile, signal);
  }
  const labels = runs.map(({ label }) => label).join(' or ');
  throw new ScalepointError('RUNTIME', `only ${labels} models can be run, and this is ${(other ?? a).format.label}`);
}

/**
 * Compares the tensors of two models by name. Codes with scales and blocks are restored to floats first. With `run`, also runs ONNX models
 * on random or given inputs and compares their outputs, with `layers` those of each node, and with `backends` in several places. Runs need the
 * package onnxruntime-web, 1.22 or newer.
 * @example const { tensors } = await compareModels('model.safetensors', 'model.int8.safetensors');
 * @example const { outputs } = await compareModels('model.onnx', 'model_q4.onnx', { run: true });
 * @throws what `inspectModel` throws; ScalepointError `RUNTIME` if a model cannot be run; `UNSUPPORTED_DTYPE` never: such tensors are
 *   listed as not compared
 */
export async function compareModels(
  a: ModelInput,
  b: ModelInput,
  options: CompareModelsOptions = {},
): Promise<CompareReport> {
  checkOptions(options, modelCalls().compareModels, modelCalls());
  if (typeof options.run === 'object' && options.run !== null) checkRunOptions(options.run);
  else if (options.run !== undefined && typeof options.run !== 'boolean') {
    throw typeError('run', ofType('boolean', 'object'), options.run);
  }
  checkWorkOptions(options);
  const { run = false } = options;
  options.signal?.throwIfAborted();
  const named = (option: string) => (error: unknown) => {
    throw asOption(option, error);
  };
  return withCallbacks(options, (own) =>
    withModel(a, own, (first) =>
      withModel(b, own, async (second) => {
        const report = await compareOpen(first, second, own);
        if (run === false) return report;
        return { ...report, ...(await compareRuns(first, second, run === true ? {} : run, own.signal)) };
      }).catch(named('b')),
    ).catch(named('a')),
  );
}

/** Two tensors of one shape. */
export type TensorPair = readonly [a: LogicalTensor, b: LogicalTensor];

/** The errors of all pairs. */
export interface PairSums {
  /** Error sums of each pair, in the core's order. */
  readonly sums: readonly Float64Array[];
  /** For each pair the count of elements that are NaN or infinite in one tensor, and another value in the other. */
  readonly mismatched: Float64Array;
}

/** Bytes of the parts that hold the elements, in the whole tensor. */
function elementBytes({ parts }: LogicalTensor): number {
  return parts.reduce((sum, { role, tensor }) => sum + (role === parts[0]?.role ? tensor.bytes : 0), 0);
}

/** Cuts a pair into rectangles at which both tensors can be cut. */
function rectanglesOfPair(pair: TensorPair): Iterable<Rectangle> {
  return rectanglesOf(elementsOf(pair[0].shape), pair.map(gridOf));
}

/** The tasks of all pairs. @param firstFileOfB count of the files of the first model */
function* comparedSteps(pairs: readonly TensorPair[], firstFileOfB: number, progress: TensorProgress): Steps {
  for (const [index, pair] of pairs.entries()) {
    const [a, b] = pair;
    if (elementsOf(a.shape) === 0) {
      progress.add(index, 0);
      continue;
    }
    const tensor: PlannedTensor = { source: a, form: a.form, parts: [] };
    for (const rectangle of rectanglesOfPair(pair)) {
      const { rows, columns } = rectangle;
      const inputs = [rectangleInput(a, rectangle), rectangleInput(b, rectangle, firstFileOfB)] as const;
      const sourceBytes = inputs[0].parts.reduce(
        (sum, { role, bytes, count }) => sum + (role === a.parts[0]?.role ? bytes * count : 0),
        0,
      );
      const task = { kind: 'compare', rows, columns, inputs } as const;
      yield { kind: 'tile', tensor, index, task, destinations: [], sourceBytes, rectangle };
    }
  }
}

/** Compares pairs of tensors. @param files of both models */
export async function comparePairs(
  pairs: readonly TensorPair[],
  [filesOfA, filesOfB]: readonly [readonly ByteSource[], readonly ByteSource[]],
  options: WorkOptions,
): Promise<PairSums> {
  const { onProgress, signal } = options;
  const files = [...filesOfA, ...filesOfB];
  const elements = pairs.reduce((sum, [{ shape }]) => sum + elementsOf(shape), 0);
  const reported = (index: number) => {
    const [a] = pairs[index] as TensorPair;
    return { phase: 'quantize', tensor: a.name, bytes: elementBytes(a) } as const;
  };
  const progress = new TensorProgress(pairs.length, reported, onProgress);
  const mismatched = new Float64Array(pairs.length);
  const sums = await withRunner(elements, { sources: files, sinks: [] }, options, (runner) =>
    runSteps({
      steps: comparedSteps(pairs, filesOfA.length, progress),
      tensors: pairs.length,
      files,
      runner,
      progress,
      signal,
      take({ tiles }, { answers }) {
        for (const { task, mismatched: count = 0 } of answers) {
          const { index } = tiles[task] as (typeof tiles)[number];
          mismatched[index] = (mismatched[index] as number) + count;
        }
      },
    }),
  );
  return { sums: pairs.map((_, i) => sums.of(i) ?? new Float64Array(sumCount)), mismatched };
}
