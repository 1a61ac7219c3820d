/**
 * Carries out a plan: tiles go to the runner, results to the sink in the order of the steps, with no more of them under way than the
 * runner can use.
 */
import { ScalepointError } from '../core/errors.js';
import { addSums, type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import type { ByteSink } from '../files/sinks.js';
import type { FilePlan, PlannedTensor, Role } from './plan.js';
import { elementsOf, type Step, sourceBytesOf, stepsOf, type TileStep } from './steps.js';
import { bytesOf, isDecodable, type TileProblem, type TileResult, type TileTask } from './tile.js';
import type { TileRunner } from './workers.js';

/** How far a conversion is. */
export interface Progress {
  readonly phase: 'quantize' | 'copy';
  /** Name of the tensor. */
  readonly tensor: string;
  /** Which tensor, from 0, in the order of the input. */
  readonly index: number;
  /** How many tensors there are. */
  readonly count: number;
  /** Bytes of tensors done so far, and in all. */
  readonly bytesDone: number;
  readonly bytesTotal: number;
}

/** The index of an element, as in `[3, 0, 7]`. */
export function indexOf(element: number, shape: readonly number[]): string {
  const index: number[] = [];
  let rest = element;
  for (const dimension of [...shape].reverse()) {
    index.unshift(rest % dimension);
    rest = Math.floor(rest / dimension);
  }
  return `[${index.join(', ')}]`;
}

/** What a problem of a tile means to whoever gave the file. */
function problemError(tensor: PlannedTensor, { kind, value }: TileProblem, element: number): ScalepointError {
  const { name, dtype, shape, byteOffset, rearranged } = tensor.source;
  const { conversion } = tensor;
  const place = `tensor ${quoted(name)} holds ${value} at ${indexOf(element, shape)}`;
  const reason = {
    'non-finite': '',
    'beyond float32': ', too large for float32',
    overflow:
      conversion.kind === 'blocks'
        ? `, whose block of ${conversion.to} would need a scale beyond float16`
        : `, too large for ${conversion.kind === 'cast' ? conversion.to : 'the scale'}`,
  }[kind];
  const size = bytesOf(dtype, 32) / 32;
  return new ScalepointError(kind === 'overflow' ? 'OVERFLOW' : 'NON_FINITE', `${place}${reason}; a rule can keep it`, {
    tensor: name,
    byteOffset: Number.isInteger(size) && !rearranged ? byteOffset + element * size : undefined,
  });
}

/** An error that says which tensor of which file it is about. */
function located(error: unknown, tensor: PlannedTensor, files: readonly ByteSource[]): unknown {
  if (!(error instanceof ScalepointError) || error.tensor !== undefined) return error;
  const { name, file } = tensor.source;
  const label = files[file]?.name;
  const place = `tensor ${quoted(name)}${label === undefined ? '' : ` of ${quoted(label)}`}`;
  return new ScalepointError(error.code, `${place}: ${error.message}`, {
    tensor: name,
    byteOffset: error.byteOffset,
    cause: error.cause ?? error,
  });
}

/**
 * Lets promises be waited for no longer than until the signal comes. No race with one long-lived promise: that would keep every
 * result, megabytes each, until the end.
 */
export function interruptible(signal: AbortSignal | undefined) {
  const waiting = new Set<(reason: unknown) => void>();
  const interrupt = () => {
    for (const reject of waiting) reject(signal?.reason);
  };
  signal?.addEventListener('abort', interrupt, { once: true });
  return {
    soon: <T>(promise: Promise<T>): Promise<T> =>
      new Promise((resolve, reject) => {
        if (signal?.aborted) reject(signal.reason);
        waiting.add(reject);
        promise.then(resolve, reject).finally(() => waiting.delete(reject));
      }),
    end: () => signal?.removeEventListener('abort', interrupt),
  };
}

/** Calls onProgress: at the end of every tensor, otherwise only when 50 ms have passed. Tells whether it was the end. */
function progressReporter(plan: FilePlan, onProgress?: (progress: Progress) => void) {
  const bytesTotal = sourceBytesOf(plan);
  const indices = new Map(plan.tensors.map((tensor, index) => [tensor, index]));
  const rest = new Map(plan.tensors.map((tensor) => [tensor, tensor.source.bytes]));
  let bytesDone = 0;
  let last = performance.now();
  return (tensor: PlannedTensor, bytes: number) => {
    bytesDone += bytes;
    const left = (rest.get(tensor) ?? 0) - bytes;
    rest.set(tensor, left);
    const now = performance.now();
    if (left > 0 && now - last < 50) return false;
    last = now;
    onProgress?.({
      phase: tensor.conversion.kind === 'copy' ? 'copy' : 'quantize',
      tensor: tensor.source.name,
      index: indices.get(tensor) ?? 0,
      count: plan.tensors.length,
      bytesDone,
      bytesTotal,
    });
    return left === 0;
  };
}

/** What to carry out, and with what. */
export interface Work {
  readonly plan: FilePlan;
  readonly files: readonly ByteSource[];
  readonly sink: ByteSink;
  readonly runner: TileRunner;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/**
 * Writes the result of a plan, all but the finish. Returns the measures of every tensor that was read as floats, in the order of the
 * plan. The runner is of no use after an error.
 * @throws ScalepointError, the signal's reason, or what onProgress throws
 */
export async function carryOut(work: Work): Promise<(ErrorMeasures | undefined)[]> {
  const { plan, files, sink, runner, signal, onProgress } = work;
  signal?.throwIfAborted();
  const { soon, end } = interruptible(signal);

  const run = async (
    tensor: PlannedTensor,
    task: TileTask,
    elementAt: (index: number) => number,
  ): Promise<TileResult> => {
    let result: TileResult;
    try {
      result = await soon(runner.run(task));
    } catch (error) {
      throw located(error, tensor, files);
    }
    const { problem } = result;
    if (problem !== undefined) throw problemError(tensor, problem, elementAt(problem.index));
    return result;
  };

  const sums = new Map<PlannedTensor, Float64Array>();
  const report = progressReporter(plan, onProgress);
  const waiting: { readonly step: Step; readonly result: Promise<TileResult | undefined> }[] = [];
  const write = async (position: number, bytes: Uint8Array<ArrayBuffer>, tensor?: PlannedTensor) => {
    try {
      await soon(sink.write(position, bytes));
    } catch (error) {
      throw tensor === undefined ? error : located(error, tensor, []);
    }
  };
  const writeOldest = async () => {
    const { step, result } = waiting.shift() as (typeof waiting)[number];
    if (step.kind === 'bytes') {
      await write(step.position, step.bytes);
      return;
    }
    const tile = (await result) as TileResult;
    for (const [role, position] of Object.entries(step.positions)) {
      const bytes = tile.parts[role as Role];
      if (bytes !== undefined) await write(position, new Uint8Array(bytes), step.tensor);
    }
    if (tile.sums !== undefined) {
      const sum = sums.get(step.tensor) ?? new Float64Array(sumCount);
      addSums(sum, tile.sums);
      sums.set(step.tensor, sum);
    }
    if (!sink.keeps) runner.recycle(tile);
    if (step.sourceBytes === 0 || !report(step.tensor, step.sourceBytes)) return;
    try {
      await files[step.tensor.source.file]?.verify();
    } catch (error) {
      throw located(error, step.tensor, files);
    }
  };

  try {
    for await (const step of stepsOf(plan, !sink.positional, run)) {
      const result = step.kind === 'tile' ? startTile(step, run) : Promise.resolve(undefined);
      waiting.push({ step, result });
      if (waiting.length > runner.concurrency) await writeOldest();
      signal?.throwIfAborted();
    }
    while (waiting.length > 0) await writeOldest();
    for (const tensor of plan.tensors) if (tensor.source.bytes === 0) report(tensor, 0);
    for (const file of files) await file.verify();
    signal?.throwIfAborted();
  } finally {
    end();
  }
  return plan.tensors.map((tensor) => {
    const elements = elementsOf(tensor.source.shape);
    const nothing = elements === 0 && tensor.conversion.kind !== 'copy' ? new Float64Array(sumCount) : undefined;
    const sum = sums.get(tensor) ?? nothing;
    return sum && measuresOf(sum, elements);
  });
}

/** Starts a tile; its failure shows when its turn comes. */
function startTile(
  step: TileStep,
  run: (tensor: PlannedTensor, task: TileTask, elementAt: (index: number) => number) => Promise<TileResult>,
): Promise<TileResult> {
  const result = run(step.tensor, step.task, step.elementAt);
  result.catch(() => {});
  return result;
}

/** Floats that a plan converts: what tells whether workers pay. */
export function convertedElements(plan: FilePlan): number {
  let elements = 0;
  for (const { conversion, source } of plan.tensors) {
    if (conversion.kind !== 'copy' && isDecodable(source.dtype)) elements += elementsOf(source.shape);
  }
  return elements;
}
