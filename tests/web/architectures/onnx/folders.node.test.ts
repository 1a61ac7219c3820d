// Folders for transformers.js with models of several types.
import { readFile, writeFile } from 'node:fs/promises';
import { type ModelPlan, planModel, type QuantizeModelOptions, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { path, run, useFolder } from '../../cli/support.js';
import { folder } from '../../support/folders.js';
import { expectBytes } from '../../support/models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';
import { makeFolder } from './runs.js';

useFolder();

const weights = decoderWeights();
const files = { 'config.json': decoderConfig('LlamaForCausalLM', {}), 'tokenizer.json': plainTokenizer() } as const;
const made = (options: QuantizeModelOptions) => makeFolder(weights, files, options);
const settingsOf = (all: ReadonlyMap<string, Uint8Array>) =>
  JSON.parse(new TextDecoder().decode(all.get('config.json')))['transformers.js_config'] as Record<string, unknown>;
const input = () =>
  folder(
    Object.fromEntries([...weights].map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }])),
    files,
  );

const targets = ['onnx:q4f16', 'onnx:q8', 'onnx:fp32'] as const;
const names = { 'onnx:q4f16': 'model_q4f16', 'onnx:q8': 'model_quantized', 'onnx:fp32': 'model' } as const;
const [to, ...also] = targets;

describe('several types', () => {
  it('go into one folder, with the bytes that each has alone', async () => {
    const options = { blockSize: 16, perTensor: true, rules: [{ match: 'layers.0', keep: true }] } as const;
    const { files: all, result } = await made({ to, also, ...options });
    const own = { 'onnx:q4f16': { blockSize: 16 }, 'onnx:q8': { perTensor: true }, 'onnx:fp32': {} } as const;
    let quantized = 0;
    for (const one of targets) {
      const rules = one === 'onnx:fp32' ? {} : { rules: options.rules };
      const alone = await made({ to: one, ...own[one], ...rules });
      const path = `onnx/${names[one]}.onnx`;
      expectBytes(all.get(path)!, alone.files.get(path)!, path);
      quantized += alone.result.report.totals.quantized;
    }
    expect([...all.keys()].sort()).toEqual(
      ['config.json', 'tokenizer.json', ...Object.values(names).map((name) => `onnx/${name}.onnx`)].sort(),
    );
    expect(settingsOf(all)).toEqual({ dtype: 'q4f16' });
    expect(result.report.totals.quantized).toBe(quantized);
    // A note about both is there once.
    const texts = result.report.notes.map(({ text }) => text);
    expect(new Set(texts).size).toBe(texts.length);
  });

  it('state files with weights and types of caches by file and by type', async () => {
    const { files: all } = await made({
      to: 'onnx:q8-blocks',
      also: ['onnx:fp16', 'onnx:q4f16', 'onnx:q4'],
      externalData: true,
      kvCache: 'float16',
    });
    const models = ['model_q8-blocks', 'model_fp16', 'model_q4f16', 'model_q4'].map((name) => `${name}.onnx`);
    // A model that transformers.js finds by a type comes before one that has a name of its own.
    expect(settingsOf(all)).toEqual({
      dtype: 'fp16',
      use_external_data_format: Object.fromEntries(models.map((name) => [name, 1])),
      kv_cache_dtype: { fp16: 'float16', q4f16: 'float16' },
    });
    for (const name of models) expect(all.has(`onnx/${name}_data`)).toBe(true);
  });

  it('are one result of a list of targets, and of a saved plan', async () => {
    const [one, ...others] = await quantizeModel(input(), { to: targets });
    expect(others).toEqual([]);
    const plan = await planModel(input(), { to, also });
    const byPlan = await quantizeModel(input(), JSON.parse(JSON.stringify(plan)) as ModelPlan);
    expect(plan.files.map(({ name }) => name).slice(0, 3)).toEqual(
      Object.values(names).map((name) => `model/onnx/${name}.onnx`),
    );
    for (const { name, bytes } of plan.files) {
      const first = await one!.bytes(name);
      expect(first.length, name).toBe(bytes);
      expectBytes(await byPlan.bytes(name), first, name);
    }
    expect(plan.totals.bytesAfter).toBe(plan.files.reduce((sum, { bytes }) => sum + bytes, 0));
  });

  it('are refused twice, beside other results, and where no type takes an option', async () => {
    const refused = (options: object, option: string) =>
      expect(planModel(input(), options as { to: 'onnx:q4' })).rejects.toMatchObject({ option });
    await refused({ to: 'onnx:q4', also: ['onnx:q8', 'onnx:q8'] }, 'also[1]');
    await refused({ to: 'onnx:q4', also: ['onnx:q8', 'onnx:q4'] }, 'also[1]');
    await refused({ to: 'onnx:q4', also: ['q8'] }, 'also[0]');
    await refused({ to: 'onnx:q4', also: 'onnx:q8' }, 'also');
    await refused({ to: 'onnx:q8', also: ['onnx:fp32'], blockSize: 16 }, 'blockSize');
    await refused({ to: 'onnx:q4', also: ['onnx:bnb4'], zeroPoints: 'float', range: 'percentile' }, 'range');
  });
});

it('the command line writes one folder of several types, and plans it file by file', async () => {
  for (const file of input() as File[]) await writeFile(path(file.name), file.stream());
  const { files: alone } = await made({ to: 'onnx:q4', blockSize: 64 });
  const given = ['model.safetensors', '--to', 'onnx:q4,onnx:q8', '--block-size', '64'];
  const { code, stderr } = await run([...given, '-o', 'out', '--quiet']);
  expect([code, stderr]).toEqual([0, '']);
  const q4 = new Uint8Array(await readFile(path('out/onnx/model_q4.onnx')));
  expectBytes(q4, alone.get('onnx/model_q4.onnx')!);
  const size = (await readFile(path('out/onnx/model_quantized.onnx'))).length;
  const text = (await run(['plan', ...given])).stdout;
  expect(text).toContain(
    `would write model-q4-q8-ONNX/onnx/model_quantized.onnx: ${size.toLocaleString('en')} bytes\n`,
  );
  const { stdout } = await run(['plan', ...given, '--json']);
  const plan = JSON.parse(stdout) as { output: string; files: { name: string; bytes: number }[] };
  expect(plan.output).toBe('model-q4-q8-ONNX');
  expect(plan.files.slice(0, 2)).toEqual([
    { name: 'model-q4-q8-ONNX/onnx/model_q4.onnx', bytes: q4.length },
    { name: 'model-q4-q8-ONNX/onnx/model_quantized.onnx', bytes: size },
  ]);
});
