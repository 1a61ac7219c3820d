// Options that a call does not know, at any depth, and names of types that it does not make: what is wrong, and what was probably meant.
import {
  type AddOptions,
  type BlockOptions,
  type CastOptions,
  type CodebookOptions,
  type CompareEachOptions,
  type FloatLinearOptions,
  type ForwardOptions,
  type HistogramOptions,
  type IndexOptions,
  type LinearOptions,
  type LoadOptions,
  load,
  type ObserverOptions,
  type QuantizeOptions,
  type RecallOptions,
  type SweepOptions,
  type SweepVariant,
} from 'scalepoint';
import { race, runBench } from 'scalepoint/bench';
import { describe, expect, it } from 'vitest';
import type { callOptions, variantNames } from '../../../web/src/arrays/calls.js';
import { problemOf } from '../../../web/src/core/errors.js';
import { meant, mistakeIn, takenBy, thrownBy } from '../support/support.js';

const sp = await load();
const x = new Float32Array(8).map((_, i) => i - 4);
const q = sp.quantize(x, { shape: [2, 4] });
const anything = (value: unknown) => value as never;

/** The mistake that a call was refused for. */
const refusal = (call: () => unknown) => mistakeIn(thrownBy(call));

describe('an unknown option', () => {
  const quantize = (options: object) => () => sp.quantize(x, anything(options));
  const calls: Record<string, [call: () => unknown, option: string, hint?: object]> = {
    'of quantize': [quantize({ dtpye: 'int4' }), 'dtpye', meant('dtype')],
    'with another case': [quantize({ DType: 'int4' }), 'DType', meant('dtype')],
    'that resembles nothing': [quantize({ colour: 1 }), 'colour'],
    'that is undefined': [quantize({ dtpye: undefined }), 'dtpye', meant('dtype')],
    'with a path for a name': [quantize({ 'granularity.axis': 1 }), 'granularity.axis', meant('granularity')],
    'with a name of a prototype': [quantize({ toString: 1 }), 'toString'],
    'that is inherited': [quantize(Object.create({ dtpye: 'int4' })), 'dtpye', meant('dtype')],
    'that is a member of an option': [quantize({ groupSize: 4 }), 'groupSize', meant('granularity.groupSize')],
    'that resembles a member': [quantize({ groupsize: 4 }), 'groupsize', meant('granularity.groupSize')],
    'that is a member of a range': [quantize({ percentile: 99 }), 'percentile', meant('range.percentile')],
    'that gives a scale': [quantize({ scale: 1, zeroPoint: 0 }), 'scale', meant('range.scale')],
    'of another call': [quantize({ blockSize: 64 }), 'blockSize', takenBy('quantizeCodebook', 'blockSize')],
    'of load': [() => sp.quantizeBlocks(x, 'Q8_0', anything({ blocks: true })), 'blocks', takenBy('load', 'blocks')],
    'in a granularity': [
      quantize({ granularity: { kind: 'per-group', groupSize: 2, axs: 0 } }),
      'granularity.axs',
      meant('granularity.axis'),
    ],
    'in a granularity with a wrong kind': [
      quantize({ granularity: { knd: 'per-group' } }),
      'granularity.knd',
      meant('granularity.kind'),
    ],
    'in a range': [quantize({ range: { percentil: 99 } }), 'range.percentil', meant('range.percentile')],
    'in given ranges': [quantize({ range: { min: 0, mxa: 1 } }), 'range.mxa', meant('range.max')],
    'in out': [quantize({ out: { data: new Int8Array(8), scales: 1 } }), 'out.scales', meant('out.scale')],
    'in place of the data in out': [quantize({ out: { dat: 1 } }), 'out.dat', meant('out.data')],
    'in a codebook': [() => sp.quantizeCodebook(x, anything({ codebook: { learn: 4, round: 2 } })), 'codebook.round'],
    'of quantizeCodebook': [
      () => sp.quantizeCodebook(x, anything({ codebook: 'nf4', blocksize: 2 })),
      'blocksize',
      meant('blockSize'),
    ],
    'of a codebook, outside of it': [
      () => sp.quantizeCodebook(x, anything({ codebook: 'nf4', learn: 2 })),
      'learn',
      meant('codebook.learn'),
    ],
    'of chooseQuantizationParameters': [
      () => sp.chooseQuantizationParameters(x, anything({ shceme: 'asymmetric' })),
      'shceme',
      meant('scheme'),
    ],
    'of dequantize': [() => sp.dequantize(q, anything({ ot: x })), 'ot'],
    'of compare': [() => sp.compare(x, q, anything({ pre: 'channel' })), 'pre', meant('per')],
    'of errorSum': [() => sp.errorSum().add(x, q, anything({ form: 'float16' })), 'form', meant('from')],
    'of sweep': [() => sp.sweep(x, [], anything({ shap: [8] })), 'shap', meant('shape')],
    'of a variant': [() => sp.sweep(x, [{}, anything({ dtyp: 'int4' })]), 'variants[1].dtyp', meant('dtype')],
    'in a variant that belongs beside it': [
      () => sp.sweep(x, [anything({ shape: [8] })]),
      'variants[0].shape',
      takenBy('sweep', 'shape'),
    ],
    'in the granularity of a variant': [
      () => sp.sweep(x, [anything({ granularity: { kind: 'per-channel', axes: 0 } })]),
      'variants[0].granularity.axes',
      meant('granularity.axis'),
    ],
    'of histogram': [() => sp.histogram(x, anything({ bin: 4 })), 'bin', meant('bins')],
    'of castFloat': [() => sp.castFloat(x, 'float16', anything({ saturated: true })), 'saturated', meant('saturate')],
    'of castToFloat32': [
      () => sp.castToFloat32(new Uint16Array(2), 'float16', anything({ from: 'float16' })),
      'from',
      takenBy('quantize', 'from'),
    ],
    'of observer': [() => sp.observer(anything({ average: 0.1 })), 'average'],
    'in the range of an observer': [
      () => sp.observer(anything({ range: { percentil: 99 } })),
      'range.percentil',
      meant('range.percentile'),
    ],
    'of observe': [() => sp.observer().observe(x, anything({ form: 'float16' })), 'form', meant('from')],
    'of linear': [() => sp.linear(q, anything({ activation: 'int8' })), 'activation', meant('activations')],
    'of matmulFloat': [() => sp.matmulFloat(x, anything({ shape: [2, 4], biass: [1, 2] })), 'biass', meant('bias')],
    'of forward': [() => sp.linear(q).forward(x, anything({ batc: 2 })), 'batc', meant('batch')],
    'of index': [() => sp.index(q, anything({ metrc: 'cosine' })), 'metrc', meant('metric')],
    'of add': [() => sp.index(q).add(x, anything({ form: 'float16' })), 'form', meant('from')],
    'of recall': [() => sp.index(q).recall([x], [x], anything({ K: 2 })), 'K', meant('k')],
    'of importance': [() => sp.importance().add('a', x, anything({ column: 4 })), 'column', meant('columns')],
  };

  it.each(Object.entries(calls))('%s', (_, [call, option, hint]) => {
    expect(refusal(call)).toEqual({ type: TypeError, option, hint });
  });

  it.each([
    ['load', () => load(anything({ smid: 'on' })), 'smid', meant('simd')],
    ['an importance matrix', () => importanceFile({ chunk: 2 }), 'chunk', meant('chunks')],
    ['runBench', () => runBench(anything({ quik: true })), 'quik', meant('quick')],
    ['the core of runBench', () => runBench(anything({ load: { smid: 1 } })), 'load.smid', meant('load.simd')],
    ['race', () => race({}, anything({ round: 2 })), 'round', meant('rounds')],
    ['a value for the core of runBench', () => runBench(anything({ load: { simd: 1 } })), 'load.simd', undefined],
  ])('of %s', async (_, call, option, hint) => {
    const error = await call().then(undefined, (reason: unknown) => reason);
    expect(problemOf(error)).toMatchObject({ option, ...(hint && { hint }) });
  });

  it('is named with those that there are, each by its path', () => {
    const granularity = { kind: 'per-channel', axs: 0 };
    expect(() => sp.quantize(x, anything({ granularity }))).toThrow(
      'granularity.axs: unknown option; there are granularity.kind, granularity.groupSize, granularity.axis; did you mean granularity.axis?',
    );
    expect(() => sp.castToFloat32(new Uint16Array(2), 'float16', anything({ saturate: true }))).toThrow(
      'saturate: unknown option; there are out; castFloat takes saturate',
    );
  });

  it('is not looked for among the elements of an array in place of options', () => {
    const wrong = { type: TypeError, option: 'options', hint: undefined };
    expect(refusal(() => sp.quantize(x, anything(new Float32Array(8))))).toEqual(wrong);
    expect(refusal(() => sp.quantize(x, anything(['int8'])))).toEqual(wrong);
    expect(refusal(quantize({ range: [0, 1] }))).toMatchObject({ type: RangeError, option: 'range' });
    expect(refusal(quantize({ granularity: [1] }))).toMatchObject({ type: TypeError, option: 'granularity' });
  });
});

