/** The site's own onnxruntime-web: with WebGPU, which takes a larger file, only where there is a GPU to use. */
export async function loadedRuntime(wantsGpu: boolean) {
  const runtime = wantsGpu ? await import('onnxruntime-web/webgpu') : await import('onnxruntime-web/wasm');
  // Pages without cross-origin isolation have one thread.
  runtime.env.wasm.numThreads = 1;
  runtime.env.logLevel = 'fatal';
  return runtime;
}
