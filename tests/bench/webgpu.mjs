// ONNX results on a GPU, without a browser: onnxruntime-web runs in Node, on the WebGPU of the npm package `webgpu`, which is Dawn as in Chromium.
// For each kind of operator and target it prints the error of the outputs to the float32 model in WebAssembly, the share of the backend (the
// error to the same file in WebAssembly), the median time of a run, the time of its kernels on the GPU, and the nodes and copies of the CPU.
//   npm install --prefix FOLDER webgpu@0.6.2
//   node tests/bench/webgpu.mjs --webgpu FOLDER/node_modules/webgpu [--only NAME] [--to TARGET,…] [--large] [--adapter NAME]
//     [--toggles NAME,…] [--block-size N] [--zero-points true|float] [--kernels]
// --large: models of useful sizes. --toggles: those of Dawn, such as vulkan_enable_f16_on_nvidia. --kernels: the time of each kind of kernel.
import { fork } from 'node:child_process';
import fs from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { largeSamples, samples } from './backend-models.mjs';

const { values } = parseArgs({
  options: {
    webgpu: { type: 'string' },
    only: { type: 'string' },
    to: { type: 'string' },
    large: { type: 'boolean', default: false },
    adapter: { type: 'string' },
    toggles: { type: 'string' },
    kernels: { type: 'boolean', default: false },
    'block-size': { type: 'string' },
    'zero-points': { type: 'string' },
  },
});
if (values.webgpu === undefined) throw new Error('--webgpu FOLDER: the npm package');
const all = 'q8,int8,uint8,int8-static,int8-weights,uint8-weights,int4-weights,q4,q4f16,q2,q2f16,q8-blocks,bnb4,fp16';
const runtimeFolder = new URL('../../node_modules/onnxruntime-web/dist/', import.meta.url);

/** Times of runs last at most this many ms per model, and there are at most this many. */
const [mostMs, mostRuns] = [1000, 50];
const profiledRuns = 16;
/** Time for which the GPU is kept busy before times are measured, in ms. */
const heatMs = 200;
/** Architectures of programs that stand in for a GPU. */
const software = ['swiftshader', 'llvmpipe', 'lavapipe', 'warp'];

/** @param {number[]} list */
function median(list) {
  const sorted = list.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? Number.NaN;
}

/** @param {import('./backend-models.mjs').Sample['feeds']} feeds */
const tensorsOf = (ort, feeds) =>
  Object.fromEntries(
    Object.entries(feeds).map(([name, { type, dims, data }]) => [name, new ort.Tensor(type, data, dims)]),
  );

// ------------------------------------------------------------------------------------------------------------------ child: WebGPU

/** Gives this process the WebGPU of the package, as a page has it. */
async function installWebGpu() {
  const { create, globals } = await import(pathToFileURL(`${values.webgpu}/index.js`).href);
  Object.assign(globalThis, globals);
  const { writeBuffer } = GPUQueue.prototype;
  // The wasm memory is shared, which the package does not accept.
  GPUQueue.prototype.writeBuffer = function (buffer, at, data, ...rest) {
    const isShared = ArrayBuffer.isView(data) && data.buffer instanceof SharedArrayBuffer;
    return writeBuffer.call(this, buffer, at, isShared ? data.slice() : data, ...rest);
  };
  const gpu = create([
    'disable-dawn-features=timestamp_quantization',
    ...(values.toggles === undefined ? [] : [`enable-dawn-features=${values.toggles}`]),
    ...(values.adapter === undefined ? [] : [`adapter=${values.adapter}`]),
  ]);
  Object.defineProperty(globalThis, 'navigator', { value: { gpu, hardwareConcurrency: 1 } });
  // Node waits for all background compilation of wasm where nothing else is left to do.
  setInterval(() => {}, 1);
  return gpu.requestAdapter({ powerPreference: 'high-performance' });
}

const heatShader = `
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3u) {
  var v = f32(id.x);
  for (var i = 0; i < 20000; i++) { v = fma(v, 0.999, 1.0); }
  x[id.x] = v;
}`;

/** Makes a function that keeps the GPU busy for some time, because an idle one has a lower clock. @param {GPUAdapter} adapter */
async function heater(adapter) {
  if (software.includes(adapter.info.architecture)) return async () => {};
  const device = await adapter.requestDevice();
  const groups = 4096;
  const buffer = device.createBuffer({ size: groups * 256 * 4, usage: GPUBufferUsage.STORAGE });
  const module = device.createShaderModule({ code: heatShader });
  const pipeline = await device.createComputePipelineAsync({ layout: 'auto', compute: { module } });
  const layout = pipeline.getBindGroupLayout(0);
  const group = device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer } }] });
  return async () => {
    const start = performance.now();
    while (performance.now() - start < heatMs) {
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      for (let i = 0; i < 20; i++) pass.dispatchWorkgroups(groups);
      pass.end();
      device.queue.submit([encoder.finish()]);
      await device.queue.onSubmittedWorkDone();
    }
  };
}

