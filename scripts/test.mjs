// `npm test`: builds everything, then runs every check and every test, and adds up what they say.
//
//   npm test                  all of it
//   npm test -- linear        only tests: C++ tests with this in their name, web tests with this in their file's path
//
// The C++ tests, the checks of types and of the wasm code, and those of the web tests that have nothing to do with the page depend on
// nothing but some files. Where these are the same as when all passed, the counts of then are given again, and the line says so. Without
// build/stamps everything runs.
//
// The last line is `N passed, N failed`. Every test of every runner counts, and each check counts as one. A runner that
// crashes, hangs or runs nothing counts as failed, and so does what could not run because something before it failed.

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setup } from './setup.mjs';
import { digestOf, dropStamp, filesAt, keepStamp, stampOf } from './stamps.mjs';
import { explain, mustRun, paint, root, run, StepError, step } from './steps.mjs';
import { filesOf } from './web_files.mjs';

/** @typedef {{ passed: number, failed: number, skipped?: number, note?: string, output?: string }} Counts */

const bin = 'node_modules/.bin';
const reports = join(root, 'build/test');
const filter = process.argv[2];
const total = { passed: 0, failed: 0 };
if (filter?.startsWith('-')) {
  console.error('Usage: npm test [-- <part of a name>]');
  process.exit(2);
}

/** @param {Counts} counts */
const noteOf = ({ note, passed, skipped }) => note ?? `${passed} passed${skipped ? `, ${skipped} skipped` : ''}`;

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
      say(noteOf(counts));
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

/**
 * What the outcome of tests depends on, as a line of text.
 * @param {string[]} files and folders, as paths from the root
 * @param {string} more what else
 */
const stateOf = (files, more = '') => `${process.version} ${more} ${digestOf(filesAt(files))}\n`;

/** The counts of when all ran and passed in this state; undefined if it never did. @param {string} name @param {string} state */
function countsBefore(name, state) {
  const before = stampOf(name);
  if (before?.startsWith(state)) return /** @type {Counts} */ (JSON.parse(before.slice(state.length)));
  dropStamp(name);
  return undefined;
}

/** @param {string} name of the stamp @param {string} state @param {Counts} counts */
function keepCounts(name, state, { passed, failed, skipped }) {
  if (failed === 0) keepStamp(name, state + JSON.stringify({ passed, failed, skipped }));
}

const again = 'with the same files as before';

/**
 * A runner's action that is not repeated where all ran and passed before with the same files.
 * @param {string} name of the stamp
 * @param {string[]} files all that the outcome depends on, as paths from the root
 * @param {() => Promise<Counts>} action
 * @returns {Promise<Counts>}
 */
async function unlessPassed(name, files, action) {
  const state = stateOf(files);
  const before = countsBefore(name, state);
  if (before !== undefined) return { ...before, note: `${noteOf(before)}, ${again}` };
  const counts = await action();
  if (!counts.skipped) keepCounts(name, state, counts);
  return counts;
}

/** Files of a folder and its folders whose names end so, as paths from the root. @param {string} folder @param {string} end */
const filesIn = (folder, end) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(end))
    .map((name) => join(folder, name));

/** Whether a C++ test has the filter in its name, `suite.test`. */
function matchesCpp() {
  if (filter === undefined) return true;
  const names = filesIn('tests/cpp', '.cpp').flatMap((path) => {
    const found = readFileSync(join(root, path), 'utf8').matchAll(/^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)/gm);
    return [...found].map(([, suite, name]) => `${suite}.${name}`);
  });
  return names.some((name) => name.includes(filter));
}

/** The files of web tests with the filter in their path; undefined without a filter. */
const webFiles =
  filter === undefined
    ? undefined
    : ['tests/web', 'tests/fuzz']
        .flatMap((folder) => filesIn(folder, '.test.ts'))
        .filter((path) => path.includes(filter));

