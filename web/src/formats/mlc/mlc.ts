/** Models of MLC-LLM, which WebLLM runs: an index, and shards with the parameters. Results are made by a conversion. */
import type { Format } from '../format.js';
import { type MlcOptions, options } from './options.js';
import { mlcSignature } from './signature.js';
import { type MlcTarget, mlcTargets } from './targets.js';

export const mlc: Format<'mlc', MlcTarget, 'mlc', MlcOptions> = {
  ...mlcSignature,
  result: 'mlc',
  about: 'A folder that WebLLM loads, with a prebuilt model library.',
  examples: [],
  targets: mlcTargets,
  aliases: {},
  ruleTargets: [],
  options,
  unit: 'parameter',

  // Apps load the reader with its first model.
  open: async (...given) => (await import('./open.js')).openMlc(...given),
  tensors: async (model) => (await import('./open.js')).mlcTensors(model),
};
