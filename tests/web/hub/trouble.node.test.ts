// A hub that refuses, fails, is slow or lies.
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { hubModel, inspectModel, quantizeModel } from '../../../web/src/model.js';
import type { Trouble } from '../support/hub/hub.mjs';
import { hurried } from '../support/hurried.js';
import { expectBytes, rejectionOf, safetensors } from '../support/models.js';
import { languageModel, setHub, useHub } from './support.js';

const place = useHub();
const token = 'hf_secret0123456789';

/** A model of one matrix of that many rows of 256 numbers. */
function matrix(rows: number): Uint8Array<ArrayBuffer> {
  const data = Float32Array.from({ length: rows * 256 }, (_, i) => Math.sin(i));
  return safetensors({ 'a.weight': { dtype: 'F32', shape: [rows, 256], data } });
}

describe('refusals say what the hub says, and what helps', () => {
  const files = languageModel();
  const repositories = {
    'acme/gated': { files, gated: 'manual' as const },
    'acme/private': { files, private: true },
    'acme/disabled': { files, disabled: true },
    'acme/open': { files },
  };
  const tokens = { [token]: { user: 'somebody' } };
  it.each([
    [
      'hf:acme/gated',
      '',
      'ACCESS',
      /^acme\/gated is gated: ask for access at .*\/acme\/gated, then set HF_TOKEN, or run hf auth login$/,
    ],
    [
      'hf:acme/gated',
      token,
      'ACCESS',
      /^acme\/gated is gated, and the token of HF_TOKEN has no access: ask for it at .*fine-grained token/,
    ],
    [
      'hf:acme/private',
      '',
      'ACCESS',
      /^acme\/private does not exist, or is private: check the name; for a private model, set HF_TOKEN/,
    ],
    ['hf:acme/private', token, 'ACCESS', /^acme\/private does not exist, or the token of HF_TOKEN may not read it/],
    ['hf:acme/absent', '', 'ACCESS', /^acme\/absent does not exist, or is private/],
    ['hf:acme/open', 'hf_wrong', 'ACCESS', /^the hub refuses the token of HF_TOKEN: run hf auth login/],
    ['hf:acme/disabled', '', 'ACCESS', /^the hub refuses acme\/disabled: Access to this resource is disabled\.$/],
    ['hf:acme/open@v9', '', 'NOT_FOUND', /^acme\/open has no revision "v9"; .*\/acme\/open lists them$/],
    ['hf:acme/open/none.gguf', '', 'NOT_FOUND', /^acme\/open has no file "none\.gguf"; it has "config\.json", /],
    ['hf:acme/open:Q4_K_M', '', 'NOT_FOUND', /^acme\/open holds no /],
  ])('%s with the token %j', async (name, word, code, message) => {
    const hub = await place.start({ repositories, tokens });
    setHub({ HF_ENDPOINT: hub.endpoint, HF_HOME: place.path(), ...(word !== '' && { HF_TOKEN: word }) });
    const error = await rejectionOf(inspectModel(name));
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
    if (word !== '') expect(JSON.stringify(error)).not.toContain(word);
  });
});

