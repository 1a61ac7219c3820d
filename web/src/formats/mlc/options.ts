/** Options of results for WebLLM. */
import { rangeError } from '../../core/errors.js';
import { without } from '../../core/option-problem.js';
import {
  type BlockSearchOptions,
  checkRules,
  choiceOption,
  type NonFiniteOptions,
  nonFinite,
  optionTable,
  type PlanChoices,
  type RequantizeOptions,
  toggle,
} from '../options.js';
import type { MlcTarget } from './targets.js';

/** Options of a result for WebLLM. */
export interface MlcOptions extends RequantizeOptions, NonFiniteOptions, BlockSearchOptions {}

/** The options of MLC. A library wants all of its parameters in one form, so that there are no rules. */
export const options = optionTable<MlcOptions>({
  title: 'MLC (WebLLM)',
  entries: {
    search: choiceOption(['usual', 'best'], {
      name: 'search',
      value: 'HOW',
      about: 'best: lower errors than MLC-LLM in the same bytes, in more time (default usual)',
    }),
    requantize: toggle({ name: 'requantize', about: 'also quantize what is quantized already' }),
    nonFinite,
  },
  check({ to, rules }) {
    checkRules(rules, (_, path) => {
      throw rangeError(path, without('to', to));
    });
  },
});

/** Checked choices for a result of MLC. */
export type MlcChoices = PlanChoices<MlcOptions, MlcTarget>;
