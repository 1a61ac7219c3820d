// The built site with the addresses of a hub of the tests.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** @param {string} built @param {string} folder @param {import('../support/hub/hub.mjs').TestHub} hub */
export function copySiteFor(built, folder, hub) {
  cpSync(built, folder, { recursive: true });
  const name = join(folder, 'model/index.html');
  const page = readFileSync(name, 'utf8')
    .replace('https://huggingface.co https://*.hf.co', Object.values(hub.origins).join(' '))
    .replace('data-endpoint="https://huggingface.co"', `data-endpoint="${hub.endpoint}"`)
    .replace('data-client=""', 'data-client="app"');
  writeFileSync(name, page);
}
