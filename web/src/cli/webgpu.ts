/** Runs models on WebGPU: in a page of a browser without a window, which takes jobs from a server on this machine. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ScalepointError } from '../model.js';
import {
  type BackendAnswer,
  type BackendJob,
  decodeMessage,
  encodeMessage,
  type HostReady,
  type RunBackend,
} from '../tooling.js';

/** The file that runs models. The build puts it beside this one. */
export const runFile = new URL('./scalepoint-run.js', import.meta.url);

/** Bundle of onnxruntime-web with WebGPU. It loads wasm from beside itself. */
const bundle = 'ort.webgpu.bundle.min.mjs';

const page = `<!doctype html>
<meta charset="utf-8">
<title>Scalepoint</title>
<link rel="icon" href="data:,">
<script type="module">
import { serveInPage } from './scalepoint-run.js';
await serveInPage('./next', './runtime/${bundle}');
</script>
`;

/** Flags of the browser: no window, nothing but the page, WebGPU also where it is not enabled by default. */
function flagsFor(profile: string, isSoftware: boolean): string[] {
  return [
    '--headless=new',
    `--user-data-dir=${profile}`,
    // It ends with the pipe, so it never outlives this process.
    '--remote-debugging-pipe',
    '--no-first-run',
    '--no-default-browser-check',
    '--disable-extensions',
    '--disable-sync',
    '--disable-component-update',
    '--disable-background-networking',
    // Pages in the background are slowed down else.
    '--disable-background-timer-throttling',
    '--disable-renderer-backgrounding',
    '--password-store=basic',
    '--use-mock-keychain',
    '--mute-audio',
    '--enable-unsafe-webgpu',
    ...(process.platform === 'linux' ? ['--enable-features=Vulkan', '--disable-dev-shm-usage'] : []),
    ...(isSoftware ? ['--use-webgpu-adapter=swiftshader'] : []),
    // The sandbox refuses to run as root, as in containers.
    ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
  ];
}

/** Time limits in ms. */
interface Limits {
  /** Until the page is there. */
  readonly start: number;
  /** Until a model has run. */
  readonly job: number;
}

const usualLimits: Limits = { start: 60_000, job: 600_000 };

/** Largest end of the browser's error output that is kept, in characters. */
const mostError = 400;

/** A started browser with its page. */
class Page {
  readonly #program: string;
  readonly #runtimeFolder: string;
  readonly #token = randomBytes(16).toString('hex');
  readonly #profile = mkdtempSync(join(tmpdir(), 'scalepoint-browser-'));
  readonly #server: Server;
  #child: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();
  #errors = '';
  /** The request that waits for a job. */
  #waiting: ServerResponse | undefined;
  /** Takes the next message of the page. */
  #take: ((message: unknown) => void) | undefined;
  /** Ends the wait for a message. */
  #fail: ((error: unknown) => void) | undefined;
  readonly #onExit = () => this.#endNow();

