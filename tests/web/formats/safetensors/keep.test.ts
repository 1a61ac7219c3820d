// Weights that stay floats by their names, as loaders build their layers.
import { describe, expect, it } from 'vitest';
import { keeperByName } from '../../../../web/src/formats/safetensors/keep.js';

/** The kinds of the reasons to keep weights of a model with these tensors. */
function kindsIn(names: readonly string[]): (string | undefined)[] {
  const keeper = keeperByName(names.map((name) => ({ name })));
  return names.map((name) => keeper(name)?.kind);
}

describe('kept by name', () => {
  it('routers and weights of heads that loaders read as floats', () => {
    expect(
      kindsIn([
        'model.layers.1.mlp.gate.wg.weight',
        'model.layers.1.mlp.experts.0.gate_proj.weight',
        'model.layers.1.self_attn.indexer.weights_proj.weight',
        'model.layers.1.self_attn.indexer.wq_b.weight',
        'model.layers.1.self_attn.weights_proj.weight',
      ]),
    ).toEqual(['router', undefined, 'sensitive', undefined, undefined]);
  });

  const towers = [
    'visual.blocks.0.attn.qkv.weight',
    'model.visual.merger.mlp.0.weight',
    'vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight',
    'multi_modal_projector.linear_1.weight',
    'model.audio_tower.layers.0.fc1.weight',
  ];

  it('towers of language models', () => {
    const language = ['language_model.model.embed_tokens.weight', 'language_model.model.layers.0.mlp.up_proj.weight'];
    expect(kindsIn([...towers, ...language])).toEqual([...towers.map(() => 'tower'), 'embedding', undefined]);
  });

  it('no towers that are models of their own', () => {
    expect(kindsIn(towers)).toEqual(towers.map(() => undefined));
  });
});
