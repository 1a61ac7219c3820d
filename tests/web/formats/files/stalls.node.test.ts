// A signal ends every call at whichever request the server stalls: of the model, its shards and data, and all files beside it.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { load } from 'scalepoint';
import {
  calibrateModel,
  compareModels,
  estimateModel,
  evaluateModel,
  inspectModel,
  loadTensors,
  measureTypes,
  planModel,
  quantizeModel,
  readFloats,
  readQuantized,
  readTensor,
  ScalepointError,
  saveTensors,
  tensors,
  verifyModel,
} from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { activationsOf, matrixFile, oldMatrixFile } from '../../support/importance.js';
import { madeUpLlama } from '../../support/made-up-llama.js';
import { safetensors, weights } from '../../support/models.js';
import { npy, zip } from '../../support/npz.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import * as onnx from '../onnx/encoder.js';

const small = madeUpLlama({ layers: 1, width: 64 });
const ids = Uint32Array.from({ length: 16 }, (_, i) => 3 + i);
const text = 'ab c '.repeat(6);
const json = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const model = safetensors({ 'a.weight': weights('F32', [8, 64]), 'b.weight': weights('F32', [8, 64], 2) });
const llama = tinyLlama();
const [columns, rows] = [64, 16];
const graph = (tensor: onnx.Bytes) => onnx.product('MatMul', [columns, rows], [1, columns], [1, rows], tensor)();
const outside = (['location', 'offset', 'length'] as const).flatMap((key, i) => [
  ...onnx.bytes(13, [...onnx.text(1, key), ...onnx.text(2, ['data.bin', '0', `${4 * columns * rows}`][i]!)]),
]);
const x = npy('<f4', `(1, ${columns})`, new Float32Array(columns).buffer);
const folder = [...decoderWeights({ layers: 1 })];

/** Files of the server by path. */
const files: Record<string, Uint8Array> = {
  '/model.safetensors': model,
  '/sharded/model.safetensors.index.json': json({
    weight_map: { 'a.weight': 'one.safetensors', 'b.weight': 'one.safetensors' },
  }),
  '/sharded/one.safetensors': model,
  '/llama.gguf': llama,
  '/blocks.gguf': new Uint8Array(),
  '/core.wasm': readFileSync(new URL('../../../../web/src/core/core-simd.wasm', import.meta.url)),
  '/matrix.gguf': new Uint8Array(),
  '/matrix.dat': new Uint8Array(),
  '/model.onnx': graph(onnx.floatTensor('w', [columns, rows])),
  '/outside/model.onnx': graph([...onnx.tensor({ name: 'w', dims: [columns, rows] }), ...outside, ...onnx.int(14, 1)]),
  '/outside/data.bin': onnx.rawOf(onnx.weights(columns * rows)),
  '/x.npy': x,
  '/x.npz': zip([['x.npy', x, 0]], (bytes) => bytes),
  '/small.gguf': new Uint8Array(),
  '/moments.safetensors': new Uint8Array(),
  '/ranges.safetensors': new Uint8Array(),
  '/saved.safetensors': new Uint8Array(),
  '/folder/model.safetensors': safetensors(
    Object.fromEntries(folder.map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }])),
  ),
  '/folder/config.json': json(decoderConfig('LlamaForCausalLM', { num_hidden_layers: 1 })),
  '/folder/tokenizer.json': json(plainTokenizer({ decoder: null })),
  '/folder/tokenizer_config.json': json({ bos_token: '<s>', eos_token: '</s>', add_bos_token: true }),
};

/** Answer of the server: nothing, the head of a range, or half of the whole file. */
type Begun = 'nothing' | 'head' | 'half';

