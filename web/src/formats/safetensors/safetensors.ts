/** safetensors files, and models in several of them. */
import type { Format } from '../format.js';
import { plainTensor } from '../tensors.js';
import { logicalTensors } from './logical.js';
import { openSafetensors } from './open.js';
import {
  options,
  readers,
  type SafetensorsOptions,
  type SafetensorsSidecars,
  type SafetensorsTarget,
  safetensorsTargets,
  targets,
} from './options.js';
import { planSafetensors } from './plan.js';
import { tensorsAsFloats } from './quantized.js';
import { safetensorsSignature } from './signature.js';
import { verifySafetensors } from './verify.js';

/** What weights of a file may become together with others. Codes of other kinds would need a configuration of another kind. */
const integerMixtures: Readonly<Record<string, readonly SafetensorsTarget[]>> = {
  int4: ['int4', 'int8', 'bfloat16'],
  int8: ['int8', 'bfloat16'],
  float8e4m3fn: ['float8e4m3fn', 'bfloat16'],
};

export const safetensors: Format<
  'safetensors',
  SafetensorsTarget,
  'safetensors',
  SafetensorsOptions,
  SafetensorsSidecars
> = {
  ...safetensorsSignature,
  result: 'safetensors',
  about:
    'safetensors get the layout of compressed-tensors, with codes for the weights of linear layers; embeddings, lm_head and all other ' +
    'tensors are kept, unless --all or a rule takes them along.',
  examples: [
    'model.safetensors --to int8 --config config.json',
    'model.safetensors --to int4 --group-size 32 -o small',
    "model.safetensors --to int8 --rule '^decoder=keep'",
  ],
  targets,
  aliases: {},
  ruleTargets: safetensorsTargets,
  mixtures: {
    to: 'int4',
    types: (to) => integerMixtures[to],
    stored: (bytes) => bytes,
  },
  options,
  unit: 'element',
  readers,

  open: openSafetensors,
  tensors: logicalTensors,
  verify: verifySafetensors,

  async plan(model, choices, partsOf, output) {
    const { to, requantize = false } = choices;
    const tensors = to === 'copy' ? model.tensors.map(plainTensor) : await tensorsAsFloats(model, requantize);
    const metadata = model.metadata as Readonly<Record<string, string>>;
    return planSafetensors(tensors, metadata, choices, partsOf, true, output);
  },
};
