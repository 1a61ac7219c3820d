// Layers that are left out, and an output that stays as it is, beside llama_model_quantize.
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { readGguf } from '../../../../web/src/formats/gguf/header.js';
import { planModel, type QuantizeModelOptions, quantizeModel } from '../../../../web/src/model.js';
import { activationsOf, matrixFile, meansOf } from '../../support/importance.js';
import { needNative } from '../../support/native.js';
import { expectNative } from '../../support/native-files.js';
import { tinyLlama } from '../../support/tiny-llama.js';

needNative();

describe('pruneLayers', () => {
  it.each([[[0]], [[3]], [[8]], [[2, 3, 4]], [[0, 8]], [[1, 5, 99]], [[99]], [[0, 1, 2, 3, 4, 5, 6, 7]]])(
    'leaves out %j as llama-quantize does',
    async (prune) => {
      const file = tinyLlama({ layers: 9, rows: 2 });
      for (const to of ['Q4_K_M', 'Q3_K_M'] as const) {
        await expectNative(file, to, { pruneLayers: [...prune, prune[0]!].reverse() }, { prune });
      }
    },
  );

  it('does so with experts, many layers and other names', async () => {
    const tensors = ['v.blk.3.ffn_down.weight', 'blk.4x.ffn_up.weight'].map((name) => ({
      name,
      dtype: 'F16',
      ne: [256, 2],
    }));
    await expectNative(
      tinyLlama({ layers: 13, rows: 2, tensors }),
      'Q4_K_S',
      { pruneLayers: [3, 11] },
      { prune: [3, 11] },
    );
    await expectNative(tinyLlama({ layers: 9, rows: 2, experts: 4 }), 'Q4_K_M', { pruneLayers: [1] }, { prune: [1] });
  });

  it('takes the importance of a layer by its old number, and edits of the metadata before', async () => {
    const file = tinyLlama({ layers: 4, rows: 3 });
    const known = activationsOf((await readGguf(await openSource(file))).tensors);
    const edits = [
      ['quantize.imatrix.dataset', 'calibration.txt'],
      ['quantize.imatrix.entries_count', BigInt(known.length)],
      ['quantize.imatrix.chunks_count', 123n],
    ] as const;
    const nativeOptions = { prune: [1], importance: meansOf(known), metadata: [['a.b', true], ...edits] as const };
    const options = { pruneLayers: [1], importance: matrixFile(known), metadata: { 'a.b': true } };
    await expectNative(file, 'Q4_K_M', options, nativeOptions);
    const result = await quantizeModel(file, { workers: 0, to: 'Q4_K_M', pruneLayers: [1] });
    const names = result.report.tensors.map(({ name }) => name);
    expect(names.some((name) => name.includes('blk.1.'))).toBe(false);
    expect(names.some((name) => name.includes('blk.3.'))).toBe(true);
  });

  it('is refused by name where it lists no layers', async () => {
    const wrong = (options: object) =>
      planModel(tinyLlama({ layers: 1, rows: 2 }), { to: 'Q8_0', ...options } as QuantizeModelOptions);
    for (const pruneLayers of [3, 'all', [-1], [1.5], ['1'], [2 ** 40]]) {
      await expect(wrong({ pruneLayers })).rejects.toThrow(expect.objectContaining({ option: 'pruneLayers' }));
    }
    await expect(wrong({ to: 'copy', pruneLayers: [0] })).rejects.toThrow(
      expect.objectContaining({ option: 'pruneLayers' }),
    );
    await expect(wrong({ leaveOutputTensor: 1 })).rejects.toThrow(
      expect.objectContaining({ option: 'leaveOutputTensor' }),
    );
  });
});

describe('leaveOutputTensor', () => {
  it.each([false, true])('keeps it as llama-quantize does, tied: %s', async (tied) => {
    const file = tinyLlama({ layers: 2, rows: 2, tied });
    for (const to of ['Q8_0', 'Q4_K_M', 'F16', 'BF16'] as const) {
      await expectNative(file, to, { leaveOutputTensor: true }, { leaveOutput: true });
    }
  });
});
