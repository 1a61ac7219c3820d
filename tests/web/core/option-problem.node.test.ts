// The sentences about wrong options, made from their data by the package, the command line and the page.
import type { OptionProblem } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { pageWords } from '../../../web/demo/model/controls.js';
import { commandWords, commandWordsFor } from '../../../web/src/cli/wording.js';
import { rangeError, ScalepointError } from '../../../web/src/core/errors.js';
import {
  type Expected,
  exactly,
  type Hint,
  mention,
  ofType,
  oneOf,
  onlyWith,
  sayProblem,
  whole,
  without,
} from '../../../web/src/core/option-problem.js';

const problem = (option: string, expected: Expected, got?: unknown, hint?: Hint): OptionProblem => ({
  option,
  expected,
  got,
  hint,
});

describe('the package says', () => {
  it.each<[Expected, unknown, string]>([
    [ofType('number', 'array of numbers'), 'a', 'expected a number or an array of numbers, got "a"'],
    [oneOf(['a', 'b', 3]), 'c', `expected 'a', 'b' or 3, got "c"`],
    [whole(1), 0, 'expected a whole number of at least 1, got 0'],
    [whole(0, 64), 65, 'expected a whole number from 0 to 64, got 65'],
    [{ kind: 'number', above: 50, max: 100 }, 50, 'expected a number above 50 and at most 100, got 50'],
    [{ kind: 'number', finite: true }, Infinity, 'expected a finite number, got Infinity'],
    [{ kind: 'number', multipleOf: 8, min: 8, max: 64 }, 9, 'expected a multiple of 8 from 8 to 64, got 9'],
    [{ kind: 'number', multipleOf: 8, unit: 'elements' }, 9, 'expected a multiple of 8 elements, got 9'],
    [{ kind: 'number', min: 1, unit: 'file' }, 0, 'expected at least 1 file, got 0'],
    [exactly(6, 'elements'), 5, 'expected 6 elements, got 5'],
    [{ kind: 'shape', elements: 6 }, [2, 4], 'expected a shape of 6 elements, got [2, 4]'],
    [
      { kind: 'anyOf', of: [oneOf(['mse']), { kind: 'object', keys: ['percentile'] }] },
      1,
      `expected 'mse' or { percentile }, got 1`,
    ],
    [{ kind: 'text', examples: ['5GB'] }, 'x', `expected a string such as '5GB', got "x"`],
    [{ kind: 'knownOption', names: ['a', 'b'] }, undefined, 'unknown option; there are a, b'],
    [{ kind: 'onlyFor', files: 'GGUF files' }, true, 'only for GGUF files'],
    [onlyWith('to', 'int8', 'int4'), 'float16', `only with to: 'int8' or 'int4', got to: 'float16'`],
    [onlyWith('importance'), undefined, 'only with importance'],
    [without('to', 'int4'), false, `not together with to: 'int4', got false`],
    [{ kind: 'required' }, undefined, 'required'],
  ])('%j', (expected, got, text) => {
    expect(sayProblem(problem('x', expected, got))).toBe(text);
    const error = rangeError('x', expected, got);
    expect(error).toMatchObject({ message: `x: ${text}`, option: 'x', problem: { option: 'x', expected } });
  });

  it('what helps', () => {
    const say = (hint: Hint) => sayProblem(problem('x', exactly(2, 'elements'), 3, hint));
    expect(say({ kind: 'didYouMean', names: ['a', 'b'] })).toBe('expected 2 elements, got 3; did you mean a or b?');
    expect(say({ kind: 'as', option: 'y' })).toBe('expected 2 elements as in y, got 3');
    expect(say({ kind: 'with', options: [mention('to', 'q4')] })).toBe(`expected 2 elements with to: 'q4', got 3`);
    expect(say({ kind: 'because', message: 'it is odd' })).toBe('expected 2 elements, got 3: it is odd');
    const hint = { kind: 'try', option: mention('rules[].keep', true), effect: 'copies it' } as const;
    const error = new ScalepointError('BAD_FILE', 'it is bad', { hint });
    expect(error).toMatchObject({
      message: 'it is bad; a rule with keep: true copies it',
      statement: 'it is bad',
      hint,
    });
  });
});

describe('other edges write', () => {
  it.each<[option: string, value: unknown, flag: string, control: string]>([
    ['to', 'int8', '--to int8', 'type: int8'],
    ['granularity.groupSize', 32, '--group-size 32', '“One scale for each” under More: group of 32'],
    [
      'granularity',
      { kind: 'per-group', groupSize: 32 },
      '--group-size 32',
      '“One scale for each” under More: group of 32',
    ],
    ['granularity', { kind: 'per-channel' }, '--granularity per-channel', '“One scale for each” under More: row'],
    ['granularity.kind', 'per-channel', '--granularity per-channel', '“One scale for each” under More: row'],
    ['requantize', true, '--requantize', '“Also quantize what is quantized already” under More'],
    [
      'include',
      'all',
      '--all',
      '“Also convolutions and the like, for programs that read the file with Scalepoint” under More',
    ],
    ['packed', false, '--plain', '“One code in each byte (larger file)” under More'],
    [
      'missingBytes',
      'keep',
      '--missing-bytes keep',
      '“Convert although the tokenizer has no byte tokens (llama.cpp may crash)” under More',
    ],
    [
      'zeroPoints',
      'float',
      '--float-zero-points',
      '“Zero points, for weights that lean to one side” under More: float',
    ],
    ['dequantize', 'cast', '--dequantize cast', 'dequantize: cast'],
    ['rules[].keep', true, "--rule 'REGEX=keep'", '“keep” in the list of tensors'],
    ['rules[].to', 'int8', "--rule 'REGEX=int8'", '“int8” in the list of tensors'],
    ['run.dimensions', undefined, '--dim', 'run.dimensions'],
  ])('%s: %j', (option, value, flag, control) => {
    const values = value === undefined ? [] : [value];
    expect(value === undefined ? commandWords.option(option) : commandWords.withValues(option, values)).toBe(flag);
    expect(value === undefined ? pageWords.option(option) : pageWords.withValues(option, values)).toBe(control);
  });

  it('an option by the flag that it was given by, and a rule as it was written', () => {
    const words = commandWordsFor({ plain: true, 'split-size': '1GB' }, [{ match: 'a', to: 'int4' }]);
    expect(words.option('packed')).toBe('--plain');
    expect(words.option('shardSize')).toBe('--split-size');
    expect(words.option('rules[0].to')).toBe('--rule "a=int4"');
    expect(sayProblem(problem('packed', without('to', 'int4'), false), words)).toBe('not together with --to int4');
  });
});
