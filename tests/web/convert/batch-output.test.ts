// The writes of a worker, and their positions.
import { describe, expect, it } from 'vitest';
import { type Batch, type EncodeTask, TaskError } from '../../../web/src/convert/task.js';
import { fileOutput } from '../../../web/src/convert/tile-converter.js';
import { ScalepointError } from '../../../web/src/core/errors.js';

const form = { codec: 'cast' };
const task = (...parts: [offset: number, bytes: number][]): EncodeTask => ({
  kind: 'encode',
  rows: 1,
  columns: 1,
  inputs: [{ form, parts: [] }],
  to: form,
  outputs: parts.map(([offset, bytes], i) => ({ role: `part ${i}`, offset, bytes })),
  measures: true,
});

/** Two files of 20 bytes, filled with 0xff, and the writes to them. */
function twoFiles() {
  const files = [new Uint8Array(20).fill(0xff), new Uint8Array(20).fill(0xff)] as const;
  let calls = 0;
  const write = files.map((file) => (position: number, bytes: Uint8Array) => {
    calls++;
    file.set(bytes, position);
  });
  return { files, write, calls: () => calls };
}

/** Puts 1, 2, 3 … into the parts of all tasks. */
function fill(batch: Batch, put: (offset: number, bytes: Uint8Array) => void): void {
  let next = 1;
  for (const { outputs } of batch.tasks as EncodeTask[]) {
    for (const { offset, bytes } of outputs)
      put(
        offset,
        Uint8Array.from({ length: bytes }, () => next++),
      );
  }
}

/** The bytes in a file, with their positions. */
const found = (file: Uint8Array) => [...file].flatMap((byte, i) => (byte === 0xff ? [] : [[i, byte]]));

describe('the output of a batch', () => {
  it('of one task goes to its places, in runs and in two files', () => {
    const writes = Float64Array.of(0, 3, 0, 2, 0, 8, 2, 1, 1, 0, 3, 2);
    const batch = { tasks: [task([0, 3], [3, 2])], outputBytes: 5, writes };
    const { files, write, calls } = twoFiles();
    const outlet = fileOutput(batch, writes, write);
    fill(batch, outlet.put);
    expect(outlet.end().byteLength).toBe(0);
    expect(files.map(found)).toEqual([
      [
        [3, 1],
        [4, 2],
        [8, 3],
      ],
      [
        [0, 4],
        [1, 5],
      ],
    ]);
    expect(calls()).toBe(3);
  });

  it.each([
    ['one task', [task([0, 2])], [1, 2, 0, 0]],
    ['two tasks', [task([0, 1]), task([3, 1])], [1, 0, 0, 2]],
  ])('of %s has zeros where no task makes anything, in one write', (_, tasks, bytes) => {
    const writes = Float64Array.of(1, 5, 0, 4);
    const batch = { tasks, outputBytes: 4, writes };
    const { files, write, calls } = twoFiles();
    const outlet = fileOutput(batch, writes, write);
    fill(batch, outlet.put);
    outlet.end();
    expect(found(files[1])).toEqual(bytes.map((byte, i) => [5 + i, byte]));
    expect(found(files[0])).toEqual([]);
    expect(calls()).toBe(1);
  });

  it('that cannot be written names the task', () => {
    const writes = Float64Array.of(0, 0, 0, 2, 1, 0, 2, 2);
    const batch = { tasks: [task([0, 2]), task([2, 2])], outputBytes: 4, writes };
    const full = new ScalepointError('IO', 'no space left');
    const fail = () => {
      throw full;
    };
    const outlet = fileOutput(batch, writes, [() => {}, fail]);
    fill(batch, outlet.put);
    let error: unknown;
    try {
      outlet.end();
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(TaskError);
    expect(error).toMatchObject({ task: 1, writing: true, cause: full });
  });
});
