// Every target runs in onnxruntime-node.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { it } from 'vitest';
import { checkEngine, type Engine } from './engines.js';
import { howToInstall } from './transformers.js';

const packages = fileURLToPath(new URL('../../../transformers/node_modules/', import.meta.url));

it('in onnxruntime-node', async ({ skip }) => {
  if (!existsSync(`${packages}onnxruntime-node`)) skip(howToInstall);
  await checkEngine(createRequire(packages)('onnxruntime-node') as Engine, ['disabled', 'all']);
});
