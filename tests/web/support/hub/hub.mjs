// The hub of models for tests: its API, its files and its uploads on three origins of this machine.
//
// Answers follow huggingface/hub-docs at 242f4a1e, huggingface_hub at ee0a4510, and what @huggingface/hub 2.17.5 asks for. Headers that a
// page may read are those that dumps of the real hub show.
import { createHash, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { entryOf, hex, isLarge, pointerTo, Repository } from './store.mjs';
import { XetStore } from './xet.mjs';

/** @typedef {import('./store.mjs').RepositoryData} RepositoryData */
/** @typedef {import('./store.mjs').Entry} Entry */
/** @typedef {'hub' | 'cdn' | 'cas'} OriginName the API and small files; large files; the store of Xet */
/** @typedef {string | Uint8Array | { start: number, end: number, read: Entry['read'] }} Body `end` is the first byte behind it */
/** @typedef {{ status: number, headers?: Record<string, string>, body?: Body }} Answer */
/**
 * A user's token. Names of repositories and of owners may stand in its lists; those of the user's own come by themselves.
 * @typedef {{ user: string, role?: 'read' | 'write', reads?: readonly string[], writes?: readonly string[], gated?: readonly string[] }} TokenData
 */
/**
 * A trouble that requests meet: the first one that fits a request and has `times` left.
 * @typedef {object} Trouble
 * @property {OriginName} [origin]
 * @property {string} [method]
 * @property {RegExp} [path] of the path with its query
 * @property {number} [times] 1 unless stated
 * @property {number} [status] the answer's status
 * @property {Record<string, string>} [headers] with the answer
 * @property {number} [cutAfter] the connection ends after this many bytes of the answer, or of an upload
 * @property {number} [delay] milliseconds before the answer
 * @property {number} [pace] milliseconds between pieces of 64 kB
 * @property {boolean} [late] true: the request is carried out before it fails
 * @property {(answer: Answer, request: Asked) => Answer} [change] makes another answer
 */
/**
 * A request as tests see it. `sent` and `received` are bytes of bodies.
 * @typedef {object} Asked
 * @property {OriginName} origin
 * @property {string} method
 * @property {string} path with its query
 * @property {Record<string, string>} headers
 * @property {number} status 0 until it is answered
 * @property {number} sent
 * @property {number} received
 * @property {string} text the body of a request, if it is JSON or lines of it
 */
/**
 * @typedef {object} HubOptions
 * @property {Readonly<Record<string, RepositoryData>>} [repositories] by owner/name
 * @property {Readonly<Record<string, TokenData>>} [tokens]
 * @property {number} [pageSize] entries of a page of the listing
 * @property {number} [signatureSeconds] life of signed addresses
 * @property {number} [xetTokenSeconds] life of tokens for the store of Xet
 * @property {'basic' | 'multipart' | 'xet'} [uploads] how large files are to be uploaded
 * @property {number} [partSize] bytes of a part of an upload
 * @property {{ api: number, resolvers: number, seconds?: number }} [quota] requests in a window of 300 seconds, unless stated
 * @property {number} [delay] milliseconds before each answer
 * @property {number} [bandwidth] bytes a second of the bodies of answers, for all connections together
 * @property {Readonly<Record<string, readonly string[]>>} [clients] addresses to return to, by the id of an app
 */
/** @typedef {Awaited<ReturnType<typeof startHub>>} TestHub */

const exposedByHub =
  'X-Repo-Commit,X-Request-Id,X-Error-Code,X-Error-Message,X-Total-Count,ETag,Link,Accept-Ranges,Content-Range,X-Linked-Size,X-Linked-ETag,X-Xet-Hash';
const pieceBytes = 65_536;

/** @param {unknown} value @param {Record<string, string>} [headers] @returns {Answer} */
const json = (value, headers, status = 200) => ({
  status,
  headers: { 'Content-Type': 'application/json; charset=utf-8', ...headers },
  body: JSON.stringify(value),
});

/** An answer that is thrown. */
class Refusal extends Error {
  /** @param {number} status @param {string} message @param {string} [code] @param {Record<string, string>} [headers] */
  constructor(status, message, code, headers = {}) {
    super(message);
    this.status = status;
    this.headers = { 'X-Error-Message': message, ...(code && { 'X-Error-Code': code }), ...headers };
  }
}

/**
 * Starts a hub on three ports of 127.0.0.1.
 * @param {HubOptions} [options]
 */
export async function startHub({ repositories = {}, tokens = {}, clients = {}, ...given } = {}) {
  /** Settings that tests may change between requests. */
  const settings = {
    pageSize: 1000,
    signatureSeconds: 3600,
    xetTokenSeconds: 900,
    uploads: /** @type {'basic' | 'multipart' | 'xet'} */ ('basic'),
    partSize: 5_000_000,
    quota: /** @type {HubOptions['quota']} */ (undefined),
    delay: 0,
    bandwidth: Number.POSITIVE_INFINITY,
    /** True: the user refuses to sign in. */
    refusesSignIn: false,
    ...given,
  };
  const repos = new Map(Object.entries(repositories).map(([id, data]) => [id, new Repository(id, data)]));
  const users = new Map(Object.entries(tokens));
  const xet = new XetStore();
  /** Uploaded content by its SHA-256. @type {Map<string, { size: number, read: Entry['read'], xetHash?: string }>} */
  const objects = new Map();
  /** Parts of uploads by their id. @type {Map<string, { oid: string, parts: Map<number, Uint8Array> }>} */
  const multiparts = new Map();
  /** @type {Map<string, { challenge: string, redirect: string, client: string, scope: string }>} */
  const codes = new Map();
  /** @type {Set<string>} */
  const xetTokens = new Set();
  /** @type {Asked[]} */
  const requests = [];
  /** @type {Trouble[]} */
  const troubles = [];
  const secret = randomUUID();
  /** @type {Record<OriginName, string>} */
  const origins = { hub: '', cdn: '', cas: '' };
  /** Requests of a window, by whom and what. @type {Map<string, { used: number, until: number }>} */
  const windows = new Map();

  // ------------------------------------------------------------------------------------------------------- signed addresses
  const signatureOf = (/** @type {string} */ path, /** @type {string} */ until) => hex('sha256', secret + path + until);
  const sign = (/** @type {string} */ path) => {
    const until = String(Date.now() + settings.signatureSeconds * 1000);
    return `${origins.cdn}${path}?X-Amz-Expires=${settings.signatureSeconds}&Until=${until}&Signature=${signatureOf(path, until)}`;
  };
  const checkSignature = (/** @type {URL} */ { pathname, searchParams }) => {
    const until = searchParams.get('Until') ?? '0';
    if (searchParams.get('Signature') === signatureOf(pathname, until) && Number(until) >= Date.now()) return;
    throw new Refusal(403, 'Request has expired');
  };

  /** Bytes of a body in the range that a request asks for. @param {Asked} request @param {number} size @param {Entry['read']} read @param {Record<string, string>} headers @returns {Answer} */
  const ranged = (request, size, read, headers) => {
    const [, first, last] = /^bytes=(\d*)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
    const ifRange = request.headers['if-range'];
    const all = { ...headers, 'Accept-Ranges': 'bytes' };
    if ((first === undefined && last === undefined) || (ifRange !== undefined && ifRange !== headers.ETag)) {
      return { status: 200, headers: all, body: { start: 0, end: size, read } };
    }
    const start = first === '' ? Math.max(0, size - Number(last)) : Number(first);
    const end = first === '' || last === '' ? size : Math.min(size, Number(last) + 1);
    if (start >= end) return { status: 416, headers: { ...all, 'Content-Range': `bytes */${size}` }, body: '' };
    return {
      status: 206,
      headers: { ...all, 'Content-Range': `bytes ${start}-${end - 1}/${size}` },
      body: { start, end, read },
    };
  };

  // ------------------------------------------------------------------------------------------------------------------ access
  const tokenOf = (/** @type {Asked} */ { headers }) => {
    const [, word] = /^Bearer (.*)$/.exec(headers.authorization ?? '') ?? [];
    if (word === undefined) return undefined;
    const token = users.get(word);
    if (token === undefined) throw new Refusal(401, 'Invalid credentials in Authorization header');
    return token;
  };
  const names = (/** @type {readonly string[]} */ list, /** @type {string} */ id) =>
    list.includes(id) || list.includes(id.split('/')[0] ?? '');
  const mayWrite = (/** @type {TokenData | undefined} */ token, /** @type {string} */ id) =>
    token !== undefined && token.role !== 'read' && names([token.user, ...(token.writes ?? [])], id);

  /** The repository of a request. @param {Asked} request @param {string} id @param {'list' | 'content' | 'write'} purpose */
  const repositoryFor = (request, id, purpose) => {
    const token = tokenOf(request);
    const repository = repos.get(id);
    const ownNames = [token?.user ?? '', ...(token?.reads ?? []), ...(token?.writes ?? [])];
    if (repository === undefined || (repository.isPrivate && !names(ownNames, id))) {
      throw token === undefined
        ? new Refusal(401, 'Invalid username or password.', 'RepoNotFound')
        : new Refusal(404, 'Repository not found', 'RepoNotFound');
    }
    if (repository.isDisabled) throw new Refusal(403, 'Access to this resource is disabled.');
    if (purpose === 'content' && repository.gated && !names([token?.user ?? '', ...(token?.gated ?? [])], id)) {
      const message =
        token === undefined
          ? `Access to model ${id} is restricted. You must have access to it and be authenticated to access it. Please log in.`
          : `Access to model ${id} is restricted and you are not in the authorized list. Visit ${origins.hub}/${id} to ask for access.`;
      throw new Refusal(token === undefined ? 401 : 403, message, 'GatedRepo');
    }
    if (purpose === 'write' && !mayWrite(token, id)) {
      throw token === undefined
        ? new Refusal(401, 'Invalid username or password.')
        : new Refusal(403, 'Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request');
    }
    return { repository, user: token?.user ?? '' };
  };
  /** @param {Repository} repository @param {string} revision */
  const commitOf = (repository, revision) => {
    const commit = repository.commitOf(revision);
    if (commit === undefined) throw new Refusal(404, `Invalid rev id: ${revision}`, 'RevisionNotFound');
    return commit;
  };

  // -------------------------------------------------------------------------------------------------------------- files to read
  /** @param {Repository} repository @param {import('./store.mjs').Commit} commit @param {Entry} entry @param {boolean} expand */
  const listed = (repository, commit, entry, expand) => {
    const last = expand ? repository.history(commit).find(({ touched }) => touched.has(entry.path)) : undefined;
    return {
      type: 'file',
      oid: entry.oid(),
      size: entry.size,
      path: entry.path,
      ...(entry.isLarge && {
        lfs: { oid: entry.sha256(), size: entry.size, pointerSize: pointerTo(entry.sha256(), entry.size).length },
      }),
      ...(entry.xetHash !== undefined && { xetHash: entry.xetHash }),
      ...(last !== undefined && { lastCommit: { id: last.id, title: last.title, date: last.date } }),
    };
  };

  /** The revision and path of an address. @param {string[]} parts */
  const split = (parts) => {
    const length = parts[0] === 'refs' ? 3 : 1;
    return { revision: parts.slice(0, length).join('/'), path: parts.slice(length).join('/') };
  };

  /** resolve, resolve-cache and raw. @param {Asked} request @param {string} id @param {'resolve' | 'cache' | 'raw'} kind @param {string[]} parts @returns {Answer} */
  const answerFile = (request, id, kind, parts) => {
    const { repository } = repositoryFor(request, id, 'content');
    const { revision, path } = split(parts);
    const commit = commitOf(repository, revision);
    const entry = commit.files.get(path);
    const headers = { 'X-Repo-Commit': commit.id, 'Accept-Ranges': 'bytes' };
    if (entry === undefined) throw new Refusal(404, 'Entry not found', 'EntryNotFound', headers);
    const text = { 'Content-Type': 'text/plain; charset=utf-8' };
    const etag = `"${entry.isLarge ? entry.sha256() : entry.oid()}"`;
    if (kind === 'raw') {
      const content = entry.isLarge ? pointerTo(entry.sha256(), entry.size) : entry.read(0, entry.size);
      return { status: 200, headers: { ...headers, ...text, ETag: `"${entry.oid()}"` }, body: content };
    }
    if (kind === 'cache') {
      // The CDN compresses texts, never ranges, and then states no length.
      if (request.headers.range === undefined && /\bgzip\b/.test(request.headers['accept-encoding'] ?? '')) {
        const encoded = { 'Content-Encoding': 'gzip', ETag: `W/${etag}`, 'X-Repo-Commit': commit.id, ...text };
        return { status: 200, headers: encoded, body: gzipSync(entry.read(0, entry.size)) };
      }
      return ranged(request, entry.size, entry.read, { ...headers, ...text, ETag: etag });
    }
    const linked = { ...headers, 'X-Linked-Size': String(entry.size), 'X-Linked-ETag': etag };
    if (!entry.isLarge) {
      const place = `/api/resolve-cache/models/${id}/${commit.id}/${path.split('/').map(encodeURIComponent).join('/')}`;
      const location = `${place}?%2F${encodeURIComponent(path)}=&etag=${encodeURIComponent(etag)}`;
      return {
        status: 307,
        headers: { ...linked, ETag: etag, Location: location },
        body: `Redirecting to ${location}`,
      };
    }
    if (entry.xetHash !== undefined) {
      xet.add(entry);
      const auth = `${origins.hub}/api/models/${id}/xet-read-token/${commit.id}`;
      Object.assign(linked, {
        'X-Xet-Hash': entry.xetHash,
        Link: `<${auth}>; rel="xet-auth", <${origins.cas}/v1/reconstructions/${entry.xetHash}>; rel="xet-reconstruction-info"`,
      });
      const type = 'application/vnd.xet-fileinfo+json';
      if (request.headers.accept?.includes(type))
        return json({ hash: entry.xetHash }, { ...linked, 'Content-Type': type });
    }
    const location = sign(`/repos/${id}/${commit.id}/${path.split('/').map(encodeURIComponent).join('/')}`);
    return { status: 302, headers: { ...linked, Location: location }, body: `Found. Redirecting to ${location}` };
  };

  /** @param {Repository} repository @param {import('./store.mjs').Commit} commit @param {URLSearchParams} query */
  const infoOf = (repository, commit, query) => {
    const siblings = [...commit.files.values()].map((entry) => ({
      rfilename: entry.path,
      ...(query.get('blobs') === 'true' && {
        size: entry.size,
        blobId: entry.oid(),
        ...(entry.isLarge && { lfs: { sha256: entry.sha256(), size: entry.size, pointerSize: 134 } }),
      }),
    }));
    const { id, isPrivate, gated, isDisabled, cardData, tags } = repository;
    const [author] = id.split('/');
    const known = { private: isPrivate, gated, disabled: isDisabled, cardData, tags, siblings };
    return {
      _id: hex('sha1', id).slice(0, 24),
      id,
      modelId: id,
      author,
      sha: commit.id,
      lastModified: commit.date,
      ...known,
    };
  };

  /** A page of a listing. @param {string[]} parts @param {Repository} repository @param {URLSearchParams} query @param {string} address */
  const treePage = (repository, parts, query, address) => {
    const { revision, path: folder } = split(parts);
    const commit = commitOf(repository, revision);
    const inside = folder === '' ? '' : `${folder}/`;
    const recursive = query.get('recursive') === 'true';
    const expand = query.get('expand') === 'true';
    /** @type {Map<string, object>} */
    const found = new Map();
    for (const entry of [...commit.files.values()].sort((a, b) => (a.path < b.path ? -1 : 1))) {
      if (!entry.path.startsWith(inside)) continue;
      const rest = entry.path.slice(inside.length).split('/');
      for (let i = 1; i < (recursive ? rest.length : Math.min(2, rest.length)); i++) {
        const path = inside + rest.slice(0, i).join('/');
        found.set(path, { type: 'directory', oid: hex('sha1', path), size: 0, path });
      }
      if (recursive || rest.length === 1) found.set(entry.path, listed(repository, commit, entry, expand));
    }
    if (folder !== '' && found.size === 0) throw new Refusal(404, `${folder} does not exist`, 'EntryNotFound');
    const all = [...found.values()];
    const size = Math.min(expand ? 50 : settings.pageSize, settings.pageSize, Number(query.get('limit') ?? Infinity));
    const start = Number(query.get('cursor') ?? 0);
    const next = new URL(address, origins.hub);
    next.searchParams.set('cursor', String(start + size));
    const link = start + size < all.length ? { Link: `<${next}>; rel="next"` } : undefined;
    return json(all.slice(start, start + size), link);
  };

  // --------------------------------------------------------------------------------------------------------------- files to write
  /** @param {Asked} request @param {any} body */
  const createRepository = (request, body) => {
    const token = tokenOf(request);
    const id = `${body.organization ?? token?.user}/${body.name}`;
    if (token === undefined) throw new Refusal(401, 'Invalid username or password.');
    if (!mayWrite(token, id)) {
      throw new Refusal(403, `You don't have the rights to create a model under the namespace "${body.organization}"`);
    }
    if (repos.has(id))
      return json({ error: 'You already created this model repo', url: `${origins.hub}/${id}` }, {}, 409);
    const isPrivate = body.visibility === 'private' || body.private === true;
    const files = { '.gitattributes': '*.gguf filter=lfs diff=lfs merge=lfs -text\n' };
    const data = { files, private: isPrivate, author: token.user };
    repos.set(id, new Repository(id, { ...data, storage: settings.uploads === 'xet' ? 'xet' : 'lfs' }));
    return json({ url: `${origins.hub}/${id}`, name: id, id });
  };

  /** @param {Asked} request @param {string} id @param {any} body */
  const lfsBatch = (request, id, body) => {
    const writes = body.operation === 'upload';
    const { repository } = repositoryFor(request, id, writes && body.ref !== undefined ? 'write' : 'content');
    if (writes && tokenOf(request) === undefined) throw new Refusal(401, 'Invalid username or password.');
    const stored = new Map(
      [...repository.commits.values()].flatMap(({ files }) =>
        [...files.values()].filter((entry) => entry.isLarge).map((entry) => [entry.sha256(), entry]),
      ),
    );
    const wanted = body.transfers?.includes(settings.uploads) ? settings.uploads : 'basic';
    const transfer = writes ? wanted : 'basic';
    const branch = encodeURIComponent(body.ref?.name ?? 'main');
    const action = (/** @type {{ oid: string, size: number }} */ { oid, size }) => {
      const entry = stored.get(oid);
      if (!writes) {
        const error = { error: { code: 404, message: 'Object does not exist' } };
        return entry === undefined
          ? error
          : { actions: { download: { href: sign(`/objects/${oid}`), expires_in: 3600 } } };
      }
      if (entry !== undefined || objects.has(oid)) return {};
      if (transfer === 'basic') return { actions: { upload: { href: sign(`/uploads/${oid}`) } } };
      if (transfer === 'xet') {
        const { casUrl, accessToken, exp } = xetToken('write');
        const header = {
          'X-Xet-Cas-Url': casUrl,
          'X-Xet-Access-Token': accessToken,
          'X-Xet-Token-Expiration': String(exp),
          'X-Xet-Session-Id': randomUUID(),
        };
        return { actions: { upload: { href: `${origins.hub}/api/models/${id}/xet-write-token/${branch}`, header } } };
      }
      const upload = randomUUID();
      multiparts.set(upload, { oid, parts: new Map() });
      const count = Math.max(1, Math.ceil(size / settings.partSize));
      const numbers = Array.from({ length: count }, (_, i) => String(i + 1).padStart(5, '0'));
      const links = Object.fromEntries(numbers.map((number) => [number, sign(`/parts/${upload}/${number}`)]));
      const href = `${origins.hub}/api/complete_multipart?upload=${upload}`;
      return { actions: { upload: { href, header: { chunk_size: String(settings.partSize), ...links } } } };
    };
    const found = body.objects.map((/** @type {any} */ object) => ({ ...object, ...action(object) }));
    return json({ transfer, objects: found }, { 'Content-Type': 'application/vnd.git-lfs+json' });
  };

  const xetToken = (/** @type {'read' | 'write'} */ scope) => {
    const accessToken = `xet_${scope}_${randomUUID()}`;
    xetTokens.add(accessToken);
    return { casUrl: origins.cas, accessToken, exp: Math.floor(Date.now() / 1000) + settings.xetTokenSeconds };
  };

  /** Keeps uploaded bytes. @param {string} oid @param {Uint8Array} bytes */
  const keep = (oid, bytes) => {
    if (hex('sha256', bytes) !== oid) throw new Refusal(400, 'the content does not match its SHA-256');
    objects.set(oid, { size: bytes.length, read: (offset, length) => bytes.subarray(offset, offset + length) });
  };

  /** @param {Asked} request @param {string} id @param {string} branch @param {boolean} asPullRequest */
  const addCommit = (request, id, branch, asPullRequest) => {
    const { repository, user } = repositoryFor(request, id, asPullRequest ? 'list' : 'write');
    if (user === '') throw new Refusal(401, 'Invalid username or password.');
    const last = commitOf(repository, branch);
    const lines = request.text.split('\n').map((line) => JSON.parse(line));
    const header = lines.find(({ key }) => key === 'header').value;
    if (header.parentCommit !== undefined && header.parentCommit !== last.id && !asPullRequest) {
      throw new Refusal(412, 'A commit has happened since. Please refresh and try again.');
    }
    const set = lines.flatMap(({ key, value }) => {
      if (key !== 'file' && key !== 'lfsFile') return [];
      if (/(^|\/)\.\.?(\/|$)|^\/|\/$/.test(value.path)) throw new Refusal(400, `invalid path ${value.path}`);
      if (key === 'file') {
        const content = Buffer.from(value.content, value.encoding === 'base64' ? 'base64' : 'utf8');
        if (isLarge(value.path, content.length)) throw new Refusal(400, `${value.path} has to be an LFS file`);
        return [entryOf(value.path, content, repository.storage)];
      }
      const object =
        objects.get(value.oid) ??
        [...last.files.values()].find((entry) => entry.isLarge && entry.sha256() === value.oid);
      if (object === undefined || object.size !== value.size) {
        throw new Refusal(400, `LFS pointer pointed to a file that does not exist: ${value.path}`);
      }
      const entry = entryOf(
        value.path,
        { size: object.size, read: object.read, sha256: value.oid },
        repository.storage,
      );
      return [object.xetHash === undefined ? entry : { ...entry, xetHash: object.xetHash }];
    });
    const deleted = lines.flatMap(({ key, value }) => (key === 'deletedFile' ? [value.path] : []));
    const change = { title: header.summary, author: user, set, deleted };
    if (!asPullRequest) {
      const oid = repository.commit(branch, change);
      return json({ success: true, commitOid: oid, commitUrl: `${origins.hub}/${id}/commit/${oid}`, hookOutput: '' });
    }
    const number = [...repository.branches.keys()].filter((name) => name.startsWith('refs/pr/')).length + 1;
    const oid = repository.commit(`refs/pr/${number}`, { ...change, parent: header.parentCommit ?? last.id });
    const pullRequestUrl = `${origins.hub}/${id}/discussions/${number}`;
    return json({
      success: true,
      commitOid: oid,
      commitUrl: `${origins.hub}/${id}/commit/${oid}`,
      hookOutput: '',
      pullRequestUrl,
    });
  };

  // -------------------------------------------------------------------------------------------------------------------- signing in
  /** @param {Asked} request @param {URL} url @returns {Answer} */
  const answerSignIn = (request, url) => {
    if (url.pathname === '/.well-known/openid-configuration') {
      const at = (/** @type {string} */ path) => `${origins.hub}${path}`;
      const endpoints = { authorization_endpoint: at('/oauth/authorize'), token_endpoint: at('/oauth/token') };
      return json({ issuer: origins.hub, ...endpoints, userinfo_endpoint: at('/oauth/userinfo') });
    }
    if (url.pathname === '/oauth/authorize') {
      const query = Object.fromEntries(url.searchParams);
      const { client_id: client = '', redirect_uri: redirect = '', code_challenge: challenge = '', scope = '' } = query;
      if (!clients[client]?.includes(redirect)) throw new Refusal(400, 'unknown client_id or redirect_uri');
      if (query.code_challenge_method !== 'S256') throw new Refusal(400, 'this client needs PKCE with S256');
      const back = new URL(redirect);
      if (query.state !== undefined) back.searchParams.set('state', query.state);
      if (settings.refusesSignIn) {
        back.searchParams.set('error', 'access_denied');
        back.searchParams.set('error_description', 'The user refused');
      } else {
        const code = randomUUID();
        codes.set(code, { challenge, redirect, client, scope });
        back.searchParams.set('code', code);
      }
      return { status: 302, headers: { Location: String(back) }, body: '' };
    }
    if (url.pathname === '/oauth/token') {
      const form = new URLSearchParams(request.text);
      const code = form.get('code') ?? '';
      const known = codes.get(code);
      codes.delete(code);
      const challenge = createHash('sha256')
        .update(form.get('code_verifier') ?? '')
        .digest('base64url');
      if (known === undefined || known.challenge !== challenge || known.redirect !== form.get('redirect_uri')) {
        return json({ error: 'invalid_grant', error_description: 'The code or its verifier is wrong' }, {}, 400);
      }
      const token = `hf_oauth_${randomUUID().replaceAll('-', '')}`;
      const role = /\b(contribute|write|manage)-repos\b/.test(known.scope) ? 'write' : 'read';
      users.set(token, { user: 'visitor', role });
      return json({ access_token: token, token_type: 'bearer', expires_in: 28_800, scope: known.scope, id_token: '' });
    }
    const user = tokenOf(request)?.user;
    if (user === undefined) throw new Refusal(401, 'Invalid username or password.');
    const more = { picture: `${origins.hub}/${user}.png`, profile: `${origins.hub}/${user}`, isPro: false, orgs: [] };
    return json({ sub: hex('sha1', user).slice(0, 24), name: user, preferred_username: user, ...more });
  };

  // ----------------------------------------------------------------------------------------------------------------- the three origins
  /** @param {Asked} request @param {URL} url @returns {Answer} */
  const answerHub = (request, url) => {
    const parts = url.pathname.split('/').slice(1).map(decodeURIComponent);
    const { method } = request;
    const is = (/** @type {string} */ verb, /** @type {string} */ path) => method === verb && url.pathname === path;
    if (parts[0] === 'oauth' || parts[0] === '.well-known') return answerSignIn(request, url);
    if (is('POST', '/api/repos/create')) return createRepository(request, JSON.parse(request.text));
    if (is('GET', '/api/whoami-v2')) {
      const token = tokenOf(request);
      if (token === undefined) throw new Refusal(401, 'Invalid username or password.');
      const accessToken = { displayName: 'test', role: token.role ?? 'write' };
      const orgs = (token.writes ?? []).map((name) => ({ type: 'org', name, roleInOrg: 'write' }));
      return json({
        type: 'user',
        name: token.user,
        fullname: token.user,
        isPro: false,
        orgs,
        auth: { type: 'access_token', accessToken },
      });
    }
    if (is('POST', '/api/complete_multipart')) {
      const upload = multiparts.get(url.searchParams.get('upload') ?? '');
      const { oid, parts: list } = JSON.parse(request.text);
      const bodies = list.map((/** @type {{ etag: string, partNumber: number }} */ { etag, partNumber }) => {
        const bytes = upload?.parts.get(partNumber);
        if (bytes === undefined || etag !== `"${hex('md5', bytes)}"`)
          throw new Refusal(400, `part ${partNumber} is missing`);
        return bytes;
      });
      keep(oid, Buffer.concat(bodies));
      return json({ success: true });
    }
    if (parts[0] === 'api' && parts[1] === 'resolve-cache') {
      return answerFile(request, parts.slice(3, 5).join('/'), 'cache', parts.slice(5));
    }
    if (parts[0] === 'api' && parts[1] === 'models') return answerModel(request, url, parts.slice(2));

    const id = parts.slice(0, 2).join('/');
    if (parts[2] === 'resolve' || parts[2] === 'raw') return answerFile(request, id, parts[2], parts.slice(3));
    if (/\.git\/info\/lfs\/objects\/batch$/.test(url.pathname))
      return lfsBatch(request, id.replace(/\.git$/, ''), JSON.parse(request.text));
    // A page for people, which no script of another site may read.
    repositoryFor(request, id, 'list');
    return {
      status: 200,
      headers: { 'Content-Type': 'text/html', 'Access-Control-Allow-Origin': '' },
      body: '<!doctype html><title>A model</title>',
    };
  };

  /** The API of a model. @param {Asked} request @param {URL} url @param {string[]} parts @returns {Answer} */
  const answerModel = (request, url, [owner = '', name = '', ...parts]) => {
    const id = `${owner}/${name}`;
    const [verb, ...rest] = parts;
    const query = url.searchParams;
    if (request.method === 'GET') {
      if (verb === 'auth-check') {
        repositoryFor(request, id, rest[0] === 'write' ? 'write' : 'content');
        return json({});
      }
      if (verb === 'xet-write-token') {
        repositoryFor(request, id, query.has('create_pr') ? 'list' : 'write');
        return json(xetToken('write'));
      }
      if (verb === 'xet-read-token') {
        repositoryFor(request, id, 'content');
        return json(xetToken('read'));
      }
      const { repository } = repositoryFor(request, id, 'list');
      if (verb === undefined) return json(infoOf(repository, commitOf(repository, 'main'), query));
      if (verb === 'revision') return json(infoOf(repository, commitOf(repository, rest.join('/')), query));
      if (verb === 'tree') return treePage(repository, rest, query, request.path);
      if (verb === 'refs') {
        const all = [...repository.branches].map(([ref, targetCommit]) => ({
          name: ref,
          ref: `refs/heads/${ref}`,
          targetCommit,
        }));
        const branches = all.filter((branch) => !branch.name.startsWith('refs/'));
        return json({ branches, converts: [], tags: [] });
      }
      if (verb === 'commits') {
        const commits = repository.history(commitOf(repository, rest.join('/')));
        return json(
          commits.map(({ id: commit, title, author, date }) => ({
            id: commit,
            title,
            message: '',
            authors: [{ user: author, avatar: '' }],
            date,
          })),
        );
      }
    } else if (request.method === 'POST') {
      if (verb === 'paths-info') {
        const { repository } = repositoryFor(request, id, 'list');
        const commit = commitOf(repository, rest.join('/'));
        const { paths, expand } = JSON.parse(request.text);
        const entries = paths.flatMap((/** @type {string} */ path) => commit.files.get(path) ?? []);
        return json(entries.map((/** @type {Entry} */ entry) => listed(repository, commit, entry, expand === true)));
      }
      if (verb === 'preupload') {
        const asPullRequest = query.has('create_pr');
        const { repository } = repositoryFor(request, id, asPullRequest ? 'list' : 'write');
        commitOf(repository, rest.join('/'));
        const { files } = JSON.parse(request.text);
        const modes = files.map((/** @type {{ path: string, size: number }} */ { path, size }) => ({
          path,
          uploadMode: isLarge(path, size) ? 'lfs' : 'regular',
        }));
        return json({ files: modes });
      }
      if (verb === 'commit') return addCommit(request, id, rest.join('/'), query.has('create_pr'));
    }
    throw new Refusal(404, "Sorry, we can't find the page you are looking for.");
  };

  /** @param {Asked} request @param {URL} url @param {Uint8Array} body @returns {Answer} */
  const answerCdn = (request, url, body) => {
    checkSignature(url);
    const parts = url.pathname.split('/').slice(1).map(decodeURIComponent);
    if (request.method === 'PUT') {
      if (parts[0] === 'uploads') keep(parts[1] ?? '', body);
      else multiparts.get(parts[1] ?? '')?.parts.set(Number(parts[2]), body);
      return { status: 200, headers: { ETag: `"${hex('md5', body)}"` }, body: '' };
    }
    if (parts[0] === 'xorbs') {
      const xorb = xet.xorbs.get(parts[1] ?? '');
      if (xorb === undefined) throw new Refusal(404, 'no such xorb');
      return ranged(
        request,
        xorb.packedStart(xorb.count),
        (offset, length) => xorb.packed(offset, offset + length),
        {},
      );
    }
    const entry =
      parts[0] === 'objects'
        ? objects.get(parts[1] ?? '')
        : repos
            .get(parts.slice(1, 3).join('/'))
            ?.commits.get(parts[3] ?? '')
            ?.files.get(parts.slice(4).join('/'));
    if (entry === undefined) throw new Refusal(404, 'no such object');
    // The tag of the CDN is its own, not the hash of the content.
    const etag = `"${hex('md5', `${url.pathname} ${entry.size}`)}"`;
    return ranged(request, entry.size, entry.read, { 'Content-Type': 'application/octet-stream', ETag: etag });
  };

  /** @param {Asked} request @param {URL} url @param {Uint8Array} body @returns {Answer} */
  const answerCas = (request, url, body) => {
    const word = request.headers.authorization?.replace(/^Bearer /, '') ?? '';
    if (!xetTokens.has(word)) throw new Refusal(401, 'Unauthorized');
    const [, version, kind, ...rest] = url.pathname.split('/');
    if (request.method === 'POST') {
      if (!word.startsWith('xet_write')) throw new Refusal(403, 'this token may not write');
      try {
        if (kind === 'xorbs') xet.addXorb(rest[1] ?? '', body);
        else {
          for (const { xetHash, sha256, content } of xet.addShard(body)) {
            objects.set(sha256, {
              size: content.length,
              read: (offset, length) => content.subarray(offset, offset + length),
              xetHash,
            });
          }
        }
      } catch (error) {
        throw new Refusal(400, String(error));
      }
      return json(kind === 'xorbs' ? { was_inserted: true } : { result: 1 });
    }
    const terms = kind === 'reconstructions' && version === 'v2' ? xet.files.get(rest[0] ?? '') : undefined;
    if (terms === undefined) throw new Refusal(404, 'not found');
    const size = terms.reduce((sum, { length }) => sum + length, 0);
    const [, first = '0', last = ''] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
    const end = last === '' ? size : Math.min(size, Number(last) + 1);
    if (Number(first) >= end) throw new Refusal(416, 'Range Not Satisfiable');
    return json(xet.reconstruction(terms, Number(first), end, (xorb) => sign(`/xorbs/${xorb}`)));
  };

  /** Counts a request of a window, and refuses one too many. @param {Asked} request @returns {Record<string, string>} */
  const limit = (request) => {
    const kind = /^\/api\/(?!resolve-cache)/.test(request.path)
      ? 'api'
      : /^\/[^/]+\/[^/]+\/resolve\//.test(request.path)
        ? 'resolvers'
        : undefined;
    if (kind === undefined) return {};
    const who = request.headers.authorization ?? '';
    const usual = who === '' ? { api: 500, resolvers: 3000 } : { api: 1000, resolvers: 5000 };
    const { seconds = 300, ...quota } = settings.quota ?? usual;
    const key = `${kind} ${who}`;
    const now = Date.now();
    let window = windows.get(key);
    if (window === undefined || window.until <= now) window = { used: 0, until: now + seconds * 1000 };
    windows.set(key, window);
    const left = quota[kind] - ++window.used;
    const headers = {
      RateLimit: `"${kind}";r=${Math.max(0, left)};t=${Math.ceil((window.until - now) / 1000)}`,
      'RateLimit-Policy': `"fixed window";"${kind}";q=${quota[kind]};w=${seconds}`,
    };
    if (left < 0)
      throw new Refusal(
        429,
        'We had to rate limit you. To continue using our service, log in or use a token.',
        undefined,
        headers,
      );
    return headers;
  };

  /** Headers by which a page may read an answer. @param {OriginName} origin @param {Asked} request @returns {Record<string, string>} */
  const pageHeaders = (origin, { method, headers, path }) => {
    if (origin === 'hub') {
      return {
        'Access-Control-Allow-Origin': headers.origin ?? 'https://huggingface.co',
        Vary: 'Origin',
        'Access-Control-Expose-Headers': exposedByHub,
        ...(method === 'OPTIONS' && {
          'Access-Control-Allow-Methods': 'GET,HEAD,PUT,PATCH,POST,DELETE',
          'Access-Control-Allow-Headers': headers['access-control-request-headers'] ?? '',
          'Access-Control-Max-Age': '86400',
        }),
      };
    }
    const isUpload = origin === 'cas' || /^\/(uploads|parts)\//.test(path);
    const asked = headers['access-control-request-headers'] ?? '';
    return {
      'Access-Control-Allow-Origin': '*',
      'Access-Control-Expose-Headers': isUpload ? 'ETag' : 'Accept-Ranges,Content-Range,Content-Type,ETag',
      ...(method === 'OPTIONS' && {
        'Access-Control-Allow-Methods': isUpload ? 'GET,PUT,POST' : 'GET,HEAD',
        'Access-Control-Allow-Headers': isUpload ? asked : 'Content-Range,Content-Type,Content-Disposition,ETag',
      }),
    };
  };

  // ------------------------------------------------------------------------------------------------------------------------ serving
  /** Time at which the line has taken all bytes so far. */
  let lineFree = 0;
  /** Waits until the line has taken some bytes. It makes up for pauses that are too long. @param {number} bytes */
  const passLine = async (bytes) => {
    lineFree = Math.max(lineFree, performance.now() - 10) + (1000 * bytes) / settings.bandwidth;
    const left = lineFree - performance.now();
    if (left > 0) await wait(left);
  };

  const takeTrouble = (/** @type {Asked} */ { origin, method, path }) => {
    const trouble = troubles.find(
      (one) =>
        (one.times ?? 1) > 0 &&
        (one.origin ?? origin) === origin &&
        (one.method === undefined ? method !== 'OPTIONS' : one.method === method) &&
        (one.path === undefined || one.path.test(path)),
    );
    if (trouble !== undefined) trouble.times = (trouble.times ?? 1) - 1;
    return trouble;
  };

  /** @param {OriginName} origin @param {import('node:http').IncomingMessage} incoming @param {import('node:http').ServerResponse} response */
  const serve = async (origin, incoming, response) => {
    const { method = 'GET', url: path = '/' } = incoming;
    const headers = /** @type {Record<string, string>} */ (incoming.headers);
    /** @type {Asked} */
    const request = { origin, method, path, headers, status: 0, sent: 0, received: 0, text: '' };
    requests.push(request);
    const trouble = takeTrouble(request);
    const isUpload = method === 'PUT' || (origin === 'cas' && method === 'POST');
    const parts = [];
    for await (const part of incoming) {
      parts.push(part);
      request.received += part.length;
      if (isUpload && trouble?.cutAfter !== undefined && request.received >= trouble.cutAfter) {
        incoming.destroy();
        return;
      }
    }
    const body = Buffer.concat(parts);
    if (/json|form-urlencoded/.test(headers['content-type'] ?? '') || /\/(lfs|commit|complete_multipart)/.test(path))
      request.text = body.toString();
    const delay = trouble?.delay ?? settings.delay;
    if (delay > 0) await wait(delay);

    const url = new URL(path, origins[origin]);
    const isForApi = /^\/api\/(?!resolve-cache)|\.git\//.test(path) || origin !== 'hub';
    /** @type {Answer} */
    let answer;
    /** @type {Record<string, string>} */
    let quota = {};
    try {
      if (trouble?.status !== undefined && trouble.late !== true)
        throw new Refusal(trouble.status, `trouble ${trouble.status}`);
      if (method === 'OPTIONS') answer = { status: 204 };
      else {
        if (origin === 'hub') quota = limit(request);
        const answers = {
          hub: () => answerHub(request, url),
          cdn: () => answerCdn(request, url, body),
          cas: () => answerCas(request, url, body),
        };
        answer = answers[origin]();
      }
      if (trouble?.status !== undefined) throw new Refusal(trouble.status, `trouble ${trouble.status}`);
    } catch (error) {
      const refusal = error instanceof Refusal ? error : new Refusal(500, String(error));
      const text = { 'Content-Type': 'text/plain; charset=utf-8' };
      answer = isForApi
        ? json({ error: refusal.message }, refusal.headers, refusal.status)
        : { status: refusal.status, headers: { ...text, ...refusal.headers }, body: refusal.message };
    }
    if (trouble?.change !== undefined) answer = trouble.change(answer, request);
    const { status, body: content = '' } = answer;
    request.status = status;
    const source = typeof content === 'string' ? Buffer.from(content) : content;
    const { start, end, read } =
      source instanceof Uint8Array
        ? {
            start: 0,
            end: source.length,
            read: (/** @type {number} */ at, /** @type {number} */ count) => source.subarray(at, at + count),
          }
        : source;
    const length = answer.headers?.['Content-Encoding'] === undefined ? { 'Content-Length': String(end - start) } : {};
    const given = {
      'X-Request-Id': randomUUID(),
      ...length,
      ...pageHeaders(origin, request),
      ...quota,
      ...answer.headers,
      ...trouble?.headers,
    };
    response.writeHead(status, Object.fromEntries(Object.entries(given).filter(([, value]) => value !== '')));
    if (method === 'HEAD') return void response.end();
    const cutAt = isUpload ? undefined : trouble?.cutAfter;
    for (let at = start; at < end && !response.destroyed; ) {
      const most = Math.min(pieceBytes, end - at, (cutAt ?? Infinity) - request.sent);
      await passLine(most);
      await new Promise((done) => response.write(read(at, most), done));
      at += most;
      request.sent += most;
      if (request.sent === cutAt) return void response.destroy();
      if (trouble?.pace !== undefined) await wait(trouble.pace);
    }
    response.end();
  };

  const servers = await Promise.all(
    /** @type {const} */ (['hub', 'cdn', 'cas']).map(async (origin) => {
      const server = createServer((incoming, response) => {
        // A client may hang up at any time.
        serve(origin, incoming, response).catch(() => response.destroy());
      });
      // A client that was busy may come back late.
      server.keepAliveTimeout = 60_000;
      await new Promise((done) => server.listen(0, '127.0.0.1', () => done(undefined)));
      origins[origin] = `http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}`;
      return server;
    }),
  );

  return {
    /** The address that HF_ENDPOINT would have. */
    endpoint: origins.hub,
    origins,
    settings,
    /** Troubles of the requests to come; tests add theirs. */
    troubles,
    /** All requests, the first one first; tests may empty it. */
    requests,
    repositories: repos,
    /** Tokens that are valid. */
    tokens: users,
    async close() {
      for (const server of servers) {
        server.closeAllConnections();
        await new Promise((done) => server.close(done));
      }
    },
  };
}
