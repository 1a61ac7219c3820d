// Bytes for workers that cannot open a file: in order, few at a time, and only those that are still needed.
import { expect, it } from 'vitest';
import { Feed } from '../../../web/src/convert/feed.js';
import type { EncodeTask, InputPart } from '../../../web/src/convert/task.js';
import type { ByteSource } from '../../../web/src/formats/files/bytes.js';

const mebibyte = 2 ** 20;

/** A file in memory that notes what is read of it, and fails from a position on. */
function noted(size: number, failsAt = Number.POSITIVE_INFINITY) {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < size; i++) bytes[i] = Math.imul(i, 0x9e3779b1) >>> 24;
  const reads: number[] = [];
  const read = async (begin: number, end: number) => {
    reads.push(end - begin);
    // Reads that began later may end earlier.
    await new Promise((resolve) => setTimeout(resolve, (begin * 7) % 3));
    if (end > failsAt) throw new Error('no more');
    return bytes.slice(begin, end);
  };
  const file: ByteSource = { size, read, async verify() {}, async close() {} };
  return { file, bytes, reads };
}

function taskOf(part: Partial<InputPart>, rows: number, columns: number, pieceRows?: number): EncodeTask {
  const parts = [{ role: 'data', file: 0, begin: 0, bytes: 0, count: 1, stride: 0, ...part }];
  const inputs = [{ form: { codec: 'cast' }, parts }] as const;
  return { kind: 'encode', rows, columns, inputs, to: { codec: 'cast' }, outputs: [], measures: false, pieceRows };
}

/** A feed, and a worker that takes a chunk at each call of `take`. */
function worker(file: ByteSource) {
  const waiting: { id: number; bytes: Uint8Array<ArrayBuffer> }[] = [];
  const feed = new Feed({
    files: [file],
    isOpen: () => false,
    spare: [],
    send: (id, bytes) => void waiting.push({ id, bytes }),
  });
  const taken: Buffer[] = [];
  const ids: number[] = [];
  const take = () => {
    const next = waiting.shift();
    if (next === undefined) return;
    taken.push(Buffer.from(next.bytes));
    ids.push(next.id);
    feed.takeBack(next.bytes.buffer);
  };
  return { feed, waiting, taken, ids, take };
}

const aMoment = () => new Promise((resolve) => setTimeout(resolve, 5));
const never = () => false;

it('sends a tile of some columns in the order of its pieces, and at most 6 MiB at a time', async () => {
  const [rows, stride, bytes] = [48, 256 * 1024, 192 * 1024];
  const { file, bytes: content, reads } = noted(rows * stride);
  const { feed, waiting, taken, ids, take } = worker(file);
  // The pieces of the first are 3 MiB each. The second has runs that are longer than a chunk.
  const first = taskOf({ begin: 16, bytes, count: rows - 1, stride }, rows - 1, bytes / 4, 16);
  const second = taskOf({ bytes: 3 * mebibyte + 4, count: 2, stride: 4 * mebibyte }, 2, 786_433);
  const sent = [
    feed.give({ id: 1, tasks: [first], isOver: never }),
    feed.give({ id: 2, tasks: [second], isOver: never }),
  ];
  let all = false;
  void Promise.all(sent).then(() => {
    all = true;
  });
  while (!all || waiting.length > 0) {
    await aMoment();
    expect(waiting.reduce((sum, chunk) => sum + chunk.bytes.length, 0)).toBeLessThanOrEqual(6 * mebibyte);
    take();
  }
  const runs = [
    ...Array.from({ length: rows - 1 }, (_, i) => content.subarray(16 + i * stride, 16 + i * stride + bytes)),
    ...[0, 1].map((i) => content.subarray(4 * i * mebibyte, (4 * i + 3) * mebibyte + 4)),
  ];
  expect(Buffer.concat(taken).equals(Buffer.concat(runs))).toBe(true);
  expect(ids).toEqual([...ids].sort());
  expect(Math.max(...reads)).toBeLessThanOrEqual(2 * mebibyte);
});

it('reads no more of a batch that the worker has ended, and goes on with the next', async () => {
  const { file, bytes: content, reads } = noted(32 * mebibyte);
  const { feed, waiting, taken, take } = worker(file);
  let isOver = false;
  const long = taskOf({ bytes: 32 * mebibyte, stride: 32 * mebibyte }, 1, 8 * mebibyte);
  const first = feed.give({ id: 1, tasks: [long], isOver: () => isOver });
  const second = feed.give({ id: 2, tasks: [taskOf({ begin: 5, bytes: 9 }, 1, 9)], isOver: never });
  while (waiting.length < 3) await aMoment();
  isOver = true;
  while (waiting.length > 0) take();
  await first;
  taken.length = 0;
  await second;
  take();
  expect(Buffer.concat(taken).equals(content.subarray(5, 14))).toBe(true);
  expect(reads.length).toBeLessThanOrEqual(4);
});

it('names the task whose bytes cannot be read, and sends what comes before them', async () => {
  const { file, bytes: content } = noted(8 * mebibyte, 5 * mebibyte);
  const { feed, waiting, taken, take } = worker(file);
  const tasks = [0, 2, 4, 6].map((at) => {
    return taskOf({ begin: at * mebibyte, bytes: 2 * mebibyte, stride: 2 * mebibyte }, 1, mebibyte / 2);
  });
  const error = await feed.give({ id: 1, tasks, isOver: never }).catch((cause: unknown) => cause);
  expect(error).toMatchObject({ task: 2, cause: { message: 'no more' } });
  expect(waiting).toHaveLength(2);
  while (waiting.length > 0) take();
  expect(Buffer.concat(taken).equals(content.subarray(0, 4 * mebibyte))).toBe(true);
});
