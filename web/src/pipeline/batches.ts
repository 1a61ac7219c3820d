/** Puts small tiles together into batches, and what they write at neighboring positions into single writes. */
import { type Batch, BatchLimit, type EncodeTask, type Output } from './tasks.js';
import type { BytesStep, Step, TileStep } from './tiles.js';

/** Bytes of the memory of a batch, and where they go. */
export interface Write {
  /** Which file of the result. */
  readonly file: number;
  readonly position: number;
  readonly offset: number;
  readonly bytes: number;
  /** The tile that they come from, or the first of several; undefined if they were known. */
  readonly tile: TileStep | undefined;
  /** Memory that they go to in place of a file. `position` is one in it. */
  readonly into: Uint8Array<ArrayBuffer> | undefined;
}

/** What is carried out and written together. */
export interface BatchStep {
  readonly tiles: readonly TileStep[];
  readonly batch: Batch;
  /** Bytes that are known, and where they go in the memory of the batch. */
  readonly known: readonly { readonly offset: number; readonly bytes: Uint8Array<ArrayBuffer> }[];
  /** In the order of positions, those into memory first. */
  readonly writes: readonly Write[];
}

/** Known bytes up to this size are written together with what is next to them. */
const smallBytes = 1 << 12;

/** Something that a batch writes. */
interface Stretch {
  readonly file: number;
  readonly position: number;
  readonly bytes: number;
  readonly count: number;
  readonly stride: number;
  readonly role: string;
  readonly into?: Uint8Array<ArrayBuffer>;
  readonly step: Step;
}

function stretchesOf(step: Step): Stretch[] {
  if (step.kind === 'tile') return step.destinations.map((destination) => ({ ...destination, step }));
  const { file, position, bytes } = step;
  return [{ file, position, bytes: bytes.length, count: 1, stride: bytes.length, role: '', step }];
}

function byPosition(a: { file: number; position: number }, b: { file: number; position: number }): number {
  return a.file - b.file || a.position - b.position;
}

/** One write for all that is next to each other in the memory of the batch and in the file. */
function joined(writes: Write[]): Write[] {
  const result: Write[] = [];
  for (const write of writes.sort(byPosition)) {
    const last = result.at(-1);
    const follows =
      last?.file === write.file &&
      last.into === write.into &&
      last.position + last.bytes === write.position &&
      last.offset + last.bytes === write.offset;
    if (!follows) result.push(write);
    else result[result.length - 1] = { ...last, bytes: last.bytes + write.bytes, tile: last.tile ?? write.tile };
  }
  return result;
}

/** Lays out the memory of a batch in the order of positions. */
function layOut(steps: readonly Step[]): BatchStep {
  let size = 0;
  const writes: Write[] = [];
  const known: { offset: number; bytes: Uint8Array<ArrayBuffer> }[] = [];
  const outputs = new Map<Step, Output[]>();
  for (const { step, role, file, position, bytes, count, stride, into } of steps
    .flatMap(stretchesOf)
    .sort(byPosition)) {
    const tile = step.kind === 'tile' ? step : undefined;
    for (let i = 0; i < count; i++) {
      writes.push({ file, position: position + i * stride, offset: size + i * bytes, bytes, tile, into });
    }
    if (step.kind === 'bytes') known.push({ offset: size, bytes: step.bytes });
    else outputs.set(step, [...(outputs.get(step) ?? []), { role, offset: size, bytes: bytes * count }]);
    size += bytes * count;
  }
  const tiles = steps.filter((step) => step.kind === 'tile');
  const tasks = tiles.map((step): EncodeTask => ({ ...step.task, outputs: outputs.get(step) ?? [] }));
  return { tiles, batch: { tasks, outputBytes: size }, known, writes: joined(writes) };
}

/** Bytes that are too long to be copied, in the place of a batch. */
function alone({ file, position, bytes }: BytesStep): BatchStep {
  const write = { file, position, offset: 0, bytes: bytes.length, tile: undefined, into: undefined };
  return { tiles: [], batch: { tasks: [], outputBytes: bytes.length }, known: [{ offset: 0, bytes }], writes: [write] };
}

/** The same steps in batches, in the same order. */
export async function* batchesOf(steps: AsyncIterable<Step>): AsyncGenerator<BatchStep> {
  let waiting: Step[] = [];
  const limit = new BatchLimit();
  const flush = () => {
    const batch = layOut(waiting);
    waiting = [];
    limit.clear();
    return batch;
  };
  for await (const step of steps) {
    if (step.kind === 'bytes' && step.bytes.length > smallBytes) {
      if (waiting.length > 0) yield flush();
      yield alone(step);
      continue;
    }
    if (step.kind === 'tile' && !limit.admits(step.task)) {
      yield flush();
      limit.admits(step.task);
    }
    waiting.push(step);
  }
  if (waiting.length > 0) yield flush();
}
