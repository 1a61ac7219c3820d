// The first mistake in a JSON text. JSON.parse decides whether there is one.
import { describe, expect, it } from 'vitest';
import { whyNoJson } from '../../../../web/src/formats/files/json.js';

const cases: readonly (readonly [text: string, why: string])[] = [
  ['', 'line 1, column 1: expected a value, got the end'],
  [' \n ', 'line 2, column 2: expected a value, got the end'],
  ['{', 'line 1, column 2: expected a key in double quotes, got the end'],
  ['{"a": 1,}', "line 1, column 9: expected a key in double quotes, got '}'"],
  ["{'a': 1}", "line 1, column 2: expected a key in double quotes, got '''"],
  ['{a: 1}', "line 1, column 2: expected a key in double quotes, got 'a'"],
  ['{"a" 1}', "line 1, column 6: expected ':', got '1'"],
  ['{"a": 01}', "line 1, column 8: expected ',' or '}', got '1'"],
  ['{\r\n  "a": [1, 2,\r\n  ]\r\n}', "line 3, column 3: expected a value, got ']'"],
  ['[1, [2, {"b": []}\n, {}}', "line 2, column 5: expected ',' or ']', got '}'"],
  ['{"a": NaN}', "line 1, column 7: expected a value, got 'NaN'"],
  ['{"a": -Infinity}', "line 1, column 7: expected a value, got '-Infinity'"],
  ['{"a": True}', "line 1, column 7: expected a value, got 'True'"],
  ['// mine\n{}', "line 1, column 1: expected a value, got '/'"],
  ['{} {}', "line 1, column 4: expected the end, got '{'"],
  ['1.', "line 1, column 2: expected the end, got '.'"],
  ['-', "line 1, column 1: expected a value, got '-'"],
  ['["a', 'line 1, column 2: a string has no closing quote'],
  ['["a\n"]', 'line 1, column 4: a string goes on in the next line'],
  ['["a\tb"]', 'line 1, column 4: a control character in a string'],
  ['["a\\x"]', 'line 1, column 4: an unknown escape in a string'],
  ['["\\u12G4"]', 'line 1, column 3: an unknown escape in a string'],
  // A column is a character, of one or two units.
  ['["\u{1F600}" "b"]', "line 1, column 6: expected ',' or ']', got '\"'"],
  ['\u{feff}{}', 'line 1, column 1: expected a value, got U+FEFF'],
  ['\u00a0{}', 'line 1, column 1: expected a value, got U+00A0'],
];

describe('the first mistake in a text', () => {
  it.each(cases)('%j', (text, why) => {
    expect(() => JSON.parse(text)).toThrow();
    expect(whyNoJson(text)).toBe(why);
  });

  it.each([
    '{}',
    ' [ ] ',
    '"\\u00e9\\n\u2028\u007f"',
    'null',
    '{"a": [true, false, null, -0, 1e-5, 0.5E+3], "b": {"c": {}}, "c": [[], [[]]]}\r\n\t',
    `${'['.repeat(5000)}${']'.repeat(5000)}`,
    JSON.stringify('x'.repeat(3_000_000)),
  ])('and nothing of what is', (text) => {
    expect(() => JSON.parse(text)).not.toThrow();
    expect(whyNoJson(text)).toBeUndefined();
  });

  it('finds a mistake wherever JSON.parse does', () => {
    const good = '{"a": [1, -2.5e3, "x\\"\\u0041y", null], "b": {"c": true, "d": [[], {}]}}';
    for (let i = 0; i < good.length; i++) {
      for (const text of [
        good.slice(0, i),
        good.slice(0, i) + good.slice(i + 1),
        `${good.slice(0, i)},${good.slice(i)}`,
      ]) {
        let isJson = true;
        try {
          JSON.parse(text);
        } catch {
          isJson = false;
        }
        expect(whyNoJson(text) === undefined, text).toBe(isJson);
      }
    }
  });

  it('is found in a long line without an array of its characters', () => {
    const text = `{"a":"${'a'.repeat(3e7)}","b":x}`;
    const before = process.resourceUsage().maxRSS;
    expect(whyNoJson(text)).toBe(`line 1, column ${text.length - 1}: expected a value, got 'x'`);
    // The array would take 8 bytes for each.
    expect(process.resourceUsage().maxRSS - before).toBeLessThan((8 * 3e7) / 1024);
    expect(whyNoJson(`[${'1,\n'.repeat(1e6)}x]`)).toBe("line 1000001, column 1: expected a value, got 'x'");
    expect(whyNoJson('[\n1,\r\n2,\r3 4]')).toBe("line 4, column 3: expected ',' or ']', got '4'");
  });
});
