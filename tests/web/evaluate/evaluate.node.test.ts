// Logits, perplexity and divergence of language models, against llama.cpp's.
import { describe, expect, it } from 'vitest';
import { evaluateModel, quantizeModel } from '../../../web/src/model.js';
import { distributions, divergence, madeUp, story, storyFolder, storyteller } from '../support/divergence.js';
import { NativeModel } from '../support/llama-run.js';
import { needNative } from '../support/native.js';
import { drawn } from '../support/tokens.js';

needNative();

const models = [
  ['made up', async () => madeUp()],
  ['the storyteller', () => storyteller('F32')],
] as const;

/** -log of the probability of each token that counts in a chunk, and its distributions. */
function judged(file: Uint8Array<ArrayBuffer>, ids: Uint32Array, chunkSize: number) {
  const losses: number[] = [];
  const rows: Float64Array[] = [];
  for (let at = 0; at + chunkSize <= ids.length; at += chunkSize) {
    // Both models add the token 1 in front.
    const chunk = [1, ...ids.subarray(at + 1, at + chunkSize)];
    const all = distributions(file, () => chunk);
    for (let i = Math.floor(chunkSize / 2); i + 1 < chunkSize; i++) {
      losses.push(-(all[i] as Float64Array)[chunk[i + 1] as number]!);
      rows.push(all[i] as Float64Array);
    }
  }
  return { losses, rows };
}

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;

describe('evaluateModel', () => {
  it.each(models)('gives the perplexity that llama.cpp computes, of %s', async (_, make) => {
    const file = await make();
    for (const [n, chunkSize] of [
      [64, 64],
      [150, 32],
      [40, 5],
    ] as const) {
      const ids = drawn(n);
      const found = await evaluateModel(file, { text: ids, chunkSize });
      const { losses } = judged(file, ids, chunkSize);
      expect(found.counted).toBe(losses.length);
      expect(found.chunks).toBe(Math.floor(n / chunkSize));
      const average = mean(losses);
      // Sums of llama.cpp are in float32 and in another order.
      expect(Math.abs(Math.log(found.perplexity.value) - average)).toBeLessThan(1e-3);
      const spread = Math.sqrt(mean(losses.map((loss) => (loss - average) ** 2)) / (losses.length - 1));
      expect(Math.abs(found.perplexity.error / (found.perplexity.value * spread) - 1)).toBeLessThan(1e-2);
    }
  });

  it.each(models)('measures how far quantized models are from %s', async (_, make) => {
    const file = await make();
    const ids = drawn(128);
    const original = judged(file, ids, 64);
    for (const to of ['Q8_0', 'Q4_0', 'Q4_K_M'] as const) {
      const bytes = await (await quantizeModel(file, { to, workers: 0 })).bytes();
      const found = await evaluateModel(bytes, { reference: file, text: ids, chunkSize: 64 });
      // llama.cpp rounds activations to 8 bits where it multiplies blocks; ours stay floats. So restore the weights for it.
      const restored = await (await quantizeModel(bytes, { to: 'F32', requantize: true, workers: 0 })).bytes();
      const theirs = judged(restored, ids, 64);
      const expected = divergence(original.rows, theirs.rows);
      // llama.cpp keeps keys and values in float16, which moves logits by some 2^-11. A divergence is about d² / 2 for logits that differ by
      // d, so that it moves by 2^-11 d.
      expect(Math.abs((found.kl?.value as number) - expected)).toBeLessThan(2 ** -11 * Math.sqrt(2 * expected) + 1e-6);
      const same = original.rows.filter((row, t) => {
        const top = (values: Float64Array) => values.indexOf(values.reduce((a, b) => Math.max(a, b)));
        return top(row) === top(theirs.rows[t] as Float64Array);
      }).length;
      expect(found.sameTop?.value).toBeCloseTo(same / original.rows.length, 6);
      expect(found.kl!.max).toBeGreaterThanOrEqual(found.kl!.percentile99);
      expect(found.kl!.percentile99).toBeGreaterThanOrEqual(found.kl!.median);
      expect(found.logDifference!.value).toBeCloseTo(
        Math.log(found.perplexity.value / found.referencePerplexity!.value),
        9,
      );
    }
  });

  it('turns texts into tokens by the tokenizer of the folder', async () => {
    const folder = storyFolder;
    const file = await storyteller();
    using native = new NativeModel(file);
    const words = native.tokenize(story);
    // The model's first token stands in front.
    const ids = Uint32Array.of(1, ...words);
    const byText = await evaluateModel(folder, { text: story, chunkSize: 32 });
    expect(byText).toEqual(await evaluateModel(folder, { text: ids, chunkSize: 32 }));
    const several = await evaluateModel(folder, { text: [story, ids], chunkSize: 32 });
    expect(several).toEqual(await evaluateModel(folder, { text: Uint32Array.of(...ids, ...ids), chunkSize: 32 }));
    const own = { encode: () => words };
    expect(
      await evaluateModel(file, { text: 'anything', tokenizer: own, reference: folder, chunkSize: 32 }),
    ).toMatchObject({
      tokens: byText.tokens,
      referencePerplexity: byText.perplexity,
    });
    await expect(evaluateModel(madeUp(), { text: story })).rejects.toMatchObject({ code: 'UNKNOWN_FORMAT' });
  });

  it('finds no divergence from itself', async () => {
    const file = madeUp();
    const found = await evaluateModel(file, { reference: file, text: drawn(32) });
    expect(found.kl).toMatchObject({ value: 0, max: 0 });
    expect(found.sameTop?.value).toBe(1);
  });
});
