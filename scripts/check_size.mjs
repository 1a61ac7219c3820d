// Checks that the built package is within its size budget, and prints the size of every file.
//
//   node scripts/check_size.mjs [folder]      the folder is dist unless given
//
// The budget is for what a page loads before it can quantize: one core-*.wasm file, index.js and all static imports of index.js,
// bundled and minified as apps do it. The package itself is for people to read.

import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

/**
 * Most bytes of either tier after brotli: the wasm file and the JavaScript to load.
 * 39,400  array calls without the rows below
 * 32,600  the twenty-four block types of ggml, with importance of columns (31,000 wasm, 2,000 of them grids, 1,600 JavaScript)
 *  3,800  their search for lower errors (3,500 wasm, 300 JavaScript)
 * 13,000  layers and vector indexes (10,000 wasm, 3,000 JavaScript)
 *  1,200  importance matrices of what layers multiply
 * 12,000  range search
 * 12,500  codebooks and 8-bit floats
 *  6,500  codecs of model files
 *  7,500  codecs of ONNX: blocks and channels along any axis, and columns of matrices
 */
export const budget = 129_000;

/** Matches JavaScript that compiles code from a string, which a strict Content-Security-Policy forbids. */
const evaluation = /\bnew\s+Function\s*\(|(?<![\w$.])eval\s*\(|\bsetTimeout\s*\(\s*['"`]/;

/** @typedef {{ raw: number, gzip: number, brotli: number }} Sizes raw and compressed */

/**
 * Compressing takes half a minute, so sizes are remembered by the content of the files and the versions that compress them.
 * @param {string} path
 */
function rememberedSizes(path) {
  /** @type {Record<string, Sizes>} */
  let before = {};
  try {
    before = JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    // There is no file yet, or it was only half written.
  }
  /** @type {Record<string, Sizes>} */
  const now = {};
  const { zlib, brotli } = process.versions;
  return {
    /** @param {Uint8Array<ArrayBuffer>} bytes @returns {Sizes} */
    of(bytes) {
      const key = createHash('sha256').update(`${zlib} ${brotli} `).update(bytes).digest('hex');
      now[key] = before[key] ?? sizes(bytes);
      return now[key];
    },
    save() {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, JSON.stringify(now));
    },
  };
}

/** @param {Uint8Array} bytes @returns {Sizes} */
function sizes(bytes) {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
  return {
    raw: bytes.length,
    gzip: gzipSync(bytes, { level: 9 }).length,
    brotli: brotliCompressSync(bytes, { params }).length,
  };
}

/**
 * What a bundler makes of index.js for a page that quantizes: all of it that loads at once, minified.
 * @param {string} folder
 * @param {(bytes: Uint8Array<ArrayBuffer>) => Sizes} sizesOf
 */
async function bundled(folder, sizesOf) {
  const { rolldown } = await import('rolldown');
  const bundle = await rolldown({ input: join(folder, 'index.js'), external: [/^node:/] });
  const { output } = await bundle.generate({ format: 'esm', minify: true });
  await bundle.close();
  const chunks = new Map(output.flatMap((file) => (file.type === 'chunk' ? [[file.fileName, file]] : [])));
  /** @type {Set<string>} */
  const found = new Set();
  const visit = (/** @type {string} */ name) => {
    if (found.has(name)) return;
    found.add(name);
    for (const other of chunks.get(name)?.imports ?? []) visit(other);
  };
  for (const { fileName, isEntry } of chunks.values()) if (isEntry) visit(fileName);
  return [...found].map((name) => sizesOf(Buffer.from(chunks.get(name)?.code ?? '')));
}

/**
 * Measures the package in a folder and lists what is wrong with it.
 * @param {string} folder
 * @param {(bytes: Uint8Array<ArrayBuffer>) => Sizes} [sizesOf]
 * @returns {Promise<{ problems: string[], table: string, summary: string }>}
 */
export async function checkSize(folder, sizesOf = sizes) {
  /** @type {string[]} */
  const problems = [];
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
  const measured = new Map(files.map((path) => [path, sizesOf(readFileSync(path))]));
  const row = (/** @type {string} */ name, /** @type {(string | number)[]} */ numbers) =>
    name.padEnd(32) + numbers.map((number) => number.toLocaleString('en').padStart(10)).join('');
  const lines = [row('bytes', ['raw', 'gzip', 'brotli'])];
  for (const [path, { raw, gzip, brotli }] of measured) lines.push(row(relative(folder, path), [raw, gzip, brotli]));

  lines.push('');
  const javascript = files.includes(join(folder, 'index.js')) ? await bundled(folder, sizesOf) : [];
  /** @type {string[]} */
  const totals = [];
  for (const tier of ['simd', 'scalar']) {
    const parts = [...javascript, measured.get(join(folder, `core-${tier}.wasm`))];
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
  const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
  const remembered = rememberedSizes(path('build/stamps/sizes.json'));
  const { problems, table, summary } = await checkSize(process.argv[2] ?? path('dist'), remembered.of);
  remembered.save();
  console.log(`${table}\n\n${summary}`);
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) process.exitCode = 1;
}
