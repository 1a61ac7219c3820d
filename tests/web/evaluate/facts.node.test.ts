// The token in front of texts, by the rules of llama.cpp's loader.
import { expect, it } from 'vitest';
import { architectureFacts, families } from '../../../web/src/architectures/families/index.js';
import { languageArchitectures } from '../../../web/src/architectures/traits.js';
import { beginningOf, languageFacts } from '../../../web/src/evaluate/facts.js';

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

it('refuses counts that the tensors have no room for', () => {
  const values: Record<string, unknown> = {
    'general.architecture': 'llama',
    'llama.block_count': 2,
    'llama.embedding_length': 64,
    'llama.attention.head_count': 4,
    'llama.context_length': 1 << 20,
    'llama.attention.layer_norm_rms_epsilon': 1e-5,
  };
  const facts = (more: Record<string, unknown>) =>
    languageFacts((key) => ({ ...values, ...more })[key], undefined, 256);
  expect(facts({})).toMatchObject({ layers: 2, headSize: 16, context: 1 << 20 });
  for (const key of ['block_count', 'attention.key_length', 'rope.dimension_count', 'expert_count']) {
    expect(() => facts({ [`llama.${key}`]: 2 ** 31 - 2 })).toThrow(
      `llama.${key} is 2147483646, but the tensors have room for at most 256`,
    );
  }
});

it('has no first token where the usual one is beyond the vocabulary', () => {
  expect(beginningOf(ggml({ model: 'gpt2', add_bos_token: true }), 11)).toBeUndefined();
});

it('lists the architectures whose families have traits', () => {
  const withTraits = families.filter(({ traits }) => traits !== undefined).map(({ architecture }) => architecture);
  expect([...new Set(withTraits)].sort()).toEqual([...languageArchitectures].sort());
  for (const name of languageArchitectures) expect(architectureFacts(name).traits, name).toBeDefined();
});
