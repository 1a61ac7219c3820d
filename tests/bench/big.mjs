// Quantizes a safetensors model of 3 GiB in Chromium, from a file to the origin private file system. Prints the time and the memory of
// each process.
//
//   npm run build && node tests/bench/big.mjs [--to int8] [--workers 2]
//   SCALEPOINT_SAMPLES=... node tests/bench/big.mjs --to Q4_K_M --folder      a folder of Hugging Face instead, which becomes GGUF
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright';
import { launchOptions } from '../../scripts/chromium.mjs';
import { serve } from '../../scripts/serve.mjs';

const { values: options } = parseArgs({
  options: {
    to: { type: 'string', default: 'int8' },
    workers: { type: 'string', default: '2' },
    folder: { type: 'boolean', default: false },
  },
});
const dist = fileURLToPath(new URL('../../dist', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-big-'));
const mebibytes = (/** @type {number} */ bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`;

/** Matrices and a single row. @returns {[name: string, shape: number[]][]} */
function plainShapes() {
  const [rows, columns] = [12_288, 16_384];
  return ['a', 'b', 'c', 'd'].map((name, i) => [`${name}.weight`, i === 1 ? [1, rows * columns] : [rows, columns]]);
}

/**
 * Writes what stands beside the weights of a Llama model: the tokenizer of a sample model, and its config.json with other sizes.
 * @returns {{ shapes: [name: string, shape: number[]][], files: string[] }}
 */
function writeLlama() {
  const sample = join(process.env.SCALEPOINT_SAMPLES ?? '', 'tinystories-656k');
  const names = ['tokenizer.json', 'tokenizer_config.json'];
  for (const name of names) copyFileSync(join(sample, name), join(folder, name));
  const config = JSON.parse(readFileSync(join(sample, 'config.json'), 'utf8'));
  const [hidden, inner, layers, heads] = [4096, 11_008, 4, 32];
  const sizes = { hidden_size: hidden, intermediate_size: inner, num_hidden_layers: layers };
  const attention = { num_attention_heads: heads, num_key_value_heads: heads, head_dim: hidden / heads };
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, ...sizes, ...attention }));
  /** @type {[name: string, shape: number[]][]} */
  const shapes = [
    ['model.embed_tokens.weight', [config.vocab_size, hidden]],
    ['model.norm.weight', [hidden]],
  ];
  for (let i = 0; i < layers; i++) {
    const add = (/** @type {string} */ name, /** @type {number[]} */ ...shape) => {
      shapes.push([`model.layers.${i}.${name}.weight`, shape]);
    };
    for (const name of ['input_layernorm', 'post_attention_layernorm']) add(name, hidden);
    for (const name of ['q', 'k', 'v', 'o']) add(`self_attn.${name}_proj`, hidden, hidden);
    for (const name of ['gate', 'up']) add(`mlp.${name}_proj`, inner, hidden);
    add('mlp.down_proj', hidden, inner);
  }
  return { shapes, files: ['config.json', ...names].map((name) => join(folder, name)) };
}

/** Writes a sparse file: zeros with 2000 other values, so that it takes little space on the disk. */
async function makeModel(/** @type {[name: string, shape: number[]][]} */ shapes) {
  let end = 0;
  /** @type {Record<string, object>} */
  const entries = {};
  for (const [name, shape] of shapes) {
    const begin = end;
    end += 4 * shape.reduce((a, b) => a * b, 1);
    entries[name] = { dtype: 'F32', shape, data_offsets: [begin, end] };
  }
  const json = JSON.stringify(entries);
  const header = Buffer.alloc(8 + json.length);
  header.writeBigUInt64LE(BigInt(json.length));
  header.write(json, 8);
  const path = join(folder, 'model.safetensors');
  const file = await open(path, 'wx');
  await file.write(header, 0, header.length, 0);
  await file.truncate(header.length + end);
  for (let i = 0; i < 2000; i++) {
    const value = Buffer.alloc(4);
    value.writeFloatLE(Math.sin(i + 1));
    await file.write(value, 0, 4, header.length + Math.floor((i * end) / 8000) * 4);
  }
  await file.close();
  return path;
}

/** The script of the page. */
const page = `
import { quantizeModel } from './model.js';
globalThis.convert = async (options) => {
  const root = await navigator.storage.getDirectory();
  const output = await root.getFileHandle('result.safetensors', { create: true });
  const begin = performance.now();
  const { report } = await quantizeModel([...document.querySelector('input').files], { ...options, output });
  const seconds = (performance.now() - begin) / 1000;
  const { size } = await output.getFile();
  await root.removeEntry('result.safetensors');
  return { seconds, size, promised: report.totals.bytesAfter };
};`;

/** Current and peak memory in bytes of all descendants of a process. */
function memoryOf(/** @type {number} */ root) {
  /** @type {Map<number, { parent: number, command: string, now: number, peak: number }>} */
  const processes = new Map();
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      const status = readFileSync(`/proc/${name}/status`, 'latin1');
      const field = (/** @type {string} */ key) => Number(new RegExp(`^${key}:\\s*(\\d+)`, 'm').exec(status)?.[1] ?? 0);
      const command = readFileSync(`/proc/${name}/cmdline`, 'latin1');
      processes.set(Number(name), {
        parent: field('PPid'),
        command,
        now: 1024 * field('VmRSS'),
        peak: 1024 * field('VmHWM'),
      });
    } catch {
      // The process has ended in the meantime.
    }
  }
  const belongs = (/** @type {number} */ id) => {
    for (let at = id; at > 1; at = processes.get(at)?.parent ?? 0) if (at === root) return true;
    return false;
  };
  const found = [...processes].filter(([id]) => id !== root && belongs(id));
  return found.map(([id, { command, now, peak }]) => {
    return { id, kind: /--type=([\w-]+)/.exec(command)?.[1] ?? 'browser', now, peak };
  });
}

try {
  const { shapes, files } = options.folder ? writeLlama() : { shapes: plainShapes(), files: [] };
  const path = await makeModel(shapes);
  for (const name of readdirSync(dist).filter((entry) => /\.(js|wasm)$/.test(entry))) {
    copyFileSync(join(dist, name), join(folder, name));
  }
  writeFileSync(join(folder, 'page.js'), page);
  writeFileSync(
    join(folder, 'index.html'),
    '<!doctype html><input type="file" multiple><script type="module" src="page.js"></script>',
  );
  const site = await serve({ folder, port: 0, policy: "script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'" });
  // A profile on the disk, because without one Chromium keeps the private file system in memory.
  const browser = await chromium.launchPersistentContext(join(folder, 'profile'), launchOptions);
  try {
    const tab = await browser.newPage();
    await tab.goto(site.url);
    await tab.setInputFiles('input', [path, ...files]);
    const before = memoryOf(process.pid);
    const more = options.folder ? { missingBytes: 'keep' } : {};
    const script = `convert(${JSON.stringify({ to: options.to, workers: Number(options.workers), ...more })})`;
    const { seconds, size, promised } = await tab.evaluate(script);
    if (size !== promised) throw new Error(`the result has ${size} bytes instead of ${promised}`);
    console.log(
      `3 GiB to ${options.to} with ${options.workers} workers in ${seconds.toFixed(1)} s, ${mebibytes(size)}`,
    );
    for (const { id, kind, peak } of memoryOf(process.pid)) {
      const base = before.find((other) => other.id === id)?.now;
      if (base === undefined || peak - base < 2 ** 20) continue;
      console.log(`${kind.padEnd(10)} ${mebibytes(base).padStart(9)} before, ${mebibytes(peak).padStart(9)} at most`);
    }
  } finally {
    await browser.close();
    await site.close();
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
