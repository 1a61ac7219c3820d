// Language models in workers: the same results bit for bit, whatever their number. Runs in Node and in Chromium.
import { calibrateModel, evaluateModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { madeUpLlama } from '../support/made-up-llama.js';
import { drawn } from '../support/tokens.js';

const small = { layers: 3, width: 64 };

const sameBytes = (a: Uint8Array | undefined, b: Uint8Array | undefined) =>
  a !== undefined && a.length === b?.length && a.every((value, i) => value === b[i]);

describe('workers', () => {
  // Seven slices of 512 tokens, the last one shorter.
  const ids = drawn(3200, 3);
  const options = { chunkSize: 32 };

  it('collect the same statistics', async () => {
    const file = madeUpLlama(small);
    const collect = async (workers: number) => {
      const made = await calibrateModel(file, ids, { ...options, workers, moments: true });
      return { importance: await made.bytes(), moments: await made.moments?.bytes() };
    };
    const alone = await collect(0);
    for (const workers of [1, 2, 3]) {
      const found = await collect(workers);
      expect(found.importance).toEqual(alone.importance);
      expect(sameBytes(found.moments, alone.moments)).toBe(true);
    }
  });

  it('judge alike', async () => {
    const file = madeUpLlama(small);
    const other = await (await quantizeModel(file, { to: 'Q4_0', workers: 0 })).bytes();
    const judge = (workers: number) => evaluateModel(other, { ...options, text: ids, reference: file, workers });
    const alone = await judge(0);
    expect(alone.kl.value).toBeGreaterThan(0);
    for (const workers of [1, 2, 3]) expect(await judge(workers)).toEqual(alone);
  });

  it('end when the signal aborts, with its reason', async () => {
    const controller = new AbortController();
    const reason = new Error('enough');
    const onProgress = () => controller.abort(reason);
    const call = calibrateModel(madeUpLlama(small), ids, { workers: 2, signal: controller.signal, onProgress });
    await expect(call).rejects.toBe(reason);
  });

  it('name the layer where numbers end', async () => {
    for (const workers of [0, 2]) {
      const file = madeUpLlama({ ...small, spoiled: 'blk.1.ffn_down.weight' });
      await expect(evaluateModel(file, { text: ids, workers })).rejects.toMatchObject({
        code: 'NON_FINITE',
        message: 'the states behind layer 1 are not finite',
      });
      await expect(calibrateModel(file, ids, { workers })).rejects.toMatchObject({ code: 'NON_FINITE' });
      const attention = madeUpLlama({ ...small, spoiled: 'blk.1.attn_v.weight' });
      await expect(calibrateModel(attention, ids, { workers })).rejects.toMatchObject({
        code: 'NON_FINITE',
        tensor: 'blk.1.attn_output.weight',
      });
    }
  });
});
