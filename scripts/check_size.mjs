// Holds the built package to its budget, and prints what every file weighs.
//
//   node scripts/check_size.mjs [folder]      the folder is dist unless given
//
// What a page has to load before it can quantize is one core-*.wasm file and index.js with all that it imports.

import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

/**
 * Bytes after brotli that either tier may take: the wasm file and the JavaScript that runs it. 40,000 are for the array calls but for
 * ggml's blocks, whose twelve types take up to 16,000 more of the wasm file, and 1,000 of JavaScript; 10,000 of the wasm file and 3,000
 * of JavaScript are for layers and search of vectors; 11,000 for the search for ranges, 14,000 for codebooks and floats of a byte.
 */
const budget = 95_000;

/** Code from text: a strict Content-Security-Policy refuses it. */
const evaluation = /\bnew\s+Function\s*\(|(?<![\w$.])eval\s*\(|\bsetTimeout\s*\(\s*['"`]/;

/** @param {Uint8Array} bytes */
function sizes(bytes) {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
  return {
    raw: bytes.length,
    gzip: gzipSync(bytes, { level: 9 }).length,
    brotli: brotliCompressSync(bytes, { params }).length,
  };
}

/**
 * A module and every module that it imports statically, as paths.
 * @param {string} path
 * @param {Set<string>} [found]
 */
function withImports(path, found = new Set()) {
  if (found.has(path)) return found;
  found.add(path);
  for (const [, specifier] of readFileSync(path, 'utf8').matchAll(/(?:\bfrom|\bimport)\s*["'](\.[^"']+)["']/g)) {
    withImports(join(dirname(path), /** @type {string} */ (specifier)), found);
  }
  return found;
}

/**
 * @param {string} folder
 * @returns {{ problems: string[], table: string, summary: string }}
 */
export function checkSize(folder) {
  /** @type {string[]} */
  const problems = [];
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
  const measured = new Map(files.map((path) => [path, sizes(readFileSync(path))]));
  const row = (/** @type {string} */ name, /** @type {(string | number)[]} */ numbers) =>
    name.padEnd(32) + numbers.map((number) => number.toLocaleString('en').padStart(10)).join('');
  const lines = [row('bytes', ['raw', 'gzip', 'brotli'])];
  for (const [path, { raw, gzip, brotli }] of measured) lines.push(row(relative(folder, path), [raw, gzip, brotli]));

  lines.push('');
  const javascript = files.includes(join(folder, 'index.js')) ? [...withImports(join(folder, 'index.js'))] : [];
  /** @type {string[]} */
  const totals = [];
  for (const tier of ['simd', 'scalar']) {
    const parts = [...javascript, join(folder, `core-${tier}.wasm`)].map((path) => measured.get(path));
    const sum = (/** @type {'raw' | 'gzip' | 'brotli'} */ kind) =>
      parts.reduce((total, part) => total + (part?.[kind] ?? 0), 0);
    const brotli = sum('brotli');
    totals.push(`${tier} ${(brotli / 1000).toFixed(1)} kB`);
    lines.push(row(`to quantize, ${tier}`, [sum('raw'), sum('gzip'), brotli]));
    if (javascript.length === 0 || parts.includes(undefined))
      problems.push(`${folder} does not hold all files of the ${tier} tier`);
    if (brotli > budget)
      problems.push(`the ${tier} tier takes ${brotli} bytes, ${brotli - budget} over the budget of ${budget}`);
  }
  for (const path of files.filter((name) => /\.(m?js|html)$/.test(name))) {
    const [match] = evaluation.exec(readFileSync(path, 'utf8')) ?? [];
    if (match !== undefined) problems.push(`${relative(folder, path)} makes code from text: ${match}`);
  }
  return { problems, table: lines.join('\n'), summary: `${totals.join(', ')} of ${budget / 1000} kB` };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { problems, table, summary } = checkSize(process.argv[2] ?? fileURLToPath(new URL('../dist', import.meta.url)));
  console.log(`${table}\n\n${summary}`);
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) process.exitCode = 1;
}
