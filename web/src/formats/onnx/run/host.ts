/**
 * Runs models for the command line: in a page of a browser that it started, or in a process of its own. The build makes one file without
 * imports of it, scalepoint-run.js.
 */
import type { BackendJob } from '../../run.js';
import { execute, findAdapter, KeptDevice } from './execute.js';
import { decodeMessage, encodeMessage } from './message.js';
import { runtimeText, type TypedRuntime } from './runtime.js';

/** The first message: the page or the process is ready, or cannot be. */
export type HostReady =
  | { readonly kind: 'ready'; readonly hasAdapter: boolean }
  | { readonly kind: 'failed'; readonly text: string };

/**
 * Takes jobs from the server that the page comes from, until it has no more.
 * @param address of the exchange: it takes an answer and gives the next job
 * @param module address of onnxruntime-web
 */
export async function serveInPage(address: string, module: string): Promise<void> {
  const exchange = async (message: object): Promise<BackendJob | undefined> => {
    const response = await fetch(address, { method: 'POST', body: encodeMessage(message) });
    return response.status === 200
      ? (decodeMessage(new Uint8Array(await response.arrayBuffer())) as BackendJob)
      : undefined;
  };
  let runtime: TypedRuntime;
  try {
    runtime = (await import(/* @vite-ignore */ module)) as TypedRuntime;
    // Pages without cross-origin isolation have one thread.
    if (runtime.env?.wasm !== undefined) runtime.env.wasm.numThreads = 1;
    if (runtime.env !== undefined) runtime.env.logLevel = 'fatal';
  } catch (cause) {
    await exchange({ kind: 'failed', text: runtimeText(cause) } satisfies HostReady);
    return;
  }
  let message: object = { kind: 'ready', hasAdapter: (await findAdapter()) !== undefined } satisfies HostReady;
  const device = new KeptDevice();
  for (let job = await exchange(message); job !== undefined; job = await exchange(message)) {
    message = await execute(runtime, 'onnxruntime-web', 'webgpu', job, device);
  }
}

/** The used part of a child process. */
interface Child {
  send(message: object): void;
  on(event: 'message', listener: (message: BackendJob) => void): void;
  on(event: 'disconnect', listener: () => void): void;
  exit(): never;
}

/**
 * Takes jobs from the process that started this one.
 * @param module path of onnxruntime-node
 */
export async function serveInProcess(module: string): Promise<void> {
  const child = (globalThis as unknown as { process: Child }).process;
  child.on('disconnect', () => child.exit());
  let runtime: TypedRuntime;
  try {
    const loaded = (await import(/* @vite-ignore */ module)) as TypedRuntime & { readonly default?: TypedRuntime };
    // It is a CommonJS module.
    runtime = loaded.InferenceSession === undefined && loaded.default !== undefined ? loaded.default : loaded;
  } catch (cause) {
    child.send({ kind: 'failed', text: runtimeText(cause) } satisfies HostReady);
    return;
  }
  child.on('message', (job) => {
    void execute(runtime, 'onnxruntime-node', 'node', job).then((answer) => child.send(answer));
  });
  child.send({ kind: 'ready', hasAdapter: false } satisfies HostReady);
}
