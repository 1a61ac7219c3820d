// Several results of one model in one call.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { inspectModel, type Progress, planModel, quantizeModel } from 'scalepoint/model';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';

const model = onnx.product('MatMul', [64, 48], [3, 64], [3, 48])();
let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'scalepoint-several-'));
  writeFileSync(join(folder, 'model.onnx'), model);
});
afterEach(() => rmSync(folder, { recursive: true }));

const bytesOf = async (options: Parameters<typeof quantizeModel>[1] & { readonly to: 'q4' | 'q8' | 'fp16' }) =>
  (await quantizeModel(model, options)).bytes();

describe('several targets', () => {
  it('are results in memory, in order and under their usual names', async () => {
    const results = await quantizeModel(model, { to: ['q8', 'q4', 'fp16'], workers: 0 });
    const names = results.map(({ files }) => files.map(({ name }) => name));
    expect(names).toEqual([['model_quantized.onnx'], ['model_q4.onnx'], ['model_fp16.onnx']]);
    for (const [i, to] of (['q8', 'q4', 'fp16'] as const).entries()) {
      expect(await results[i]?.bytes()).toEqual(await bytesOf({ to, workers: 0 }));
    }
  });

  it.each(['a path', 'a path that ends like a folder', 'a URL'])('go into a folder: %s', async (what) => {
    const output = what === 'a URL' ? pathToFileURL(folder) : what === 'a path' ? folder : `${folder}/`;
    const path = join(folder, 'model.onnx');
    const [q8, q4] = await quantizeModel(path, { to: ['q8', 'q4'], output, workers: 0 });
    expect(readdirSync(folder).sort()).toEqual(['model.onnx', 'model_q4.onnx', 'model_quantized.onnx']);
    expect(new Uint8Array(readFileSync(join(folder, 'model_q4.onnx')))).toEqual(
      await bytesOf({ to: 'q4', workers: 0 }),
    );
    expect(q8?.files[0]?.name).toBe('model_quantized.onnx');
    await expect(q4?.bytes()).rejects.toThrow(/was written to `output`/);
  });

  it('are called after the file, and name the files with their data', async () => {
    const file = new File([model], 'decoder.onnx');
    const [made] = await quantizeModel(file, { to: ['q4'], externalData: true, workers: 0 });
    const names = made?.files.map(({ name }) => name) ?? [];
    expect(names).toEqual(['decoder_q4.onnx', 'decoder_q4.onnx_data']);
    const parts = await Promise.all(names.map(async (name) => new File([(await made?.bytes(name)) as never], name)));
    expect((await inspectModel(parts)).tensors).toHaveLength(2);
  });

  it('take the options that they know', async () => {
    const [fp16, q4] = await quantizeModel(model, { to: ['fp16', 'q4'], blockSize: 16, workers: 0 });
    expect(await fp16?.bytes()).toEqual(await bytesOf({ to: 'fp16', workers: 0 }));
    expect(await q4?.bytes()).toEqual(await bytesOf({ to: 'q4', blockSize: 16, workers: 0 }));
    await expect(quantizeModel(model, { to: ['fp16', 'q8'], blockSize: 16 })).rejects.toThrow(/blockSize/);
  });

  it('report the one that is being made', async () => {
    const seen: Progress[] = [];
    await quantizeModel(model, { to: ['q8', 'q4'], workers: 0, onProgress: (progress) => seen.push(progress) });
    expect([...new Set(seen.map(({ to }) => to))]).toEqual(['q8', 'q4']);
  });

  it('are refused before anything is written', async () => {
    const wrong = (to: readonly unknown[], more: object = {}) =>
      quantizeModel(join(folder, 'model.onnx'), { to, output: folder, ...more } as never);
    await expect(wrong([])).rejects.toMatchObject({ name: 'RangeError', option: 'to' });
    await expect(wrong(['q8', 'q9'])).rejects.toMatchObject({ name: 'RangeError', option: 'to' });
    await expect(wrong(['q8', 'q4', 'q8'])).rejects.toMatchObject({ name: 'RangeError', option: 'to[2]' });
    await expect(wrong(['q8', 'Q4_K_M'])).rejects.toMatchObject({ name: 'RangeError', option: 'to' });
    await expect(quantizeModel(model, { to: 'Q4_K_M' })).rejects.toMatchObject({
      option: 'to',
      problem: { got: 'Q4_K_M' },
    });
    await expect(wrong(['q8'], { targetSize: '1MB' })).rejects.toMatchObject({ option: 'to' });
    const output = new WritableStream();
    await expect(wrong(['q8'], { output })).rejects.toMatchObject({ name: 'RangeError', option: 'output' });
    expect(readdirSync(folder)).toEqual(['model.onnx']);
  });
});

describe('a plan', () => {
  it('tells the sizes of a result in two files by what it will be called', async () => {
    for (const name of ['model.onnx', 'q.onnx', 'a-much-longer-name.onnx']) {
      mkdirSync(join(folder, 'out'), { recursive: true });
      const output = join(folder, 'out', name);
      const options = { to: 'q8', externalData: true } as const;
      for (const where of [output, pathToFileURL(output)]) {
        const plan = await planModel(model, { ...options, output: where });
        const { files } = await quantizeModel(model, { ...options, output: where, overwrite: true, workers: 0 });
        expect(plan.files.map(({ bytes }) => bytes)).toEqual(files.map(({ bytes }) => bytes));
        expect(plan.files.map(({ bytes }) => bytes)).toEqual(
          [output, `${output}_data`].map((file) => statSync(file).size),
        );
        expect('output' in plan.options).toBe(false);
      }
    }
  });

  it('takes an output that has no name for the usual one', async () => {
    const options = { to: 'q8', externalData: true } as const;
    const { files } = await planModel(model, options);
    expect((await planModel(model, { ...options, output: new WritableStream() })).files).toEqual(files);
    for (const output of [3, null]) {
      await expect(planModel(model, { to: 'q8', output: output as never })).rejects.toMatchObject({ option: 'output' });
    }
  });
});
