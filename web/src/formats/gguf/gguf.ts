/** GGUF files. */
import { blockTypes } from '../../core/blocks.js';
import { elementsOf } from '../codecs/elements.js';
import type { Format, Mixtures, OpenFile, OpenModel } from '../format.js';
import { inFile } from '../shards.js';
import { readStatistics } from '../weight-statistics.js';
import { paddedSize } from './contents.js';
import { type GgufHeader, readGguf } from './header.js';
import { categoryOf } from './mixture.js';
import { withScales } from './nvfp4.js';
import { type GgufOptions, options } from './options.js';
import { splitCount } from './pairs.js';
import { planGguf } from './plan.js';
import { ggufReasonText } from './reasons.js';
import { ggufSignature } from './signature.js';
import {
  aliases,
  type FileType,
  fileTypes,
  type GgufTarget,
  ggufTargets,
  ruleTargets,
  type TargetType,
  targets,
} from './targets.js';

// ----------------------------------------------------------------------------------------- results whose weights differ in type

/** Types that mixtures may have. */
const fitted = new Set<TargetType>(Object.values(fileTypes).flatMap((row) => ('fitted' in row ? [row.base] : [])));

/** Types of weights. Among types of one size, the better one is chosen for each weight. */
const mixedTypes: readonly TargetType[] = [...blockTypes, 'F16' as const, 'BF16' as const].filter((type) =>
  fitted.has(type),
);

/** File type that stands for a type: the usual one among those that give it to most tensors. */
function usualFileType(type: string): FileType | undefined {
  const names = ggufTargets.filter((name) => fileTypes[name].base === type);
  return names.find((name) => name.endsWith('_M')) ?? names[0];
}

/**
 * Weight of the errors of embeddings and the output layer, which reach the logits directly, while errors of other layers are averaged. With
 * weights from 4 to 16, the divergence of the logits is lower than with llama-quantize's mixtures; with 1 it is higher for some models with
 * large embeddings.
 */
const endWeight = 8;

export const mixtures: Mixtures = {
  to: 'Q4_K_M',
  types: (to) => (to === 'copy' || to === 'lora-gguf' ? undefined : mixedTypes),
  stored: paddedSize,
  weight(name) {
    const category = categoryOf(name);
    return category === 'output' || category === 'embedding' ? endWeight : 1;
  },
  nearest(elements) {
    const [most] = [...elements].filter(([type]) => usualFileType(type) !== undefined).sort(([, a], [, b]) => b - a);
    return (most && usualFileType(most[0])) ?? this.to;
  },
};

// ------------------------------------------------------------------------------------------------------------------------- format

/** An open model in one or several GGUF files. */
export interface GgufModel extends OpenModel {
  /** Header of the first file, with the tensors of all files. */
  readonly header: GgufHeader;
}

/** Longest architecture name shown in full. */
const mostArchitecture = 60;

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

  /** Architecture, bits per weight, and number of tensors of each type. */
  facts({ tensors, metadata }) {
    const types = new Map<string, number>();
    let [elements, bytes] = [0, 0];
    for (const { dtype, shape, bytes: size } of tensors) {
      types.set(dtype, (types.get(dtype) ?? 0) + 1);
      elements += elementsOf(shape);
      bytes += size;
    }
    const architecture = metadata['general.architecture'];
    return [
      ...(typeof architecture === 'string' ? [`architecture ${architecture.slice(0, mostArchitecture)}`] : []),
      `${(elements === 0 ? 0 : (8 * bytes) / elements).toFixed(2)} bits per weight`,
      ...[...types].map(([type, n]) => `${n} × ${type}`),
    ];
  },

  readers(to, file, architecture = '') {
    // Encoders write no text. Reference: github.com/ggml-org/llama.cpp, src/llama-arch.cpp and examples/embedding/README.md at 440e352.
    const program = /bert|embedding|encoder/.test(architecture) ? 'llama-embedding' : 'llama-cli';
    return [
      {
        program: 'llama.cpp',
        code: `${program} -m ${file} -p "Hello"`,
        fromHub: `${program} -hf OWNER/NAME --hf-file ${file} -p "Hello"`,
      },
      {
        program: 'Ollama',
        code: `echo "FROM ./${file}" > Modelfile\nollama create NAME -f Modelfile`,
        fromHub: `ollama run hf.co/OWNER/NAME:${to}`,
      },
    ];
  },

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

  async plan(model, choices, { partsOf, readOptionFile }) {
    const statistics = await readStatistics(choices, readOptionFile);
    return planGguf(model.header, choices, partsOf, { statistics });
  },

  reasonText: ggufReasonText,
};
