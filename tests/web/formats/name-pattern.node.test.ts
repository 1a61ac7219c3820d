// Regular expressions given as text. RegExp is the oracle for their meaning. Expressions that would keep RegExp busy for years have to end.
import fc from 'fast-check';
import { planModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { MatchingWork, NamePattern } from '../../../web/src/formats/name-pattern.js';
import { safetensors } from '../support/models.js';
import { thrownBy } from '../support/support.js';

const test = (source: string, name: string) => new NamePattern(source, 'match').test(name);

/** A text that is an expression in the syntax that both know. */
const { source } = fc.letrec<Record<'source' | 'sequence' | 'term' | 'atom', string>>((tie) => ({
  source: fc.array(tie('sequence'), { minLength: 1, maxLength: 3 }).map((all) => all.join('|')),
  sequence: fc.array(tie('term'), { maxLength: 4 }).map((all) => all.join('')),
  term: fc.oneof(
    { weight: 3, arbitrary: tie('atom') },
    fc.constantFrom('^', '$', '\\b', '\\B'),
    fc
      .tuple(
        tie('atom'),
        fc.constantFrom('*', '+', '?', '{2}', '{0}', '{1,}', '{0,2}', '{1,3}', '*?', '+?', '??', '{1,2}?'),
      )
      .map((both) => both.join('')),
  ),
  atom: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom(
      ...'ab.0_-',
      '\\.',
      '\\d',
      '\\w',
      '\\s',
      '\\D',
      '\\W',
      '\\S',
      '\\x61',
      '\\u0062',
      '\\n',
      '(?:\\0)',
      '\\cJ',
      '}',
      ']',
      '{,2}',
      'a{b',
      '\\/',
    ),
    fc.constantFrom(
      '[ab]',
      '[^a]',
      '[a-b0]',
      '[\\w-]',
      '[\\w-.]',
      '[^\\d.]',
      '[]',
      '[^]',
      '[\\b]',
      '[-a]',
      '[a-]',
      '[.\\]]',
      '[\\D0]',
      '[^\\W_]',
      '[+--]',
      '[a-b-0]',
    ),
    tie('source').map((inner) => `(${inner})`),
    tie('source').map((inner) => `(?:${inner})`),
    tie('source').map((inner) => `(?=${inner})`),
    tie('source').map((inner) => `(?!${inner})`),
  ),
}));
const name = fc.oneof(
  fc.string({ unit: fc.constantFrom(...'ab0._-'), maxLength: 8 }),
  fc.string({ unit: fc.constantFrom(...'ab0_ .\n\u2028\u00a0\ufeff\b\0{}]é😀'), maxLength: 8 }),
);

