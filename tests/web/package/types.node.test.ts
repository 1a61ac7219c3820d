// The declarations of the package, in every supported version of TypeScript.
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { dtypes } from 'scalepoint';
import { modelFormats } from 'scalepoint/model';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { examplePrograms } from '../support/examples.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const packages = join(root, 'tests/types/node_modules');
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-types-'));
const howToInstall = 'TypeScript 5 is not installed: npm ci --prefix tests/types';

beforeAll(() => {
  if (!existsSync(join(root, 'dist/index.d.ts'))) throw new Error('there is no dist/: build first, with npm run build');
  // A package has no more than this of the project.
  const installed = join(folder, 'node_modules/scalepoint');
  mkdirSync(installed, { recursive: true });
  cpSync(join(root, 'package.json'), join(installed, 'package.json'));
  symlinkSync(join(root, 'dist'), join(installed, 'dist'), 'junction');
  for (const name of ['use.mts', 'dom.mts']) cpSync(join(root, 'tests/types', name), join(folder, name));
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const compilers: Readonly<Record<string, string>> = {
  '5.4': join(packages, 'typescript-5.4/bin/tsc'),
  '5.7': join(packages, 'typescript-5.7/bin/tsc'),
  '5.9': join(packages, 'typescript-5.9/bin/tsc'),
  '7.0': join(root, 'node_modules/typescript/bin/tsc'),
};

/** Messages of a compiler about the program; '' without any. */
async function check(version: string, name: string, options: object, files = ['use.mts']): Promise<string> {
  // Declarations of the package are checked. Those of TypeScript itself, which global declarations of a package could break, take a third of
  // the time, and are checked by the fastest version alone.
  const libraries = { skipLibCheck: false, skipDefaultLibCheck: version !== '7.0' };
  const compilerOptions = { noEmit: true, strict: true, target: 'es2022', types: [], ...libraries, ...options };
  const config = join(folder, `${name}.json`);
  writeFileSync(config, JSON.stringify({ compilerOptions, files }));
  try {
    await promisify(execFile)(process.execPath, [compilers[version] as string, '-p', config], { cwd: folder });
    return '';
  } catch (error) {
    return (error as { stdout: string }).stdout;
  }
}

const nodenext = { module: 'nodenext', moduleResolution: 'nodenext' };

describe.each(Object.keys(compilers))('in TypeScript %s', (version) => {
  beforeEach(({ skip }) => {
    if (!existsSync(compilers[version] as string)) skip(howToInstall);
  });

  it('the types are right without the DOM library', async () => {
    expect(await check(version, version, { ...nodenext, lib: ['es2022'] })).toBe('');
  });

  // 5.7 lies between two that try them.
  if (version === '5.7') return;
  it('they are right with it, and all examples compile', async () => {
    const programs = examplePrograms();
    expect(programs['comments.mts']!.split('async () => {').length).toBeGreaterThan(40);
    for (const [name, code] of Object.entries(programs)) writeFileSync(join(folder, name), code);
    const options = { ...nodenext, lib: ['es2022', 'dom', 'dom.iterable'], exactOptionalPropertyTypes: true };
    const files = ['use.mts', 'dom.mts', ...Object.keys(programs)];
    expect(await check(version, `${version} with DOM`, options, files)).toBe('');
  });
});

it.each(['5.4', '5.9'])('editors offer all types and show readable ones in TypeScript %s', async (version) => {
  const file = join(folder, `editor-${version}.mts`);
  writeFileSync(
    file,
    `import { load } from 'scalepoint';
    import { loadTensors, quantizeModel } from 'scalepoint/model';
    const sp = await load();
    const x = new Float32Array(4);
    sp.quantize(x, { dtype: '/*C*/' });
    sp.quantize(x, { scheme: 'asymmetric', dtype: '/*C*/' });
    await quantizeModel('x', { to: '/*C*/' });
    await quantizeModel('x', { to: 'int8', /*C*/ });
    await quantizeModel('x', { to: 'int8', /*N*/ });
    await load({ /*N*/ });
    sp.quantize(x, { /*N*/ });
    sp.quantizeBlocks(x, 'Q8_0', { /*N*/ });
    sp.quantizeCodebook(x, { codebook: 'nf4', /*N*/ });
    sp.sweep(x, [{ /*N*/ }], { /*N*/ });
    sp.observer({ /*N*/ });
    sp.index(x, { /*N*/ }).search(x, 1, { /*N*/ });
    await quantizeModel('x', { /*H*/to: 'int8' });
    const q = sp./*H*/quantize(x);
    sp./*H*/dequantize(q);
    q./*H*/scale;
    sp.histogram(x)./*H*/counts;
    const /*H*/loaded = await loadTensors('x');`,
  );
  const args = [join(root, 'tests/types/editor.mjs'), version, file];
  const lines = (await promisify(execFile)(process.execPath, args)).stdout.trimEnd().split('\n');
  const [dtype, also, targets, options, ...others] = lines;
  const withoutDoc = others.splice(0, 10);
  const [to, ...hovers] = others;
  expect(dtype?.split(' ')).toEqual([...dtypes].sort());
  expect(also).toBe(dtype);
  const names = modelFormats().flatMap((format) => format.targets.map(({ name }) => name));
  expect(targets?.split(' ')).toEqual(expect.arrayContaining([...names, 'auto']));
  expect(options?.split(' ')).toEqual(expect.arrayContaining(['search', 'importance', 'shardSize', 'pure', 'config']));
  expect(withoutDoc.join('')).toBe('');
  const described = new Set(to?.split(/[^\w:-]+/));
  expect(names.filter((name) => !described.has(name))).toEqual([]);
  expect(hovers.join('\n')).not.toMatch(/ReturnType|Fresh|slice/);
  expect(hovers[1]).toContain(version === '5.4' ? '): Float32Array' : '): Float32Array<ArrayBuffer>');
  expect(hovers.at(-1)).toContain('SavedTensor');
});

it('finds the types of all entry points by the old rules', async ({ skip }) => {
  if (!existsSync(compilers['5.4'] as string)) skip(howToInstall);
  const options = { module: 'esnext', moduleResolution: 'node10', lib: ['es2022'] };
  expect(await check('5.4', 'old', options)).toBe('');
});

it('has no optional property that refuses undefined', async ({ skip }) => {
  if (!existsSync(compilers['5.9'] as string)) skip(howToInstall);
  const files = ['index', 'model', 'bench', 'inline'].map((name) => join(root, `dist/${name}.d.ts`));
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, 'tests/types/optional.mjs'), ...files]);
  expect(stdout).toBe('');
});

