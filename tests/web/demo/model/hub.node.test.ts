// Models of the hub on the page for models, from a hub of the tests.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Page } from 'playwright';
import { beforeAll, expect, it } from 'vitest';
import { serve } from '../../../../scripts/serve.mjs';
import { quantizeModel } from '../../../../web/src/model.js';
import { languageModel, writeFiles } from '../../hub/support.js';
import type { TestHub } from '../../support/hub/hub.mjs';
import { expectBytes, safetensors, weights } from '../../support/models.js';
import { plainTokenizer } from '../../support/tiny-huggingface.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import { planned as plannedOn, saved as savedOn, startHubSite } from '../hub-site.js';

const token = 'hf_secret0123456789';
const large = safetensors({
  'a.weight': weights('F32', [1024, 512], 1),
  'b.weight': weights('F32', [512, 1024], 2),
});
// The program that encodes texts for comparing outputs asks for a decoder.
const parts = {
  ...languageModel(2),
  'tokenizer.json': JSON.stringify(plainTokenizer({ decoder: null })),
};
const gguf = tinyLlama({});

const home = startHubSite({
  repositories: {
    'acme/large': { files: { 'model.safetensors': large, 'README.md': '# A model' } },
    'acme/parts': { files: parts },
    'acme/files': { files: { 'one-F32.gguf': gguf, 'two-F32.gguf': gguf } },
    'acme/gated': { files: { 'model.safetensors': large }, gated: 'manual' },
    'acme/private': { files: { 'model.safetensors': large }, private: true },
  },
  tokens: { [token]: { user: 'somebody', gated: ['acme/gated'] } },
});
const { site, clients, folder } = home;
let hub: TestHub;
beforeAll(() => {
  ({ hub } = home);
});
let page: Page;

/** Types a name into the field, and asks for it. */
async function name(text: string, word = ''): Promise<void> {
  await page.fill('#hub-name', text);
  if (word !== '') {
    await page.click('#hub summary');
    await page.fill('#hub-token', word);
  }
  await page.click('#hub-open');
}
const planned = () => plannedOn(site);
const saved = () => savedOn(site);
const problem = () => page.locator('#problems .problem').textContent();
/** Bytes of files that the hub has sent so far, by all its servers. */
const sent = () => hub.requests.reduce((sum, one) => sum + (one.path.startsWith('/api/') ? 0 : one.sent), 0);

it('reads no more than headers until the visitor measures or saves, and saves the bytes of a file that was dropped', async () => {
  page = await site.open('model/');
  expect(await page.textContent('#hub-asks')).toContain('Asks huggingface.co');
  expect(hub.requests).toEqual([]);
  await name('acme/large');
  await planned();
  expect(await page.textContent('#model-name')).toBe('large.safetensors');
  expect(await page.textContent('#model-facts')).toContain('acme/large on ');
  expect(await page.textContent('#model-command')).toContain('hf:acme/large');
  expect(new URL(page.url()).hash).toBe('#model=acme/large');
  await expect.poll(() => page.isVisible('#measure-errors')).toBe(true);
  expect(await page.textContent('.offer-loss')).toBe('error not measured');
  // The first request for a file asks for 100,000 bytes.
  expect(sent()).toBeLessThan(110_000);
  expect(await site.axe()).toEqual([]);
  await page.click('#measure-errors');
  await expect.poll(() => page.textContent('#worst-basis')).toMatch(/^Measured on/);
  await page.click('#worst button.name');
  await expect.poll(() => page.textContent('#look')).toContain('dB');
  const fromHub = await saved();
  await page.click('#close');
  await page.setInputFiles('#file', [{ name: 'large.safetensors', mimeType: '', buffer: Buffer.from(large) }]);
  await planned();
  expect(new URL(page.url()).hash).toBe('');
  const fromFile = await saved();
  expect(fromHub.name).toBe(fromFile.name);
  expectBytes(fromHub.bytes, fromFile.bytes);
});

