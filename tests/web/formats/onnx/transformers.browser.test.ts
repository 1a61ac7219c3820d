// transformers.js loads what is made of a transformer, in Chromium.
import { expect, it } from 'vitest';
import { sidecars } from './transformer.js';
import { checkDtypes, howToInstall, modelFiles, type Transformers } from './transformers.js';

// These match no file where it is not installed.
const [load] = Object.values(
  import.meta.glob('../../../transformers/node_modules/@huggingface/transformers/dist/transformers.web.js'),
);
const [wasm] = Object.values(
  import.meta.glob<string>(
    '../../../transformers/node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.wasm',
    { query: '?url', import: 'default' },
  ),
);
const [factory] = Object.values(
  import.meta.glob<string>(
    '../../../transformers/node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.mjs',
    { query: '?url', import: 'default' },
  ),
);

it('load by their dtype and give nearly what float32 gives', async ({ skip }) => {
  if (load === undefined || wasm === undefined || factory === undefined) return skip(howToInstall);
  const transformers = (await load()) as Transformers;
  const { env } = transformers;
  const models = await modelFiles();
  const byUrl = (url: string): BodyInit | undefined => {
    const name = /\/small\/(.*)$/.exec(url)?.[1] ?? '';
    const sidecar = sidecars[name];
    return sidecar === undefined ? models.get(name.replace(/^onnx\//, '')) : JSON.stringify(sidecar);
  };
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = '/models/';
  env.useBrowserCache = false;
  env.useWasmCache = false;
  env.fetch = async (input) => {
    const body = byUrl(String(input));
    return body === undefined ? new Response(null, { status: 404 }) : new Response(body);
  };
  Object.assign(env.backends.onnx.wasm ?? {}, {
    numThreads: 1,
    wasmPaths: { mjs: await factory(), wasm: await wasm() },
  });
  await checkDtypes(transformers, 'wasm');
  expect.hasAssertions();
});
