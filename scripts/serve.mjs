// Serves the built page to this machine alone: sirv with the headers of a careful host. Written by hand are those headers, the search for
// a free port, and the refusal of symbolic links that lead out of the folder, which sirv follows.

import { existsSync, readFileSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join, sep } from 'node:path';

/** Number of ports that are tried after the first one. */
const portsToTry = 50;

/**
 * The Content-Security-Policy in the head of a page, plus frame-ancestors, which browsers accept in an HTTP header only. Workers have the policy
 * of the answer with their script, so that files other than pages have that of the page that reaches other servers, if there is one.
 * @param {string} folder with an index.html
 * @param {string} path below it
 */
function policyOf(folder, path) {
  const wanted = [path.endsWith('.html') ? path : 'model/index.html', 'index.html'];
  const name = /** @type {string} */ (wanted.find((one) => existsSync(join(folder, one))));
  const page = readFileSync(join(folder, name), 'utf8');
  const tag = /<meta\b[^>]*http-equiv="?Content-Security-Policy"?[^>]*>/i.exec(page)?.[0] ?? '';
  const policy = /\bcontent="([^"]*)"/.exec(tag)?.[1];
  if (policy === undefined) throw new Error(`${join(folder, name)} sets no Content-Security-Policy`);
  return `${policy.trim().replace(/\s+/g, ' ').replace(/;$/, '')}; frame-ancestors 'none'`;
}

/**
 * True if the path of a request leads to something inside of the folder. Names that begin with a dot are hidden.
 * @param {string} folder a real path
 * @param {string} path
 */
async function isInside(folder, path) {
  try {
    const name = decodeURIComponent(path);
    return !/\/\./.test(name) && (await realpath(join(folder, name))).startsWith(folder + sep);
  } catch {
    return false;
  }
}

/**
 * Serves the files of a folder on 127.0.0.1. Answers GET and HEAD only. Browsers may keep files of the build, whose
 * names hold a digest of their content, and nothing else.
 * @param {object} options
 * @param {string} options.folder
 * @param {number} [options.port] the first port to try; 0 lets the system choose
 * @param {string} [options.policy] Content-Security-Policy of every answer. The default is the policy in each page's head.
 * @returns {Promise<{ url: string, close: () => Promise<void> }>}
 */
export async function serve({ folder, port = 8080, policy }) {
  // Imported here, because `npm start` loads this file before it installs packages.
  const { default: sirv } = await import('sirv');
  const realFolder = await realpath(folder);
  const files = sirv(realFolder, { dev: true, extensions: [] });
  const server = createServer(async (request, response) => {
    const setPolicy = (/** @type {string} */ path) =>
      response.setHeader('Content-Security-Policy', policy ?? policyOf(realFolder, path));
    response.setHeader('X-Content-Type-Options', 'nosniff');
    response.setHeader('Referrer-Policy', 'no-referrer');
    const refuse = (/** @type {number} */ status, /** @type {string} */ text) => {
      setPolicy('');
      response.setHeader('Cache-Control', 'no-store');
      response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' });
      response.end(`${text}\n`);
    };
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      return refuse(405, 'only GET and HEAD');
    }
    const path = request.url?.replace(/[?#].*/s, '').replace(/\/$/, '/index.html') ?? '';
    if (!(await isInside(realFolder, path))) return refuse(404, 'not found');
    setPolicy(path);
    const lasts = path.startsWith('/assets/');
    response.setHeader('Cache-Control', lasts ? 'public, max-age=31536000, immutable' : 'no-store');
    request.url = path;
    files(request, response, () => refuse(404, 'not found'));
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
