// Options that calls on model files do not know, at any depth, and what was probably meant.
import { load } from 'scalepoint';
import {
  calibrateModel,
  compareModels,
  estimateModel,
  evaluateModel,
  fitTypes,
  inspectModel,
  loadTensors,
  measureTypes,
  planModel,
  quantizeModel,
  readFloats,
  readQuantized,
  readTensor,
  saveTensors,
  tensors,
  verifyModel,
} from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { problemOf } from '../../../web/src/core/errors.js';
import { rejectionOf, safetensors, weights } from '../support/models.js';
import { meant, mistakeIn, takenBy } from '../support/support.js';
import { tinyLlama } from '../support/tiny-llama.js';

const file = safetensors({ 'a.weight': weights('F32', [8, 8]) });
const anything = (value: unknown) => value as never;

/** The mistake that a call was refused for. */
const refusal = async (call: () => Promise<unknown>) => mistakeIn(await rejectionOf(call()));

const quantize = (options: object) => () => quantizeModel(file, anything({ to: 'int8', ...options }));
const rule = (one: object) =>
  quantize({
    rules: [
      { match: /b/, keep: true },
      { match: /a/, to: 'int8', ...one },
    ],
  });

it.each<[name: string, call: () => Promise<unknown>, option: string, hint?: object]>([
  ['quantizeModel', quantize({ overwite: true }), 'overwite', meant('overwrite')],
  ['a member of an option', quantize({ groupSize: 32 }), 'groupSize', meant('granularity.groupSize')],
  ['a member of a range', quantize({ percentile: 99 }), 'percentile', meant('range.percentile')],
  [
    'a granularity',
    quantize({ granularity: { kind: 'per-group', groupsize: 32 } }),
    'granularity.groupsize',
    meant('granularity.groupSize'),
  ],
  ['an axis', quantize({ granularity: { kind: 'per-channel', axis: 0 } }), 'granularity.axis'],
  ['a range', quantize({ range: { percentil: 99 } }), 'range.percentil', meant('range.percentile')],
  ['a range that is given', quantize({ range: { min: 0, max: 1 } }), 'range.min'],
  ['the core', quantize({ core: { smid: 'off' } }), 'core.smid', meant('core.simd')],
  ['the core, outside of it', quantize({ simd: 'off' }), 'simd', meant('core.simd')],
  ['a rule', rule({ mtach: /x/ }), 'rules[1].mtach', meant('rules[1].match')],
  ['a rule with a group size', rule({ groupSize: 32 }), 'rules[1].groupSize', meant('rules[1].granularity.groupSize')],
  [
    'a granularity of a rule',
    rule({ granularity: { kind: 'per-group', groupsize: 8 } }),
    'rules[1].granularity.groupsize',
    meant('rules[1].granularity.groupSize'),
  ],
  [
    'planModel',
    () => planModel(file, anything({ to: 'int8', overwrite: true })),
    'overwrite',
    takenBy('quantizeModel', 'overwrite'),
  ],
  [
    'planModel with a sample',
    () => planModel(file, anything({ to: 'int8', sample: 5 })),
    'sample',
    takenBy('estimateModel', 'sample'),
  ],
  ['estimateModel', () => estimateModel(file, anything({ to: 'int8', sampel: 5 })), 'sampel', meant('sample')],
  [
    'measureTypes',
    () => measureTypes(file, anything({ to: 'int8', sample: 5 })),
    'sample',
    takenBy('estimateModel', 'sample'),
  ],
  ['compareModels', () => compareModels(file, file, anything({ layers: true })), 'layers', meant('run.layers')],
  ['a run', () => compareModels(file, file, anything({ run: { inptus: 'x' } })), 'run.inptus', meant('run.inputs')],
  ['verifyModel', () => verifyModel(file, anything({ cofnig: {} })), 'cofnig', meant('config')],
  [
    'verifyModel with workers',
    () => verifyModel(file, anything({ workers: 0 })),
    'workers',
    takenBy('quantizeModel', 'workers'),
  ],
  ['evaluateModel', () => evaluateModel(file, anything({ txt: 'x' })), 'txt', meant('text')],
  [
    'evaluateModel with an output',
    () => evaluateModel(file, anything({ text: 'x', output: 'y' })),
    'output',
    takenBy('quantizeModel', 'output'),
  ],
  ['calibrateModel', () => calibrateModel(file, 'x', anything({ momens: true })), 'momens', meant('moments')],
  [
    'calibrateModel with a reference',
    () => calibrateModel(file, 'x', anything({ reference: file })),
    'reference',
    takenBy('evaluateModel', 'reference'),
  ],
  ['inspectModel', () => inspectModel(file, anything({ singal: 0 })), 'singal', meant('signal')],
  ['readTensor', () => readTensor(file, 'a.weight', anything({ singal: 0 })), 'singal', meant('signal')],
  ['readFloats', () => readFloats(file, 'a.weight', anything({ wokers: 0 })), 'wokers', meant('workers')],
  ['readQuantized', () => readQuantized(file, 'a.weight', anything({ singal: 0 })), 'singal', meant('signal')],
  ['tensors', () => tensors(file, anything({ singal: 0 })).next(), 'singal', meant('signal')],
  ['saveTensors', () => saveTensors({}, anything({ cor: {} })), 'cor', meant('core')],
  [
    'saveTensors with a core',
    () => saveTensors({}, { core: anything({ bloks: true }) }),
    'core.bloks',
    meant('core.blocks'),
  ],
  ['loadTensors', () => loadTensors(file, anything({ singal: 0 })), 'singal', meant('signal')],
])('%s: an unknown option', async (_, call, option, hint) => {
  expect(await refusal(call)).toEqual({ type: TypeError, option, hint });
});

