/** Options of results for WebLLM. */
import { rangeError } from '../../core/errors.js';
import { without } from '../../core/option-problem.js';
import {
  checkRules,
  checkStatistics,
  feedbackEntries,
  importanceEntry,
  type NonFiniteOptions,
  nonFiniteEntry,
  optionTable,
  type PlanChoices,
  type RequantizeOptions,
  requantizeEntry,
  type ScaleSearchOptions,
  type StatisticsOptions,
  searchEntry,
} from '../options.js';
import type { MlcTarget } from './targets.js';

const entries = {
  ...searchEntry('best: lower errors than MLC-LLM in the same bytes, in more time (default usual)'),
  ...importanceEntry,
  ...feedbackEntries,
  ...requantizeEntry,
  ...nonFiniteEntry,
};

/** Options of a result for WebLLM. */
export interface MlcOptions extends ScaleSearchOptions, StatisticsOptions, RequantizeOptions, NonFiniteOptions {}

/** The options of MLC. A library wants all of its parameters in one form, so that there are no rules. */
export const options = optionTable<MlcOptions>('MLC (WebLLM)', entries, (choices) => {
  const { to, rules } = choices;
  checkStatistics(choices);
  checkRules(rules, (_, path) => {
    throw rangeError(path, without('to', to));
  });
});

/** Checked choices for a result of MLC. */
export type MlcChoices = PlanChoices<MlcOptions, MlcTarget>;
