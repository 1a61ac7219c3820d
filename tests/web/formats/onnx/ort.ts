// Runs models in onnxruntime-web.
import * as ort from 'onnxruntime-web';
import { type PlanOptions, planModel, quantizeModel } from 'scalepoint/model';
import { expect } from 'vitest';
import * as onnx from './encoder.js';

/** The part of a build of onnxruntime that tests use. */
export type Engine = Pick<typeof ort, 'InferenceSession'>;

ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

export type Feeds = Readonly<Record<string, ort.Tensor>>;

/** Inputs for a model, always the same. Unknown dimensions are 3; int64 inputs count up. */
export function feedsFor(session: ort.InferenceSession): Feeds {
  const entries = session.inputMetadata.map((input, i) => {
    if (!input.isTensor) throw new Error(`${input.name} is no tensor`);
    const shape = input.shape.map((dimension) => (typeof dimension === 'number' ? dimension : 3));
    const n = shape.reduce((a, b) => a * b, 1);
    if (input.type === 'int64') {
      return [
        input.name,
        new ort.Tensor(
          'int64',
          BigInt64Array.from({ length: n }, (_, j) => BigInt(j % 7)),
          shape,
        ),
      ] as const;
    }
    if (input.type === 'int32') return [input.name, new ort.Tensor('int32', new Int32Array(n).fill(1), shape)] as const;
    if (input.type === 'bool') return [input.name, new ort.Tensor('bool', new Uint8Array(n).fill(1), shape)] as const;
    return [input.name, new ort.Tensor('float32', onnx.weights(n, 100 + i, 1), shape)] as const;
  });
  return Object.fromEntries(entries);
}

/** Inputs for silero_vad, whose shapes its file does not tell: two tones. Of noise it makes states that jump. */
export const sileroFeeds: Feeds = {
  input: new ort.Tensor(
    'float32',
    Float32Array.from({ length: 512 }, (_, i) => 0.1 * Math.sin(i * 0.05) + 0.05 * Math.sin(i * 0.11)),
    [1, 512],
  ),
  state: new ort.Tensor('float32', new Float32Array(256), [2, 1, 128]),
  sr: new ort.Tensor('int64', BigInt64Array.of(16000n), []),
};

/** The outputs of a model. */
export async function run(
  file: Uint8Array,
  level: 'disabled' | 'all' = 'all',
  feeds?: Feeds,
  engine: Engine = ort,
): Promise<Readonly<Record<string, Float32Array>>> {
  const session = await engine.InferenceSession.create(file.slice(), {
    graphOptimizationLevel: level,
    logSeverityLevel: 3,
  });
  try {
    const outputs = await session.run(feeds ?? feedsFor(session));
    const floats = Object.entries(outputs).filter(([, { type }]) => type === 'float32');
    return Object.fromEntries(floats.map(([name, { data }]) => [name, Float32Array.from(data as Float32Array)]));
  } finally {
    await session.release();
  }
}

export function cosine(a: Float32Array, b: Float32Array): number {
  let [ab, aa, bb] = [0, 0, 0];
  for (const [i, x] of a.entries()) {
    const y = b[i] as number;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return ab / Math.sqrt(aa * bb);
}

/** A result, whose size is that of its plan. */
export async function make(file: Uint8Array, options: PlanOptions) {
  const { report, bytes } = await quantizeModel(file, { workers: 0, ...options });
  const made = await bytes();
  expect(made.length).toBe((await planModel(file, options)).totals.bytesAfter);
  return { report, made };
}

export const levels = ['disabled', 'all'] as const;

/**
 * Fails unless a result gives nearly what its model gives, with onnxruntime's optimizer and without it.
 * @param least the least cosine of an output
 */
export async function expectLike(
  file: Uint8Array,
  made: Uint8Array,
  least: number,
  { feeds, what = '', engines = [ort] }: { feeds?: Feeds | undefined; what?: string; engines?: readonly Engine[] } = {},
): Promise<void> {
  for (const engine of engines) {
    for (const level of levels) {
      const [before, after] = [await run(file, level, feeds, engine), await run(made, level, feeds, engine)];
      expect(Object.keys(after), what).toEqual(Object.keys(before));
      for (const [name, output] of Object.entries(before)) {
        const got = after[name] as Float32Array;
        const closeness = output.every((x) => x === 0) ? Number(got.every((x) => x === 0)) : cosine(output, got);
        expect(closeness, `${what} ${level} ${name}`).toBeGreaterThan(least);
      }
    }
  }
}

/** The largest difference, as a share of the largest value. */
export function difference(a: Float32Array, b: Float32Array): number {
  const largest = a.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return a.reduce((most, x, i) => Math.max(most, Math.abs(x - (b[i] as number))), 0) / largest;
}