/** The number of the request that is never answered in full, and how many came. */
let stall: { at: number; after: Begun; stalled: boolean; begun?: () => void } = {
  at: Infinity,
  after: 'nothing',
  stalled: false,
};
let requests = 0;
/** For each request, the answers in which it may stall. */
let seen: Begun[][] = [];
const server = createServer((request, response) => {
  const bytes = files[request.url ?? ''];
  const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
  // Only where a file is opened, the whole of it may come in place of a range.
  const begun: Begun[] = ['nothing'];
  if (bytes !== undefined) begun.push('head');
  if (bytes !== undefined && (last === '99999' || last === undefined)) begun.push('half');
  seen.push(begun);
  const isLast = requests++ === stall.at && begun.includes(stall.after);
  if (isLast) {
    stall.stalled = true;
    stall.begun?.();
  }
  if (isLast && stall.after === 'nothing') return;
  if (bytes === undefined) {
    response.writeHead(404);
    response.end();
    return;
  }
  if (isLast && stall.after === 'half') {
    response.writeHead(200, { 'content-length': bytes.length, 'content-type': 'application/wasm' });
    response.write(bytes.subarray(0, bytes.length / 2));
    return;
  }
  if (begin === undefined) {
    response.writeHead(200, { 'content-type': 'application/wasm' });
    if (isLast) response.flushHeaders();
    else response.end(bytes);
    return;
  }
  const range = `bytes ${begin}-${last}/${bytes.length}`;
  response.writeHead(206, { 'content-range': range });
  if (isLast) response.flushHeaders();
  else response.end(bytes.subarray(Number(begin), Number(last) + 1));
});
let base = '';
beforeAll(async () => {
  const { tensors: found } = await inspectModel(llama);
  const activations = activationsOf(found);
  files['/matrix.gguf'] = matrixFile(activations);
  files['/matrix.dat'] = oldMatrixFile(activations.slice(0, 1));
  files['/blocks.gguf'] = await (await quantizeModel(llama, { to: 'Q8_0', workers: 0 })).bytes();
  files['/small.gguf'] = small;
  const { moments } = await calibrateModel(small, ids, { ...one, moments: true });
  files['/moments.safetensors'] = (await moments?.bytes()) as Uint8Array;
  const samples = [{ x: { data: new Float32Array(columns).fill(1), shape: [1, columns] } }];
  const { ranges } = await calibrateModel(files['/model.onnx'] as Uint8Array, samples, { ranges: true });
  files['/ranges.safetensors'] = (await ranges?.bytes()) as Uint8Array;
  const sp = await load();
  files['/saved.safetensors'] = await saveTensors({ a: sp.quantize(new Float32Array(64).fill(1), { dtype: 'int8' }) });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const at = (path: string) => new URL(path, base);
type Signal = { readonly signal: AbortSignal };
const one = { workers: 0 } as const;
const q4 = { to: 'Q4_K_M', ...one } as const;
const core = () => ({ core: { wasm: at('/core.wasm') } });
const statistics = { ...one, chunkSize: 8 } as const;
/** Each call, with a file that takes many requests. */
const calls: Readonly<Record<string, (options: Signal) => Promise<unknown>>> = {
  inspectModel: (o) => inspectModel(at('/sharded/model.safetensors.index.json'), o),
  'inspectModel of a folder': (o) => inspectModel(at('/folder/model.safetensors'), o),
  'inspectModel of ONNX': (o) => inspectModel(at('/outside/model.onnx'), o),
  readTensor: (o) => readTensor(at('/model.safetensors'), 'a.weight', o),
  'readTensor of a .npy file': (o) => readTensor(at('/x.npy'), 'x', o),
  readFloats: (o) => readFloats(at('/model.safetensors'), 'a.weight', { ...o, ...one }),
  'readFloats with workers': (o) => readFloats(at('/model.safetensors'), 'a.weight', { ...o, workers: 1 }),
  readQuantized: (o) => readQuantized(at('/blocks.gguf'), 'blk.0.attn_q.weight', o),
  tensors: async (o) => {
    for await (const _ of tensors(at('/model.safetensors'), o));
  },
  verifyModel: (o) => verifyModel(at('/sharded/model.safetensors.index.json'), o),
  loadTensors: (o) => loadTensors(at('/saved.safetensors'), o),
  planModel: (o) => planModel(at('/model.safetensors'), { to: 'int8', ...o }),
  'planModel with a matrix': (o) => planModel(at('/llama.gguf'), { ...q4, importance: at('/matrix.gguf'), ...o }),
  'planModel with an old matrix': (o) => planModel(at('/llama.gguf'), { ...q4, importance: at('/matrix.dat'), ...o }),
  'planModel with moments': (o) =>
    planModel(at('/small.gguf'), { to: 'Q8_0', method: 'gptq', moments: at('/moments.safetensors'), ...one, ...o }),
  'quantizeModel with moments and workers': (o) =>
    quantizeModel(at('/small.gguf'), {
      to: 'Q8_0',
      method: 'gptq',
      moments: at('/moments.safetensors'),
      workers: 1,
      ...o,
    }),
  'planModel with ranges': (o) =>
    planModel(at('/model.onnx'), { to: 'int8-static', ranges: at('/ranges.safetensors'), ...one, ...o }),
  'quantizeModel with ranges': (o) =>
    quantizeModel(at('/model.onnx'), { to: 'int8-static', ranges: at('/ranges.safetensors'), ...one, ...o }),
  'planModel of a folder': (o) => planModel(at('/folder/model.safetensors'), { to: 'Q8_0', ...one, ...o }),
  'planModel for a size': (o) =>
    planModel(at('/model.safetensors'), { to: 'auto', targetBitsPerWeight: 32, ...one, ...o }),
  measureTypes: (o) => measureTypes(at('/model.onnx'), { to: 'auto', ...one, ...o }),
  estimateModel: (o) => estimateModel(at('/llama.gguf'), { ...q4, importance: at('/matrix.dat'), ...o }),
  quantizeModel: (o) => quantizeModel(at('/llama.gguf'), { ...q4, importance: at('/matrix.dat'), ...o }),
  'quantizeModel with workers': (o) => quantizeModel(at('/model.safetensors'), { to: 'int8', workers: 1, ...o }),
  'quantizeModel to several': (o) => quantizeModel(at('/model.safetensors'), { to: ['int8', 'int4'], ...one, ...o }),
  'quantizeModel of a folder': (o) => quantizeModel(at('/folder/model.safetensors'), { to: 'Q8_0', ...one, ...o }),
  'load with its wasm': (o) => load({ wasm: at('/core.wasm'), blocks: true, ...o }),
  'readFloats with its wasm': (o) => readFloats(at('/model.safetensors'), 'a.weight', { ...o, ...one, ...core() }),
  'loadTensors with its wasm': (o) => loadTensors(at('/saved.safetensors'), { ...o, ...core() }),
  'estimateModel with its wasm': (o) =>
    estimateModel(at('/model.safetensors'), { to: 'int8', ...one, ...core(), ...o }),
  'quantizeModel with its wasm': (o) =>
    quantizeModel(at('/model.safetensors'), { to: 'int8', workers: 1, ...core(), ...o }),
  compareModels: (o) => compareModels(at('/model.safetensors'), at('/model.safetensors'), { ...one, ...o }),
  'compareModels with run': (o) =>
    compareModels(at('/outside/model.onnx'), at('/model.onnx'), { run: true, ...one, ...o }),
  'compareModels with inputs': (o) =>
    compareModels(at('/model.onnx'), at('/model.onnx'), { run: { inputs: at('/x.npz') }, ...one, ...o }),
  calibrateModel: (o) => calibrateModel(at('/small.gguf'), ids, { ...statistics, moments: true, ...o }),
  'calibrateModel of a folder': (o) => calibrateModel(at('/folder/model.safetensors'), text, { ...statistics, ...o }),
  'calibrateModel of ONNX': (o) =>
    calibrateModel(at('/outside/model.onnx'), { files: [at('/x.npy'), at('/x.npz')] }, { ranges: true, ...o }),
  evaluateModel: (o) => evaluateModel(at('/small.gguf'), { text: ids, ...statistics, ...o }),
  'evaluateModel of a folder': (o) => evaluateModel(at('/folder/model.safetensors'), { text, ...statistics, ...o }),
  'evaluateModel with a reference': (o) =>
    evaluateModel(at('/small.gguf'), { text: ids, reference: at('/small.gguf'), ...statistics, ...o }),
  'compareModels with an input': (o) =>
    compareModels(at('/model.onnx'), at('/model.onnx'), { run: { inputs: { x: at('/x.npy') } }, ...one, ...o }),
};

/** Calls until the request of that number stalls, and aborts. */
async function stalledAt(call: (options: Signal) => Promise<unknown>, k: number, after: Begun) {
  const begun = new Promise<void>((resolve) => {
    stall = { at: k, after, stalled: false, begun: resolve };
  });
  requests = 0;
  const controller = new AbortController();
  let outcome: unknown = 'nothing yet';
  const ended = call({ signal: controller.signal }).then(
    () => {
      outcome = 'a result';
    },
    (reason: unknown) => {
      outcome = reason;
    },
  );
  await Promise.race([ended, begun]);
  if (!stall.stalled) return expect(outcome).toBe('a result');
  expect(outcome).toBe('nothing yet');
  // Errors of the package are reasons, too.
  const reason = k % 2 > 0 ? new Error('enough') : new ScalepointError('BAD_FILE', 'enough');
  controller.abort(reason);
  await expect.poll(() => outcome, { interval: 1 }).toBe(reason);
}

describe.each(Object.entries(calls))('%s', (_, call) => {
  it('leaves a server that stalls, at any request', async () => {
    stall = { at: Infinity, after: 'nothing', stalled: false };
    requests = 0;
    seen = [];
    await call({ signal: new AbortController().signal });
    const all = requests;
    const answers = seen.slice();
    expect(all).toBeGreaterThan(0);
    for (let k = 0; k < all; k++) {
      // Reads have a head and a body; long rows of requests are alike.
      if (k > 6 && k < all - 4 && k % Math.max(7, Math.ceil(all / 4)) > 0) continue;
      for (const after of answers[k] ?? []) {
        await stalledAt(call, k, after).catch((error) => {
          throw new Error(`request ${k} of ${all}, after ${after}`, { cause: error });
        });
      }
    }
  });
});

describe('what callers give', () => {
  const never = new Promise<never>(() => {});
  const waits = (begun: () => void) => {
    begun();
    return never;
  };
  const folderFiles = () => at('/folder/model.safetensors');
  /** Samples after the first of which nothing comes. */
  async function* samples() {
    yield { x: { data: new Float32Array(columns), shape: [1, columns] } };
    await never;
  }
  const calls: Readonly<Record<string, (signal: AbortSignal, begun: () => void) => Promise<unknown>>> = {
    'a tokenizer, for evaluateModel': (signal, begun) => {
      const encode = () => waits(begun);
      return evaluateModel(folderFiles(), { text, tokenizer: { encode }, ...one, signal });
    },
    'a tokenizer, for calibrateModel': (signal, begun) => {
      const encode = () => waits(begun);
      return calibrateModel(folderFiles(), text, { tokenizer: { encode }, ...one, signal });
    },
    'samples, for calibrateModel': (signal, begun) =>
      calibrateModel(at('/model.onnx'), samples(), { signal, onProgress: begun }),
    'a handle of a model': (signal, begun) => {
      const getFile = () => waits(begun);
      return inspectModel({ getFile } as unknown as FileSystemFileHandle, { signal });
    },
    'a handle of an importance matrix': (signal, begun) => {
      const importance = { getFile: () => waits(begun) } as unknown as FileSystemFileHandle;
      return planModel(at('/llama.gguf'), { ...q4, importance, signal });
    },
  };
  it.each(Object.entries(calls))('%s that never answers', async (_, call) => {
    stall = { at: Infinity, after: 'nothing', stalled: false };
    const controller = new AbortController();
    const reason = new Error('enough');
    const done = call(controller.signal, () => setTimeout(() => controller.abort(reason), 20));
    expect(await done.catch((error) => error)).toBe(reason);
  });
});
