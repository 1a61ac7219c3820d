// A contributor's machine: lockfiles that install on any system, and any Emscripten.
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-checkout-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Entry {
  os?: string[];
  cpu?: string[];
  libc?: string[];
  optional?: boolean;
  integrity?: string;
  resolved?: string;
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
}

it.each(['.', 'scripts/reference'])('%s has a lockfile that installs on any system, with digests', (place) => {
  const { packages } = JSON.parse(readFileSync(join(root, place, 'package-lock.json'), 'utf8'));
  const { '': _, ...entries } = packages as Record<string, Entry>;
  for (const [name, { os, cpu, libc, optional = false, integrity, resolved }] of Object.entries(entries)) {
    expect([os, cpu, libc].some(Boolean) && !optional, `${name} is for one system only`).toBe(false);
    expect(integrity !== undefined || optional, `${name} has no digest`).toBe(true);
    expect(resolved, name).toBeUndefined();
  }
  // `npm ci` refuses a lockfile that lacks the optional packages of another system.
  const listed = new Set(Object.keys(entries).map((path) => path.replace(/^.*node_modules\//, '')));
  const needed = Object.values(entries).flatMap((each) => [each.dependencies ?? {}, each.optionalDependencies ?? {}]);
  expect(needed.flatMap(Object.keys).filter((name) => !listed.has(name))).toEqual([]);
});

/** Puts an empty or executable file there. */
function put(path: string, text = '', mode = 0o644): void {
  const full = join(folder, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, text);
  chmodSync(full, mode);
}

/** The result of `findEmscripten` with these variables. */
function find(variables: Record<string, string>): { version: string; folder: string; binaries: string } | undefined {
  const url = JSON.stringify(new URL('../../../scripts/emscripten.mjs', import.meta.url).href);
  const code = `const { findEmscripten } = await import(${url}); console.log(JSON.stringify(findEmscripten() ?? null));`;
  const env = { PATH: '', ...variables };
  const text = execFileSync(process.execPath, ['--input-type=module', '-e', code], { encoding: 'utf8', env });
  return JSON.parse(text) ?? undefined;
}

describe('Emscripten', () => {
  const emscripten = (name: string) => {
    put(`${name}/cmake/Modules/Platform/Emscripten.cmake`);
    put(`${name}/emscripten-version.txt`, '"4.0.7"\n');
    put(`${name}/node_modules/acorn/package.json`);
  };

  it('is that of PATH, in the folder of emcc', () => {
    emscripten('emsdk/upstream/emscripten');
    put('emsdk/upstream/emscripten/emcc', '', 0o755);
    put('emsdk/upstream/bin/wasm-dis', '', 0o755);
    expect(find({ PATH: join(folder, 'emsdk/upstream/emscripten') })).toMatchObject({
      version: '4.0.7',
      folder: join(folder, 'emsdk/upstream/emscripten'),
      binaries: join(folder, 'emsdk/upstream/bin'),
      variables: {},
    });
  });

  it('is where em-config says', () => {
    emscripten('elsewhere');
    put('bin/em-config', `#!/bin/sh\necho ${join(folder, 'elsewhere')}\n`, 0o755);
    expect(find({ PATH: join(folder, 'bin') })).toMatchObject({ folder: join(folder, 'elsewhere') });
  });

  it('is that beside the programs, as with Homebrew', () => {
    emscripten('cellar/libexec');
    put('cellar/bin/emcc', '', 0o755);
    put('cellar/libexec/binaryen/bin/wasm-dis', '', 0o755);
    expect(find({ PATH: join(folder, 'cellar/bin') })).toMatchObject({ folder: join(folder, 'cellar/libexec') });
  });

  it('is that of EMSDK, or none', () => {
    emscripten('sdk/upstream/emscripten');
    expect(find({ EMSDK: join(folder, 'sdk') })).toMatchObject({ folder: join(folder, 'sdk/upstream/emscripten') });
    expect(find({ EMSDK: join(folder, 'nowhere') })).toBeUndefined();
  });

  it('is written down by the build', () => {
    expect(existsSync(join(root, 'build/wasm/emscripten.txt'))).toBe(true);
  });
});
