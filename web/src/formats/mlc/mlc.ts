/** Models of MLC-LLM, which WebLLM runs: an index, and shards with the parameters. Results are made by a conversion. */
import type { Format } from '../format.js';
import { type MlcOptions, options } from './options.js';
import { mlcSignature } from './signature.js';
import { type MlcTarget, mlcTargets } from './targets.js';

/** Apps load the reader with its first model. */
const code = () => import('../on-demand.js');

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

  async open(files, open) {
    const { openMlc } = await code();
    return openMlc(files, open);
  },

  async tensors(model) {
    const { mlcTensors } = await code();
    return mlcTensors(model);
  },
};
