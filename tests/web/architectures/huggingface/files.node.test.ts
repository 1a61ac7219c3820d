// The list of files that a conversion may read beside the weights.
import { expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import { filesBeside } from '../../../../web/src/architectures/huggingface/files.js';
import { readModules } from '../../../../web/src/architectures/huggingface/pooling.js';
import { convertTower } from '../../../../web/src/architectures/huggingface/vision/convert.js';
import type { Folder } from '../../../../web/src/architectures/recipe.js';
import { caseOf } from '../../support/decoder-cases.js';
import { hybrids } from '../../support/decoders/hybrid.js';
import { safetensors } from '../../support/models.js';
import { folderOf, type Weights } from '../../support/recipes.js';
import { bytePieces, sentencePieceFile } from '../../support/sentencepiece.js';
import { weightsOfTable } from '../../support/tensor-table.js';
import {
  bertFiles,
  bertWeights,
  decoderConfig,
  decoderWeights,
  plainTokenizer,
} from '../../support/tiny-huggingface.js';

/** Names of the files that a conversion asks for, found or not. */
async function readOf(
  weights: Weights,
  files: Readonly<Record<string, unknown>>,
  read: (folder: Folder) => Promise<unknown> = convertHuggingface,
): Promise<Set<string>> {
  const folder = folderOf(weights, files);
  const names = new Set<string>();
  const file = (name: string) => {
    names.add(name);
    return folder.file(name);
  };
  await read({ ...folder, file });
  return names;
}

/** The same of a vision tower, which lacks settings of pictures here. */
async function towerFiles(): Promise<Set<string>> {
  const config = { architectures: ['Gemma3ForConditionalGeneration'], vision_config: {} };
  const names = new Set<string>();
  const { file, ...folder } = folderOf(decoderWeights(), { 'config.json': config });
  const noted = (name: string) => {
    names.add(name);
    return file(name);
  };
  await expect(convertTower({ ...folder, file: noted }, 'F16')).rejects.toThrow();
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
  const xlmRoberta = {
    'config.json': decoderConfig('XLMRobertaModel', { layer_norm_eps: 1e-5, type_vocab_size: 2, vocab_size: 12 }),
    'tokenizer.json': { model: { type: 'Unigram', unk_id: 0, vocab: [['<unk>', 0]] } },
  };
  const t5 = {
    'config.json': {
      architectures: ['T5EncoderModel'],
      ...{ d_model: 64, d_kv: 16, d_ff: 96, num_layers: 1, num_heads: 4, vocab_size: 3 },
    },
    'spiece.model': sentencePieceFile(pieces.slice(0, 3), { trainer: { 3: 1 } }),
  };
  const t5Weights = weightsOfTable(
    {
      prefix: 'encoder.block.',
      outside: `
        shared.weight                    x  3x64
        encoder.final_layer_norm.weight  x  64`,
      layer: `
        layer.0.layer_norm.weight                             x  64
        layer.0.SelfAttention.q.weight                        x  64x64
        layer.0.SelfAttention.k.weight                        x  64x64
        layer.0.SelfAttention.v.weight                        x  64x64
        layer.0.SelfAttention.o.weight                        x  64x64
        layer.0.SelfAttention.relative_attention_bias.weight  x  32x4
        layer.1.layer_norm.weight                             x  64
        layer.1.DenseReluDense.wi.weight                      x  96x64
        layer.1.DenseReluDense.wo.weight                      x  64x96`,
    },
    1,
  );
  const lists = ['PLaMo 2', 'RWKV 7'].map((name) => {
    const { files, config, table, layers = 3 } = caseOf(hybrids.cases, name);
    const own = { ...files, 'config.json': { ...(files?.['config.json'] as object), ...config } };
    return [weightsOfTable(table, layers), own] as const;
  });
  const paths = ['2_Dense', '3_Dense'];
  const linear = safetensors({ 'linear.weight': { dtype: 'F32', shape: [1, 1], data: new Float32Array(1) } });
  const layers = {
    'modules.json': paths.map((path) => ({ type: 'sentence_transformers.models.Dense', path })),
    ...Object.fromEntries(paths.map((path) => [`${path}/config.json`, { in_features: 1, out_features: 1 }])),
    ...Object.fromEntries(paths.map((path) => [`${path}/model.safetensors`, linear])),
  };
  const all = [
    await readOf(decoderWeights(), { ...llama, 'tokenizer.json': plainTokenizer() }),
    await readOf(decoderWeights(), { ...llama, 'tokenizer.model': sentencePieceFile(pieces) }),
    await readOf(bertWeights(12), bert),
    await readOf(bertWeights(12), xlmRoberta),
    await readOf(t5Weights, t5),
    await readOf(new Map(), layers, (folder) => readModules(folder, 'gemma-embedding', true)),
    await towerFiles(),
    ...(await Promise.all(lists.map(([weights, own]) => readOf(weights, own)))),
    // Without config.json, the file of Mistral's own layout is looked for.
    await readOf(new Map(), {}, (folder) => expect(convertHuggingface(folder)).rejects.toThrow()),
  ].flatMap((names) => [...names]);
  expect([...new Set(all)].sort()).toEqual([...filesBeside].sort());
});
