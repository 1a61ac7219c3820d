// transformers.js loads what is made of a transformer, in Node with onnxruntime-node.
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { expect, it } from 'vitest';
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
