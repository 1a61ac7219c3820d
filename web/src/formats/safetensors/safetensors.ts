/** safetensors files, and models in several of them. */
import type { Format, Reader } from '../format.js';
import { readStatistics } from '../read-statistics.js';
import { plainTensor } from '../tensors.js';
import { options } from './check-options.js';
import { fusedUnit } from './fused.js';
import type { Fields } from './layouts/layout.js';
import type { SafetensorsOptions, SafetensorsSidecars } from './options.js';
import { planSafetensors } from './plan.js';
import { safetensorsReasonText } from './reasons.js';
import { openSafetensors } from './shards.js';
import { safetensorsSignature } from './signature.js';
import { adaptedTensors, gatherWeights, jsonBeside, tensorsAsFloats } from './stored-model.js';
import { layoutOfCodes, type SafetensorsTarget, safetensorsTargets, targetRow, targets } from './targets.js';
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
    to === 'copy' ? adaptedTensors(model, model.tensors.map(plainTensor)) : await tensorsAsFloats(model, requantize);
  const metadata = model.metadata as Readonly<Record<string, string>>;
  const statistics = await readStatistics(choices, readOptionFile);
  const names = statistics.importance === undefined ? undefined : await weightNames();
  const layout = layoutOfCodes(choices);
  const beside = new Map<string, Fields>();
  for (const file of layout?.reads ?? []) {
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
    planLayout: await layout?.load?.(),
  });
};

/** Programs that read a result. Codes need a reader of their layout. */
export function safetensorsReaders(to: string, file: string): readonly Reader[] {
  const everywhere: Reader = {
    program: 'Python',
    code: `from safetensors.torch import load_file\ntensors = load_file("${file}")`,
    needs: 'Everything that reads safetensors reads this file.',
  };
  const code = `import { readFloats } from 'scalepoint/model';\nconst { data, shape } = await readFloats('${file}', 'NAME.weight');`;
  return [...(targetRow(to)?.layout?.readers?.(file) ?? [everywhere]), { program: 'Scalepoint', code }];
}

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
    types(to) {
      const { mixedWith } = targetRow(to) ?? {};
      return mixedWith && [to, ...mixedWith];
    },
    unit: (to, name) => (targetRow(to)?.layout?.joinsLayers ? fusedUnit(name) : undefined),
    stored: (bytes) => bytes,
  },
  options,
  unit: 'element',
  takesAdapters: true,
  readers: safetensorsReaders,

  open: openSafetensors,
  tensors: async (model) => (await gatherWeights(model)).tensors,
  verify: verifySafetensors,
  reasonText: safetensorsReasonText,
  plan: planStored,
};
