// Batches in messages to workers: few objects, and the same tasks on the other side.
import { describe, expect, it } from 'vitest';
import type { Batch, EncodeTask, InputPart, TileTask } from '../../../web/src/convert/task.js';
import { packBatch, unpackBatch } from '../../../web/src/convert/tile-jobs.js';

const [f32, bf16, to] = [
  { codec: 'cast', to: 'F32' },
  { codec: 'cast', to: 'BF16' },
  { codec: 'compressed-tensors', bits: 8 },
];

const part = (begin: number, more: Partial<InputPart> = {}): InputPart => {
  return { role: 'data', file: 0, begin, bytes: 64, count: 1, stride: 64, ...more };
};

const encode = (i: number, more: Partial<EncodeTask> = {}): EncodeTask => ({
  kind: 'encode',
  rows: 4,
  columns: 16,
  inputs: [{ form: f32, parts: [part(1000 * i)] }],
  to,
  outputs: [
    { role: 'data', offset: 72 * i, bytes: 64 },
    { role: 'scale', offset: 72 * i + 64, bytes: 8 },
  ],
  measures: true,
  ...more,
});

/** The batch that a worker receives. */
const sent = (batch: Batch) => unpackBatch(structuredClone(packBatch(batch)));
const batchOf = (tasks: TileTask[]): Batch => ({ tasks, outputBytes: 72 * tasks.length, writes: undefined });

describe('a batch that is sent', () => {
  it('is the same on the other side, with any tasks', () => {
    const strides = [part(5, { bytes: 3, count: 4, stride: 9 })];
    const rows = { rows: 4, columns: 16 };
    const tasks: TileTask[] = [
      encode(0),
      encode(1),
      // One difference each.
      encode(2, { rows: 8 }),
      encode(3, { columns: 8 }),
      encode(4, { measures: false }),
      encode(5, { to: { codec: 'cast' } }),
      encode(6, { ranges: Float32Array.of(-1, 2) }),
      encode(7, { ranges: Float32Array.of(-3, 4) }),
      encode(8, { inputs: [{ form: bf16, parts: [part(8)] }] }),
      encode(9, { inputs: [{ form: f32, parts: [] }] }),
      encode(10, { inputs: [{ form: f32, parts: strides }] }),
      encode(11, { inputs: [{ form: f32, parts: [part(11, { file: 1 })] }] }),
      encode(12, { inputs: [{ form: f32, parts: [part(12, { role: 'scale' })] }] }),
      encode(13, { outputs: [{ role: 'scale', offset: 7, bytes: 8 }] }),
      encode(14, { outputs: [{ role: 'scale', offset: 9, bytes: 7 }] }),
      encode(15, { refuses: 'nonFinite' }),
      encode(16, { refuses: 'nan', ranges: Float32Array.of(-5, 6) }),
      encode(17, { pieceRows: 2 }),
      { kind: 'range', ...rows, inputs: [{ form: f32, parts: [part(1)] }] },
      { kind: 'range', ...rows, inputs: [{ form: f32, parts: [part(2)] }] },
      { kind: 'sets', ...rows, inputs: [{ form: f32, parts: [part(3)] }], to },
      {
        kind: 'compare',
        ...rows,
        inputs: [
          { form: f32, parts: [part(4)] },
          { form: to, parts: [part(5), part(2 ** 40 + 1, { role: 'scale' })] },
        ],
      },
      encode(18),
    ];
    const batch = { ...batchOf(tasks), writes: Float64Array.of(0, 2 ** 40 + 3, 0, 72) };
    expect(sent(batch)).toEqual(batch);
    // The same for each task alone.
    for (const task of tasks) expect(sent(batchOf([task]))).toEqual(batchOf([task]));
  });

  it('is one task and numbers if its tasks are alike, and two tasks if every second one is', () => {
    const alike = Array.from({ length: 256 }, (_, i) => encode(i));
    expect(packBatch(batchOf(alike)).examples).toHaveLength(1);
    expect(sent(batchOf(alike)).tasks).toEqual(alike);
    const inTurns = alike.map((task, i) => (i % 2 === 0 ? task : { ...task, rows: 2 }));
    expect(packBatch(batchOf(inTurns)).examples).toHaveLength(2);
    expect(sent(batchOf(inTurns)).tasks).toEqual(inTurns);
  });

  it('sends ranges once if consecutive tasks share them, also in later batches', () => {
    const all = Float32Array.from({ length: 40 }, (_, i) => i);
    const [first, second] = [all.subarray(0, 30), all.subarray(30)];
    const shared = (ranges: Float32Array<ArrayBuffer>) => encode(0, { ranges });
    const batches = [
      [shared(first), shared(all.subarray(0, 30)), shared(second)],
      [shared(second), encode(1)],
      [shared(second), shared(first), shared(Float32Array.from(first)), shared(all.subarray(0, 29))],
    ].map(batchOf);
    const [here, there] = [{}, {}];
    const packed = batches.map((batch) => packBatch(batch, here));
    const sizes = packed.map(({ examples }) =>
      examples.map((task) => (task.kind === 'encode' ? task.ranges?.length : undefined)),
    );
    expect(sizes).toEqual([
      [30, undefined, 10],
      [undefined, undefined],
      [undefined, 30, 30, 29],
    ]);
    expect(packed.map((one) => unpackBatch(structuredClone(one), there))).toEqual(batches);
  });
});
