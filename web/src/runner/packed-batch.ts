/**
 * Batches as they are sent to workers. Small tensors come in long rows of equals, whose tasks differ only in where their bytes are: one of
 * them is sent as an example, and the others as numbers. As objects, their messages would take longer than the work.
 */
import { type Batch, type EncodeTask, type Input, isSameForm, type Output, type TileTask } from './task.js';

/** A task in a message. `again`: its ranges are those that came last. */
type PackedTask = TileTask & { readonly again?: boolean };

/** A batch in few objects. */
export interface PackedBatch extends Omit<Batch, 'tasks'> {
  /** Number of tasks. */
  readonly count: number;
  /** One task of each kind. */
  readonly examples: readonly PackedTask[];
  /** For each task which example it is like, where its inputs begin in their files, and its outputs in the output of the batch. */
  readonly numbers: Float64Array<ArrayBuffer>;
}

/** Examples that a task is compared with. Many different ones mean that the tensors are different. */
const mostCompared = 8;

function areAlike<T>(a: readonly T[], b: readonly T[], isSame: (x: T, y: T) => boolean): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!isSame(a[i] as T, b[i] as T)) return false;
  return true;
}

const isAlikeOutput = (a: Output, b: Output) => a.role === b.role && a.bytes === b.bytes;

const isAlikeInput = (a: Input, b: Input) =>
  a.role === b.role &&
  a.file === b.file &&
  a.bytes === b.bytes &&
  a.count === b.count &&
  a.stride === b.stride &&
  (a.moved === b.moved ||
    (a.moved?.head === b.moved?.head && a.moved?.rowBytes === b.moved?.rowBytes && a.moved?.from === b.moved?.from));

/** Whether two tasks differ at most in where their bytes are. */
export function isAlike(a: TileTask, b: TileTask): boolean {
  if (a.kind !== 'encode' || b.kind !== 'encode' || a.ranges !== undefined || b.ranges !== undefined) return false;
  if (a.kept !== undefined || b.kept !== undefined) return false;
  const [[x], [y]] = [a.pieces, b.pieces];
  return (
    isSameForm(a.to, b.to) &&
    isSameForm(x.form, y.form) &&
    a.rows === b.rows &&
    a.columns === b.columns &&
    a.measures === b.measures &&
    a.step === b.step &&
    areAlike(a.outputs, b.outputs, isAlikeOutput) &&
    areAlike(x.inputs, y.inputs, isAlikeInput)
  );
}

/**
 * Ranges that one side has sent, or the other side has got, last. All tiles of a tensor may have them in common: as many numbers for each
 * tile would pile up in the worker as garbage.
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

/** Packs a batch to be sent. @param last what was sent to the same place before */
export function packBatch({ tasks, ...rest }: Batch, last: LastRanges = {}): PackedBatch {
  const examples: TileTask[] = [];
  let size = 0;
  for (const task of tasks) {
    size += 1 + outputsOf(task).length;
    for (const { inputs } of task.pieces) size += inputs.length;
  }
  const numbers = new Float64Array(size);
  let at = 0;
  for (const task of tasks) {
    const from = Math.max(0, examples.length - mostCompared);
    let like = examples.length - 1;
    while (like >= from && !isAlike(examples[like] as TileTask, task)) like--;
    if (like < from) like = examples.push(task) - 1;
    numbers[at++] = like;
    for (const { inputs } of task.pieces) for (const { begin } of inputs) numbers[at++] = begin;
    for (const { offset } of outputsOf(task)) numbers[at++] = offset;
  }
  return { ...rest, count: tasks.length, examples: examples.map((task) => withoutKnown(task, last)), numbers };
}

/** A task like another one whose bytes are elsewhere. `next` gives where its inputs begin, and then its outputs. */
function taskLike(example: TileTask, next: () => number): TileTask {
  // Written out: to spread an object takes engines longer than the rest.
  const pieces = example.pieces.map(({ form, inputs }) => {
    const placed = inputs.map(({ role, file, bytes, count, stride, moved }) => {
      return { role, file, begin: next(), bytes, count, stride, moved };
    });
    return { form, inputs: placed };
  });
  if (example.kind !== 'encode') return { ...example, pieces } as unknown as TileTask;
  const outputs = example.outputs.map(({ role, bytes }) => ({ role, offset: next(), bytes }));
  const { kind, rows, columns, to, measures, ranges, kept, step } = example;
  const [piece] = pieces as unknown as EncodeTask['pieces'];
  return ranges === undefined
    ? { kind, rows, columns, pieces: [piece], to, outputs, measures, step }
    : { kind, rows, columns, pieces: [piece], to, outputs, measures, ranges, kept, step };
}

/** The batch that was packed. @param last what came before it */
export function unpackBatch({ count, examples: packed, numbers, ...rest }: PackedBatch, last: LastRanges = {}): Batch {
  const examples = packed.map((task) => withKnown(task, last));
  let at = 0;
  const next = () => numbers[at++] as number;
  const tasks: TileTask[] = [];
  for (let i = 0; i < count; i++) tasks.push(taskLike(examples[next()] as TileTask, next));
  return { ...rest, tasks };
}
