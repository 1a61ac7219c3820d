// The workflows of GitHub name scripts, versions and actions of others. They run elsewhere, so what can be checked here is.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { filesAt } from '../../scripts/stamps.mjs';
import { inNode, packedTests, testsOf } from '../projects.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const read = (path: string) => readFileSync(join(root, path), 'utf8');
const { scripts, engines } = JSON.parse(read('package.json')) as {
  scripts: Record<string, string>;
  engines: { node: string };
};
const files = readdirSync(join(root, '.github'), { recursive: true, encoding: 'utf8' }).filter((name) =>
  name.endsWith('.yml'),
);
const workflows = files.map((name) => ({ name, text: read(join('.github', name)) }));
const found = (pattern: RegExp, text: string) => [...text.matchAll(pattern)].map(([, ...groups]) => groups.join(''));

describe.each(workflows)('$name', ({ text }) => {
  it('pins actions of others by a commit, with the version in a comment', () => {
    const actions = found(/\buses: (?!\.\/)(.*)/g, text);
    expect(actions.filter((action) => !/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(action))).toEqual([]);
  });

  it('leaves no credentials in the checkout', () => {
    const checkouts = found(/\buses: actions\/checkout@.*\n(.*\n.*\n)/g, text);
    expect(checkouts.filter((next) => !/^ +with:\n +persist-credentials: false\n$/.test(next))).toEqual([]);
  });

  it('runs scripts that are there', () => {
    const names = found(/\bnpm (?:run ([\w:-]+)|(test)\b)/g, text);
    expect(names.filter((name) => scripts[name] === undefined)).toEqual([]);
    const programs = found(/\bnode (scripts\/[\w./-]+)/g, text);
    for (const program of programs) expect(read(program)).not.toBe('');
  });

  it('takes versions of Node that the package supports', () => {
    const [, least] = /^>=(\d+)/.exec(engines.node) ?? [];
    const versions = [
      ...found(/\bcontainer: node:(\d+)/g, text),
      ...found(/\bnode-version: (\d+)/g, text),
      ...found(/^ +node: \[(.*)\]/gm, text).flatMap((list) => list.split(', ')),
    ].map(Number);
    expect(versions.filter((version) => !(version >= Number(least)))).toEqual([]);
  });
});

it('tests the oldest Node that the package supports, and newer ones', () => {
  const [versions = ''] = found(/^ +node: \[(.*)\]/gm, read('.github/workflows/test.yml'));
  const numbers = versions.split(', ').map(Number);
  expect(`>=${Math.min(...numbers)}`).toBe(engines.node.replace(/\..*/, ''));
  expect(numbers.length).toBeGreaterThan(2);
});

it('pins an action by the same commit everywhere', () => {
  const commits = new Map<string, Set<string>>();
  for (const { text } of workflows) {
    for (const [, action = '', commit = ''] of text.matchAll(/\buses: ([\w/-]+)@(.*)/g))
      commits.set(action, (commits.get(action) ?? new Set()).add(commit));
  }
  expect(commits.size).toBeGreaterThan(5);
  expect([...commits].filter(([, each]) => each.size > 1)).toEqual([]);
});

it('releases only what the tests passed', () => {
  const release = read('.github/workflows/release.yml');
  expect(release).toContain('uses: ./.github/workflows/test.yml');
  expect(release).toMatch(/\n {2}build:\n {4}needs: test\n/);
  for (const job of ['site', 'package']) expect(release).toMatch(new RegExp(`\\n {2}${job}:\\n {4}needs: build\\n`));
});

it('finds the tests of a packed package in the project node', () => {
  const node = inNode.find(({ name }) => name === 'node')!;
  const tests = testsOf(node, filesAt(['tests']));
  expect(packedTests.filter((path) => !tests.includes(path))).toEqual([]);
});
