/** Measures the errors of planned tensors. Writes nothing. */
import type { Rectangle } from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { addSums, type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import type { OpenModel, PlannedTensor } from '../formats/format.js';
import {
  BatchLimit,
  type BatchResult,
  type Output,
  problemIn,
  type RangeTask,
  type SetsTask,
  TaskError,
  type TileTask,
} from '../runner/task.js';
import { startRunner, type WorkOptions } from './start.js';
import { answerTo, elementAt, storedBytes, type TileStep, tilesOf } from './tiles.js';
import { convertedElements, problemError, type Work } from './writing.js';

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

/** What measuring takes. */
type Measured = Pick<Work, 'runner' | 'signal' | 'onProgress'>;

/** Carries out tasks for planned tensors, and adds up their errors. Small tiles travel together. */
class Measuring {
  readonly #work: Measured;
  readonly #sums: (Float64Array | undefined)[];
  readonly #limit = new BatchLimit();
  #tiles: TileStep[] = [];
  /** Batches under way. Each gives what adds its sums, so that they are added in order. */
  readonly #waiting: Promise<() => void>[] = [];

  constructor(work: Measured) {
    this.#work = work;
    this.#sums = [];
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

/**
 * Measures planned tensors in their order, so that the sums do not depend on who adds them. A tensor may come several times. Gives nothing
 * for those that are kept.
 */
export async function measureAll(
  model: OpenModel,
  chosen: readonly PlannedTensor[],
  options: WorkOptions,
): Promise<(ErrorMeasures | undefined)[]> {
  const { onProgress, signal } = options;
  const runner = await startRunner(
    convertedElements({ tensors: chosen }),
    { sources: model.files, sinks: [] },
    options,
  );
  const measuring = new Measuring({ runner, signal, onProgress });
  try {
    await measuring.run(chosen);
  } finally {
    runner.dispose();
  }
  return measuring.measures(chosen);
}
