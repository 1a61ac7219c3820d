// A small static server for the built page. Only this machine can reach it.
//
//   node scripts/serve.mjs [--port 8080] [folder]      the folder is build/demo unless given

import { createReadStream, readFileSync } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

/** @type {Record<string, string>} */
const contentTypes = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.ico': 'image/x-icon',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.map': 'application/json; charset=utf-8',
  '.mjs': 'text/javascript; charset=utf-8',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.wasm': 'application/wasm',
  '.webmanifest': 'application/manifest+json',
  '.woff2': 'font/woff2',
};

/** Number of ports that are tried after the first one. */
const portsToTry = 50;

/**
 * The Content-Security-Policy in the head of a page, plus frame-ancestors, which browsers accept in an HTTP header only.
 * @param {string} folder with an index.html
 */
function policyOf(folder) {
  const page = readFileSync(join(folder, 'index.html'), 'utf8');
  const tag = /<meta\b[^>]*http-equiv="?Content-Security-Policy"?[^>]*>/i.exec(page)?.[0] ?? '';
  const policy = /\bcontent="([^"]*)"/.exec(tag)?.[1];
  if (policy === undefined) throw new Error(`${join(folder, 'index.html')} sets no Content-Security-Policy`);
  return `${policy.trim().replace(/\s+/g, ' ').replace(/;$/, '')}; frame-ancestors 'none'`;
}

/**
 * The file for a request, or undefined if there is none inside of the folder.
 * @param {string} folder a real path
 * @param {string} url as in the request line
 * @returns {Promise<{ path: string, size: number } | undefined>}
 */
async function find(folder, url) {
  try {
    const name = decodeURIComponent(url.split(/[?#]/, 1)[0] ?? '');
    if (!name.startsWith('/') || name.includes('\0') || name.split('/').some((part) => part.startsWith('.')))
      return undefined;
    const wanted = resolve(folder, `.${name}${name.endsWith('/') ? 'index.html' : ''}`);
    // The check is on the real path, so that no symbolic link leads out of the folder.
    const path = await realpath(wanted);
    if (!path.startsWith(folder + sep)) return undefined;
    const info = await stat(path);
    return info.isFile() ? { path, size: info.size } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Serves the files of a folder on 127.0.0.1. Answers GET and HEAD only, and forbids caching.
 * @param {object} options
 * @param {string} options.folder
 * @param {number} [options.port] the first port to try; 0 lets the system choose
 * @param {string} [options.policy] Content-Security-Policy of every answer. The default is the policy in the page's head.
 * @returns {Promise<{ url: string, close: () => Promise<void> }>}
 */
export async function serve({ folder, port = 8080, policy = policyOf(folder) }) {
  const realFolder = await realpath(folder);
  const server = createServer(async (request, response) => {
    response.setHeader('Content-Security-Policy', policy);
    response.setHeader('X-Content-Type-Options', 'nosniff');
    response.setHeader('Referrer-Policy', 'no-referrer');
    response.setHeader('Cache-Control', 'no-store');
    const refuse = (/** @type {number} */ status, /** @type {string} */ text) => {
      response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' });
      response.end(request.method === 'HEAD' ? undefined : `${text}\n`);
    };
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      return refuse(405, 'only GET and HEAD');
    }
    const file = await find(realFolder, request.url ?? '');
    if (file === undefined) return refuse(404, 'not found');
    response.writeHead(200, {
      'Content-Type': contentTypes[extname(file.path)] ?? 'application/octet-stream',
      'Content-Length': file.size,
    });
    if (request.method === 'HEAD') return response.end();
    createReadStream(file.path)
      .on('error', () => response.destroy())
      .pipe(response);
  });

  const listen = (/** @type {number} */ number) =>
    new Promise((done, fail) => {
      server.once('error', fail);
      server.listen(number, '127.0.0.1', () => {
        server.off('error', fail);
        done(undefined);
      });
    });
  for (let attempt = 0; ; attempt++) {
    try {
      await listen(port === 0 ? 0 : port + attempt);
      break;
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EADDRINUSE' || attempt === portsToTry) throw error;
    }
  }
  const address = /** @type {import('node:net').AddressInfo} */ (server.address());
  return {
    url: `http://127.0.0.1:${address.port}/`,
    close: () =>
      new Promise((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  };
}

/**
 * Parses a port number from the command line.
 * @param {string} text
 * @throws RangeError
 */
export function parsePort(text) {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > 65535)
    throw new RangeError(`--port: expected a number from 0 to 65535, got ${text}`);
  return port;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({
    options: { port: { type: 'string', default: '8080' } },
    allowPositionals: true,
  });
  const folder = positionals[0] ?? fileURLToPath(new URL('../build/demo', import.meta.url));
  const { url } = await serve({ folder, port: parsePort(values.port) });
  console.log(url);
}