it('refuses tensors of a file that hold no floats by their type', async () => {
  const sp = await load();
  const codes = safetensors({ a: { dtype: 'I8', shape: [4], data: new Int8Array(4) } });
  const tensor = await readTensor(codes, 'a');
  const expected = { kind: 'oneOf', values: ['F32', 'F64', 'F16', 'BF16'] };
  const error = await Promise.resolve()
    .then(() => sp.quantize(tensor))
    .catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(RangeError);
  expect(problemOf(error)).toEqual({ option: 'x.dtype', expected, got: 'I8' });
  const blocks = await readTensor(
    await (await quantizeModel(tinyLlama(), { to: 'Q8_0' })).bytes(),
    'blk.0.attn_q.weight',
  );
  expect(() => sp.quantize(blocks)).toThrow(
    /^x\.dtype: expected 'F32', .* got "Q8_0"; dequantize takes a quantized tensor$/,
  );
  expect(sp.quantize(await readTensor(file, 'a.weight')).shape).toEqual([8, 8]);
});

it('fitTypes: an unknown option', async () => {
  const table = await measureTypes(file, { to: 'int4', workers: 0 });
  expect(() => fitTypes(table, anything({ targetsize: '1GB' }))).toThrow(/^targetsize: .*did you mean targetSize\?$/);
});

it('refuses wrong values for the core by their path, before any work', async () => {
  expect(await refusal(quantize({ core: { simd: 'yes' } }))).toMatchObject({ type: RangeError, option: 'core.simd' });
  expect(await refusal(quantize({ core: null }))).toMatchObject({ type: TypeError, option: 'core' });
  expect(await refusal(quantize({ core: { blocks: 1 } }))).toMatchObject({ type: TypeError, option: 'core.blocks' });
});

describe('without a target', () => {
  const refuse = async (call: Promise<unknown>) => (await call.then(undefined, (reason: unknown) => reason)) as Error;
  const none = anything({});

  it('asks for one of the ten likeliest of the format', async () => {
    const error = await refuse(quantizeModel(tinyLlama(), none));
    expect(error).toBeInstanceOf(RangeError);
    expect(error.message).toBe(
      "to: expected a target of GGUF such as 'Q8_0', 'Q3_K_M', 'Q4_K_M', 'Q2_K', 'Q4_K_S', 'Q5_K_S', 'Q5_K_M', 'Q6_K', 'IQ4_XS' or 'F16' or a target of safetensors if it is a language model, got undefined",
    );
    for (const call of [planModel, estimateModel, measureTypes, quantizeModel]) {
      const { message } = await refuse(call(file, none));
      expect(message).toMatch(/^to: expected a target of safetensors such as 'int8', /);
      expect(message.length).toBeLessThan(385);
    }
    expect((await refuse(planModel(file, anything({ targetSize: '1GB' })))).message).toMatch(/^to: expected a target/);
  });

  it('names a few targets of each format if none has the one that was given', async () => {
    const error = await refuse(planModel(file, { to: anything('int9') }));
    expect(error.message.length).toBeLessThan(400);
    expect(error.message).toMatch(/such as 'Q8_0', 'Q3_K_M' or 'Q4_K_M'/);
    expect((await refuse(planModel(file, { to: anything('i8') }))).message).toMatch(
      /did you mean int8 for safetensors or Q8_0 for GGUF or q8 for ONNX\?$/,
    );
  });

  it('refuses a list with something else than names', async () => {
    const error = await refuse(quantizeModel(file, { to: anything(['int8', undefined]) }));
    expect(problemOf(error)).toMatchObject({ option: 'to[1]', expected: { kind: 'type', types: ['string'] } });
  });
});