describe('the token', () => {
  const repositories = { 'acme/private': { files: languageModel(2), private: true, gated: 'auto' as const } };
  const tokens = { [token]: { user: 'acme' } };

  it.each(['HF_TOKEN', 'a file', 'the option'])('of %s goes to the endpoint alone', async (from) => {
    const hub = await place.start({ repositories, tokens });
    if (from === 'a file') await writeFile(place.path('token'), `${token}\n`);
    if (from === 'HF_TOKEN') setHub({ HF_ENDPOINT: hub.endpoint, HF_HOME: place.path(), HF_TOKEN: token });
    const model = from === 'the option' ? await hubModel('acme/private', { token }) : 'hf:acme/private';
    const { report } = await quantizeModel(model, { to: 'int8', workers: 0 });
    expect(JSON.stringify(report)).not.toContain(token);
    const bearers = hub.requests.map(({ origin, headers }) => [origin, headers.authorization]);
    expect(bearers.filter(([origin]) => origin === 'hub').every(([, word]) => word === `Bearer ${token}`)).toBe(true);
    const elsewhere = bearers.filter(([origin]) => origin !== 'hub');
    expect(elsewhere.length).toBeGreaterThan(0);
    expect(elsewhere.every(([, word]) => word === undefined)).toBe(true);
  });

  it('that no header takes is refused without being shown', async () => {
    const hub = await place.start({ repositories });
    setHub({ HF_ENDPOINT: hub.endpoint, HF_TOKEN: 'hf_a secret' });
    const error = await rejectionOf(inspectModel('hf:acme/private'));
    expect(error).toMatchObject({ option: 'HF_TOKEN' });
    expect(JSON.stringify(error)).not.toContain('secret');
  });

  it('of a file is in no text of it', async () => {
    const hub = await place.start({ repositories, tokens });
    const file = await hubModel('acme/private', { token });
    const commit = hub.repositories.get('acme/private')?.branches.get('main');
    expect(JSON.stringify({ lora: [file] })).toBe(
      `{"lora":["hf:acme/private@${commit}/model.safetensors.index.json"]}`,
    );
    expect(inspect(file, { depth: 9 })).not.toContain(token);
  });

  it('that a server sends back is not shown', async () => {
    const hub = await place.start({ repositories, tokens });
    setHub({ HF_ENDPOINT: hub.endpoint, HF_TOKEN: token });
    hub.troubles.push({
      path: /^\/api\/models/,
      change: () => ({ status: 418, headers: { 'X-Error-Message': `what is ${token}?` } }),
    });
    const error = (await rejectionOf(inspectModel('hf:acme/private'))) as Error;
    expect(error.message).toContain('what is …?');
  });
});

