// The card of a repository, as the hub reads its metadata.
import { describe, expect, it } from 'vitest';
import { cardText, factsOfCard } from '../../../web/src/hub/card.js';

const commit = '0123456789abcdef0123456789abcdef01234567';
const result = (file: string) => ({ file, type: 'Q4_0', bytes: 1000 });
const metadata = (text: string) => (/^---\n([\s\S]*?)\n---\n/.exec(text)?.[1] ?? '').split('\n');

describe('cardText', () => {
  it('quotes what YAML would take for something else, and keeps hostile texts in their place', () => {
    const card = {
      license: 'other',
      license_name: 'a: b\n- c',
      license_link: 'https://a.b/c?d=e',
      language: ['no', 'pt-BR', '1'],
    };
    const lines = metadata(
      cardText('me/tiny', { source: { id: 'acme/tiny', commit, card }, results: [result('a.gguf')] }),
    );
    expect(lines.slice(0, 9)).toEqual([
      'license: other',
      'license_name: "a: b\\n- c"',
      'license_link: "https://a.b/c?d=e"',
      'language:',
      '- "no"',
      '- pt-BR',
      '- "1"',
      'base_model: acme/tiny',
      'base_model_relation: quantized',
    ]);
    const name = 'a --> b | c <!-- d.gguf';
    const text = cardText('me/tiny', { results: [result(name)] });
    expect(text.split('-->').length).toBe(3);
    expect(text).toContain('| a --> b \\| c \\<!-- d.gguf |');
    expect(factsOfCard(text)?.results).toEqual([result(name)]);
  });

  it('says nothing of a source that is not known', () => {
    const text = cardText('me/tiny', { results: [result('a.gguf')] });
    expect(metadata(text)).toEqual(['tags:', '- quantized', '- scalepoint']);
    expect(text).toMatch(/\n# tiny\n\nMade by Scalepoint [\d.]+\.\n/);
  });

  it('keeps results and the source of the card before, and replaces those of the same name', () => {
    const source = { id: 'acme/tiny', commit, card: { license: 'mit', other: 'x'.repeat(1000) } };
    const first = cardText('me/tiny', { source, results: [result('a.gguf'), result('b.gguf')] });
    expect(first).not.toContain('xxx');
    const second = { ...result('b.gguf'), bytes: 2000 };
    const text = cardText('me/tiny', { results: [second] }, factsOfCard(first));
    expect(factsOfCard(text)).toEqual({
      source: { id: 'acme/tiny', commit, card: { license: 'mit' } },
      results: [result('a.gguf'), second],
    });
    expect(text).toContain('license: mit\n');
  });
});

it('takes no README of somebody else for a card', () => {
  for (const text of [
    '',
    '# Mine',
    '<!-- made by scalepoint: {"results": 1} -->',
    '<!-- made by scalepoint: not JSON -->',
  ])
    expect(factsOfCard(text)).toBe(undefined);
});
