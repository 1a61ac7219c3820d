/** Compares two models: pairs their tensors by name, and reports the errors. */
import type { Converted } from '../architectures/converter.js';
import { asOption, ScalepointError, typeError } from '../core/errors.js';
import { addSums, type ErrorMeasures, measuresOf, normOf, standsForInfinity, sumCount } from '../core/measure.js';
import { ofType } from '../core/option-problem.js';
import { elementsOf, rectanglesOf } from '../formats/codecs/elements.js';
import { codecOf } from '../formats/codecs/registry.js';
import type { LogicalTensor, PlannedTensor } from '../formats/format.js';
import { formats } from '../formats/registry.js';
import type { RunOptions, RunReport } from '../formats/run.js';
import { runSteps, TensorProgress } from './engine.js';
import { announceReads, gridOf, rectangleInput } from './logical-tensor.js';
import { type Opened, withModel } from './open.js';
import { makersFor, modelCalls } from './options.js';
import type { ModelInput } from './recognize.js';
import { withRunner } from './start.js';
import type { Steps } from './steps.js';
import { checkOptions, checkRunOptions, checkWorkOptions, type WorkOptions, withCallbacks } from './work-options.js';

/** A tensor that both models have. */
export interface ComparedTensor {
  /** Its name in both models. */
  readonly name: string;
  /** The shape that both have. */
  readonly shape: readonly number[];
  /** Its type in the first model, as reports call it: I4 for packed codes, `Q4 (32)` for blocks of 32. */
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

/** Two tensors of one shape. */
type TensorPair = readonly [a: LogicalTensor, b: LogicalTensor];

type Tensors = ReadonlyMap<string, LogicalTensor>;

/** Matrices of a model that may lie turned in another one; undefined for those that cannot. */
function turnedFor({ shape, turned }: LogicalTensor, other: LogicalTensor | undefined) {
  if (turned === undefined || other?.turned !== undefined || other?.shape.join() !== turned.shape.join())
    return undefined;
  return { turned, isSquare: turned.shape.join() === shape.join() };
}

/**
 * A matrix in the orientation of the other model, which may hold its transpose.
 * @param liesTurned true if square matrices, which have the same shape both ways, lie turned in the other model
 */
function alike(tensor: LogicalTensor, other: LogicalTensor, liesTurned: boolean): LogicalTensor {
  const { turned, isSquare } = turnedFor(tensor, other) ?? {};
  return turned !== undefined && (!isSquare || liesTurned) ? { ...tensor, ...turned } : tensor;
}

/** True if matrices lie turned in a model of another format, where no operator that reads them says so: those that are not square show it. */
function showsTurned(tensors: Tensors, others: Tensors): boolean {
  for (const [name, tensor] of tensors) if (turnedFor(tensor, others.get(name))?.isSquare === false) return true;
  return false;
}

/** The tensors of a model. Those that the other model lacks are taken apart as in results with codes, such as experts of a stack. */
function apart(own: Tensors, other: Tensors, { format }: Opened): Tensors {
  const missing = [...own.values()].filter(({ name }) => !other.has(name));
  const some = format.apart?.(missing) ?? missing;
  if (some.length === missing.length) return own;
  const present = [...own.values()].filter(({ name }) => other.has(name));
  return new Map([...present, ...some].map((tensor) => [tensor.name, tensor]));
}

/** The tensors of a model by name; in the format of the other model, if it can be converted to that. */
async function tensorsByName({ format, model, beside }: Opened, other: Opened): Promise<Tensors> {
  const converter = makersFor(format).find(
    ({ converter }) => converter?.result === other.format.name && converter.turnsBack !== true,
  )?.converter;
  let converted: Converted | undefined;
  try {
    const choices = { missingBytes: 'keep', requantize: true, ...converter?.choicesLike?.(other.model) };
    converted = await converter?.convert(model, beside, choices);
  } catch (error) {
    // Tensors of a model that cannot be converted are compared by their own names.
    if (!(error instanceof ScalepointError) || error.code === 'IO') throw error;
  }
  const tensors = converted?.tensors ?? (await format.tensors(model));
  return new Map(tensors.map((tensor) => [tensor.name, tensor]));
}

/** The tasks of all pairs. @param firstFileOfB count of the files of the first model */
function* comparedSteps(pairs: readonly TensorPair[], firstFileOfB: number, progress: TensorProgress): Steps {
  for (const [index, [a, b]] of pairs.entries()) {
    const elements = elementsOf(a.shape);
    if (elements === 0) {
      progress.add(index, 0);
      continue;
    }
    const tensor: PlannedTensor = { source: a, form: a.form, parts: [] };
    // Cut where both tensors can be cut.
    for (const rectangle of rectanglesOf(elements, [gridOf(a), gridOf(b)])) {
      const { rows, columns } = rectangle;
      const inputs = [rectangleInput(a, rectangle), rectangleInput(b, rectangle, firstFileOfB)] as const;
      const main = inputs[0].parts.filter(({ role }) => role === a.parts[0]?.role);
      const sourceBytes = main.reduce((sum, { bytes, count }) => sum + bytes * count, 0);
      const task = { kind: 'compare', rows, columns, inputs } as const;
      yield { kind: 'tile', tensor, index, task, destinations: [], sourceBytes, rectangle };
    }
  }
}

/** Compares two open models. See `compareModels`. */
async function compareOpen(a: Opened, b: Opened, options: WorkOptions): Promise<CompareReport> {
  // Pair tensors by name. Leave out those that cannot be compared, with the reason.
  const [ownA, ownB] = [await tensorsByName(a, b), await tensorsByName(b, a)];
  const isOther = a.format !== b.format;
  const [inA, inB] = isOther ? [ownA, ownB] : [apart(ownA, ownB, a), apart(ownB, ownA, b)];
  const [turnsInA, turnsInB] = [isOther && showsTurned(inB, inA), isOther && showsTurned(inA, inB)];
  const pairs: TensorPair[] = [];
  const skipped: CompareReport['skipped'][number][] = [];
  for (const [name, tensor] of inA) {
    const other = inB.get(name);
    if (other === undefined) continue;
    const pair: TensorPair = [
      alike(tensor, other, turnsInB || other.isTurned === true),
      alike(other, tensor, turnsInA || tensor.isTurned === true),
    ];
    const [x, y] = pair;
    const unreadable = pair.find(({ form }) => codecOf(form).decode === undefined);
    if (x.shape.join() !== y.shape.join()) {
      const text = `shapes ${x.shape.join('×')} and ${y.shape.join('×')}`;
      skipped.push({ name, reason: { kind: 'shapes', a: x.shape, b: y.shape, text }, differs: true });
    } else if (unreadable !== undefined) {
      const { type: dtype } = unreadable;
      const text = `${dtype} is not a readable float type`;
      skipped.push({ name, reason: { kind: 'nonFloat', dtype, text }, differs: x.type !== y.type });
    } else pairs.push(pair);
  }
  // Add up the errors of each pair, and the elements that are NaN or infinite in one tensor and another value in the other.
  const { onProgress, signal } = options;
  const files = [...a.model.files, ...b.model.files];
  const elements = pairs.reduce((sum, [{ shape }]) => sum + elementsOf(shape), 0);
  const progress = new TensorProgress(
    pairs.length,
    (index) => {
      const [{ name, parts }] = pairs[index] as TensorPair;
      const main = parts.filter(({ role }) => role === parts[0]?.role);
      return { phase: 'quantize', tensor: name, bytes: main.reduce((sum, { tensor }) => sum + tensor.bytes, 0) };
    },
    onProgress,
  );
  for (const [i, { model }] of [a, b].entries())
    announceReads(
      model.files,
      pairs.map((pair) => pair[i] as LogicalTensor),
    );
  const mismatched = new Float64Array(pairs.length);
  const sums = await withRunner(elements, { sources: files, sinks: [] }, options, (runner) =>
    runSteps({
      steps: comparedSteps(pairs, a.model.files.length, progress),
      tensors: pairs.length,
      files,
      runner,
      progress,
      signal,
      take({ tiles }, { answers }) {
        for (const { task, mismatched: count = 0 } of answers) {
          const { index } = tiles[task] as (typeof tiles)[number];
          mismatched[index] = (mismatched[index] ?? 0) + count;
        }
      },
    }),
  );
  // Report each pair, and all of them without single numbers that stand for infinity.
  const allSums = new Float64Array(sumCount);
  let allElements = 0;
  const tensors = pairs.map((pair, i): ComparedTensor => {
    const [{ name, shape }] = pair;
    const [found, n] = [sums.of(i) ?? new Float64Array(sumCount), elementsOf(shape)];
    if (!standsForInfinity(n, normOf(found))) {
      addSums(allSums, found);
      allElements += n;
    }
    const error = measuresOf(found, n);
    const [a, b] = pair.map(({ form }) => codecOf(form).label(form)) as [string, string];
    return { name, shape, a, b, error, mismatched: mismatched[i] ?? 0 };
  });
  return {
    tensors,
    total: measuresOf(allSums, allElements),
    skipped,
    onlyInA: [...inA.keys()].filter((name) => !inB.has(name)),
    onlyInB: [...inB.keys()].filter((name) => !inA.has(name)),
  };
}

/** Options of `compareModels`. */
export interface CompareModelsOptions extends WorkOptions {
  /**
   * ONNX: also runs both models on the same inputs, with onnxruntime-web, and compares their outputs.
   * @defaultValue false
   */
  readonly run?: boolean | RunOptions | undefined;
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
  const naming = (option: string) => (error: unknown) => {
    throw asOption(option, error);
  };
  return withCallbacks(options, (own) =>
    withModel(a, own, (first) =>
      withModel(b, own, async (second) => {
        const report = await compareOpen(first, second, own);
        if (run === false) return report;
        const { compareRuns } = first.format;
        if (compareRuns === undefined || second.format !== first.format) {
          const { label } = (compareRuns === undefined ? first : second).format;
          const runnable = formats.filter((format) => format.compareRuns !== undefined).map((format) => format.label);
          const message = `only ${runnable.join(' or ')} models can be run, and this is ${label}`;
          throw new ScalepointError('RUNTIME', message);
        }
        const options = run === true ? {} : run;
        const runs = await compareRuns(first.model, second.model, options, first.readOptionFile, own.signal);
        return { ...report, ...runs };
      }).catch(naming('b')),
    ).catch(naming('a')),
  );
}
