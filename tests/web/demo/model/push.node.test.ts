// Pushing results from the page for models, to a hub of the tests on three origins.
import type { Page } from 'playwright';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { usualRepository } from '../../../../web/demo/model/choice.js';
import { withPath } from '../../../../web/demo/shared/file-path.js';
import { factsOfCard } from '../../../../web/src/hub/card.js';
import { languageModel } from '../../hub/support.js';
import type { TestHub } from '../../support/hub/hub.mjs';
import { expectBytes } from '../../support/models.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import { planned, saved, startHubSite } from '../hub-site.js';

const token = 'hf_writer0123456789';
const gguf = tinyLlama({});
const license = { license: 'apache-2.0' };

const home = startHubSite({
  repositories: {
    'acme/tiny': { files: { 'tiny-F32.gguf': gguf }, cardData: license },
    'acme/folder': { files: languageModel(), cardData: license },
    'acme/gated': { files: { 'tiny-F32.gguf': gguf }, gated: 'auto' },
    'acme/other': { files: {} },
  },
});
const { site, clients } = home;
let hub: TestHub;
let page: Page;
beforeAll(() => {
  ({ hub } = home);
});
beforeEach(() => {
  hub.tokens.set(token, { user: 'me', gated: ['acme/gated'] });
  hub.settings.uploads = 'basic';
});
afterEach(() => {
  for (const id of [...hub.repositories.keys()]) if (!id.startsWith('acme/')) hub.repositories.delete(id);
});

/** Opens a model of the hub, saves it in a type, and opens the panel that pushes. */
async function ready(name: string, type: string, word = token) {
  page = await site.open(`model/#model=${name}&to=${type}`, {}, async (page) => {
    await page.addInitScript((word) => {
      if (word !== '' && sessionStorage.getItem('scalepoint-hub-token') === null)
        sessionStorage.setItem('scalepoint-hub-token', word);
    }, word);
  });
  await planned(site);
  expect(await page.isDisabled('#push-open').catch(() => true)).toBe(true);
  const result = await saved(site);
  await page.click('#push-open');
  if (word !== '') await expect.poll(() => page.textContent('#push-account')).toBe('Pushes as me.');
  return result;
}
const status = () => page.textContent('#push-status');
const problem = () => page.locator('#push-problem').textContent();
/** Requests that write. */
const writes = () => hub.requests.filter(({ method }) => method !== 'GET' && method !== 'OPTIONS');

it.each([
  ['tiny-F32.gguf', 'acme/Tiny-1B', '.gguf', 'Q8_0', 'Tiny-1B-GGUF'],
  ['tiny.gguf', 'acme/tiny-GGUF:F16', '.gguf', 'Q8_0', 'tiny-GGUF'],
  ['model.safetensors', 'folder', '.safetensors', 'mlx-4bit', 'folder-4bit'],
  ['tiny.safetensors.index.json', 'folder', '.safetensors', 'gptq', 'tiny-gptq'],
  ['My model (1)..onnx', undefined, '.onnx', 'q4f16', 'My-model-1-ONNX'],
])('names the repository for %s of %s, a %s of the type %s, %s', (name, from, extension, to, expected) => {
  const isHub = from?.includes('/');
  const files = isHub ? [] : [withPath(new File([], name), from === undefined ? '' : `${from}/${name}`)];
  const hub = isHub ? { name: from as string, host: '' } : undefined;
  const model = { name, format: 'gguf', files, tensors: [], ...(hub && { hub }) } as const;
  expect(usualRepository(model, extension, to)).toBe(expected);
});

