/**
 * The config.json that a GGUF file was made of, from its metadata: the way back from the keys of a model. Names of config.json are listed with
 * the keys that they become. Of these, a class of models takes those that its description asks for; the caller reads the result by this
 * description, and compares the keys that it gives with those of the file.
 */
import type { Json } from './json.js';

/** Factors that divide the frequencies of the rotary embedding. */
export interface RopeTensors {
  readonly divisors: Float32Array | undefined;
  readonly long: Float32Array | undefined;
  readonly short: Float32Array | undefined;
}

/** The metadata and the tensors of a file, as far as a config.json follows from them. */
export interface FileFacts {
  /** A value of the architecture's metadata, by its key without the architecture; undefined if it is missing. */
  key(name: string): unknown;
  /** True if the file has a tensor whose name matches. */
  has(name: RegExp): boolean;
  /** Rows of a tensor; undefined if it is missing. */
  rowsOf(name: string): number | undefined;
  /** The loaders of a folder of codes, which take a tensor for each expert; undefined for a folder of floats. */
  readonly takers: 'MLX' | 'others' | undefined;
  /** Rows of the embedding. */
  readonly vocabulary: number;
  /** Factors of the rotary embedding. */
  readonly rope: RopeTensors;
  /** The number of layers from which on attention is scaled by hidden / heads. */
  readonly largest: number | undefined;
  /** True for layers with a window, if the architecture fixes them. */
  readonly slides: ((layer: number) => boolean) | undefined;
  /** Names of the kinds of layers that have no keys, and of the others. */
  readonly kinds: readonly [string, string] | undefined;
  /** True if a model of the class has a window unless its config.json says otherwise. */
  readonly hasWindow: boolean;
}

/** The shortest decimal number with this value in float32: 0.00001 in place of 0.000009999999747378752. */
function shortest(value: number): number {
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return value;
}

const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? shortest(value) : undefined);

/** Settings of the rotary embedding; undefined for a plain one. Numbers of Llama 3's rule are those of its models. */
function ropeScaling({ key, rope }: FileFacts): Json | undefined {
  const number = (name: string) => numberOf(key(`rope.scaling.${name}`));
  const type = key('rope.scaling.type');
  const original = number('original_context_length');
  if (rope.long !== undefined && rope.short !== undefined) {
    const [long_factor, short_factor] = [rope.long, rope.short].map((list) => Array.from(list, shortest));
    return { rope_type: 'longrope', long_factor, short_factor, original_max_position_embeddings: original };
  }
  // BitNet's converter writes a factor of 1 into every file.
  if (type === 'linear' && number('factor') !== 1) return { rope_type: 'linear', factor: number('factor') };
  if (type === 'yarn')
    return {
      rope_type: 'yarn',
      factor: number('factor'),
      original_max_position_embeddings: original,
      extrapolation_factor: number('yarn_ext_factor'),
      attention_factor: number('yarn_attn_factor'),
      beta_fast: number('yarn_beta_fast'),
      beta_slow: number('yarn_beta_slow'),
      mscale_all_dim: number('yarn_log_multiplier'),
      llama_4_scaling_beta: numberOf(key('attention.temperature_scale')),
    };
  const sections = key('rope.dimension_sections');
  if (Array.isArray(sections)) return { rope_type: 'default', mrope_section: sections.filter((pairs) => pairs !== 0) };
  const { divisors } = rope;
  if (divisors === undefined) return undefined;
  // Llama 3's rule with the limits of its models. A divisor between them tells the context that the model was trained for.
  const [factor, base] = [Math.max(...divisors), numberOf(key('rope.freq_base')) ?? 10000];
  const between = divisors.findIndex((one) => one > 1 && one < factor);
  const smooth = (1 / (divisors[between] ?? 1) - 1 / factor) / (1 - 1 / factor);
  const context = 2 * Math.PI * base ** (between / divisors.length) * (1 + 3 * smooth);
  return {
    rope_type: 'llama3',
    factor: shortest(factor),
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: between < 0 ? 8192 : Math.round(context),
  };
}

/**
 * Every name of config.json that follows from a file, with its value; undefined without one. Names that mean the same stand beside each
 * other.
 */
