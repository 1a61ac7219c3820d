/**
 * Defaults of keys that a config.json may lack: those of the classes that Hugging Face reads it with. Sizes of the vocabulary follow from
 * the embedding. The classes of Nomic's and ChatGLM's models come with each model and differ, so that their keys have no defaults.
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

const distilBert: Json = { dim: 768, hidden_dim: 3072, n_layers: 6, n_heads: 12, max_position_embeddings: 512 };

const modernBert: Json = {
  hidden_size: 768,
  intermediate_size: 1152,
  num_hidden_layers: 22,
  num_attention_heads: 12,
  max_position_embeddings: 8192,
  norm_eps: 1e-5,
  local_attention: 128,
  global_attn_every_n_layers: 3,
  global_rope_theta: 160000,
  local_rope_theta: 10000,
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

const llama: Json = { ...decoder, hidden_size: 4096, intermediate_size: 11008, max_position_embeddings: 2048 };

const qwen2moe: Json = {
  ...qwen2,
  hidden_size: 2048,
  intermediate_size: 5632,
  num_hidden_layers: 24,
  num_attention_heads: 16,
  num_key_value_heads: 16,
  moe_intermediate_size: 1408,
  shared_expert_intermediate_size: 5632,
  num_experts: 60,
  num_experts_per_tok: 4,
};

const qwen2vl: Json = {
  hidden_size: 8192,
  intermediate_size: 29568,
  num_hidden_layers: 80,
  num_attention_heads: 64,
  num_key_value_heads: 8,
  max_position_embeddings: 32768,
  rms_norm_eps: 1e-5,
  rope_theta: 1e6,
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

const gemma4: Json = {
  ...gemma,
  num_hidden_layers: 30,
  max_position_embeddings: 131072,
  sliding_window: 512,
  global_head_dim: 512,
  num_kv_shared_layers: 0,
  hidden_size_per_layer_input: 256,
  vocab_size_per_layer_input: 262144,
  rope_theta: 1e6,
  rope_local_base_freq: 10000,
};

const gemma3n: Json = {
  ...decoder,
  hidden_size: 2048,
  intermediate_size: 16384,
  num_hidden_layers: 35,
  num_attention_heads: 8,
  num_key_value_heads: 2,
  head_dim: 256,
  max_position_embeddings: 32768,
  sliding_window: 512,
  vocab_size_per_layer_input: 262144,
  num_kv_shared_layers: 15,
  rope_theta: 1e6,
  rope_local_base_freq: 10000,
  tie_word_embeddings: true,
};

const mistral3: Json = {
  ...decoder,
  hidden_size: 4096,
  intermediate_size: 14336,
  num_hidden_layers: 34,
  num_key_value_heads: 8,
  max_position_embeddings: 262144,
  rms_norm_eps: 1e-5,
  rope_theta: 1e6,
};

const olmo2: Json = {
  ...decoder,
  hidden_size: 4096,
  intermediate_size: 11008,
  max_position_embeddings: 2048,
  rms_norm_eps: 1e-5,
};

const ernie: Json = {
  ...decoder,
  hidden_size: 1024,
  intermediate_size: 3072,
  num_hidden_layers: 18,
  num_attention_heads: 16,
  num_key_value_heads: 2,
  max_position_embeddings: 131072,
  rms_norm_eps: 1e-5,
  rope_theta: 5e5,
  tie_word_embeddings: true,
};

const cohere: Json = {
  ...decoder,
  hidden_size: 8192,
  intermediate_size: 22528,
  num_hidden_layers: 40,
  num_attention_heads: 64,
  max_position_embeddings: 8192,
  layer_norm_eps: 1e-5,
  logit_scale: 0.0625,
  tie_word_embeddings: true,
};

/** Falcon has sizes of its own in each folder. */
const falcon: Json = { layer_norm_epsilon: 1e-5, max_position_embeddings: 2048, rope_theta: 10000 };

/** Linear attention of Qwen3-Next and later ones. */
const linear: Json = {
  linear_conv_kernel_dim: 4,
  linear_key_head_dim: 128,
  linear_value_head_dim: 128,
  linear_num_key_heads: 16,
  linear_num_value_heads: 32,
  head_dim: 256,
  partial_rotary_factor: 0.25,
  full_attention_interval: 4,
};

