// `npm test` and `npm run test:full`: install what is missing, build, and run the projects of Vitest (tests/projects.mjs), of which one holds
// the C++ tests and another one all checks.
//
//   npm test                  the quick files of each project, which need nothing but the clone
//   npm run test:full         all files
//   npm test -- linear        of all files only some tests: C++ tests with this in their name, web tests with this in their file's path
//
// A test that is skipped without a reason in tests/skipped.mjs counts as failed.
//
// Written by hand because Vitest has no memory of what passed: a test file that passed is not run again while it, the tests that it imports
// and the other files of its project are the same, and its counts of then are added. Without build/stamps everything runs. The last line is
// `N passed, N failed`, also if something breaks the run off.

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { chromium, inNode, testsOf } from '../tests/projects.mjs';
import { reasonToSkip } from '../tests/skipped.mjs';
import { buildEarly } from './build.mjs';
import { Outcome, sumOf, unfinished } from './counts.mjs';
import { reached } from './reach.mjs';
import { setup } from './setup.mjs';
import { digestOf, filesAt, keepStamp, stampOf } from './stamps.mjs';
import { run as execute, explain, mustRun, root, step } from './steps.mjs';

/** @typedef {import('./counts.mjs').Counts} Counts */

/** A run that takes longer hangs. A machine that does other work needs more than an hour. */
const timeLimit = 180 * 60_000;

const outcome = new Outcome();

const [filter, ...rest] = process.argv.slice(2).filter((argument) => argument !== '--full');
if (filter?.startsWith('-') || rest.length > 0) {
  console.error('Usage: npm test [-- <part of a name>]\n       npm run test:full');
  process.exit(1);
}
const full = process.argv.includes('--full') || filter !== undefined;

/** Text of what each outcome depends on outside of the project: Node, and llama.cpp. */
const surroundings = () => `${process.version} ${isInstalled('llama')}`;

/** True if the packages of a folder of tests are there. @param {string} name */
const isInstalled = (name) => existsSync(join(root, 'tests', name, 'node_modules'));

/** A digest of the sample models by size and time, for tests that read them. */
function sampleState() {
  const folder = process.env.SCALEPOINT_SAMPLES;
  if (folder === undefined || !existsSync(folder)) return '';
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort();
  const states = files
    .map((name) => [name, statSync(join(folder, name))])
    .map(([name, { size, mtimeMs }]) => `${name} ${size} ${mtimeMs}`);
  return createHash('sha256').update(`${folder} ${states}`).digest('hex');
}

/** @type {Map<string, string>} */
const digests = new Map();

/** A digest of some files. Each is read once. @param {string[]} files */
function digestOfAll(files) {
  const hash = createHash('sha256');
  for (const file of files) {
    const digest = digests.get(file) ?? digestOf([file]);
    digests.set(file, digest);
    hash.update(digest);
  }
  return hash.digest('hex');
}

/** Text of what some programs of tests name that only the full run has: sample models, and packages that are large. @param {string[]} files */
function extrasOf(files) {
  const programs = files
    .filter((file) => /^tests\/.*\.ts$/.test(file))
    .map((file) => readFileSync(join(root, file), 'utf8'));
  const names = (/** @type {RegExp} */ pattern) => programs.some((code) => pattern.test(code));
  const packages = ['transformers', 'types'].map((name) => names(new RegExp(`\\b${name}/`)) && isInstalled(name));
  return `${packages} ${names(/SCALEPOINT_SAMPLES/) ? sampleState() : ''}`;
}

/**
 * For each test file of a project a text that changes with each file that may decide its outcome. Programs of tests count for the tests that
 * reach them, all other files of the project for all of its tests.
 * @param {import('../tests/projects.mjs').Project} project @param {string[]} tests all test files @param {string} around
 * @returns {Map<string, string>}
 */
function statesOf(project, tests, around) {
  const { reads, readsTests = false } = project;
  const without = reads.filter((path) => path.startsWith('!')).map((path) => path.slice(1));
  const inside = filesAt(
    reads.filter((path) => !path.startsWith('!')),
    without,
  );
  const files = new Map(testsOf(project, tests).map((test) => [test, reached(test).sort()]));
  const ofSome = new Set([
    ...tests,
    ...[...files.values()].flat().filter((file) => /^tests\/.*\.(ts|mjs|js)$/.test(file)),
  ]);
  const common = digestOfAll(readsTests ? inside : inside.filter((file) => !ofSome.has(file)));
  return new Map([...files].map(([test, own]) => [test, `${around} ${common} ${digestOfAll(own)} ${extrasOf(own)}`]));
}