async function importanceFile(options: object): Promise<unknown> {
  const importance = sp.importance();
  importance.add('a', x, { columns: 4 });
  return importance.file(anything(options));
}

describe('a member that belongs to another kind', () => {
  const wrong = (options: object) => thrownBy(() => sp.quantize(x, anything(options))) as Error;

  it.each([
    [
      { granularity: { kind: 'per-tensor', groupSize: 4 } },
      "granularity.groupSize: only with granularity.kind: 'per-group', got granularity.kind: 'per-tensor'",
    ],
    [
      { granularity: { kind: 'per-tensor', axis: 0 } },
      "granularity.axis: only with granularity.kind: 'per-channel' or 'per-group', got granularity.kind: 'per-tensor'",
    ],
    [
      { granularity: { kind: 'per-channel', axis: 0, groupSize: 4 } },
      "granularity.groupSize: only with granularity.kind: 'per-group', got granularity.kind: 'per-channel'",
    ],
    [{ range: { percentile: 99, min: 0 } }, 'range.min: not together with range.percentile'],
    [{ range: { min: 0, max: 1, scale: 1 } }, 'range.scale: not together with range.min'],
    [{ range: { scale: 1, zeroPoint: 0, max: 1 } }, 'range.scale: not together with range.max'],
  ])('%j', (options, message) => {
    expect(wrong(options)).toBeInstanceOf(RangeError);
    expect(wrong(options).message).toBe(message);
  });

  it('counts only if it is given', () => {
    const granularity = anything({ kind: 'per-tensor', groupSize: undefined, axis: undefined });
    expect(sp.quantize(x, { granularity }).granularity).toEqual({ kind: 'per-tensor' });
  });

  it('is refused in a quantized tensor, too', () => {
    const bad = { ...q, granularity: { kind: 'per-tensor', groupSize: 4 } };
    expect(refusal(() => sp.dequantize(anything(bad)))).toMatchObject({ option: 'q.granularity.groupSize' });
  });
});