/** Exported names and members without a doc comment, in the output of TypeDoc. */
const undocumented = (output: string) => [...output.matchAll(/undocumented: (\S+)/g)].map(([, name]) => name!).sort();

/** The warnings of TypeDoc for other files than those of the package. */
async function warningsFor(options: object): Promise<string> {
  const reference = join(root, 'scripts/reference');
  const config = join(folder, 'typedoc.json');
  const extended = { extends: [join(reference, 'typedoc.json')], emit: 'none', logLevel: 'Warn', ...options };
  writeFileSync(config, JSON.stringify(extended));
  const args = [join(reference, 'node_modules/typedoc/bin/typedoc'), '--options', config];
  const { stderr, stdout } = await promisify(execFile)(process.execPath, args);
  return stdout + stderr;
}

it('has a doc comment for every exported name and member', () => {
  // The build writes them while it makes the reference.
  expect(undocumented(readFileSync(join(root, 'build/reference-warnings.txt'), 'utf8'))).toEqual([]);
});

it('would find a missing doc comment', async () => {
  const file = join(folder, 'bare.ts');
  writeFileSync(
    file,
    `/** An interface. */
    export interface Documented {
      /** A member. */
      readonly a: number;
      bare: {
        /** Inside. */
        b: number;
        inner: string;
      };
      /** @defaultValue 1 */
      c?: number;
    }
    /** A union. */
    export type Union = { readonly kind: 'one' } | { readonly kind: 'two'; alone: number };
    /** A class. */
    export declare class Some {
      private hidden: number;
      constructor(x: number);
      method(): void;
      /** Once for both. */
      over(): void;
      over(x: number): void;
    }
    export declare function f(): void;`,
  );
  const config = join(folder, 'bare.json');
  writeFileSync(
    config,
    JSON.stringify({ compilerOptions: { strict: true, target: 'es2022', lib: ['es2022'], types: [] }, files: [file] }),
  );
  const missing = ['Documented.bare', 'Documented.bare.inner', 'Documented.c', 'Some.method', 'Union.alone', 'f'];
  expect(undocumented(await warningsFor({ entryPoints: [file], tsconfig: config }))).toEqual(missing);
});

it('exports every type in the signatures of its entry points, or describes it in the reference', async ({ skip }) => {
  if (!existsSync(compilers['5.9'] as string)) skip(howToInstall);
  const { typesVersions } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const entries = ['index', ...Object.keys(typesVersions['*']).filter((name) => name !== 'worker')];
  const files = entries.map((name) => join(root, `dist/${name}.d.ts`));
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, 'tests/types/exports.mjs'), ...files]);
  // scalepoint/inline has the names of two others.
  const pages = ['index', 'model', 'bench'].map((name) => join(root, `build/reference/${name}.md`));
  const reference = pages.map((page) => readFileSync(page, 'utf8')).join('\n');
  const described = new Set([...reference.matchAll(/^### .*\{#(\w+)\}$/gm)].map(([, name]) => name));
  const missing = stdout.split('\n').filter((line) => line !== '' && !described.has(line.split(' ')[0]!));
  expect(described.size).toBeGreaterThan(100);
  expect(missing).toEqual([]);
});