describe('what fails in passing is tried again', () => {
  const rows = 4096;
  const files = { 'model.safetensors': matrix(rows) };
  const expected = async () => (await quantizeModel(files['model.safetensors'], { to: 'int8', workers: 0 })).bytes();

  it.each<[string, Trouble, number[]]>([
    ['an error of the listing', { path: /^\/api\/models/, status: 503 }, [1000]],
    [
      'a quota with its end',
      { path: /^\/api\/models/, status: 429, headers: { RateLimit: '"api";r=0;t=41' } },
      [42_000],
    ],
    ['a quota of files', { path: /\/resolve\//, status: 429, headers: { RateLimit: '"resolvers";r=0;t=9' } }, [10_000]],
    ['errors of the servers of files', { origin: 'cdn', status: 502, times: 3 }, [1000, 2000, 4000]],
    ['a cut in the first bytes', { origin: 'cdn', cutAfter: 70_000 }, [1000]],
    ['a cut behind a megabyte, twice', { origin: 'cdn', cutAfter: 1_000_000, times: 3 }, [1000, 1000]],
  ])('%s', async (_, trouble, expectedPauses) => {
    const hub = await place.start({ repositories: { 'acme/m': { files } } });
    hub.troubles.push(trouble);
    const { result, pauses } = await hurried(() => quantizeModel('hf:acme/m', { to: 'int8', workers: 0 }));
    expectBytes(await result.bytes(), await expected());
    expect(pauses).toEqual(expectedPauses);
    // No byte comes twice, but those that were under way at the cut.
    const sent = hub.requests.filter(({ origin }) => origin === 'cdn').reduce((sum, one) => sum + one.sent, 0);
    expect(sent).toBeLessThanOrEqual(files['model.safetensors'].length + 3 * (1 << 20));
  });

  it.each<[string, Trouble, before?: Trouble]>([
    ['a listing that does not come', { path: /^\/api\/models/, delay: 4000 }],
    [
      'a listing that stalls',
      {
        path: /^\/api\/models/,
        pace: 4000,
        change: (answer) => ({ ...answer, body: `${answer.body}${' '.repeat(1 << 17)}` }),
      },
    ],
    ['an answer about a file that does not come', { path: /\/resolve\//, delay: 4000 }],
    ['bytes that do not come', { origin: 'cdn', delay: 4000 }],
    ['bytes that stall', { origin: 'cdn', pace: 4000 }],
    ['later bytes that stall', { origin: 'cdn', pace: 4000 }, { origin: 'cdn' }],
  ])('%s, after the seconds of its variable', async (_, trouble, before = undefined) => {
    const hub = await place.start({ repositories: { 'acme/m': { files } } });
    const seconds = { HF_HUB_ETAG_TIMEOUT: '1', HF_HUB_DOWNLOAD_TIMEOUT: '1' };
    setHub({ HF_ENDPOINT: hub.endpoint, HF_HOME: place.path(), ...seconds });
    if (before !== undefined) hub.troubles.push(before);
    hub.troubles.push(trouble);
    const { result, pauses } = await hurried(() => quantizeModel('hf:acme/m', { to: 'int8', workers: 0 }));
    expectBytes(await result.bytes(), await expected());
    expect(pauses).toEqual([1000]);
  });

  it('what stalls five times is an error, and a wrong number of seconds, too', async () => {
    const hub = await place.start({ repositories: { 'acme/m': { files } } });
    setHub({ HF_ENDPOINT: hub.endpoint, HF_HOME: place.path(), HF_HUB_DOWNLOAD_TIMEOUT: '0.1' });
    hub.troubles.push({ origin: 'cdn', delay: 1000, times: 9 });
    const { result, pauses } = await hurried(() => rejectionOf(inspectModel('hf:acme/m')));
    expect(result).toMatchObject({ code: 'IO', message: expect.stringMatching(/nothing came for 0\.1 s$/) });
    expect(pauses).toEqual([1000, 2000, 4000, 8000]);
    setHub({ HF_ENDPOINT: hub.endpoint, HF_HOME: place.path(), HF_HUB_DOWNLOAD_TIMEOUT: 'soon' });
    await expect(inspectModel('hf:acme/m')).rejects.toMatchObject({ option: 'HF_HUB_DOWNLOAD_TIMEOUT' });
  });

  it('signatures that expire are renewed', async () => {
    const hub = await place.start({ repositories: { 'acme/m': { files } }, signatureSeconds: 3600 });
    // Each address is refused once it was used.
    const used = new Set<string>();
    hub.troubles.push({
      origin: 'cdn',
      times: 100,
      change(answer, { path }) {
        if (used.has(path)) return { status: 403, body: 'Request has expired' };
        used.add(path);
        return answer;
      },
    });
    const { bytes } = await quantizeModel('hf:acme/m', { to: 'int8', workers: 0 });
    expectBytes(await bytes(), await expected());
    expect(hub.requests.filter(({ path }) => path.includes('/resolve/')).length).toBeGreaterThan(1);
  });

  it('five times without a byte are an error', async () => {
    const hub = await place.start({ repositories: { 'acme/m': { files } } });
    hub.troubles.push({ origin: 'cdn', status: 503, times: 100 });
    const { result, pauses } = await hurried(() => rejectionOf(inspectModel('hf:acme/m')));
    expect(result).toMatchObject({ code: 'IO', message: expect.stringContaining('the server answered 503') });
    expect(pauses).toEqual([1000, 2000, 4000, 8000]);
  });

  it('a quota that is filled too late is an error with its seconds', async () => {
    const hub = await place.start({ repositories: { 'acme/m': { files } } });
    hub.troubles.push({ path: /\/resolve\//, status: 429, headers: { RateLimit: '"resolvers";r=0;t=600' } });
    await expect(inspectModel('hf:acme/m')).rejects.toMatchObject({
      message: expect.stringContaining(
        "the hub's quota of requests is used up; it is filled again in 601 s; with a token",
      ),
    });
  });

  it('a wait ends with the signal', async () => {
    const hub = await place.start({ repositories: { 'acme/m': { files } } });
    hub.troubles.push({ path: /^\/api\/models/, status: 503, headers: { 'Retry-After': '300' } });
    const reason = new Error('enough');
    const controller = new AbortController();
    setTimeout(() => controller.abort(reason), 50);
    await expect(inspectModel('hf:acme/m', { signal: controller.signal })).rejects.toBe(reason);
  });
});

describe('lies', () => {
  const files = { 'model.safetensors': matrix(1024) };
  const start = async (trouble: Trouble) => {
    const hub = await place.start({ repositories: { 'acme/m': { files } } });
    hub.troubles.push(trouble);
    return hub;
  };
  const listed = (change: (list: { sha: unknown; siblings: Record<string, unknown>[] }) => void): Trouble => ({
    path: /^\/api\/models/,
    times: 100,
    change(answer) {
      const list = JSON.parse(answer.body as string);
      change(list);
      return { ...answer, body: JSON.stringify(list) };
    },
  });

  it.each<[string, Trouble, object]>([
    [
      'a listing that is no JSON',
      { path: /^\/api/, change: (answer) => ({ ...answer, body: '<html>' }) },
      { code: 'BAD_FILE' },
    ],
    ['a listing without a commit', listed((list) => (list.sha = '../x')), { code: 'BAD_FILE' }],
    [
      'a file of another size',
      listed(({ siblings }) => {
        for (const one of siblings) one.size = 10;
      }),
      { code: 'CHANGED' },
    ],
    [
      'a file of another digest',
      listed(({ siblings }) => {
        for (const one of siblings) one.lfs = { sha256: 'a'.repeat(64) };
      }),
      { code: 'CHANGED' },
    ],
    [
      'a redirect to a file',
      { path: /\/resolve\//, change: (answer) => ({ ...answer, headers: { Location: 'file:///etc/passwd' } }) },
      { code: 'IO', message: expect.stringContaining('redirects to an address that is not https') },
    ],
    [
      'a redirect to data',
      { path: /\/resolve\//, change: (answer) => ({ ...answer, headers: { Location: 'data:text/plain,x' } }) },
      { code: 'IO', message: expect.stringContaining('redirects to an address that is not https') },
    ],
    [
      'redirects without an end',
      { path: /\/resolve\//, times: 100, change: (answer, { path }) => ({ ...answer, headers: { Location: path } }) },
      { code: 'IO', message: expect.stringContaining('redirects more than 5 times') },
    ],
    [
      'a packed range',
      { origin: 'cdn', change: (answer) => ({ ...answer, headers: { ...answer.headers, 'Content-Encoding': 'br' } }) },
      { code: 'IO' },
    ],
    [
      'a body that is longer than its range',
      {
        origin: 'cdn',
        change: (answer) => ({ ...answer, headers: { ...answer.headers, 'Content-Range': 'bytes 0-9/10' } }),
      },
      { code: 'CHANGED' },
    ],
  ])('%s is an error', async (_, trouble, error) => {
    await start(trouble);
    await expect(inspectModel('hf:acme/m')).rejects.toMatchObject(error);
  });

  it('a name that leaves the repository is not asked for', async () => {
    const hub = await start(
      listed(({ siblings }) => {
        for (const one of siblings) one.rfilename = 'a/../../../../secret/model.gguf';
      }),
    );
    await expect(inspectModel('hf:acme/m')).rejects.toMatchObject({ code: 'NOT_FOUND' });
    expect(hub.requests.map(({ path }) => path.replace(/\?.*/, ''))).toEqual(['/api/models/acme/m/revision/main']);
  });

  it.each([
    [200, 'BAD_FILE', 60e6],
    [418, 'IO', 16e6],
  ])('an answer of the hub that never ends is given up: %d', async (status, code, most) => {
    const read = (_: number, length: number) => new Uint8Array(length).fill(0x61);
    const hub = await start({ path: /^\/api/, change: () => ({ status, body: { start: 0, end: 2 ** 40, read } }) });
    await expect(inspectModel('hf:acme/m')).rejects.toMatchObject({ code });
    expect(hub.requests.reduce((sum, one) => sum + one.sent, 0)).toBeLessThan(most);
  });

  it('a mirror may list no sizes, and send on to the hub itself', async () => {
    const hub = await start(
      listed(({ siblings }) => {
        for (const one of siblings) for (const key of ['size', 'lfs', 'blobId']) delete one[key];
      }),
    );
    hub.troubles.push({
      path: /\/resolve\/.*(?<!again)$/,
      times: 100,
      change: (answer, { path }) => ({ ...answer, headers: { Location: `https://huggingface.co${path}?again` } }),
    });
    const { bytes } = await quantizeModel('hf:acme/m', { to: 'int8', workers: 0 });
    expectBytes(
      await bytes(),
      await (await quantizeModel(files['model.safetensors'], { to: 'int8', workers: 0 })).bytes(),
    );
  });

  it('a whole file in place of a range is taken, if it has the size of the listing', async () => {
    const whole = (extra: number): Trouble => ({
      origin: 'cdn',
      times: 100,
      change: (answer) => ({
        status: 200,
        headers: { ETag: answer.headers?.ETag ?? '' },
        body: Buffer.concat([files['model.safetensors'], new Uint8Array(extra)]),
      }),
    });
    await start(whole(0));
    const { bytes } = await quantizeModel('hf:acme/m', { to: 'int8', workers: 0 });
    expectBytes(
      await bytes(),
      await (await quantizeModel(files['model.safetensors'], { to: 'int8', workers: 0 })).bytes(),
    );
    await start(whole(1));
    await expect(inspectModel('hf:acme/m')).rejects.toMatchObject({ code: 'BAD_FILE' });
  });

  it('a file that changes under way is an error', async () => {
    let count = 0;
    await start({
      origin: 'cdn',
      times: 100,
      change: (answer) => ({ ...answer, headers: { ...answer.headers, ETag: `"${count++}"` } }),
    });
    await expect(quantizeModel('hf:acme/m', { to: 'int8', workers: 0 })).rejects.toMatchObject({ code: 'CHANGED' });
  });
});

describe('the cache on disk', () => {
  it('gives whole files, and is left as it is', async () => {
    const files = languageModel();
    const hub = await place.start({ repositories: { 'acme/tiny': { files } } });
    const repository = hub.repositories.get('acme/tiny');
    const commit = repository?.branches.get('main') as string;
    const entries = repository?.commitOf('main')?.files;
    const folder = place.path('hub', 'models--acme--tiny');
    const put = async (path: string, content: string | Uint8Array, oid: string) => {
      const [blob, link] = [`${folder}/blobs/${oid}`, `${folder}/snapshots/${commit}/${path}`];
      for (const one of [blob, link]) await mkdir(dirname(one), { recursive: true });
      await writeFile(blob, content);
      await symlink(blob, link);
    };
    const model = entries?.get('model.safetensors');
    await put('model.safetensors', files['model.safetensors'] as Uint8Array, model?.sha256() as string);
    // A file of the right size and another name among the blobs.
    await put('config.json', (files['config.json'] as string).replace('{', ' '), 'f'.repeat(40));
    const before = await readdir(place.path(), { recursive: true });
    const { bytes } = await quantizeModel('hf:acme/tiny', { to: 'Q8_0', workers: 0 });
    const asked = hub.requests.map(({ path }) => path).filter((path) => path.includes('/resolve/'));
    expect(asked.some((path) => path.endsWith('config.json'))).toBe(true);
    expect(asked.some((path) => path.endsWith('model.safetensors'))).toBe(false);
    expect(await readdir(place.path(), { recursive: true })).toEqual(before);
    // Without a request, only the cache is left.
    hub.requests.length = 0;
    setHub({ HF_ENDPOINT: hub.endpoint, HF_HOME: place.path(), HF_HUB_OFFLINE: '1' });
    await mkdir(`${folder}/refs`);
    await writeFile(`${folder}/refs/main`, commit);
    expect((await inspectModel('hf:acme/tiny')).tensors.length).toBeGreaterThan(0);
    const error = await rejectionOf(inspectModel('hf:acme/tiny@v2'));
    expect(error).toMatchObject({
      code: 'NOT_FOUND',
      message: expect.stringContaining('HF_HUB_OFFLINE allows no request'),
    });
    expect(hub.requests).toEqual([]);
    expect((await bytes()).length).toBeGreaterThan(0);
    expect(await readFile(`${folder}/refs/main`, 'utf8')).toBe(commit);
  });
});
