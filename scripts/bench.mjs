// `npm run bench`: sets up, builds, then runs tests/bench/bench.mjs with the same arguments.

import { setup } from './setup.mjs';
import { explain, mustRun } from './steps.mjs';

try {
  await setup({ purpose: 'full' });
  await mustRun(process.execPath, ['scripts/build.mjs']);
  await import('../tests/bench/bench.mjs');
} catch (error) {
  explain(error);
  process.exitCode = 1;
}
