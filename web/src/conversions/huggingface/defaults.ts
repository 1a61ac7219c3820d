/**
 * Defaults of keys that a config.json may lack: those of the classes that Hugging Face reads it with. Sizes of the vocabulary follow from
 * the embedding. The classes of Nomic's models come with each model and differ, so that their keys have no defaults.
 * Reference: github.com/huggingface/transformers, src/transformers/models/NAME/configuration_NAME.py at 008e574; gemma3 and bert at 008f5c8.
 */
import type { Json } from './json.js';

const bert: Json = {
  hidden_size: 768,
  intermediate_size: 3072,
  num_hidden_layers: 12,
  num_attention_heads: 12,
  max_position_embeddings: 512,
  layer_norm_eps: 1e-12,
  type_vocab_size: 2,
};

/** Members of all decoders that are the same in most. */
const decoder: Json = { num_hidden_layers: 32, num_attention_heads: 32, rms_norm_eps: 1e-6, rope_theta: 10000 };

const mistral: Json = {
  ...decoder,
  hidden_size: 4096,
  intermediate_size: 14336,
  num_key_value_heads: 8,
  max_position_embeddings: 131072,
};

const qwen2: Json = {
  ...decoder,
  hidden_size: 4096,
  intermediate_size: 22016,
  num_key_value_heads: 32,
  max_position_embeddings: 32768,
};

const gemma: Json = {
  ...decoder,
  hidden_size: 2304,
  intermediate_size: 9216,
  num_hidden_layers: 26,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 256,
  query_pre_attn_scalar: 256,
  sliding_window: 4096,
  tie_word_embeddings: true,
};

const gemma3: Json = { ...gemma, max_position_embeddings: 131072, rope_theta: 1e6, rope_local_base_freq: 10000 };

/** Defaults by the name that config.json has under `architectures`. */
const byArchitecture: Readonly<Record<string, Json>> = {
  LlamaForCausalLM: { ...decoder, hidden_size: 4096, intermediate_size: 11008, max_position_embeddings: 2048 },
  MistralForCausalLM: { ...mistral, sliding_window: 4096 },
  MixtralForCausalLM: {
    ...mistral,
    rms_norm_eps: 1e-5,
    rope_theta: 1e6,
    num_local_experts: 8,
    num_experts_per_tok: 2,
  },
  SmolLM3ForCausalLM: {
    ...decoder,
    hidden_size: 2048,
    intermediate_size: 11008,
    num_hidden_layers: 36,
    num_attention_heads: 16,
    num_key_value_heads: 4,
    max_position_embeddings: 32768,
    rope_theta: 2e6,
    tie_word_embeddings: true,
  },
  Qwen2ForCausalLM: qwen2,
  Qwen3ForCausalLM: { ...qwen2, head_dim: 128 },
  Qwen3MoeForCausalLM: {
    ...qwen2,
    hidden_size: 2048,
    intermediate_size: 6144,
    num_hidden_layers: 24,
    num_key_value_heads: 4,
    moe_intermediate_size: 768,
    num_experts: 128,
    num_experts_per_tok: 8,
  },
  Gemma2ForCausalLM: {
    ...gemma,
    max_position_embeddings: 8192,
    attn_logit_softcapping: 50,
    final_logit_softcapping: 30,
  },
  Gemma3ForCausalLM: gemma3,
  Gemma3ForConditionalGeneration: gemma3,
  Phi3ForCausalLM: {
    ...decoder,
    hidden_size: 3072,
    intermediate_size: 8192,
    max_position_embeddings: 4096,
    original_max_position_embeddings: 4096,
    rms_norm_eps: 1e-5,
  },
  BertModel: bert,
  BertForMaskedLM: bert,
};

/** The defaults of an architecture; empty for one without defaults. */
export function defaultsOf(architecture: unknown): Json {
  return typeof architecture === 'string' && Object.hasOwn(byArchitecture, architecture)
    ? (byArchitecture[architecture] as Json)
    : {};
}

/** Keys whose null has a meaning of its own, such as no window. A null in place of another key counts as missing. */
export const nullable: readonly string[] = [
  'num_key_value_heads',
  'sliding_window',
  'attn_logit_softcapping',
  'final_logit_softcapping',
];
