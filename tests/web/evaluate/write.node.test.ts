// A language model that reads a text token by token: its logits are those of all tokens together.
import { describe, expect, it } from 'vitest';
import { withModel } from '../../../web/src/convert/open.js';
import { statesOf } from '../../../web/src/evaluate/evaluate.js';
import { languageFacts } from '../../../web/src/evaluate/facts.js';
import { LanguageForward } from '../../../web/src/evaluate/forward.js';
import { withLanguage } from '../../../web/src/evaluate/language.js';
import { withLayerWorkers } from '../../../web/src/evaluate/layer-workers.js';
import { withReader } from '../../../web/src/evaluate/write.js';
import { quantizeModel } from '../../../web/src/model.js';
import { madeUp, storyFolder, storyteller } from '../support/divergence.js';
import { drawn } from '../support/tokens.js';

const models = [
  ['a made-up model', async () => madeUp(), []],
  ['the storyteller, as a GGUF file', () => storyteller('F32'), [2]],
  [
    'the storyteller in four bits',
    async () => (await quantizeModel(await storyteller('F32'), { to: 'Q4_0' })).bytes(),
    [2],
  ],
  ['the storyteller, as a folder', async () => storyFolder, [2]],
] as const;

/** The most likely token behind each token of a text, by a pass over all of them. */
async function followers(file: Uint8Array<ArrayBuffer> | string, ids: Uint32Array): Promise<number[]> {
  return withModel(file, {}, (opened) =>
    withLanguage(opened, { workers: 0 }, async (model) => {
      const states = await statesOf(model, ids, ids.length, { onTokens: () => {} });
      const logits = await model.forward.logits(states);
      const { vocabulary } = model.forward;
      return Array.from(ids, (_, token) => {
        const row = logits.subarray(token * vocabulary, (token + 1) * vocabulary);
        return row.indexOf(row.reduce((a, b) => Math.max(a, b)));
      });
    }),
  );
}

describe('a reader', () => {
  it.each(models)('writes what passes over the whole text give, with %s', async (_, make, theirEnds) => {
    const file = await make();
    const begin = [1, ...drawn(20)];
    for (const workers of [0, 1] as const) {
      const shares: number[] = [];
      const written = await withReader(
        file,
        { room: 64, workers, onProgress: (share) => shares.push(share) },
        async ({ read, context, ends }) => {
          expect(context).toBeGreaterThanOrEqual(64);
          expect(ends).toEqual(theirEnds);
          const text = [...begin];
          let [next] = await read(begin, 0, 1);
          while (text.length < 60) {
            text.push(next as number);
            [next] = await read([next as number], text.length - 1, 1);
          }
          // Go back to the beginning, and read the same text at once.
          const again = await read(text.slice(10), 10, 30);
          expect([...again.subarray(0, 29)]).toEqual(text.slice(31, 60));
          return text;
        },
      );
      expect(shares.at(-1)).toBe(1);
      expect(shares).toEqual([...shares].sort((a, b) => a - b));
      const all = await followers(file, Uint32Array.from(written));
      expect(written.slice(begin.length)).toEqual(all.slice(begin.length - 1, -1));
    }
  });

  it('refuses texts beyond its room', async () => {
    const read = withReader(madeUp(), { room: 8, workers: 0 }, (reader) => reader.read(drawn(9), 0, 1));
    await expect(read).rejects.toThrow('there is room for 8 tokens, and 9 are read');
  });

  it.each([
    ['weights that fit into no memory', {}, 'OUT_OF_MEMORY', 'the weights take 8.6 GB as floats'],
    [
      'experts',
      { 'llama.expert_count': 8, 'llama.expert_used_count': 2 },
      'UNKNOWN_FORMAT',
      'llama models with experts',
    ],
  ])('refuses %s before it reads any', async (_, more, code, words) => {
    const metadata: Readonly<Record<string, unknown>> = {
      ...{ 'general.architecture': 'llama', 'llama.block_count': 2, 'llama.embedding_length': 4096 },
      ...{ 'llama.attention.head_count': 32, 'llama.attention.layer_norm_rms_epsilon': 1e-5 },
      ...{ 'llama.context_length': 2048, ...more },
    };
    const tensors = {
      has: (name: string) => !/norm|qkv|bias|gate_inp/.test(name),
      // Two layers of seven matrices, and the head.
      size: () => [35000, 4096] as const,
      read: () => Promise.reject(new Error('nothing is read')),
    };
    await withLayerWorkers(0, {}, async (workers) => {
      const forward = new LanguageForward(
        workers,
        languageFacts((key) => metadata[key]),
        tensors,
      );
      const held = forward.hold(() => {});
      await expect(held).rejects.toMatchObject({ code, message: expect.stringContaining(words) as string });
    });
  });
});