  constructor(program: string, runtimeFolder: string) {
    this.#program = program;
    this.#runtimeFolder = runtimeFolder;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch(() => response.destroy());
    });
    process.on('exit', this.#onExit);
  }

  #error(message: string, cause?: unknown): ScalepointError {
    const last = this.#errors.trim().split('\n').at(-1) ?? '';
    return new ScalepointError('BROWSER', `${basename(this.#program)} ${message}${last === '' ? '' : `: ${last}`}`, {
      cause,
    });
  }

  // ----------------------------------------------------------------------------------------------------------------------- server

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [, token, ...rest] = (request.url ?? '').split('/');
    const name = rest.join('/');
    if (token !== this.#token) {
      response.writeHead(404).end();
      return;
    }
    if (name === 'next' && request.method === 'POST') return this.#exchange(request, response);
    const [, file] = /^runtime\/([\w.-]+)$/.exec(name) ?? [];
    if (name === '') response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(page);
    else if (name === 'scalepoint-run.js') await this.#send(response, fileURLToPath(runFile));
    else if (file !== undefined) await this.#send(response, join(this.#runtimeFolder, file));
    else response.writeHead(404).end();
  }

  async #send(response: ServerResponse, path: string): Promise<void> {
    let bytes: Uint8Array;
    try {
      bytes = await readFile(path);
    } catch {
      response.writeHead(404).end();
      return;
    }
    const type = path.endsWith('.wasm') ? 'application/wasm' : 'text/javascript; charset=utf-8';
    response.writeHead(200, { 'Content-Type': type, 'Content-Length': bytes.length }).end(bytes);
  }

  /** Takes a message of the page, and keeps the request for the next job. */
  async #exchange(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of request) chunks.push(chunk as Uint8Array);
    this.#waiting = response;
    this.#take?.(decodeMessage(Buffer.concat(chunks)));
  }

  /** The next message of the page. @throws ScalepointError `BROWSER`; the reason of the signal */
  #next(limit: number, what: string, signal: AbortSignal | undefined): Promise<unknown> {
    let timer: NodeJS.Timeout | undefined;
    const onAbort = () => this.#fail?.(signal?.reason);
    return new Promise((done, fail) => {
      this.#take = done;
      this.#fail = fail;
      timer = setTimeout(() => fail(this.#error(`${what} within ${limit / 1000} s`)), limit);
      if (signal?.aborted) onAbort();
      else signal?.addEventListener('abort', onAbort);
    }).finally(() => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
      this.#take = undefined;
      this.#fail = undefined;
    });
  }

  // ------------------------------------------------------------------------------------------------------------------------- work

  /** Starts the browser. Returns true if it has WebGPU. */
  async start(isSoftware: boolean, limit: number, signal: AbortSignal | undefined): Promise<boolean> {
    // No request of the page may time out: it waits for jobs.
    this.#server.requestTimeout = 0;
    await new Promise<void>((done, fail) => {
      this.#server.once('error', fail);
      this.#server.listen(0, '127.0.0.1', done);
    });
    const address = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/${this.#token}/`;
    const ready = this.#next(limit, 'opened no page', signal);
    const child = spawn(this.#program, [...flagsFor(this.#profile, isSoftware), address], {
      stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
      // Signals of the terminal go to this process alone, which then ends the browser with all of its processes.
      detached: process.platform !== 'win32',
      // Its temporary files go with the profile. Elsewhere, paths of sockets would become too long.
      ...(process.platform === 'linux' ? { env: { ...process.env, TMPDIR: this.#profile } } : {}),
    });
    this.#child = child;
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#errors = (this.#errors + text).slice(-mostError);
    });
    // Nothing is sent by the pipes; they end with the browser.
    for (const pipe of child.stdio.slice(3)) pipe?.on('error', () => {});
    this.#exited = new Promise((done) => {
      child.once('exit', (code, ending) => {
        const how = ending === null ? `ended with code ${code}` : `was ended by ${ending}`;
        this.#fail?.(this.#error(how));
        done();
      });
      child.once('error', (cause) => {
        this.#fail?.(this.#error('could not be started', cause));
        done();
      });
    });
    const message = (await ready) as HostReady;
    if (message.kind === 'ready') return message.hasAdapter;
    throw new ScalepointError(
      'RUNTIME',
      `onnxruntime-web cannot be loaded in ${basename(this.#program)}: ${message.text}`,
    );
  }

  async run(job: BackendJob, limit: number, signal: AbortSignal | undefined): Promise<BackendAnswer> {
    if (this.#child?.exitCode !== null || this.#child.signalCode !== null) throw this.#error('has ended');
    const answer = this.#next(limit, 'gave no result', signal);
    const bytes = encodeMessage(job);
    this.#waiting
      ?.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': bytes.length })
      .end(bytes);
    this.#waiting = undefined;
    return (await answer) as BackendAnswer;
  }

  /** Ends the browser at once, and removes its profile. */
  #endNow(): void {
    const { pid, exitCode, signalCode } = this.#child ?? {};
    if (pid !== undefined && exitCode === null && signalCode === null) {
      try {
        if (process.platform === 'win32') this.#child?.kill('SIGKILL');
        else process.kill(-pid, 'SIGKILL');
      } catch {
        // It ended by itself.
      }
    }
    try {
      // Processes that are about to end may still write there.
      rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 });
    } catch {
      // Leave the rest to the system, which clears its folder for temporary files.
    }
  }

  async close(): Promise<void> {
    process.off('exit', this.#onExit);
    this.#endNow();
    await this.#exited;
    this.#endNow();
    this.#server.closeAllConnections();
    if (this.#server.listening) await new Promise((done) => this.#server.close(done));
  }
}

/** A browser that starts with its first job. Without a GPU it starts again with SwiftShader, which computes on the processor. */
export class BrowserBackend implements RunBackend {
  readonly name = 'webgpu';
  readonly #program: string;
  readonly #runtimeFolder: string;
  readonly #limits: Limits;
  #page: Page | undefined;

  /**
   * @param program path of the browser
   * @param runtimeFolder folder with the bundles of onnxruntime-web
   */
  constructor(program: string, runtimeFolder: string, limits: Partial<Limits> = {}) {
    this.#program = program;
    this.#runtimeFolder = runtimeFolder;
    this.#limits = { ...usualLimits, ...limits };
  }

  async #start(signal: AbortSignal | undefined): Promise<Page> {
    for (const isSoftware of [false, true]) {
      const page = new Page(this.#program, this.#runtimeFolder);
      this.#page = page;
      // Without any adapter each model says so.
      if ((await page.start(isSoftware, this.#limits.start, signal)) || isSoftware) return page;
      await page.close();
    }
    throw new Error('unreachable');
  }

  async run(job: BackendJob, signal: AbortSignal | undefined): Promise<BackendAnswer> {
    try {
      const page = this.#page ?? (await this.#start(signal));
      return await page.run(job, this.#limits.job, signal);
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#page?.close();
    this.#page = undefined;
  }
}
