/** The conversions between formats. To add one, add it to the list. Their code is loaded with the first model that they take. */
import type { KnownModels } from '../formats/known-models.js';
import type { MlcChoices } from '../formats/mlc/options.js';
import type { OnnxChoices } from '../formats/onnx/options.js';
import type { Converter } from './converter.js';
import type { DiffusionReason } from './diffusion/detect.js';
import { toGguf } from './to-gguf.js';
import { webllmReaders } from './webllm/readers.js';

export { isFileBeside } from './huggingface/files.js';

/** Loads the facts that architectures state for layouts of other formats. */
export const loadKnownModels = async (): Promise<KnownModels> => (await import('./families/index.js')).knownModels;

/** A reason to keep a tensor that only conversions have. */
export type ConversionReason = DiffusionReason;

/** Folders of language models, for prebuilt libraries of WebLLM. */
const toMlc: Converter = {
  from: ['safetensors', 'pytorch'],
  result: 'mlc',
  about:
    'A folder with config.json and tokenizer becomes a folder that WebLLM loads, if WebLLM has a prebuilt library for a model of its ' +
    'architecture and sizes.',
  condition: 'a fine-tune that WebLLM knows',
  examples: ['FOLDER --to mlc-q4f16_1'],

  readers: webllmReaders,

  // `inspect` names one further format, which is GGUF for these models.
  detect: async () => undefined,

  async convert(model, beside, choices) {
    const { convertWebllm } = await import('./webllm/convert.js');
    return convertWebllm(model, beside, choices as MlcChoices);
  },
};

/** Folders of language models, for transformers.js. */
const toOnnx: Converter = {
  from: ['safetensors', 'pytorch'],
  result: 'onnx-folder',
  about:
    'A folder with config.json and tokenizer becomes a folder that transformers.js loads: the graph is written for the architecture, and its ' +
    'weights are those of the folder.',
  condition: 'a model with a known graph',
  examples: ['FOLDER --to onnx:q4'],

  // `inspect` names one further format, which is GGUF for these models.
  detect: async () => undefined,

  async convert(model, beside, choices) {
    const { convertOnnx } = await import('./onnx/convert.js');
    return convertOnnx(model, beside, choices as OnnxChoices);
  },
};

/** Language models in GGUF, turned back into folders of Hugging Face. */
const fromGguf: Converter = {
  from: ['gguf'],
  result: 'safetensors',
  turnsBack: true,
  about:
    'A GGUF file of a language model also becomes safetensors, with names, layouts, config.json and tokenizer.json turned back; --requantize ' +
    'starts from the values of blocks.',
  condition: 'a language model',
  examples: ['model.gguf --to bfloat16 -o folder/model.safetensors', 'model.gguf --to mlx-4bit --requantize'],

  // `inspect` names one further format for results, and that of GGUF files stays GGUF.
  detect: async () => undefined,

  async convert(model, _beside, choices) {
    return (await import('./gguf-to-folder.js')).convertOutward(model, choices);
  },
};

const all: readonly Converter[] = [toGguf, toMlc, toOnnx, fromGguf];

/** Every conversion. */
export function converters(): readonly Converter[] {
  return all;
}

/** Conversions of models of a format. */
export function convertersFrom(format: string): readonly Converter[] {
  return all.filter(({ from }) => from.includes(format));
}
