/** safetensors to MLC: folders of language models, for prebuilt libraries of WebLLM. */
import type { MlcChoices } from '../formats/mlc/options.js';
import type { Converter } from './converter.js';
import { webllmReaders } from './webllm/readers.js';

export const toMlc: Converter = {
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
