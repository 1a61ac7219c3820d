// `npm run format`: Biome for JavaScript, TypeScript and JSON, and clang-format for C++.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { findProgram } from './emscripten.mjs';
import { setup } from './setup.mjs';
import { explain, mustRun, root, StepError, step } from './steps.mjs';

/** The C++ files in a folder and its folders. @param {string} folder */
const sources = (folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(h|cpp)$/.test(name))
    .map((name) => join(folder, name));

try {
  await setup({ test: false, build: false });
  await step('Biome', () => mustRun('node_modules/.bin/biome', ['check', '--write']));
  await step('clang-format', async () => {
    if (findProgram('clang-format') === undefined) {
      throw new StepError(
        'clang-format is not on PATH',
        'Install it (Debian, Homebrew and npm have it), then try again.',
      );
    }
    const files = ['cpp', 'tests/cpp', 'web/src/bench'].flatMap(sources);
    await mustRun('clang-format', ['-i', ...files]);
  });
} catch (error) {
  explain(error);
  process.exitCode = 1;
}
