// `npm test`: builds everything, then runs every check and every test, and adds up what they say.
//
//   npm test                  all of it
//   npm test -- linear        only tests: C++ tests with this in their name, web tests with this in their file's path
//
// The last line is `N passed, N failed`. Every test of every runner counts, and each check counts as one. A runner that
// crashes, hangs or runs nothing counts as failed, and so does what could not run because something before it failed.

import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setup } from './setup.mjs';
import { explain, mustRun, paint, root, run, StepError, step } from './steps.mjs';

/** @typedef {{ passed: number, failed: number, skipped?: number, note?: string, output?: string }} Counts */

const bin = 'node_modules/.bin';
const reports = join(root, 'build/test');
const filter = process.argv[2];
const total = { passed: 0, failed: 0 };
if (filter?.startsWith('-')) {
  console.error('Usage: npm test [-- <part of a name>]');
  process.exit(2);
}

/**
 * Runs one runner and adds its counts.
 * @param {string} name
 * @param {() => Promise<Counts>} action an error that it throws counts as one failure
 * @returns {Promise<boolean>} whether all went well
 */
async function runner(name, action) {
  /** @type {Counts} */
  let counts = { passed: 0, failed: 1 };
  try {
    await step(name, async (say) => {
      counts = await action();
      if (counts.failed > 0) throw new StepError(`${name}: ${counts.failed} failed`, counts.output);
      say(counts.note ?? `${counts.passed} passed${counts.skipped ? `, ${counts.skipped} skipped` : ''}`);
    });
  } catch (error) {
    explain(error instanceof StepError ? error : new StepError(String(/** @type {Error} */ (error).stack)));
  }
  total.passed += counts.passed;
  total.failed += counts.failed;
  return counts.failed === 0;
}

/**
 * A program that says yes or no, as a runner's action.
 * @param {string} program
 * @param {string[]} args
 * @param {(output: string) => string} [note]
 * @returns {() => Promise<Counts>}
 */
function verdict(program, args, note = () => 'ok') {
  return async () => ({ passed: 1, failed: 0, note: note(await mustRun(program, args)) });
}

/** @param {string} text */
const lastLine = (text) => text.trimEnd().split('\n').at(-1) ?? '';

/**
 * Counts of the C++ tests. Each executable writes a report of its own; without one it did not come to its end.
 * @returns {Promise<Counts>}
 */
async function cppTests() {
  await mustRun('cmake', ['-S', '.', '-B', 'build/native', '-G', 'Ninja']);
  await mustRun('cmake', ['--build', 'build/native']);
  const list = JSON.parse(await mustRun('ctest', ['--test-dir', 'build/native', '--show-only=json-v1']));
  /** @type {string[]} */
  const executables = list.tests.map((/** @type {{ command: string[] }} */ test) => basename(String(test.command[0])));
  if (executables.length === 0) throw new StepError('CMake registered no test');
  const folder = join(reports, 'cpp');
  rmSync(folder, { recursive: true, force: true });
  const { code, output } = await run(
    'ctest',
    ['--test-dir', 'build/native', '--output-on-failure', '--parallel', '2'],
    {
      GTEST_OUTPUT: `json:${folder}/`,
      GTEST_COLOR: 'no',
      GTEST_BRIEF: '1',
      ...(filter === undefined ? {} : { GTEST_FILTER: `*${filter}*` }),
    },
  );
  /** @type {Required<Pick<Counts, 'passed' | 'failed' | 'skipped'>>} */
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const executable of executables) {
    const path = join(folder, `${executable}.json`);
    if (!existsSync(path)) {
      counts.failed++;
      continue;
    }
    const report = JSON.parse(readFileSync(path, 'utf8'));
    const tests = report.testsuites.flatMap((/** @type {{ testsuite: object[] }} */ suite) => suite.testsuite);
    const skipped = tests.filter((/** @type {{ result: string }} */ test) => test.result !== 'COMPLETED').length;
    const failed = tests.filter((/** @type {{ failures?: object[] }} */ test) => test.failures !== undefined).length;
    counts.skipped += skipped;
    counts.failed += failed;
    counts.passed += tests.length - failed - skipped;
    if (tests.length === 0 && filter === undefined) counts.failed++;
  }
  // A leak, for example, is found after the report was written.
  if (code !== 0 && counts.failed === 0) counts.failed = 1;
  return { ...counts, output };
}

/**
 * Counts of the tests in Node and in Chromium.
 * @returns {Promise<Counts>}
 */
async function webTests() {
  const path = join(reports, 'web.json');
  rmSync(path, { force: true });
  const { code, output } = await run(`${bin}/vitest`, [
    'run',
    '--reporter=dot',
    '--reporter=json',
    `--outputFile.json=${path}`,
    ...(filter === undefined ? [] : [filter, '--passWithNoTests']),
  ]);
  if (!existsSync(path)) return { passed: 0, failed: 1, output };
  const report = JSON.parse(readFileSync(path, 'utf8'));
  // A file that cannot even be loaded has no tests to count.
  const broken = report.testResults.filter(
    (/** @type {{ status: string, assertionResults: object[] }} */ file) =>
      file.status === 'failed' && file.assertionResults.length === 0,
  ).length;
  const counts = {
    passed: report.numPassedTests,
    failed: report.numFailedTests + broken,
    skipped: report.numPendingTests + report.numTodoTests,
  };
  // Errors outside of tests, or no tests at all.
  if (counts.failed === 0 && (code !== 0 || (counts.passed === 0 && filter === undefined))) counts.failed = 1;
  return { ...counts, output };
}

const node = process.execPath;
const build = verdict(node, ['scripts/build.mjs'], () => 'WebAssembly core, package, page');
const checks = [
  { name: 'wasm code', needsBuild: true, action: verdict(node, ['scripts/check_wasm.mjs'], lastLine) },
  { name: 'size', needsBuild: true, action: verdict(node, ['scripts/check_size.mjs'], lastLine) },
  { name: 'types', needsBuild: true, action: verdict(`${bin}/tsc`, ['-p', 'tsconfig.json']) },
  { name: 'format, lint', needsBuild: false, action: verdict(`${bin}/biome`, ['check', '--error-on-warnings']) },
];
const tests = [
  { name: 'C++ tests', needsBuild: false, action: cppTests },
  { name: 'web tests', needsBuild: true, action: webTests },
];

/** Sets up, builds, and runs everything that the filter leaves. */
async function testAll() {
  try {
    await setup({ test: true });
  } catch (error) {
    explain(error);
    total.failed++;
    return;
  }
  mkdirSync(reports, { recursive: true });
  const built = await runner('build', build);
  for (const { name, needsBuild, action } of filter === undefined ? [...checks, ...tests] : tests) {
    const blocked = () => Promise.reject(new StepError('not run, since the build failed'));
    await runner(name, needsBuild && !built ? blocked : action);
  }
  if (filter !== undefined && total.passed + total.failed === 1) {
    console.log(`\nNo test has ${filter} in its name.`);
    total.failed++;
  }
}

console.log(`${paint('bold', 'Scalepoint tests')}\n`);
await testAll();
console.log(`\n${total.passed} passed, ${total.failed} failed`);
process.exitCode = total.failed === 0 ? 0 : 1;