/** True if a C++ test has a text in its name, `suite.test`. @param {string} text */
function isInCpp(text) {
  const files = filesAt(['tests/cpp']).map((path) => readFileSync(join(root, path), 'utf8'));
  const names = files.flatMap((code) => [...code.matchAll(/^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)/gm)]);
  return names.some(([, suite, name]) => `${suite}.${name}`.includes(text));
}

/** @param {{ moduleId: string }} module */
const fileOf = ({ moduleId }) => relative(root, moduleId).replaceAll('\\', '/');

/** Counts of a file. One that cannot be loaded has no tests, and counts as one. @param {import('vitest/node').TestModule} module */
function countsOf(module) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  if (module.errors().length > 0) counts.failed++;
  for (const test of module.children.allTests()) {
    const { state } = test.result();
    const isExcused =
      state !== 'skipped' || filter !== undefined || reasonToSkip(fileOf(module), test.fullName) !== undefined;
    if (!isExcused)
      console.error(`skipped without a reason in tests/skipped.mjs: ${fileOf(module)} > ${test.fullName}`);
    // A test without a result did not come to its end.
    counts[state === 'pending' || !isExcused ? 'failed' : state]++;
  }
  return counts;
}

/**
 * Runs some projects.
 * @param {string[]} names @param {string[]} parts of paths: a file runs if one of them is in its path; without parts all run
 * @param {(project: string, file: string) => boolean} wanted the files to run
 * @returns {Promise<Map<string, Map<string, Counts>>>} counts of the files of each project, and of what failed outside of tests
 */
async function run(names, parts, wanted = () => true) {
  const { createVitest } = await import('vitest/node');
  const vitest = await createVitest('test', { root, run: true, watch: false, project: names });
  vitest.reporters.push({ onTestModuleEnd: (module) => outcome.add(countsOf(module)) });
  await vitest.standalone();
  /** Vitest adds the name of the browser to that of the project. @param {{ project: { name: string }, moduleId: string }} entry */
  const placeOf = ({ project, moduleId }) =>
    /** @type {const} */ ([String(project.name.split(' ')[0]), fileOf({ moduleId })]);
  const all = await vitest.globTestSpecifications(parts);
  const specifications = all.filter((entry) => wanted(...placeOf(entry)));
  if (specifications.length > 0) await vitest.runTestSpecifications(specifications, true);
  /** @type {Map<string, Map<string, Counts>>} */
  const results = new Map(names.map((name) => [name, new Map()]));
  for (const module of vitest.state.getTestModules()) {
    const [name, file] = placeOf(module);
    results.get(name)?.set(file, countsOf(module));
  }
  const errors = { ...unfinished, failed: vitest.state.getUnhandledErrors().length };
  await vitest.close();
  return results.set('outside of tests', new Map([['', errors]]));
}

/** Runs the tests that the filter leaves. @param {string} text @returns {Promise<Counts>} */
async function runSome(text) {
  const cpp = isInCpp(text);
  process.env.GTEST_FILTER = `*${text}*`;
  const projects = [...inNode, chromium].map(({ name }) => name).filter((name) => name !== 'cpp' || cpp);
  const results = await run(projects, cpp ? [text, 'tests/cpp/'] : [text]);
  const counts = sumOf([...results.values()].flatMap((files) => [...files.values()]));
  return counts.passed + counts.failed === 0 ? unfinished : counts;
}

/** @typedef {{ state: string, counts: Counts }} Pass the last time that a test file passed */

/** The passes of a project by test file. @param {string} name @returns {Record<string, Pass>} */
function passesOf(name) {
  try {
    return JSON.parse(stampOf(`test-${name}`) ?? '{}');
  } catch {
    // A file of another version of this script.
    return {};
  }
}

/**
 * The test files of some projects that this run is for, in their present state, and the passes of those that passed in it; also the passes of
 * files that this run is not for.
 * @param {import('../tests/projects.mjs').Project[]} some
 */
