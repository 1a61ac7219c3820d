// What users call to write small files and to read them back: quantized tensors of arrays (tensors.ts does it), and files beside a result.
import type { QuantizedTensor } from '../arrays/tensor.js';
import { typeError } from '../core/errors.js';
import type { Core } from '../core/memory.js';
import { ofType } from '../core/option-problem.js';
import { pathSink } from '../files/path-sink.js';
import type { WorkOptions } from '../pipeline/start.js';
import { type ModelInput, type OpenOptions, withModel } from './open.js';
import { checkOptions, checkWorkOptions } from './options.js';
import type { SavedTensorsOptions } from './tensors.js';

function checkTensorOptions(options: SavedTensorsOptions & OpenOptions, names: readonly string[]): void {
  checkOptions(options, names);
  checkWorkOptions(options as WorkOptions);
}

/** Loads the core for a call. */
async function withCore<T>({ core: options }: SavedTensorsOptions, use: (core: Core) => T | Promise<T>): Promise<T> {
  // Here and not at the top, so that looking into a file loads no wasm.
  const load = await import('../core/load.js');
  const core = await load.loadCore(options);
  try {
    return await use(core);
  } finally {
    core.dispose();
  }
}

/**
 * The bytes of a safetensors file with quantized tensors of any kind: codes packed, scales in the smallest type that loses nothing. Other
 * programs open it; what the codes mean is in its metadata.
 * @example const bytes = await saveTensors({ embeddings: q }); await writeFile('q.safetensors', bytes);
 * @throws TypeError or RangeError naming the tensor, or if two parts have one name; ScalepointError `WASM_LOAD`, `CSP`, `OUT_OF_MEMORY`
 */
export async function saveTensors(
  tensors: Readonly<Record<string, QuantizedTensor>>,
  options: SavedTensorsOptions = {},
): Promise<Uint8Array<ArrayBuffer>> {
  if (typeof tensors !== 'object' || tensors === null || 'kind' in tensors) {
    throw typeError('tensors', ofType('object of quantized tensors'), tensors);
  }
  checkTensorOptions(options, ['core']);
  const { writeTensors } = await import('./tensors.js');
  return withCore(options, (core) => writeTensors(core, tensors));
}

/**
 * The quantized tensors that `saveTensors` wrote, as they were.
 * @example const { embeddings } = await loadTensors('q.safetensors');
 * @throws ScalepointError `BAD_FILE` if the file is damaged or not of `saveTensors`; what `inspectModel` throws; `WASM_LOAD`, `CSP`,
 *   `OUT_OF_MEMORY`
 */
export async function loadTensors(
  file: ModelInput,
  options: SavedTensorsOptions & OpenOptions = {},
): Promise<Record<string, QuantizedTensor>> {
  checkTensorOptions(options, ['core', 'signal']);
  return withModel(file, options, async (opened) => {
    const { meaningsOf, readTensors } = await import('./tensors.js');
    const meanings = meaningsOf(opened);
    return withCore(options, (core) => readTensors(core, opened, meanings));
  });
}

/**
 * Writes a small file beside a result, such as its config.json (Node). It appears whole or not at all.
 * @throws ScalepointError `EXISTS` if the file is there and `overwrite` is false, `IO`
 */
export async function writeSidecar(path: string | URL, text: string, overwrite = false): Promise<void> {
  const sink = await pathSink(path, overwrite);
  try {
    await sink.write(0, new TextEncoder().encode(text));
    await sink.finish();
  } finally {
    await sink.discard(undefined);
  }
}
