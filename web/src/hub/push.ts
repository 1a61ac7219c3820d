/** Pushes results to a repository of the hub. The hub's own client uploads: an optional package, which is loaded here alone. */
import { version } from '../core/core.mjs';
import { rangeError, ScalepointError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import { type FarFile, quotedNames } from '../formats/files/bytes.js';
import { fetchError, secondsAsked, Tries } from '../formats/files/ranged.js';
import { hubRefusal } from './ask.js';
import { type CardFacts, type CardResult, cardText, factsOfCard } from './card.js';
import { type HubListing, listModel } from './listing.js';
import { type HubName, hubNameOf, isPlainPath } from './names.js';
import { HubFile } from './repository.js';
import { type HubOptions, hubSettings } from './settings.js';

const clientName = '@huggingface/hub';

/** Largest README in bytes that is read. */
const mostCard = 1 << 20;

/** Titles of commits of this tool. Files that they touched last may be replaced. */
const ownTitle = /\bwith Scalepoint\b/;

/** Members that all calls of the client share. */
interface ClientParameters {
  readonly repo: string;
  readonly accessToken: string;
  readonly hubUrl: string;
  readonly fetch: typeof fetch;
}

/** The part of the package @huggingface/hub that is used. */
interface HubClient {
  createRepo(parameters: ClientParameters & { readonly visibility: 'public' | 'private' }): Promise<unknown>;
  pathsInfo(
    parameters: ClientParameters & { readonly paths: string[]; readonly revision: string; readonly expand: true },
  ): Promise<readonly { readonly path: string; readonly lastCommit?: { readonly title: string } | undefined }[]>;
  commitIter(
    parameters: ClientParameters & {
      readonly title: string;
      readonly operations: { operation: 'addOrUpdate'; path: string; content: Blob | URL }[];
      readonly branch: string;
      readonly parentCommit: string;
      readonly isPullRequest: boolean;
      readonly abortSignal?: AbortSignal;
    },
  ): AsyncGenerator<
    { readonly event: string; readonly path?: string; readonly progress?: number; readonly state?: string },
    { readonly commit: { readonly oid: string; readonly url: string }; readonly pullRequestUrl?: string } | undefined
  >;
  /** Hashes a large file in a page, and reports its progress. */
  __internal_sha256?(content: Blob): AsyncGenerator<number, string>;
}

/** A file to push. */
export interface PushFile {
  /** Its path in the repository. */
  readonly path: string;
  /** Its bytes: a Blob, or the `file:` URL of a file (Node). */
  readonly content: Blob | URL;
}

/** The progress of a push. */
interface PushProgress {
  /** `hashing` reads a file before it is uploaded. */
  readonly step: 'hashing' | 'uploading';
  /** Path of the file in the repository. */
  readonly path: string;
  /** Bytes that were uploaded so far. */
  readonly bytesDone: number;
  /** Bytes of all files. */
  readonly bytesTotal: number;
}

/** Options of `pushModel`. */
export interface PushOptions extends HubOptions {
  /** `owner/name` of the repository, which is made if it does not exist, or `owner/name@branch`. */
  readonly repository: string;
  /** The model on the hub of which the files were made, by its name or as `hubModel` gave it. Its license goes onto the card. */
  readonly source?: FarFile | string | URL | undefined;
  /**
   * Visibility of a repository that is made.
   * @defaultValue `public` if the source is a public model of the hub without a gate, else `private`
   */
  readonly visibility?: 'public' | 'private' | undefined;
  /** The results for a card, README.md. One of somebody else stays. @defaultValue no card */
  readonly card?: readonly CardResult[] | undefined;
  /** True: also replaces files that others pushed. @defaultValue false */
  readonly overwrite?: boolean | undefined;
  /** True: offers the files as a pull request, for which reading is enough. @defaultValue false */
  readonly pullRequest?: boolean | undefined;
  /** The module @huggingface/hub, which a page imports by itself. @defaultValue imported, in Node */
  readonly client?: object | undefined;
  /** Stops the push. */
  readonly signal?: AbortSignal | undefined;
  /** Called with the progress of the upload. */
  readonly onProgress?: ((progress: PushProgress) => void) | undefined;
}

/** The result of a push. */
export interface PushResult {
  /** Address of the repository. */
  readonly url: string;
  /** The commit with the files; that which was there before if nothing was new. */
  readonly commit: string;
  /** True if the repository is private. */
  readonly isPrivate: boolean;
  /** Address of the pull request, if one was asked for. */
  readonly pullRequest?: string | undefined;
  /** Paths of the files that were new or had changed. */
  readonly pushed: readonly string[];
  /** Paths of the files that were there already. */
  readonly unchanged: readonly string[];
  /** True if a README.md of somebody else stayed in place of the card. */
  readonly keptReadme: boolean;
}

/** The client of the hub. @throws ScalepointError `RUNTIME` */
async function hubClient(given: object | undefined): Promise<HubClient> {
  try {
    // Hidden from bundlers, because few programs push.
    return (given ?? (await import(/* @vite-ignore */ /* webpackIgnore: true */ clientName))) as HubClient;
  } catch (cause) {
    const text = `a push takes ${clientName}: npm install ${clientName}; in a page, import it and pass it as client`;
    throw new ScalepointError('RUNTIME', text, { cause });
  }
}

/** The size of a file, and its digest as the hub lists it: SHA-256 of a large file, SHA-1 of git for others. */
async function digestOf(content: Blob | URL, isLarge: boolean, client: HubClient): Promise<string | undefined> {
  const [fs, crypto, urls] = [nodeModule('node:fs'), nodeModule('node:crypto'), nodeModule('node:url')];
  if (crypto === undefined || fs === undefined || urls === undefined) {
    if (content instanceof URL) return undefined;
    const large = isLarge ? client.__internal_sha256?.(content) : undefined;
    for (let step = await large?.next(); step !== undefined; step = await large?.next()) {
      if (step.done) return step.value;
    }
    // Without that function, the client hashes the file as it uploads it, and the hub then finds that it has it.
    if (isLarge) return undefined;
    const bytes = new Uint8Array(await content.arrayBuffer());
    const head = new TextEncoder().encode(`blob ${bytes.length}\0`);
    const whole = await new Blob([head, bytes]).arrayBuffer();
    const digest = new Uint8Array(await globalThis.crypto.subtle.digest('SHA-1', whole));
    return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
  }
  const hash = crypto.createHash(isLarge ? 'sha256' : 'sha1');
  if (!isLarge) hash.update(new TextEncoder().encode(`blob ${await sizeOf(content)}\0`));
  const chunks = content instanceof URL ? fs.createReadStream(urls.fileURLToPath(content)) : content.stream();
  for await (const chunk of chunks as AsyncIterable<Uint8Array>) hash.update(chunk);
  return hash.digest('hex');
}

/** Bytes of a file. */
async function sizeOf(content: Blob | URL): Promise<number> {
  if (content instanceof Blob) return content.size;
  const path = nodeModule('node:url')?.fileURLToPath(content);
  return (await nodeModule('node:fs/promises')?.stat(path as string))?.size ?? 0;
}

/**
 * Checks that a push can work, before the files are made: the name, the token, and the right to write. Changes nothing.
 * @throws RangeError naming the option; ScalepointError `ACCESS`, `NOT_FOUND`, `RUNTIME`, `IO`
 */
export async function openPush(options: PushOptions): Promise<(files: readonly PushFile[]) => Promise<PushResult>> {
  const { repository, signal, overwrite = false, pullRequest = false, onProgress } = options;
  let name: HubName | undefined;
  try {
    name = hubNameOf(`hf:${repository.replace(/^hf:(\/\/)?/i, '')}`);
  } catch {
    // The error below says it.
  }
  if (name === undefined || name.path !== undefined || name.tag !== undefined) {
    const examples = ['me/tiny-GGUF', 'me/tiny-GGUF@branch'];
    throw rangeError('repository', { kind: 'text', form: 'the name of a repository on the hub', examples }, repository);
  }
  const settings = hubSettings(options);
  const { token, endpoint } = settings;
  const { id, revision: branch = 'main' } = name;
  if (settings.isOffline) throw new ScalepointError('ACCESS', `cannot push to ${id}: HF_HUB_OFFLINE allows no request`);
  if (token === undefined) {
    throw new ScalepointError('ACCESS', 'a push needs a token that may write: set HF_TOKEN, or run hf auth login');
  }
  if (!token.text.startsWith('hf_')) {
    throw new ScalepointError('ACCESS', `the token of ${token.from} does not begin with hf_, as tokens of the hub do`);
  }
  const client = await hubClient(options.client);
  const given = options.source;
  const sourceOf = async () => {
    if (given === undefined) return undefined;
    if (given instanceof HubFile) return given.repository.listing;
    const named = hubNameOf(given, endpoint) ?? hubNameOf(`hf:${String(given)}`, endpoint);
    return listModel(named as HubName, settings, signal);
  };
  const source = await sourceOf();
  const isOpen = source !== undefined && !source.isPrivate && !source.isGated;
  const visibility = options.visibility ?? (isOpen ? 'public' : 'private');

  const pushing = { id, action: 'push to' };
  /** The last answer that was no good. */
  let refused: Response | undefined;
  // Requests are tried again. The client gives up at the first trouble, and would hash and upload all files anew.
  const send: typeof fetch = async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input);
    const tries = new Tries(signal);
    for (;;) {
      let response: Response;
      try {
        response = await fetch(input, {
          ...init,
          signal: init?.signal ?? signal ?? null,
          referrerPolicy: 'no-referrer',
        });
      } catch (cause) {
        signal?.throwIfAborted();
        await tries.again(fetchError(url.host, cause));
        continue;
      }
      const { status } = response;
      if (status === 408 || status === 429 || status >= 500) {
        await tries.again(await hubRefusal(response, settings, pushing), secondsAsked(response));
        continue;
      }
      // The store of Xet answers 404 if it does not know a chunk.
      if (!response.ok && (status !== 404 || url.origin === new URL(endpoint).origin)) refused = response.clone();
      return response;
    }
  };
  const shared = { repo: id, accessToken: token.text, hubUrl: endpoint, fetch: send };

  /** Asks the API. The response if it is good, or has that code. @throws ScalepointError */
  const ask = async (path: string, accepted: (response: Response) => boolean = () => false) => {
    const response = await send(`${endpoint}/${path}`, { headers: { Authorization: `Bearer ${token.text}` } });
    if (response.ok || accepted(response)) return response;
    throw await hubRefusal(response, settings, { ...pushing, revision: branch });
  };

  /** The listing of the repository; undefined if it does not exist. */
  const list = async (): Promise<HubListing | undefined> => {
    const isAbsent = ({ headers }: Response) => headers.get('x-error-code') === 'RepoNotFound';
    const found = await ask(`api/models/${id}/revision/${encodeURIComponent(branch)}`, isAbsent);
    return found.ok ? listModel({ id, revision: branch }, settings, signal) : undefined;
  };

  // Look at the repository.
  const there = await list();
  if (there === undefined) {
    if (pullRequest) throw new ScalepointError('NOT_FOUND', `there is no ${id} for a pull request`);
    await ask('api/whoami-v2');
  } else {
    if (!pullRequest) {
      const check = await ask(`api/models/${id}/auth-check/write`, ({ status }) => status === 403);
      if (check.status === 403) {
        const text = `the token of ${token.from} may not write to ${id}; a pull request (--push-pr) needs no right to`;
        throw new ScalepointError('ACCESS', text);
      }
    }
    if (!there.isPrivate && source !== undefined && !isOpen && options.visibility !== 'public') {
      const what = `${id} is public, and ${source.id} is ${source.isPrivate ? 'private' : 'gated'}`;
      throw new ScalepointError('ACCESS', `${what}; the visibility public (--public) pushes all the same`);
    }
  }

  /** One try: lists, compares, and commits what is new. */
  const pushOnce = async (files: readonly PushFile[]): Promise<PushResult> => {
    let listing = await list();
    if (listing === undefined) {
      await client.createRepo({ ...shared, visibility }).catch((error: unknown) => {
        // Somebody else made it in this moment, or it was made before an answer was lost.
        if (refused?.status !== 409) throw error;
      });
      listing = await list();
    }
    if (listing === undefined) throw new ScalepointError('NOT_FOUND', `the hub does not list ${id}, which was made`);
    const entries = new Map(listing.files.map((file) => [file.path, file]));

    // The card: a README of somebody else stays.
    const readme = entries.get('README.md');
    const all = [...files];
    let keptReadme = false;
    if (options.card !== undefined && !files.some(({ path }) => path === 'README.md')) {
      let before: CardFacts | undefined;
      if (readme !== undefined && (readme.size ?? 0) <= mostCard) {
        const response = await ask(`${id}/resolve/${listing.commit}/README.md`);
        before = factsOfCard(await response.text());
      }
      keptReadme = readme !== undefined && before === undefined && !overwrite;
      if (!keptReadme)
        all.push({ path: 'README.md', content: new Blob([cardText(id, { source, results: options.card }, before)]) });
    }

    // Find the files that are new or have changed.
    const [changed, unchanged, replaced]: [PushFile[], string[], string[]] = [[], [], []];
    const sizes = new Map<string, number>();
    for (const file of all) {
      const { path, content } = file;
      const size = await sizeOf(content);
      sizes.set(path, size);
      const entry = entries.get(path);
      const isSame =
        entry?.size === size &&
        entry.oid !== undefined &&
        (await digestOf(content, entry.oid.length === 64, client)) === entry.oid;
      if (isSame) unchanged.push(path);
      else changed.push(file);
      if (!isSame && entry !== undefined && files.includes(file)) replaced.push(path);
      signal?.throwIfAborted();
    }
    const url = `${endpoint}/${id}`;
    const result = { url, commit: listing.commit, isPrivate: listing.isPrivate, unchanged, keptReadme };
    if (changed.length === 0) return { ...result, pushed: [] };
    if (replaced.length > 0 && !overwrite && !pullRequest) {
      const infos = await client.pathsInfo({ ...shared, paths: replaced, revision: listing.commit, expand: true });
      const foreign = infos.filter(({ lastCommit }) => lastCommit !== undefined && !ownTitle.test(lastCommit.title));
      if (foreign.length > 0) {
        const names = quotedNames(
          foreign.map(({ path }) => path),
          3,
        );
        throw new ScalepointError(
          'EXISTS',
          `${id} has another ${names}, which somebody else put there; overwrite (--force) replaces it`,
        );
      }
    }

    // Upload them, and commit.
    const [first] = changed as [PushFile];
    const title = `Add ${first.path}${changed.length > 1 ? ` and ${changed.length - 1} more` : ''} with Scalepoint ${version}`;
    const bytesTotal = changed.reduce((sum, { path }) => sum + (sizes.get(path) as number), 0);
    const done = new Map<string, number>();
    const events = client.commitIter({
      ...shared,
      title,
      operations: changed.map(({ path, content }) => ({ operation: 'addOrUpdate', path, content })),
      branch,
      parentCommit: listing.commit,
      isPullRequest: pullRequest,
      ...(signal && { abortSignal: signal }),
    });
    for (;;) {
      const { done: isDone, value } = await events.next();
      if (isDone) {
        onProgress?.({ step: 'uploading', path: first.path, bytesDone: bytesTotal, bytesTotal });
        const pushed = changed.map(({ path }) => path);
        return { ...result, commit: value?.commit.oid ?? listing.commit, pullRequest: value?.pullRequestUrl, pushed };
      }
      const { path, progress = 0, state } = value;
      if (path === undefined) continue;
      if (state === 'uploading') done.set(path, progress * (sizes.get(path) ?? 0));
      const bytesDone = [...done.values()].reduce((sum, bytes) => sum + bytes, 0);
      onProgress?.({ step: state === 'hashing' ? 'hashing' : 'uploading', path, bytesDone, bytesTotal });
    }
  };

  return async (files) => {
    const wrong = files.find(({ path }) => !isPlainPath(path));
    if (wrong !== undefined) {
      const expected = { kind: 'text', form: 'a path in the repository', examples: ['tiny-Q4_K_M.gguf'] } as const;
      throw rangeError('files[].path', expected, wrong.path);
    }
    const tries = new Tries(signal);
    for (;;) {
      refused = undefined;
      try {
        return await pushOnce(files);
      } catch (cause) {
        signal?.throwIfAborted();
        const answer = refused as Response | undefined;
        if (cause instanceof ScalepointError || answer === undefined) throw cause;
        const isStale = answer.status === 412;
        const isElsewhere = answer.url !== '' && new URL(answer.url).origin !== new URL(endpoint).origin;
        const error = isStale
          ? new ScalepointError('CHANGED', `${id} got other commits while files were uploaded`)
          : await hubRefusal(answer, settings, { ...pushing, revision: branch });
        // The branch has a new commit, perhaps ours whose answer was lost; or a signed address or a token of the store has expired.
        if (!isStale && !(isElsewhere && [401, 403].includes(answer.status))) throw error;
        await tries.again(error, 0);
      }
    }
  };
}
