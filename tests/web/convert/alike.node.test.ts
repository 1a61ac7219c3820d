// Work that is done once for many similar tensors, and the order of the other steps.
import { describe, expect, it } from 'vitest';
import { InputReader, inputPartsOf } from '../../../web/src/convert/input-reader.js';
import { stepsOf } from '../../../web/src/convert/steps.js';
import type { EncodeTask } from '../../../web/src/convert/task.js';
import { TileConverter } from '../../../web/src/convert/tile-converter.js';
import { compileCore, instantiateCore } from '../../../web/src/core/load.js';
import { sumCount } from '../../../web/src/core/measure.js';
import type { FilePlan, MadeBytes } from '../../../web/src/formats/format.js';
import { reasons } from '../../../web/src/formats/reason.js';
import { keptTensor } from '../../../web/src/formats/tensors.js';

const [f32, f16] = [
  { codec: 'cast', to: 'F32' },
  { codec: 'cast', to: 'F16' },
];

/** A task that turns n floats, from a position of the file on, into float16. */
const cast = (begin: number, n: number, offset: number): EncodeTask => ({
  kind: 'encode',
  rows: 1,
  columns: n,
  inputs: [{ form: f32, parts: [{ role: 'data', file: 0, begin, bytes: 4 * n, count: 1, stride: 4 * n }] }],
  to: f16,
  outputs: [{ role: 'data', offset, bytes: 2 * n }],
  measures: true,
});

describe('tasks that are alike', () => {
  it('take one call of the core each, and give what each gives by itself', async () => {
    const core = await instantiateCore('core', await compileCore('core'));
    const file = new Uint8Array(Float32Array.from({ length: 400 }, (_, i) => Math.sin(i) * 10).buffer);
    const read = (_: number, begin: number, target: Uint8Array, from: number, to: number) => {
      target.set(file.subarray(begin, begin + to - from), from);
    };
    let calls = 0;
    const { models } = core;
    const { encodeCast } = models;
    models.encodeCast = (...args) => {
      calls++;
      return encodeCast(...args);
    };
    const converter = new TileConverter(core);
    const run = async (tasks: readonly EncodeTask[]) => {
      const inputs = new InputReader(read, () => false);
      await inputs.begin(tasks.flatMap(inputPartsOf));
      const output = new Uint8Array(800);
      const { sums, done } = await converter.run({ tasks, outputBytes: 800 }, inputs, (offset, bytes) => {
        output.set(bytes, offset);
      });
      expect(done).toBe(tasks.length);
      return { output, sums };
    };
    // Of 30 floats each, then of 20.
    const tasks = [0, 1, 2, 3, 4].map((i) => cast(120 * i, 30, 60 * i));
    const others = [0, 1, 2].map((i) => cast(600 + 80 * i, 20, 300 + 40 * i));
    const { output, sums } = await run([...tasks, ...others]);
    expect(calls).toBe(8);
    for (const [i, task] of [...tasks, ...others].entries()) {
      const [{ offset, bytes }] = task.outputs as [EncodeTask['outputs'][number]];
      const alone = await run([task]);
      expect(output.subarray(offset, offset + bytes)).toEqual(alone.output.subarray(offset, offset + bytes));
      expect(sums.subarray(sumCount * i, sumCount * (i + 1))).toEqual(alone.sums);
    }
    // In another batch they are still the same.
    calls = 0;
    await run(others);
    await run(others);
    expect(calls).toBe(6);
  });
});

describe('a long header', () => {
  const half = 1 << 19;
  const made = (pieces: number): MadeBytes => ({
    bytes: pieces * half,
    make: () => Array.from({ length: pieces }, () => new Uint8Array(half)),
  });
  const plan = (pieces: number): FilePlan => {
    const tensors = Array.from({ length: 1100 }, (_, i) =>
      keptTensor({ name: `${i}`, dtype: 'U8', shape: [4], bytes: 4, byteOffset: 4 * i, file: 0 }, reasons.rule),
    );
    const segments = tensors.map((_, tensor) => ({ at: pieces * half + 4 * tensor, tensor, role: 'data' }));
    const size = pieces * half + 4400;
    return {
      format: 'safetensors',
      files: [{ suffix: '', size, segments: [{ at: 0, made: made(pieces) }, ...segments] }],
      tensors,
      notes: [],
      sidecars: [],
    };
  };
  /** Indices of the steps that make bytes, and their positions. */
  const places = (pieces: number, sequential: boolean) =>
    [...stepsOf(plan(pieces), { sequential })].flatMap((step, i) =>
      step.kind === 'bytes' ? [[i, step.position]] : [],
    );

  it('does not hold up the tiles, but where positions are taken in order', () => {
    expect(places(4, false)).toEqual([
      [512, 0],
      [1025, half],
      [1102, 2 * half],
      [1103, 3 * half],
    ]);
    expect(places(4, true)).toEqual([0, 1, 2, 3].map((i) => [i, i * half]));
    expect(places(1, false)).toEqual([[0, 0]]);
  });
});