/** How many imports dependency-cruiser looked at; an error if there were none. @param {string} text */
function arrowsNote(text) {
  const note = /\d+ modules, [1-9]\d* dependencies/.exec(text)?.[0];
  if (note === undefined) throw new StepError('dependency-cruiser found no imports', text);
  return note;
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
  const counts = () => ctest(executables);
  if (filter !== undefined) return counts();
  return unlessPassed('cpp-tests', [...executables.map((name) => `build/native/${name}`), 'tests/golden'], counts);
}

/** Runs the C++ tests that the filter leaves. @param {string[]} executables @returns {Promise<Counts>} */
async function ctest(executables) {
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

/** @typedef {{ name: string, status: string, assertionResults: { status: string }[] }} TestFile what Vitest reports of a file */

/** @param {readonly TestFile[]} files @returns {Required<Pick<Counts, 'passed' | 'failed' | 'skipped'>>} */
function countsOf(files) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const { status, assertionResults } of files) {
    // A file that cannot even be loaded has no tests to count.
    if (status === 'failed' && assertionResults.length === 0) counts.failed++;
    for (const test of assertionResults)
      counts[test.status === 'passed' || test.status === 'failed' ? test.status : 'skipped']++;
  }
  return counts;
}

/**
 * Counts of tests in Node and in Chromium.
 * @param {string} name of the report
 * @param {string[]} args which tests, as Vitest takes them
 * @returns {Promise<Counts & { files?: TestFile[] }>}
 */
async function vitest(name, args) {
  const path = join(reports, `${name}.json`);
  rmSync(path, { force: true });
  const { code, output } = await run(`${bin}/vitest`, [
    'run',
    '--reporter=dot',
    '--reporter=json',
    `--outputFile.json=${path}`,
    ...args,
  ]);
  if (!existsSync(path)) return { passed: 0, failed: 1, output };
  /** @type {TestFile[]} */
  const files = JSON.parse(readFileSync(path, 'utf8')).testResults;
  const counts = countsOf(files);
  // Errors outside of tests, or no tests at all.
  if (counts.failed === 0 && (code !== 0 || counts.passed === 0)) counts.failed = 1;
  return { ...counts, files, output };
}

const node = process.execPath;
const build = verdict(node, ['scripts/build.mjs'], () => 'WebAssembly core, package, page');
const types = verdict(`${bin}/tsc`, ['-p', 'tsconfig.json']);
const wasmCode = verdict(node, ['scripts/check_wasm.mjs'], lastLine);
const typed = [
  'web',
  'tests',
  'scripts',
  'package-lock.json',
  'tsconfig.json',
  'vite.config.ts',
  'vitest.config.ts',
  'rolldown.config.mjs',
];
const modules = [
  ...['arrays', 'core'].flatMap((name) =>
    ['simd.wasm', 'simd.mjs.symbols', 'scalar.wasm'].map((end) => `build/wasm/${name}-${end}`),
  ),
  'scripts/check_wasm.mjs',
  'scripts/emscripten.mjs',
];
/** The files of Vitest's project `package`, which are slow: what they are called, and what they read. */
const ofPackage = [
  {
    name: 'package',
    file: 'tests/web/package/package.node.test.ts',
    reads: () => [
      'dist',
      'package.json',
      'package-lock.json',
      'README.md',
      'CHANGELOG.md',
      'scripts',
      'tests/consumers',
    ],
  },
  {
    name: 'package types',
    file: 'tests/web/package/types.node.test.ts',
    reads: () => [
      ...filesIn('dist', '.d.ts'),
      ...['package.json', 'package-lock.json', 'web/demo/guide/reference.mjs'],
      ...['exports.mjs', 'use.mts', 'package-lock.json'].map((name) => `tests/types/${name}`),
    ],
  },
  {
    name: 'sample model',
    file: 'tests/web/package/sample-script.node.test.ts',
    reads: () => [
      ...['scripts/make_sample.mjs', 'web/demo/shared/digits.mjs'],
      'web/demo/public/samples/digits.safetensors',
    ],
  },
];

/** Names, sizes and times of the sample models. */
function samplesState() {
  const folder = process.env.SCALEPOINT_SAMPLES;
  if (folder === undefined || !existsSync(folder)) return 'no samples';
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort();
  const hash = createHash('sha256').update(folder);
  for (const name of names) {
    const { size, mtimeMs } = statSync(join(folder, name));
    hash.update(`${name} ${size} ${mtimeMs}\n`);
  }
  return hash.digest('hex');
}

