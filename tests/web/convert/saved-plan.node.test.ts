// Plans that went through JSON give the bytes of the options that they were made of.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  inspectModel,
  type ModelPlan,
  type PlanOptions,
  planModel,
  quantizeModel,
  ScalepointError,
} from '../../../web/src/model.js';
import { activationsOf, matrixFile } from '../support/importance.js';
import { safetensors, weights } from '../support/models.js';
import { expectRefusal, thrownBy } from '../support/support.js';
import { tinyLlama } from '../support/tiny-llama.js';

const model = (seed = 1) =>
  safetensors({
    'layers.0.weight': weights('F32', [16, 32], seed),
    'layers.1.weight': weights('F32', [16, 64], seed),
    'layers.1.bias': weights('F32', [16], seed),
  });
const throughJson = (plan: ModelPlan): ModelPlan => JSON.parse(JSON.stringify(plan));
const bytesOf = async (...args: unknown[]) =>
  (
    (await (quantizeModel as (...all: unknown[]) => Promise<unknown>)(...args)) as {
      bytes(): Promise<Uint8Array>;
    }
  ).bytes();
const failed = async (promise: Promise<unknown>) => {
  const outcome = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  return () => {
    if (outcome !== undefined) throw outcome;
  };
};

describe('a plan that went through JSON', () => {
  it.each<PlanOptions>([
    { to: 'int8' },
    { to: 'int4', granularity: { kind: 'per-group', groupSize: 8 }, range: { percentile: 99.5 } },
    {
      to: 'int8',
      rules: [
        { match: '0', keep: true },
        { match: /\.1\.weight$/g, to: 'bfloat16' },
      ],
    },
    // Only the engine knows the first, and flags change the meaning of the second.
    {
      to: 'int8',
      rules: [
        { match: /(?<=layers)\.0/, keep: true },
        { match: /LAYERS/i, to: 'float16' },
      ],
    },
  ])('makes the same bytes: %j', async (options) => {
    const plan = await planModel(model(), options);
    const saved = throughJson(plan);
    expect(saved).toMatchObject({ to: plan.to, totals: plan.totals, tensors: plan.tensors });
    expect(await bytesOf(model(), saved)).toEqual(await bytesOf(model(), options));
    // A second time, as plans of saved plans are saved as well.
    expect(await bytesOf(model(), throughJson(await planModel(model(), saved.options)))).toEqual(
      await bytesOf(model(), options),
    );
  });

  it('makes the same GGUF, with an importance matrix beside it', async () => {
    const file = tinyLlama({ layers: 2, rows: 8 });
    const importance = matrixFile(activationsOf((await inspectModel(file)).tensors));
    const options = {
      to: 'Q4_K_M',
      importance,
      rules: [{ match: 'ffn_up', to: 'Q8_0' }],
      metadata: { 'general.name': 'x' },
    } as const;
    const saved = throughJson(await planModel(file, options));
    expect(saved.options).toMatchObject({ importance: null });
    expect(await bytesOf(file, saved, { importance })).toEqual(await bytesOf(file, options));
    expectRefusal(await failed(quantizeModel(file, saved)), TypeError, 'importance');
  });

  it('keeps the types that were chosen for a size', async () => {
    const file = tinyLlama({ layers: 2, rows: 8 });
    const options = { to: 'auto', targetBitsPerWeight: 6 } as const;
    const plan = await planModel(file, options);
    const saved = throughJson(plan);
    expect(saved.fit).toEqual(plan.fit);
    expect(await bytesOf(file, saved)).toEqual(await bytesOf(file, options));
  });

  it('is refused if it names files to read or write, or code', async () => {
    const file = tinyLlama({ layers: 2, rows: 8 });
    const saved = throughJson(await planModel(file, { to: 'Q8_0' }));
    for (const [name, value] of Object.entries({
      output: 'out.gguf',
      overwrite: true,
      core: { wasm: 'https://example.org/core.wasm' },
      run: {},
      importance: '/etc/passwd',
      data: 'https://example.org/',
      ranges: 'ranges.safetensors',
    })) {
      const options = { ...saved.options, [name]: value } as PlanOptions;
      expectRefusal(await failed(quantizeModel(file, { ...saved, options })), TypeError, `plan.options.${name}`);
    }
    const lora = [{ file: 'a.safetensors' }];
    const adapted = { ...saved, options: { ...saved.options, lora } };
    expectRefusal(await failed(quantizeModel(file, adapted)), TypeError, 'plan.options.lora[0].file');
    // A plan of this program may.
    const own = await planModel(model(), { to: 'int8', lora: [{ file: 'missing.safetensors' }] }).catch(
      (error: unknown) => error,
    );
    expect(own).toMatchObject({ code: 'IO' });
    expect(JSON.stringify(await planModel(file, { to: 'Q8_0' }))).not.toContain('"importance"');
  });

  it('is refused for another model, and says how it differs', async () => {
    const saved = throughJson(await planModel(model(), { to: 'int8' }));
    const { 'layers.1.bias': _, ...fewer } = {
      'layers.0.weight': weights('F32', [16, 32]),
      'layers.1.weight': weights('F32', [16, 64]),
      'layers.1.bias': 0,
    };
    const refuse = async (file: Uint8Array<ArrayBuffer>, message: RegExp, plan: ModelPlan = saved) => {
      const rethrow = await failed(quantizeModel(file, plan));
      expectRefusal(rethrow, RangeError, 'plan');
      expect((thrownBy(rethrow) as Error).message).toMatch(message);
    };
    await refuse(safetensors(fewer), /the model has no "layers\.1\.bias"$/);
    await refuse(
      safetensors({ ...fewer, 'layers.1.bias': weights('F32', [8]) }),
      /it plans "layers\.1\.bias": F32 to F32, \[16\], 64 bytes; the model gives .*\[8\], 32 bytes$/,
    );
    await refuse(
      safetensors({ ...fewer, 'layers.1.bias': weights('F16', [16]) }),
      /the model gives "layers\.1\.bias": F16 to F16/,
    );
    await refuse(
      safetensors({ ...fewer, 'layers.1.bias': weights('F32', [16]), more: weights('F32', [16]) }),
      /the model also has "more"$/,
    );
    // The options were edited, so that the plan contradicts itself.
    await refuse(model(), /it plans "layers\.0\.weight": F32 to I8/, { ...saved, options: { to: 'float16' } });
    // Plans that never left the program are held to the same.
    await refuse(safetensors(fewer), /the model has no/, await planModel(model(), { to: 'int8' }));
  });

  it('carries out the plan for other weights of the same model', async () => {
    const saved = throughJson(await planModel(model(1), { to: 'int8' }));
    expect(await bytesOf(model(2), saved)).toEqual(await bytesOf(model(2), { to: 'int8' }));
  });

  it.each([
    ['no options', { tensors: [], totals: {} }],
    ['no list of tensors', { tensors: 5, totals: {}, options: { to: 'int8' } }],
    ['no tensors in it', { tensors: [null], totals: {}, options: { to: 'int8' } }],
  ])('is refused with %s', async (_, plan) => {
    expectRefusal(await failed(quantizeModel(model(), plan as never)), TypeError, 'plan');
  });

  it('is refused with options that do not exist', async () => {
    const plan = { tensors: [], totals: {}, options: { to: 'int8', wrong: 1 } };
    expectRefusal(await failed(quantizeModel(model(), plan as never)), TypeError, 'plan.options.wrong');
  });
});

