// `npm run test:packed -- scalepoint-0.1.0.tgz`: a packed package in the Node and on the system of this machine. Nothing is built: the package
// is installed into an empty folder, where an app and the command line run, and then tests use it in place of the sources.

import { resolve } from 'node:path';
import { packedTests } from '../tests/projects.mjs';
import { explain, root, StepError, step } from './steps.mjs';

const [tarball] = process.argv.slice(2);
if (tarball === undefined) {
  console.error('Usage: npm run test:packed -- scalepoint-VERSION.tgz');
  process.exit(2);
}

try {
  const { Place } = await import('../tests/consumers/place.mjs');
  const place = new Place(resolve(tarball));
  const node = (/** @type {string[]} */ ...args) => place.run(process.execPath, args);
  try {
    await step('packed', async (say) => {
      await place.install([]);
      const [result] = await place.results(node('print.js'));
      if (result === undefined || result.note !== '') throw new StepError('the app had no workers', result?.note);
      const program = 'node_modules/scalepoint/dist/cli.js';
      const version = await node(program, '--version');
      const sample = resolve(root, 'web/demo/public/samples/digits.safetensors');
      await node(program, 'quantize', sample, '--to', 'int8', '-o', 'result.safetensors');
      await node(program, 'verify', 'result.safetensors');
      say(`${version.trim()} in Node ${process.versions.node} on ${process.platform}: the app gave ${result.hash}`);
    });
    const { startVitest } = await import('vitest/node');
    process.env.SCALEPOINT_PACKAGE = resolve(place.folder, 'node_modules/scalepoint');
    const vitest = await startVitest('test', packedTests, { root, run: true, watch: false, project: ['node'] });
    await vitest.close();
  } finally {
    place.remove();
  }
} catch (error) {
  explain(error);
  process.exitCode = 1;
}
