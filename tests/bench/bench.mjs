// `npm run bench` builds, then compares the library with the memory limit, with onnxruntime-web and with plain JavaScript, in Node and in Chromium.
// In Node it also compares the block types with ggml itself. (`scalepoint bench` measures without the peers.)
//
//   npm run bench [-- --node | --chromium] [--only elementwise,codes,ranges,linear,blocks,language,models] [--sizes 65536,1048576] [--readme]
//
// --readme writes the tables of the measured parts into the guide, and three rows into README.md. Run it on a machine that does nothing else. Between runs the ratios agree
// within a few percent; the times differ more.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright';
import { launchOptions } from '../../scripts/chromium.mjs';
import { serve } from '../../scripts/serve.mjs';
import { blocks, nativeBlocks } from './blocks.mjs';
import { codes } from './codes.mjs';
import { elementwise } from './elementwise.mjs';
import { language } from './language.mjs';
import { linear } from './linear.mjs';
import { models } from './models.mjs';
import { ranges } from './ranges.mjs';
import { speedTable } from './tables.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { values: options } = parseArgs({
  options: {
    node: { type: 'boolean', default: false },
    chromium: { type: 'boolean', default: false },
    readme: { type: 'boolean', default: false },
    only: { type: 'string', default: 'elementwise,codes,ranges,linear,blocks,language,models' },
    sizes: { type: 'string', default: '65536,1048576,16777216' },
  },
});
const sizes = options.sizes.split(',').map(Number);
const wanted = options.only.split(',');
const everywhere = options.node === options.chromium;

function print({ operation, n, ms, ratios }) {
  const ratio = (value) => (Number.isFinite(value) ? value.toFixed(2) : '-');
  const parts = Object.entries(ratios).map(([name, value]) => `${name} ${ratio(value)}`);
  const times = Object.entries(ms).map(([name, value]) => `${name} ${value < 1 ? value.toFixed(4) : value.toFixed(2)}`);
  console.log(
    `${operation.padEnd(34)} ${String(n).padStart(9)}  ${parts.join('  ')}\n${' '.repeat(46)}ms: ${times.join('  ')}`,
  );
}

/** Runs the wanted parts in Node, except the model files. */
async function inNode() {
  console.log(`\nNode ${process.versions.node}\n`);
  const library = await import('../../dist/index.js');
  const ort = await import('onnxruntime-web/wasm');
  const { load } = library;
  const rows = [];
  if (wanted.includes('elementwise')) rows.push(...(await elementwise({ load, ort, sizes, report: print })));
  if (wanted.includes('codes')) rows.push(...(await codes({ load, report: print })));
  if (wanted.includes('ranges')) rows.push(...(await ranges({ load, report: print })));
  if (wanted.includes('linear')) rows.push(...(await linear({ load, ort, report: print })));
  if (wanted.includes('blocks')) {
    rows.push(...(await blocks({ ...library, native: await nativeBlocks(), report: print })));
  }
  if (wanted.includes('language')) {
    const model = await import('../../dist/model.js');
    rows.push(...(await language({ load, ...model, report: print })));
  }
  return rows;
}

/** Runs the wanted parts in a page of Chromium, without ggml and without the model files. */
async function inChromium() {
  // onnxruntime-web loads its own files from node_modules, so the root folder is served.
  const policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval' 'unsafe-eval'";
  const server = await serve({ folder: root, port: 0, policy });
  const browser = await chromium.launch(launchOptions);
  try {
    console.log(`\nChromium ${browser.version()}\n`);
    const page = await browser.newPage();
    await page.exposeFunction('report', print);
    await page.goto(`${server.url}package.json`);
    return await page.evaluate(
      async ([parts, numbers]) => {
        const [library, ort, ...modules] = await Promise.all([
          import('/dist/index.js'),
          import('/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs'),
          ...['elementwise', 'codes', 'ranges', 'linear', 'blocks'].map((name) => import(`/tests/bench/${name}.mjs`)),
        ]);
        const run = Object.assign({}, ...modules);
        const { report } = globalThis;
        const rows = [];
        for (const name of ['elementwise', 'codes', 'ranges', 'linear', 'blocks']) {
          if (parts.includes(name)) rows.push(...(await run[name]({ ...library, ort, sizes: numbers, report })));
        }
        return rows;
      },
      [wanted, sizes],
    );
  } finally {
    await browser.close();
    await server.close();
  }
}

/** The table of elementwise operations for the guide, from the rows of the largest size. */
function tableOf(results) {
  const size = Math.max(...sizes);
  const wanted = [
    'minmax',
    'quantize',
    'quantize, JS in and out',
    'range and quantize',
    'range and quantize, JS in and out',
    'dequantize',
    'dequantize, JS in and out',
    'int8 groups of 32',
    'int8 groups of 32, asymmetric',
    'int4 groups of 32',
    'quantize with error measures',
    'quantize 1024 floats, JS in and out',
  ];
  const lines = [
    '| operation | where | ours, ms | of the memory limit | onnxruntime-web / ours | plain JavaScript / ours |',
    '|---|---|---|---|---|---|',
  ];
  const times = (value) => (Number.isFinite(value) ? `${value.toFixed(1)} x` : '-');
  for (const operation of wanted) {
    for (const [where, rows] of Object.entries(results)) {
      const row = rows.find((r) => r.operation === operation && (r.n === size || r.n === 1024));
      if (row === undefined) continue;
      const { ms, ratios } = row;
      const ours =
        operation.includes('JS in') && ms.js !== undefined
          ? ms.js
          : operation.includes('asymmetric')
            ? ms.asymmetric
            : ms.ours;
      const limit = Object.entries(ratios).find(([name]) => name.endsWith('limit') && name !== 'divider limit');
      lines.push(
        `| ${operation} | ${where} | ${ours < 1 ? ours.toFixed(4) : ours.toFixed(1)} | ${limit ? `${limit[1].toFixed(2)} x` : '-'} | ${times(ratios.ort)} | ${times(ratios.plain)} |`,
      );
    }
  }
  const cpu = cpus()[0]?.model ?? 'unknown processor';
  return `${lines.join('\n')}\n\nFastest turns on one core of ${cpu}, ${(size / 2 ** 20).toFixed(0)} Mi floats but for the last row.`;
}

