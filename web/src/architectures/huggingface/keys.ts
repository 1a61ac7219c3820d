/**
 * Keys of the GGUF files that folders become: one list in writing order, with the types of llama.cpp.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/constants.py and gguf_writer.py at 0024aa7.
 */
import type { GgufKey } from '../../formats/gguf/pairs.js';

/** Keys by their names, with the types of their values, in writing order. A key whose value is an array has the type of its elements here. */
type KeyTypes = Readonly<Record<string, 'u32' | 'f32' | 'bool' | 'string'>>;

/** Types of the keys of a model, which stand behind its architecture. */
const modelTypes = {
  block_count: 'u32',
  context_length: 'u32',
  embedding_length: 'u32',
  embedding_length_out: 'u32',
  embedding_length_per_layer_input: 'u32',
  feed_forward_length: 'u32',
  vocab_size: 'u32',
  use_parallel_residual: 'bool',
  tensor_data_layout: 'string',
  hidden_activation: 'string',
  activation_sparsity_scale: 'f32',
  'attention.head_count': 'u32',
  'attention.head_count_kv': 'u32',
  'attention.key_length': 'u32',
  'attention.value_length': 'u32',
  'attention.key_length_mla': 'u32',
  'attention.value_length_mla': 'u32',
  'attention.key_length_swa': 'u32',
  'attention.value_length_swa': 'u32',
  'attention.q_lora_rank': 'u32',
  'attention.kv_lora_rank': 'u32',
  'attention.layer_norm_epsilon': 'f32',
  'attention.layer_norm_rms_epsilon': 'f32',
  'attention.causal': 'bool',
  'attention.clamp_kqv': 'f32',
  'attention.scale': 'f32',
  'attention.temperature_scale': 'f32',
  'attention.temperature_length': 'u32',
  'attention.sliding_window': 'u32',
  'attention.sliding_window_pattern': 'bool',
  'attention.shared_kv_layers': 'u32',
  'attention.recurrent_layers': 'bool',
  'attention.relative_buckets_count': 'u32',
  'attention.decay_lora_rank': 'u32',
  'attention.iclr_lora_rank': 'u32',
  'attention.value_residual_mix_lora_rank': 'u32',
  'attention.gate_lora_rank': 'u32',
  'attention.indexer.head_count': 'u32',
  'attention.indexer.key_length': 'u32',
  'attention.indexer.top_k': 'u32',
  'attention.indexer.types': 'bool',
  full_attention_interval: 'u32',
  attn_logit_softcapping: 'f32',
  final_logit_softcapping: 'f32',
  embedding_scale: 'f32',
  residual_scale: 'f32',
  logit_scale: 'f32',
  'rope.dimension_count': 'u32',
  'rope.dimension_count_swa': 'u32',
  'rope.dimension_sections': 'u32',
  'rope.freq_base': 'f32',
  'rope.freq_base_swa': 'f32',
  'rope.scaling.type': 'string',
  'rope.scaling.factor': 'f32',
  'rope.scaling.attn_factor': 'f32',
  'rope.scaling.original_context_length': 'u32',
  'rope.scaling.finetuned': 'bool',
  'rope.scaling.yarn_ext_factor': 'f32',
  'rope.scaling.yarn_attn_factor': 'f32',
  'rope.scaling.yarn_beta_fast': 'f32',
  'rope.scaling.yarn_beta_slow': 'f32',
  'rope.scaling.yarn_log_multiplier': 'f32',
  'ssm.conv_kernel': 'u32',
  'ssm.inner_size': 'u32',
  'ssm.state_size': 'u32',
  'ssm.time_step_rank': 'u32',
  'ssm.group_count': 'u32',
  'ssm.dt_b_c_rms': 'bool',
  'wkv.head_size': 'u32',
  'kda.head_dim': 'u32',
  'shortconv.l_cache': 'u32',
  expert_count: 'u32',
  expert_used_count: 'u32',
  expert_feed_forward_length: 'u32',
  expert_shared_count: 'u32',
  expert_shared_feed_forward_length: 'u32',
  expert_group_count: 'u32',
  expert_group_used_count: 'u32',
  expert_gating_func: 'u32',
  expert_weights_scale: 'f32',
  expert_weights_norm: 'bool',
  leading_dense_block_count: 'u32',
  moe_every_n_layers: 'u32',
  swiglu_clamp_exp: 'f32',
  swiglu_clamp_shexp: 'f32',
  interleave_moe_layer_step: 'u32',
  moe_latent_size: 'u32',
  nextn_predict_layers: 'u32',
  n_deepstack_layers: 'u32',
  'altup.active_idx': 'u32',
  'altup.num_inputs': 'u32',
  'xielu.alpha_n': 'f32',
  'xielu.alpha_p': 'f32',
  'xielu.beta': 'f32',
  'xielu.eps': 'f32',
  decoder_block_count: 'u32',
  decoder_start_token_id: 'u32',
  pooling_type: 'u32',
  dense_2_feat_in: 'u32',
  dense_2_feat_out: 'u32',
  dense_3_feat_in: 'u32',
  dense_3_feat_out: 'u32',
  'classifier.output_labels': 'string',
} as const satisfies KeyTypes;

