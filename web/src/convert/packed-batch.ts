/**
 * Batches in the form that is sent to workers. Models often hold many consecutive tensors of the same shape, whose tasks differ only in
 * where their bytes are. One of these tasks is sent as an example, the others as numbers: as objects, sending them would take longer than
 * carrying them out.
 */
import {
  type Batch,
  type EncodeTask,
  type InputPart,
  isSameForm,
  type OutputPart,
  type TileInput,
  type TileTask,
} from './task.js';

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

function areAlike<T>(a: readonly T[], b: readonly T[], isSame: (x: T, y: T) => boolean): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!isSame(a[i] as T, b[i] as T)) return false;
  return true;
}

const isAlikeOutput = (a: OutputPart, b: OutputPart) => a.role === b.role && a.bytes === b.bytes;

const isAlikeInput = (a: InputPart, b: InputPart) =>
  a.role === b.role &&
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
    isSameForm(a.to, b.to) &&
    isSameForm(x.form, y.form) &&
    a.rows === b.rows &&
    a.columns === b.columns &&
    a.measures === b.measures &&
    a.refuses === b.refuses &&
    a.pieceRows === b.pieceRows &&
    areAlike(a.outputs, b.outputs, isAlikeOutput) &&
    areAlike(x.parts, y.parts, isAlikeInput)
  );
}

/**
 * The ranges that one side sent last, or that the other side received last. All tiles of a tensor may share them; a copy for each tile would
 * pile up as garbage in the worker.
 */
export interface LastRanges {
  ranges?: EncodeTask['ranges'] | undefined;
}

/** Leaves out ranges that the other side has. */
function withoutKnown(task: TileTask, last: LastRanges): PackedTask {
  if (task.kind !== 'encode' || task.ranges === undefined) return task;
  const { ranges, ...others } = task;
  const { ranges: known } = last;
  last.ranges = ranges;
  const { buffer, byteOffset, length } = ranges;
  const isKnown = known?.buffer === buffer && known.byteOffset === byteOffset && known.length === length;
  return isKnown ? { ...others, again: true } : task;
}

/** Puts ranges back that were left out. */
function withKnown(task: PackedTask, last: LastRanges): TileTask {
  if (task.kind !== 'encode') return task;
  if (task.ranges !== undefined) last.ranges = task.ranges;
  if (task.again !== true || last.ranges === undefined) return task;
  const { again: _, ...others } = task;
  return { ...others, ranges: last.ranges };
}

const outputsOf = (task: TileTask) => (task.kind === 'encode' ? task.outputs : []);

/** Packs a batch. @param last the ranges that were sent to the same worker before */
export function packBatch({ tasks, ...rest }: Batch, last: LastRanges = {}): PackedBatch {
  const examples: TileTask[] = [];
  let size = 0;
  for (const task of tasks) {
    size += 1 + outputsOf(task).length;
    for (const { parts } of task.inputs) size += parts.length;
  }
  const numbers = new Float64Array(size);
  let at = 0;
  for (const task of tasks) {
    const from = Math.max(0, examples.length - mostCompared);
    let like = examples.length - 1;
    while (like >= from && !isAlike(examples[like] as TileTask, task)) like--;
    if (like < from) like = examples.push(task) - 1;
    numbers[at++] = like;
    for (const { parts } of task.inputs) for (const { begin } of parts) numbers[at++] = begin;
    for (const { offset } of outputsOf(task)) numbers[at++] = offset;
  }
  return { ...rest, count: tasks.length, examples: examples.map((task) => withoutKnown(task, last)), numbers };
}

/** A task like an example, with its bytes elsewhere. `next` gives where its input parts begin, then the offsets of its outputs. */
function taskLike(example: TileTask, next: () => number): TileTask {
  // Written out because object spread is the slowest part of this function.
  const inputs = example.inputs.map(({ form, parts }) => {
    const placed = parts.map(({ role, file, bytes, count, stride, moved }) => {
      return { role, file, begin: next(), bytes, count, stride, moved };
    });
    return { form, parts: placed };
  });
  if (example.kind !== 'encode') return { ...example, inputs } as unknown as TileTask;
  const outputs = example.outputs.map(({ role, bytes }) => ({ role, offset: next(), bytes }));
  const { kind, rows, columns, to, measures, refuses, ranges, cached, pieceRows, damping, order, judges } = example;
  const [input, moments] = inputs as unknown as readonly [TileInput, TileInput?];
  if (moments !== undefined) {
    return { kind, rows, columns, inputs: [input, moments], damping, order, judges, to, outputs, measures, pieceRows };
  }
  return ranges === undefined
    ? { kind, rows, columns, inputs: [input], to, outputs, measures, refuses, pieceRows }
    : { kind, rows, columns, inputs: [input], to, outputs, measures, refuses, ranges, cached, pieceRows };
}

/** Unpacks a batch. @param last the ranges that were received before */
export function unpackBatch({ count, examples: packed, numbers, ...rest }: PackedBatch, last: LastRanges = {}): Batch {
  const examples = packed.map((task) => withKnown(task, last));
  let at = 0;
  const next = () => numbers[at++] as number;
  const tasks: TileTask[] = [];
  for (let i = 0; i < count; i++) tasks.push(taskLike(examples[next()] as TileTask, next));
  return { ...rest, tasks };
}