it('opens the model of a link with its settings, and makes a GGUF of shards with their tokenizer as of a folder', async () => {
  page = await site.open('model/#model=acme/parts&to=Q8_0');
  await planned();
  expect(await page.textContent('#model-facts')).toContain('acme/parts on ');
  expect(new URL(page.url()).hash).toBe('#model=acme/parts&to=Q8_0');
  const fromHub = await saved();
  // The tokenizer and the configuration are fetched for it.
  await page.click('#outputs-run');
  await expect.poll(() => page.textContent('#outputs-verdict')).toMatch(/the same in /);
  const source = await writeFiles(join(folder, 'parts'), parts);
  const result = await quantizeModel(source, { to: 'Q8_0' });
  expect(fromHub.name).toBe('parts-Q8_0.gguf');
  expectBytes(fromHub.bytes, new Uint8Array(await (await result.blob()).arrayBuffer()));
});

it('offers the files of a repository that holds several models', async () => {
  page = await site.open('model/');
  await name('https://huggingface.co/acme/files/tree/main');
  await page.click('#problems button >> text=acme/files@main/two-F32.gguf');
  await planned();
  expect(await page.textContent('#model-name')).toBe('two-F32.gguf');
  expect(new URL(page.url()).hash).toBe('#model=acme/files@main/two-F32.gguf');
  expect(await page.isVisible('#problems .problem')).toBe(false);
});

it('asks for a token in the words of the hub, and sends it to the hub alone', async () => {
  page = await site.open('model/');
  await name('acme/gated');
  await expect.poll(problem).toMatch(/acme\/gated is gated: ask for access at .*, then give a token below/);
  await name('acme/gated', 'hf_wrong');
  await expect.poll(problem).toContain('refuses the token of this page: give another one below');
  await page.fill('#hub-token', token);
  await page.click('#hub-open');
  await planned();
  expect(new URL(page.url()).hash).toBe('#model=acme/gated');
  const withToken = hub.requests.filter(({ headers }) => headers.authorization !== undefined);
  expect(new Set(withToken.map(({ origin }) => origin))).toEqual(new Set(['hub']));
  expect(hub.requests.some(({ origin }) => origin === 'cdn')).toBe(true);
  expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain(token);
  expect(await page.textContent('body')).not.toContain(token);
  // The token stays with the tab.
  await page.reload();
  await planned();
});

it('signs in at the hub with the rights to read, and says what is missing without an app', async () => {
  page = await site.open('model/#to=int4');
  clients.app = [`${site.url}model/`];
  await page.fill('#hub-name', 'acme/large');
  await page.click('#hub summary');
  await page.click('#hub-sign-in');
  await expect.poll(() => page.textContent('#hub-signed')).toBe('You are signed in for this tab.');
  expect(page.url()).toBe(`${site.url}model/#to=int4`);
  const asked = hub.requests.find(({ path }) => path.startsWith('/oauth/authorize'));
  const scope = new URL(asked?.path ?? '', hub.endpoint).searchParams.get('scope');
  expect(scope).toBe('openid profile read-repos gated-repos');
  const word = await page.inputValue('#hub-token');
  expect(word).toMatch(/^hf_oauth_/);
  expect(await page.inputValue('#hub-name')).toBe('acme/large');
  await page.click('#hub-open');
  await planned();
  expect(
    hub.requests.find(({ method, path }) => method === 'GET' && path.startsWith('/api/'))?.headers.authorization,
  ).toBe(`Bearer ${word}`);
  expect(page.url()).toBe(`${site.url}model/#model=acme/large&to=int4`);
});

it('says why nobody is signed in', async () => {
  page = await site.open('model/');
  clients.app = [`${site.url}model/`];
  hub.settings.refusesSignIn = true;
  await page.click('#hub summary');
  await page.click('#hub-sign-in');
  await expect.poll(() => page.textContent('#hub-signed')).toBe('You are not signed in: The user refused.');
  hub.settings.refusesSignIn = false;
  await page.evaluate(() => Object.assign((document.querySelector('#hub') as HTMLElement).dataset, { client: '' }));
  await page.click('#hub-sign-in');
  expect(await page.textContent('#hub-signed')).toContain('built without SCALEPOINT_HUB_CLIENT. Type a token.');
  expect(await site.axe()).toEqual([]);
});

