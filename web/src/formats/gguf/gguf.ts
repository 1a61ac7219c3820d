/** GGUF files. */
import type { Format, OpenFile, OpenModel } from '../format.js';
import { readStatistics } from '../read-statistics.js';
import { inFile } from '../shards.js';
import { mixtures } from './fitted-types.js';
import { type GgufHeader, readGguf } from './header.js';
import { withScales } from './nvfp4.js';
import { type GgufOptions, options } from './options.js';
import { planGguf } from './plan.js';
import { ggufReasonText } from './reasons.js';
import { ggufSignature } from './signature.js';
import { splitCount } from './splits.js';
import { aliases, type GgufTarget, ruleTargets, targets } from './targets.js';

/** An open model in one or several GGUF files. */
export interface GgufModel extends OpenModel {
  /** Header of the first file, with the tensors of all files. */
  readonly header: GgufHeader;
}

/** Longest architecture name shown in full. */
const mostArchitecture = 60;

/** Architecture, bits per weight, and number of tensors of each type. */
function facts({ tensors, metadata }: Pick<OpenModel, 'tensors' | 'metadata'>): string[] {
  const types = new Map<string, number>();
  let [elements, bytes] = [0, 0];
  for (const { dtype, shape, bytes: size } of tensors) {
    types.set(dtype, (types.get(dtype) ?? 0) + 1);
    elements += shape.reduce((product, n) => product * n, 1);
    bytes += size;
  }
  const architecture = metadata['general.architecture'];
  return [
    ...(typeof architecture === 'string' ? [`architecture ${architecture.slice(0, mostArchitecture)}`] : []),
    `${(elements === 0 ? 0 : (8 * bytes) / elements).toFixed(2)} bits per weight`,
    ...[...types].map(([type, n]) => `${n} × ${type}`),
  ];
}

export const gguf: Format<'gguf', GgufTarget, 'gguf', GgufOptions, object, GgufModel> = {
  ...ggufSignature,
  result: 'gguf',
  about: 'GGUF results are those of llama-quantize, byte for byte.',
  examples: ["model.gguf --to Q4_K_M --rule 'ffn_down=Q6_K'"],
  targets,
  aliases,
  ruleTargets,
  mixtures,
  options,
  unit: 'parameter',
  facts,
  readers: (_to, file) => [
    { program: 'llama.cpp', code: `llama-cli -m ${file} -p "Hello"` },
    { program: 'Ollama', code: `echo "FROM ./${file}" > Modelfile\nollama create NAME -f Modelfile` },
  ],

  async open(files, open) {
    const [{ source }] = files as [OpenFile];
    const own = await (files.length > 1 ? inFile(source.name, readGguf(source)) : readGguf(source));
    const isSplit = files.length > 1 || splitCount(own) > 1;
    const {
      files: sources,
      header,
      close,
    } = isSplit
      ? await (await import('./open-splits.js')).openSplits(files, own, open)
      : { files: [source], header: own, close: async () => {} };
    return {
      bytes: sources.reduce((sum, { size }) => sum + size, 0),
      files: sources,
      tensors: header.tensors.map((tensor) => ({ file: 0, ...tensor })),
      metadata: header.metadata,
      header,
      close,
    };
  },

  tensors: async (model) => withScales(model.tensors),

  async plan(model, choices, partsOf, _output, readOptionFile) {
    const statistics = await readStatistics(choices, readOptionFile);
    return planGguf(model.header, choices, partsOf, undefined, statistics);
  },

  reasonText: ggufReasonText,
};
