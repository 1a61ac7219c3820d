/** safetensors files, and models in several of them. */
import type { Format } from '../format.js';
import { readStatistics } from '../read-statistics.js';
import { plainTensor } from '../tensors.js';
import { fusedUnit } from './fused.js';
import type { Fields } from './layouts/layout.js';
import { codeWriterOf, loadedPlan } from './layouts/registry.js';
import { safetensorsLogicalTensors } from './logical.js';
import { openSafetensors } from './open.js';
import { options, type SafetensorsOptions, type SafetensorsSidecars } from './options.js';
import { planSafetensors } from './plan.js';
import { adapted, tensorsAsFloats } from './quantized.js';
import { readers } from './readers.js';
import { safetensorsReasonText } from './reasons.js';
import { safetensorsSignature } from './signature.js';
import { jsonBeside } from './stored-model.js';
import { mixtureOf, type SafetensorsTarget, safetensorsTargets, sharesSchemes, targets } from './targets.js';
import { verifySafetensors } from './verify.js';

type SafetensorsFormat = Format<
  'safetensors',
  SafetensorsTarget,
  'safetensors',
  SafetensorsOptions,
  SafetensorsSidecars
>;

/** Plans a result of an open model. */
export const planStored: NonNullable<SafetensorsFormat['plan']> = async (
  model,
  choices,
  partsOf,
  output,
  readOptionFile,
  weightNames,
) => {
  const { to, requantize = false } = choices;
  const tensors =
    to === 'copy' ? adapted(model, model.tensors.map(plainTensor)) : await tensorsAsFloats(model, requantize);
  const metadata = model.metadata as Readonly<Record<string, string>>;
  const statistics = await readStatistics(choices, readOptionFile);
  const names = statistics.importance === undefined ? undefined : await weightNames();
  const beside = new Map<string, Fields>();
  for (const file of codeWriterOf(choices)?.reads ?? []) {
    const content = await jsonBeside(model, file);
    if (content !== undefined) beside.set(file, content);
  }
  return planSafetensors(tensors, choices, {
    metadata,
    partsOf,
    isModel: true,
    output,
    inputs: { statistics, names },
    beside,
    planLayout: await loadedPlan(choices),
  });
};

export const safetensors: SafetensorsFormat = {
  ...safetensorsSignature,
  result: 'safetensors',
  about:
    'safetensors get the layout of compressed-tensors, with codes for the weights of linear layers; embeddings, lm_head and all other ' +
    'tensors are kept, unless --all or a rule converts them.',
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
    types: mixtureOf,
    unit: (to, name) => (sharesSchemes(to) ? fusedUnit(name) : undefined),
    stored: (bytes) => bytes,
  },
  options,
  unit: 'element',
  takesAdapters: true,
  readers,

  open: openSafetensors,
  tensors: safetensorsLogicalTensors,
  verify: verifySafetensors,
  reasonText: safetensorsReasonText,
  plan: planStored,
};
