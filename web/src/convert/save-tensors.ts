/** Saves tensors of arrays and loads them again. saved-tensors.ts does the work, and is imported when it is needed. */

import { typeError } from '../core/errors.js';
import { imported } from '../core/imported.js';
import type { Core } from '../core/memory.js';
import { ofType } from '../core/option-problem.js';
import { tagOf } from '../core/realms.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import { openWithin } from '../formats/files/open.js';
import { type ModelInput, type OpenOptions, withFiles } from './recognize.js';
import type { SavableTensor, SavedTensor } from './saved-tensors.js';
import { checkOptions, checkWorkOptions, type WorkOptions } from './work-options.js';

type CoreOptions = Pick<WorkOptions, 'core'>;

function checkTensorOptions(options: CoreOptions & OpenOptions, names: readonly string[]): void {
  checkOptions(options, names);
  checkWorkOptions(options as WorkOptions);
}

/** Loads the core for one call. */
async function withCore<T>(
  { core: options }: CoreOptions,
  { soon }: Waiting,
  use: (core: Core) => T | Promise<T>,
): Promise<T> {
  // Import it here, so that apps that only inspect files load no wasm.
  const load = await imported(import('../core/load.js'));
  const core = await soon(load.loadCore(options), (late) => late.dispose());
  try {
    return await use(core);
  } finally {
    core.dispose();
  }
}

/**
 * Makes a safetensors file of tensors: quantized ones of any kind, their codes packed, with scales in the smallest type that holds them
 * exactly; and floats beside them, such as biases and norms, as they are. Other programs can open it; its metadata describe the codes.
 * @param tensors quantized tensors; arrays of floats; and tensors of floats with their shape, as `readTensor` returns them
 * @example const bytes = await saveTensors({ weight: q, bias: Float32Array.of(1, 2) }); await writeFile('q.safetensors', bytes);
 * @throws TypeError or RangeError naming the tensor, or if two parts have one name; ScalepointError `WASM_LOAD`, `CSP`, `OUT_OF_MEMORY`
 */
export async function saveTensors(
  tensors: Readonly<Record<string, SavableTensor>>,
  options: Pick<WorkOptions, 'core'> = {},
): Promise<Uint8Array<ArrayBuffer>> {
  const isRecord = tagOf(tensors) === 'Object';
  if (!isRecord || 'kind' in tensors) {
    throw typeError('tensors', ofType('object of tensors'), tensors);
  }
  checkTensorOptions(options, ['core']);
  const { writeTensors } = await imported(import('./saved-tensors.js'));
  return withCore(options, waitingFor(undefined), (core) => writeTensors(core, tensors));
}

/**
 * Loads the tensors that `saveTensors` wrote, as they were. Floats with a shape come back as `readTensor` returns them.
 * @typeParam T the tensors of the file, which are not checked: `{ weight: LinearQuantizedTensor; bias: Float32Array }`
 * @param file one file; or the index and all files of a model in several
 * @example const { embeddings } = await loadTensors('q.safetensors');
 * @throws ScalepointError `BAD_FILE` if the file is damaged or was not made by `saveTensors`, `UNKNOWN_FORMAT`, `IO`, `WASM_LOAD`, `CSP`,
 *   `OUT_OF_MEMORY`; the reason of the signal
 */
export async function loadTensors<T extends Readonly<Record<keyof T, SavedTensor>> = Record<string, SavedTensor>>(
  file: ModelInput,
  options: Pick<WorkOptions, 'core'> & OpenOptions = {},
): Promise<T> {
  checkTensorOptions(options, ['core', 'signal']);
  return withFiles(file, options, async (files, waiting) => {
    const { openTensors } = await import('./saved-tensors.js');
    const saved = await openTensors(files, (input) => openWithin(waiting, input));
    try {
      return (await withCore(options, waiting, (core) => saved.read(core))) as T;
    } finally {
      await saved.close();
    }
  });
}
