// Groups of chunks that are loaded together.
import { expect, it } from 'vitest';
import { groupsOf } from '../../../../web/demo/shared/chunks.mjs';
import { xorshift } from '../../support/xorshift.js';

/** A chunk of a size. */
const chunk = (
  fileName: string,
  size: number,
  imports: string[] = [],
  dynamicImports: string[] = [],
  isEntry = false,
) => ({
  fileName,
  code: ' '.repeat(size),
  imports,
  dynamicImports,
  isEntry,
});
const entry = (fileName: string, imports: string[], dynamicImports: string[] = []) =>
  chunk(fileName, 100, imports, dynamicImports, true);
const grouped = (chunks: Parameters<typeof groupsOf>[0]) =>
  groupsOf(chunks)
    .map((names) => names.sort().join(' '))
    .sort();

it('joins chunks that are always loaded together, though one is imported by a later entry, too', () => {
  const chunks = [
    entry('page', ['a', 'b'], ['later']),
    chunk('a', 90_000),
    chunk('b', 90_000),
    chunk('later', 90_000, ['b']),
  ];
  expect(grouped(chunks)).toEqual(['a b', 'later']);
});

it('joins a small chunk with one that others do not need, and leaves a large one alone', () => {
  const chunks = [
    entry('one', ['both', 'small', 'large']),
    entry('two', ['both']),
    chunk('both', 90_000),
    chunk('small', 1_000),
    chunk('large', 90_000),
  ];
  expect(grouped(chunks)).toEqual(['both', 'large small']);
  expect(
    grouped(
      chunks
        .filter(({ fileName }) => fileName !== 'large')
        .map((one) => ({ ...one, imports: one.imports.filter((name) => name !== 'large') })),
    ),
  ).toEqual(['both small']);
});

it('brings no page to another one', () => {
  const chunks = [entry('one', ['a', 'b']), entry('two', ['b']), chunk('a', 500, ['one']), chunk('b', 500)];
  expect(grouped(chunks)).toEqual(['a', 'b']);
});

it('makes no circle', () => {
  const next = xorshift(1);
  const draw = () => next() / 2 ** 32;
  for (let graph = 0; graph < 300; graph++) {
    const names = Array.from({ length: 9 }, (_, i) => `c${i}`);
    const some = (from: readonly string[], share: number) => from.filter(() => draw() < share);
    const chunks = [
      ...['one', 'two', 'three'].map((name) => entry(name, some(names, 0.3), some(names, 0.1))),
      ...names.map((name, i) =>
        chunk(name, Math.round(2 ** (4 + 12 * draw())), some(names.slice(i + 1), 0.2), some(names, 0.05)),
      ),
    ];
    const groups = groupsOf(chunks);
    const groupOf = (name: string) => groups.findIndex((group) => group.includes(name));
    const importsOf = (group: number) =>
      new Set(
        chunks
          .filter(({ fileName }) => groupOf(fileName) === group)
          .flatMap(({ imports }) => imports.map(groupOf).filter((other) => other !== group)),
      );
    for (const start of groups.keys()) {
      const reached = importsOf(start);
      for (const one of reached) for (const other of importsOf(one)) reached.add(other);
      expect(reached.has(start)).toBe(false);
    }
  }
});
