// `npm run test:firefox`: what a visitor does first on each page of the site, in the Firefox of this machine. `npm test` does not run it.
//
//   FIREFOX=/path/to/firefox npm run test:firefox        without FIREFOX, firefox-esr or firefox on PATH

import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { firefox } from 'playwright';
import { flows, hubFlows, hubOfFlows } from '../tests/web/demo/flows.mjs';
import { copySiteFor } from '../tests/web/demo/hub-folder.mjs';
import { startHub } from '../tests/web/support/hub/hub.mjs';
import { buildAll } from './build.mjs';
import { serve } from './serve.mjs';
import { explain, root, StepError } from './steps.mjs';

/**
 * Where Firefox is.
 * @param {{ FIREFOX?: string, PATH?: string }} environment
 * @param {{ exists: (path: string) => boolean }} [disk]
 * @throws StepError if it is not there
 */
export function findFirefox({ FIREFOX: given, PATH = '' }, { exists } = { exists: existsSync }) {
  if (given !== undefined) {
    if (!exists(given)) throw new StepError(`FIREFOX: there is no ${given}`);
    return given;
  }
  const folders = PATH.split(delimiter);
  const places = ['firefox-esr', 'firefox'].flatMap((name) => folders.map((folder) => join(folder, name)));
  const found = places.find(exists);
  if (found === undefined) {
    throw new StepError(
      'This machine has no Firefox. On Debian `apt-get install firefox-esr` installs it; FIREFOX=/path/to/firefox names another one.',
    );
  }
  return found;
}

/** Time that a step of a flow may take. */
const stepMilliseconds = 60_000;

/** Runs all flows, each in a page of its own. @returns {Promise<number>} how many failed */
async function runFlows() {
  const executablePath = findFirefox(process.env);
  await buildAll();
  const hub = await startHub(hubOfFlows);
  const folder = mkdtempSync(join(tmpdir(), 'scalepoint-firefox-'));
  copySiteFor(join(root, 'build/demo'), folder, hub);
  const server = await serve({ folder, port: 0 });
  // The protocol that a Firefox of a distribution speaks.
  const browser = await firefox.launch({ channel: 'moz-firefox', executablePath });
  let failed = 0;
  try {
    for (const { name, run } of [...flows, ...hubFlows]) {
      const context = await browser.newContext();
      const page = await context.newPage();
      page.setDefaultTimeout(stepMilliseconds);
      /** @type {string[]} */
      const complaints = [];
      page.on('pageerror', (error) => complaints.push(error.message));
      const problem = await run(page, server.url, hub).then(
        () => complaints[0],
        (/** @type {unknown} */ error) => String(error),
      );
      console.log(
        `${problem === undefined ? 'passed' : 'FAILED'}  ${name}${problem === undefined ? '' : `\n${problem}`}`,
      );
      if (problem !== undefined) failed++;
      await context.close();
    }
  } finally {
    await browser.close();
    await server.close();
    await hub.close();
    rmSync(folder, { recursive: true });
  }
  return failed;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    process.exitCode = (await runFlows()) > 0 ? 1 : 0;
  } catch (error) {
    explain(error);
    process.exitCode = 1;
  }
}