it.each([
  ['acme/private', /does not exist, or is private: check the name; for a private model, give a token below/i],
  ['acme/absent', /does not exist, or is private/i],
  ['acme/large@v9', /has no revision "v9"/],
  ['large', /expected owner\/name/i],
  ['https://huggingface.co/datasets/acme/large', /expected owner\/name/i],
])('says why %s is not opened', async (text, words) => {
  page = await site.open('model/');
  await name(text);
  await expect.poll(problem).toMatch(words);
  expect(await page.isVisible('#hub-name')).toBe(true);
});

it('tries again what fails in passing', async () => {
  hub.troubles.push({ origin: 'hub', path: /^\/api\//, status: 503 }, { origin: 'cdn', status: 503 });
  page = await site.open('model/');
  await name('acme/large');
  await planned();
  expect(hub.troubles.map(({ times }) => times)).toEqual([0, 0]);
});

it('opens a model of the hub after files that another page handed over, whose policy lets it ask nobody', async () => {
  page = await site.open('');
  await page.click('#sample');
  await planned();
  await page.click('#close');
  await name('acme/large');
  await expect.poll(() => page.textContent('#model-name').catch(() => '')).toBe('large.safetensors');
  expect(new URL(page.url()).hash).toBe('#model=acme/large');
});

it('signs in inside of a Space by the app of the Space, and opens a tab of its own for that from a frame', async () => {
  const inSpace = async (page: Page) => {
    // The hub puts this into the pages of a static Space.
    await page.addInitScript(() => {
      Object.assign(globalThis, { huggingface: { variables: { OAUTH_CLIENT_ID: 'space' } } });
    });
  };
  page = await site.open('model/', {}, inSpace);
  delete clients.app;
  clients.space = [`${site.url}model/`];
  await page.click('#hub summary');
  await page.click('#hub-sign-in');
  await expect.poll(() => page.textContent('#hub-signed')).toBe('You are signed in for this tab.');
  const asked = hub.requests.flatMap(({ path, text }) =>
    path.startsWith('/oauth/') ? [new URLSearchParams(text || path.split('?')[1]).get('client_id')] : [],
  );
  expect(asked).toEqual(['space', 'space']);

  // The hub shows Spaces in a frame of its own page. It lets them be framed, unlike the server of the other tests.
  const space = await serve({ folder, port: 0, policy: 'frame-ancestors *' });
  const outer = createServer((_, response) => {
    response.setHeader('Content-Type', 'text/html');
    response.end(`<iframe src="${space.url}model/" width="900" height="800"></iframe>`);
  });
  await new Promise<void>((done) => outer.listen(0, '127.0.0.1', done));
  const address = `http://127.0.0.1:${(outer.address() as AddressInfo).port}/`;
  page = await site.open('', {}, inSpace);
  await page.goto(address);
  const frame = page.frameLocator('iframe');
  await frame.locator('#hub summary').click();
  const [tab] = await Promise.all([page.waitForEvent('popup'), frame.locator('#hub-sign-in').click()]);
  await expect.poll(() => tab.url()).toBe(`${space.url}model/`);
  await expect.poll(() => tab.isVisible('#hub-name')).toBe(true);
  site.complaints = site.complaints.filter((complaint) =>
    [address, space.url].every((place) => !complaint.startsWith(`request to ${place}`)),
  );
  outer.close();
  await space.close();
});

it('says in how many seconds the quota of requests is filled again, where the hub lets the page read it', async () => {
  page = await site.open('model/');
  const full = (headers: Record<string, string>) => ({
    path: /^\/api\//,
    // The page tries five times; a longer wait than that of the hub's windows ends it at once.
    times: 5,
    change: () => ({ status: 429, body: '', headers: { 'Content-Type': 'application/json', ...headers } }),
  });
  const limit = '"api";r=0;t=310';
  hub.troubles.push(full({ RateLimit: limit, 'Access-Control-Expose-Headers': 'RateLimit' }));
  await name('acme/large');
  await expect.poll(problem).toContain('quota of requests is used up; it is filled again in 311 s; with a token');
  expect(await page.textContent('#problems')).toContain('give a token below');
});
