// Folders of sound files that lack one, or whose tokenizer lacks a part: what is missing, as data and in the words of the page.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { planModel, ScalepointError } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { explain, obstacleOf } from '../../../web/demo/model/explain.js';
import { incomplete } from '../../../web/src/architectures/huggingface/errors.js';
import { rejectionOf, safetensors, weights } from '../support/models.js';
import { thrownBy } from '../support/support.js';

const config = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  hidden_size: 64,
  intermediate_size: 64,
  num_attention_heads: 2,
  num_hidden_layers: 1,
  vocab_size: 32,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
};

it('names a file that the folder lacks, not damage', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'incomplete-'));
  try {
    const names = ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj', 'self_attn.o_proj'];
    const all = [...names, 'mlp.gate_proj', 'mlp.up_proj', 'mlp.down_proj'];
    const layer = Object.fromEntries(all.map((name) => [`model.layers.0.${name}.weight`, weights('F32', [64, 64])]));
    const norms = ['model.norm', 'model.layers.0.input_layernorm', 'model.layers.0.post_attention_layernorm'];
    const others = Object.fromEntries(norms.map((name) => [`${name}.weight`, weights('F32', [64])]));
    const table = { 'model.embed_tokens.weight': weights('F32', [32, 64]), 'lm_head.weight': weights('F32', [32, 64]) };
    await writeFile(join(folder, 'model.safetensors'), safetensors({ ...layer, ...others, ...table }));
    await writeFile(join(folder, 'config.json'), JSON.stringify(config));
    const error = await rejectionOf(planModel(folder, { to: 'Q8_0' }));
    expect(error).toMatchObject({ code: 'INCOMPLETE', missing: 'tokenizer.json' });
    expect(explain(error)).toEqual({
      title: 'tokenizer.json is missing',
      text: 'The weights are sound, but this type needs tokenizer.json. Drop the whole folder of the model.',
    });
    expect(obstacleOf(error)).toBe('Needs tokenizer.json.');
    // The same folder as safetensors.
    expect((await planModel(folder, { to: 'int8' })).totals.quantized).toBe(7);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

it('names tokens that a tokenizer lacks, and damage where there is some', () => {
  const error = thrownBy(() => incomplete('tokenizer.json', '256 of the 256 tokens are missing', 'byte tokens'));
  expect(explain(error).title).toBe('The tokenizer has no byte tokens');
  const instead = { label: 'Make int8 safetensors instead', run() {} };
  const set: object[] = [];
  const ways = { keep() {}, setWords: (words: object) => void set.push(words), instead: () => instead };
  const [first, second] = explain(error, ways).choices ?? [];
  expect([first, second?.label]).toEqual([instead, 'Convert it all the same']);
  second?.run();
  expect(set).toEqual([{ 'missing-bytes': 'keep' }]);
  expect(obstacleOf(error)).toBe('Needs byte tokens.');
  expect(explain(new ScalepointError('BAD_FILE', 'it ends early')).title).toBe('The file is damaged or cut off');
});
