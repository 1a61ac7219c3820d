// Wrong calls that people make, with the code that each message tells them to write, or the words that name the mistake.
import { createReadStream, createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { load, openIndex } from 'scalepoint';
import {
  calibrateModel,
  compareModels,
  estimateModel,
  evaluateModel,
  fitTypes,
  inspectModel,
  loadTensors,
  measureTypes,
  planModel,
  presetTarget,
  quantizeModel,
  readFloats,
  readQuantized,
  readTensor,
  resultFiles,
  saveTensors,
  sizeCurve,
  tensors,
  verifyModel,
} from 'scalepoint/model';
import { expect, it } from 'vitest';
import { problemOf } from '../../../web/src/core/errors.js';
import { safetensors, weights } from '../support/models.js';

// biome-ignore lint/suspicious/noExplicitAny: calls of JavaScript, which no compiler checks.
const any = (value: unknown) => value as any;
const sp = any(await load());
const whole = any(await load({ blocks: true }));
const x = new Float32Array(64).map((_, i) => Math.sin(i));
const [q, matrix] = [sp.quantize(x), sp.quantize(x, { shape: [8, 8] })];
const later = Promise.resolve(x);
const file = safetensors({ 'a.weight': weights('F32', [8, 8]) });
const laterFile = Promise.resolve(file);
const controller = new AbortController();
const small = sp.index(x, { shape: [4, 16] });
const index = whole.index(x, { shape: [4, 16] });
const query = x.subarray(0, 16);
const quantize = (options: unknown) => () => sp.quantize(x, options);
const inspect = (input: unknown, options?: unknown) => () => inspectModel(any(input), any(options ?? {}));
const model = (options: unknown) => () => quantizeModel(file, any(options));
const result = () => quantizeModel(file, { to: 'float16' });
const bareFloats = "{ kind: 'linear', dtype, shape, granularity, data, scale, zeroPoint }";

const calls: readonly (readonly [call: () => unknown, message: string])[] = [
  // Floats
  [
    () =>
      sp.quantize([
        [1, 2],
        [3, 4],
      ]),
    'x[0]: expected a number, got [1, 2]; write x.flat()',
  ],
  [() => sp.quantize([[[1], [2]]]), 'write x.flat(2)'],
  [() => sp.quantize([x, x]), 'write x.flatMap((row) => [...row])'],
  [() => sp.quantize(x.buffer), 'got an ArrayBuffer; write new Float32Array(x)'],
  [() => sp.quantize(new SharedArrayBuffer(8)), 'write new Float32Array(x)'],
  [() => sp.quantize(new DataView(x.buffer)), 'write new Float32Array(x.buffer, x.byteOffset, x.byteLength / 4)'],
  [() => sp.quantize(new Int32Array(4)), 'got Int32Array; write Float32Array.from(x)'],
  [() => sp.quantize(new Int8Array(4)), 'write Float32Array.from(x)'],
  [() => sp.quantize(Buffer.alloc(8)), 'write Float32Array.from(x) or new Float32Array(Uint8Array.from(x).buffer)'],
  [() => sp.quantize(new BigInt64Array(4)), 'write Float32Array.from(x, Number)'],
  [() => sp.quantize(new Uint16Array(4)), "from: 'float16' reads bits of 16-bit floats"],
  [() => sp.quantize(later), 'got a Promise; write await x'],
  [() => sp.quantize(q), 'write sp.dequantize(x)'],
  [() => sp.quantize(new Response('')), 'got a Response; write new Float32Array(await x.arrayBuffer())'],
  [() => sp.quantize(new Blob([])), 'write new Float32Array(await x.arrayBuffer())'],
  [() => sp.quantize(new Set([1])), 'write Float32Array.from(x)'],
  [() => sp.quantize({ 0: 1, length: 1 }), 'write Float32Array.from(x)'],
  [() => sp.quantize('1, 2'), 'write x.split('],
  [() => sp.quantize('[1, 2]'), 'write JSON.parse(x)'],
  [() => sp.quantize(5), 'write [x]'],
  [() => sp.quantize(['1']), 'x[0]: expected a number, got "1"; write 1'],
  [() => sp.quantize([1n]), 'got 1n; write Number(x[0])'],
  [() => sp.quantize(), 'x: expected a Float32Array'],
  [() => sp.quantize([1, null]), 'x[1]: expected a number, got null'],
  // Options of quantize
  [quantize({ dtype: 'int1' }), 'quantizeBlocks takes Q1_0'],
  [quantize({ dtype: 'int32' }), '\'uint16\', got "int32"'],
  [quantize({ dtype: 'Q4_K_M' }), 'did you mean int4?'],
  [quantize({ dtype: 'fp8' }), 'castFloat takes float8e4m3fn'],
  [quantize({ dtype: 8 }), "got 8; write 'int8'"],
  [quantize({ dtype: 4n }), "got 4n; write 'int4'"],
  [quantize('int4'), "write { dtype: 'int4' }"],
  [quantize(4), "write { dtype: 'int4' }"],
  [quantize({ bits: 4 }), "did you mean dtype: 'int4'?"],
  [quantize({ type: 'int4' }), "did you mean dtype: 'int4'?"],
  [quantize({ symmetric: false }), "did you mean scheme: 'asymmetric'?"],
  [quantize({ groupSize: 32 }), 'did you mean granularity.groupSize?'],
  [quantize({ granularity: 'per-channel' }), "write { kind: 'per-channel', axis }"],
  [quantize({ granularity: 'per_group' }), "write { kind: 'per-group', groupSize, axis }"],
  [quantize({ granularity: { kind: 'per-channel', axis: 1n } }), 'got 1n; write Number(granularity.axis)'],
  [quantize({ granularity: { kind: 'per-channel', axis: '0' } }), 'got "0"; write 0'],
  [quantize({ shape: [8n, 8n] }), 'got [8n, 8n]; write shape.map(Number)'],
  [quantize({ shape: Int32Array.of(8, 8) }), 'write [...shape]'],
  [quantize({ shape: 64 }), 'write [64]'],
  [quantize({ shape: [8, 9] }), 'expected a shape of 64 elements, got [8, 9]'],
  [quantize({ range: 'minmax' }), 'did you mean min-max?'],
  [quantize({ range: [-1, 1] }), 'write { min: -1, max: 1 }'],
  [quantize({ range: { percentile: 0.999 } }), 'got 0.999; write 99.9'],
  [quantize({ range: 'percentile' }), 'write { percentile }'],
  [quantize({ out: x.slice() }), 'got Float32Array; write new Int8Array(64)'],
  [quantize({ nonFinite: true }), "expected 'error' or 'saturate', got true"],
  // Other calls on arrays
  [() => sp.dequantize(Promise.resolve(q)), 'got a Promise; write await q'],
  [() => sp.dequantize(x), 'write sp.quantize(q)'],
  [() => sp.dequantize(q.data), `write ${bareFloats}`],
  [() => sp.dequantize({ data: q.data, scale: q.scale }), `write ${bareFloats}`],
  [() => sp.dequantize([q]), 'write q[0]'],
  [() => sp.dequantize(JSON.parse(JSON.stringify(q))), 'saveTensors'],
  [() => sp.compare(q, x), 'a: expected a Float32Array'],
  [() => sp.compare(x, later), 'write await b'],
  [() => whole.quantizeBlocks(x, 'Q4_K_M'), 'did you mean Q4_K?'],
  [() => whole.quantizeBlocks(x, { type: 'Q8_0' }), "write 'Q8_0'"],
  [() => whole.quantizeBlocks(x, 'int4'), 'quantize takes int4'],
  [() => sp.quantizeCodebook(x, 'nf4'), "write { codebook: 'nf4' }"],
  [() => sp.quantizeCodebook(x, { codebook: [0, 1] }), 'write Float32Array.from(codebook)'],
  [() => sp.castFloat(x, { to: 'float16' }), "write 'float16'"],
  [() => sp.castFloat(x, 'int8'), 'quantize takes int8'],
  [() => sp.castToFloat32(x.buffer, 'float16'), 'write new Uint16Array(bits)'],
  [() => sp.castToFloat32(new Uint8Array(4), 'float16'), 'write new Uint16Array(Uint8Array.from(bits).buffer)'],
  [() => sp.histogram(x, { bins: 256n }), 'got 256n; write Number(bins)'],
  [() => sp.pack(q.data), `write ${bareFloats}`],
  [() => sp.unpack(new ArrayBuffer(64), q), 'write new Uint8Array(bytes)'],
  [() => sp.allocate('float32', 4n), 'got 4n; write Number(length)'],
  [() => sp.linear(x), 'write sp.quantize(q)'],
  [() => sp.linear(matrix).forward(later), 'write await x'],
  [() => sp.sweep(x, { dtype: 'int4' }), 'write [variants]'],
  [() => sp.sweep(x, ['int4']), "write { dtype: 'int4' }"],
  [() => sp.observer('mse'), "write { dtype: 'mse' }"],
  [() => load(any({ simd: true })), "write 'on'"],
  [() => load(any({ wasm: 'core.wasm' })), "write new URL('core.wasm', import.meta.url)"],
  [() => load(any({ wasm: Promise.resolve(file) })), 'write await wasm'],
  // Search
  [() => sp.index([later]), 'write await vectors[0]'],
  [() => sp.index(x), 'shape: expected [count, dimension]'],
  [() => whole.index(x, { shape: [4, 16], metric: 'l2' }), 'did you mean euclidean?'],
  [() => whole.index(x, { shape: [4, 16], bits: '4' }), 'got "4"; write 4'],
  [() => whole.index(x, { shape: [4, 16], bits: 4n }), 'got 4n; write 4'],
  [() => small.search(query, 10n), 'got 10n; write Number(k)'],
  [() => small.search([query]), 'write query.flatMap((row) => [...row])'],
  [() => index.search('hello'), 'query: expected a Float32Array'],
  [() => index.searchMany(x, 3, { signal: controller }), 'got an AbortController; write controller.signal'],
  [() => openIndex(any(laterFile)), 'write await file'],
  // Files
  [inspect(laterFile), 'got a Promise; write await file'],
  [inspect(x), 'write new Uint8Array(file.buffer, file.byteOffset, file.byteLength)'],
  [inspect(new SharedArrayBuffer(8)), 'write new Uint8Array(file)'],
  [inspect([1, 2]), 'write Uint8Array.from(file)'],
  [inspect(new Request('http://a.invalid/b')), 'got a Request; write await fetch(file)'],
  [async () => inspectModel(any(await result())), 'write await file.bytes()'],
  [inspect(new Response(null, { status: 404 })), 'the server answered 404'],
  [inspect(file, { signal: controller }), 'write controller.signal'],
  [model(undefined), 'options: expected an object, got undefined'],
  [model('int8'), "write { to: 'int8' }"],
  [model({ to: 'Q4_K_M' }), 'GGUF needs config.json and the tokenizer beside the weights'],
  [model({ to: 'int1' }), 'did you mean int4 for safetensors or Q1_0 for GGUF'],
  [model({ to: 'int5' }), 'did you mean int8 for safetensors or ONNX or Q5_K_M for GGUF?'],
  [model({ dtype: 'int8' }), "did you mean to: 'int8'?"],
  [model({ bits: 8 }), "did you mean to: 'int8'?"],
  [model({ to: 'int8', threads: 4 }), 'did you mean workers?'],
  [model({ to: 'int8', workers: '4' }), 'got "4"; write 4'],
  [model({ to: 'int8', signal: controller }), 'write controller.signal'],
  [model({ to: 'int8', output: new Uint8Array(9) }), 'write await result.bytes() without it'],
  [model({ to: 'int8', output: process.stdout }), 'write Writable.toWeb(output)'],
  [model({ to: 'int8', rules: { match: /a/, keep: true } }), 'write [rules]'],
  [model({ to: 'int8', config: 'config.json' }), "write JSON.parse(await readFile(config, 'utf8'))"],
  [model(planModel(file, { to: 'int8' })), 'got a Promise; write await options'],
  [() => planModel(file, any('int8')), "write { to: 'int8' }"],
  [() => compareModels(file, any(quantizeModel(file, { to: 'int8' }))), 'b: expected a Uint8Array'],
  [async () => verifyModel(any(await result())), 'write await file.bytes()'],
  [() => readTensor(file, any(undefined)), "name: expected the name of a tensor such as 'fc1.weight', got undefined"],
  [() => readFloats(file, any(0)), 'name: expected the name of a tensor'],
  [() => readQuantized(file, any(undefined)), 'name: expected the name of a tensor'],
  [() => tensors(any(laterFile)).next(), 'write await file'],
  [
    () => saveTensors(any(Promise.resolve({ a: x }))),
    'tensors: expected an object of tensors, got a Promise; write await',
  ],
  [() => saveTensors(any([x])), 'tensors: expected an object of tensors'],
  [() => saveTensors(any(new Map([['a', x]]))), 'write Object.fromEntries(tensors)'],
  [() => saveTensors(any({ a: later })), 'write await tensors.a'],
  [() => saveTensors(any({ a: [1, 2] })), 'write Float32Array.from(tensors.a)'],
  [() => loadTensors(any(laterFile)), 'write await file'],
  [() => calibrateModel(file, any(undefined)), 'data: expected'],
  [() => evaluateModel(file, any('hello')), 'options: expected an object, got "hello"'],
  [() => estimateModel(file, any('int8')), "write { to: 'int8' }"],
  [() => measureTypes(file, any(undefined)), 'options: expected an object, got undefined'],
  [() => fitTypes(any(Promise.resolve({})), { targetSize: 1 }), 'write await table'],
  [() => sizeCurve(any(undefined)), 'table: expected the object that measureTypes returned, got undefined'],
  [() => resultFiles('a', any(undefined)), 'plan: expected the object that planModel or quantizeModel returned'],
  [() => resultFiles('a', any({ files: [] })), "plan.format: expected 'safetensors'"],
  [() => presetTarget('gguf', any('medium')), "expected 'small', 'balanced' or 'safe'"],
];

it.each(calls.map(([call, message]) => ({ call, message, name: String(call).slice(0, 90) })))(
  'says what to write: $name',
  async ({ call, message }) => {
    const error = await (async () => call())().then(
      () => undefined,
      (reason: unknown) => reason,
    );
    const text = (error as Error | undefined)?.message ?? 'no error';
    expect(text).toContain(message);
    // Wrong arguments name the option. Insides of objects that others made are nobody's business.
    expect(problemOf(error) !== undefined || /saveTensors|answered 404/.test(text), text).toBe(true);
    expect(text).not.toMatch(/\[object |_events|_readableState/);
  },
);

it('shows no insides of a stream of Node', async () => {
  const path = join(tmpdir(), `wrong-calls-${process.pid}`);
  const stream = createWriteStream(path);
  await expect(inspect(stream)()).rejects.toThrow(/open file, got a WriteStream$/);
  const input = createReadStream(import.meta.filename);
  input.destroy();
  await expect(inspect(input)()).rejects.toThrow('expected a stream that was not read before, got a ReadStream');
  await new Promise((resolve) => stream.end(resolve));
  await rm(path, { force: true });
});