/** Lines that the runtime prints, which are the profile. @type {string[]} */
const printed = [];

/** Nodes and copies of a run, and the time of its kernels on the GPU in ms. @param {string[]} lines of a profile */
function placed(lines) {
  const events = lines
    .join('\n')
    .split('\n')
    .flatMap((line) => {
      try {
        return [JSON.parse(line.replace(/,\s*$/, ''))];
      } catch {
        return [];
      }
    });
  const nodes = events.filter(({ cat, name }) => cat === 'Node' && name.endsWith('_kernel_time'));
  const onCpu = nodes.filter(({ args }) => args.provider === 'CPUExecutionProvider').map(({ args }) => args.op_name);
  const kernels = events.filter(({ cat }) => cat === 'Api');
  const each = kernels.length / (profiledRuns + 1);
  const sums = Array.from({ length: profiledRuns }, (_, i) =>
    kernels.slice((i + 1) * each, (i + 2) * each).reduce((sum, { dur }) => sum + dur / 1000, 0),
  );
  const isCopy = (op) => op === 'MemcpyFromHost' || op === 'MemcpyToHost';
  const copies = nodes.filter(({ args }) => isCopy(args.op_name)).length / (profiledRuns + 1);
  const counts = {};
  for (const op of onCpu) if (!isCopy(op)) counts[op] = (counts[op] ?? 0) + 1 / (profiledRuns + 1);
  const byKernel = {};
  for (const { name, dur } of kernels.slice(each)) byKernel[name] = (byKernel[name] ?? 0) + dur / 1000 / profiledRuns;
  return { onCpu: counts, copies, kernelMs: median(sums), byKernel };
}

/** Runs a model on WebGPU. */
async function onGpu(ort, heat, { file, feeds, output }) {
  const create = (enableProfiling) =>
    ort.InferenceSession.create(file, { executionProviders: ['webgpu'], enableProfiling, logSeverityLevel: 4 });
  const given = tensorsOf(ort, feeds);
  const begin = performance.now();
  const session = await create(false);
  const run = async () => (await session.run(given))[output].getData();
  const data = Float32Array.from(await run());
  const first = performance.now() - begin;
  for (let i = 0; i < 3; i++) await run();
  await heat();
  const times = [];
  const start = performance.now();
  while (times.length < mostRuns && performance.now() - start < mostMs) {
    const from = performance.now();
    await run();
    times.push(performance.now() - from);
  }
  await session.release();
  printed.length = 0;
  const profiled = await create(true);
  await profiled.run(given);
  await heat();
  for (let i = 0; i < profiledRuns; i++) await profiled.run(given);
  profiled.endProfiling();
  await profiled.release();
  return { data, first, ms: median(times), ...placed(printed) };
}

/** Answers jobs of the parent. */
async function serve() {
  // The runtime writes to the file of the output, past the console.
  const { writeSync } = fs;
  fs.writeSync = (to, text, ...rest) => {
    if (to !== 1) return writeSync(to, text, ...rest);
    printed.push(text);
    return text.length;
  };
  const adapter = await installWebGpu();
  if (adapter === null) throw new Error('no WebGPU adapter');
  const ort = await import(new URL('ort.webgpu.bundle.min.mjs', runtimeFolder).href);
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = runtimeFolder.href;
  ort.env.logLevel = 'fatal';
  const heat = await heater(await navigator.gpu.requestAdapter({ powerPreference: 'high-performance' }));
  process.on('message', async (job) => {
    try {
      process.send(await onGpu(ort, heat, job));
    } catch (cause) {
      process.send({ failure: String(cause?.message ?? cause) });
    }
  });
  process.on('disconnect', () => process.exit());
  const { vendor, architecture, device, description } = adapter.info;
  const features = [...adapter.features].filter((name) => !name.startsWith('texture')).join(' ');
  process.send(`${vendor} ${architecture} ${device}: ${description}\nfeatures: ${features}\n`);
}

// ------------------------------------------------------------------------------------------------------------------------ parent

/** @type {Promise<import('node:child_process').ChildProcess> | undefined} */
let child;

/** The process with WebGPU; a new one after a crash. */
function started() {
  child ??= new Promise((done, fail) => {
    const one = fork(fileURLToPath(import.meta.url), process.argv.slice(2), {
      env: { ...process.env, WEBGPU_CHILD: '1' },
      serialization: 'advanced',
    });
    one.once('message', (about) => {
      console.log(about);
      done(one);
    });
    one.once('exit', (code, signal) => {
      child = undefined;
      fail(new Error(`WebGPU did not start: ${signal ?? code}`));
    });
  });
  return child;
}

