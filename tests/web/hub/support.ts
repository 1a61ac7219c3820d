// Models on the hub of these tests, and folders with the same files.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeEach } from 'vitest';
import { type HubOptions, startHub, type TestHub } from '../support/hub/hub.mjs';
import { safetensors, type TestTensor } from '../support/models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../support/tiny-huggingface.js';

type Files = Record<string, string | Uint8Array>;

const variables = [
  'HF_ENDPOINT',
  'HF_HOME',
  'HF_TOKEN',
  'HF_HUB_CACHE',
  'HF_HUB_OFFLINE',
  'HF_HUB_ETAG_TIMEOUT',
  'HF_HUB_DOWNLOAD_TIMEOUT',
] as const;

/** Sets variables of this process for a test, those of a user without token and cache by default. */
export function setHub(values: Partial<Record<(typeof variables)[number], string>>): void {
  for (const name of variables) delete process.env[name];
  Object.assign(process.env, values);
}

/** A hub for each test of a file, which is closed behind it. */
export function useHub() {
  const before = Object.fromEntries(variables.map((name) => [name, process.env[name]]));
  const open: { close(): Promise<void> }[] = [];
  let home = '';
  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'scalepoint-hub-'));
  });
  afterEach(async () => {
    for (const hub of open.splice(0)) await hub.close();
    await rm(home, { recursive: true });
  });
  afterAll(() => setHub(Object.fromEntries(Object.entries(before).filter(([, value]) => value !== undefined))));
  return {
    /** A path in the home of the hub's programs, which is empty. */
    path: (...names: string[]) => join(home, ...names),
    async start(options: HubOptions): Promise<TestHub> {
      const hub = await startHub(options);
      open.push(hub);
      setHub({ HF_ENDPOINT: hub.endpoint, HF_HOME: home });
      return hub;
    },
  };
}

/** Writes files into a folder. */
export async function writeFiles(folder: string, files: Files): Promise<string> {
  for (const [path, content] of Object.entries(files)) {
    const place = join(folder, ...path.split('/'));
    await mkdir(dirname(place), { recursive: true });
    await writeFile(place, content);
  }
  return folder;
}

/** A language model as safetensors, in one file or in shards with an index. */
export function languageModel(shards = 1): Files {
  const tensors = [...decoderWeights({})].map(([name, { shape, values }]): [string, TestTensor] => [
    name,
    { dtype: 'F32', shape, data: values },
  ]);
  const files: Files = {
    'config.json': JSON.stringify(decoderConfig('LlamaForCausalLM')),
    'tokenizer.json': JSON.stringify(plainTokenizer()),
    'README.md': '# A model',
  };
  if (shards === 1) return { ...files, 'model.safetensors': safetensors(Object.fromEntries(tensors)) };
  const names = Array.from({ length: shards }, (_, i) => `model-0000${i + 1}-of-0000${shards}.safetensors`);
  const map: Record<string, string> = {};
  for (const [i, shard] of names.entries()) {
    const own = tensors.filter((_, at) => at % shards === i);
    files[shard] = safetensors(Object.fromEntries(own));
    for (const [name] of own) map[name] = shard;
  }
  return { ...files, 'model.safetensors.index.json': JSON.stringify({ metadata: {}, weight_map: map }) };
}
