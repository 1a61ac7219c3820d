// keepSplit: a model in several files becomes one in as many, beside llama_model_quantize.

import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { planModel, type QuantizeModelOptions, quantizeModel } from '../../../../web/src/model.js';
import { safetensors, weights } from '../../support/models.js';
import { needNative } from '../../support/native.js';
import { expectSameFile, native } from '../../support/native-files.js';
import { tinyLlama } from '../../support/tiny-llama.js';

needNative();

const digits = (n: number) => String(n).padStart(5, '0');

/** The bytes of the files that a model becomes. */
async function filesOf(input: QuantizeInput, options: QuantizeModelOptions): Promise<Uint8Array<ArrayBuffer>[]> {
  const folder = await mkdtemp(join(tmpdir(), 'scalepoint-keep-'));
  try {
    const { files } = await quantizeModel(input, { workers: 0, ...options, output: join(folder, 'm.gguf') });
    return await Promise.all(files.map(async ({ name }) => new Uint8Array(await readFile(join(folder, name)))));
  } finally {
    await rm(folder, { recursive: true });
  }
}
type QuantizeInput = Parameters<typeof quantizeModel>[0];

const named = (files: readonly Uint8Array<ArrayBuffer>[]) =>
  files.map((bytes, i) => new File([bytes], `m-${digits(i + 1)}-of-${digits(files.length)}.gguf`));

describe('keepSplit', () => {
  it.each([4, 9, 100])('gives the files of llama-quantize: %s tensors in each', async (splitTensors) => {
    const parts = await filesOf(tinyLlama({ layers: 3, rows: 4 }), { to: 'copy', splitTensors });
    for (const to of ['Q4_K_M', 'Q5_0', 'F32'] as const) {
      const made = await filesOf(named(parts), { to, keepSplit: true });
      expect(made).toHaveLength(parts.length);
      const [first, ...splits] = parts as [Uint8Array];
      expectSameFile(
        Buffer.concat(made),
        native(first, to, { splits, keepSplit: true }),
        `${to} in ${parts.length} files`,
      );
    }
  });

  it('keeps the order of a model in one file, as llama-quantize does', async () => {
    const file = tinyLlama({ layers: 3, rows: 4 });
    const [made] = await filesOf(file, { to: 'Q3_K_M', keepSplit: true });
    expectSameFile(made!, native(file, 'Q3_K_M', { keepSplit: true }), 'one file');
  });

  it('copies, and tells the files in the plan', async () => {
    const parts = await filesOf(tinyLlama({ layers: 2, rows: 4 }), { to: 'copy', splitTensors: 7 });
    const options = { to: 'Q8_0', keepSplit: true } as const;
    const plan = await planModel(named(parts), { ...options, workers: 0 });
    const made = await filesOf(named(parts), options);
    expect(plan.files.map(({ bytes }) => bytes)).toEqual(made.map(({ length }) => length));
    const copied = await filesOf(named(parts), { to: 'copy', keepSplit: true });
    expect(copied.map(({ length }) => length)).toEqual(parts.map(({ length }) => length));
  });

  it('is refused beside other files, without tensors in one, and for other formats', async () => {
    const parts = named(await filesOf(tinyLlama({ layers: 2, rows: 4 }), { to: 'copy', splitTensors: 7 }));
    const refused = (input: QuantizeInput, options: object) =>
      expect(
        planModel(input, { to: 'Q8_0', keepSplit: true, ...options } as QuantizeModelOptions),
      ).rejects.toMatchObject({
        option: 'keepSplit',
      });
    await refused(parts, { splitTensors: 3 });
    await refused(parts, { shardSize: '1MB' });
    await refused(parts, { keepSplit: 'yes' });
    await refused(parts, { pruneLayers: [0, 1] });
    const diffusion = safetensors({ 'double_blocks.0.img_attn.proj.weight': weights('F16', [256, 256]) });
    await refused(diffusion, {});
  });
});
