/**
 * Keys of the GGUF files that folders become: one list in writing order, with the types of llama.cpp.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/constants.py and gguf_writer.py at 0024aa7.
 */
import type { GgufKey } from '../../formats/gguf/pairs.js';

/** Types of the keys of a model, which stand behind its architecture. A key whose value is an array has the type of its elements here. */
const modelTypes = {
  block_count: 'u32',
  context_length: 'u32',
  embedding_length: 'u32',
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
  'attention.sliding_window': 'u32',
  'attention.sliding_window_pattern': 'bool',
  'attention.shared_kv_layers': 'u32',
  'attention.recurrent_layers': 'bool',
  'attention.relative_buckets_count': 'u32',
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
  interleave_moe_layer_step: 'u32',
  nextn_predict_layers: 'u32',
  n_deepstack_layers: 'u32',
  'altup.active_idx': 'u32',
  'altup.num_inputs': 'u32',
  decoder_block_count: 'u32',
  decoder_start_token_id: 'u32',
  pooling_type: 'u32',
  dense_2_feat_in: 'u32',
  dense_2_feat_out: 'u32',
  dense_3_feat_in: 'u32',
  dense_3_feat_out: 'u32',
  'classifier.output_labels': 'string',
} as const satisfies Readonly<Record<string, 'u32' | 'f32' | 'bool' | 'string'>>;

/** A key of a model, without the architecture. */
export type KeyName = keyof typeof modelTypes;

type Scalar<T> = T extends 'string' ? string : T extends 'bool' ? boolean : number;

/** Keys of a model with their values. Undefined ones are not written. */
export type Keys = {
  readonly [name in KeyName]?:
    | Scalar<(typeof modelTypes)[name]>
    | readonly Scalar<(typeof modelTypes)[name]>[]
    // The pattern of windows is a list, or a step.
    | (name extends 'attention.sliding_window_pattern' ? number : never)
    | undefined;
};

/** Keys of tokenizers, behind `tokenizer.ggml.`. The misspelled one is part of the format. */
const tokenizerNames = [
  ...['model', 'pre', 'tokens', 'scores', 'token_type', 'token_type_count', 'merges', 'precompiled_charsmap'],
  ...['bos_token_id', 'eos_token_id', 'eot_token_id', 'eom_token_id', 'unknown_token_id', 'seperator_token_id'],
  ...['padding_token_id', 'cls_token_id', 'mask_token_id', 'prefix_token_id', 'suffix_token_id', 'middle_token_id'],
  ...['add_bos_token', 'add_eos_token', 'add_sep_token', 'add_space_prefix', 'remove_extra_whitespaces'],
  ...['normalizer.lowercase', 'normalizer.strip_accents'],
];

const places = new Map(tokenizerNames.map((name, place) => [`tokenizer.ggml.${name}`, place]));

/** The keys of a tokenizer in writing order, chat templates last. Of keys with the same name, the last one counts. */
export function tokenizerKeys(keys: readonly GgufKey[]): GgufKey[] {
  const placeOf = ({ name }: GgufKey) => places.get(name) ?? Infinity;
  const all = [...new Map(keys.map((key) => [key.name, key])).values()];
  return all.sort((a, b) => placeOf(a) - placeOf(b) || 0);
}

/** All keys of a file in writing order. */
export function fileKeys(
  architecture: string,
  name: string | undefined,
  keys: Keys,
  ofTokenizer: readonly GgufKey[],
): GgufKey[] {
  const ofModel = (Object.keys(modelTypes) as KeyName[]).flatMap((key): GgufKey[] => {
    const value = keys[key];
    if (value === undefined) return [];
    const type = modelTypes[key];
    // llama.cpp writes lists of numbers as i32.
    const ofList = type === 'u32' ? 'i32[]' : `${type}[]`;
    const own = Array.isArray(value) ? ofList : typeof value === 'number' && type === 'bool' ? 'u32' : type;
    return [{ name: `${architecture}.${key}`, type: own, value } as GgufKey];
  });
  return [
    { name: 'general.architecture', type: 'string', value: architecture },
    { name: 'general.type', type: 'string', value: 'model' },
    ...(name === undefined || name === '' ? [] : [{ name: 'general.name', type: 'string', value: name } as const]),
    ...ofModel,
    ...ofTokenizer,
  ];
}
