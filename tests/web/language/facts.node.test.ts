// The token in front of texts, by the rules of llama.cpp's loader.
import { expect, it } from 'vitest';
import { beginningOf } from '../../../web/src/language/facts.js';

const ggml = (values: Record<string, unknown>) => (key: string) => values[key.replace('tokenizer.ggml.', '')];

it.each<[values: Record<string, unknown>, expected: number | undefined]>([
  [{ model: 'llama' }, 1],
  [{ model: 'llama', bos_token_id: 2 }, 2],
  [{ model: 'llama', bos_token_id: 100 }, 1],
  [{ model: 'llama', add_bos_token: false }, undefined],
  [{ model: 'gpt2' }, undefined],
  [{ model: 'gpt2', bos_token_id: 5 }, undefined],
  [{ model: 'gpt2', add_bos_token: true }, 11],
  [{ model: 'gpt2', add_bos_token: true, bos_token_id: 5 }, 5],
  [{ model: 'gpt2', pre: 'llama-bpe', bos_token_id: 5 }, 5],
  [{ model: 'gpt2', pre: 'tekken', bos_token_id: 5 }, 5],
  [{ model: 'gpt2', pre: 'qwen2', bos_token_id: 5 }, undefined],
  [{ model: 'gpt2', pre: 'llama-bpe', bos_token_id: 5, add_bos_token: false }, undefined],
  [{ model: 'other', pre: 'llama-bpe' }, undefined],
  [{}, undefined],
])('begins texts of %j with %s', (values, expected) => {
  expect(beginningOf(ggml(values), 100)).toBe(expected);
});

it('has no first token where the usual one is beyond the vocabulary', () => {
  expect(beginningOf(ggml({ model: 'gpt2', add_bos_token: true }), 11)).toBeUndefined();
});
