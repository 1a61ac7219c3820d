// The groups of tests. `npm test` does not run a file again whose files, and those of its group, are those of its last pass, so a file that
// a test reads and its group does not name would hide a failure.
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

it('has each test in a project', () => {
  const some = new Set([...inNode, chromium].flatMap((project) => testsOf(project, tests)));
  expect(tests.filter((test) => !some.has(test))).toEqual([]);
});
