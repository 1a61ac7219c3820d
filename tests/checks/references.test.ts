// Files that mirror another project's behavior name the commit or the version that was read, so that later changes there can be found.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const files = ['cpp', 'web/src'].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(h|cpp|ts)$/.test(name))
    .map((name) => join(folder, name)),
);

/** Comments that name a repository, each up to its end or the next repository. */
function references(text: string): string[] {
  const joined = text.replace(/\n\s*(\*|\/\/\/?) /g, ' ');
  return [...joined.matchAll(/github\.com\/[\w-]+\/[\w.-]+?[^\n]*?(?=github\.com\/|\*\/|\n|$)/g)].map(
    ([found]) => found,
  );
}

const namesState = (reference: string) => /(^|[ (^])[0-9a-f]{7,40}\b|\b[vb]?\d+\.\d+|\bb\d{4}\b/.test(reference);

describe('references to other projects', () => {
  it('name a commit or a version', () => {
    const found = files.flatMap((file) =>
      references(readFileSync(join(root, file), 'utf8')).map((text) => ({ file, text })),
    );
    expect(found.length).toBeGreaterThan(50);
    expect(found.filter(({ text }) => !namesState(text))).toEqual([]);
  });

  it('finds one without', () => {
    const [one = ''] = references('// Source: github.com/ggml-org/ggml, src/ggml-quants.c.\nint x;');
    expect(one).toBe('github.com/ggml-org/ggml, src/ggml-quants.c.');
    expect(namesState(one)).toBe(false);
    expect(namesState(`${one} d99724f`)).toBe(true);
  });
});