const qwen3next: Json = {
  ...decoder,
  ...linear,
  hidden_size: 2048,
  intermediate_size: 5632,
  num_attention_heads: 16,
  num_key_value_heads: 2,
  max_position_embeddings: 32768,
  moe_intermediate_size: 512,
  shared_expert_intermediate_size: 512,
  num_experts: 512,
  num_experts_per_tok: 10,
};

const qwen35: Json = {
  ...decoder,
  ...linear,
  hidden_size: 4096,
  intermediate_size: 12288,
  num_attention_heads: 16,
  num_key_value_heads: 4,
  max_position_embeddings: 32768,
};

const qwen35moe: Json = {
  ...qwen3next,
  num_hidden_layers: 40,
  num_experts: 256,
  num_experts_per_tok: 8,
};

/** Latent attention of DeepSeek. */
const latent: Json = {
  kv_lora_rank: 512,
  q_lora_rank: 1536,
  qk_nope_head_dim: 128,
  qk_rope_head_dim: 64,
  v_head_dim: 128,
};

const llama4: Json = {
  ...decoder,
  hidden_size: 5120,
  intermediate_size: 8192,
  intermediate_size_mlp: 16384,
  num_hidden_layers: 48,
  num_attention_heads: 40,
  num_key_value_heads: 8,
  head_dim: 128,
  max_position_embeddings: 131072,
  rms_norm_eps: 1e-5,
  rope_theta: 5e5,
  num_local_experts: 16,
  num_experts_per_tok: 1,
  interleave_moe_layer_step: 1,
};

const t5: Json = {
  d_model: 512,
  d_kv: 64,
  d_ff: 2048,
  num_layers: 6,
  num_heads: 8,
  relative_attention_num_buckets: 32,
  layer_norm_epsilon: 1e-6,
};

/** Defaults of mT5 and UMT5; their sizes differ from those of T5. */
const mt5: Json = {
  feed_forward_proj: 'gated-gelu',
  relative_attention_num_buckets: 32,
  layer_norm_epsilon: 1e-6,
  decoder_start_token_id: 0,
};

