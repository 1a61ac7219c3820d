import { unsupported } from './errors.js';

/** Fails for a folder with an adapter in place of a model. */
export async function refuseAdapter(folder: { file(name: string): Promise<unknown> }): Promise<void> {
  if ((await folder.file('adapter_config.json')) !== undefined)
    unsupported('adapter_config.json', 'the folder holds an adapter (LoRA); merge it into its model first');
}

/** Files of a folder that a conversion may read beside the weights. A test compares the list with what conversions read. */
export const filesBeside: readonly string[] = [
  'config.json',
  // Mistral's own layout, in place of config.json and tokenizer.json.
  'params.json',
  'tekken.json',
  'adapter_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'added_tokens.json',
  'generation_config.json',
  'tokenizer.model',
  'sentencepiece.bpe.model',
  'spiece.model',
  'tiktoken.model',
  // The tokens of PLaMo, one in each line.
  'tokenizer.jsonl',
  // The tokens of RWKV.
  'rwkv_vocab_v20230424.txt',
  'chat_template.jinja',
  'chat_template.json',
  'modules.json',
  'preprocessor_config.json',
  'processor_config.json',
  // The usual place of a pooling; modules.json names it.
  '1_Pooling/config.json',
  // The usual places of the layers behind it.
  '2_Dense/config.json',
  '2_Dense/model.safetensors',
  '3_Dense/config.json',
  '3_Dense/model.safetensors',
];

/** Files of a tokenizer that no conversion reads, and other programs do. */
const vocabularies = ['special_tokens_map.json', 'vocab.json', 'vocab.txt', 'merges.txt'];

/** Files that programs need beside a model. */
export const namesAlong: readonly string[] = [...filesBeside, ...vocabularies].filter(
  (path) => !/^adapter_|\.safetensors$/.test(path),
);

/** True for a file with one of the names of `filesBeside`, or in one of these folders. @param path of the file in the folder, if it is known */
export function isFileBeside(name: string, path = ''): boolean {
  return filesBeside.some((one) =>
    one.endsWith('.safetensors') ? path.endsWith(`/${one}`) : one.split('/').at(-1) === name,
  );
}
