// GGUF results with search: 'best': every reader takes them, and the outputs of a model come closer to the original.
import { describe, expect, it } from 'vitest';
import {
  inspectModel,
  measureTypes,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
} from '../../../../web/src/model.js';
import { distributions, divergence, story, storyteller } from '../../support/divergence.js';
import { activationsOf, matrixFile } from '../../support/importance.js';
import { llamaQuantize } from '../../support/llama.js';
import { needNative } from '../../support/native.js';
import { tinyLlama } from '../../support/tiny-llama.js';

needNative();

const file = tinyLlama({ layers: 1, rows: 2 });

it.each(['Q5_1', 'Q8_0', 'IQ4_XS', 'Q2_K', 'Q3_K_M', 'Q4_K_M'] as const)(
  'has lower errors in the same types and bytes, which llama.cpp reads: %s',
  async (to) => {
    const importance = matrixFile(activationsOf((await inspectModel(file)).tensors));
    for (const options of [{}, { importance }]) {
      const [usual, best] = await Promise.all(
        (['usual', 'best'] as const).map((search) => quantizeModel(file, { to, search, workers: 0, ...options })),
      );
      const [before, after] = [usual!.report, best!.report];
      let [least, most] = [0, 0];
      for (const [i, { error, to: type, name }] of after.tensors.entries()) {
        expect(type, name).toBe(before.tensors[i]!.to);
        if (error === undefined) continue;
        const key = error.weightedL2 === undefined ? 'relativeL2' : 'weightedL2';
        expect(error[key], name).toBeLessThanOrEqual(before.tensors[i]!.error![key]!);
        [least, most] = [least + error[key]!, most + before.tensors[i]!.error![key]!];
      }
      expect(least).toBeLessThan(most);
      const bytes = await best!.bytes();
      expect(bytes.length).toBe((await usual!.bytes()).length);
      expect(bytes).not.toEqual(await usual!.bytes());
      // Native code reads every block, and refuses those that are damaged.
      expect(llamaQuantize(bytes, 1, { requantize: true })).toBeInstanceOf(Uint8Array);
    }
  },
);

it('gives the same with any workers', async () => {
  const [here, there] = await Promise.all(
    [0, 2].map(async (workers) => (await quantizeModel(file, { to: 'Q4_K_M', search: 'best', workers })).bytes()),
  );
  expect(here).toEqual(there);
});

it('is the usual one unless it is asked for', async () => {
  const [plain, usual] = await Promise.all(
    [{}, { search: 'usual' as const }].map(async (options) =>
      (await quantizeModel(file, { to: 'Q4_K_M', workers: 0, ...options })).bytes(),
    ),
  );
  expect(plain).toEqual(usual);
});

it('is refused for types without a search, and noted where others are mixed in', async () => {
  const refused = (options: object) => expect(planModel(file, options as QuantizeModelOptions)).rejects;
  for (const to of ['F16', 'TQ1_0', 'Q1_0', 'copy'])
    await refused({ to, search: 'best' }).toMatchObject({ option: 'search' });
  await refused({ to: 'Q4_0', search: 'fast' }).toMatchObject({
    option: 'search',
    message: expect.stringContaining("'best'"),
  });
  const { notes } = await planModel(file, { to: 'Q4_K_M', search: 'best', rules: [{ match: /ffn_up/, to: 'TQ2_0' }] });
  expect(notes).toMatchObject([{ kind: 'noBetterSearch', types: ['TQ2_0'], text: expect.stringContaining('TQ2_0') }]);
  expect((await planModel(file, { to: 'Q4_K_M', search: 'best' })).notes).toEqual([]);
});

it('counts when types are chosen for a size', async () => {
  const [usual, best] = await Promise.all(
    (['usual', 'best'] as const).map((search) => measureTypes(file, { to: 'auto', search, workers: 0 })),
  );
  const q4 = (table: typeof usual) => table!.tensors.at(-1)!.types.find(({ to }) => to === 'Q4_K')!;
  expect(q4(best)).toMatchObject({ bytes: q4(usual).bytes });
  expect(q4(best).error).toBeLessThan(q4(usual).error);
});

describe('the outputs of the storyteller', () => {
  // Of one model and text, the divergence is off by several percent by chance; these types gain more than that (guide, Formats).
  it.each(['Q4_1', 'Q5_1', 'Q8_0'] as const)('come closer to the original: %s', async (to) => {
    const original = await storyteller();
    const tokens = (model: Parameters<Parameters<typeof distributions>[1]>[0]) =>
      model.tokenize(story, { special: true });
    const expected = distributions(original, tokens);
    const [usual, best] = await Promise.all(
      (['usual', 'best'] as const).map(async (search) => {
        const made = await (await quantizeModel(original, { to, pure: true, search, workers: 0 })).bytes();
        return divergence(expected, distributions(made, tokens));
      }),
    );
    expect(best!).toBeLessThan(usual!);
  });
});
