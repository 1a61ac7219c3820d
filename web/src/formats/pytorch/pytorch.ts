/** Files of torch.save, read without executing anything. Results are safetensors files. */
import type { Format } from '../format.js';
import type { SafetensorsTarget } from '../safetensors/layouts/registry.js';
import type { SafetensorsOptions, SafetensorsSidecars } from '../safetensors/options.js';
import { planStored, safetensors } from '../safetensors/safetensors.js';
import type { PytorchModel } from './open.js';
import { pytorchSignature } from './signature.js';

const { index: _, sniff: _sniff, resembles: _resembles, ...alike } = safetensors;

export const pytorch: Format<
  'pytorch',
  SafetensorsTarget,
  'safetensors',
  SafetensorsOptions,
  SafetensorsSidecars,
  PytorchModel
> = {
  ...alike,
  ...pytorchSignature,
  about: 'A file of PyTorch becomes safetensors; nothing in it is executed. It is converted like safetensors.',
  examples: ['model.pth --to copy -o model.safetensors'],

  // Its reader is loaded with the first file.
  open: async (...given) => (await import('./open.js')).openPytorch(...given),
  tensors: (model) => safetensors.tensors(model),
  async plan(model, ...given) {
    const plan = await planStored(model, ...given);
    return { ...plan, notes: [...model.notes, ...plan.notes] };
  },
};