describe('a push from the page', () => {
  // Of different types, because the hub keeps what was uploaded once.
  it.each([
    ['basic', 'Q8_0'],
    ['multipart', 'Q5_0'],
    ['xet', 'Q5_1'],
  ] as const)('makes a repository by %s, and has nothing to do a second time', async (uploads, type) => {
    hub.settings.uploads = uploads;
    const { name, bytes } = await ready('acme/tiny', type);
    expect(writes()).toEqual([]);
    expect(await page.inputValue('#push-name')).toBe('me/tiny-GGUF');
    expect(await page.inputValue('#push-visibility')).toBe('public');
    expect(await page.textContent('#push-sends')).toContain(`${name} (`);
    expect(await site.axe()).toEqual([]);
    await page.click('#push-run');
    await expect.poll(status).toMatch(/^Pushed 2 files to .*me\/tiny-GGUF \(public\)\.$/);
    expect(await page.getAttribute('#push-status a', 'href')).toBe(`${hub.endpoint}/me/tiny-GGUF`);
    const found = hub.repositories.get('me/tiny-GGUF');
    expectBytes(found?.bytes(name) as Uint8Array, bytes);
    const readme = new TextDecoder().decode(found?.bytes('README.md'));
    expect(readme).toMatch(/^---\nlicense: apache-2\.0\nbase_model: acme\/tiny\n/);
    expect(readme).toMatch(/scalepoint quantize 'hf:acme\/tiny@[0-9a-f]{40}\/tiny-F32\.gguf' --to Q/);
    expect(factsOfCard(readme)?.results.map(({ file, type }) => [file, type])).toEqual([[name, type]]);
    // The token went to the hub alone.
    const elsewhere = hub.requests.filter(
      ({ origin, headers }) => origin !== 'hub' && JSON.stringify(headers).includes(token),
    );
    expect(elsewhere).toEqual([]);
    expect(hub.requests.some(({ origin, method }) => origin !== 'hub' && /PUT|POST/.test(method))).toBe(true);

    const before = writes().length;
    await page.click('#push-run');
    await expect.poll(status).toMatch(/^Nothing to push: .*me\/tiny-GGUF \(public\) has these files\.$/);
    expect(writes().length).toBe(before);
    expect(await site.axe()).toEqual([]);
  });

  it('puts safetensors, their configuration and their tokenizer where programs look for them', async () => {
    await ready('acme/folder', 'int8');
    expect(await page.inputValue('#push-name')).toBe('me/folder-int8');
    await page.click('#push-run');
    await expect.poll(status).toMatch(/^Pushed 4 files to /);
    const found = hub.repositories.get('me/folder-int8');
    const files = [...(found?.commitOf('main')?.files.keys() ?? [])].filter((name) => !name.startsWith('.'));
    expect(files.sort()).toEqual(['README.md', 'config.json', 'model.safetensors', 'tokenizer.json']);
    // The configuration is that of the result.
    expect(JSON.parse(new TextDecoder().decode(found?.bytes('config.json'))).quantization_config).toBeDefined();
  });

  it('pushes a folder as it was saved', async () => {
    page = await site.open('model/#model=acme/folder&to=onnx:q4', {}, async (page) => {
      await page.addInitScript((word) => {
        sessionStorage.setItem('scalepoint-hub-token', word);
        Object.assign(globalThis, { showDirectoryPicker: () => navigator.storage.getDirectory() });
      }, token);
    });
    await planned(site);
    await page.click('#model-run');
    await expect.poll(() => page.textContent('#model-status')).toContain('Saved folder-q4-ONNX');
    await page.click('#push-open');
    await expect.poll(() => page.inputValue('#push-name')).toBe('me/folder-q4-ONNX');
    await page.click('#push-run');
    await expect.poll(status).toMatch(/^Pushed \d files to /);
    const found = hub.repositories.get('me/folder-q4-ONNX')?.commitOf('main')?.files;
    expect([...(found?.keys() ?? [])]).toEqual(
      expect.arrayContaining(['README.md', 'config.json', 'onnx/model_q4.onnx', 'tokenizer.json']),
    );
  });

  it('pushes a file of the visitor, private', async () => {
    page = await site.open('model/', {}, async (page) => {
      await page.addInitScript((word) => sessionStorage.setItem('scalepoint-hub-token', word), token);
    });
    await page.setInputFiles('#file', [{ name: 'My model.gguf', mimeType: '', buffer: Buffer.from(gguf) }]);
    await planned(site);
    await saved(site);
    expect(hub.requests).toEqual([]);
    await page.click('#push-open');
    await expect.poll(() => page.inputValue('#push-name')).toBe('me/My-model-GGUF');
    expect(await page.inputValue('#push-visibility')).toBe('private');
    await page.click('#push-run');
    await expect.poll(status).toMatch(/^Pushed 2 files to .* \(private\)\.$/);
    expect(hub.repositories.get('me/My-model-GGUF')?.isPrivate).toBe(true);
  });

  it('keeps results of gated models private, unless the visitor wants otherwise', async () => {
    await ready('acme/gated', 'Q8_0');
    expect(await page.inputValue('#push-visibility')).toBe('private');
    hub.tokens.set(token, { user: 'me', gated: ['acme/gated'], writes: ['acme'] });
    await page.fill('#push-name', 'acme/other');
    await page.click('#push-run');
    await expect.poll(problem).toContain('acme/other is public, and acme/gated is gated; the visibility public pushes');
    expect(writes()).toEqual([]);
  });

  it('is cancelled midway, commits nothing, and goes on when asked again', async () => {
    const { name, bytes } = await ready('acme/tiny', 'Q4_0');
    hub.troubles.push({ origin: 'cdn', method: 'PUT', delay: 60_000 });
    await page.click('#push-run');
    await expect.poll(() => hub.requests.some(({ method }) => method === 'PUT')).toBe(true);
    expect(await page.isVisible('#push-run')).toBe(false);
    // The place on show stays until it is cancelled.
    await page.click('#close');
    await expect.poll(() => page.textContent('#problems')).toContain('A push is running');
    expect(await page.isDisabled('#model-run')).toBe(true);
    await page.click('#push-cancel');
    await expect.poll(status).toContain('Cancelled.');
    const found = hub.repositories.get('me/tiny-GGUF');
    expect(found?.commits.size).toBe(1);
    expect(hub.requests.some(({ path }) => path.includes('/commit/'))).toBe(false);
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('push-run');
    await page.click('#push-run');
    await expect.poll(status).toContain('Pushed 2 files');
    expectBytes(found?.bytes(name) as Uint8Array, bytes);
  });

  it('says why it failed, and pushes the same result again', async () => {
    const { name, bytes } = await ready('acme/tiny', 'Q8_0');
    hub.troubles.push({ path: /\/commit\//, status: 400 });
    await page.click('#push-run');
    await expect.poll(problem).toContain('The push did not get through');
    expect(await problem()).toContain('trouble 400');
    expect(await page.textContent('#push-run')).toBe('Push again');
    expect(await site.axe()).toEqual([]);
    await page.click('#push-run');
    await expect.poll(status).toContain('Pushed 2 files');
    expect(await page.isVisible('#push-problem')).toBe(false);
    expectBytes(hub.repositories.get('me/tiny-GGUF')?.bytes(name) as Uint8Array, bytes);
  });

  it('says that the token may not write there, and offers the result as a pull request', async () => {
    await ready('acme/tiny', 'Q8_0');
    hub.tokens.set(token, { user: 'me', role: 'read' });
    await page.fill('#push-name', 'acme/other');
    await page.click('#push-run');
    await expect
      .poll(problem)
      .toContain('The token of this page may not write to acme/other; a pull request needs no right to.');
    expect(writes()).toEqual([]);
    await page.selectOption('#push-how', 'pull request');
    await page.click('#push-run');
    await expect.poll(status).toMatch(/^Pushed 2 files to .*acme\/other\/discussions\/1\.$/);
    expect(hub.repositories.get('acme/other')?.commitOf('main')?.files.size).toBe(0);
  });

  it('replaces a file of somebody else only if the visitor says so', async () => {
    const { name, bytes } = await ready('acme/tiny', 'Q8_0');
    await page.click('#push-run');
    await expect.poll(status).toContain('Pushed 2 files');
    const found = hub.repositories.get('me/tiny-GGUF');
    found?.change({ [name]: 'of somebody else' });
    const before = writes().length;
    await page.click('#push-run');
    await expect.poll(problem).toContain(`me/tiny-GGUF has another "${name}", which somebody else put there.`);
    expect(
      writes()
        .slice(before)
        .map(({ path }) => path),
    ).toEqual([expect.stringContaining('/paths-info/')]);
    await page.click('#push-action');
    await expect.poll(status).toContain('Pushed 1 file');
    expectBytes(found?.bytes(name) as Uint8Array, bytes);
  });

  it('says which names cannot be', async () => {
    await ready('acme/tiny', 'Q8_0');
    await page.fill('#push-name', 'tiny');
    await page.click('#push-run');
    await expect.poll(problem).toContain('Expected owner/name');
  });
});

it('signs in with the rights to push in a window of its own, and keeps the result', async () => {
  clients.app = [`${site.url}model/`];
  const { name, bytes } = await ready('acme/tiny', 'Q8_0', '');
  expect(await page.textContent('#push-account')).toBe('A push needs an account of the hub.');
  const [popup] = await Promise.all([page.waitForEvent('popup'), page.click('#push-sign-in')]);
  await expect.poll(() => page.textContent('#push-account')).toBe('Pushes as visitor.');
  await expect.poll(() => popup.isClosed()).toBe(true);
  const asked = hub.requests.find(({ path }) => path.startsWith('/oauth/authorize'));
  expect(new URL(asked?.path ?? '', hub.endpoint).searchParams.get('scope')).toBe(
    'openid profile read-repos gated-repos contribute-repos write-discussions',
  );
  await page.click('#push-run');
  await expect.poll(status).toContain('Pushed 2 files');
  expectBytes(hub.repositories.get('visitor/tiny-GGUF')?.bytes(name) as Uint8Array, bytes);
});

it('asks for another token if the hub refuses the one that there is', async () => {
  await ready('acme/tiny', 'Q8_0', '');
  await page.fill('#push-token', 'hf_wrong');
  await page.press('#push-token', 'Enter');
  await expect.poll(() => page.textContent('#push-account')).toContain('refuses the token of this page');
  await page.fill('#push-token', token);
  await page.press('#push-token', 'Tab');
  await expect.poll(() => page.textContent('#push-account')).toBe('Pushes as me.');
  expect(await page.inputValue('#push-name')).toBe('me/tiny-GGUF');
  expect(await page.isVisible('#push-token')).toBe(false);
  expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain(token);
});
