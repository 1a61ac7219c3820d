// Caches in float16, and the config.json from which transformers.js 3 knows them.
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { planModel, quantizeModel, verifyModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { path, run, useFolder } from './support.js';

useFolder();

/** A product whose output joins a cache. */
const model = onnx.model({
  nodes: [
    { op: 'MatMul', in: ['x', 'w'], out: ['y'] },
    { op: 'Concat', in: ['past_key_values.0.key', 'y'], out: ['present.0.key'], attributes: { axis: 1 } },
  ],
  initializers: [onnx.floatTensor('w', [64, 64])],
  inputs: [
    ['x', [1, 3, 64]],
    ['past_key_values.0.key', [1, 'past', 64]],
  ],
  outputs: [
    ['y', [1, 3, 64]],
    ['present.0.key', [1, 'all', 64]],
  ],
});

const text = `{"model_type": "llama", "eps": 1e-05, "theta": 10000.0, "big": 12345678901234567890,
  "transformers.js_config": {"dtype": "q4f16", "kv_cache_dtype": {"q4": "float32"}}, "last": [1.0]}`;

/** What is written for dtypes, with the numbers as they were. */
const written = (...dtypes: readonly string[]) => `{
  "model_type": "llama",
  "eps": 1e-05,
  "theta": 10000.0,
  "big": 12345678901234567890,
  "transformers.js_config": {
    "dtype": "q4f16",
    "kv_cache_dtype": {
      "q4": "float32",
${dtypes.map((dtype) => `      "${dtype}": "float16"`).join(',\n')}
    }
  },
  "last": [
    1.0
  ]
}
`;

async function putFolder(config: string | undefined = text) {
  await mkdir(path('hf/onnx'), { recursive: true });
  await writeFile(path('hf/onnx/model.onnx'), model);
  if (config !== '') await writeFile(path('hf/config.json'), config);
}

const read = (name: string) => readFile(path(name), 'utf8');
const flags = ['--kv-cache', 'float16', '--workers', '0'];

describe('config.json', () => {
  it.each(['hf', 'hf/onnx/model.onnx', 'hf/config.json'])('goes with the result of %s', async (input) => {
    await putFolder();
    await mkdir(path('out/onnx'), { recursive: true });
    const planned = await run(['plan', input, '--to', 'fp16', '-o', 'out/onnx/', ...flags]);
    expect(planned.stdout).toContain('out/config.json');
    const { code, stdout, stderr } = await run([input, '--to', 'fp16', '-o', 'out/onnx/', ...flags]);
    expect(code, stderr).toBe(0);
    expect(stdout).toContain('wrote out/config.json');
    expect(stderr).toContain(
      'reads that from config.json: "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}}',
    );
    expect(await read('out/config.json')).toBe(written('fp16'));
    expect(await read('hf/config.json')).toBe(text);
    // Another result adds its entry, if it may.
    const again = ['hf', '--to', 'q4f16', '-o', 'out/onnx/', ...flags];
    expect((await run(again)).stderr).toContain('out/config.json is there already and stays as it is');
    expect(await read('out/config.json')).toBe(written('fp16'));
    expect((await run([...again, '--force'])).stdout).toContain('wrote out/config.json');
    expect(await read('out/config.json')).toBe(written('fp16', 'q4f16'));
    // A file that says so stays, without a word.
    const third = await run([...again, '--force']);
    expect(third.stdout).not.toContain('wrote out/config.json');
    expect(third.stderr).not.toContain('stays as it is');
  });

  it('has the entries of several results', async () => {
    await putFolder();
    await mkdir(path('out'));
    const { code, stderr } = await run(['hf', '--to', 'fp16,q4f16', '-o', 'out/', ...flags]);
    expect(code, stderr).toBe(0);
    expect(await read('out/config.json')).toBe(written('fp16', 'q4f16'));
  });

  it('of the model itself is replaced by force alone', async () => {
    await putFolder();
    const args = ['hf', '--to', 'fp16', '--json', ...flags];
    const first = await run(args);
    expect(JSON.parse(first.stdout)).toMatchObject({ output: 'hf/onnx/model_fp16.onnx', config: null });
    expect(first.stderr).toContain('hf/config.json is there already and stays as it is');
    expect(await read('hf/config.json')).toBe(text);
    expect(JSON.parse((await run([...args, '-f'])).stdout)).toMatchObject({ config: 'hf/config.json' });
    expect(await read('hf/config.json')).toBe(written('fp16'));
  });

  it('is not made of nothing, and not without caches', async () => {
    await putFolder('');
    await mkdir(path('out'));
    const { stderr } = await run(['hf', '--to', 'fp16', '-o', 'out/', ...flags]);
    expect(stderr).toContain('config.json, which was not found: "transformers.js_config"');
    await writeFile(path('hf/config.json'), text);
    await run(['hf', '--to', 'q4f16', '-o', 'out/', '--workers', '0']);
    expect(existsSync(path('out/config.json'))).toBe(false);
    // The file may be named.
    await run(['hf', '--to', 'fp16', '-o', 'out/', '-f', '--config', 'hf/config.json', ...flags]);
    expect(await read('out/config.json')).toBe(written('fp16'));
  });

  it('follows a run that goes on', async () => {
    await putFolder();
    await mkdir(path('out'));
    const { code, stderr } = await run(['hf', '--to', 'fp16', '-o', 'out/', '--resume', ...flags]);
    expect(code, stderr).toBe(0);
    expect(await read('out/config.json')).toBe(written('fp16'));
  });

  it('that promises caches in float16 has a note where they stay float32', async () => {
    await putFolder('{"transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}}}');
    const { stderr } = await run(['plan', 'hf', '--to', 'fp16', '-o', 'out.onnx']);
    expect(stderr).toContain('config.json says float16 of fp16 to transformers.js 3; --kv-cache float16 makes them so');
    expect((await run(['plan', 'hf', '--to', 'q4f16', '-o', 'out.onnx'])).stderr).not.toContain('caches');
  });

  it('is compared with the caches by verify', async () => {
    await putFolder();
    await run(['hf', '--to', 'fp16', ...flags]);
    const before = await run(['verify', 'hf/onnx/model_fp16.onnx', '--json']);
    expect(JSON.parse(before.stdout)).toMatchObject({
      config: 'hf/config.json',
      problems: [],
      notes: [{ kind: 'cacheType', dtype: 'fp16', type: 'float16' }],
    });
    await run(['hf', '--to', 'fp16', '-f', ...flags]);
    const after = await run(['verify', 'hf/onnx/model_fp16.onnx', '--json']);
    expect(JSON.parse(after.stdout)).toMatchObject({ problems: [], notes: [] });
    const config = { 'transformers.js_config': { kv_cache_dtype: 'float16' } };
    const { problems } = await verifyModel(path('hf/onnx/model.onnx'), { config });
    expect(problems).toMatchObject([{ kind: 'cacheType', dtype: 'fp32', type: 'float32', stated: 'float16' }]);
  });
});

describe('the result of the call', () => {
  const options = { to: 'fp16', kvCache: 'float16' } as const;

  /** What the package @huggingface/transformers 3.0.0 to 3.8.1 takes for the type of caches (src/models.js, getSession). */
  function typeIn3(config: unknown, dtype: string, device = 'wasm'): unknown {
    let own = ((config as Record<string, unknown>)['transformers.js_config'] ?? {}) as Record<string, unknown>;
    const devices = (own.device_config ?? {}) as Record<string, object>;
    if (Object.hasOwn(devices, device)) own = { ...own, ...devices[device] };
    const types = own.kv_cache_dtype as string | Record<string, string> | undefined;
    return (types ? (typeof types === 'string' ? types : (types[dtype] ?? 'float32')) : undefined) ?? 'float32';
  }

  it.each([
    [{}, 'float32'],
    [{ 'transformers.js_config': { kv_cache_dtype: 'float32' } }, 'float32'],
    [{ 'transformers.js_config': { kv_cache_dtype: 'float16' } }, 'float16'],
    [{ 'transformers.js_config': { kv_cache_dtype: { fp16: 'float32', q4: 'float32' } } }, 'float32'],
    [{ 'transformers.js_config': { device_config: { webgpu: { kv_cache_dtype: { q4: 'float32' } } } } }, 'float32'],
    [{ 'transformers.js_config': { device_config: { webgpu: { dtype: 'fp16' } } } }, 'float32'],
  ])('has a config.json that transformers.js 3 understands, from %j', async (given, others) => {
    const before = structuredClone(given);
    const { config } = await quantizeModel(model, { ...options, config: given, workers: 0 });
    expect(given).toEqual(before);
    for (const device of ['wasm', 'webgpu']) {
      expect(typeIn3(config, 'fp16', device)).toBe('float16');
      expect(typeIn3(config, 'q4', device)).toBe(others);
    }
  });

  it('takes the file from beside the model', async () => {
    await putFolder();
    const own = { dtype: 'q4f16', kv_cache_dtype: { q4: 'float32', fp16: 'float16' } };
    const made = await quantizeModel(path('hf/onnx/model.onnx'), { ...options, workers: 0 });
    expect(made.config).toMatchObject({ model_type: 'llama', 'transformers.js_config': own });
    const place = (file: File, at: string) => Object.defineProperty(file, 'webkitRelativePath', { value: at });
    const files = [
      place(new File([model], 'model.onnx'), 'hf/onnx/model.onnx'),
      place(new File([text], 'config.json'), 'hf/config.json'),
    ];
    const { notes, transformersConfig, totals } = await planModel(files, options);
    expect(notes).toContainEqual(expect.objectContaining({ kind: 'halfCaches', hasConfig: true }));
    expect(transformersConfig).toEqual({ kv_cache_dtype: { fp16: 'float16' } });
    const listed = await quantizeModel(files, { ...options, workers: 0 });
    expect(listed.config).toEqual(made.config);
    expect((await listed.bytes()).length).toBe(totals.bytesAfter);
    expect((await quantizeModel(model, { ...options, workers: 0 })).config).toBeUndefined();
    // Version 3 has no q2f16.
    const { notes: others } = await planModel(files, { ...options, to: 'q2f16' });
    expect(others.find(({ kind }) => kind === 'halfCaches')?.text).toBe('2 caches are float16');
  });

  it('refuses a config.json whose settings are no object', async () => {
    for (const config of [{ 'transformers.js_config': [] }, { 'transformers.js_config': { kv_cache_dtype: 7 } }])
      await expect(quantizeModel(model, { ...options, config, workers: 0 })).rejects.toMatchObject({
        code: 'BAD_FILE',
      });
    await expect(quantizeModel(model, { ...options, config: [] as never })).rejects.toThrow(TypeError);
  });
});