/** A key of a model, without the architecture. */
export type KeyName = keyof typeof modelTypes;

type Scalar<T> = T extends 'string' ? string : T extends 'bool' ? boolean : number;

/** Types of the keys of a tokenizer, behind `tokenizer.ggml.`. The misspelled one is part of the format. */
const tokenizerTypes = {
  model: 'string',
  pre: 'string',
  tokens: 'string',
  scores: 'f32',
  token_type: 'u32',
  token_type_count: 'u32',
  merges: 'string',
  precompiled_charsmap: 'u32',
  bos_token_id: 'u32',
  eos_token_id: 'u32',
  eot_token_id: 'u32',
  eom_token_id: 'u32',
  unknown_token_id: 'u32',
  seperator_token_id: 'u32',
  padding_token_id: 'u32',
  cls_token_id: 'u32',
  mask_token_id: 'u32',
  prefix_token_id: 'u32',
  suffix_token_id: 'u32',
  middle_token_id: 'u32',
  add_bos_token: 'bool',
  add_eos_token: 'bool',
  add_sep_token: 'bool',
  add_space_prefix: 'bool',
  remove_extra_whitespaces: 'bool',
  suppress_tokens: 'u32',
  'normalizer.lowercase': 'bool',
  'normalizer.strip_accents': 'bool',
} as const satisfies KeyTypes;

/** Values of keys. Undefined ones are not written. */
type Values<Types extends KeyTypes> = {
  readonly [name in keyof Types]?:
    | Scalar<Types[name]>
    | readonly Scalar<Types[name]>[]
    | (name extends 'precompiled_charsmap' ? Uint8Array : never)
    // The pattern of windows is a list, or a step.
    | (name extends 'attention.sliding_window_pattern' ? number : never)
    | undefined;
};

/** Keys of a model. */
export type Keys = Values<typeof modelTypes>;

/** Keys of a tokenizer. */
export type TokenizerKeys = Values<typeof tokenizerTypes>;

/** Keys with their types, in writing order. */
function typedKeys<Types extends KeyTypes>(prefix: string, types: Types, values: Values<Types>): GgufKey[] {
  return Object.entries(types).flatMap(([key, type]): GgufKey[] => {
    const value: unknown = values[key];
    if (value === undefined) return [];
    // llama.cpp writes lists of numbers as i32.
    const ofList = value instanceof Uint8Array ? 'u8[]' : type === 'u32' ? 'i32[]' : `${type}[]`;
    const isList = typeof value === 'object';
    const own = isList ? ofList : typeof value === 'number' && type === 'bool' ? 'u32' : type;
    // Numbers of an activation have no architecture before their names.
    const name = key.startsWith('xielu.') ? key : `${prefix}.${key}`;
    return [{ name, type: own, value } as GgufKey];
  });
}

/** The keys of a tokenizer. */
export const tokenizerKeys = (keys: TokenizerKeys) => typedKeys('tokenizer.ggml', tokenizerTypes, keys);

/** All keys of a file. */
export function fileKeys(
  architecture: string,
  name: string | undefined,
  keys: Keys,
  ofTokenizer: readonly GgufKey[],
): GgufKey[] {
  return [
    { name: 'general.architecture', type: 'string', value: architecture },
    { name: 'general.type', type: 'string', value: 'model' },
    ...(name === undefined || name === '' ? [] : [{ name: 'general.name', type: 'string', value: name } as const]),
    ...typedKeys(architecture, modelTypes, keys),
    ...ofTokenizer,
  ];
}
