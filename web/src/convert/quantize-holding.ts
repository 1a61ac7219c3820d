/** Quantizes a model, and raises types until its outputs are close enough. */
import type { PlanChoices } from '../formats/options.js';
import type { Opened } from './open.js';
import { outputBoundOf } from './output-bound.js';
import { type ModelFilePlan, nameOf, planFor } from './plan.js';
import { type Quantized, quantizeOpen, type ResultOptions } from './quantize.js';

/**
 * Quantizes an open model, with types raised until outputs hold `minOutput`, if that is given. The arguments are those of `quantizeOpen`;
 * `check` is called with the plan before types are raised.
 */
export async function quantizeHolding(
  opened: Opened,
  choices: PlanChoices,
  options: ResultOptions,
  called?: string,
  check?: (plan: ModelFilePlan) => void,
): Promise<Quantized> {
  const { minOutput, output } = options;
  if (minOutput === undefined) return quantizeOpen(opened, choices, options, called, check);
  check?.(await planFor(opened, choices, nameOf(output) ?? called));
  // Not destructured, because Vite 5 and 6 mistake what the bundler makes of that.
  const repairing = await import('./on-demand.js');
  const { choices: raised, repair } = await repairing.repairOpen(opened, choices, options, outputBoundOf(minOutput));
  const made = await quantizeOpen(opened, raised, options, called);
  return { ...made, report: { ...made.report, repair } };
}
