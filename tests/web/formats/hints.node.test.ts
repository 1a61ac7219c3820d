import { planModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { didYouMean, nearest } from '../../../web/src/core/nearest.js';
import { ggufTargets } from '../../../web/src/formats/gguf/targets.js';
import { safetensorsTargets } from '../../../web/src/formats/safetensors/layouts/registry.js';

describe('nearest', () => {
  it.each([
    ['q8', 'int8', 'Q8_0'],
    ['Q8_0', 'int8', 'Q8_0'],
    ['q4', 'int4', 'Q4_K_M'],
    ['i8', 'int8', 'Q8_0'],
    ['int-8', 'int8', 'Q8_0'],
    ['8bit', 'int8', 'Q8_0'],
    ['fp16', 'float16', 'F16'],
    ['F16', 'float16', 'F16'],
    ['half', undefined, undefined],
    ['bf16', 'bfloat16', 'BF16'],
    ['fp8', 'float8e4m3fn', undefined],
    ['flaot16', 'float16', undefined],
    ['Q4_K', 'int4', 'Q4_K_M'],
    ['q4km', 'int4', 'Q4_K_M'],
    ['q6', undefined, 'Q6_K'],
    ['int3', undefined, 'Q3_K_M'],
    ['', undefined, undefined],
    ['something else', undefined, undefined],
  ])('takes %j for %j among the targets of safetensors and for %j among those of GGUF', (word, first, second) => {
    expect(nearest(word, safetensorsTargets)).toBe(first);
    expect(nearest(word, ggufTargets)).toBe(second);
  });

  it('gives no hint for values other than words, and for texts that are too long', () => {
    for (const word of [undefined, 8, null, {}, 'int8'.repeat(1000)]) expect(nearest(word, ['int8'])).toBeUndefined();
  });

  it('finds letters that were left out, doubled or swapped', () => {
    const names = ['inspect', 'plan', 'quantize', 'compare'];
    for (const word of ['inspct', 'inspecct', 'insepct', 'inspet']) expect(nearest(word, names)).toBe('inspect');
    expect(nearest('quantise', names)).toBe('quantize');
    expect(nearest('plna', names)).toBe('plan');
    expect(nearest('xyz', names)).toBeUndefined();
  });
});

describe('did you mean', () => {
  it('offers one name of each list, each once, and never the word itself', () => {
    expect(didYouMean('q8', safetensorsTargets, ggufTargets).names).toEqual(['int8', 'Q8_0']);
    expect(didYouMean('Q8_0', ggufTargets).names).toEqual([]);
    expect(didYouMean('fp16', ['float16'], ['float16']).names).toEqual(['float16']);
    expect(didYouMean('nothing', safetensorsTargets, ggufTargets).names).toEqual([]);
  });

  it('stands in the errors about targets and options', async () => {
    const file = new Uint8Array();
    const plan = (options: object) => planModel(file, options as Parameters<typeof planModel>[1]);
    await expect(plan({ to: 'bf16' })).rejects.toThrow(
      /got "bf16"; did you mean bfloat16 for safetensors or BF16 for GGUF\?$/,
    );
    await expect(plan({ to: 'int8', granularty: 1 })).rejects.toThrow(/did you mean granularity\?$/);
  });
});
