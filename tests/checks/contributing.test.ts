// CONTRIBUTING.md names files and identifiers. A reader who follows it must find them.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const guide = readFileSync(join(root, 'CONTRIBUTING.md'), 'utf8');

/** The text of a section, without its heading. */
function section(title: string): string {
  const [, text = ''] = guide.split(`\n## ${title}\n`);
  return text.split('\n## ')[0] ?? '';
}

const quoted = (text: string) => [...text.matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code);
const isPath = (code: string) => /^(cpp|web|tests|scripts)\/[\w./*-]*$/.test(code);

/** Paths with NAME stand for a new file: the folder has to have others of the kind. */
function holds(path: string): boolean {
  if (!/NAME|\*/.test(path)) return existsSync(join(root, path));
  const folder = path.slice(0, path.lastIndexOf('/'));
  const pattern = new RegExp(
    `^${path
      .slice(folder.length + 1)
      .replaceAll('.', '[.]')
      .replace(/NAME|\*/g, '.+')}$`,
  );
  return existsSync(join(root, folder)) && readdirSync(join(root, folder)).some((name) => pattern.test(name));
}

/** The recipes of "To add …", each with its title. */
const recipes = section('To add …')
  .split(/\n(?=\*\*)/)
  .flatMap((text) => {
    const [, title] = /^\*\*(.+?)\*\*/.exec(text) ?? [];
    return title === undefined ? [] : [{ title: title.replace(/\.$/, ''), text }];
  });

describe('the README of a room', () => {
  const rooms = ['cpp', 'web/demo', ...readdirSync(join(root, 'web/src')).map((name) => `web/src/${name}`)];
  it.each(rooms.filter((room) => existsSync(join(root, room, 'README.md'))))('%s names what exists', (room) => {
    const paths = quoted(readFileSync(join(root, room, 'README.md'), 'utf8')).filter((code) =>
      /^[\w./-]+(\/|\.(ts|mjs|cpp|h|cmake|css|html))$/.test(code),
    );
    expect(paths.length).toBeGreaterThan(2);
    const bases = ['', 'web/src', room];
    expect(paths.filter((path) => !bases.some((base) => holds(join(base, path))))).toEqual([]);
  });
});

describe('the guide for contributors', () => {
  it('names files and folders that are there', () => {
    const paths = quoted(guide).filter(isPath);
    expect(paths.length).toBeGreaterThan(60);
    expect(paths.filter((path) => !holds(path))).toEqual([]);
  });

  it('has a recipe for each usual change', () => {
    const titles = recipes.map(({ title }) => title.toLowerCase()).join('; ');
    for (const word of [
      'format',
      'layout',
      'architecture',
      'onnx target',
      'codec',
      'block type',
      'packed codes',
      'range method',
    ])
      expect(titles).toContain(word);
    for (const word of ['tier', 'flag', 'option', 'error text', 'panel']) expect(titles).toContain(word);
  });

  it.each(recipes)('finds the identifiers of "$title" in the files that it names', ({ text }) => {
    const paths = quoted(text).filter((code) => isPath(code) && holds(code) && !/NAME|\*/.test(code));
    expect(paths.length).toBeGreaterThan(0);
    const files = paths.filter((path) => statSync(join(root, path)).isFile());
    const code = files.map((path) => readFileSync(join(root, path), 'utf8')).join('\n');
    // Identifiers of declarations; words in lower case may be keys of an object in any of the files.
    const identifiers = quoted(text).filter((name) => /^(k?[A-Z][a-z]\w+|[a-z]+[A-Z]\w+)$/.test(name));
    expect(identifiers.filter((name) => !new RegExp(`\\b${name}\\b`).test(code))).toEqual([]);
  });

  it('has a row for each folder of the sources', () => {
    const rooms = section('Rooms and arrows');
    const folders = (path: string) =>
      readdirSync(join(root, path), { withFileTypes: true }).flatMap((entry) =>
        entry.isDirectory() ? [entry.name] : [],
      );
    const missing = [
      ...folders('cpp').map((name) => `cpp/${name}/`),
      ...folders('web/src').map((name) => `web/src/${name}/`),
    ];
    expect(missing.filter((path) => !rooms.includes(`\`${path}\``))).toEqual([]);
  });
});
