// `npm run test:consumers`: the packed package as users have it: installed, bundled, in pages, and in every supported TypeScript.

import { spawnSync } from 'node:child_process';
import { setup } from './setup.mjs';
import { explain, mustRun, root } from './steps.mjs';

try {
  await setup({ test: true });
  await mustRun(process.execPath, ['scripts/build.mjs']);
  const env = { ...process.env, SCALEPOINT_CONSUMERS: '1' };
  const files = ['package', 'inline', 'types'].map((name) => `tests/web/package/${name}.node.test.ts`);
  const args = ['node_modules/vitest/vitest.mjs', 'run', '--project', 'node', ...files];
  process.exitCode = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit', env }).status ?? 1;
} catch (error) {
  explain(error);
  process.exitCode = 1;
}
