// Pushes to the hub of the tests by the client that users have.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import * as client from '@huggingface/hub';
import { hubModel, pushModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { factsOfCard } from '../../../web/src/hub/card.js';
import type { HubOptions } from '../support/hub/hub.mjs';
import { hex, randomBytes } from '../support/hub/store.mjs';
import { useHub } from './support.js';

const hubs = useHub();

const token = 'hf_writer';
const tokens = {
  [token]: { user: 'me', writes: ['team'] },
  hf_reader: { user: 'reader', role: 'read' as const },
};
const start = (options: HubOptions = {}) => hubs.start({ tokens, ...options });

const weights = new Uint8Array(2_500_000).fill(3);
weights.set(randomBytes(1_000_000, 9), 700_000);
const repository = 'me/tiny-GGUF';
const model = 'tiny-Q4_K_M.gguf';
const files = [{ path: model, content: new Blob([weights]) }];
const license = { license: 'apache-2.0', language: ['en', 'no'], pipeline_tag: 'text-generation' };
const source = { files: { 'config.json': '{}' }, cardData: license };
const card = [
  {
    file: model,
    type: 'Q4_K_M',
    bytes: weights.length,
    bitsPerWeight: 4.85,
    kl: 0.0123,
    command: 'scalepoint hf:acme/tiny --to Q4_K_M',
    readers: [
      { program: 'llama.cpp', code: `llama-cli -m ${model}`, fromHub: `llama-cli -hf OWNER/NAME --hf-file ${model}` },
    ],
  },
];

describe('pushModel', () => {
  for (const uploads of ['basic', 'multipart', 'xet'] as const) {
    it(`makes a repository, and pushes by ${uploads}; a second push has nothing to do`, async () => {
      const hub = await start({ uploads, partSize: 1_000_000, repositories: { 'acme/tiny': source } });
      const steps = new Set<string>();
      let last = 0;
      const options = { repository, token, source: 'hf:acme/tiny', card };
      const onProgress = ({ step, bytesDone, bytesTotal }: { step: string; bytesDone: number; bytesTotal: number }) => {
        steps.add(step);
        expect(bytesDone).toBeGreaterThanOrEqual(0);
        expect(bytesDone).toBeLessThanOrEqual(bytesTotal);
        last = bytesDone / bytesTotal;
      };
      const result = await pushModel(files, { ...options, onProgress });
      const found = hub.repositories.get(repository);
      expect(result).toEqual({
        url: `${hub.endpoint}/${repository}`,
        commit: found?.branches.get('main'),
        isPrivate: false,
        pullRequest: undefined,
        pushed: [model, 'README.md'],
        unchanged: [],
        keptReadme: false,
      });
      expect(hex('sha256', found?.bytes(model) ?? '')).toBe(hex('sha256', weights));
      expect(steps).toContain('uploading');
      expect(last).toBe(1);

      const readme = new TextDecoder().decode(found?.bytes('README.md'));
      expect(readme).toMatch(
        /^---\nlicense: apache-2\.0\nlanguage:\n- en\n- "no"\nbase_model: acme\/tiny\nbase_model_relation: quantized\npipeline_tag: text-generation\nlibrary_name: gguf\ntags:\n- gguf\n- llama-cpp\n- quantized\n- scalepoint\n---\n/,
      );
      expect(readme).toContain('| tiny-Q4_K_M.gguf | Q4_K_M | 4.85 | 2,500,000 | 0.01230 |');
      expect(readme).toContain(`llama-cli -hf ${repository} --hf-file ${model}`);
      expect(readme).toContain('scalepoint hf:acme/tiny --to Q4_K_M');

      const requests = hub.requests.length;
      const again = await pushModel(files, options);
      expect([again.pushed, again.unchanged, again.commit]).toEqual([[], [model, 'README.md'], result.commit]);
      expect(hub.requests.slice(requests).every(({ method }) => method === 'GET')).toBe(true);
      // The token of the hub went to the hub alone.
      const elsewhere = hub.requests.filter(
        ({ origin, headers }) => origin !== 'hub' && JSON.stringify(headers).includes(token),
      );
      expect(elsewhere).toEqual([]);
    });
  }

  it('takes files of the disk, of which one was pushed before, and keeps the results on the card', async () => {
    const hub = await start({ repositories: { 'acme/tiny': source } });
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-push-'));
    try {
      const other = join(folder, 'tiny-Q8_0.gguf');
      await writeFile(other, randomBytes(1000, 3));
      const options = { repository, token, source: await hubModel('acme/tiny/config.json') };
      await pushModel(files, { ...options, card });
      const more = [...files, { path: 'tiny-Q8_0.gguf', content: pathToFileURL(other) }];
      const results = [{ file: 'tiny-Q8_0.gguf', type: 'Q8_0', bytes: 1000 }];
      const { pushed, unchanged } = await pushModel(more, { ...options, card: results });
      expect([pushed, unchanged]).toEqual([['tiny-Q8_0.gguf', 'README.md'], [model]]);
      const readme = new TextDecoder().decode(hub.repositories.get(repository)?.bytes('README.md'));
      expect(factsOfCard(readme)?.results.map(({ type }) => type)).toEqual(['Q4_K_M', 'Q8_0']);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('makes results of private, gated and unknown models private, unless told otherwise', async () => {
    const hub = await start({
      repositories: {
        'me/secret': { ...source, private: true },
        'acme/gated': { ...source, gated: 'auto' },
        'me/open': { files: {} },
      },
    });
    const small = [{ path: 'a.json', content: new Blob(['{}']) }];
    const privacy = async (id: string, options: object) =>
      (await pushModel(small, { repository: `me/${id}`, token, ...options })).isPrivate;
    expect(await privacy('a', { source: 'hf:me/secret' })).toBe(true);
    expect(await privacy('b', { source: 'hf:acme/gated' })).toBe(true);
    expect(await privacy('c', {})).toBe(true);
    expect(await privacy('d', { visibility: 'public', source: 'hf:me/secret' })).toBe(false);
    // A public repository that is there is no place for them.
    const before = hub.requests.length;
    await expect(privacy('open', { source: 'hf:me/secret' })).rejects.toMatchObject({
      code: 'ACCESS',
      message: 'me/open is public, and me/secret is private; the visibility public (--public) pushes all the same',
    });
    expect(hub.requests.slice(before).every(({ method }) => method === 'GET')).toBe(true);
    expect(await privacy('open', { source: 'hf:me/secret', visibility: 'public' })).toBe(false);
  });

  it('replaces own files, and those of others only if told so', async () => {
    const hub = await start({ repositories: { [repository]: { files: { [model]: 'other', 'README.md': '# Mine' } } } });
    const options = { repository, token, card };
    await expect(pushModel(files, options)).rejects.toMatchObject({
      code: 'EXISTS',
      message: `${repository} has another "${model}", which somebody else put there; overwrite (--force) replaces it`,
    });
    expect(new TextDecoder().decode(hub.repositories.get(repository)?.bytes(model))).toBe('other');
    // The same bytes are nobody's.
    expect((await pushModel([{ path: model, content: new Blob(['other']) }], options)).pushed).toEqual([]);
    const forced = await pushModel(files, { ...options, overwrite: true });
    expect([forced.pushed, forced.keptReadme]).toEqual([[model, 'README.md'], false]);
    const changed = [{ path: model, content: new Blob([weights, 'more']) }];
    expect((await pushModel(changed, { repository, token })).pushed).toEqual([model]);
  });

  it('keeps the README of somebody else', async () => {
    const hub = await start({ repositories: { [repository]: { files: { 'README.md': '# Mine' } } } });
    const { pushed, keptReadme } = await pushModel(files, { repository, token, card });
    expect([pushed, keptReadme]).toEqual([[model], true]);
    expect(new TextDecoder().decode(hub.repositories.get(repository)?.bytes('README.md'))).toBe('# Mine');
  });

  it('makes a pull request, for which reading is enough', async () => {
    const hub = await start({ repositories: { 'acme/other': { files: { [model]: 'other' } } } });
    const options = { repository: 'acme/other', token: 'hf_reader' };
    await expect(pushModel(files, options)).rejects.toMatchObject({
      code: 'ACCESS',
      message:
        'the token of the option token may not write to acme/other; a pull request (--push-pr) needs no right to',
    });
    const { pullRequest } = await pushModel(files, { ...options, pullRequest: true });
    expect(pullRequest).toBe(`${hub.endpoint}/acme/other/discussions/1`);
    const found = hub.repositories.get('acme/other');
    expect(hex('sha256', found?.bytes(model, 'refs/pr/1') ?? '')).toBe(hex('sha256', weights));
    expect(new TextDecoder().decode(found?.bytes(model))).toBe('other');
    await expect(pushModel(files, { repository: 'acme/none', token, pullRequest: true })).rejects.toMatchObject({
      code: 'NOT_FOUND',
    });
  });

  it('pushes to a branch that is there', async () => {
    const hub = await start({ repositories: { [repository]: { files: {} } } });
    const found = hub.repositories.get(repository);
    found?.branches.set('dev', found.branches.get('main') as string);
    await pushModel(files, { repository: `${repository}@dev`, token });
    expect([found?.bytes(model), found?.bytes(model, 'dev')?.length]).toEqual([undefined, weights.length]);
    await expect(pushModel(files, { repository: `${repository}@none`, token })).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: expect.stringContaining('has no revision "none"'),
    });
  });

  it('says what is missing before anything is asked or made', async () => {
    const hub = await start({ repositories: { 'acme/tiny': source } });
    await expect(pushModel(files, { repository })).rejects.toMatchObject({
      code: 'ACCESS',
      message: 'a push needs a token that may write: set HF_TOKEN, or run hf auth login',
    });
    for (const wrong of ['tiny', 'me/tiny/file', 'me/tiny:Q4_K_M', 'datasets/me/tiny', '../me'])
      await expect(pushModel(files, { repository: wrong, token })).rejects.toThrow(RangeError);
    await expect(pushModel(files, { repository, token: 'other' })).rejects.toThrow(/does not begin with hf_/);
    expect(hub.requests).toEqual([]);
    await expect(pushModel(files, { repository, token: 'hf_wrong' })).rejects.toMatchObject({ code: 'ACCESS' });
    const outside = [{ path: '../a.gguf', content: new Blob([]) }];
    await expect(pushModel(outside, { repository, token })).rejects.toThrow(RangeError);
    await expect(pushModel(files, { repository: 'acme/new', token })).rejects.toMatchObject({
      code: 'ACCESS',
      message: expect.stringContaining("You don't have the rights to create a model"),
    });
    expect([...hub.repositories.keys()]).toEqual(['acme/tiny']);
  });

  it('takes the client of a page', async () => {
    await start();
    expect((await pushModel(files, { repository, token, client })).pushed).toEqual([model]);
  });

  it('can be stopped', async () => {
    const hub = await start();
    const { signal, abort } = (() => {
      const controller = new AbortController();
      return { signal: controller.signal, abort: () => controller.abort(new Error('enough')) };
    })();
    hub.troubles.push({ origin: 'cdn', method: 'PUT', delay: 1000 });
    await expect(pushModel(files, { repository, token, signal, onProgress: abort })).rejects.toThrow('enough');
    expect(hub.repositories.get(repository)?.bytes(model)).toBe(undefined);
  });
});

describe('a push in trouble', () => {
  /** The server wants to be asked again at once. */
  const headers = { 'Retry-After': '0' };

  /** Pushes while requests meet troubles, and gives the result with the number of commits. */
  const pushIn = async (options: HubOptions, troubles: object[]) => {
    const hub = await start(options);
    hub.troubles.push(...troubles);
    const result = await pushModel(files, { repository, token });
    const found = hub.repositories.get(repository);
    expect(hex('sha256', found?.bytes(model) ?? '')).toBe(hex('sha256', weights));
    expect(result.commit).toBe(found?.branches.get('main'));
    return { hub, result, commits: found?.commits.size };
  };

  it.each([
    ['basic', 'cdn', 'PUT'],
    ['multipart', 'cdn', 'PUT'],
    ['xet', 'cas', 'POST'],
  ] as const)('goes on after refusals and cuts of uploads by %s', async (uploads, origin, method) => {
    const { hub, commits } = await pushIn({ uploads, partSize: 1_000_000 }, [
      { origin, method, status: 503, headers },
      { origin, method, cutAfter: 300_000 },
      { origin, method, status: 500, headers, late: true },
      { origin: 'hub', method: 'POST', path: /preupload/, status: 429, headers: { RateLimit: '"api";r=0;t=0' } },
    ]);
    expect(commits).toBe(2);
    // The repository was hashed and listed once.
    expect(hub.requests.filter(({ path }) => path.includes('/preupload/')).length).toBe(2);
  });

  it('goes on after a commit of somebody else', async () => {
    const hub = await start({ repositories: { [repository]: { files: {} } } });
    const found = hub.repositories.get(repository);
    hub.troubles.push({
      method: 'POST',
      path: /preupload/,
      change: (answer: { status: number }) => {
        found?.change({ 'note.txt': 'new' });
        return answer;
      },
    });
    const result = await pushModel(files, { repository, token });
    expect(result.pushed).toEqual([model]);
    expect(new TextDecoder().decode(found?.bytes('note.txt'))).toBe('new');
    const parents = hub.requests.filter(({ path }) => path.includes('/commit/')).map(({ status }) => status);
    expect(parents).toEqual([412, 200]);
  });

  it('does not commit twice if an answer is lost', async () => {
    const { result, commits } = await pushIn({}, [{ path: /\/commit\//, status: 502, headers, late: true }]);
    expect([result.pushed, result.unchanged, commits]).toEqual([[], [model], 2]);
  });

  it('does not fail if the repository was made meanwhile', async () => {
    const { commits } = await pushIn({}, [{ path: /repos\/create/, status: 504, headers, late: true }]);
    expect(commits).toBe(2);
  });

  it('renews addresses that expired', async () => {
    const hub = await start({ signatureSeconds: -1 });
    hub.troubles.push({
      origin: 'cdn',
      change: (answer) => {
        hub.settings.signatureSeconds = 60;
        return answer;
      },
    });
    const result = await pushModel(files, { repository, token });
    expect(result.pushed).toEqual([model]);
  });

  it('ends after five tries, and says why without the token', async () => {
    const hub = await start();
    hub.troubles.push({ path: /\/commit\//, status: 503, headers, times: 100 });
    const push = pushModel(files, { repository, token });
    await expect(push).rejects.toMatchObject({
      code: 'IO',
      message: expect.stringMatching(/^cannot push to .* answered 503/),
    });
    await expect(push).rejects.not.toThrow(token);
    expect(hub.requests.filter(({ path }) => path.includes('/commit/')).length).toBe(5);
  });
});