describe('a type that a call does not make', () => {
  it.each([
    ['i8', meant('int8')],
    ['INT8', meant('int8')],
    ['uint-4', meant('uint4')],
    ['q4', meant('int4')],
    ['Q4_0', takenBy('quantizeBlocks', 'Q4_0')],
    ['q4_k', takenBy('quantizeBlocks', 'Q4_K')],
    ['float16', takenBy('castFloat', 'float16')],
    ['fp16', takenBy('castFloat', 'float16')],
    ['nf4', takenBy('quantizeCodebook', 'nf4')],
    ['int9', undefined],
    [8, { kind: 'write', code: "'int8'" }],
  ])('dtype: %j', (dtype, hint) => {
    const expected = { type: RangeError, option: 'dtype', hint };
    expect(refusal(() => sp.quantize(x, anything({ dtype })))).toEqual(expected);
    expect(refusal(() => sp.observer(anything({ dtype })))).toEqual(expected);
  });

  it('in other calls', () => {
    const hints = (call: () => unknown) => refusal(call).hint;
    expect(hints(() => sp.quantizeBlocks(x, anything('int4')))).toEqual(takenBy('quantize', 'int4'));
    expect(hints(() => sp.quantizeBlocks(x, anything('q4_0')))).toEqual(meant('Q4_0'));
    expect(hints(() => sp.castFloat(x, anything('int8')))).toEqual(takenBy('quantize', 'int8'));
    expect(hints(() => sp.castFloat(x, anything('fp16')))).toEqual(meant('float16'));
    expect(hints(() => sp.castToFloat32(new Uint16Array(2), anything('bf16')))).toEqual(meant('bfloat16'));
    expect(hints(() => sp.quantizeCodebook(x, anything({ codebook: 'NF4' })))).toEqual(meant('nf4'));
    expect(hints(() => sp.quantizeCodebook(x, anything({ codebook: 'int4' })))).toEqual(takenBy('quantize', 'int4'));
    expect(() => sp.quantize(x, anything({ dtype: 'float16' }))).toThrow(/got "float16"; castFloat takes float16$/);
  });
});