function known(some) {
  const around = surroundings();
  const tests = filesAt(['tests']).filter((path) => path.endsWith('.test.ts'));
  return some.map((project) => {
    const all = statesOf(project, tests, around);
    const wanted = new Set(testsOf(project, tests, full));
    const valid = Object.entries(passesOf(project.name)).filter(([file, { state }]) => all.get(file) === state);
    return {
      name: project.name,
      states: new Map([...all].filter(([file]) => wanted.has(file))),
      passes: new Map(valid.filter(([file]) => wanted.has(file))),
      others: new Map(valid.filter(([file]) => !wanted.has(file))),
    };
  });
}

/**
 * Compiles the C++ tests if they are to run. They need nothing that the build makes, and the build leaves processors idle at times. An error
 * is that of tests/cpp/native.ts, which does the same.
 */
async function compileTests() {
  const isOpen = () =>
    known(inNode.filter(({ name }) => name === 'cpp')).some(({ states, passes }) => passes.size < states.size);
  if (filter === undefined ? !isOpen() : !isInCpp(filter)) return;
  const { code } = await execute('cmake', [
    '-S',
    '.',
    '-B',
    'build/native',
    '-G',
    'Ninja',
    '-DSCALEPOINT_BUILD_TESTS=ON',
  ]);
  const target = full ? 'scalepoint_tests' : 'scalepoint_tests_simd';
  if (code === 0)
    await execute('cmake', [
      '--build',
      'build/native',
      '--target',
      target,
      '--parallel',
      String(availableParallelism()),
    ]);
}

/** Runs all test files that changed, or whose project did. @returns {Promise<Counts>} */
async function runAll() {
  const projects = known([...inNode, chromium]);
  for (const { counts } of projects.flatMap(({ passes }) => [...passes.values()])) outcome.add(counts);

  // Run the files without a pass, and keep the passes of these.
  const open = projects.filter(({ states, passes }) => passes.size < states.size);
  const passesBy = new Map(projects.map(({ name, passes }) => [name, passes]));
  const names = open.map(({ name }) => name);
  const wanted = new Map(open.map(({ name, states }) => [name, states]));
  const results =
    names.length === 0
      ? new Map()
      : await run(
          names,
          [],
          (name, file) => wanted.get(name)?.has(file) === true && passesBy.get(name)?.has(file) !== true,
        );
  const isSound = sumOf([...(results.get('outside of tests')?.values() ?? [])]).failed === 0;
  for (const { name, states, passes, others } of open) {
    /** @type {Map<string, Counts>} */
    const ran = results.get(name);
    const kept = new Map([...passes, ...others]);
    for (const [file, state] of states) {
      if (passes.has(file)) continue;
      const found = ran.get(file);
      // A file without tests proves nothing.
      const counts = found === undefined || found.passed + found.failed + found.skipped === 0 ? unfinished : found;
      ran.set(file, counts);
      if (isSound && counts.failed === 0) kept.set(file, { state, counts });
    }
    keepStamp(`test-${name}`, JSON.stringify(Object.fromEntries(kept)));
  }

  // Count.
  const sums = projects.map(({ name, states, passes }) => {
    const counts = sumOf([...[...passes.values()].map((pass) => pass.counts), ...(results.get(name)?.values() ?? [])]);
    const note = passes.size === 0 ? '' : `, ${passes.size} of ${states.size} files unchanged since they passed`;
    return { name, counts, note };
  });
  const errors = results.get('outside of tests');
  if (errors !== undefined) sums.push({ name: 'outside of tests', counts: sumOf([...errors.values()]), note: '' });
  for (const {
    name,
    counts: { passed, failed, skipped },
    note,
  } of sums)
    console.log(`  ${name.padEnd(18)}${passed} passed, ${failed} failed, ${skipped} skipped${note}`);
  return sumOf(sums.map(({ counts }) => counts));
}

setTimeout(() => {
  console.error(`the tests took longer than ${timeLimit / 60_000} minutes`);
  process.exit();
}, timeLimit).unref();
try {
  await setup({
    purpose: full ? 'full' : 'quick',
    early: (programs, packages) => Promise.all([buildEarly(programs, packages), programs.then(compileTests)]),
  });
  const build = mustRun(process.execPath, ['scripts/build.mjs']);
  await step('build', () => Promise.all([build, compileTests()]));
  mkdirSync(join(root, 'build/test'), { recursive: true });
  outcome.finish(filter === undefined ? await runAll() : await runSome(filter));
} catch (error) {
  explain(error);
}
process.exit();
