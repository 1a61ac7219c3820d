// Every target runs in onnxruntime-web in Chromium. The build with WebGPU, whose CPU part has fewer operators, is that of transformers.js.
import * as ort from 'onnxruntime-web/wasm';
import { it } from 'vitest';
import { checkEngine } from './engines.js';

it('in onnxruntime-web', async () => {
  ort.env.wasm.numThreads = 1;
  await checkEngine(ort);
});