/** The table of ggml's block types for the guide. */
function blockTableOf(results) {
  const lines = [
    '| type | Node, million weights a second | of native ggml | Chromium | dequantize, Node |',
    '|---|---|---|---|---|',
  ];
  const rate = (row) => (row === undefined ? '-' : row.ratios['million a second'].toFixed(0));
  for (const { operation, ratios } of results.Node ?? []) {
    const type = /^quantize to ([A-Z0-9_]+)$/.exec(operation)?.[1];
    if (type === undefined) continue;
    const row = (where, name) => results[where]?.find((candidate) => candidate.operation === name);
    lines.push(
      `| ${type} | ${rate({ ratios })} | ${ratios.native?.toFixed(1) ?? '–'} x | ${rate(row('Chromium', operation))} | ${rate(row('Node', `dequantize ${type}`))} |`,
    );
  }
  return lines.join('\n');
}

/** The table of range searches for the guide. */
function rangeTableOf(results) {
  const lines = [
    '| search in 1 Mi floats | where | ours, ms | of quantizing alone | plain JavaScript / ours |',
    '|---|---|---|---|---|',
  ];
  for (const { operation } of results.Node ?? results.Chromium) {
    for (const [where, rows] of Object.entries(results)) {
      const row = rows.find((r) => r.operation === operation);
      if (row === undefined || !('quantizes' in row.ratios)) continue;
      const { ms, ratios } = row;
      const plain = Number.isFinite(ratios.plain) ? `${ratios.plain.toFixed(1)} x` : '-';
      lines.push(`| ${operation} | ${where} | ${ms.ours.toFixed(1)} | ${ratios.quantizes.toFixed(1)} x | ${plain} |`);
    }
  }
  return lines.join('\n');
}

/** The table of layers for the guide. */
function linearTableOf(results) {
  const lines = [
    '| layer | where | ours, ms | of reading the weights | onnxruntime-web float32 / ours | int8 / ours | MatMulNBits / ours | plain JavaScript / ours |',
    '|---|---|---|---|---|---|---|---|',
  ];
  const times = (value) => (Number.isFinite(value) ? `${value.toFixed(1)} x` : '-');
  for (const { operation } of results.Node ?? results.Chromium) {
    for (const [where, rows] of Object.entries(results)) {
      const row = rows.find((r) => r.operation === operation);
      if (!/^(W\d|float32 w)/.test(operation) || row === undefined) continue;
      const { ms, ratios } = row;
      const limit = operation.includes('rows') ? '-' : `${ratios['read limit'].toFixed(1)} x`;
      lines.push(
        `| ${operation} | ${where} | ${ms.ours < 0.1 ? ms.ours.toFixed(4) : ms.ours.toFixed(2)} | ${limit} | ${times(ratios['ort f32'])} | ${times(ratios['ort int8'])} | ${times(ratios['ort nbits'])} | ${times(ratios.plain)} |`,
      );
    }
  }
  return lines.join('\n');
}

/** The page of the guide with all tables, each between two marker comments. README.md has three of their rows. */
const guide = join(root, 'web/demo/guide/14-measured-speed.md');

/** Puts a table between the markers of a page. */
function putTable(path, name, table) {
  const text = readFileSync(path, 'utf8');
  const [start, end] = [`<!-- ${name}: start -->`, `<!-- ${name}: end -->`];
  const [from, to] = [text.indexOf(start), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${path} has no place for the table: ${start} ... ${end}`);
  writeFileSync(path, `${text.slice(0, from + start.length)}\n${table}\n${text.slice(to)}`);
}

/** Replaces the tables that were measured. */
function updatePages(results) {
  for (const [part, name, tableFrom] of [
    ['elementwise', 'bench', tableOf],
    ['blocks', 'blocks', blockTableOf],
    ['linear', 'linear', linearTableOf],
    ['ranges', 'ranges', rangeTableOf],
  ]) {
    if (!wanted.includes(part)) continue;
    const { models: _, ...places } = results;
    putTable(guide, name, tableFrom(places));
  }
  putTable(join(root, 'README.md'), 'rows', speedTable(readFileSync(guide, 'utf8')));
  // Biome aligns the tables of the guide, and `npm test` checks that it did.
  execFileSync(join(root, 'node_modules/.bin/biome'), ['format', '--write', 'web/demo/guide'], { cwd: root });
}

const results = {};
if (everywhere || options.node) {
  results.Node = await inNode();
  if (wanted.includes('models')) {
    console.log('\nModel files\n');
    results.models = await models();
  }
}
if (everywhere || options.chromium) results.Chromium = await inChromium();
const report = join(root, 'build/bench/elementwise.json');
mkdirSync(dirname(report), { recursive: true });
writeFileSync(report, `${JSON.stringify(results, null, 2)}\n`);
if (options.readme) updatePages(results);
console.log(`\nAll figures: ${report}`);
