// Types chosen by the errors of weights have to make a better model: llama.cpp computes the logits of the original, of the mixtures of
// llama-quantize, and of results of the same size. What counts is the divergence between the distributions of the next token.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { fitTypes, type ModelReport, measureTypes, quantizeModel } from '../../../web/src/model.js';
import { distributions, divergence, importanceOf, otherStory, story, type TokensOf } from '../support/divergence.js';
import { fileTypes, ggmlTypes, llamaQuantize } from '../support/llama.js';
import type { NativeModel } from '../support/llama-run.js';
import { madeUpLlama } from '../support/made-up-llama.js';
import { needNative } from '../support/native.js';
import { tinyLlama } from '../support/tiny-llama.js';

needNative();

const recipes = ['Q3_K_M', 'Q4_K_M', 'Q5_K_M'] as const;

/** The loss of a result without importance, as a table counts it: embeddings and the output layer eight times. */
const lossOf = ({ tensors }: ModelReport) =>
  tensors.reduce((sum, { name, error }) => {
    const weight = /^(token_embd|output)\.weight$/.test(name) ? 8 : 1;
    return sum + weight * (error?.relativeL2 ?? 0) ** 2;
  }, 0);

/** @param practice tokens that the importance matrix is made from */
async function compare(file: Uint8Array<ArrayBuffer>, tokensOf: TokensOf, practice: TokensOf) {
  const original = distributions(file, tokensOf);
  for (const importance of [undefined, await importanceOf(file, practice)]) {
    const table = await measureTypes(file, { to: 'auto', importance });
    for (const to of recipes) {
      const made = await quantizeModel(file, { to, importance, workers: 0 });
      const recipe = await made.bytes();
      const fit = fitTypes(table, { targetSize: recipe.length });
      const { to: base, rules } = fit;
      const fitted = await (
        await quantizeModel(file, { to: base as typeof to, rules, importance, workers: 0 })
      ).bytes();
      expect(fitted.length).toBeLessThanOrEqual(recipe.length);
      const [ours, theirs] = [fitted, recipe].map((bytes) => divergence(original, distributions(bytes, tokensOf)));
      expect(ours, to).toBeLessThan(theirs!);
      if (importance === undefined) expect(fit.error, to).toBeLessThan(lossOf(made.report));
    }
  }
}

it('gives rules from which llama-quantize makes the same file', async () => {
  const file = tinyLlama({ layers: 3, rows: 8 });
  const ids = new Map(ggmlTypes().map(({ name, id }) => [name.toUpperCase(), id]));
  for (const targetBitsPerWeight of [3.5, 4.5, 6]) {
    const { to, rules } = fitTypes(await measureTypes(file, { to: 'auto' }), { targetBitsPerWeight });
    const overrides = rules.map(({ match, to: type }) => [match as string, ids.get(type as string) as number] as const);
    const ours = await (await quantizeModel(file, { to: to as 'Q4_K_M', rules })).bytes();
    expect(llamaQuantize(file, fileTypes[to] as number, { overrides })).toEqual(ours);
  }
});

/** Ids of tokens in no particular order. */
const someTokens = (count: number, factor: number, range: number) =>
  Array.from({ length: count }, (_, i) => 3 + ((i * factor) % range));

it('diverges less than the mixtures of llama-quantize: made up', async () => {
  await compare(
    madeUpLlama(),
    () => someTokens(24, 7919, 500),
    () => someTokens(60, 6007, 500),
  );
});

const samples = process.env.SCALEPOINT_SAMPLES;

it.skipIf(samples === undefined)('diverges less than the mixtures of llama-quantize: TinyStories', async () => {
  const folder = join(samples as string, 'tinystories-656k');
  const model = await (await quantizeModel(folder, { to: 'F16', missingBytes: 'keep' })).bytes();
  const tokens = (text: string) => (native: NativeModel) => native.tokenize(text, { special: true });
  await compare(model, tokens(story), tokens(otherStory));
});

it.skipIf(samples === undefined)('diverges less than the mixtures of llama-quantize: sample model', async () => {
  const file = new Uint8Array(readFileSync(join(samples as string, 'tiny-llama-f16.gguf')));
  await compare(
    file,
    () => someTokens(32, 7919, 29),
    () => someTokens(60, 6007, 29),
  );
});
