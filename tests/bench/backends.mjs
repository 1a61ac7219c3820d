// ONNX results on the backends of onnxruntime: the native one, WebAssembly, and WebGPU in Chromium, on SwiftShader where there is no GPU. For
// each kind of operator, target and backend it prints the error of the outputs, the nodes that WebGPU leaves to the CPU, and the time. The
// error is relative to the float32 model in WebAssembly. "wrong": more than twice that of the same file in WebAssembly, plus a thousandth.
//   node tests/bench/backends.mjs [--only NAME] [--to TARGET,…] [--web FOLDER] [--node FOLDER]
// FOLDER: onnxruntime-web or onnxruntime-node, if others than those installed here.
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright';
import { calibrateModel, quantizeModel } from '../../dist/model.js';
import { launchOptions } from '../../scripts/chromium.mjs';
import { samples } from './backend-models.mjs';

const root = fileURLToPath(new URL('../../', import.meta.url));
const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    to: { type: 'string' },
    rounds: { type: 'string', default: '10' },
    web: { type: 'string', default: join(root, 'node_modules/onnxruntime-web') },
    node: { type: 'string', default: join(root, 'tests/transformers/node_modules/onnxruntime-node') },
  },
});
const all = 'q8,int8,uint8,int8-static,int8-weights,uint8-weights,int4-weights,q4,q4f16,q2,q2f16,q8-blocks,bnb4,fp16';
const targets = (values.to ?? all).split(',');
const rounds = Number(values.rounds);

// ----------------------------------------------------------------------------------------------------------------- browser

/** Models by path of their address. */
const files = new Map();
const server = createServer((request, response) => {
  const path = new URL(request.url ?? '/', 'http://localhost').pathname;
  const isModule = path.startsWith('/web/');
  const file = isModule ? join(values.web, 'dist', path.slice(5)) : undefined;
  const body = file === undefined ? files.get(path) : existsSync(file) ? readFileSync(file) : undefined;
  const type = path.endsWith('.mjs') ? 'text/javascript' : path.endsWith('.wasm') ? 'application/wasm' : 'text/html';
  response.writeHead(body === undefined && path !== '/' ? 404 : 200, { 'content-type': type });
  response.end(body ?? '<!doctype html>');
});
await new Promise((done) => server.listen(0, 'localhost', done));
const origin = `http://localhost:${server.address().port}`;

const args = launchOptions.args.filter((argument) => argument !== '--disable-gpu');
const browser = await chromium.launch({
  ...launchOptions,
  args: [...args, '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'],
});

/** Runs a model in a page of its own, which a crash ends. */
async function inPage(provider, { file, feeds, output }) {
  const page = await browser.newPage();
  /** Lines of the log about nodes of the CPU. */
  const onCpu = [];
  let isCpu = false;
  page.on('console', (message) => {
    for (const line of message.text().split('\n')) {
      const placed = /placed on \[(\w+)\]/.exec(line);
      if (placed !== null) isCpu = placed[1] === 'CPUExecutionProvider';
      const node = /(?:^|\])\s+([A-Z]\w+) \([^)]*\)\s*$/.exec(line);
      if (placed === null && isCpu && node !== null) onCpu.push(node[1]);
    }
  });
  files.set('/model.onnx', file);
  try {
    await page.goto(origin);
    const plain = Object.entries(feeds).map(([name, { type, dims, data }]) => [
      name,
      type,
      dims,
      Array.from(data, Number),
    ]);
    const result = await page.evaluate(
      async ([provider, plain, output, rounds]) => {
        const ort = await import(/* @vite-ignore */ `/web/ort.${provider}.bundle.min.mjs`);
        ort.env.wasm.wasmPaths = '/web/';
        ort.env.wasm.numThreads = 1;
        ort.env.logLevel = provider === 'webgpu' ? 'verbose' : 'error';
        const bytes = new Uint8Array(await (await fetch('/model.onnx')).arrayBuffer());
        try {
          const session = await ort.InferenceSession.create(bytes, {
            executionProviders: [provider],
            graphOptimizationLevel: 'all',
            logSeverityLevel: provider === 'webgpu' ? 0 : 3,
          });
          ort.env.logLevel = 'error';
          const feeds = Object.fromEntries(
            plain.map(([name, type, dims, data]) => {
              const typed = type === 'int64' ? BigInt64Array.from(data, BigInt) : Float32Array.from(data);
              return [name, new ort.Tensor(type, typed, dims)];
            }),
          );
          const run = async () => {
            const results = await session.run(feeds, { logSeverityLevel: 3 });
            return results[output].getData();
          };
          const data = Array.from(await run());
          let best = Number.POSITIVE_INFINITY;
          for (let i = 0; i < rounds; i++) {
            const start = performance.now();
            await run();
            best = Math.min(best, performance.now() - start);
          }
          return { data, best };
        } catch (cause) {
          return { failure: String(cause?.message ?? cause) };
        }
      },
      [provider, plain, output, rounds],
    );
    return { ...result, onCpu };
  } catch (cause) {
    return { failure: `crash: ${String(cause?.message ?? cause).split('\n')[0]}`, onCpu };
  } finally {
    await page.close();
  }
}

