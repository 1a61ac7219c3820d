// transformers.js loads what is made of a transformer, in Node with onnxruntime-node.
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { load } from 'scalepoint';
import { quantizeModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { type LlamaConfig, llamaModel } from '../../support/llama-onnx.js';
import { safetensors } from '../../support/models.js';
import { decoderConfig, decoderWeights } from '../../support/tiny-huggingface.js';
import { sidecars } from './transformer.js';
import { checkDtypes, howToInstall, modelFiles, type Transformers } from './transformers.js';

const packages = fileURLToPath(new URL('../../../transformers/node_modules', import.meta.url));
const entry = join(packages, '@huggingface/transformers/dist/transformers.node.mjs');

it('load by their dtype and give nearly what float32 gives', async ({ skip }) => {
  if (!existsSync(entry)) skip(howToInstall);
  const transformers = (await import(pathToFileURL(entry).href)) as Transformers;
  const folder = await mkdtemp(join(tmpdir(), 'scalepoint-transformers-'));
  try {
    await mkdir(join(folder, 'small/onnx'), { recursive: true });
    for (const [name, value] of Object.entries(sidecars))
      await writeFile(join(folder, 'small', name), JSON.stringify(value));
    for (const [name, content] of await modelFiles()) await writeFile(join(folder, 'small/onnx', name), content);
    const { env } = transformers;
    env.allowRemoteModels = false;
    env.useFSCache = false;
    env.localModelPath = folder;
    env.fetch = () => Promise.reject(new Error('nothing comes from the network'));
    await checkDtypes(transformers, 'cpu');
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  expect.hasAssertions();
});

it('feeds caches in float16 by the model and by its config.json', async ({ skip }) => {
  if (!existsSync(entry)) skip(howToInstall);
  const { AutoModelForCausalLM, Tensor, env } = (await import(pathToFileURL(entry).href)) as Transformers;
  const folder = await mkdtemp(join(tmpdir(), 'scalepoint-transformers-'));
  try {
    const config = decoderConfig('LlamaForCausalLM', { model_type: 'llama', num_hidden_layers: 2 });
    const weights = [...decoderWeights({ layers: 2 })].map(
      ([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }] as const,
    );
    const file = llamaModel(config as unknown as LlamaConfig, safetensors(Object.fromEntries(weights)), true);
    await mkdir(join(folder, 'small/onnx'), { recursive: true });
    await mkdir(join(folder, 'made/onnx'), { recursive: true });
    await writeFile(join(folder, 'small/onnx/model.onnx'), file);
    await writeFile(join(folder, 'small/config.json'), JSON.stringify(config));
    for (const to of ['fp16', 'q4f16'] as const) {
      const output = join(folder, `made/onnx/model_${to}.onnx`);
      const options = { to, kvCache: 'float16', output, workers: 0 } as const;
      const made = await quantizeModel(join(folder, 'small/onnx/model.onnx'), options);
      await writeFile(join(folder, 'made/config.json'), JSON.stringify(made.config));
      Object.assign(env, { allowRemoteModels: false, useFSCache: false, localModelPath: folder });
      const tokensOf = async (name: string, dtype: string) => {
        const model = await AutoModelForCausalLM.from_pretrained(name, { dtype, device: 'cpu' });
        const ids = new Tensor('int64', BigInt64Array.of(1n, 5n, 9n, 2n) as never, [1, 4]);
        const { data } = await model.generate({ inputs: ids, max_new_tokens: 8, do_sample: false });
        await model.dispose();
        return [...data].map(Number);
      };
      const [floats, halves] = [await tokensOf('small', 'fp32'), await tokensOf('made', to)];
      expect(halves).toHaveLength(12);
      // Rounding to 4 bits may lead to another token.
      expect(halves.slice(0, to === 'fp16' ? 12 : 4)).toEqual(floats.slice(0, to === 'fp16' ? 12 : 4));
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

it('has tensors that calls on arrays take', async ({ skip }) => {
  if (!existsSync(entry)) skip(howToInstall);
  const { Tensor } = (await import(pathToFileURL(entry).href)) as Transformers;
  const sp = await load();
  const x = Float32Array.from({ length: 24 }, (_, i) => ((i * 7) % 11) / 8 - 0.5);
  const tensor = new Tensor('float32', x, [4, 6]);
  const q = sp.quantize(tensor);
  expect(q).toEqual(sp.quantize(x, { shape: [4, 6] }));
  expect(sp.compare(tensor, q)).toEqual(sp.compare(x, q));
  expect(sp.histogram(tensor)).toEqual(sp.histogram(x));
  expect(sp.castFloat(tensor, 'bfloat16')).toEqual(sp.castFloat(x, 'bfloat16'));
  expect(sp.matmulFloat(tensor).forward(tensor)).toEqual(sp.matmulFloat(x, { shape: [4, 6] }).forward(x));
  const wanted = sp.index(x, { shape: [4, 6] }).search(x.slice(0, 6), 4);
  const rows = [0, 1, 2, 3].map((row) => new Tensor('float32', x.slice(row * 6, row * 6 + 6), [1, 6]));
  for (const vectors of [tensor, rows]) expect(sp.index(vectors).search(x.slice(0, 6), 4)).toEqual(wanted);
  const observer = sp.observer();
  observer.observe(tensor);
  const other = sp.observer();
  other.observe(x);
  expect(observer.parameters()).toEqual(other.parameters());
  sp.dispose();
});
