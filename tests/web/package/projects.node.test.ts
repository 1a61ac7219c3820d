// The groups of tests. `npm test` does not run a group again whose files are those of its last pass, so a file that a test reads and its
// group does not name would hide a failure.
import { readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { filesAt } from '../../../scripts/stamps.mjs';
import { chromium, inNode, type Project } from '../../projects.mjs';

const root = fileURLToPath(new URL('../../..', import.meta.url));

/** A file of the project, by a path from another file or from the root; sources are TypeScript under the name of their JavaScript. */
function fileAt(from: string, specifier: string): string | undefined {
  const path = relative(root, join(root, from, specifier));
  // Stamps, and what scripts build on the way to the wasm files, follow from sources.
  if (/^\.\.|^build\/(?:stamps|wasm)\/|node_modules/.test(path)) return undefined;
  const isFile = (name: string) => statSync(join(root, name), { throwIfNoEntry: false })?.isFile() === true;
  return [path, path.replace(/\.(m?)js$/, '.$1ts'), path.replace(/\.js$/, '.mjs')].find(isFile);
}

const known = new Map<string, string[]>();
/** The files that a program imports, and those whose path it says: from its folder, or from the root. */
function namedBy(file: string): string[] {
  const before = known.get(file);
  if (before !== undefined) return before;
  const code = readFileSync(join(root, file), 'utf8').replace(/^ *\/\/.*$|\/\*[\s\S]*?\*\//gm, '');
  const strings = [...code.matchAll(/(['"`])([\w@./-]+\.\w+)\1/g)].map(([, , text = '']) => text);
  const found = strings.flatMap((text) => {
    const here = fileAt(dirname(file), text);
    // Names of files that a test makes are like names in the root: only paths with a folder count there.
    const there = text.includes('/') && !text.startsWith('.') ? fileAt('', text) : undefined;
    return [text.startsWith('.') ? here : undefined, there].filter((path) => path !== undefined);
  });
  known.set(file, found);
  return found;
}

/** All files that a test can reach in this way, through tests and scripts. What it reaches in the library is in `web/src` as a whole. */
function reached(test: string): string[] {
  const seen = new Set([test]);
  for (const file of seen) {
    if (/^(tests|scripts|web\/demo)\/.*\.(ts|mjs|js)$/.test(file)) for (const next of namedBy(file)) seen.add(next);
  }
  return [...seen];
}

/** A pattern of paths as a regular expression: `**` is any number of folders, `*` a part of a name, `{a,b}` one of several. */
function patternOf(glob: string): RegExp {
  const source = glob
    .replace(/[.+^$()|[\]\\]/g, '\\$&')
    .replace(/\{([^}]*)\}/g, (_, names: string) => `(?:${names.replaceAll(',', '|')})`)
    .replace(/\*\*\/|\*/g, (star) => (star === '*' ? '[^/]*' : '(?:.*/)?'));
  return new RegExp(`^${source}$`);
}

const tests = filesAt(['tests']).filter((path) => path.endsWith('.test.ts'));

/** The tests of a project. */
const testsOf = ({ include, exclude = [] }: Project) =>
  tests.filter(
    (path) =>
      [include, exclude].map((globs) => globs.some((glob) => patternOf(glob).test(path))).join() === 'true,false',
  );

describe.each([...inNode, chromium])('the project $name', (project) => {
  it('names all files that its tests read', () => {
    const without = project.reads.filter((path) => path.startsWith('!')).map((path) => path.slice(1));
    const inside = project.reads.filter((path) => !path.startsWith('!'));
    const read = new Set(filesAt(inside, without));
    const mine = testsOf(project);
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
  const some = new Set([...inNode, chromium].flatMap(testsOf));
  expect(tests.filter((test) => !some.has(test))).toEqual([]);
});
