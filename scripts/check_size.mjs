// Checks that the built package is within its size budgets, and prints the size of every file.
//
//   node scripts/check_size.mjs [folder]      the folder is dist unless given
//
// An app that quantizes arrays loads one arrays-*.wasm file, and index.js with all its static imports, bundled and minified as apps do it.
// Apps with all types of ggml, and the workers of model files, load one core-*.wasm file in its place.

import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

/** Most bytes after brotli: a file of the small module, a file of the large one, and the JavaScript that an app loads before it can quantize. */
export const budgets = { arrays: 60_000, core: 200_000, javascript: 30_000 };

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
  const sum = (/** @type {(Sizes | undefined)[]} */ parts, /** @type {keyof Sizes} */ kind) =>
    parts.reduce((total, part) => total + (part?.[kind] ?? 0), 0);
  /** @type {string[]} */
  const totals = [];
  const hold = (
    /** @type {string} */ what,
    /** @type {(Sizes | undefined)[]} */ parts,
    /** @type {number} */ budget,
  ) => {
    const brotli = sum(parts, 'brotli');
    totals.push(`${what} ${(brotli / 1000).toFixed(1)} of ${budget / 1000} kB`);
    if (parts.length === 0 || parts.includes(undefined)) problems.push(`${folder} does not hold ${what}`);
    if (brotli > budget) problems.push(`${what}: ${brotli} bytes, ${brotli - budget} over the budget of ${budget}`);
  };
  for (const tier of ['simd', 'scalar']) {
    for (const module of /** @type {const} */ (['arrays', 'core'])) {
      hold(`${module}-${tier}`, [measured.get(join(folder, `${module}-${tier}.wasm`))], budgets[module]);
    }
    const loaded = [...javascript, measured.get(join(folder, `arrays-${tier}.wasm`))];
    lines.push(row(`to quantize, ${tier}`, [sum(loaded, 'raw'), sum(loaded, 'gzip'), sum(loaded, 'brotli')]));
  }
  hold('JavaScript', javascript, budgets.javascript);
  for (const path of files.filter((name) => /\.(m?js|html)$/.test(name))) {
    const [match] = evaluation.exec(readFileSync(path, 'utf8')) ?? [];
    if (match !== undefined) problems.push(`${relative(folder, path)} makes code from text: ${match}`);
  }
  return { problems, table: lines.join('\n'), summary: totals.join(', ') };
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