it('gives an error that names the option, or a result, whatever somebody changed in a plan', async () => {
  const data = new Float32Array(1024);
  const file = safetensors({ 'a.weight': { dtype: 'F32', shape: [32, 32], data } });
  const rules = [{ match: 'b', to: 'int8' as const }];
  const saved = JSON.stringify(await planModel(file, { to: 'int4', rules }));
  const placesIn = (value: unknown): string[][] =>
    typeof value !== 'object' || value === null
      ? []
      : Object.entries(value).flatMap(([key, one]) => [[key], ...placesIn(one).map((rest) => [key, ...rest])]);
  const place = fc.constantFrom(...placesIn(JSON.parse(saved)));
  const value = fc.constantFrom(null, -1, 0, 1.5, 2 ** 53, 1e300, '', 'x', true, [], {}, [null], '__proto__');
  await fc.assert(
    fc.asyncProperty(place, value, async (path, other) => {
      const plan = JSON.parse(saved);
      const inner = path.slice(0, -1).reduce((at, key) => at[key], plan);
      inner[path.at(-1) as string] = other;
      const error: unknown = await quantizeModel(file, plan, { workers: 0 }).then(
        () => undefined,
        (reason: unknown) => reason,
      );
      if (error === undefined || error instanceof ScalepointError) return;
      expect(error).toMatchObject({ option: expect.any(String) });
    }),
    { numRuns: 100, seed: 1 },
  );
});
