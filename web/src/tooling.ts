/**
 * Names that the command line and the page need beyond the public API. The package does not export this file, so that its names may change
 * in any release.
 */
import type { ModelPlan } from './model.js';

export { converters } from './conversions/registry.js';
export { problemOf } from './core/errors.js';
export { standsForInfinity } from './core/measure.js';
export { noteText, type Sentence } from './core/note.js';
export { type Hint, type OptionWords, sayHint, sayMention, sayProblem } from './core/option-problem.js';
export type { FormatInfo, Target } from './formats/format.js';
export {
  aFile,
  didYouMean,
  type Flag,
  type OptionInfo,
  type OptionTable,
  type Sidecar,
  type Words,
} from './formats/options.js';
export { formats } from './formats/registry.js';
export type { ComparedLayer, ComparedOutput } from './formats/run.js';
export { ruleFrom, rulesFrom, rulesText } from './model/mixture-rules.js';
export { type Preset, presets } from './model/names.js';
export { maxWorkers } from './model/work-options.js';
export { writeSidecar } from './model/write-sidecar.js';

/** The loss of a result of a given size. */
export type ModelFit = NonNullable<ModelPlan['fit']>;
