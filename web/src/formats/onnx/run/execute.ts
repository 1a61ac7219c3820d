/**
 * Runs one model in a runtime. It stands alone, because it also runs in pages and processes of the command line. Failures of a model are
 * answers: an answer can be sent, an error cannot.
 */
import type {
  BackendAnswer,
  BackendJob,
  BackendName,
  GpuAdapter,
  GpuPlacement,
  RunBackend,
  RunTensor,
  RunTimes,
} from '../../run.js';
import { quiet, runtimeName, runtimeTensors, runtimeText, type Session, type TypedRuntime } from './runtime.js';

// ------------------------------------------------------------------------------------------------------------------------ adapter

/** The used part of WebGPU. */
interface Gpu {
  requestAdapter(options: { readonly powerPreference: 'high-performance' }): Promise<{
    readonly isFallbackAdapter?: boolean;
    readonly features: { has(name: string): boolean };
    readonly info?: {
      readonly vendor: string;
      readonly architecture: string;
      readonly isFallbackAdapter?: boolean;
    };
  } | null>;
}

/** Architectures of programs that stand in for a GPU. */
const software: readonly string[] = ['swiftshader', 'llvmpipe', 'lavapipe', 'warp'];

/** The adapter that onnxruntime-web will use; undefined without WebGPU. */
export async function findAdapter(): Promise<GpuAdapter | undefined> {
  const { gpu } = (globalThis.navigator ?? {}) as { gpu?: Gpu };
  const adapter = await gpu?.requestAdapter({ powerPreference: 'high-performance' }).catch(() => null);
  if (adapter === undefined || adapter === null) return undefined;
  const { vendor = '', architecture = '', isFallbackAdapter } = adapter.info ?? {};
  return {
    vendor,
    architecture,
    isSoftware: isFallbackAdapter ?? adapter.isFallbackAdapter ?? software.includes(architecture),
    hasFloat16: adapter.features.has('shader-f16'),
  };
}

// ---------------------------------------------------------------------------------------------------------------------- placement

/** Takes lines that onnxruntime-web prints; undefined if they go to the console. */
let sink: ((line: string) => void) | undefined;
const prepared = new WeakSet<TypedRuntime>();

/**
 * Calls f, in which a runtime may be started. Emscripten keeps the `console.log` of that moment for good, and profiles are printed by it, so
 * it gets one that can be listened to.
 */
export async function listening<T>(runtime: TypedRuntime, f: () => Promise<T>): Promise<T> {
  if (prepared.has(runtime)) return f();
  prepared.add(runtime);
  const { log } = console;
  const own = (...words: unknown[]) => {
    if (sink === undefined) log.apply(console, words);
    else sink(words.join(' '));
  };
  console.log = own;
  try {
    return await f();
  } finally {
    if (console.log === own) console.log = log;
  }
}

/** Events of a profile that are about nodes. */
interface NodeEvent {
  readonly cat: string;
  readonly name: string;
  readonly args: { readonly op_name?: string; readonly provider?: string };
}

/**
 * Runs once with a profile, and counts nodes by their provider. Undefined for a profile without nodes, as of a runtime that was started by
 * others.
 */
async function profiled(
  create: () => Promise<Session>,
  feeds: Record<string, RunTensor>,
): Promise<GpuPlacement | undefined> {
  const lines: string[] = [];
  const session = await create();
  try {
    await session.run(feeds, session.outputNames, quiet);
    sink = (line) => lines.push(line);
    session.endProfiling?.();
  } finally {
    sink = undefined;
    await session.release();
  }
  const onCpu = new Map<string, number>();
  let [onGpu, copies] = [0, 0];
  for (const line of lines) {
    let event: NodeEvent;
    try {
      event = JSON.parse(line.replace(/,\s*$/, ''));
    } catch {
      // The brackets around all events, and lines that other code prints.
      continue;
    }
    const { op_name: op, provider } = event.args ?? {};
    if (event.cat !== 'Node' || op === undefined || !event.name.endsWith('_kernel_time')) continue;
    if (op === 'MemcpyFromHost' || op === 'MemcpyToHost') copies++;
    else if (provider === 'CPUExecutionProvider') onCpu.set(op, (onCpu.get(op) ?? 0) + 1);
    else onGpu++;
  }
  if (onGpu === 0 && onCpu.size === 0) return undefined;
  const counts = [...onCpu].map(([op, count]) => ({ op, count })).sort((a, b) => b.count - a.count);
  return { onGpu, onCpu: counts, copies };
}

// ------------------------------------------------------------------------------------------------------------------------- device

/** An ONNX file of IR 8 and opset 17, whose only node, Identity, gives `y` from the float `x`. */
const identity = Uint8Array.of(
  ...[8, 8, 58, 43, 10, 16, 10, 1, 120, 18, 1, 121, 34, 8, 73, 100, 101, 110, 116, 105, 116, 121, 18, 1, 103],
  ...[90, 9, 10, 1, 120, 18, 4, 10, 2, 8, 1, 98, 9, 10, 1, 121, 18, 4, 10, 2, 8, 1, 66, 2, 16, 17],
);