export function configNames(facts: FileFacts): Json {
  const { key, has, vocabulary, largest, slides, hasWindow } = facts;
  const number = (name: string) => numberOf(key(name));
  const [blocks = 0, hidden = 0, heads = 1] = ['block_count', 'embedding_length', 'attention.head_count'].map(number);
  const ahead = number('nextn_predict_layers');
  const layers = blocks - (ahead ?? 0);
  // Latent attention keeps one key for all heads, which each restores to its own.
  const latent = number('attention.key_length_mla');
  const listed = key('attention.head_count_kv');
  const stored = numberOf(Array.isArray(listed) ? Math.max(...listed) : listed);
  const keyHeads = latent === undefined ? (stored ?? heads) : heads;
  const head = number('attention.key_length') ?? hidden / heads;
  const feedForward = number('feed_forward_length');
  const context = number('context_length');
  const epsilon = number('attention.layer_norm_rms_epsilon') ?? number('attention.layer_norm_epsilon');
  const theta = number('rope.freq_base');
  const rotated = number('rope.dimension_count');
  const share = rotated === undefined ? undefined : shortest(rotated / head);
  const window = number('attention.sliding_window') || undefined;
  const scaling = ropeScaling(facts);
  const experts = number('expert_count');
  const used = number('expert_used_count');
  const expertRows = number('expert_feed_forward_length');
  const sharedRows = number('expert_shared_feed_forward_length');
  const shared = number('expert_shared_count');
  const gating = number('expert_gating_func');
  const [hasBias, hasOutput] = [has(/^blk\.\d+\.attn_(q|qkv)\.bias$/), has(/^output\.weight$/)];
  const hasHeadNorms = has(/^blk\.\d+\.attn_q_norm\./);
  const [residual, logits] = [key('residual_scale'), key('logit_scale')].map((one) =>
    typeof one === 'number' ? one : undefined,
  );
  // The kinds of layers: with and without keys, or with and without a window.
  const pattern = key('attention.sliding_window_pattern');
  const bare = Array.isArray(listed) && listed.includes(0) ? listed.map((count) => count === 0) : undefined;
  const windows =
    window === undefined || slides === undefined ? undefined : Array.from({ length: layers }, (_, i) => slides(i));
  const kinds = bare ?? (Array.isArray(pattern) ? pattern.map((one) => one === true) : windows);
  const [one, other] = (bare && facts.kinds) ?? ['sliding_attention', 'full_attention'];
  return {
    ...{ hidden_size: hidden, n_embd: hidden, d_model: hidden },
    ...{ num_hidden_layers: layers, n_layer: layers, num_layers: layers },
    ...{ num_attention_heads: heads, n_head: heads },
    ...{ num_key_value_heads: keyHeads, num_kv_heads: keyHeads, n_head_kv: keyHeads },
    ...{ multi_query: keyHeads === 1, new_decoder_architecture: keyHeads > 1 && keyHeads < heads },
    head_dim: head,
    ...{ intermediate_size: feedForward, ffn_hidden_size: feedForward, n_inner: feedForward },
    intermediate_size_mlp: feedForward,
    ...{ max_position_embeddings: context, n_positions: context, n_ctx: context, seq_length: context },
    model_max_length: context,
    ...{ rms_norm_eps: epsilon, layer_norm_eps: epsilon, layer_norm_epsilon: epsilon, norm_epsilon: epsilon },
    ...{ norm_eps: epsilon, layernorm_epsilon: epsilon },
    ...{ rope_theta: theta, rotary_emb_base: theta, rope_local_base_freq: number('rope.freq_base_swa') },
    rope_ratio: theta === undefined ? undefined : theta / 10000,
    rope_scaling: scaling,
    original_max_position_embeddings: number('rope.scaling.original_context_length'),
    ...{ partial_rotary_factor: share, rotary_pct: share, rotary_dim: rotated },
    ...{ vocab_size: vocabulary, padded_vocab_size: vocabulary },
    tie_word_embeddings: !hasOutput,
    ...{ attention_bias: hasBias, qkv_bias: hasBias, use_qkv_bias: hasBias, add_qkv_bias: hasBias, use_bias: hasBias },
    mlp_bias: has(/^blk\.\d+\.ffn_up\.bias$/),
    attention_out_bias: has(/^blk\.\d+\.attn_output\.bias$/),
    lm_head_bias: has(/^output\.bias$/),
    ...{ use_qk_norm: hasHeadNorms, qk_layernorm: hasHeadNorms },
    use_parallel_residual: key('use_parallel_residual') ?? !has(/^blk\.\d+\.ffn_norm\./),
    sliding_window: window ?? (hasWindow ? null : undefined),
    layer_types: kinds?.map((is) => (is ? one : other)),
    clip_qkv: number('attention.clamp_kqv'),
    attn_logit_softcapping: number('attn_logit_softcapping'),
    final_logit_softcapping: number('final_logit_softcapping'),
    query_pre_attn_scalar: blocks === largest ? hidden / heads : head,
    ...{ logit_scale: number('logit_scale'), logits_scaling: number('logit_scale') },
    ...{ embedding_multiplier: number('embedding_scale'), scale_emb: number('embedding_scale') },
    residual_multiplier: number('residual_scale'),
    ...(residual === undefined || logits === undefined
      ? {}
      : { scale_depth: shortest(residual * Math.sqrt(layers)), dim_model_base: shortest(hidden / logits) }),
    attention_multiplier: number('attention.scale'),
    ...{ num_experts: experts, num_local_experts: experts, n_routed_experts: experts, moe_num_experts: experts },
    ...{ num_experts_per_tok: used, moe_k: used, num_experts_per_token: used },
    moe_intermediate_size: expertRows,
    ...{ shared_expert_intermediate_size: sharedRows, shared_intermediate_size: sharedRows },
    ...{ n_shared_experts: shared, num_shared_experts: shared, moe_num_shared_experts: shared },
    ...{
      first_k_dense_replace: number('leading_dense_block_count'),
      num_dense_layers: number('leading_dense_block_count'),
    },
    ...{ conv_L_cache: number('shortconv.l_cache'), block_auto_adjust_ff_dim: false },
    ...{
      index_n_heads: number('attention.indexer.head_count'),
      index_head_dim: number('attention.indexer.key_length'),
    },
    index_topk: number('attention.indexer.top_k'),
    interleave_moe_layer_step: number('interleave_moe_layer_step'),
    ...{ n_group: number('expert_group_count'), topk_group: number('expert_group_used_count') },
    routed_scaling_factor: number('expert_weights_scale'),
    norm_topk_prob: key('expert_weights_norm'),
    scoring_func: gating === undefined ? undefined : gating === 2 ? 'sigmoid' : 'softmax',
    num_nextn_predict_layers: ahead,
    q_lora_rank: number('attention.q_lora_rank') ?? (latent === undefined ? undefined : null),
    ...{ kv_lora_rank: number('attention.kv_lora_rank') },
    ...(latent === undefined || rotated === undefined
      ? {}
      : {
          qk_rope_head_dim: rotated,
          qk_nope_head_dim: latent - rotated,
          v_head_dim: number('attention.value_length_mla'),
        }),
  };
}
