// Small things of the API: plans that are carried out, tensors one by one, loading that is cancelled and shared.
import { load } from 'scalepoint';
import { planModel, quantizeModel, readTensor, tensors } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { safetensors, weights } from '../support/models.js';
import { expectSame } from '../support/support.js';

const model = safetensors({
  'a.weight': weights('F32', [8, 64]),
  'b.weight': weights('F16', [8, 64], 2),
  'c.bias': weights('F32', [8], 3),
});

it('carries out a plan as it is', async () => {
  const options = { to: 'int8', packed: false, rules: [{ match: /^b/, keep: true }] } as const;
  const plan = await planModel(model, options);
  const { report, bytes } = await quantizeModel(model, plan, { workers: 0 });
  const same = await quantizeModel(model, { ...options, workers: 0 });
  expectSame(await bytes(), await same.bytes());
  expect(report.totals.bytesAfter).toBe(plan.totals.bytesAfter);
  expect(Object.keys(plan)).not.toContain('options');
  await expect(quantizeModel(model, structuredClone(plan))).rejects.toMatchObject({ option: 'plan' });
});

it('gives all tensors one by one, and closes the file when the loop ends early', async () => {
  const names: string[] = [];
  for await (const tensor of tensors(model)) {
    names.push(tensor.name);
    expect(tensor).toEqual(await readTensor(model, tensor.name));
  }
  expect(names.sort()).toEqual(['a.weight', 'b.weight', 'c.bias']);
  for await (const tensor of tensors(model)) {
    expect(tensor.shape.length).toBeGreaterThan(0);
    break;
  }
  await expect(tensors(new Uint8Array(9)).next()).rejects.toMatchObject({ code: 'UNKNOWN_FORMAT' });
});

it('gives tensors of floats and blocks that the array calls take', async () => {
  const sp = await load();
  const half = await readTensor(model, 'b.weight');
  if (half.dtype !== 'F16') throw new Error(half.dtype);
  const q = sp.quantize(half, { granularity: { kind: 'per-channel', axis: 0 } });
  const same = sp.quantize(half.data, {
    from: 'float16',
    shape: [8, 64],
    granularity: { kind: 'per-channel', axis: 0 },
  });
  expect(q).toEqual(same);
  expect(sp.index(half).count).toBe(8);
  expect(sp.quantizeBlocks(half, 'Q8_0').shape).toEqual([8, 64]);
  expect(() => sp.quantize(half, { from: 'float16' })).toThrow(
    expect.objectContaining({
      option: 'from',
      problem: expect.objectContaining({
        expected: { kind: 'without', other: { kind: 'option', option: 'x.dtype', value: 'F16' } },
      }),
    }),
  );
  sp.dispose();
});

it('stops loading when the signal aborts', async () => {
  const reason = new Error('enough');
  await expect(load({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  const controller = new AbortController();
  const waiting = load({ wasm: () => new Promise<never>(() => {}), signal: controller.signal });
  controller.abort(reason);
  await expect(waiting).rejects.toBe(reason);
  await expect(load({ signal: 1 as never })).rejects.toMatchObject({ option: 'signal' });
  (await load({ signal: new AbortController().signal })).dispose();
});
