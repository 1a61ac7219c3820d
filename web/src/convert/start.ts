/** Starts a runner of batches: workers, or the calling thread. */
import { ScalepointError } from '../core/errors.js';
import type { Core } from '../core/memory.js';
import { nodeModule } from '../core/node.js';
import { type Note, noteOf } from '../core/note.js';
import { waitingFor } from '../core/waiting.js';
import type { ByteSource } from '../formats/files/bytes.js';
import { memoryOutput } from './batch-output.js';
import { CacheOwners } from './input-cache.js';
import { inputReaderFor } from './input-reader.js';
import { inputPartsOf, type TileRunner, type WorkFiles } from './task.js';
import { TileConverter } from './tile-converter.js';
import { TileWorkers } from './tile-workers.js';
import type { WorkOptions } from './work-options.js';

/** Elements from which on workers save more time than starting them takes. */
const elementsForWorkers = 1 << 22;

/** The number of workers for that many elements, if the caller gives none. */
export function defaultWorkers(elements: number): number {
  if (elements < elementsForWorkers) return 0;
  const processors =
    nodeModule('node:os')?.availableParallelism() ??
    (globalThis as { navigator?: { hardwareConcurrency?: number } }).navigator?.hardwareConcurrency ??
    2;
  return Math.max(1, Math.min(8, processors - 1));
}

/** Milliseconds that this thread may work without a pause. */
const busyMilliseconds = 8;

/** Carries out batches in this thread, one after the other. @param note for the report */
function callingThread(core: Core, files: readonly ByteSource[], note: Note | undefined): TileRunner {
  const converter = new TileConverter(core);
  const inputs = inputReaderFor(files);
  const owners = new CacheOwners<TileConverter>(1);
  let last: Promise<unknown> = Promise.resolve();
  let spare: ArrayBuffer | undefined;
  let rested = performance.now();
  let ended: { readonly reason: unknown } | undefined;
  // Lets the page draw and react to a cancel. Only every few milliseconds, because browsers delay each of these waits.
  const pause = async () => {
    if (performance.now() - rested > busyMilliseconds) {
      await new Promise((resolve) => setTimeout(resolve));
      rested = performance.now();
    }
    if (ended !== undefined) throw ended.reason;
  };
  return {
    concurrency: 1,
    ...(note !== undefined && { note }),
    run(asked) {
      const { batch } = owners.assign(asked);
      const result = last.then(async () => {
        if (ended !== undefined) throw ended.reason;
        await inputs.begin(batch.tasks.flatMap(inputPartsOf));
        // It becomes the output of this batch, and may come back through `recycle`.
        const output = memoryOutput(batch, spare);
        spare = undefined;
        const converted = await converter.run(batch, inputs, output.put, pause);
        owners.add(converted, converter);
        return { ...converted, output: output.end() };
      });
      last = result.catch(() => {});
      return result;
    },
    recycle(output) {
      spare = output;
    },
    dispose(reason) {
      ended ??= { reason };
      core.dispose();
    },
  };
}

/** Waits for workers to start. Returns the reason where the engine has none, so that the calling thread does the work. */
export async function orReason<Workers>(
  starting: Promise<Workers>,
  { worker, signal }: Pick<WorkOptions, 'worker' | 'signal'>,
): Promise<Workers | ScalepointError> {
  try {
    return await starting;
  } catch (error) {
    // A worker that the caller gave must not fail silently.
    const isHarmless = error instanceof ScalepointError && ['WORKER', 'OUT_OF_MEMORY'].includes(error.code);
    if (worker !== undefined || signal?.aborted || !isHarmless) throw error;
    return error;
  }
}

/**
 * Starts a runner. The core is loaded only here, so that looking into a file fetches no wasm. Ends as soon as the signal aborts.
 * @param elements to be converted
 */
export async function startRunner(elements: number, files: WorkFiles, options: WorkOptions): Promise<TileRunner> {
  const { workers: count = defaultWorkers(elements), worker, core, signal } = options;
  const waiting = waitingFor(signal);
  const start = async (): Promise<TileRunner> => {
    const load = await import('../core/load.js');
    const module = await load.compileCore('core', core);
    let note: Note | undefined;
    if (count > 0) {
      const started = await orReason(TileWorkers.start({ count, module, worker, signal }, files), options);
      if (!(started instanceof Error)) return started;
      note = noteOf('noWorkers', {}, `without workers, which is slower: ${started.message}`);
    }
    return callingThread(await load.instantiateCore('core', module), files.sources, note);
  };
  try {
    return await waiting.soon(start(), (late) => late.dispose());
  } finally {
    waiting.end();
  }
}

/** Starts a runner, and disposes of it after the work. @param elements to be converted */
export async function withRunner<T>(
  elements: number,
  files: WorkFiles,
  options: WorkOptions,
  use: (runner: TileRunner) => Promise<T>,
): Promise<T> {
  const runner = await startRunner(elements, files, options);
  try {
    return await use(runner);
  } finally {
    runner.dispose();
  }
}
