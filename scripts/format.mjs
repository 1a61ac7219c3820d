// `npm run format`: Biome for JavaScript, TypeScript and JSON, and clang-format for C++.
//
//   node scripts/format.mjs [--check]     --check only says which C++ files differ from .clang-format, as `npm run check:format` does

import { findProgram } from './emscripten.mjs';
import { setup } from './setup.mjs';
import { filesAt } from './stamps.mjs';
import { explain, mustRun, run, StepError, step } from './steps.mjs';

/** Each version of clang-format has a style of its own. */
const version = 14;

/** @throws StepError if the machine has another version, or no clang-format at all */
async function clangFormat() {
  const program = [`clang-format-${version}`, 'clang-format'].find((name) => findProgram(name) !== undefined);
  const found = program === undefined ? 'it is not on PATH' : await mustRun(program, ['--version']);
  if (program === undefined || !found.includes(`version ${version}.`)) {
    const how = `Install it (clang-format-${version} in Debian and Ubuntu, clang-format==${version}.0.6 in PyPI), then try again.`;
    throw new StepError(`clang-format ${version} is needed; ${found.trim()}`, how);
  }
  return program;
}

const files = filesAt(['cpp', 'scripts', 'tests/cpp', 'tests/fuzz', 'web/src']).filter((path) =>
  /\.(h|cpp)$/.test(path),
);

try {
  if (process.argv.includes('--check')) {
    const { code, output } = await run(await clangFormat(), ['--dry-run', '-Werror', ...files]);
    if (code !== 0) throw new StepError('C++ files differ from .clang-format: npm run format', output);
    console.log(`${files.length} files of C++ have the format of .clang-format`);
  } else {
    await setup({ purpose: 'start', build: false });
    await step('Biome', () => mustRun('node_modules/.bin/biome', ['check', '--write']));
    await step('clang-format', async () => mustRun(await clangFormat(), ['-i', ...files]));
  }
} catch (error) {
  explain(error);
  process.exitCode = 1;
}
