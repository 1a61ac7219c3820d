// The logits that our own forward pass finds.

import { withModel } from '../../../web/src/convert/open.js';
import { judgedLanguage } from '../../../web/src/evaluate/evaluate.js';
import type { RunnableLanguage } from '../../../web/src/evaluate/forward.js';
import { withLanguage } from '../../../web/src/evaluate/language.js';

/** Logits behind each token of a text. @param file a GGUF file */
export async function ownLogits(
  file: Uint8Array<ArrayBuffer>,
  tokens: readonly number[],
  workers = 0,
): Promise<Float32Array[]> {
  return withModel(file, {}, (opened) =>
    withLanguage(opened, { workers }, async (model: RunnableLanguage) => {
      const judged = judgedLanguage(model);
      const take = await judged.prepare(Uint32Array.from(tokens), tokens.length, () => {}, {});
      const all = (await take(0, tokens.length)).slice();
      const n = judged.vocabulary;
      return tokens.map((_, t) => all.subarray(t * n, (t + 1) * n));
    }),
  );
}
