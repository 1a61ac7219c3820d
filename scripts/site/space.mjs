// Makes the folder of a static Space out of the built site: its owner pushes it to have the site on the hub.
//
//   npm run build && npm run space [-- FOLDER]      the folder is build/space unless given
//
// The site runs in the browser, so that the Space is files alone. Nothing is sent from here.

import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

/**
 * The README of the Space: its head is the configuration, as docs/hub/spaces-config-reference.md of huggingface/hub-docs at 242f4a1e
 * describes it. The headers isolate the pages, so that they may use threads. Signing in lets a page make and fill repositories of its own, and
 * read gated models.
 */
const readme = (/** @type {string} */ license) => `---
title: Scalepoint
emoji: 📏
colorFrom: blue
colorTo: indigo
sdk: static
app_file: index.html
pinned: false
license: ${license.toLowerCase()}
short_description: Make models smaller, in your browser
hf_oauth: true
hf_oauth_expiration_minutes: 480
hf_oauth_scopes:
- contribute-repos
- read-repos
- gated-repos
- write-discussions
custom_headers:
  cross-origin-embedder-policy: require-corp
  cross-origin-opener-policy: same-origin
  cross-origin-resource-policy: cross-origin
---

# Scalepoint

Models become smaller in your browser. Their bytes go from the hub to your device, and nowhere else.
`;

/**
 * Copies the site, and adds the README. The folder has to be empty, or a Space that was made before.
 * @param {{ site: string, folder: string, license: string }} options
 * @returns {number} the number of files
 */
export function makeSpace({ site, folder, license }) {
  if (!existsSync(join(site, 'index.html'))) throw new Error(`${site} holds no site: build first, with npm run build`);
  const own = join(folder, 'README.md');
  const isOwn = existsSync(own) && /^---\n[\s\S]*\nsdk: static\n/.test(readFileSync(own, 'utf8'));
  if (existsSync(folder) && readdirSync(folder).length > 0 && !isOwn) throw new Error(`${folder} holds other files`);
  mkdirSync(folder, { recursive: true });
  cpSync(site, folder, { recursive: true, dereference: true });
  writeFileSync(own, readme(license));
  return readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).length;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = resolve(process.argv[2] ?? join(root, 'build/space'));
  const { license } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  try {
    const count = makeSpace({ site: join(root, 'build/demo'), folder, license });
    console.log(`${folder} has ${count} files. To have them on the hub, in a Space of yours with the SDK "static":`);
    console.log(`hf upload OWNER/NAME ${folder} . --repo-type space`);
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
