// Models of the hub on the command line.
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { inspectModel } from '../../../web/src/model.js';
import { path, run, useFolder } from '../cli/support.js';
import { activationsOf, matrixFile } from '../support/importance.js';
import { expectBytes, safetensors, weights } from '../support/models.js';
import { languageModel, useHub, writeFiles } from './support.js';

useFolder();
const place = useHub();

it('a result has the name of its repository, and the bytes and files of one from a folder', async () => {
  const files = languageModel(2);
  await place.start({ repositories: { 'acme/tiny': { files } } });
  await writeFiles(path('local', 'tiny'), files);
  for (const to of ['Q8_0', 'int8']) {
    const [remote, local] = [
      await run(['hf:acme/tiny', '--to', to, '--workers', '0']),
      await run([path('local', 'tiny'), '--to', to, '--workers', '0', '-o', `${path('local')}/`]),
    ];
    expect([remote.code, local.code, remote.stderr]).toEqual([0, 0, local.stderr]);
  }
  expect((await readdir(path())).sort()).toEqual([
    'local',
    'tiny-Q8_0.gguf',
    'tiny.int8.config.json',
    'tiny.int8.safetensors',
  ]);
  expectBytes(await readFile(path('tiny-Q8_0.gguf')), await readFile(path('local', 'tiny-Q8_0.gguf')));
  expectBytes(await readFile(path('tiny.int8.safetensors')), await readFile(path('local', 'model.int8.safetensors')));
  expect(await readFile(path('tiny.int8.config.json'), 'utf8')).toBe(
    await readFile(path('local', 'model.int8.config.json'), 'utf8'),
  );
});

it('all commands that take a model take names of the hub', async () => {
  const hub = await place.start({ repositories: { 'acme/tiny': { files: languageModel() } } });
  const lines = [
    ['inspect', 'hf:acme/tiny'],
    ['plan', `${hub.endpoint}/acme/tiny/tree/main`, '--to', 'Q4_0'],
    ['verify', 'hf:acme/tiny@main'],
    ['compare', 'hf:acme/tiny', `${hub.endpoint}/acme/tiny/blob/main/model.safetensors`],
    ['hf:acme/tiny', '--to', 'Q8_0', '--dry-run'],
    ['split', 'hf:acme/tiny', '--split-size', '100KB', '-o', path('split.safetensors')],
  ];
  for (const line of lines) {
    hub.requests.length = 0;
    const { code, stderr } = await run(line);
    expect([line, code, stderr]).toEqual([line, 0, '']);
    // Each FILE is listed once.
    const names = line.filter((word) => word.includes('acme/tiny')).length;
    const asked = hub.requests.map((request) => request.path);
    expect(asked.filter((one) => one.startsWith('/api/models/'))).toHaveLength(names);
    expect(asked.filter((one) => one.includes('/resolve/') && one.endsWith('.safetensors'))).toHaveLength(names);
  }
});

