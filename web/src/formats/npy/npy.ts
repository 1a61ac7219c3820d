/** .npy files: one array each. Results are safetensors files. */
import type { ByteSource } from '../../files/bytes.js';
import type { Format, OpenFile } from '../format.js';
import { readers, type SafetensorsOptions, type SafetensorsSidecars } from '../safetensors/options.js';
import { planSafetensors } from '../safetensors/plan.js';
import { safetensorsReasonText } from '../safetensors/reasons.js';
import { safetensors } from '../safetensors/safetensors.js';
import type { SafetensorsTarget } from '../safetensors/targets.js';
import { plainTensor } from '../tensors.js';
import { npyMagic, openNpy } from './header.js';

const { targets, aliases, ruleTargets, options } = safetensors;

export const npy: Format<'npy', SafetensorsTarget, 'safetensors', SafetensorsOptions, SafetensorsSidecars> = {
  name: 'npy',
  label: 'npy',
  files: '.npy',
  extensions: ['.npy'],
  result: 'safetensors',
  about: 'A .npy file becomes safetensors.',
  examples: ['weights.npy --to int8 --min-sqnr 35 --json'],
  targets,
  aliases,
  ruleTargets,
  options,
  unit: 'element',
  readers,
  reasonText: safetensorsReasonText,

  magic: npyMagic,

  async open(files) {
    const [{ source }] = files as [OpenFile];
    const { tensor, verbatim, read, readInto } = await openNpy(source);
    // Elements that have to be rearranged have no offsets in the file. They are read as if they were a file of their own.
    const rearranged: ByteSource = { ...source, size: tensor.bytes, reference: undefined, read, readInto };
    return {
      bytes: source.size,
      files: [verbatim ? source : rearranged],
      tensors: [verbatim ? tensor : { ...tensor, byteOffset: 0, rearranged: true }],
      metadata: Object.create(null),
    };
  },

  tensors: async (model) => model.tensors.map(plainTensor),

  // An array is not a model: its name means nothing, and there is no configuration.
  plan: (model, choices, partsOf) => planSafetensors(model.tensors.map(plainTensor), {}, choices, partsOf, false),
};
