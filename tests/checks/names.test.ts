// A name that two files of web/src export has one meaning, so that a search for it finds one thing.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const root = fileURLToPath(new URL('../../web/src/', import.meta.url));

/** Names that several files export on purpose, and these files. */
const twins: Readonly<Record<string, RegExp>> = {
  // A build has one of the two.
  ownWasm: /^(core|inline)\/own-wasm[.]ts$/,
  ownWorker: /^(workers|inline)\/own-worker[.]ts$/,
  // Tables of a format, under the same name in each folder.
  options: /^formats\/\w+\/options[.]ts$/,
  targets: /^formats\/(\w+\/targets|safetensors\/layouts\/registry)[.]ts$/,
};

const declaration =
  /^export (?:declare )?(?:default )?(?:abstract )?(?:async )?(?:type|interface|class|function\*?|const|let|enum) (\w+)/;
// Names from another file, or for the entry points: what they mean is said elsewhere.
const passesOn = /^export (?:type )?(?:\*|\{)/;

const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .map((path) => path.replaceAll('\\', '/'))
  .filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts'));

/** The files that declare each exported name. */
const owners = new Map<string, Set<string>>();
const unknown: string[] = [];
for (const file of files) {
  for (const line of readFileSync(join(root, file), 'utf8').split('\n')) {
    if (!line.startsWith('export ') || passesOn.test(line)) continue;
    const [, name] = declaration.exec(line) ?? [];
    if (name === undefined) unknown.push(`${file}: ${line}`);
    else owners.set(name, (owners.get(name) ?? new Set()).add(file));
  }
}

it('understands every export', () => {
  expect(files.length).toBeGreaterThan(200);
  expect(owners.size).toBeGreaterThan(1000);
  expect(unknown).toEqual([]);
});

it('finds one meaning for each exported name', () => {
  const shared = [...owners].filter(([, { size }]) => size > 1);
  const unlike = shared.filter(([name, paths]) => ![...paths].every((path) => twins[name]?.test(path)));
  expect(unlike.map(([name, paths]) => `${name}: ${[...paths].join(', ')}`)).toEqual([]);
  // Names of the list that are no longer shared.
  const names = shared.map(([name]) => name);
  expect(Object.keys(twins).filter((name) => !names.includes(name))).toEqual([]);
});
