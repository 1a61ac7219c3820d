// Results for WebLLM on the command line.
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { registerLibrary } from '../../../web/src/architectures/webllm/families.js';
import { safetensors } from '../support/models.js';
import { putSmol, smolShapes } from '../support/smol.js';
import { decoderConfig, decoderWeights, plainTokenizer, tiny } from '../support/tiny-huggingface.js';
import { path, run, useFolder } from './support.js';

useFolder();

it('plans a folder with the exact size of each file, and names the library', async () => {
  await putSmol(path('smol'));
  const { stdout, code } = await run(['plan', 'smol', '--to', 'mlc-q4f16_1', '--json']);
  expect(code).toBe(0);
  const plan = JSON.parse(stdout);
  expect(plan.output).toBe('smol/smol-q4f16_1-MLC');
  expect(plan.architecture).toBe('SmolLM2-360M-Instruct-q4f16_1-MLC');
  expect(plan.notes.map(({ kind }: { kind: string }) => kind)).toEqual(['webllmLibrary']);
  const names: string[] = plan.files.map(({ name }: { name: string }) => name);
  expect(names.slice(0, 4).map((name) => name.slice(name.indexOf('/')))).toEqual([
    '/tensor-cache.json',
    '/ndarray-cache.json',
    '/mlc-chat-config.json',
    '/tokenizer.json',
  ]);
  // Codes of 4 bits and a float16 for 32 of them; norms are float16.
  let weights = 0;
  let floats = 0;
  for (const [, shape] of smolShapes()) {
    if (shape.length === 2) weights += shape[0]! * shape[1]!;
    else floats += shape[0]!;
  }
  const shards: { name: string; bytes: number }[] = plan.files.slice(4);
  expect(shards.reduce((sum, { bytes }) => sum + bytes, 0)).toBe((weights / 32) * 18 + 2 * floats);
  for (const { bytes } of shards) expect(bytes).toBeLessThan(32 * 2 ** 20);
});

it('refuses a model that no library fits, and leaves nothing', async () => {
  await putSmol(path('other'), { rope_theta: 10000 });
  const { stderr, code } = await run(['other', '--to', 'mlc-q4f32_1', '-o', 'out']);
  expect(code).toBe(1);
  expect(stderr).toContain('the closest, SmolLM2-360M-Instruct, differs in rope_theta 10000 in place of 100000');
  expect(await readdir(path())).toEqual(['other']);
});

it('refuses rules', async () => {
  await putSmol(path('rules'));
  const { stderr, code } = await run(['plan', 'rules', '--to', 'mlc-q4f16_1', '--rule', 'norm=keep']);
  expect(code).toBe(2);
  expect(stderr).toContain('--rule');
});

it('writes a folder, which it inspects, verifies and refuses to replace', async () => {
  const forget = registerLibrary({
    model: 'tiny',
    family: 'llama',
    numbers: {
      hidden_size: tiny.hidden,
      intermediate_size: tiny.feedForward,
      num_hidden_layers: tiny.layers,
      num_attention_heads: tiny.heads,
      num_key_value_heads: tiny.keyHeads,
      head_dim: tiny.hidden / tiny.heads,
      vocab_size: tiny.vocabulary,
      rms_norm_eps: 1e-5,
      rope_theta: 10000,
      rope_scaling: 'none',
      tie_word_embeddings: false,
    },
    template: 'chatml',
    context: 128,
  });
  try {
    await mkdir(path('tiny'));
    const tensors = [...decoderWeights()].map(([name, { shape, values }]) => {
      return [name, { dtype: 'F32', shape, data: values }] as const;
    });
    await writeFile(path('tiny/model.safetensors'), safetensors(Object.fromEntries(tensors)));
    await writeFile(path('tiny/config.json'), JSON.stringify(decoderConfig('LlamaForCausalLM')));
    await writeFile(path('tiny/tokenizer.json'), JSON.stringify(plainTokenizer()));
    const args = ['tiny', '--to', 'mlc-q4f16_1', '--search', 'best', '-o', 'out'];
    const { code, stdout, stderr } = await run(args);
    expect(code).toBe(0);
    expect(stdout).toContain('wrote out/tensor-cache.json');
    expect(stderr).toContain("prebuiltAppConfig.model_list.find((m) => m.model_id === 'tiny-q4f16_1-MLC').model_lib");
    const files = [
      'mlc-chat-config.json',
      'ndarray-cache.json',
      'params_shard_0.bin',
      'tensor-cache.json',
      'tokenizer.json',
    ];
    expect((await readdir(path('out'))).sort()).toEqual(files);
    expect((await run(['verify', 'out'])).code).toBe(0);
    expect((await run(['inspect', 'out'])).stdout).toContain('model.layers.0.self_attn.qkv_proj.q_weight');
    // An existing folder takes the result into a folder of its own.
    expect((await run(args)).code).toBe(0);
    expect((await readdir(path('out/tiny-q4f16_1-MLC'))).sort()).toEqual(files);
    expect(await run(args)).toMatchObject({ code: 1 });
  } finally {
    forget();
  }
});
