// A folder outside of the project in which one environment is tried: what is installed there, run there and opened from there.

import { execFile, spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { chromium } from 'playwright';
import { pageOptions } from '../../scripts/chromium.mjs';

const app = fileURLToPath(new URL('app', import.meta.url));

/** @typedef {{ hash: string, note: string }[]} Results of the app: of all threads that ran it */

/** Content security policy of the pages: only what the package needs. */
export const strictPolicy =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; img-src data:";
/** The same for scalepoint/inline, whose workers have addresses of their own. */
export const inlinePolicy = strictPolicy.replace("worker-src 'self'", 'worker-src blob:');

/** Longest time of a program or a page. */
const limit = 180_000;

/** @type {Record<string, string>} */
const types = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};

/**
 * Serves a folder below a path, as many sites are, to pages of any origin.
 * @param {string} folder @param {string} [policy] @returns {Promise<{ url: string, close: () => void }>}
 */
export async function serveBelow(folder, policy) {
  const path = '/some/where/';
  const server = createServer((request, response) => {
    const name = new URL(request.url ?? '', 'http://localhost').pathname;
    const file = join(folder, name.slice(path.length) || 'index.html');
    if (policy !== undefined) response.setHeader('Content-Security-Policy', policy);
    response.setHeader('Access-Control-Allow-Origin', '*');
    try {
      if (!name.startsWith(path)) throw new Error('outside');
      const bytes = readFileSync(file);
      response.writeHead(200, { 'Content-Type': types[extname(file)] ?? 'application/octet-stream' }).end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', () => done(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return {
    url: `http://127.0.0.1:${port}${path}`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** @type {import('playwright').Browser | undefined} */
let browser;

/** Opens a page and waits for what its app says. @param {string} url @returns {Promise<Results>} */
export async function open(url) {
  browser ??= await chromium.launch(pageOptions);
  const tab = await browser.newPage();
  /** @type {string[]} */
  const problems = [];
  tab.on('pageerror', (error) => problems.push(error.message));
  tab.on('console', (message) => {
    if (message.type() === 'error') problems.push(message.text());
  });
  try {
    await tab.goto(url);
    // Development servers load the page again once they know what it needs.
    // A strict policy forbids what waitForFunction does.
    for (const end = Date.now() + limit / 4; Date.now() < end; await tab.waitForTimeout(50)) {
      const answer = await tab.evaluate('globalThis.answer').catch(() => undefined);
      if (answer !== undefined) return /** @type {Results} */ (answer);
    }
    throw new Error('the page gave no answer');
  } catch (error) {
    throw new Error([/** @type {Error} */ (error).message, ...problems].join('\n'));
  } finally {
    await tab.close();
  }
}

export const closeBrowser = () => browser?.close();

export class Place {
  /** @param {string} [tarball] the packed package */
  constructor(tarball = '') {
    this.tarball = tarball;
    this.folder = mkdtempSync(join(tmpdir(), 'scalepoint-consumer-'));
    this.write('package.json', JSON.stringify({ name: 'consumer', private: true, type: 'module' }));
    cpSync(app, this.folder, { recursive: true });
  }

  /** @param {string} path @param {string | object} text objects become JSON */
  write(path, text) {
    const full = join(this.folder, path);
    mkdirSync(dirname(full), { recursive: true });
    writeFileSync(full, typeof text === 'string' ? text : JSON.stringify(text));
  }

  /** @param {string} path */
  read(path) {
    return readFileSync(join(this.folder, path), 'utf8');
  }

  /** Changes a file. @param {string} path @param {[from: string | RegExp, to: string][]} changes */
  edit(path, ...changes) {
    this.write(
      path,
      changes.reduce((text, [from, to]) => text.replaceAll(from, to), this.read(path)),
    );
  }

  /** The app, with scalepoint/inline. */
  useInline() {
    this.edit('app.js', [/'scalepoint(\/model)?'/g, "'scalepoint/inline'"]);
  }

  /** Installs the package. @param {string[]} packages beside it */
  async install(packages) {
    // On Windows, npm is a script of the shell. npm names its own program to what it runs.
    const { npm_execpath: npm } = process.env;
    const [program, ...first] = npm === undefined ? ['npm'] : [process.execPath, npm];
    await this.run(program, [...first, 'install', '--no-audit', '--no-fund', this.tarball, ...packages]);
  }

  /**
   * Runs a program in the folder. @param {string} program @param {readonly string[]} args @param {Record<string, string>} [env]
   * @returns {Promise<string>} what it printed
   */
  async run(program, args, env = {}) {
    const options = {
      cwd: this.folder,
      timeout: limit,
      maxBuffer: 1 << 26,
      env: { ...process.env, NO_COLOR: '1', FORCE_COLOR: '0', ...env },
    };
    try {
      return (await promisify(execFile)(program, [...args], options)).stdout;
    } catch (error) {
      const { message, stdout } = /** @type {Error & { stdout: string }} */ (error);
      throw new Error(`${message}\n${stdout}`);
    }
  }

  /** Runs a program of a package. @param {string} name @param {readonly string[]} args @param {Record<string, string>} [env] */
  bin(name, args, env) {
    return this.run(join(this.folder, 'node_modules/.bin', name), args, env);
  }

  /** Results in the output of a program. @param {Promise<string>} printed @returns {Promise<Results>} */
  async results(printed) {
    const line = (await printed).split('\n').find((each) => each.startsWith('[{'));
    if (line === undefined) throw new Error('it printed no results');
    return JSON.parse(line);
  }

  /** Opens a folder of built files as a page. @param {string} folder @param {string} [policy] @param {string} [file] */
  async openBuilt(folder, policy = strictPolicy, file = 'index.html') {
    const { url, close } = await serveBelow(join(this.folder, folder), policy);
    try {
      return await open(url + file);
    } finally {
      close();
    }
  }

  /**
   * Runs a server for as long as `use` takes. @param {string} program @param {readonly string[]} args @param {RegExp} ready what it
   * prints when it listens @param {() => Promise<Results>} use @param {Record<string, string>} [env] @returns {Promise<Results>}
   */
  async withServer(program, args, ready, use, env = {}) {
    const child = spawn(program, [...args], { cwd: this.folder, env: { ...process.env, NO_COLOR: '1', ...env } });
    try {
      await new Promise((done, fail) => {
        let text = '';
        for (const stream of [child.stdout, child.stderr]) {
          stream.on('data', (data) => {
            text += data;
            if (ready.test(text)) done(undefined);
          });
        }
        child.on('exit', () => fail(new Error(`the server ended: ${text}`)));
        setTimeout(() => fail(new Error(`the server does not listen: ${text}`)), limit / 4).unref();
      });
      return await use();
    } finally {
      child.kill();
    }
  }

  remove() {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