/** Defaults by the name that config.json has under `architectures`. */
const byArchitecture: Readonly<Record<string, Json>> = {
  LlamaForCausalLM: llama,
  VLlama3ForCausalLM: llama,
  Idefics3ForConditionalGeneration: llama,
  SmolVLMForConditionalGeneration: llama,
  LlavaForConditionalGeneration: llama,
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
  Qwen2MoeForCausalLM: qwen2moe,
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
  Gemma3nForCausalLM: gemma3n,
  Gemma3nForConditionalGeneration: gemma3n,
  Gemma4ForCausalLM: gemma4,
  Gemma4ForConditionalGeneration: gemma4,
  Phi3ForCausalLM: {
    ...decoder,
    hidden_size: 3072,
    intermediate_size: 8192,
    max_position_embeddings: 4096,
    original_max_position_embeddings: 4096,
    rms_norm_eps: 1e-5,
  },
  PhiMoEForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 6400,
    num_key_value_heads: 8,
    max_position_embeddings: 131072,
    rms_norm_eps: 1e-5,
    rope_theta: 1e6,
    num_local_experts: 16,
    num_experts_per_tok: 2,
    attention_bias: false,
    lm_head_bias: false,
  },
  GemmaForCausalLM: {
    ...decoder,
    hidden_size: 3072,
    intermediate_size: 24576,
    num_hidden_layers: 28,
    num_attention_heads: 16,
    num_key_value_heads: 16,
    head_dim: 256,
    max_position_embeddings: 8192,
    tie_word_embeddings: true,
  },
  Gemma3TextModel: gemma3,
  Mistral3ForConditionalGeneration: mistral3,
  Ministral3ForCausalLM: mistral3,
  GraniteForCausalLM: { ...decoder, hidden_size: 4096, intermediate_size: 11008, max_position_embeddings: 2048 },
  OlmoForCausalLM: { ...decoder, hidden_size: 4096, intermediate_size: 11008, max_position_embeddings: 2048 },
  Olmo2ForCausalLM: olmo2,
  Olmo3ForCausalLM: { ...olmo2, rope_theta: 5e5, sliding_window: 4096 },
  GraniteMoeForCausalLM: { ...decoder, hidden_size: 4096, intermediate_size: 11008, max_position_embeddings: 2048 },
  GraniteMoeSharedForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 11008,
    max_position_embeddings: 2048,
  },
  Glm4MoeForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 10944,
    num_hidden_layers: 46,
    num_attention_heads: 96,
    num_key_value_heads: 8,
    max_position_embeddings: 131072,
    rms_norm_eps: 1e-5,
    moe_intermediate_size: 1408,
    num_experts_per_tok: 8,
  },
  Ernie4_5_MoeForCausalLM: {
    ...ernie,
    hidden_size: 2560,
    intermediate_size: 12288,
    num_hidden_layers: 28,
    num_attention_heads: 20,
    num_key_value_heads: 4,
    moe_intermediate_size: 1536,
    moe_num_experts: 64,
    moe_k: 6,
    moe_num_shared_experts: 2,
    moe_layer_start_index: 1,
  },
  Glm4ForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 13696,
    num_hidden_layers: 40,
    num_key_value_heads: 2,
    head_dim: 128,
    max_position_embeddings: 131072,
    rms_norm_eps: 1.5625e-7,
    attention_bias: true,
  },
  GlmForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 13696,
    num_hidden_layers: 40,
    num_key_value_heads: 2,
    head_dim: 128,
    max_position_embeddings: 131072,
    rms_norm_eps: 1.5625e-7,
    attention_bias: true,
  },
  Starcoder2ForCausalLM: {
    ...decoder,
    hidden_size: 3072,
    intermediate_size: 12288,
    num_hidden_layers: 30,
    num_attention_heads: 24,
    num_key_value_heads: 2,
    max_position_embeddings: 4096,
    norm_epsilon: 1e-5,
    tie_word_embeddings: true,
  },
  StableLmForCausalLM: {
    ...decoder,
    hidden_size: 2560,
    intermediate_size: 6912,
    num_key_value_heads: 32,
    max_position_embeddings: 4096,
    layer_norm_eps: 1e-5,
  },
  GPTNeoXForCausalLM: {
    ...decoder,
    hidden_size: 6144,
    intermediate_size: 24576,
    num_hidden_layers: 44,
    num_attention_heads: 64,
    max_position_embeddings: 2048,
    layer_norm_eps: 1e-5,
    rotary_pct: 0.25,
  },
  FalconForCausalLM: falcon,
  RWForCausalLM: falcon,
  PhiForCausalLM: {
    ...decoder,
    hidden_size: 2048,
    intermediate_size: 8192,
    num_hidden_layers: 24,
    max_position_embeddings: 2048,
    layer_norm_eps: 1e-5,
    partial_rotary_factor: 0.5,
  },
  CohereForCausalLM: cohere,
  Cohere2ForCausalLM: { ...cohere, sliding_window: 4096 },
  Exaone4ForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 16384,
    num_key_value_heads: 32,
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-5,
    sliding_window: 4096,
  },
  HunYuanDenseV1ForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 11008,
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-5,
  },
  Ernie4_5ForCausalLM: { ...ernie, head_dim: 128 },
  Ernie4_5_ForCausalLM: { ...ernie, head_dim: 128 },
  NemotronForCausalLM: {
    ...decoder,
    hidden_size: 6144,
    intermediate_size: 24576,
    num_attention_heads: 48,
    max_position_embeddings: 4096,
    norm_eps: 1e-5,
    partial_rotary_factor: 0.5,
    hidden_act: 'relu2',
  },
  Lfm2ForCausalLM: {
    ...decoder,
    hidden_size: 2560,
    intermediate_size: 12288,
    num_key_value_heads: 8,
    max_position_embeddings: 128000,
    norm_eps: 1e-5,
    rope_theta: 1e6,
    conv_L_cache: 3,
    tie_word_embeddings: true,
  },
  SeedOssForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 27648,
    num_hidden_layers: 64,
    num_attention_heads: 80,
    num_key_value_heads: 8,
    head_dim: 128,
    max_position_embeddings: 524288,
    attention_bias: true,
  },
  GraniteMoeHybridForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 11008,
    max_position_embeddings: 2048,
  },
  FalconH1ForCausalLM: {
    ...decoder,
    hidden_size: 4096,
    intermediate_size: 14336,
    num_key_value_heads: 8,
    max_position_embeddings: 8192,
    rms_norm_eps: 1e-5,
    mamba_d_ssm: 1024,
    mamba_n_heads: 128,
    mamba_n_groups: 1,
    mamba_d_state: 256,
    mamba_d_conv: 4,
    mamba_expand: 2,
    mamba_norm_before_gate: true,
    mamba_rms_norm: false,
  },
  Qwen3NextForCausalLM: { ...qwen3next, num_hidden_layers: 48 },
  Qwen3_5ForCausalLM: qwen35,
  Qwen3_5ForConditionalGeneration: qwen35,
  Qwen3_5MoeForCausalLM: qwen35moe,
  Qwen3_5MoeForConditionalGeneration: qwen35moe,
  Qwen2VLForConditionalGeneration: qwen2vl,
  Qwen2_5_VLForConditionalGeneration: qwen2vl,
  Qwen3VLForConditionalGeneration: {
    ...qwen2,
    head_dim: 128,
    max_position_embeddings: 128000,
    rope_theta: 5e5,
  },
  Qwen3VLMoeForConditionalGeneration: { ...qwen2moe, max_position_embeddings: 128000, rope_theta: 5e5 },
  GPT2LMHeadModel: { n_embd: 768, n_layer: 12, n_head: 12, n_positions: 1024, layer_norm_epsilon: 1e-5 },
  Llama4ForCausalLM: llama4,
  Llama4ForConditionalGeneration: llama4,
  GptOssForCausalLM: {
    ...decoder,
    hidden_size: 2880,
    intermediate_size: 2880,
    num_hidden_layers: 36,
    num_attention_heads: 64,
    num_key_value_heads: 8,
    head_dim: 64,
    max_position_embeddings: 131072,
    rms_norm_eps: 1e-5,
    rope_theta: 150000,
    sliding_window: 128,
    num_local_experts: 128,
    num_experts_per_tok: 4,
  },
  DeepseekV2ForCausalLM: {
    ...decoder,
    ...latent,
    hidden_size: 4096,
    intermediate_size: 11008,
    max_position_embeddings: 2048,
    first_k_dense_replace: 0,
    n_shared_experts: 2,
    n_routed_experts: 64,
    moe_intermediate_size: 1407,
    routed_scaling_factor: 1,
    norm_topk_prob: false,
  },
  DeepseekV3ForCausalLM: {
    ...decoder,
    ...latent,
    hidden_size: 7168,
    intermediate_size: 18432,
    num_hidden_layers: 61,
    num_attention_heads: 128,
    max_position_embeddings: 4096,
    first_k_dense_replace: 3,
    n_shared_experts: 1,
    n_routed_experts: 256,
    num_experts_per_tok: 8,
    moe_intermediate_size: 2048,
    routed_scaling_factor: 2.5,
    n_group: 8,
    topk_group: 4,
    norm_topk_prob: true,
  },
  BertModel: bert,
  BertForMaskedLM: bert,
  RobertaModel: bert,
  RobertaForSequenceClassification: bert,
  XLMRobertaModel: bert,
  XLMRobertaForSequenceClassification: bert,
  DistilBertModel: distilBert,
  DistilBertForMaskedLM: distilBert,
  ModernBertModel: modernBert,
  ModernBertForMaskedLM: modernBert,
  T5EncoderModel: t5,
  T5ForConditionalGeneration: { ...t5, decoder_start_token_id: 0 },
  MT5ForConditionalGeneration: { ...mt5, tie_word_embeddings: false },
  UMT5ForConditionalGeneration: mt5,
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
  'q_lora_rank',
  'sliding_window',
  'attn_logit_softcapping',
  'final_logit_softcapping',
];