describe('an expression given as text', () => {
  it('finds the names that RegExp finds', () => {
    fc.assert(
      fc.property(source, fc.array(name, { minLength: 1, maxLength: 12 }), (text, names) => {
        const [own, oracle] = [new NamePattern(text, 'match'), new RegExp(text)];
        // Twice, as all positions are known the second time.
        const all = [...names, ...names];
        expect(all.filter((each) => own.test(each))).toEqual(all.filter((each) => oracle.test(each)));
      }),
      { numRuns: 3000 },
    );
  });

  it('is refused where RegExp refuses it', () => {
    const part = fc.constantFrom(...'ab0.^$|()[]{}*+?\\-,=!:<>dwsbBxuck1', '(?', '[^', '{1,2}', '(?=', '(?!', '(?:');
    fc.assert(
      fc.property(fc.array(part, { maxLength: 8 }), name, (parts, each) => {
        const text = parts.join('');
        let own: NamePattern;
        try {
          own = new NamePattern(text, 'match');
        } catch {
          return;
        }
        // Some expressions of RegExp are refused, but all that are accepted mean the same.
        expect(own.test(each)).toBe(new RegExp(text).test(each));
      }),
      { numRuns: 10_000 },
    );
  });

  it.each([
    '^blk\\.(0|1|7)\\.ffn_down\\.weight$',
    'model\\.layers\\.(1[0-9]|2\\d)\\.',
    '^(?!.*lm_head).*\\.weight$',
    '(attn|mlp)\\.(?:q|k|v)_proj',
    '\\bweight$',
    '(?<part>down|up)_proj',
  ])('finds names as in models: %s', (text) => {
    const names = [
      'blk.7.ffn_down.weight',
      'blk.17.ffn_down.weight',
      'model.layers.12.attn.q_proj.weight',
      'lm_head.weight',
      'model.layers.2.mlp.down_proj.bias',
      '',
    ];
    for (const each of names) expect([each, test(text, each)]).toEqual([each, new RegExp(text).test(each)]);
  });

  it.each([
    '(a+)+$',
    '^(a|a)*$',
    '^(a*)*$',
    '(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x!$',
    '^(?:(?:a?){30}){30}a$',
    '(?=(a+)+$)(?!(a|a)+$)b',
    '^(([a-z])+.)+[A-Z]([a-z])+$',
  ])('ends soon where RegExp backtracks: %s', (text) => {
    const pattern = new NamePattern(text, 'match');
    expect(pattern.test(`${'a'.repeat(50_000)}!`)).toBe(false);
    expect(pattern.test('b')).toBe(false);
  });

  it('keeps a bounded number of positions', () => {
    // Each name of letters a and b leads to other sets of states.
    const pattern = new NamePattern('^[ab]*a[ab]{14}$', 'match');
    for (let i = 0; i < 3000; i++) {
      const each = ((i * 2654435761) >>> 0).toString(2).replaceAll('0', 'a').replaceAll('1', 'b').padStart(32, 'a');
      expect(pattern.test(each)).toBe(each.at(-15) === 'a');
    }
  });

  it.each([
    ['(?<=a)b', /rules have no lookbehind \(\?<=$/],
    ['(?<!a)b', /rules have no lookbehind \(\?<!$/],
    ['(?i:a)', /rules have no groups like \(\?i:$/],
    ['(?P<x>a)', /rules have no groups like \(\?P<$/],
    ['(a)\\1', /rules have no references like \\1$/],
    ['(?<x>a)\\k<x>', /rules have no references like \\k$/],
    ['\\p{L}', /rules have no escape \\p$/],
    ['a\\', /a \\ at the end escapes nothing$/],
    ['(a', /a \( has no \)$/],
    ['a)', /a \) has no \($/],
    ['[a', /a \[ has no \]$/],
    ['[a-', /a \[ has no \]$/],
    ['a**', /nothing to repeat$/],
    ['^*', /nothing to repeat$/],
    ['{2}', /nothing to repeat$/],
    ['a{2,1}', /out of order$/],
    ['[b-a]', /out of order$/],
    ['((a{100}){100}){100}', /more than 50000 states$/],
    ['(){999999999999}', /more than 50000 states$/],
  ])('is refused by name: %s', (text, message) => {
    const error = thrownBy(() => new NamePattern(text, 'rules[0].match'));
    expect(error).toMatchObject({ name: 'RangeError', option: 'rules[0].match', problem: { got: text } });
    expect((error as Error).message).toMatch(message);
  });

  it('is refused if its groups are inside each other by the hundreds', () => {
    for (const open of ['(', '(?=']) {
      const text = open.repeat(300) + ')'.repeat(300);
      const error = thrownBy(() => new NamePattern(text, 'match')) as Error;
      expect(error.message).toMatch(/more than 250 groups/);
      expect(test(open.repeat(200) + ')'.repeat(200), 'a')).toBe(true);
    }
  });
});

it('is matched in a bounded number of steps, together with others', async () => {
  const names = Array.from({ length: 100 }, (_, i) => `layers.${i}.weight`);
  const work = new MatchingWork();
  work.addStates(2 ** 20 - 300);
  expect(work.visit(2 ** 23 - 5000)).toBe(true);
  // Each position of a name has another set of states.
  const hard = new NamePattern('^(a|b){90}a(a|b)*\\d*$', 'rules[3].match', work);
  const letters = Array.from({ length: 80 }, (_, i) => 'ab'[((i * i) % 7) & 1]).join('');
  expect(() => hard.test(letters)).toThrow(/^rules\[3\]\.match: .*it takes more than 8388608 steps to match the names/);
  expect(() => new NamePattern('a{99}', 'match', work)).toThrow(/with those before, it has more than 1048576 states/);
  // A fit has a rule for each of many tensors, which take few steps.
  const file = safetensors(
    Object.fromEntries(names.map((name) => [name, { dtype: 'F32', shape: [1], data: new Float32Array(1) }])),
  );
  const exact = names.map((name) => ({ match: `^${name.replaceAll('.', '\\.')}$`, keep: true as const }));
  expect((await planModel(file, { to: 'int8', rules: exact })).tensors).toHaveLength(names.length);
});
