/** GGUF to safetensors: language models, turned back into folders of Hugging Face. */
import type { Converter } from './converter.js';

export const fromGguf: Converter = {
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
