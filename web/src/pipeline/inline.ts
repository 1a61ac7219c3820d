/** Carries out tiles in the caller's thread. */
import type { ByteSource } from '../files/bytes.js';
import { TileConverter } from './convert.js';
import { readInput } from './inputs.js';
import type { Input } from './tasks.js';
import type { TileRunner } from './workers.js';

/** How long this thread may be busy at a stretch. */
const busyMilliseconds = 8;

/** Runs tiles in this thread, one after the other. */
export async function inlineRunner(module: WebAssembly.Module, files: readonly ByteSource[]): Promise<TileRunner> {
  // Here and not at the top, so that looking into a file loads no wasm.
  const { instantiateCore } = await import('../core/wasm.js');
  const core = await instantiateCore(module);
  const converter = new TileConverter(core);
  let last: Promise<unknown> = Promise.resolve();
  let spare: ArrayBuffer[] = [];
  let yielded = performance.now();
  const state: { ended?: { readonly reason: unknown } } = {};
  const check = () => {
    if (state.ended !== undefined) throw state.ended.reason;
  };
  return {
    concurrency: 1,
    run(task) {
      const run = async () => {
        check();
        const views = converter.prepare(task);
        const inputs = task.pieces.flatMap((piece) => piece.inputs);
        for (const [i, view] of views.entries()) await readInput(inputs[i] as Input, files, view);
        // Lets the page draw, and a cancel come through; not at every tile, since a browser makes each of these waits a long one.
        if (performance.now() - yielded > busyMilliseconds) {
          await new Promise((resolve) => setTimeout(resolve));
          yielded = performance.now();
        }
        check();
        // Each is used once: until it comes back, it is a result under way.
        const given = spare;
        spare = [];
        return converter.run(task, given);
      };
      const result = last.then(run);
      last = result.catch(() => {});
      return result;
    },
    recycle({ parts }) {
      spare = Object.values(parts);
    },
    dispose(reason) {
      state.ended ??= { reason };
      core.dispose();
    },
  };
}
