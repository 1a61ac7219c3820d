/** `estimateModel`: estimates errors from a sample of each tensor. */
import { rangeError } from '../core/errors.js';
import { withCallbacks } from './callbacks.js';
import { type EstimateOptions, estimateOpen, type ModelEstimate } from './estimate.js';
import { withModel } from './open.js';
import { checkPlanOptions } from './options.js';
import { fitted, type PlanOptions } from './plan-model.js';
import type { ModelInput } from './recognize.js';
import { checkWorkOptions } from './work-options.js';

/**
 * Estimates the loss of a conversion: the error of each tensor that would be converted, measured on a sample of it, with the exact sizes of
 * a plan. Writes nothing, and reads no more than the sample.
 * @example const { tensors } = await estimateModel('model.safetensors', { to: 'int4' });
 * @throws what `planModel` throws; ScalepointError `NON_FINITE`, `OVERFLOW`, `WORKER` or `OUT_OF_MEMORY`; the signal's reason
 */
export async function estimateModel(file: ModelInput, options: PlanOptions & EstimateOptions): Promise<ModelEstimate> {
  checkPlanOptions(options, 'estimateModel');
  checkWorkOptions(options);
  const { sample } = options;
  if (sample !== undefined && !(typeof sample === 'number' && sample >= 1)) {
    throw rangeError('sample', { kind: 'number', min: 1 }, sample);
  }
  options.signal?.throwIfAborted();
  return withCallbacks(options, (own) =>
    withModel(file, own, async (opened) => estimateOpen(opened, (await fitted(opened, own, own)).choices, own)),
  );
}
