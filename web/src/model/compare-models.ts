import { rangeError, typeError } from '../core/errors.js';
import { show } from '../core/show.js';
import { compareRuns, type RunOptions, type RunReport } from '../formats/registry.js';
import { withCallbacks } from '../pipeline/callbacks.js';
import type { WorkOptions } from '../pipeline/start.js';
import { type CompareReport, compareOpen } from './compare.js';
import { type ModelInput, withModel } from './open.js';
import { checkNames, checkWorkOptions, workNames } from './options.js';

/** Options of `compareModels`. */
export interface CompareModelsOptions extends WorkOptions {
  /**
   * ONNX: also runs both models on the same inputs, with onnxruntime-web, and compares their outputs.
   * @defaultValue false
   */
  readonly run?: boolean | RunOptions;
}

/** The result of `compareModels`; with `run`, also what the models compute. */
export type CompareModelsReport = CompareReport & Partial<RunReport>;

const runNames: readonly string[] = ['inputs', 'dimensions', 'seed', 'layers', 'runtime'];

function checkRunOptions(run: unknown): void {
  if (run === undefined || typeof run === 'boolean') return;
  if (typeof run !== 'object' || run === null) throw typeError('run', `expected true or an object, got ${show(run)}`);
  for (const name of Object.keys(run)) {
    if (!runNames.includes(name)) throw typeError(`run.${name}`, `unknown option; there are ${runNames.join(', ')}`);
  }
  const { seed, dimensions, layers } = run as RunOptions;
  if (seed !== undefined && !Number.isSafeInteger(seed)) {
    throw rangeError('run.seed', `expected a whole number, got ${show(seed)}`);
  }
  if (layers !== undefined && typeof layers !== 'boolean') {
    throw typeError('run.layers', `expected true or false, got ${show(layers)}`);
  }
  for (const [name, size] of Object.entries(dimensions ?? {})) {
    if (Number.isSafeInteger(size) && size >= 0) continue;
    throw rangeError(`run.dimensions.${name}`, `expected a whole number of at least 0, got ${show(size)}`);
  }
}

/**
 * Holds the tensors of one model against those of another, by name: what their bytes stand for, codes with scales and blocks included.
 * With `run`, ONNX models are run as well: on random inputs or given ones, to compare their outputs, and with `layers` what comes out of
 * each node. That takes the package onnxruntime-web, 1.22 or newer.
 * @example const { tensors } = await compareModels('model.safetensors', 'model.int8.safetensors');
 * @example const { outputs } = await compareModels('model.onnx', 'model_q4.onnx', { run: true });
 * @throws what `inspectModel` throws; ScalepointError `RUNTIME` if a model cannot be run; `UNSUPPORTED_DTYPE` never: such tensors are
 *   listed as not compared
 */
export async function compareModels(
  a: ModelInput,
  b: ModelInput,
  options: CompareModelsOptions = {},
): Promise<CompareModelsReport> {
  if (typeof options !== 'object' || options === null) {
    throw typeError('options', `expected an object, got ${show(options)}`);
  }
  checkNames(options, [...workNames, 'run']);
  checkRunOptions(options.run);
  checkWorkOptions(options);
  const { run = false, signal } = options;
  signal?.throwIfAborted();
  return withCallbacks(options, (own) =>
    withModel(a, own, (first) =>
      withModel(b, own, async (second) => {
        const report = await compareOpen(first, second, own);
        if (run === false) return report;
        return { ...report, ...(await compareRuns(first, second, run === true ? {} : run, signal)) };
      }),
    ),
  );
}