it('files that flags name may be on the hub, and stay at their commit', async () => {
  const matrix = matrixFile(activationsOf([{ name: 'blk.0.attn_q.weight', shape: [64, 64] }]));
  const [down, up] = [weights('F32', [2, 64]), weights('F32', [64, 2], 2)];
  const name = 'base_model.model.model.layers.0.self_attn.q_proj';
  const adapter = safetensors({ [`${name}.lora_A.weight`]: down, [`${name}.lora_B.weight`]: up });
  const settings = JSON.stringify({ peft_type: 'LORA', r: 2, lora_alpha: 4 });
  const beside = { 'adapter_model.safetensors': adapter, 'adapter_config.json': settings };
  const hub = await place.start({
    repositories: {
      'acme/tiny': { files: languageModel() },
      'acme/lora': { files: beside },
      'acme/data': { files: { 'tiny.imatrix': matrix, 'chat.jinja': '{{ messages }}' } },
    },
  });
  const folder = await writeFiles(path('tiny'), {
    ...languageModel(),
    'tiny.imatrix': matrix,
    'chat.jinja': '{{ messages }}',
  });
  await writeFiles(path('lora'), beside);
  const line = (model: string, lora: string, data: string, output: string) => [
    model,
    '--to',
    'Q4_0',
    '--force',
    '--lora',
    `${lora}:0.5`,
    '--imatrix',
    `${data}/tiny.imatrix`,
    '--chat-template',
    `${data}/chat.jinja`,
    '--workers',
    '0',
    '-o',
    path(output),
  ];
  const saved = path('plan.json');
  const [remote, local] = [
    await run([...line('hf:acme/tiny', 'hf:acme/lora', 'hf:acme/data', 'a.gguf'), '--save-plan', saved]),
    await run(line(folder, path('lora', 'adapter_model.safetensors'), folder, 'b.gguf')),
  ];
  expect([remote.code, local.code]).toEqual([0, 0]);
  // The metadata name the matrix: here the whole name of the file, as with llama-quantize.
  const [a, b] = [await readFile(path('a.gguf')), await readFile(path('b.gguf'))];
  const dataAt = Math.min(...(await inspectModel(b)).tensors.map(({ byteOffset }) => byteOffset));
  expectBytes(a.subarray(-(b.length - dataAt)), b.subarray(dataAt));
  const commit = hub.repositories.get('acme/lora')?.branches.get('main');
  const pinned = hub.requests.filter((request) => request.path.includes(`/acme/lora/revision/${commit}`));
  expect(pinned.length).toBeGreaterThan(0);
});

describe('--resume', () => {
  it('knows a whole result', async () => {
    await place.start({ repositories: { 'acme/tiny': { files: languageModel() } } });
    const line = ['hf:acme/tiny', '--to', 'int8', '--shard-size', '40KB', '--resume', '--workers', '0'];
    const first = await run(line);
    expect(first.code).toBe(0);
    const again = await run(line);
    expect(again.stderr).toContain('is there already, with the files and sizes of the plan');
  });

  it('is stamped by the commit and the digest', async () => {
    const hub = await place.start({ repositories: { 'acme/tiny': { files: languageModel() } } });
    const line = ['hf:acme/tiny', '--to', 'int8', '--shard-size', '40KB', '--resume', '--workers', '0'];
    // The second file of the result cannot be written.
    const plan = await run(['plan', 'hf:acme/tiny', '--to', 'int8', '--shard-size', '40KB', '--json']);
    const second = JSON.parse(plan.stdout).files[1].name;
    await mkdir(path(second, 'in the way'), { recursive: true });
    expect((await run([...line, '--force'])).code).not.toBe(0);
    await rm(path(second), { recursive: true });
    const journal = (await readdir(path())).find((name) => name.endsWith('.resume')) as string;
    const commit = hub.repositories.get('acme/tiny')?.branches.get('main');
    expect(await readFile(path(journal), 'latin1')).toContain(`hf:acme/tiny@${commit}/model.safetensors#`);
    hub.repositories.get('acme/tiny')?.change({ 'README.md': '# Another text' });
    const changed = await run(line);
    expect([changed.code, changed.stderr]).toEqual([1, expect.stringContaining('the model')]);
  });
});

it('a wrong name is wrong usage, and several files are a question', async () => {
  const gguf = new Uint8Array(64);
  const hub = await place.start({
    repositories: { 'acme/tiny-GGUF': { files: { 'tiny-Q4_K_M.gguf': gguf, 'tiny-Q5_K_M.gguf': gguf } } },
  });
  const wrong = await run(['inspect', 'hf:datasets/acme/tiny']);
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('expected the name of a model on the hub')]);
  const several = await run(['inspect', 'hf:acme/tiny-GGUF']);
  expect(several.code).toBe(1);
  expect(several.stderr).toContain(
    'acme/tiny-GGUF holds several models; did you mean hf:acme/tiny-GGUF:Q4_K_M or hf:acme/tiny-GGUF:Q5_K_M?',
  );
  const absent = await run(['inspect', 'hf:acme/tiny-GGUF/other.gguf']);
  expect(absent.stderr).toContain(
    'acme/tiny-GGUF has no file "other.gguf"; it has "tiny-Q4_K_M.gguf", "tiny-Q5_K_M.gguf"',
  );
  expect(hub.requests.every((request) => request.path.startsWith('/api/models/'))).toBe(true);
});
