// The frame of every page of the site: the head, the header, the footer. The build puts it into each page.

import { existsSync, readFileSync } from 'node:fs';
import { withFigures } from './figures/markup.mjs';
import { withInstall } from './install.mjs';

/** @typedef {{ version: string, repository?: string | { url: string }, bugs?: string | { url: string } }} Manifest */

const file = (/** @type {string} */ path) => readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');

/** @type {Manifest} */
const manifest = JSON.parse(file('package.json'));

/** The build of the core as hexadecimal digits, as `buildId` has it: a hash of its sources and compiler. */
const build = Number(/export const buildId = (\d+);/.exec(file('web/src/core/core.mjs'))?.[1]).toString(16);

/** @typedef {{ path: string, label: string, short?: string }} Entry */

/** Hosts of the hub of models and of its files. */
const hubHosts = 'https://huggingface.co https://*.hf.co';

/** Everything comes from the site itself, but for models of the hub on the page that opens them; scripts may compile WebAssembly. @param {string} path */
const policyOf = (path) =>
  [
    "default-src 'none'",
    "script-src 'self' 'wasm-unsafe-eval'",
    "style-src 'self'",
    "img-src 'self' data:",
    `connect-src 'self'${path === 'model/' ? ` ${hubHosts}` : ''}`,
    "worker-src 'self'",
    "manifest-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');

/** The pages in the header. A page is a folder below the root of the site. */
export const entries = /** @type {const} */ ([
  { path: '', label: 'Learn' },
  { path: 'model/', label: 'Your model' },
  { path: 'numbers/', label: 'Your numbers' },
  { path: 'search/', label: 'Search' },
  { path: 'speed/', label: 'Speed' },
  { path: 'guide/', label: 'Guide' },
]);

const mark =
  '<svg class="mark" viewBox="0 0 24 24" width="24" height="24" aria-hidden="true"><path d="M3 20V4M9 20V9M15 20v-7M21 20V6" /><circle cx="9" cy="5" r="2" /></svg>';

/** The preview picture of a page. A page without a picture of its own has that of its part of the site. @param {string} path */
function previewOf(path) {
  const parts = path.split('/').slice(0, -1);
  const names = path === '' ? ['learn'] : [parts.join('-'), parts[0]];
  const there = names.find((name) => existsSync(new URL(`../public/previews/${name}.png`, import.meta.url)));
  return `previews/${there ?? 'learn'}.png`;
}

/**
 * The address of the published site, such as `https://example.org/scalepoint/`, from the environment. Link previews need absolute addresses;
 * without it the addresses are relative.
 */
export function siteAddress() {
  const given = process.env.SCALEPOINT_SITE ?? '';
  if (given === '') return undefined;
  if (!/^https?:\/\/[^/]/.test(given)) throw new Error(`SCALEPOINT_SITE: expected an http(s) address, got ${given}`);
  return new URL(given.endsWith('/') ? given : `${given}/`).href;
}

/** Id of the public app on the hub with which visitors sign in, from the environment; empty without one. */
function hubClient() {
  const given = process.env.SCALEPOINT_HUB_CLIENT ?? '';
  if (!/^[\w:/.-]*$/.test(given)) throw new Error(`SCALEPOINT_HUB_CLIENT: expected the id of an app, got ${given}`);
  return given;
}

/** @param {string} root @param {string} path @param {string} title @param {string} description @param {string | undefined} address */
const head = (root, path, title, description, address) => `
    <meta charset="utf-8">
    <meta http-equiv="Content-Security-Policy" content="${policyOf(path)}">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <meta name="referrer" content="no-referrer">
    <meta property="og:type" content="website">
    <meta property="og:title" content="${title}">
    <meta property="og:description" content="${description}">
    <meta property="og:image" content="${address ?? (root || './')}${previewOf(path)}">
    <meta property="og:image:alt" content="${title}">${address === undefined ? '' : `\n    <meta property="og:url" content="${address}${path}">\n    <link rel="canonical" href="${address}${path}">`}
    <meta name="twitter:card" content="summary_large_image">
    <link rel="icon" href="/icon.svg" type="image/svg+xml">
    <link rel="manifest" href="/manifest.webmanifest">
    <script src="/theme.js"></script>
    <link rel="stylesheet" href="${root}shared/style.css">`;

/**
 * "Your model" is "Model" on narrow screens, for the eye only.
 * @param {string} label
 */
const labelOf = (label) => label.replace(/^Your /, '<span class="your">Your </span>');

/** @param {string} root @param {string} path of the page, such as `guide/errors/` */
const header = (root, path) => `
    <a class="skip" id="skip" href="#main">Skip to the content</a>
    <header class="bar">
      <a class="brand" href="${root || './'}">${mark}<span>Scalepoint</span></a>
      <nav class="nav" aria-label="Pages">
        ${entries
          .map((entry) => {
            const isHere = entry.path === '' ? path === '' : path.startsWith(entry.path);
            const current = entry.path === path ? ' aria-current="page"' : isHere ? ' aria-current="true"' : '';
            return `<a href="${root}${entry.path || (root ? '' : './')}"${current}>${labelOf(entry.label)}</a>`;
          })
          .join('\n        ')}
      </nav>
      <label class="theme"><span class="hidden">Theme</span>
        <select id="theme">
          <option value="system">Auto</option>
          <option value="light">Light</option>
          <option value="dark">Dark</option>
        </select>
      </label>
    </header>`;

/**
 * Links to the sources and to their issues, as HTML. Empty while the manifest names no repository.
 * @param {Pick<Manifest, 'repository' | 'bugs'>} manifest
 */
export function sourceLinks({ repository, bugs }) {
  const addressOf = (/** @type {string | { url: string } | undefined} */ given) =>
    typeof given === 'string' ? given : given?.url;
  const sources = addressOf(repository)
    ?.replace(/^github:/, 'https://github.com/')
    .replace(/^git\+/, '')
    .replace(/\.git$/, '');
  if (sources === undefined || !sources.startsWith('https://')) return '';
  const issues = addressOf(bugs) ?? `${sources}/issues`;
  return ` · <a href="${sources}">Sources</a> · <a href="${issues}">Issues</a>`;
}

/** @param {string} root */
const footer = (root) => `
    <footer class="foot">
      <p>Scalepoint <span id="about-version">${manifest.version}</span>, build <span id="about-build">${build}</span><span id="about-tier"></span></p>
      <p><a href="${root}license/">MIT license</a> · <a href="${root}changelog/">Changelog</a> · <a href="${root}guide/">Guide</a> · <a href="${root}guide/limits/">Limits</a> · <a href="${root}speed/">Speed in this browser</a>${sourceLinks(manifest)}</p>
      <p>Everything is computed in this browser, and no file or number leaves it, unless you push a result. <span id="about-offline"></span></p>
    </footer>
    <p class="hidden" id="live" role="status"></p>
    <p class="toast" id="toast" hidden></p>
    <div class="overlay" id="overlay" hidden><p>Drop it anywhere</p></div>`;

/**
 * Completes a page.
 * @param {string} html with a title and a description in its head, and a `main` in its body
 * @param {string} path of the page below the root of the site, such as `model/`
 * @param {string} [address] of the site, if it is known
 */
export function withShell(html, path, address) {
  const root = '../'.repeat(path.split('/').length - 1);
  const title = /<title>([^<]*)<\/title>/.exec(html)?.[1] ?? '';
  const description = /<meta name="description" content="([^"]*)">/.exec(html)?.[1] ?? '';
  return withFigures(withInstall(html, address))
    .replace('data-client=""', `data-client="${hubClient()}"`)
    .replace('<html lang="en">', `<html lang="en" data-root="${root || './'}">`)
    .replace('<head>', `<head>${head(root, path, title, description, address)}`)
    .replace(/<body([^>]*)>/, (body) => `${body}${header(root, path)}`)
    .replace('</body>', `${footer(root)}\n  </body>`);
}
