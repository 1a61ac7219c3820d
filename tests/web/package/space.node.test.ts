// The folder of a static Space, out of a site.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { makeSpace } from '../../../scripts/site/space.mjs';

let home = '';
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'scalepoint-space-'));
  mkdirSync(join(home, 'site', 'model'), { recursive: true });
});
afterEach(() => rmSync(home, { recursive: true }));

it('has the files of the site, and the configuration of the Space', () => {
  const space = { site: join(home, 'site'), folder: join(home, 'space'), license: 'MIT' };
  expect(() => makeSpace(space)).toThrow('build first');
  writeFileSync(join(home, 'site', 'index.html'), '<!doctype html>');
  writeFileSync(join(home, 'site', 'model', 'index.html'), '<!doctype html><title>Model</title>');
  expect(makeSpace(space)).toBe(3);
  expect(readFileSync(join(home, 'space', 'model', 'index.html'), 'utf8')).toContain('<title>Model');
  const [, head = ''] = /^---\n([\s\S]*?)\n---\n/.exec(readFileSync(join(home, 'space', 'README.md'), 'utf8')) ?? [];
  // Names of headers have to be in lower case, and only these three are allowed.
  const headers = [...head.matchAll(/^ {2}(\S+): /gm)].map(([, name]) => name);
  expect(headers).toEqual(
    ['embedder-policy', 'opener-policy', 'resource-policy'].map((name) => `cross-origin-${name}`),
  );
  for (const line of ['sdk: static', 'app_file: index.html', 'license: mit', 'hf_oauth: true', '- contribute-repos'])
    expect(head.split('\n')).toContain(line);

  // A Space may be made again. Other folders stay as they are.
  expect(makeSpace(space)).toBe(3);
  writeFileSync(join(home, 'space', 'README.md'), '# Mine');
  expect(() => makeSpace(space)).toThrow('holds other files');
});
