// `npm run test:consumers`: the packed package as users have it: in every supported TypeScript, and installed beside each bundler and runtime.
// With names (`npm run test:consumers -- parcel bun`) only the environments of the matrix whose names have one of these in them.

import { spawnSync } from 'node:child_process';
import { setup } from './setup.mjs';
import { explain, mustRun, root } from './steps.mjs';

/** @param {string[]} args */
const node = (...args) => spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' }).status ?? 1;

try {
  const names = process.argv.slice(2);
  await setup({ purpose: 'full' });
  await mustRun(process.execPath, ['scripts/build.mjs']);
  const files = ['package', 'inline', 'types'].map((name) => `tests/web/package/${name}.node.test.ts`);
  const first = names.length > 0 ? 0 : node('node_modules/vitest/vitest.mjs', 'run', '--project', 'package', ...files);
  process.exitCode = node('tests/consumers/run.mjs', ...names) || first;
} catch (error) {
  explain(error);
  process.exitCode = 1;
}
