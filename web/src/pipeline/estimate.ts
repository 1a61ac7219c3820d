/** Measures what a conversion would lose, on a part of each tensor or on all of it. Writes nothing. */
import type { Rectangle } from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { addSums, measuresOf, sumCount } from '../core/measure.js';
import type { FilePlan, LogicalTensor, PlannedTensor } from '../formats/format.js';
import type { PlanChoices } from '../formats/options.js';
import { convertedElements, problemError, type Work } from './engine.js';
import type { Opened } from './open.js';
import { planFor } from './plan.js';
import { type ModelReport, reportOf } from './report.js';
import { startRunner, type WorkOptions } from './start.js';
import {
  type BatchResult,
  type Output,
  problemIn,
  type RangeTask,
  type SetsTask,
  TaskError,
  type TileTask,
} from './tasks.js';
import { answerTo, elementAt, mainPart, storedBytes, type TileStep, tilesOf } from './tiles.js';

/** Options of `estimateModel`, without those of a plan. */
export interface EstimateOptions extends WorkOptions {
  /**
   * Elements of each tensor to measure, about. Of a longer tensor so many rows from its middle stand for all; they are quantized as if
   * they were the tensor. Infinity measures everything.
   * @defaultValue 65536
   */
  readonly sample?: number;
}

/** What a conversion would lose. */
export interface ModelEstimate extends ModelReport {
  /** How many converted tensors were measured on a part. 0: the errors are those of the result. */
  readonly sampled: number;
}

const defaultSample = 1 << 16;

/** Rows from the middle of a tensor as a tensor. The tensor itself if it is short, or if its rows do not lie one after the other. */
function sampleOf(source: LogicalTensor, most: number): LogicalTensor {
  const { shape, parts } = source;
  const [rows = 1, ...rest] = shape;
  const { bytes, byteOffset, rearranged } = mainPart(source);
  const width = elementsOf(rest);
  const wanted = Math.max(1, Math.floor(most / Math.max(1, width)));
  const rowBytes = bytes / rows;
  if (shape.length < 2 || wanted >= rows || parts.length > 1 || rearranged || !Number.isInteger(rowBytes))
    return source;
  const first = Math.floor((rows - wanted) / 2);
  const tensor = { ...mainPart(source), byteOffset: byteOffset + first * rowBytes, bytes: wanted * rowBytes };
  return { ...source, shape: [wanted, ...rest], parts: parts.map((part) => ({ ...part, tensor })) };
}

/** Memory for the parts of a tile, which nobody reads. */
function outputsOf({ destinations }: TileStep): { outputs: Output[]; outputBytes: number } {
  let outputBytes = 0;
  const outputs = destinations.map(({ role, bytes, count }) => {
    const offset = outputBytes;
    outputBytes += bytes * count;
    return { role, offset, bytes: bytes * count };
  });
  return { outputs, outputBytes };
}

/** Carries out tasks for the tensors of a plan, and adds up their errors. */
class Measuring {
  readonly #work: Omit<Work, 'sinks'>;
  readonly #sums: (Float64Array | undefined)[];

  constructor(work: Omit<Work, 'sinks'>) {
    this.#work = work;
    this.#sums = new Array(work.plan.tensors.length);
  }

  async #carryOut(tensor: PlannedTensor, task: TileTask, outputBytes: number, rectangle: Rectangle) {
    const { runner, signal } = this.#work;
    signal?.throwIfAborted();
    let result: BatchResult;
    try {
      result = await runner.run({ tasks: [task], outputBytes });
    } catch (error) {
      throw error instanceof TaskError ? error.cause : error;
    }
    runner.recycle(result.output);
    const problem = problemIn(result);
    if (problem !== undefined) throw problemError(tensor, problem, elementAt(rectangle, problem.index));
    const { measured, sums, answers } = result;
    return { ...answers[0], sums: measured[0] === 1 ? sums : undefined };
  }

  async #addTile(index: number, step: TileStep): Promise<() => void> {
    const { outputs, outputBytes } = outputsOf(step);
    const { sums } = await this.#carryOut(step.tensor, { ...step.task, outputs }, outputBytes, step.rectangle);
    return () => {
      const all = this.#sums[index] ?? new Float64Array(sumCount);
      this.#sums[index] = all;
      if (sums !== undefined) addSums(all, sums);
    };
  }

  /** Measures the tensors. `chosen` are those of the plan, or samples of them. */
  async run(chosen: readonly PlannedTensor[]): Promise<void> {
    const { runner, onProgress, signal } = this.#work;
    const bytesTotal = chosen.reduce((sum, { source }) => sum + storedBytes(source), 0);
    let bytesDone = 0;
    const waiting: Promise<() => void>[] = [];
    const ask = (tensor: PlannedTensor, task: RangeTask | SetsTask, rectangle: Rectangle) =>
      this.#carryOut(tensor, task, 0, rectangle);
    for (const [index, tensor] of chosen.entries()) {
      const { source, parts, kept } = tensor;
      bytesDone += storedBytes(source);
      if (kept !== undefined) continue;
      // The first part holds the elements. Errors are measured when it is made.
      const roles = parts.slice(0, 1).map(({ role }) => role);
      const places = roles.map((role) => ({ role, file: 0, at: 0, into: undefined }));
      const steps = tilesOf(tensor, index, roles, places);
      let next = steps.next();
      while (!next.done) {
        const step = next.value;
        if (step.kind === 'question') {
          next = steps.next(await answerTo(step, ask));
          continue;
        }
        if (step.kind === 'tile' && step.task.measures) {
          const added = this.#addTile(index, step);
          // If it fails, that shows when its turn comes.
          added.catch(() => {});
          waiting.push(added);
          if (waiting.length > runner.concurrency) (await waiting.shift())?.();
        }
        next = steps.next(undefined);
      }
      const { name } = source;
      onProgress?.({ phase: 'quantize', tensor: name, index, count: chosen.length, bytesDone, bytesTotal });
      signal?.throwIfAborted();
    }
    for (const added of waiting) (await added)();
  }

  /** The measures of each tensor. */
  measures(chosen: readonly PlannedTensor[]) {
    return chosen.map(({ source }, i) => {
      const sums = this.#sums[i];
      return sums && measuresOf(sums, elementsOf(source.shape));
    });
  }
}

/** Measures what would become of an open model. See `estimateModel`. */
export async function estimateOpen(
  opened: Opened,
  choices: PlanChoices,
  options: EstimateOptions,
): Promise<ModelEstimate> {
  const { sample = defaultSample, onProgress, signal } = options;
  const { model } = opened;
  const plan: FilePlan = await planFor(opened, choices);
  let sampled = 0;
  const chosen = plan.tensors.map((tensor) => {
    const source = tensor.kept === undefined ? sampleOf(tensor.source, sample) : tensor.source;
    if (source === tensor.source) return tensor;
    sampled++;
    return { ...tensor, source };
  });
  const elements = convertedElements({ ...plan, tensors: chosen });
  const runner = await startRunner(elements, { sources: model.files, sinks: [] }, options);
  const measuring = new Measuring({ plan, files: model.files, runner, signal, onProgress });
  try {
    await measuring.run(chosen);
  } finally {
    runner.dispose();
  }
  return { ...reportOf(model, plan, measuring.measures(chosen)), sampled };
}
