// An encoder that is trained here: codes that pass errors on lose less of its outputs on texts that its statistics have not seen.
import { load } from 'scalepoint';
import { calibrateModel, type ModelStatistics, quantizeModel } from 'scalepoint/model';
import { beforeAll, describe, expect, it } from 'vitest';
import { taggedTexts } from '../../../support/tagged-texts.mjs';
import { inputsOf, logitsOf, taggerModel, teachTagger } from '../../../support/tagger.mjs';

// One of 4 layers, 256 wide, takes minutes: tests/bench/teach_encoder.mjs.
const sizes = { layers: 2, width: 64, inner: 128, heads: 4, length: 32 };
const others = taggedTexts({ count: 64, length: sizes.length, seed: 900 });

let model: Uint8Array<ArrayBuffer>;
let data: ModelStatistics;
let expected: Float32Array;
const losses: number[] = [];
beforeAll(async () => {
  const onStep = (_: number, loss: number) => losses.push(loss);
  model = taggerModel(teachTagger(await load(), sizes, { steps: 60, texts: 16, rate: 3e-3, seed: 1, onStep }), sizes);
  const seen = taggedTexts({ count: 128, length: sizes.length, seed: 901 });
  data = await calibrateModel(model, [inputsOf(seen)], { moments: true });
  expected = await logitsOf(model, others);
});

describe('an encoder', () => {
  it('learns', () => {
    expect(losses.at(-1)).toBeLessThan(0.4 * (losses[0] as number));
  });

  it.each(['q4', 'q2', 'q8-blocks', 'int4-weights', 'int8-weights'] as const)('loses less as %s', async (to) => {
    const errorOf = async (options: object) => {
      const made = await quantizeModel(model, { to, rules: [{ match: '^embeddings', keep: true }], ...options });
      const logits = await logitsOf(await made.bytes(), others);
      return logits.reduce((sum, v, i) => sum + (v - (expected[i] as number)) ** 2, 0);
    };
    const mse = await errorOf({ range: 'mse' });
    expect(await errorOf({ method: 'gptq', moments: data })).toBeLessThan(0.7 * mse);
  });
});
