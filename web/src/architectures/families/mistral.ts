/**
 * Models in Mistral's own layout: params.json in the place of config.json, other names of tensors, and queries and keys in the order of llama.cpp.
 * Reference: conversion/mistral.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { unsupportedConfig } from '../huggingface/errors.js';
import { isObject, type Json, member, objectMember } from '../huggingface/json.js';
import { decoderDefaults, type ModelClass, siluSettings } from '../huggingface/reading.js';
import { attention, feedForward, norms } from './rows.js';

/** The class of a params.json, which names none. */
const className = 'MistralParams';

/** Names of keys by those of params.json. */
const names: Readonly<Record<string, string>> = {
  dim: 'hidden_size',
  n_layers: 'num_hidden_layers',
  n_heads: 'num_attention_heads',
  n_kv_heads: 'num_key_value_heads',
  hidden_dim: 'intermediate_size',
  norm_eps: 'rms_norm_eps',
  max_seq_len: 'max_position_embeddings',
  tied_embeddings: 'tie_word_embeddings',
};

/** A params.json as a config.json. */
export function configOfParams(params: Json): Json {
  const own = Object.fromEntries(Object.entries(params).map(([name, value]) => [names[name] ?? name, value]));
  const yarn = objectMember(params, 'yarn');
  const { max_position_embeddings = own.max_position_embeddings } = params;
  const beta = member(objectMember(params, 'llama_4_scaling'), 'beta');
  const scaling = yarn && {
    rope_type: 'yarn',
    factor: yarn.factor,
    beta_fast: yarn.beta,
    beta_slow: yarn.alpha,
    original_max_position_embeddings: yarn.original_max_position_embeddings,
    // Positions scale attention unless this says that the frequencies alone do.
    mscale_all_dim: yarn.apply_scale === true ? 0 : 1,
    llama_4_scaling_beta: beta,
  };
  return { ...own, max_position_embeddings, rope_scaling: scaling, architectures: [className] };
}

/** Names of matrices by those of the layout. */
const parts: readonly (readonly [RegExp, string])[] = [
  [/^tok_embeddings\./, 'model.embed_tokens.'],
  [/^norm\./, 'model.norm.'],
  [/^output\./, 'lm_head.'],
  [/^layers\./, 'model.layers.'],
  [/\.attention\.w([qkvo])\./, '.self_attn.$1_proj.'],
  [/\.attention_norm\./, '.input_layernorm.'],
  [/\.ffn_norm\./, '.post_attention_layernorm.'],
  [/\.feed_forward\.w1\./, '.mlp.gate_proj.'],
  [/\.feed_forward\.w2\./, '.mlp.down_proj.'],
  [/\.feed_forward\.w3\./, '.mlp.up_proj.'],
];

/** Tensors of towers beside the language model. */
const towers = /^(patch_merger|pre_mm_projector_norm|mm_(streams|whisper)_embeddings)\b/;

export const mistralParams: ModelClass = {
  architecture: 'llama',
  traits: { pairs: 'neighbors' },
  classes: {
    [className]: decoderDefaults([4096, 14336, 32], [32], 32768, { rms_norm_eps: 1e-5, rope_theta: 10000 }),
  },
  only: siluSettings,
  scaling: ['yarn'],
  table: {
    layer: [...norms, ...attention, ...feedForward],
    rename: (name) => (towers.test(name) ? undefined : parts.reduce((own, [from, to]) => own.replace(from, to), name)),
  },
  details({ config, rope, sizes, isCoded }) {
    if (isObject(config.get('moe')))
      unsupportedConfig("params.json has experts (moe); those of Mistral's own layout are not supported");
    if (isObject(config.get('quantization')) && !isCoded)
      unsupportedConfig('params.json says that the weights are quantized; convert the model that they were made from');
    const beta = member(rope.settings, 'llama_4_scaling_beta');
    return {
      ...(typeof beta === 'number' ? { architecture: 'mistral3' } : {}),
      keys: {
        'rope.dimension_count': sizes.head,
        'rope.scaling.yarn_log_multiplier':
          rope.type === 'yarn' ? (member(rope.settings, 'mscale_all_dim') as number) : undefined,
        'attention.temperature_scale': typeof beta === 'number' ? beta : undefined,
      },
    };
  },
};
