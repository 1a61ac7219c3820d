// Checks that the built package is within its size budget, and prints what it measured.
//
//   node scripts/check_size.mjs [folder]      the folder is dist unless given
//
// The budgets are for what apps load, bundled and minified as apps do it. The package itself is for people to read; its budget is for what
// npm downloads.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants } from 'node:zlib';

/** Most bytes of the packed package. */
const packedBudget = 2_672_000;

/** Most bytes after brotli. */
export const budgets = {
  /** A file of the small module of the core, which an app that quantizes arrays or searches vectors loads. */
  arrays: 68_000,
  /** A file of the large module, which has all types of ggml and the codecs of model files. */
  core: 200_000,
  /** The JavaScript that an app which quantizes arrays loads at once, with the glue of the core. */
  javascript: 39_000,
  /** The JavaScript that saveTensors, loadTensors and resultName add to such an app, on demand as well: that of the hub has 5 kB. */
  files: 27_000,
  /** The JavaScript that an app which inspects, plans, quantizes, compares and verifies model files loads at once, without the worker. */
  models: 127_000,
  /** The same with all that it loads on demand, except what runs models in onnxruntime. */
  allModels: 302_000,
};

/** Matches JavaScript that compiles code from a string, which a strict Content-Security-Policy forbids. */
const evaluation = /\bnew\s+Function\s*\(|(?<![\w$.])eval\s*\(|\bsetTimeout\s*\(\s*['"`]/;

/** @typedef {{ raw: number, brotli: number }} Sizes raw and compressed */

/**
 * Compressing takes seconds, so sizes are remembered by the content of the files and the versions that compress them.
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
    brotli: brotliCompressSync(bytes, { params }).length,
  };
}

/**
 * An app: which of its JavaScript counts, its source, and files that do not count.
 * @typedef {{ at: 'once' | 'any time', code: (folder: string) => string, without?: RegExp }} App
 */

/** Code that uses some names. An app exports nothing, so that its bundler keeps to one chunk what its parts share. */
const from = (/** @type {string} */ folder, /** @type {string} */ names, /** @type {string} */ file) =>
  `import { ${names} } from ${JSON.stringify(join(folder, file))};\nObject.assign(globalThis, { ${names} });\n`;

/** An app of model files. */
const models = (/** @type {string} */ folder) =>
  from(folder, 'inspectModel, planModel, quantizeModel, compareModels, verifyModel', 'model.js');

/** The apps that are bundled. @satisfies {Record<string, App>} */
const apps = {
  arrays: { at: 'once', code: (folder) => from(folder, 'load', 'index.js') },
  'arrays, whole': { at: 'any time', code: (folder) => from(folder, 'load', 'index.js') },
  'arrays and their files, whole': {
    at: 'any time',
    code: (folder) =>
      from(folder, 'load', 'index.js') + from(folder, 'saveTensors, loadTensors, resultName', 'model.js'),
  },
  models: { at: 'once', code: models },
  'models, whole': { at: 'any time', code: models, without: /chunk-(compare|judge|runs)\.js$/ },
};

/**
 * Bundles and minifies an app as users do.
 * @param {App} app
 * @param {string} folder
 * @param {(bytes: Uint8Array<ArrayBuffer>) => Sizes} sizesOf
 * @returns {Promise<Sizes>} of the chunks that count, added up
 */
async function bundled({ at, code, without }, folder, sizesOf) {
  const { rolldown } = await import('rolldown');
  const input = 'app.js';
  const app = {
    name: 'app',
    resolveId: (/** @type {string} */ id) => (id === input ? id : undefined),
    load: (/** @type {string} */ id) => (id === input ? code(folder) : undefined),
  };
  const external = [/^node:/, ...(without === undefined ? [] : [without])];
  const bundle = await rolldown({ input, plugins: [app], external, preserveEntrySignatures: false });
  const { output } = await bundle.generate({ format: 'esm', minify: true });
  await bundle.close();
  const chunks = new Map(output.flatMap((file) => (file.type === 'chunk' ? [[file.fileName, file]] : [])));
  /** @type {Set<string>} */
  const found = new Set();
  const visit = (/** @type {string} */ name) => {
    if (found.has(name)) return;
    found.add(name);
    const { imports = [], dynamicImports = [] } = chunks.get(name) ?? {};
    for (const other of at === 'any time' ? [...imports, ...dynamicImports] : imports) visit(other);
  };
  // A bundler may write chunks that nothing imports. No app loads them.
  for (const { fileName, isEntry } of chunks.values()) if (isEntry) visit(fileName);
  const total = { raw: 0, brotli: 0 };
  for (const name of found) {
    const chunk = chunks.get(name);
    if (chunk === undefined) continue;
    const { raw, brotli } = sizesOf(Buffer.from(chunk.code));
    total.raw += raw;
    total.brotli += brotli;
  }
  return total;
}

/** @param {Sizes} a @param {Sizes} b @param {1 | -1} sign @returns {Sizes} */
const sum = (a, b, sign = 1) => ({
  raw: a.raw + sign * b.raw,
  brotli: a.brotli + sign * b.brotli,
});

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
  const modules = ['arrays-simd', 'arrays-scalar', 'core-simd', 'core-scalar'];
  const missing = ['index.js', 'model.js', ...modules.map((name) => `${name}.wasm`)].filter(
    (name) => !files.includes(join(folder, name)),
  );
  if (missing.length > 0) {
    return { problems: [`${folder} does not hold ${missing.join(', ')}`], table: '', summary: '' };
  }

  const row = (/** @type {string} */ name, /** @type {(string | number)[]} */ numbers) =>
    name.padEnd(44) + numbers.map((number) => number.toLocaleString('en').padStart(10)).join('');
  const lines = [row('bytes', ['raw', 'brotli'])];

  // Compare what apps load with the budgets.
  /** @type {string[]} */
  const totals = [];
  const hold = (/** @type {string} */ name, /** @type {Sizes} */ { raw, brotli }, /** @type {number} */ most) => {
    lines.push(row(name, [raw, brotli]));
    totals.push(`${name} ${(brotli / 1000).toFixed(1)} of ${most / 1000}`);
    if (brotli > most) problems.push(`${name}: ${brotli} bytes, ${brotli - most} over the budget of ${most}`);
  };
  for (const name of modules) {
    const wasm = sizesOf(readFileSync(join(folder, `${name}.wasm`)));
    hold(name, wasm, name.startsWith('arrays') ? budgets.arrays : budgets.core);
  }
  hold('arrays, JavaScript', await bundled(apps.arrays, folder, sizesOf), budgets.javascript);
  const alone = await bundled(apps['arrays, whole'], folder, sizesOf);
  const withFiles = await bundled(apps['arrays and their files, whole'], folder, sizesOf);
  hold('more to save and load', sum(withFiles, alone, -1), budgets.files);
  hold('models, JavaScript', await bundled(apps.models, folder, sizesOf), budgets.models);
  hold('all for models', await bundled(apps['models, whole'], folder, sizesOf), budgets.allModels);

  // Look for code that a strict Content-Security-Policy forbids.
  for (const path of files.filter((name) => /\.(m?js|html)$/.test(name))) {
    const [match] = evaluation.exec(readFileSync(path, 'utf8')) ?? [];
    if (match !== undefined) problems.push(`${relative(folder, path)} makes code from text: ${match}`);
  }
  return { problems, table: lines.join('\n'), summary: `kB after brotli: ${totals.join(', ')}` };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
  const remembered = rememberedSizes(path('build/stamps/sizes.json'));
  const { problems, table, summary } = await checkSize(process.argv[2] ?? path('dist'), remembered.of);
  remembered.save();
  console.log(`${table}\n\n${summary}`);
  if (process.argv[2] === undefined) {
    const args = ['pack', '--ignore-scripts', '--dry-run', '--json', '--silent'];
    const [{ size, unpackedSize }] = JSON.parse(execFileSync('npm', args, { cwd: path(''), encoding: 'utf8' }));
    console.log(`the package: ${size} bytes packed of ${packedBudget}, ${unpackedSize} unpacked`);
    if (size > packedBudget) problems.push(`the package: ${size} bytes packed, over the budget of ${packedBudget}`);
  }
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) process.exitCode = 1;
}
