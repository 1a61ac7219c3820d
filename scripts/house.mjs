// Measures the house: how much there is of it, how finely it is cut, and how far one weight travels.
//
//   npm run house                          after npm run build
//   npm run house -- web/src/convert       names what counts below a folder, too

import { readdirSync, readFileSync } from 'node:fs';
import { Session } from 'node:inspector';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from '@swc/core';
import { root } from './steps.mjs';

/** @typedef {{ type?: string, value?: unknown, [key: string]: unknown }} Syntax */

/** Files that the build makes. */
const made = /^(core\/door|.*scalepoint-\w+\.js)/;

/** The TypeScript files below a folder. @param {string} folder */
function sourcesIn(folder) {
  const paths = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' });
  return paths.filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts') && !made.test(path)).sort();
}

/** Calls f with each node, in the order of the text. @param {unknown} node @param {(node: Syntax, parents: readonly Syntax[]) => void} f @param {Syntax[]} parents */
function walk(node, f, parents = []) {
  if (Array.isArray(node)) for (const one of node) walk(one, f, parents);
  else if (typeof node === 'object' && node !== null) {
    const syntax = /** @type {Syntax} */ (node);
    const isNode = typeof syntax.type === 'string';
    if (isNode) f(syntax, parents);
    for (const one of Object.values(syntax)) walk(one, f, isNode ? [...parents, syntax] : parents);
  }
}

/** The name of a function that a statement of a module declares. @param {Syntax} statement @returns {string[]} */
function declared(statement) {
  const { type, declaration, identifier, declarations } = /** @type {any} */ (statement);
  if (type === 'ExportDeclaration') return declared(declaration);
  if (type === 'FunctionDeclaration') return [identifier.value];
  if (type !== 'VariableDeclaration') return [];
  const functions = ['ArrowFunctionExpression', 'FunctionExpression'];
  return declarations.flatMap((/** @type {any} */ { id, init }) => (functions.includes(init?.type) ? [id.value] : []));
}

/** Places that name a thing without using it. */
const namings = /^(Import|Export).*Specifier$|^(FunctionDeclaration|Parameter|VariableDeclarator)$/;

/** Top-level functions of files: names, and how often each is used. @param {string} folder */
function functionsOf(folder) {
  /** @type {{ name: string, path: string, uses: number }[]} */
  const functions = [];
  /** @type {Map<string, Map<string, number>>} */
  const usesByFile = new Map();
  for (const path of sourcesIn(folder)) {
    const module = parseSync(readFileSync(join(root, folder, path), 'utf8'), { syntax: 'typescript' });
    for (const statement of /** @type {any} */ (module.body)) {
      for (const name of declared(statement)) functions.push({ name, path, uses: 0 });
    }
    /** @type {Map<string, number>} */
    const uses = new Map();
    /** Names that come from other files. @type {Set<string>} */
    const foreign = new Set();
    walk(module.body, (node, parents) => {
      const parent = parents.at(-1);
      if (node.type !== 'Identifier') return;
      const name = String(node.value);
      if (parent?.type === 'ImportSpecifier') foreign.add(name);
      const isNaming = namings.test(parent?.type ?? '') && /** @type {any} */ (parent).init !== node;
      if (!isNaming) uses.set(name, (uses.get(name) ?? 0) + 1);
    });
    usesByFile.set(path, new Map([...uses].map(([name, n]) => [foreign.has(name) ? `import ${name}` : name, n])));
  }
  for (const one of functions) {
    for (const [path, uses] of usesByFile)
      one.uses += uses.get(path === one.path ? one.name : `import ${one.name}`) ?? 0;
  }
  return functions;
}

