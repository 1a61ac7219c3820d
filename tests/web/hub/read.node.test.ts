// Models of the hub as inputs: the same bytes as from a folder, by few requests, and a token that goes to the endpoint alone.
import { describe, expect, it } from 'vitest';
import { hubModel, inspectModel, planModel, quantizeModel } from '../../../web/src/model.js';
import { expectBytes } from '../support/models.js';
import { languageModel, useHub, writeFiles } from './support.js';

const place = useHub();

describe('a run gives the same bytes as from a folder', () => {
  it.each([
    [1, 'Q8_0'],
    [1, 'int8'],
    [3, 'Q4_0'],
    [3, 'int8'],
  ] as const)('%d file(s) to %s', async (shards, to) => {
    const files = languageModel(shards);
    const hub = await place.start({ repositories: { 'acme/tiny': { files } } });
    const folder = await writeFiles(place.path('tiny'), files);
    const [remote, local] = [
      await quantizeModel('hf:acme/tiny', { to, workers: 0 }),
      await quantizeModel(folder, { to, workers: 0 }),
    ];
    expectBytes(await remote.bytes(), await local.bytes());
    expect(remote.report).toEqual(local.report);
    expect(remote.config).toEqual(local.config);
    // One listing. Each file is asked for at the hub once, and comes whole by the first request, from wherever that leads.
    const asked = hub.requests.map(({ path }) => path);
    expect(asked.filter((path) => path.startsWith('/api/models/'))).toHaveLength(1);
    const resolved = asked.filter((path) => path.includes('/resolve/'));
    expect(new Set(resolved).size).toBe(resolved.length);
    expect(hub.requests.filter(({ status }) => status >= 400)).toEqual([]);
  });
});

it('all texts for one model give one plan', async () => {
  const hub = await place.start({ repositories: { 'acme/tiny': { files: languageModel() } } });
  const commit = hub.repositories.get('acme/tiny')?.branches.get('main');
  const expected = await planModel('hf:acme/tiny', { to: 'Q8_0' });
  for (const text of [
    `hf://models/acme/tiny@${commit}`,
    'hf:acme/tiny/model.safetensors',
    `${hub.endpoint}/acme/tiny/tree/main`,
    'https://huggingface.co/acme/tiny',
    new URL(`${hub.endpoint}/acme/tiny/blob/main/model.safetensors`),
    await hubModel('acme/tiny'),
  ]) {
    expect(await planModel(text, { to: 'Q8_0' })).toEqual(expected);
  }
});

it('a file is chosen by its type, and a split one is put together', async () => {
  const files = languageModel();
  const folder = await writeFiles(place.path('tiny'), files);
  const made = async (to: 'F16' | 'Q8_0') => (await quantizeModel(folder, { to, workers: 0 })).bytes();
  const ggufs = { 'tiny-F16.gguf': await made('F16'), 'tiny-Q8_0.gguf': await made('Q8_0') };
  await place.start({ repositories: { 'acme/tiny-GGUF': { files: ggufs } } });
  const [tagged, usual] = [await inspectModel('hf:acme/tiny-GGUF:Q8_0'), await inspectModel('hf:acme/tiny-GGUF')];
  expect([tagged.files, usual.files]).toEqual([['tiny-Q8_0.gguf'], ['tiny-F16.gguf']]);
  const [remote, local] = [
    await quantizeModel('hf:acme/tiny-GGUF', { to: 'Q4_0', workers: 0 }),
    await quantizeModel(ggufs['tiny-F16.gguf'], { to: 'Q4_0', workers: 0 }),
  ];
  expectBytes(await remote.bytes(), await local.bytes());
});
