/** `compareModels`: compares the tensors or the outputs of two models. */

import { checkKeys } from '../core/check.js';
import { asOption, rangeError, ScalepointError, typeError } from '../core/errors.js';
import { imported } from '../core/imported.js';
import { ofType, oneOf, whole } from '../core/option-problem.js';
import { formats } from '../formats/registry.js';
import type { RunOptions, RunReport } from '../formats/run.js';
import { withCallbacks } from './callbacks.js';
import type { CompareReport } from './compare.js';
import { type Opened, withModel } from './open.js';
import { modelCalls } from './options.js';
import type { ModelInput } from './recognize.js';
import type { WorkOptions } from './start.js';
import { checkOptions, checkWorkOptions, runNames } from './work-options.js';

/** Options of `compareModels`. */
export interface CompareModelsOptions extends WorkOptions {
  /**
   * ONNX: also runs both models on the same inputs, with onnxruntime-web, and compares their outputs.
   * @defaultValue false
   */
  readonly run?: boolean | RunOptions | undefined;
}

/** @throws TypeError, RangeError naming the option */
function checkBackends(backends: unknown): void {
  if (!Array.isArray(backends)) throw typeError('run.backends', ofType('array'), backends);
  for (const [i, backend] of backends.entries()) {
    const isOwn = typeof backend === 'object' && backend !== null && typeof backend.run === 'function';
    if (!isOwn && backend !== 'wasm' && backend !== 'webgpu') {
      throw rangeError(`run.backends[${i}]`, oneOf(['wasm', 'webgpu']), backend);
    }
  }
}

/** Checks options for running models. @throws TypeError, RangeError naming the option */
export function checkRunOptions(run: unknown, names = runNames): void {
  if (typeof run !== 'object' || run === null) throw typeError('run', ofType('object'), run);
  checkKeys(run, names, 'run');
  const { seed, dimensions, layers, backends } = run as RunOptions;
  if (seed !== undefined && !Number.isSafeInteger(seed)) {
    throw rangeError('run.seed', whole(), seed);
  }
  if (layers !== undefined && typeof layers !== 'boolean') {
    throw typeError('run.layers', ofType('boolean'), layers);
  }
  if (backends !== undefined) checkBackends(backends);
  for (const [name, size] of Object.entries(dimensions ?? {})) {
    if (Number.isSafeInteger(size) && size >= 0) continue;
    throw rangeError(`run.dimensions.${name}`, whole(0), size);
  }
}

/** Runs two models. @throws ScalepointError `RUNTIME` if models of these formats cannot be run */
async function compareRuns(a: Opened, b: Opened, options: RunOptions, signal?: AbortSignal): Promise<RunReport> {
  const runs = formats().filter((format) => format.compareRuns !== undefined);
  const other = [a, b].find(({ format }) => format.compareRuns === undefined || format !== a.format);
  if (other === undefined && a.format.compareRuns !== undefined) {
    return a.format.compareRuns(a.model, b.model, options, a.readOptionFile, signal);
  }
  const labels = runs.map(({ label }) => label).join(' or ');
  throw new ScalepointError('RUNTIME', `only ${labels} models can be run, and this is ${(other ?? a).format.label}`);
}

/**
 * Compares the tensors of two models by name. Codes with scales and blocks are restored to floats first. With `run`, also runs ONNX models
 * on random or given inputs and compares their outputs, with `layers` those of each node, and with `backends` in several places. Runs need the
 * package onnxruntime-web, 1.22 or newer.
 * @example const { tensors } = await compareModels('model.safetensors', 'model.int8.safetensors');
 * @example const { outputs } = await compareModels('model.onnx', 'model_q4.onnx', { run: true });
 * @throws what `inspectModel` throws; ScalepointError `RUNTIME` if a model cannot be run; `UNSUPPORTED_DTYPE` never: such tensors are
 *   listed as not compared
 */
export async function compareModels(
  a: ModelInput,
  b: ModelInput,
  options: CompareModelsOptions = {},
): Promise<CompareReport> {
  checkOptions(options, modelCalls().compareModels, modelCalls());
  if (typeof options.run === 'object' && options.run !== null) checkRunOptions(options.run);
  else if (options.run !== undefined && typeof options.run !== 'boolean') {
    throw typeError('run', ofType('boolean', 'object'), options.run);
  }
  checkWorkOptions(options);
  const { run = false } = options;
  options.signal?.throwIfAborted();
  // Not destructured, because Vite 5 and 6 mistake what the bundler makes of that.
  const comparing = await imported(import('./on-demand.js'));
  const named = (option: string) => (error: unknown) => {
    throw asOption(option, error);
  };
  return withCallbacks(options, (own) =>
    withModel(a, own, (first) =>
      withModel(b, own, async (second) => {
        const report = await comparing.compareOpen(first, second, own);
        if (run === false) return report;
        return { ...report, ...(await compareRuns(first, second, run === true ? {} : run, own.signal)) };
      }).catch(named('b')),
    ).catch(named('a')),
  );
}