/** All that Vitest's projects `alone` and `long` depend on, beside the sample models and the packages that only some systems have. */
const sources = ['web/src', 'dist', 'tests', 'scripts', 'package.json', 'package-lock.json', 'vitest.config.ts'];

/**
 * The web tests, or those that the filter leaves. Half of the work is in tests of the core and of model files in Node, which have nothing to
 * do with the page: they are not repeated while only that and the documents change.
 * @returns {Promise<Counts>}
 */
async function webTests() {
  if (webFiles !== undefined) return vitest('web', webFiles);
  const optional = ['llama', 'transformers'].filter((name) => existsSync(join(root, 'tests', name, 'node_modules')));
  const state = stateOf([...sources, 'rolldown.config.mjs'], `${samplesState()} ${optional}`);
  const before = countsBefore('web-tests', state);
  const projects = ['node', 'chromium', ...(before === undefined ? ['alone', 'long'] : [])];
  const { files = [], ...counts } = await vitest(
    'web',
    projects.map((name) => `--project=${name}`),
  );
  if (before !== undefined) {
    const { passed, failed } = { passed: counts.passed + before.passed, failed: counts.failed };
    const skipped = (counts.skipped ?? 0) + (before.skipped ?? 0);
    const note = `${noteOf({ passed, failed, skipped })}, ${before.passed} of them ${again}`;
    return { ...counts, passed, skipped, note };
  }
  const settled = new Set([...filesOf('alone'), ...filesOf('long')].map((path) => join(root, path)));
  const theirs = countsOf(files.filter(({ name }) => settled.has(name)));
  if (theirs.passed > 0) keepCounts('web-tests', state, theirs);
  return counts;
}

const checks = [
  { name: 'types', action: () => unlessPassed('types', typed, types) },
  { name: 'wasm code', action: () => unlessPassed('wasm-code', modules, wasmCode) },
  { name: 'size', action: verdict(node, ['scripts/check_size.mjs'], lastLine) },
  ...ofPackage.map(({ name, file, reads }) => ({
    name,
    action: () => unlessPassed(name.replace(' ', '-'), [file, ...reads()], () => vitest(name, [file])),
  })),
];

/** Runs what needs no build, in turn. */
async function runUnbuilt() {
  if (filter === undefined) {
    await runner('format, lint', verdict(`${bin}/biome`, ['check', '--error-on-warnings']));
    await runner('C++ includes', verdict(node, ['scripts/check_includes.mjs'], lastLine));
    await runner(
      'arrows',
      verdict(`${bin}/depcruise`, ['--config', 'arrows.config.mjs', 'web/src', 'web/demo'], arrowsNote),
    );
  }
  if (matchesCpp()) await runner('C++ tests', cppTests);
}

/** Builds, then runs what needs the build. */
async function runBuilt() {
  if (webFiles?.length === 0) return;
  const built = await runner('build', build);
  const blocked = () => Promise.reject(new StepError('not run, since the build failed'));
  const inTurn = async () => {
    if (filter !== undefined) return;
    for (const { name, action } of checks) await runner(name, built ? action : blocked);
  };
  await Promise.all([inTurn(), runner('web tests', built ? webTests : blocked)]);
}

/** Sets up, builds, and runs everything that the filter leaves, two things at a time. */
async function testAll() {
  if (webFiles?.length === 0 && !matchesCpp()) {
    console.log(`No test has ${filter} in its name.`);
    total.failed++;
    return;
  }
  try {
    await setup({ test: true });
  } catch (error) {
    explain(error);
    total.failed++;
    return;
  }
  mkdirSync(reports, { recursive: true });
  await Promise.all([runUnbuilt(), runBuilt()]);
}

console.log(`${paint('bold', 'Scalepoint tests')}\n`);
await testAll();
console.log(`\n${total.passed} passed, ${total.failed} failed`);
process.exitCode = total.failed === 0 ? 0 : 1;
