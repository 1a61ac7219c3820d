import { typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import type { FormatSidecars } from '../formats/registry.js';
import { withCallbacks } from '../pipeline/callbacks.js';
import type { WorkOptions } from '../pipeline/start.js';
import { type ModelInput, withModel } from './open.js';
import { checkOptions, checkWorkOptions, sidecarNames } from './options.js';
import { type VerifyOptions, type VerifyReport, verifyOpen } from './verify.js';

/** Options of `verifyModel`. */
export interface VerifyModelOptions extends FormatSidecars, VerifyOptions {}

/**
 * Reads all of a model and tells what is wrong with it: scales that are NaN or infinite, bits that belong to no code, parts that do not fit
 * each other, a config.json that says something else. Needs no wasm. A file whose header is wrong cannot be opened: the error says what
 * it is.
 * @example const { problems } = await verifyModel('model.gguf');
 * @throws what `inspectModel` throws; ScalepointError `CHANGED`; the signal's reason if it was aborted
 */
export async function verifyModel(file: ModelInput, options: VerifyModelOptions = {}): Promise<VerifyReport> {
  checkOptions(options, [...sidecarNames(), 'onProgress', 'signal']);
  checkWorkOptions(options as WorkOptions);
  for (const name of sidecarNames()) {
    const value = (options as Readonly<Record<string, unknown>>)[name];
    if (value === undefined || (typeof value === 'object' && value !== null && !Array.isArray(value))) continue;
    throw typeError(name, ofType('object of a JSON file'), value);
  }
  options.signal?.throwIfAborted();
  return withCallbacks(options, (own) => withModel(file, own, (opened) => verifyOpen(opened, own, own)));
}