/** Named functions, and files, that a call runs through. @param {string} code of a module that may import from dist @returns {Promise<{ functions: string[], files: number }>} */
async function pathOf(code) {
  const session = new Session();
  session.connect();
  /** @param {string} method @param {object} [params] @returns {Promise<any>} */
  const post = (method, params) =>
    new Promise((resolve, reject) =>
      session.post(method, params, (error, result) => (error === null ? resolve(result) : reject(error))),
    );
  const address = (/** @type {string} */ name) => new URL(`../dist/${name}.js`, import.meta.url).href;
  const call = await import(
    `data:text/javascript,${encodeURIComponent(code.replace(/'scalepoint(\/model)?'/g, (_, model) => `'${address(model ? 'model' : 'index')}'`))}`
  );
  await post('Profiler.enable');
  // Loading is not part of the way.
  await call.prepare();
  await post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  await post('Profiler.takePreciseCoverage');
  await call.run();
  const { result } = await post('Profiler.takePreciseCoverage');
  session.disconnect();
  const dist = join(root, 'dist');
  const functions = new Set();
  const files = new Set();
  for (const { url, functions: covered } of result) {
    if (!url.startsWith('file:') || relative(dist, fileURLToPath(url)).startsWith('..')) continue;
    const text = readFileSync(fileURLToPath(url), 'utf8');
    const sources = [...text.matchAll(/^\/\/(?:#region)? (web\/src\/\S+)$/gm)];
    for (const { functionName, ranges } of covered) {
      const [{ startOffset, count }] = ranges;
      const [, file] = sources.findLast(({ index }) => index <= startOffset) ?? [];
      if (functionName === '' || count === 0 || file === undefined) continue;
      functions.add(`${file} ${functionName} ${startOffset}`);
      files.add(file);
    }
  }
  return { functions: [...functions], files: files.size };
}

const int8 = `
import { quantizeModel, saveTensors } from 'scalepoint/model';
let model;
export async function prepare() {
  const data = Float32Array.from({ length: 64 * 128 }, (_, i) => Math.sin(i));
  model = await saveTensors({ 'a.weight': { data, shape: [64, 128] } });
  await run();
}
export const run = () => quantizeModel(model, { to: 'int8', workers: 0 });
`;

const int4 = `
import { load } from 'scalepoint';
const x = Float32Array.from({ length: 256 }, (_, i) => Math.sin(i));
let sp;
export async function prepare() {
  sp = await load();
  run();
}
export const run = () => sp.quantize(x, { dtype: 'int4' });
`;

const lines = (/** @type {string} */ folder) =>
  sourcesIn(folder).reduce(
    (sum, path) => sum + readFileSync(join(root, folder, path), 'utf8').split('\n').length - 1,
    0,
  );
const share = (/** @type {number} */ part, /** @type {number} */ all) => `${((100 * part) / all).toFixed(1)} %`;

const functions = functionsOf('web/src');
/** Files of each name. @type {Map<string, Set<string>>} */
const names = new Map();
for (const { name, path } of functions) names.set(name, (names.get(name) ?? new Set()).add(path));
const shared = [...names.values()].filter(({ size }) => size > 1).length;
const weight = await pathOf(int8);
const array = await pathOf(int4);
for (const [what, figure] of /** @type {const} */ ([
  ['lines of web/src, without files that the build makes', lines('web/src')],
  ['files of web/src', sourcesIn('web/src').length],
  ['lines of web/demo', lines('web/demo')],
  ['top-level functions', functions.length],
  ['… with one use', share(functions.filter(({ uses }) => uses === 1).length, functions.length)],
  ['names of functions that stand in several files', share(shared, names.size)],
  ['an int8 weight runs through', `${weight.functions.length} named functions in ${weight.files} files`],
  ['an array to int4 runs through', `${array.functions.length} named functions in ${array.files} files`],
])) {
  console.log(`${what.padEnd(56)} ${figure}`);
}

const [folder] = process.argv.slice(2);
if (folder !== undefined) {
  const inside = relative(join(root, 'web/src'), join(root, folder));
  /** @param {string} title @param {string[]} entries */
  const list = (title, entries) => console.log(`\n${title}: ${entries.length}\n${entries.sort().join('\n')}`);
  const here = functions.filter(({ path }) => path.startsWith(inside));
  const single = here.filter(({ uses }) => uses === 1).map(({ path, name }) => `${path} ${name}`);
  list('functions with one use', single);
  const repeated = here.filter(({ name }) => (names.get(name)?.size ?? 0) > 1);
  list(
    'names that stand in several files',
    repeated.map(({ name, path }) => `${name} ${path}`),
  );
  for (const [what, { functions: passed }] of /** @type {const} */ ([
    ['an int8 weight', weight],
    ['an array to int4', array],
  ])) {
    list(
      `${what} runs through`,
      passed
        .filter((one) => one.startsWith(join('web/src', inside)))
        .map((one) => one.split(' ').slice(0, 2).join(' ')),
    );
  }
}
