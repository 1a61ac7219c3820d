// The hub of the tests, asked by the client that users have: what it reads and writes here works as on the real hub.
import { commit, createRepo, downloadFile, listFiles, modelInfo, oauthLoginUrl, whoAmI } from '@huggingface/hub';
import { afterEach, describe, expect, it } from 'vitest';
import { type HubOptions, startHub, type TestHub } from '../support/hub/hub.mjs';
import { hex, randomBytes } from '../support/hub/store.mjs';

let hub: TestHub | undefined;
afterEach(async () => {
  await hub?.close();
  hub = undefined;
});

const accessToken = 'hf_writer';
const tokens = { [accessToken]: { user: 'acme' } };
const start = async (options: HubOptions = {}) => {
  hub = await startHub({ tokens, ...options });
  return hub;
};

/** The SHA-256 of what a client read. */
const digest = async (blob: Blob | null | undefined) =>
  hex('sha256', new Uint8Array(await (blob ?? new Blob()).arrayBuffer()));

/** Two thirds of it compress. */
const weights = new Uint8Array(3_000_001).fill(7);
weights.set(randomBytes(1_000_000, 5), 1_000_000);
const files = { 'config.json': '{}', 'folder/a b.txt': 'text', 'model.safetensors': weights };

describe('the official client', () => {
  for (const storage of ['lfs', 'xet'] as const) {
    it(`reads files of ${storage}`, async () => {
      const { endpoint: hubUrl, requests } = await start({ repositories: { 'acme/tiny': { files, storage } } });
      const names = [];
      for await (const { path } of listFiles({ repo: 'acme/tiny', recursive: true, hubUrl })) names.push(path);
      expect(names).toEqual(['config.json', 'folder', 'folder/a b.txt', 'model.safetensors']);
      const blob = await downloadFile({ repo: 'acme/tiny', path: 'model.safetensors', hubUrl });
      expect(await digest(blob)).toBe(hex('sha256', weights));
      expect(await digest(blob?.slice(70_000, 200_001))).toBe(hex('sha256', weights.slice(70_000, 200_001)));
      expect(requests.some(({ origin }) => origin === 'cas')).toBe(storage === 'xet');
      const small = await downloadFile({ repo: 'acme/tiny', path: 'config.json', hubUrl });
      expect(await small?.text()).toBe('{}');
    });
  }

  for (const uploads of ['basic', 'multipart', 'xet'] as const) {
    it(`uploads by ${uploads}, and gets the same bytes back`, async () => {
      const { endpoint: hubUrl, repositories, requests } = await start({ uploads, partSize: 1_000_000 });
      const repo = 'acme/result';
      await createRepo({ repo, accessToken, hubUrl, visibility: 'private' });
      const operations = Object.entries(files).map(([path, content]) => {
        return { operation: 'addOrUpdate' as const, path, content: new Blob([content]) };
      });
      const made = await commit({ repo, accessToken, hubUrl, title: 'Add', operations });
      const repository = repositories.get(repo);
      expect(repository?.isPrivate).toBe(true);
      expect(repository?.branches.get('main')).toBe(made?.commit.oid);
      for (const [path, content] of Object.entries(files)) {
        expect(hex('sha256', repository?.bytes(path) ?? '')).toBe(hex('sha256', content));
      }
      const paths = requests.filter(({ method }) => method !== 'GET').map(({ origin, path }) => `${origin} ${path}`);
      expect(paths.filter((path) => path.startsWith('cdn')).length).toBe({ basic: 1, multipart: 4, xet: 0 }[uploads]);
      expect(paths.filter((path) => path.startsWith('cas')).length).toBe({ basic: 0, multipart: 0, xet: 2 }[uploads]);
      const back = await downloadFile({ repo, path: 'model.safetensors', accessToken, hubUrl });
      expect(await digest(back)).toBe(hex('sha256', weights));
      // A token of the hub is for the hub alone.
      const strangers = requests.filter(({ origin }) => origin !== 'hub');
      expect(strangers.some(({ headers }) => headers.authorization?.includes(accessToken))).toBe(false);
    });
  }

  it('is refused as by the hub', async () => {
    const { endpoint: hubUrl } = await start({
      repositories: {
        'acme/gated': { files, gated: 'manual' },
        'acme/secret': { files, private: true },
        'acme/off': { files, disabled: true },
      },
      tokens: { ...tokens, hf_stranger: { user: 'somebody' } },
    });
    const statusOf = async (id: string, token?: string) => {
      const headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
      const { status, headers: found } = await fetch(`${hubUrl}/${id}`, { headers });
      return [status, found.get('X-Error-Code')];
    };
    const file = 'resolve/main/config.json';
    expect(await statusOf(`acme/gated/${file}`)).toEqual([401, 'GatedRepo']);
    expect(await statusOf(`acme/gated/${file}`, 'hf_stranger')).toEqual([403, 'GatedRepo']);
    expect(await statusOf('api/models/acme/gated')).toEqual([200, null]);
    expect(await statusOf(`acme/secret/${file}`)).toEqual([401, 'RepoNotFound']);
    expect(await statusOf(`acme/secret/${file}`, 'hf_stranger')).toEqual([404, 'RepoNotFound']);
    expect(await statusOf(`acme/secret/${file}`, accessToken)).toEqual([200, null]);
    expect(await statusOf(`acme/secret/${file}`, 'hf_wrong')).toEqual([401, null]);
    expect(await statusOf(`acme/off/${file}`)).toEqual([403, null]);
    expect(await statusOf('acme/gated/resolve/other/config.json', accessToken)).toEqual([404, 'RevisionNotFound']);
    expect(await statusOf('acme/gated/resolve/main/other.json', accessToken)).toEqual([404, 'EntryNotFound']);
  });

  it('pages through a listing, and reads information and its user', async () => {
    const many = Object.fromEntries(Array.from({ length: 25 }, (_, i) => [`${i}.json`, String(i)]));
    const { endpoint: hubUrl, requests } = await start({
      pageSize: 10,
      repositories: { 'acme/many': { files: many } },
    });
    const paths = [];
    for await (const { path } of listFiles({ repo: 'acme/many', hubUrl })) paths.push(path);
    expect(paths.sort()).toEqual(Object.keys(many).sort());
    expect(requests.length).toBe(3);
    const { sha } = await modelInfo({ name: 'acme/many', hubUrl, additionalFields: ['sha'] });
    expect(sha).toMatch(/^[0-9a-f]{40}$/);
    expect((await whoAmI({ accessToken, hubUrl })).name).toBe('acme');
  });

  it('signs a user in by PKCE', async () => {
    const redirectUrl = 'http://127.0.0.1/model/';
    const { endpoint: hubUrl } = await start({ clients: { app: [redirectUrl] } });
    const localStorage: { codeVerifier?: string; nonce?: string } = {};
    const scopes = 'openid profile contribute-repos';
    const login = await oauthLoginUrl({ clientId: 'app', scopes, redirectUrl, hubUrl, localStorage });
    const back = (await fetch(login, { redirect: 'manual' })).headers.get('Location') ?? '';
    expect(back.startsWith(redirectUrl)).toBe(true);
    const code = new URL(back).searchParams.get('code') ?? '';
    const exchange = async (verifier: string) => {
      const form = { grant_type: 'authorization_code', code, redirect_uri: redirectUrl, code_verifier: verifier };
      const response = await fetch(`${hubUrl}/oauth/token`, { method: 'POST', body: new URLSearchParams(form) });
      return { status: response.status, body: (await response.json()) as { access_token: string } };
    };
    const { body } = await exchange(localStorage.codeVerifier ?? '');
    expect((await whoAmI({ accessToken: body.access_token, hubUrl })).name).toBe('visitor');
    expect((await exchange(localStorage.codeVerifier ?? '')).status).toBe(400);
  });

  it('meets signatures that end, quotas and cuts', async () => {
    const { endpoint, troubles, settings, requests } = await start({ repositories: { 'acme/tiny': { files } } });
    const address = `${endpoint}/acme/tiny/resolve/main/model.safetensors`;
    const headers = { Range: 'bytes=10-19' };
    const first = await fetch(address, { headers });
    expect([first.status, first.headers.get('Content-Range')]).toEqual([206, 'bytes 10-19/3000001']);
    expect((await fetch(first.url, { headers })).status).toBe(206);
    settings.signatureSeconds = -1;
    expect((await fetch(address)).status).toBe(403);
    settings.signatureSeconds = 60;

    troubles.push({ origin: 'cdn', status: 503 }, { origin: 'cdn', cutAfter: 100_000 });
    expect((await fetch(address)).status).toBe(503);
    await expect(fetch(address).then((response) => response.arrayBuffer())).rejects.toThrow();
    expect(requests.at(-1)?.sent).toBe(100_000);
    expect((await (await fetch(address)).arrayBuffer()).byteLength).toBe(weights.length);

    settings.quota = { api: 500, resolvers: 6 };
    expect((await fetch(address)).headers.get('RateLimit')).toBe(null);
    const refused = await fetch(address, { redirect: 'manual' });
    expect([refused.status, /^"resolvers";r=0;t=\d+$/.test(refused.headers.get('RateLimit') ?? '')]).toEqual([
      429,
      true,
    ]);
  });
});
