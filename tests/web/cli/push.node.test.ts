// `--push`: results go to the hub of the tests, by the client that users have.
import { readFile, writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { languageModel, useHub, writeFiles } from '../hub/support.js';
import { hex } from '../support/hub/store.mjs';
import { path, run, useFolder } from './support.js';

useFolder();
const hubs = useHub();

const token = 'hf_of_this_test';
const start = async (options: Parameters<typeof hubs.start>[0] = {}) => {
  const hub = await hubs.start({ tokens: { [token]: { user: 'me' } }, ...options });
  process.env.HF_TOKEN = token;
  return hub;
};
const text = (bytes: Uint8Array | undefined) => new TextDecoder().decode(bytes);

describe('--push', () => {
  it('makes a folder of safetensors that programs load, and says on its card what was done', async () => {
    const hub = await start();
    await writeFiles(path('tiny'), languageModel());
    await writeFile(path('m.json'), JSON.stringify({ perplexity: { value: 8.25, error: 0.1 }, kl: { value: 0.0125 } }));
    const args = [
      'tiny',
      '--to',
      'int8',
      '-o',
      'tiny.int8.safetensors',
      '--push',
      'me/tiny-int8',
      '--measured',
      'm.json',
    ];
    const { code, stdout, stderr } = await run([...args, '--json']);
    expect([code, stderr.includes(token), stdout.includes(token)]).toEqual([0, false, false]);
    const found = hub.repositories.get('me/tiny-int8');
    const commit = found?.branches.get('main');
    const files = ['tokenizer.json', 'model.safetensors', 'config.json', 'README.md'].sort();
    expect(JSON.parse(stdout)).toMatchObject({
      output: 'tiny.int8.safetensors',
      push: { url: `${hub.endpoint}/me/tiny-int8`, commit, isPrivate: true, unchanged: [] },
    });
    expect([...(found?.commitOf('main')?.files.keys() ?? [])].sort()).toEqual(['.gitattributes', ...files].sort());
    const made = await readFile(path('tiny.int8.safetensors'));
    expect(hex('sha256', found?.bytes('model.safetensors') ?? '')).toBe(hex('sha256', made));
    const config = JSON.parse(text(found?.bytes('config.json'))) as object;
    expect(config).toHaveProperty('quantization_config');
    const card = text(found?.bytes('README.md'));
    expect(card).toContain('library_name: transformers\n');
    expect(card).toMatch(/\| model\.safetensors \| int8 \| \d+\.\d\d \| [\d,]+ \| 8\.2500 \| 0\.01250 \|/);
    expect(card).toContain('vllm serve me/tiny-int8\n');
    expect(card).toContain('scalepoint model.safetensors --to int8\n');
    expect(card).not.toContain(path());
  });

  it('takes a model of the hub to a repository of the hub: license, commit, and the files beside it', async () => {
    const cardData = { license: 'mit', language: 'en' };
    const secret = { files: languageModel(), private: true };
    const hub = await start({
      repositories: { 'acme/tiny': { files: languageModel(), cardData }, 'me/secret': secret },
    });
    const commit = hub.repositories.get('acme/tiny')?.branches.get('main');
    const types = await run(['hf:acme/tiny', '--to', 'Q8_0,Q4_0', '--push', 'me/tiny-GGUF', '-q']);
    expect([types.code, types.stderr]).toEqual([0, '']);
    const found = hub.repositories.get('me/tiny-GGUF');
    expect([found?.isPrivate, found?.commits.size]).toEqual([false, 2]);
    const names = [...(found?.commitOf('main')?.files.keys() ?? [])];
    expect(names.sort()).toEqual(['.gitattributes', 'README.md', 'tiny-Q4_0.gguf', 'tiny-Q8_0.gguf']);
    const card = text(found?.bytes('README.md'));
    expect(card).toContain('license: mit\nlanguage: en\nbase_model: acme/tiny\nbase_model_relation: quantized\n');
    expect(card).toContain(`scalepoint hf:acme/tiny@${commit}/model.safetensors --to Q8_0,Q4_0\n`);
    expect(card).toContain('ollama run hf.co/me/tiny-GGUF:Q4_0\n');

    const folder = await run(['hf:me/secret', '--to', 'int8', '--push', 'me/secret-int8', '-q']);
    expect([folder.code, folder.stderr]).toEqual([0, '']);
    const made = hub.repositories.get('me/secret-int8');
    expect(made?.isPrivate).toBe(true);
    const files = [...(made?.commitOf('main')?.files.keys() ?? [])].filter((name) => name !== '.gitattributes');
    expect(files.sort()).toEqual(['README.md', 'config.json', 'model.safetensors', 'tokenizer.json']);
    const elsewhere = hub.requests.filter(
      ({ origin, headers }) => origin !== 'hub' && headers.authorization?.includes(token),
    );
    expect(elsewhere).toEqual([]);
  });

  it('fails before the work without a token, a right to write, or a name', async () => {
    const hub = await start({ repositories: { 'acme/other': { files: {} } } });
    await writeFiles(path('tiny'), languageModel());
    const push = (...more: string[]) => run(['tiny', '--to', 'Q8_0', '-o', 'a.gguf', ...more]);
    expect((await push('--push', 'acme/other')).stderr).toContain('may not write to acme/other');
    expect((await push('--push', 'other')).stderr).toContain('the name of a repository on the hub');
    process.env.HF_TOKEN = '';
    expect((await push('--push', 'me/new')).stderr).toContain('set HF_TOKEN, or run hf auth login');
    for (const wrong of [['--public'], ['--push', 'me/x', '--public', '--private'], ['--push', 'me/x', '-o', '-']])
      expect((await push(...wrong)).code).toBe(2);
    await expect(readFile(path('a.gguf'))).rejects.toThrow('ENOENT');
    expect(hub.requests.every(({ method }) => method === 'GET')).toBe(true);
  });

  it('pushes a result that is there after a push that failed', async () => {
    const hub = await start();
    await writeFiles(path('tiny'), languageModel());
    const args = ['tiny', '--to', 'Q8_0', '-o', 'a.gguf', '--push', 'me/tiny-GGUF', '--public'];
    hub.troubles.push({ path: /\/commit\//, status: 400 });
    const failed = await run(args);
    expect([failed.code, failed.stderr.includes(token)]).toEqual([1, false]);
    const made = await readFile(path('a.gguf'));
    const { code, stderr } = await run([...args, '--resume']);
    expect([code, stderr]).toEqual([0, expect.stringContaining('pushed 2 files to')]);
    expect(stderr).toContain('(public)');
    const found = hub.repositories.get('me/tiny-GGUF');
    expect(hex('sha256', found?.bytes('a.gguf') ?? '')).toBe(hex('sha256', made));
    expect(text(found?.bytes('README.md'))).toContain('llama-cli -hf me/tiny-GGUF');
    expect((await run([...args, '--resume'])).stderr).toContain('nothing to push');
  });
});