// ------------------------------------------------------------------------------------------------------------------ native

const native = existsSync(values.node) ? createRequire(import.meta.url)(resolve(values.node)) : undefined;

async function inNode({ file, feeds, output }) {
  if (native === undefined) return undefined;
  try {
    const session = await native.InferenceSession.create(file.slice(), {
      graphOptimizationLevel: 'all',
      logSeverityLevel: 3,
      intraOpNumThreads: 1,
    });
    const given = Object.fromEntries(
      Object.entries(feeds).map(([name, { type, dims, data }]) => [name, new native.Tensor(type, data, dims)]),
    );
    const run = async () => (await session.run(given))[output].data;
    const data = Array.from(await run());
    let best = Number.POSITIVE_INFINITY;
    for (let i = 0; i < rounds; i++) {
      const start = performance.now();
      await run();
      best = Math.min(best, performance.now() - start);
    }
    return { data, best, onCpu: [] };
  } catch (cause) {
    return { failure: String(cause?.message ?? cause), onCpu: [] };
  }
}

// ------------------------------------------------------------------------------------------------------------------- table

/** The distance of two vectors, relative to the length of the first. */
function distance(a, b) {
  let [differences, squares] = [0, 0];
  for (const [i, x] of a.entries()) {
    differences += (x - b[i]) ** 2;
    squares += x * x;
  }
  return Math.sqrt(differences / squares);
}

/** Text of a cell of the table. @param base the same file in WebAssembly */
function cell(result, reference, base) {
  if (result === undefined) return '';
  if (result.failure !== undefined) return `fails: ${result.failure.replace(/\s+/g, ' ').slice(0, 90)}`;
  const error = distance(reference, result.data);
  const limit = 2 * (base?.data === undefined ? 0 : distance(reference, base.data)) + 1e-3;
  const counts = new Map();
  for (const op of result.onCpu) counts.set(op, (counts.get(op) ?? 0) + 1);
  const list = [...counts].map(([op, n]) => `${n} ${op}`).join(' ');
  const wrong = base !== undefined && !(error <= limit) ? ' WRONG' : '';
  return `${error.toExponential(1)} ${result.best.toFixed(2)} ms${wrong}${list === '' ? '' : ` (CPU: ${list})`}`;
}

for (const [name, make] of Object.entries(samples)) {
  if (values.only !== undefined && !name.includes(values.only)) continue;
  const sample = make();
  const base = await inPage('wasm', sample);
  console.log(`\n${name}`);
  const line = (to, wasm, webgpu, node) =>
    console.log(`  ${to.padEnd(14)} ${wasm.padEnd(24)} webgpu ${webgpu.padEnd(24)} native ${node}`);
  const [gpu, node] = [await inPage('webgpu', sample), await inNode(sample)];
  line('float32', cell(base, base.data), cell(gpu, base.data, base), cell(node, base.data, base));
  for (const to of targets) {
    const inputs = Object.fromEntries(
      Object.entries(sample.feeds).map(([input, { dims, data }]) => [input, { data, shape: dims }]),
    );
    const ranges = to === 'int8-static' ? await calibrateModel(sample.file, [inputs], { ranges: true }) : undefined;
    const { report, bytes } = await quantizeModel(sample.file, { to, ranges, workers: 0 });
    if (report.totals.quantized + report.totals.cast === 0) {
      line(to, '-', '', '');
      continue;
    }
    const made = { ...sample, file: await bytes() };
    const wasm = await inPage('wasm', made);
    const webgpu = await inPage('webgpu', made);
    const native = await inNode(made);
    line(to, cell(wasm, base.data), cell(webgpu, base.data, wasm), cell(native, base.data, wasm));
  }
}
await browser.close();
server.close();
