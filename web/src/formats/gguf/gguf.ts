/** GGUF files. */
import type { Format, OpenFile, OpenModel } from '../format.js';
import { plainTensor } from '../tensors.js';
import { type GgufHeader, readGguf } from './header.js';
import { aliases, type GgufOptions, type GgufTarget, options, ruleTargets, targets } from './options.js';
import { planGguf } from './plan.js';

/** An open GGUF file. */
export interface GgufModel extends OpenModel {
  readonly header: GgufHeader;
}

/** Of a name that would fill the screen, so much is shown. */
const mostArchitecture = 60;

/** Architecture, bits per weight, and how many tensors there are of each type. */
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
  name: 'gguf',
  label: 'GGUF',
  files: 'GGUF',
  extensions: ['.gguf'],
  result: 'gguf',
  about: 'GGUF files become what llama-quantize makes of them, byte for byte.',
  examples: ["model.gguf --to Q4_K_M --rule 'ffn_down=Q6_K'"],
  targets,
  aliases,
  ruleTargets,
  options,
  unit: 'parameter',
  facts,
  readers: (_to, file) => [
    { program: 'llama.cpp', code: `llama-cli -m ${file} -p "Hello"` },
    { program: 'Ollama', code: `echo "FROM ./${file}" > Modelfile\nollama create NAME -f Modelfile` },
  ],

  magic: [0x47, 0x47, 0x55, 0x46],

  async open(files) {
    const [{ source }] = files as [OpenFile];
    const header = await readGguf(source);
    return {
      bytes: source.size,
      files: [source],
      tensors: header.tensors.map((tensor) => ({ ...tensor, file: 0 })),
      metadata: header.metadata,
      header,
    };
  },

  tensors: async (model) => model.tensors.map(plainTensor),

  plan: (model, choices, partsOf) => planGguf(model.header, choices, partsOf),
};