/**
 * Keeps the WebGPU device of a runtime from job to job. onnxruntime-web gives it up with its last session, and all compiled shaders with it,
 * which take longer than the runs of small models.
 */
export class KeptDevice {
  #session: Session | undefined;

  /** Keeps the device until `release`. */
  async keep(runtime: TypedRuntime): Promise<void> {
    const options = { executionProviders: [providers.webgpu], ...quiet };
    // Without it, the next job takes longer.
    this.#session ??= await runtime.InferenceSession.create(identity, options).catch(() => undefined);
  }

  async release(): Promise<void> {
    const session = this.#session;
    this.#session = undefined;
    // A device that was lost needs no release.
    await session?.release().catch(() => undefined);
  }
}

// --------------------------------------------------------------------------------------------------------------------------- runs

/** Names of the backends in options of a session. */
const providers: Readonly<Record<BackendName, string>> = { wasm: 'wasm', webgpu: 'webgpu', node: 'cpu' };

/** Most timed runs, and the seconds after which no further one begins. */
const [mostRuns, mostSeconds] = [15, 1];

/** Times runs that follow the first. */
async function timed(run: () => Promise<unknown>): Promise<Omit<RunTimes, 'firstSeconds'>> {
  const times: number[] = [];
  const begin = performance.now();
  do {
    const start = performance.now();
    await run();
    times.push((performance.now() - start) / 1000);
  } while (times.length < mostRuns && performance.now() - begin < mostSeconds * 1000);
  times.sort((a, b) => a - b);
  const [low, high] = [times[(times.length - 1) >> 1] as number, times[times.length >> 1] as number];
  return { seconds: (low + high) / 2, runs: times.length };
}

/**
 * Runs a model on a backend of a runtime.
 * @param name the package of the runtime
 * @param device keeps the device for jobs that follow. Jobs with measures begin without one, so that their first runs take as long as any.
 */
export async function execute(
  runtime: TypedRuntime,
  name: string,
  backend: BackendName,
  { model: { bytes, externalData }, feeds: given, more: others = [], level, measures }: BackendJob,
  device?: KeptDevice,
): Promise<BackendAnswer> {
  const version = runtime.env?.versions?.[backend === 'node' ? 'node' : 'web'];
  const adapter = backend === 'webgpu' ? await findAdapter() : undefined;
  const about = { runtime: version === undefined ? name : `${name} ${version}`, ...(adapter && { adapter }) };
  if (backend === 'webgpu' && adapter === undefined) {
    return { ...about, kind: 'noAdapter', text: 'there is no WebGPU here' };
  }
  const create = (more: object = {}) =>
    runtime.InferenceSession.create(bytes, {
      executionProviders: [providers[backend]],
      graphOptimizationLevel: level,
      ...quiet,
      ...(externalData.length === 0 ? {} : { externalData }),
      ...more,
    });
  if (measures) await device?.release();
  const begin = performance.now();
  let session: Session;
  try {
    session = await listening(runtime, create);
  } catch (cause) {
    return { ...about, kind: 'noSession', text: runtimeText(cause) };
  }
  try {
    // Copies outlive the session.
    const outputsFor = async (values: Record<string, RunTensor>) => {
      const results = await session.run(values, session.outputNames, quiet);
      return () =>
        Object.fromEntries(
          session.outputNames.map((output): [string, RunTensor] => {
            const { type, dims, data } = results[output] as RunTensor;
            return [output, { type, dims: [...dims], data: (data as Uint8Array | string[]).slice() }];
          }),
        );
    };
    const feeds = runtimeTensors(runtime, given);
    const copy = await outputsFor(feeds);
    const firstSeconds = (performance.now() - begin) / 1000;
    await device?.keep(runtime);
    const outputs = copy();
    const more: Record<string, RunTensor>[] = [];
    for (const one of others) more.push((await outputsFor(runtimeTensors(runtime, one)))());
    if (!measures) return { ...about, kind: 'ran', outputs, ...(more.length > 0 && { more }) };
    const times = { firstSeconds, ...(await timed(() => session.run(feeds, session.outputNames, quiet))) };
    if (backend !== 'webgpu') return { ...about, kind: 'ran', outputs, times };
    // A runtime that cannot profile gives no placement.
    const placement = await profiled(() => create({ enableProfiling: true }), feeds).catch(() => undefined);
    return { ...about, kind: 'ran', outputs, times, ...(placement && { placement }) };
  } catch (cause) {
    // The device may be lost.
    await device?.release();
    return { ...about, kind: 'notRun', text: runtimeText(cause) };
  } finally {
    await session.release();
  }
}

/** A backend that a caller gives, or one in a runtime of this process or page. */
export function backendIn(runtime: TypedRuntime, given: 'wasm' | 'webgpu' | RunBackend): RunBackend {
  if (typeof given !== 'string') return given;
  return { name: given, run: (job) => execute(runtime, runtimeName, given, job) };
}
