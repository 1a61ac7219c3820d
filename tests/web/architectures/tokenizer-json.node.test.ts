// The vocabulary of a GGUF file as a tokenizer.json: the tokens are those of the tokenizer.json that the file was made from.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { hasTokenizerJson, tokenizerJson } from '../../../web/src/architectures/tokenizer-json.js';
import { openSource } from '../../../web/src/formats/files/open.js';
import { readGguf } from '../../../web/src/formats/gguf/header.js';
import type { GgufKey } from '../../../web/src/formats/gguf/pairs.js';
import { evaluateModel } from '../../../web/src/model.js';
import { story, storyFolder, storyteller } from '../support/divergence.js';
import { vocabularyFile } from '../support/recipes.js';
import { convertTokenizer, encoderOf, type Json, needTokenizers, realTokenizer, texts } from '../support/tokenizers.js';

needTokenizers();

/** Tokens of some texts, and these texts made of their tokens. */
async function cut(tokenizer: Json, some: readonly string[], settings?: Json) {
  const encoder = (await encoderOf(tokenizer, settings)) as Awaited<ReturnType<typeof encoderOf>> & {
    decode(ids: readonly number[], options: { skip_special_tokens: boolean }): string;
  };
  return some.map((text) => {
    const { ids } = encoder.encode(text, { add_special_tokens: false });
    return { ids, text: encoder.decode(ids, { skip_special_tokens: true }) };
  });
}

/** The header of a file with these keys and no tensors. */
const headerOf = async (keys: readonly GgufKey[]) =>
  readGguf(await openSource(vocabularyFile({ architecture: 'llama', keys, notes: [], tensors: [] })));

const story42 = JSON.parse(readFileSync(`${storyFolder}/tokenizer.json`, 'utf8')) as Json;

describe('tokenizerJson', () => {
  it.each([
    ['llama2', realTokenizer('llama2').tokenizer, { size: 32000 }],
    ['qwen3', realTokenizer('qwen3').tokenizer, { size: 151936, architecture: 'qwen3' }],
    ['the storyteller', story42, { size: 768, missingBytes: 'keep' }],
  ] as const)('gives the tokens of %s', async (_, tokenizer, wish) => {
    const { keys } = await convertTokenizer({ 'tokenizer.json': tokenizer }, wish);
    const header = await headerOf(keys);
    expect(hasTokenizerJson(header)).toBe(true);
    const made = tokenizerJson(header) as Json;
    const some = [...texts, story];
    expect(await cut(made, some)).toEqual(await cut(tokenizer, some));
  });

  it('refuses other vocabularies by name', async () => {
    for (const [kind, pre, words] of [
      ['gpt2', 'some-new-one', 'the pre-tokenizer "some-new-one" is not known here'],
      ['rwkv', 'default', 'the vocabulary "rwkv" cannot be read here'],
      ['llama', 'default', 'the vocabulary has no tokens of single bytes'],
    ] as const) {
      const header = await headerOf([
        { name: 'tokenizer.ggml.model', type: 'string', value: kind },
        { name: 'tokenizer.ggml.pre', type: 'string', value: pre },
        { name: 'tokenizer.ggml.tokens', type: 'string[]', value: ['a'] },
      ]);
      expect(hasTokenizerJson(header)).toBe(false);
      expect(() => tokenizerJson(header)).toThrow(words);
    }
    const none = await headerOf([{ name: 'tokenizer.ggml.model', type: 'string', value: 'llama' }]);
    expect(hasTokenizerJson(none)).toBe(false);
    expect(tokenizerJson(none)).toBeUndefined();
  });

  it('knows the names that families give to pre-tokenizers', async () => {
    const pre = (name: string) =>
      headerOf([
        { name: 'tokenizer.ggml.model', type: 'string', value: 'gpt2' },
        { name: 'tokenizer.ggml.pre', type: 'string', value: name },
        { name: 'tokenizer.ggml.tokens', type: 'string[]', value: ['a'] },
      ]);
    for (const name of ['olmo', 'glm4', 'smaug-bpe', 'command-r', 'stablelm2', 'phi-2', 'falcon', 'tekken', 'gpt-4o']) {
      expect(hasTokenizerJson(await pre(name)), name).toBe(true);
    }
  });
});

describe('evaluateModel', () => {
  it('takes texts for a GGUF file alone', async () => {
    const file = await storyteller('F32');
    const { ids } = (await cut(story42, [story]))[0]!;
    // The text as characters has the first token of the model in front.
    const alone = await evaluateModel(file, { text: story, chunkSize: 32 });
    expect(alone).toEqual(await evaluateModel(file, { text: [1, ...ids], chunkSize: 32 }));
  });
});
