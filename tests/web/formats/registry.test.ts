import { resultName } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { signatures } from '../../../web/src/formats/signatures.js';
import { formats } from '../../../web/src/tooling.js';
import { expectRefusal } from '../support/support.js';

describe('what formats say about themselves', () => {
  it.each(formats.map((format) => [format.name, format] as const))('agrees with itself: %s', (name, format) => {
    const { extensions, targets, aliases, ruleTargets, options, result, examples, isFolder = false } = format;
    const names = targets.map((target) => target.name);
    expect(new Set(names).size).toBe(names.length);
    for (const [alias, name] of Object.entries(aliases)) {
      expect(names).toContain(name);
      expect(names).not.toContain(alias);
    }
    for (const { options: taken } of targets) {
      for (const name of taken) expect(Object.keys(options.entries)).toContain(name);
    }
    const presets = targets.flatMap(({ preset }) => preset ?? []);
    // A folder is made by a conversion for a program that wants all of it in one form. Its files have fixed names.
    expect([...presets].sort()).toEqual(isFolder ? [] : ['balanced', 'safe', 'small']);
    // WebLLM's libraries want all parameters in one form.
    expect(ruleTargets.length > 0).toBe(name !== 'mlc');
    for (const extension of extensions) expect(extension).toMatch(isFolder ? /^[a-z.-]+$/ : /^\.[a-z.]+$/);
    expect(formats.map(({ name }) => name)).toContain(result);
    const flags = Object.values(options.entries).flatMap((entry) => entry.flags.map(({ name }) => `--${name}`));
    const common = ['--to', '--rule', '--min-sqnr', '--json'];
    for (const example of examples) {
      for (const [flag] of example.matchAll(/--[\w-]+/g)) expect([...flags, ...common]).toContain(flag);
    }
  });

  it('has the members of its signature', () => {
    expect(signatures.map(({ name }) => name)).toEqual(formats.map(({ name }) => name));
    for (const [i, signature] of signatures.entries()) expect(formats[i]).toMatchObject(signature);
  });

  it('has no flag twice, except for options of one name that several tables have', () => {
    const tables = new Set(formats.map(({ options }) => options));
    const options = new Map<string, Set<string>>();
    for (const { entries } of tables) {
      for (const [option, { flags }] of Object.entries(entries)) {
        for (const { name } of flags) options.set(name, (options.get(name) ?? new Set()).add(option));
      }
      const flags = Object.values(entries).flatMap((entry) => entry.flags.map(({ name }) => name));
      expect(new Set(flags).size).toBe(flags.length);
    }
    for (const [flag, names] of options) expect(names.size, flag).toBe(1);
  });
});

describe('the name of a result', () => {
  it('has the target before the usual end of its format, in place of the end of the input', () => {
    const cases: [input: string, to: string, format: string, output: string][] = [
      ['model.safetensors', 'int8', 'safetensors', 'model.int8.safetensors'],
      ['model.safetensors.index.json', 'int4', 'safetensors', 'model.int4.safetensors'],
      ['MODEL.GGUF', 'Q4_K_M', 'gguf', 'MODEL-Q4_K_M.gguf'],
      ['tiny/model.safetensors', 'Q4_K_M', 'gguf', 'tiny-Q4_K_M.gguf'],
      ['tiny/other.safetensors', 'Q4_K_M', 'gguf', 'other-Q4_K_M.gguf'],
      ['tiny/pytorch_model.bin', 'mlc-q4f16_1', 'mlc', 'tiny-q4f16_1-MLC'],
      ['tiny/model.safetensors', 'int8', 'safetensors', 'model.int8.safetensors'],
      ['weights.v2.npy', 'float16', 'safetensors', 'weights.v2.float16.safetensors'],
      ['model.onnx', 'q8', 'onnx', 'model_quantized.onnx'],
      ['model.onnx', 'q4f16', 'onnx', 'model_q4f16.onnx'],
      ['model.onnx', 'q2f16', 'onnx', 'model_q2f16.onnx'],
      ['model', 'int8', 'safetensors', 'model.int8.safetensors'],
      ['model.safetensors', 'mlc-q4f16_1', 'mlc', 'model-q4f16_1-MLC'],
      ['pytorch_model.bin', 'int8', 'safetensors', 'pytorch_model.int8.safetensors'],
      ['model.old', 'int8', 'safetensors', 'model.old.int8.safetensors'],
    ];
    for (const [input, to, format, output] of cases) expect(resultName(input, { to, format })).toBe(output);
  });

  it('needs a name, a target and a format, and names what is wrong', () => {
    const nameOf = (name: unknown, options?: unknown) => () => resultName(name as never, options as never);
    expectRefusal(nameOf('a.onnx', { to: 'q4' }), RangeError, 'format');
    expectRefusal(nameOf('a.onnx', { to: 'q4', format: 'pickle' }), RangeError, 'format');
    expect(nameOf('a.onnx', { to: 'q4' })).toThrow(/^format: expected .*safetensors.*got undefined$/);
    for (const to of [undefined, null, 4, ['q8', 'q4']])
      expectRefusal(nameOf('a.onnx', { to, format: 'onnx' }), TypeError, 'to');
    expectRefusal(nameOf('a.onnx', { to: '', format: 'onnx' }), RangeError, 'to');
    for (const name of [undefined, new URL('https://example.org/a.onnx')]) {
      expectRefusal(nameOf(name, { to: 'q4', format: 'onnx' }), TypeError, 'name');
    }
    expectRefusal(nameOf('a.onnx'), TypeError, 'options');
  });
});
