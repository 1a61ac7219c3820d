/** Measures what a conversion would lose, on a part of each tensor or on all of it. Writes nothing. */
import type { Rectangle } from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { addSums, measuresOf, sumCount } from '../core/measure.js';
import type { FilePlan, Gathered, LogicalTensor, PlannedTensor } from '../formats/format.js';
import type { PlanChoices } from '../formats/options.js';
import { convertedElements, problemError, type Work } from './engine.js';
import type { Opened } from './open.js';
import { planFor } from './plan.js';
import { type ModelReport, reportOf } from './report.js';
import { startRunner, type WorkOptions } from './start.js';
import {
  BatchLimit,
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
  const { gathered } = source;
  if (gathered !== undefined) return sampleOfGathered(source, gathered, most);
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

/** The same of one of its stored tensors. Where its rows belong does not matter. */
function sampleOfGathered({ parts, ...source }: LogicalTensor, { width }: Gathered, most: number): LogicalTensor {
  const part = parts[Math.floor(parts.length / 2)] as (typeof parts)[number];
  const rows = elementsOf(source.shape) / parts.length / width;
  const { name, type, form } = source;
  return sampleOf({ name, type, form, shape: [rows, width], parts: [part] }, most);
}

/** Memory for the parts of a tile, which nobody reads, from an offset on. */
function outputsOf({ destinations }: TileStep, offset: number): { outputs: Output[]; end: number } {
  let end = offset;
  const outputs = destinations.map(({ role, bytes, count }) => {
    const at = end;
    end += bytes * count;
    return { role, offset: at, bytes: bytes * count };
  });
  return { outputs, end };
}

/** A task, and what it is about. */
interface Subject {
  readonly tensor: PlannedTensor;
  readonly rectangle: Rectangle;
}

/** Carries out tasks for the tensors of a plan, and adds up their errors. Small tiles travel together. */
class Measuring {
  readonly #work: Omit<Work, 'sinks'>;
  readonly #sums: (Float64Array | undefined)[];
  readonly #limit = new BatchLimit();
  #tiles: TileStep[] = [];
  /** Batches under way. Each gives what adds its sums, so that they are added in order. */
  readonly #waiting: Promise<() => void>[] = [];

  constructor(work: Omit<Work, 'sinks'>) {
    this.#work = work;
    this.#sums = new Array(work.plan.tensors.length);
  }

  async #carryOut(tasks: readonly TileTask[], outputBytes: number, subjects: readonly Subject[]): Promise<BatchResult> {
    const { runner, signal } = this.#work;
    signal?.throwIfAborted();
    let result: BatchResult;
    try {
      result = await runner.run({ tasks, outputBytes });
    } catch (error) {
      throw error instanceof TaskError ? error.cause : error;
    }
    runner.recycle(result.output);
    const problem = problemIn(result);
    if (problem === undefined) return result;
    const { tensor, rectangle } = subjects[result.done - 1] as Subject;
    throw problemError(tensor, problem, elementAt(rectangle, problem.index));
  }

  async #ask(tensor: PlannedTensor, task: RangeTask | SetsTask, rectangle: Rectangle) {
    const { answers } = await this.#carryOut([task], 0, [{ tensor, rectangle }]);
    return { ...answers[0] };
  }

  async #measure(tiles: readonly TileStep[]): Promise<() => void> {
    let outputBytes = 0;
    const tasks = tiles.map((step) => {
      const { outputs, end } = outputsOf(step, outputBytes);
      outputBytes = end;
      return { ...step.task, outputs };
    });
    const { measured, sums } = await this.#carryOut(tasks, outputBytes, tiles);
    return () => {
      for (const [i, { index }] of tiles.entries()) {
        const all = this.#sums[index] ?? new Float64Array(sumCount);
        this.#sums[index] = all;
        if (measured[i] === 1) addSums(all, sums.subarray(i * sumCount, (i + 1) * sumCount));
      }
    };
  }

  /** Starts what was collected, and waits if enough is under way. */
  async #flush(): Promise<void> {
    if (this.#tiles.length === 0) return;
    const added = this.#measure(this.#tiles);
    // If it fails, that shows when its turn comes.
    added.catch(() => {});
    this.#waiting.push(added);
    this.#tiles = [];
    this.#limit.clear();
    if (this.#waiting.length > this.#work.runner.concurrency) (await this.#waiting.shift())?.();
  }

  async #collect(tensor: PlannedTensor, index: number): Promise<void> {
    // The first part holds the elements. Errors are measured when it is made.
    const roles = tensor.parts.slice(0, 1).map(({ role }) => role);
    const places = roles.map((role) => ({ role, file: 0, at: 0, into: undefined }));
    const steps = tilesOf(tensor, index, roles, places);
    for (let next = steps.next(); !next.done; ) {
      const step = next.value;
      if (step.kind === 'question') {
        next = steps.next(await answerTo(step, (...about) => this.#ask(...about)));
        continue;
      }
      if (step.kind === 'tile' && step.task.measures) {
        if (!this.#limit.admits(step.task)) {
          await this.#flush();
          this.#limit.admits(step.task);
        }
        this.#tiles.push(step);
      }
      next = steps.next(undefined);
    }
  }

  /** Measures the tensors. `chosen` are those of the plan, or samples of them. */
  async run(chosen: readonly PlannedTensor[]): Promise<void> {
    const { onProgress, signal } = this.#work;
    const bytesTotal = chosen.reduce((sum, { source }) => sum + storedBytes(source), 0);
    let bytesDone = 0;
    for (const [index, tensor] of chosen.entries()) {
      const { name } = tensor.source;
      bytesDone += storedBytes(tensor.source);
      if (tensor.kept !== undefined) continue;
      await this.#collect(tensor, index);
      onProgress?.({ phase: 'quantize', tensor: name, index, count: chosen.length, bytesDone, bytesTotal });
      signal?.throwIfAborted();
    }
    await this.#flush();
    for (const added of this.#waiting) (await added)();
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
