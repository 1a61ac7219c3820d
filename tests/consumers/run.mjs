// Tries the environments of the matrix one after the other and prints a line for each.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { duration, mustRun } from '../../scripts/steps.mjs';
import { environments } from './matrix.mjs';
import { closeBrowser, Place } from './place.mjs';

const names = process.argv.slice(2);
const wanted = environments.filter(({ name }) => names.length === 0 || names.some((some) => name.includes(some)));
if (wanted.length === 0) {
  console.error(`there are: ${environments.map(({ name }) => name).join('; ')}`);
  process.exit(2);
}

const packs = mkdtempSync(join(tmpdir(), 'scalepoint-packed-'));
const packed = await mustRun('npm', ['pack', '--ignore-scripts', '--json', '--silent', '--pack-destination', packs]);
const tarball = join(packs, JSON.parse(packed.slice(packed.indexOf('[')))[0].filename);

/** The results of an environment, tried in a folder of its own. @param {typeof environments[number]} environment */
async function attempt({ packages, run }) {
  const place = new Place(tarball);
  try {
    await place.install(packages);
    return await run(place);
  } finally {
    if (process.env.KEEP === undefined) place.remove();
    else console.log(place.folder);
  }
}

// All have to give the results of this Node.
const [expected] = await attempt({
  name: 'this Node',
  packages: [],
  run: (place) => place.results(place.run('node', ['print.js'])),
});
let failed = 0;
for (const environment of wanted) {
  const { name, alone = false } = environment;
  const start = performance.now();
  /** @type {string[]} */
  const problems = [];
  try {
    for (const { hash, note } of await attempt(environment)) {
      if (hash !== expected?.hash) problems.push(`expected ${expected?.hash}, got ${hash}`);
      if ((note !== '') !== alone) problems.push(note === '' ? 'workers ran' : note);
    }
  } catch (error) {
    problems.push(error instanceof Error ? error.message : String(error));
  }
  if (problems.length > 0) failed++;
  const verdict = problems.length === 0 ? 'ok    ' : 'FAILED';
  console.log(`${verdict} ${name.padEnd(48)} ${duration(performance.now() - start)}`);
  for (const problem of problems)
    console.log(
      problem
        .trim()
        .split('\n')
        .slice(0, 30)
        .map((line) => `       ${line}`)
        .join('\n'),
    );
}
await closeBrowser();
rmSync(packs, { recursive: true, force: true });
console.log(`${wanted.length - failed} of ${wanted.length} environments have the hash ${expected?.hash}`);
process.exitCode = failed === 0 ? 0 : 1;
