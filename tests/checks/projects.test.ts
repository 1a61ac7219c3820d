// The groups of tests. `npm test` does not run a file again whose files, and those of its group, are those of its last pass, so a file that
// a test reads and its group does not name would hide a failure.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { reached } from '../../scripts/reach.mjs';
import { filesAt } from '../../scripts/stamps.mjs';
import { chromium, inNode, testsOf } from '../projects.mjs';

const tests = filesAt(['tests']).filter((path) => path.endsWith('.test.ts'));

describe.each([...inNode, chromium])('the project $name', (project) => {
  it('names all files that its tests read', () => {
    const without = project.reads.filter((path) => path.startsWith('!')).map((path) => path.slice(1));
    const inside = project.reads.filter((path) => !path.startsWith('!'));
    const read = new Set(filesAt(inside, without));
    const mine = testsOf(project, tests);
    expect(mine.length).toBeGreaterThan(0);
    const missing = mine.flatMap((test) =>
      reached(test)
        .filter((file) => !read.has(file))
        .map((file) => `${test}: ${file}`),
    );
    expect(missing).toEqual([]);
  });
});

it('names each quick and slow file once that is there', () => {
  for (const project of [...inNode, chromium]) {
    const { name, reads, quick = [], slow = [] } = project;
    const mine = testsOf(project, tests);
    for (const pattern of [...quick, ...slow])
      expect(testsOf({ name, reads, include: [pattern] }, mine), pattern).not.toEqual([]);
  }
});

it('needs nothing for quick files but the clone, npm and llama.cpp', () => {
  const needs =
    /SCALEPOINT_SAMPLES|tests\/(?:transformers|types)\/|\.\.\/(?:transformers|types)\/|\bneedTokenizers\(\)/;
  const quick = [...inNode, chromium].flatMap((project) => testsOf(project, tests, false));
  // Checks read the whole tree, and this one says the names itself.
  const found = quick
    .filter((test) => !test.startsWith('tests/checks/'))
    .flatMap((test) =>
      reached(test)
        .filter((file) => /^tests\/.*\.ts$/.test(file))
        .map((file) => ({ test, file })),
    )
    .filter(({ file }) => needs.test(readFileSync(file, 'utf8')));
  expect(found).toEqual([]);
});

it('has each test in a project', () => {
  const some = new Set([...inNode, chromium].flatMap((project) => testsOf(project, tests)));
  expect(tests.filter((test) => !some.has(test))).toEqual([]);
});
