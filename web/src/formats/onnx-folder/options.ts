/** Options of folders for transformers.js: those of ONNX files, and of the weights that they are made of. */
import { rangeError } from '../../core/errors.js';
import { without } from '../../core/option-problem.js';
import { options as onnxOptions } from '../onnx/options.js';
import { optionTable, type PlanChoices, type RequantizeOptions, requantizeEntry } from '../options.js';
import { dtypeFacts, type OnnxFolderTarget } from './targets.js';

const { externalData: _, config: __, ...entries } = onnxOptions.entries;

/** Options of a folder for transformers.js. */
export interface OnnxFolderOptions extends RequantizeOptions {}

/** The options of ONNX files without those about the file, and `requantize`. */
export const options = optionTable<OnnxFolderOptions>(
  'transformers.js',
  { ...entries, ...requantizeEntry } as typeof requantizeEntry,
  (choices) => {
    const { target } = dtypeFacts(choices.to);
    const { requantize: _, ...rest } = choices as PlanChoices<OnnxFolderOptions>;
    if (target !== undefined) onnxOptions.check({ ...rest, to: target } as PlanChoices);
    const [rule] = target === undefined ? (choices.rules ?? []) : [];
    if (rule !== undefined) throw rangeError('rules', without('to', choices.to));
  },
);

export type OnnxFolderChoices = PlanChoices<OnnxFolderOptions, OnnxFolderTarget>;
