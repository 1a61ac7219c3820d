// `npm start` builds everything, quantizes the sample model on the terminal, and serves the page until Ctrl-C.
//
//   npm start [-- --port 8080]

import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { buildEarly } from './build.mjs';
import { parsePort, serve } from './serve.mjs';
import { setup } from './setup.mjs';
import { explain, mustRun, paint, root, StepError, step } from './steps.mjs';

/**
 * The port of the command line. Exits with a usage message if the arguments are wrong.
 * @returns {number}
 */
function wantedPort() {
  try {
    const { values } = parseArgs({ options: { port: { type: 'string', default: '8080' } } });
    return parsePort(values.port);
  } catch (error) {
    console.error(`${/** @type {Error} */ (error).message}\nUsage: npm start [-- --port 8080]`);
    process.exit(2);
  }
}

const port = wantedPort();
try {
  console.log(`${paint('bold', 'Scalepoint')}\n`);
  await setup({ purpose: 'start', early: buildEarly });
  await step('build', async (say) => {
    say('WebAssembly core, package, page');
    await mustRun(process.execPath, ['scripts/build.mjs']);
  });

  const sample = 'web/demo/public/samples/digits.safetensors';
  const output = 'build/samples/digits.int8.safetensors';
  mkdirSync(join(root, 'build/samples'), { recursive: true });
  const command = ['dist/cli.js', 'quantize', sample, '--to', 'int8', '-o', output, '--force'];
  console.log(`\n${paint('bold', `node ${command.join(' ')}`)}\n`);
  const { status } = spawnSync(process.execPath, command, { cwd: root, stdio: 'inherit' });
  if (status !== 0) throw new StepError(`the command line ended with exit code ${status}`);

  const { url, close } = await serve({ folder: join(root, 'build/demo'), port });
  console.log(`\nThe page is at ${paint('bold', url)}   Ctrl-C ends it.`);
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
    process.once(signal, () => {
      close().then(() => process.exit(0));
    });
  }
} catch (error) {
  explain(error);
  process.exitCode = 1;
}