/** Runs a model in the process with WebGPU. */
async function inChild(sample) {
  const one = await started();
  return new Promise((done) => {
    const onExit = (code, signal) => done({ failure: `crash: ${signal ?? code}` });
    one.once('exit', onExit);
    one.once('message', (answer) => {
      one.off('exit', onExit);
      done(answer);
    });
    one.send(sample);
  });
}

/** Outputs in WebAssembly. */
async function onWasm(ort, { file, feeds, output }) {
  try {
    const session = await ort.InferenceSession.create(file, { executionProviders: ['wasm'], logSeverityLevel: 4 });
    const data = Float32Array.from((await session.run(tensorsOf(ort, feeds)))[output].data);
    await session.release();
    return data;
  } catch (cause) {
    console.log(`  wasm fails: ${String(cause?.message ?? cause).slice(0, 200)}`);
    return undefined;
  }
}

/** The distance of two vectors, relative to the length of the first. */
function distance(a, b) {
  if (a === undefined || b === undefined) return Number.NaN;
  let [differences, squares] = [0, 0];
  for (const [i, x] of a.entries()) {
    differences += (x - b[i]) ** 2;
    squares += x * x;
  }
  return Math.sqrt(differences / squares);
}

/** The line of a result. "WRONG": the error is more than twice that of the same file in WebAssembly, plus a thousandth. */
function line(to, result, reference, wasm, floats) {
  if (result.failure !== undefined)
    return `  ${to.padEnd(14)} fails: ${result.failure.replace(/\s+/g, ' ').slice(0, 160)}`;
  const [error, onWasm] = [distance(reference, result.data), distance(reference, wasm)];
  const isRight = error <= 2 * onWasm + 1e-3;
  const cpu = Object.entries(result.onCpu).map(([op, n]) => `${Math.round(n)} ${op}`);
  const where =
    result.copies === 0 && cpu.length === 0 ? '' : ` CPU: ${[...cpu, `${result.copies} copies`].join(', ')}`;
  const ratio = (key) => (floats?.[key] === undefined ? '' : ` x${(result[key] / floats[key]).toFixed(2)}`);
  return [
    `  ${to.padEnd(14)} ${error.toExponential(1)} wasm ${onWasm.toExponential(1)} share ${distance(wasm, result.data).toExponential(1)}`,
    `${result.ms.toFixed(2)} ms${ratio('ms')}`.padEnd(16),
    `kernels ${result.kernelMs.toFixed(3)} ms${ratio('kernelMs')}`.padEnd(24),
    `first ${result.first.toFixed(0)} ms${where}${isRight ? '' : ' WRONG'}`,
  ].join('  ');
}

/** Prints all targets of a sample. */
async function show(ort, model, name, sample, targets) {
  console.log(name);
  const reference = await onWasm(ort, sample);
  const floats = await inChild(sample);
  console.log(line('float32', floats, reference, reference));
  const inputs = Object.entries(sample.feeds).map(([input, { dims, data }]) => [input, { data, shape: dims }]);
  const zeroPoints = values['zero-points'] === 'true' ? true : values['zero-points'];
  const blockSize = values['block-size'] === undefined ? undefined : Number(values['block-size']);
  let pending = Promise.resolve();
  for (const to of targets) {
    const isStatic = to === 'int8-static';
    if (isStatic && /^(Gather|LSTM|GRU)/.test(name)) continue;
    const ranges = isStatic
      ? await model.calibrateModel(sample.file, [Object.fromEntries(inputs)], { ranges: true })
      : undefined;
    const { report, bytes } = await model.quantizeModel(sample.file, { to, ranges, zeroPoints, blockSize, workers: 0 });
    if (report.totals.quantized + report.totals.cast === 0) continue;
    const made = { ...sample, file: await bytes() };
    const wasm = await onWasm(ort, made);
    await pending;
    // The next file is made meanwhile.
    pending = inChild(made).then((result) => {
      console.log(line(to, result, reference, wasm, floats));
      if (values.kernels && result.byKernel !== undefined) console.log(`    ${JSON.stringify(result.byKernel)}`);
    });
  }
  await pending;
  console.log('');
}

if (process.env.WEBGPU_CHILD !== undefined) {
  await serve();
} else {
  const model = await import('../../dist/model.js');
  const ort = await import(new URL('ort.node.min.mjs', runtimeFolder).href);
  ort.env.logLevel = 'fatal';
  await started();
  for (const [name, make] of Object.entries(values.large ? largeSamples : samples)) {
    if (values.only === undefined || name.includes(values.only))
      await show(ort, model, name, make(), (values.to ?? all).split(','));
  }
  (await started()).disconnect();
}
