/** safetensors to ONNX: folders of language models, for transformers.js. */
import type { OnnxChoices } from '../formats/onnx/options.js';
import type { Converter } from './converter.js';

export const toOnnx: Converter = {
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
