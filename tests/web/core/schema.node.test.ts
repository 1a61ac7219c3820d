import { describe, expect, it } from 'vitest';
import {
  amended,
  checkOptionValues,
  checkTogether,
  choice,
  numberOption,
  type OptionsOf,
  option,
  toggle,
} from '../../../web/src/core/schema.js';

const schema = {
  method: choice(['nearest', 'gptq'], { name: 'method', value: 'HOW', about: 'how to round' }, 'nearest'),
  damping: amended(numberOption({ min: 0, max: 10 }, { name: 'damping', value: 'X', about: 'a share' }), {
    needs: [{ option: 'method', value: 'gptq' }],
  }),
  packed: toggle({ name: 'packed', about: 'codes in words' }, { name: 'plain', means: false, about: 'codes in bytes' }),
  count: amended(numberOption({ whole: true, min: 1, max: 9 }), { excludedBy: [{ option: 'size' }] }),
  size: option<string>(() => {}),
  fast: amended(toggle({ name: 'fast', about: 'in less time' }), { excludedBy: [{ option: 'to', value: 'copy' }] }),
};

/** Compiles only with these types. */
const typed: OptionsOf<typeof schema> = { method: 'gptq', damping: 0.5, packed: true, count: 3, size: 'x' };

describe('a schema', () => {
  it('gives options their types', () => {
    expect(() => checkOptionValues(schema, typed)).not.toThrow();
    // @ts-expect-error: a value that the option lacks
    const wrong: OptionsOf<typeof schema> = { method: 'other' };
    expect(() => checkOptionValues(schema, wrong)).toThrow(RangeError);
  });

  it.each([
    [{ method: 'gpt' }, RangeError, "method: expected 'nearest' or 'gptq', got \"gpt\"; did you mean gptq?"],
    [{ damping: '1' }, TypeError, 'damping: expected a number from 0 to 10, got "1"; write 1'],
    [{ damping: 11 }, RangeError, 'damping: expected a number from 0 to 10, got 11'],
    [{ damping: Number.NaN }, RangeError, 'damping: expected a number from 0 to 10, got NaN'],
    [{ count: 1.5 }, RangeError, 'count: expected a whole number from 1 to 9, got 1.5'],
    [{ packed: 1 }, TypeError, 'packed: expected a boolean, got 1'],
  ])('checks values: %j', (options, kind, message) => {
    let error: unknown;
    try {
      checkOptionValues(schema, options);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(kind);
    expect((error as Error).message).toBe(message);
  });

  it('reads the flags of a command line', () => {
    expect(schema.method.flags).toEqual([
      { name: 'method', value: 'HOW', about: 'how to round', choices: ['nearest', 'gptq'] },
    ]);
    expect(schema.damping.read({ damping: '1e-2' })).toBe(0.01);
    expect(() => schema.damping.read({ damping: 'x' })).toThrow('--damping: expected a number from 0 to 10, got "x"');
    expect(() => schema.damping.read({ damping: '11' })).toThrow('--damping: expected a number from 0 to 10, got 11');
    expect([schema.packed.read({ packed: true }), schema.packed.read({ plain: true })]).toEqual([true, false]);
    expect(() => schema.packed.read({ packed: true, plain: true })).toThrow('--plain: not together with --packed');
  });

  it('knows which options go together', () => {
    const check = (options: object) => () => checkTogether(schema, options);
    expect(check({ method: 'gptq', damping: 1 })).not.toThrow();
    expect(check({ damping: 1 })).toThrow("damping: only with method: 'gptq'");
    expect(check({ count: 2, size: '1GB' })).toThrow('count: not together with size');
    expect(check({ to: 'copy', fast: true })).toThrow("fast: not together with to: 'copy', got true");
    // A value that turns an option off goes with every other.
    expect(check({ to: 'copy', fast: false })).not.toThrow();
  });
});