it('suggests the nearest of other values', () => {
  const hints = (options: object) => refusal(() => sp.quantize(x, anything(options)));
  expect(hints({ scheme: 'assymetric' })).toEqual({ type: RangeError, option: 'scheme', hint: meant('asymmetric') });
  expect(hints({ range: 'minmax' })).toEqual({ type: RangeError, option: 'range', hint: meant('min-max') });
  expect(hints({ granularity: { kind: 'perGroup' } })).toMatchObject({ hint: meant('per-group') });
  expect(refusal(() => sp.index(q, anything({ metric: 'cosin' })))).toMatchObject({ hint: meant('cosine') });
});

// The table of options is that of the types.
type Names<T> = T extends unknown ? keyof T : never;
type Own<Name> = Name extends `${string}.${string}` ? never : Name;
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
type Listed = { [Call in keyof typeof callOptions]: Own<(typeof callOptions)[Call][number]> };

it('knows the options of the types', () => {
  const same: true[] = [
    true satisfies Same<Listed['quantize'], keyof QuantizeOptions>,
    true satisfies Same<Own<(typeof variantNames)[number]>, keyof SweepVariant>,
    true satisfies Same<Listed['quantizeBlocks'], keyof BlockOptions>,
    true satisfies Same<Listed['quantizeCodebook'], keyof CodebookOptions>,
    true satisfies Same<Listed['castFloat'], keyof CastOptions>,
    true satisfies Same<Listed['compare'], Names<CompareEachOptions>>,
    true satisfies Same<Listed['sweep'], keyof SweepOptions>,
    true satisfies Same<Listed['histogram'], keyof HistogramOptions>,
    true satisfies Same<Listed['observer'], keyof ObserverOptions>,
    true satisfies Same<Listed['linear'], keyof LinearOptions>,
    true satisfies Same<Listed['matmulFloat'], keyof FloatLinearOptions>,
    true satisfies Same<Listed['forward'], keyof ForwardOptions>,
    true satisfies Same<Listed['index'], keyof IndexOptions>,
    true satisfies Same<Listed['index.add'], keyof AddOptions>,
    true satisfies Same<Listed['recall'], keyof RecallOptions>,
    true satisfies Same<Listed['load'], keyof LoadOptions>,
  ];
  expect(same.every(Boolean)).toBe(true);
});
