/** .npy files: one array each. Results are safetensors files. */
import type { ByteSource } from '../files/bytes.js';
import type { Format, OpenFile } from '../format.js';
import { layoutOfCodes, type SafetensorsTarget } from '../safetensors/layouts/registry.js';
import type { SafetensorsOptions, SafetensorsSidecars } from '../safetensors/options.js';
import { planSafetensors } from '../safetensors/plan.js';
import { safetensorsReasonText } from '../safetensors/reasons.js';
import { safetensors, safetensorsReaders } from '../safetensors/safetensors.js';
import { plainTensor } from '../tensors.js';
import { npySignature } from './signature.js';

const { targets, aliases, ruleTargets, options } = safetensors;

export const npy: Format<'npy', SafetensorsTarget, 'safetensors', SafetensorsOptions, SafetensorsSidecars> = {
  ...npySignature,
  result: 'safetensors',
  about: 'A .npy file becomes safetensors.',
  examples: ['weights.npy --to int8 --min-sqnr 35 --json'],
  targets,
  aliases,
  ruleTargets,
  options,
  unit: 'element',
  readers: safetensorsReaders,
  reasonText: safetensorsReasonText,

  async open(files) {
    const [{ source }] = files as [OpenFile];
    // Apps load the reader with its first file.
    const { tensor, verbatim, ...elements } = await (await import('./header.js')).openNpy(source);
    // Rearranged elements have no offsets in the file. Read them through a derived source.
    const rearranged: ByteSource = { ...source, ...elements, reference: undefined };
    return {
      bytes: source.size,
      files: [verbatim ? source : rearranged],
      tensors: [verbatim ? tensor : { ...tensor, byteOffset: 0, rearranged: true }],
      metadata: Object.create(null),
    };
  },

  tensors: async (model) => model.tensors.map(plainTensor),

  // An array is not a model: its name has no meaning, and it has no configuration.
  plan: async (model, choices, { partsOf }) =>
    planSafetensors(model.tensors.map(plainTensor), choices, {
      metadata: {},
      partsOf,
      isModel: false,
      planLayout: await layoutOfCodes(choices)?.load?.(),
    }),
};
