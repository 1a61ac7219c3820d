// Values that float16 cannot hold, in onnxruntime-web beside the original.
import * as ort from 'onnxruntime-web';
import type { ModelTarget } from 'scalepoint/model';
import { describe, it } from 'vitest';
import { beyond, held } from './beyond.js';
import * as onnx from './encoder.js';
import { expectLike, type Feeds, make } from './ort.js';

/** Inputs: a mask of ones that ends early, and pictures, as named. */
async function feedsOf(file: Uint8Array): Promise<Feeds> {
  const session = await ort.InferenceSession.create(file.slice(), { logSeverityLevel: 4 });
  const entries = session.inputMetadata.map((input, i) => {
    if (!input.isTensor) throw new Error(`${input.name} is no tensor`);
    const shape = input.shape.map(Number);
    const n = shape.reduce((a, b) => a * b, 1);
    if (input.type === 'uint16') {
      return [
        input.name,
        new ort.Tensor(
          'uint16',
          Uint16Array.from({ length: n }, (_, j) => j * 455),
          shape,
        ),
      ] as const;
    }
    const values =
      input.name === 'mask' ? Float32Array.from({ length: n }, (_, j) => +(j % 48 < 40)) : onnx.weights(n, 100 + i, 1);
    return [input.name, new ort.Tensor('float32', values, shape)] as const;
  });
  await session.release();
  return Object.fromEntries(entries);
}

const all = { ...Object.fromEntries(Object.entries(beyond).map(([what, { file }]) => [what, file])), ...held };

describe.each(['fp16', 'q4f16'] as const)('as %s', (to: ModelTarget) => {
  it.each(Object.entries(all))('%s', async (what, file) => {
    const feeds = await feedsOf(file);
    // Weights of 4 bits err by 5 to 10 percent each, which two products add up. What is not finite has no cosine.
    await expectLike(file, (await make(file, { to })).made, to === 'fp16' ? 0.9999 : 0.95, { feeds, what });
  });
});
