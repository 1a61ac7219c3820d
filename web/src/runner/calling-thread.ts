/** Carries out batches in the calling thread. */
import type { ByteSource } from '../files/bytes.js';
import { memoryOutput } from './batch-output.js';
import { CacheOwners } from './cache-owners.js';
import { inputReaderFor } from './input-reader.js';
import { inputPartsOf } from './task.js';
import { TileConverter } from './tile-converter.js';
import type { TileRunner } from './tile-runner.js';

/** Milliseconds that this thread may work without a pause. */
const busyMilliseconds = 8;

/** Carries out batches in this thread, one after the other. */
export async function callingThreadRunner(
  module: WebAssembly.Module,
  files: readonly ByteSource[],
): Promise<TileRunner> {
  // Imported here, so that programs that only look into files load no wasm.
  const load = await import('../core/load.js');
  const core = await load.instantiateCore(module);
  const converter = new TileConverter(core);
  const inputs = inputReaderFor(files);
  const owners = new CacheOwners<TileConverter>(1);
  let last: Promise<unknown> = Promise.resolve();
  let spare: ArrayBuffer | undefined;
  let rested = performance.now();
  const state: { ended?: { readonly reason: unknown } } = {};
  const check = () => {
    if (state.ended !== undefined) throw state.ended.reason;
  };
  // Lets the page draw and react to a cancel. Only every few milliseconds, because browsers delay each of these waits.
  const pause = async () => {
    if (performance.now() - rested > busyMilliseconds) {
      await new Promise((resolve) => setTimeout(resolve));
      rested = performance.now();
    }
    check();
  };
  return {
    concurrency: 1,
    run(asked) {
      const { batch } = owners.assign(asked);
      const run = async () => {
        check();
        await inputs.begin(batch.tasks.flatMap(inputPartsOf));
        // It becomes the output of this batch, and may come back through `recycle`.
        const given = spare;
        spare = undefined;
        const output = memoryOutput(batch, given);
        const converted = await converter.run(batch, inputs, output.put, pause);
        owners.add(converted, converter);
        return { ...converted, output: output.end() };
      };
      const result = last.then(run);
      last = result.catch(() => {});
      return result;
    },
    recycle(output) {
      spare = output;
    },
    dispose(reason) {
      state.ended ??= { reason };
      core.dispose();
    },
  };
}
