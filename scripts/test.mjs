// `npm test`: installs what is missing, builds, and runs the projects of Vitest (tests/projects.mjs), of which one holds the C++ tests and
// another one all checks.
//
//   npm test                  all of it
//   npm test -- linear        only tests: C++ tests with this in their name, web tests with this in their file's path
//
// Written by hand because Vitest has no memory of what passed: a project whose files are the same as when all of it passed is not run
// again, and its counts of then are added. Without build/stamps everything runs. The last line is `N passed, N failed`.

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { chromium, inNode } from '../tests/projects.mjs';
import { setup } from './setup.mjs';
import { digestOf, dropStamp, filesAt, keepStamp, stampOf } from './stamps.mjs';
import { explain, mustRun, root, step } from './steps.mjs';

/** @typedef {{ passed: number, failed: number, skipped: number }} Counts */

/** A run that takes longer has failed. */
const timeLimit = 60 * 60_000;

/** Counts of a run that did not finish. */
const unfinished = { passed: 0, failed: 1, skipped: 0 };

let total = unfinished;
process.on('exit', () => {
  console.log(`\n${total.passed} passed, ${total.failed} failed`);
  process.exitCode = total.failed === 0 ? 0 : 1;
});

const filter = process.argv[2];
if (filter?.startsWith('-')) {
  console.error('Usage: npm test [-- <part of a name>]');
  process.exit(1);
}

/** A digest of what the outcome depends on outside of the project: Node, sample models by size and time, and optional packages. */
function surroundings() {
  const folder = process.env.SCALEPOINT_SAMPLES;
  const hash = createHash('sha256').update(`${process.version} ${folder}`);
  for (const name of ['llama', 'transformers', 'types'])
    hash.update(` ${name} ${existsSync(join(root, 'tests', name, 'node_modules'))}`);
  if (folder !== undefined && existsSync(folder)) {
    for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort()) {
      const { size, mtimeMs } = statSync(join(folder, name));
      hash.update(`${name} ${size} ${mtimeMs}\n`);
    }
  }
  return hash.digest('hex');
}

/** A line of text that changes with each file that a project reads. @param {string[]} reads @param {string} around */
function stateOf(reads, around) {
  const without = reads.filter((path) => path.startsWith('!')).map((path) => path.slice(1));
  const files = filesAt(
    reads.filter((path) => !path.startsWith('!')),
    without,
  );
  return `${around} ${digestOf(files)}\n`;
}

/** True if a C++ test has a text in its name, `suite.test`. @param {string} text */
function isInCpp(text) {
  const files = readdirSync(join(root, 'tests/cpp')).map((name) => readFileSync(join(root, 'tests/cpp', name), 'utf8'));
  const names = files.flatMap((code) => [...code.matchAll(/^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)/gm)]);
  return names.some(([, suite, name]) => `${suite}.${name}`.includes(text));
}

/** Counts of a project. A file that cannot be loaded has no tests, and counts as one. @param {import('vitest/node').TestModule[]} modules */
function countsOf(modules) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const module of modules) {
    if (module.errors().length > 0) counts.failed++;
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      // A test without a result did not come to its end.
      counts[state === 'pending' ? 'failed' : state]++;
    }
  }
  return counts;
}

/** @param {Counts[]} all @returns {Counts} */
const sumOf = (all) =>
  all.reduce((a, b) => ({ passed: a.passed + b.passed, failed: a.failed + b.failed, skipped: a.skipped + b.skipped }));

/** Runs some projects. @param {string[]} names @param {string[]} files parts of paths @returns {Promise<Map<string, Counts>>} */
async function run(names, files) {
  const { startVitest } = await import('vitest/node');
  const vitest = await startVitest('test', files, { root, run: true, project: names });
  const modules = vitest.state.getTestModules();
  const results = names.map((name) => {
    // Vitest adds the name of the browser to that of the project.
    const counts = countsOf(modules.filter(({ project }) => project.name.split(' ')[0] === name));
    const isEmpty = counts.passed + counts.failed === 0 && files.length === 0;
    return /** @type {const} */ ([name, isEmpty ? unfinished : counts]);
  });
  const errors = { ...unfinished, failed: vitest.state.getUnhandledErrors().length };
  await vitest.close();
  return new Map([...results, ['outside of tests', errors]]);
}

/** Runs the tests that the filter leaves. @param {string} text @returns {Promise<Counts>} */
async function runSome(text) {
  const cpp = isInCpp(text);
  process.env.GTEST_FILTER = `*${text}*`;
  const projects = [...inNode, chromium].map(({ name }) => name).filter((name) => name !== 'cpp' || cpp);
  const results = await run(projects, cpp ? [text, 'tests/cpp/'] : [text]);
  const counts = sumOf([...results.values()]);
  return counts.passed + counts.failed === 0 ? unfinished : counts;
}

/** Runs all projects whose files changed. @returns {Promise<Counts>} */
async function runAll() {
  const around = surroundings();
  const states = new Map([...inNode, chromium].map(({ name, reads }) => [name, stateOf(reads, around)]));
  /** @type {Map<string, Counts>} */
  const settled = new Map();
  for (const [name, state] of states) {
    const before = stampOf(`test-${name}`);
    if (before?.startsWith(state)) settled.set(name, JSON.parse(before.slice(state.length)));
    else dropStamp(`test-${name}`);
  }
  const names = [...states.keys()].filter((name) => !settled.has(name));
  const results = names.length === 0 ? new Map() : await run(names, []);
  const isSound = results.get('outside of tests')?.failed === 0;
  for (const name of names) {
    const counts = results.get(name);
    if (isSound && counts.failed === 0) keepStamp(`test-${name}`, states.get(name) + JSON.stringify(counts));
  }
  for (const [name, { passed, failed, skipped }] of [...settled, ...results]) {
    const note = settled.has(name) ? ', with the same files as before' : '';
    console.log(`  ${name.padEnd(18)}${passed} passed, ${failed} failed, ${skipped} skipped${note}`);
  }
  return sumOf([...settled.values(), ...results.values()]);
}

setTimeout(() => {
  console.error(`the tests took longer than ${timeLimit / 60_000} minutes`);
  process.exit();
}, timeLimit).unref();
try {
  await setup({ test: true });
  await step('build', () => mustRun(process.execPath, ['scripts/build.mjs']));
  mkdirSync(join(root, 'build/test'), { recursive: true });
  total = filter === undefined ? await runAll() : await runSome(filter);
} catch (error) {
  explain(error);
}
process.exit();
