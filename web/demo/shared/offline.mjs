// Writes the service worker of the site. It keeps the site's own files, and nothing else.

import { createHash } from 'node:crypto';

/** Bytes above which a file is stored when it is first asked for, not at the first visit. */
const largeBytes = 1_000_000;

/**
 * The script. Its first visit stores all files but large ones. Later ones take files with a hash in their name from the store, and pages from the
 * network if there is one.
 * @param {ReadonlyMap<string, string | Uint8Array>} contents of all files by their paths
 */
export function offlineWorker(contents) {
  const hash = createHash('sha256');
  for (const [name, content] of [...contents].sort(([a], [b]) => (a < b ? -1 : 1))) hash.update(name).update(content);
  const version = hash.digest('hex').slice(0, 16);
  const files = [...contents.keys()]
    .filter((name) => !/\.(map|png)$/.test(name))
    .map((name) => name.replace(/(^|\/)index\.html$/, '$1'))
    .sort();
  const large = [...contents].filter(([, content]) => content.length > largeBytes).map(([name]) => name);
  return `// Keeps the files of this site for visits without a network.
const store = 'scalepoint-site-${version}';
const files = ${JSON.stringify(files)};
const large = new Set(${JSON.stringify(large)});
const addressOf = (file) => new URL(file || './', self.registration.scope).href;
const known = new Set(files.map(addressOf));

self.addEventListener('install', (event) => {
  event.waitUntil(caches.open(store).then((cache) => cache.addAll(files.filter((file) => !large.has(file)).map(addressOf))).then(() => self.skipWaiting()));
});

self.addEventListener('activate', (event) => {
  const outdated = (name) => name.startsWith('scalepoint-site-') && name !== store;
  event.waitUntil(
    caches.keys()
      .then((names) => Promise.all(names.filter(outdated).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

self.addEventListener('fetch', (event) => {
  const address = event.request.url.replace(/[?#].*/, '').replace(/\\/index\\.html$/, '/');
  if (event.request.method !== 'GET' || !known.has(address)) return;
  const stored = () => caches.open(store).then((cache) => cache.match(address));
  // A file that was left out at the first visit is stored with its first use.
  const fetched = async () => {
    const response = await fetch(event.request);
    if (response.ok) await caches.open(store).then((cache) => cache.put(address, response.clone())).catch(() => {});
    return response;
  };
  const isFixed = address.includes('/assets/');
  event.respondWith(
    isFixed
      ? stored().then((found) => found ?? fetched())
      : fetch(event.request).catch(() => stored().then((found) => found ?? Response.error())),
  );
});
`;
}
