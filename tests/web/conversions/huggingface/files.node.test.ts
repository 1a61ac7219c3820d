// The list of files that a conversion may read beside the weights.
import { expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/conversions/huggingface/convert.js';
import { filesBeside } from '../../../../web/src/conversions/huggingface/files.js';
import { folderOf, type Weights } from '../../support/recipes.js';
import { bytePieces, sentencePieceFile } from '../../support/sentencepiece.js';
import {
  bertFiles,
  bertWeights,
  decoderConfig,
  decoderWeights,
  plainTokenizer,
} from '../../support/tiny-huggingface.js';

/** Names of the files that a conversion asks for, found or not. */
async function readOf(weights: Weights, files: Readonly<Record<string, unknown>>): Promise<Set<string>> {
  const folder = folderOf(weights, files);
  const names = new Set<string>();
  const file = (name: string) => {
    names.add(name);
    return folder.file(name);
  };
  await convertHuggingface({ ...folder, file });
  return names;
}

it('names each file that is read, and no other', async () => {
  const llama = { 'config.json': decoderConfig('LlamaForCausalLM') };
  const pieces = [['<unk>', 0, 2], ['<s>', 0, 3], ['</s>', 0, 3], ...bytePieces] as const;
  const bert = {
    ...bertFiles(12),
    'modules.json': [{ type: 'sentence_transformers.models.Pooling', path: '1_Pooling' }],
    '1_Pooling/config.json': { pooling_mode_cls_token: true },
  };
  const all = [
    await readOf(decoderWeights(), { ...llama, 'tokenizer.json': plainTokenizer() }),
    await readOf(decoderWeights(), { ...llama, 'tokenizer.model': sentencePieceFile(pieces) }),
    await readOf(bertWeights(12), bert),
  ].flatMap((names) => [...names]);
  expect([...new Set(all)].sort()).toEqual([...filesBeside].sort());
});
