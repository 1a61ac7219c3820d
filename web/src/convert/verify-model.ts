/** `verifyModel`: checks a model file. */

import { typeError } from '../core/errors.js';
import { imported } from '../core/imported.js';
import { ofType } from '../core/option-problem.js';
import type { FormatSidecars } from '../formats/registry.js';
import { withCallbacks } from './callbacks.js';
import { withModel } from './open.js';
import { modelCalls, sidecarNames } from './options.js';
import type { ModelInput } from './recognize.js';
import type { WorkOptions } from './start.js';
import type { VerifyReport } from './verify.js';
import { checkOptions, checkWorkOptions } from './work-options.js';

/** Options of `verifyModel`. */
export interface VerifyModelOptions extends FormatSidecars, Pick<WorkOptions, 'onProgress' | 'signal'> {}

/**
 * Reads all of a model and reports its errors: scales that are NaN or infinite, bits outside of any code, parts that do not fit each other,
 * a config.json that contradicts the model. Needs no wasm. A file with a wrong header cannot be opened; the error names the mistake.
 * @example const { problems } = await verifyModel('model.gguf');
 * @throws what `inspectModel` throws; ScalepointError `CHANGED`; the signal's reason if it was aborted
 */
export async function verifyModel(file: ModelInput, options: VerifyModelOptions = {}): Promise<VerifyReport> {
  checkOptions(options, modelCalls().verifyModel, modelCalls());
  checkWorkOptions(options as WorkOptions);
  for (const name of sidecarNames()) {
    const value = (options as Readonly<Record<string, unknown>>)[name];
    if (value === undefined || (typeof value === 'object' && value !== null && !Array.isArray(value))) continue;
    throw typeError(name, ofType('object of a JSON file'), value);
  }
  options.signal?.throwIfAborted();
  // Not destructured, because Vite 5 and 6 mistake what the bundler makes of that.
  const verifying = await imported(import('./on-demand.js'));
  return withCallbacks(options, (own) => withModel(file, own, (opened) => verifying.verifyOpen(opened, own, own)));
}
