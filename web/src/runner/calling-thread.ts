/** Carries out batches in the caller's thread. */
import type { ByteSource } from '../files/bytes.js';
import { Keepers } from './cache-owners.js';
import { TileConverter } from './convert.js';
import { inputsOf } from './task.js';
import { readerOf } from './tile-input.js';
import { memoryOutlet } from './tile-output.js';
import type { TileRunner } from './worker-pool.js';

/** How long this thread may work without a pause. */
const busyMilliseconds = 8;

/** Runs batches in this thread, one after the other. */
export async function inlineRunner(module: WebAssembly.Module, files: readonly ByteSource[]): Promise<TileRunner> {
  // Here and not at the top, so that looking into a file loads no wasm.
  const load = await import('../core/load.js');
  const core = await load.instantiateCore('core', module);
  const converter = new TileConverter(core);
  const inputs = readerOf(files);
  const keepers = new Keepers<TileConverter>(1);
  let last: Promise<unknown> = Promise.resolve();
  let spare: ArrayBuffer | undefined;
  let rested = performance.now();
  const state: { ended?: { readonly reason: unknown } } = {};
  const check = () => {
    if (state.ended !== undefined) throw state.ended.reason;
  };
  // Lets the page draw and react to a cancel. Not at every task, since browsers delay each of these waits by some milliseconds.
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
      const { batch } = keepers.assign(asked);
      const run = async () => {
        check();
        await inputs.begin(batch.tasks.flatMap(inputsOf));
        // It becomes the output of this batch, and may come back later.
        const given = spare;
        spare = undefined;
        const outlet = memoryOutlet(batch, given);
        const findings = await converter.run(batch, inputs, outlet.put, pause);
        keepers.add(findings, converter);
        return { ...findings, output: outlet.end() };
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
