/** Jobs that open files and convert batches of tiles, as messages to workers carry them. */
import type { ErrorData } from '../core/errors.js';
import { sumCount } from '../core/measure.js';
import { isBuffer, isBytes, isDoubles } from '../core/realms.js';
import type { SourceReference } from '../formats/files/bytes.js';
import type { SinkReference } from '../formats/files/sink.js';
import {
  type Batch,
  type BatchResult,
  type EncodeTask,
  equalForms,
  type InputPart,
  type TileInput,
  type TileTask,
} from './task.js';

/** Work on tiles. */
export type TileJob =
  /** Opens the files that batches read and write. Undefined stands for a file that workers cannot open. */
  | {
      readonly kind: 'open';
      readonly sources: readonly (SourceReference | undefined)[];
      readonly sinks: readonly (SinkReference | undefined)[];
    }
  | {
      readonly kind: 'batch';
      /** Counts the batches of a worker. */
      readonly number: number;
      /** With `writes`, the worker writes the output. */
      readonly batch: PackedBatch;
      /** Memory for an output that is sent back. */
      readonly spare: ArrayBuffer | undefined;
    };

/** The next bytes of a batch from files that the worker did not open, in the order in which it reads them; undefined if reading failed. */
export interface BatchBytes {
  readonly number: number;
  readonly bytes: Uint8Array<ArrayBuffer> | undefined;
}

/** Memory of bytes that the worker has taken. */
export interface TakenBytes {
  readonly memory: ArrayBuffer;
}

/** The files that a worker opened. */
export interface OpenedFiles {
  /** For each source, true if the worker opened it. */
  readonly reads: readonly boolean[];
  /** True if the worker opened all sinks. */
  readonly writes: boolean;
}

/** The failure of a batch. */
export interface BatchFailure {
  readonly failed: {
    /** Index of the task in the batch. */
    readonly task: number;
    /** True if writing its output failed. */
    readonly writing: boolean;
    readonly error: ErrorData;
  };
}

// The worker may be one that the caller made, so answers are checked.

/** True for the answer to a job of the kind `open`. */
export function isOpenedFiles(answer: unknown): answer is OpenedFiles {
  return Array.isArray(((answer ?? {}) as Partial<OpenedFiles>).reads);
}

/** True for a failure, and for a result that fits its batch: all bytes unless they were written, and all tasks up to a problem. */
export function isBatchAnswer(
  { tasks, outputBytes, isWritten }: { tasks: number; outputBytes: number; isWritten: boolean },
  answer: unknown,
): answer is BatchResult | BatchFailure {
  const { failed } = (answer ?? {}) as { failed?: Partial<BatchFailure['failed']> };
  const { task = -1, error } = failed ?? {};
  if (Number.isInteger(task) && task >= 0 && typeof error?.message === 'string') return true;
  const { output, written = false, done, measured, sums, answers } = (answer ?? {}) as Partial<BatchResult>;
  // jsdom has constructors of its own, so that instanceof would fail for arrays from workers of Node.
  if (!isBuffer(output) || !isBytes(measured) || !isDoubles(sums)) return false;
  if (!Number.isInteger(done) || !Array.isArray(answers)) return false;
  const complete = done === tasks || ((done as number) < tasks && answers.at(-1)?.problem !== undefined);
  const measures = measured.length === tasks && [0, tasks * sumCount].includes(sums.length);
  return output.byteLength === (isWritten ? 0 : outputBytes) && written === isWritten && measures && complete;
}

// ----------------------------------------------------------------------------------------------------------------- batches as messages

// Models often hold many consecutive tensors of the same shape, whose tasks differ only in where their bytes are. One of these tasks is sent
// as an example, the others as numbers: as objects, sending them would take longer than carrying them out.

/** A task in a message. `again` stands for the ranges that were sent last. */
type PackedTask = TileTask & { readonly again?: boolean };

/** A batch in few objects. */
export interface PackedBatch extends Omit<Batch, 'tasks'> {
  /** Number of tasks. */
  readonly count: number;
  /** One task of each kind. */
  readonly examples: readonly PackedTask[];
  /** For each task: the index of its example, where its input parts begin in their files, and the offsets of its outputs. */
  readonly numbers: Float64Array<ArrayBuffer>;
}

/** Examples that a task is compared with. If there are more, the tensors have nothing in common. */
const mostCompared = 8;

const isAlikeInput = (a: InputPart, b: InputPart | undefined) =>
  a.role === b?.role &&
  a.file === b.file &&
  a.bytes === b.bytes &&
  a.count === b.count &&
  a.stride === b.stride &&
  (a.moved === b.moved ||
    (a.moved?.dims === b.moved?.dims && a.moved?.unit === b.moved?.unit && a.moved?.from === b.moved?.from));

