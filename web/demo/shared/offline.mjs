// Writes the service worker of the site. It keeps the site's own files, and nothing else.

import { createHash } from 'node:crypto';

/**
 * Files that are stored when they are used, not at the first visit: pages of the guide, the core for browsers without SIMD, and what few visits need.
 */
const later = /^guide\/.|^samples\/storyteller\/|-scalar-|^assets\/(?:ort|push-worker|sha256)|^changelog\/|^notices/;

/** Most bytes of a file that is stored at the first visit. */
const mostBytes = 600_000;

/**
 * The script. It stores the files that a page names as used, and on request those of a first visit. Every file that is asked for later is stored, too.
 * Files with a hash in their name are taken from the store, and pages from the network if there is one.
 * @param {ReadonlyMap<string, string | Uint8Array>} contents of all files by their paths
 */
export function offlineWorker(contents) {
  const hash = createHash('sha256');
  for (const [name, content] of [...contents].sort(([a], [b]) => (a < b ? -1 : 1))) hash.update(name).update(content);
  const version = hash.digest('hex').slice(0, 16);
  const withoutIndex = (/** @type {string} */ name) => name.replace(/(^|\/)index\.html$/, '$1');
  const all = [...contents].filter(([name]) => !/\.(map|png)$/.test(name)).sort(([a], [b]) => (a < b ? -1 : 1));
  const files = all.map(([name]) => withoutIndex(name));
  const first = all
    .filter(([name, content]) => content.length <= mostBytes && (name === 'guide/index.html' || !later.test(name)))
    .map(([name]) => withoutIndex(name));
  return `// Keeps the files of this site for visits without a network.
const store = 'scalepoint-site-${version}';
const files = ${JSON.stringify(files)};
const first = ${JSON.stringify(first)};
const addressOf = (file) => new URL(file || './', self.registration.scope).href;
const known = new Set(files.map(addressOf));
const withoutParts = (address) => address.replace(/[?#].*/, '').replace(/\\/index\\.html$/, '/');

self.addEventListener('install', () => self.skipWaiting());

self.addEventListener('activate', (event) => {
  const outdated = (name) => name.startsWith('scalepoint-site-') && name !== store;
  event.waitUntil(
    caches.keys()
      .then((names) => Promise.all(names.filter(outdated).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

/** Stores files that are not there yet. */
async function keep(addresses) {
  const cache = await caches.open(store);
  const stored = new Set((await cache.keys()).map(({ url }) => url));
  await cache.addAll([...new Set(addresses)].filter((address) => known.has(address) && !stored.has(address)));
}

// A page names the files that it has used, and says if it may store those of a first visit. The answer is true once they are there.
self.addEventListener('message', (event) => {
  const { used, mayStore } = event.data;
  const wanted = [...used.map(withoutParts), ...(mayStore ? first.map(addressOf) : [])];
  event.waitUntil(keep(wanted).then(() => true, () => false).then((isStored) => event.ports[0].postMessage(isStored)));
});

self.addEventListener('fetch', (event) => {
  const address = withoutParts(event.request.url);
  if (event.request.method !== 'GET' || !known.has(address)) return;
  const stored = () => caches.open(store).then((cache) => cache.match(address));
  const fetched = async () => {
    const response = await fetch(event.request);
    if (response.ok) {
      const copy = response.clone();
      event.waitUntil(caches.open(store).then((cache) => cache.put(address, copy)).catch(() => {}));
    }
    return response;
  };
  const isFixed = address.includes('/assets/');
  event.respondWith(
    isFixed
      ? stored().then((found) => found ?? fetched())
      : fetched().catch(() => stored().then((found) => found ?? Response.error())),
  );
});
`;
}