/** True if two tasks differ at most in where their bytes are. */
export function isAlike(a: TileTask, b: TileTask): boolean {
  if (a.kind !== 'encode' || b.kind !== 'encode' || a.ranges !== undefined || b.ranges !== undefined) return false;
  if (a.cached !== undefined || b.cached !== undefined) return false;
  const [[x, second], [y, otherSecond]] = [a.inputs, b.inputs];
  if (second !== undefined || otherSecond !== undefined) return false;
  return (
    equalForms(a.to, b.to) &&
    equalForms(x.form, y.form) &&
    a.rows === b.rows &&
    a.columns === b.columns &&
    a.measures === b.measures &&
    a.refuses === b.refuses &&
    a.pieceRows === b.pieceRows &&
    a.outputs.length === b.outputs.length &&
    a.outputs.every(({ role, bytes }, i) => b.outputs[i]?.role === role && b.outputs[i]?.bytes === bytes) &&
    x.parts.length === y.parts.length &&
    x.parts.every((part, i) => isAlikeInput(part, y.parts[i]))
  );
}

/**
 * The ranges that one side sent last, or that the other side received last. All tiles of a tensor may share them; a copy for each tile would
 * pile up as garbage in the worker.
 */
export interface LastRanges {
  ranges?: EncodeTask['ranges'] | undefined;
}

const outputsIn = (task: TileTask) => (task.kind === 'encode' ? task.outputs : []);

/** Packs a batch. @param last the ranges that were sent to the same worker before */
export function packBatch({ tasks, ...rest }: Batch, last: LastRanges = {}): PackedBatch {
  const examples: PackedTask[] = [];
  const numbers: number[] = [];
  for (const task of tasks) {
    const from = Math.max(0, examples.length - mostCompared);
    let like = examples.length - 1;
    while (like >= from && !isAlike(examples[like] as TileTask, task)) like--;
    if (like < from) like = examples.push(task) - 1;
    numbers.push(like);
    for (const { parts } of task.inputs) for (const { begin } of parts) numbers.push(begin);
    for (const { offset } of outputsIn(task)) numbers.push(offset);
  }
  // Leave out ranges that the other side has.
  for (const [i, task] of examples.entries()) {
    if (task.kind !== 'encode' || task.ranges === undefined) continue;
    const { ranges, ...others } = task;
    const { ranges: known } = last;
    last.ranges = ranges;
    const { buffer, byteOffset, length } = ranges;
    const isKnown = known?.buffer === buffer && known.byteOffset === byteOffset && known.length === length;
    if (isKnown) examples[i] = { ...others, again: true };
  }
  return { ...rest, count: tasks.length, examples, numbers: Float64Array.from(numbers) };
}

/** Unpacks a batch. @param last the ranges that were received before */
export function unpackBatch({ count, examples: packed, numbers, ...rest }: PackedBatch, last: LastRanges = {}): Batch {
  // Put ranges back that were left out.
  const examples = packed.map((task): TileTask => {
    if (task.kind !== 'encode') return task;
    if (task.ranges !== undefined) last.ranges = task.ranges;
    if (task.again !== true || last.ranges === undefined) return task;
    const { again: _, ...others } = task;
    return { ...others, ranges: last.ranges };
  });
  let at = 0;
  const next = () => numbers[at++] as number;
  const tasks = Array.from({ length: count }, (): TileTask => {
    const example = examples[next()] as TileTask;
    // Written out because object spread is the slowest part of this function.
    const inputs = example.inputs.map(({ form, parts }) => {
      const placed = parts.map(({ role, file, bytes, count: runs, stride, moved }) => {
        return { role, file, begin: next(), bytes, count: runs, stride, moved };
      });
      return { form, parts: placed };
    });
    if (example.kind !== 'encode') return { ...example, inputs } as unknown as TileTask;
    const outputs = example.outputs.map(({ role, bytes }) => ({ role, offset: next(), bytes }));
    const { kind, rows, columns, to, measures, refuses, ranges, cached, pieceRows, damping, order, judges } = example;
    const [input, moments] = inputs as unknown as readonly [TileInput, TileInput?];
    if (moments !== undefined) {
      const known = ranges === undefined ? {} : { ranges };
      const shared = { kind, rows, columns, to, outputs, measures, ...known, pieceRows };
      return { ...shared, inputs: [input, moments], damping, order, judges };
    }
    return ranges === undefined
      ? { kind, rows, columns, inputs: [input], to, outputs, measures, refuses, pieceRows }
      : { kind, rows, columns, inputs: [input], to, outputs, measures, refuses, ranges, cached, pieceRows };
  });
  return { ...rest, tasks };
}
