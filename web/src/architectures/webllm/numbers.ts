/** The numbers of a model that a compiled library depends on, as config.json calls them. */
export interface ModelNumbers {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
  readonly head_dim: number;
  readonly vocab_size: number;
  readonly rms_norm_eps: number;
  readonly rope_theta: number;
  /** The kind of scaling, and its factor: `llama3 32`; `none` without. */
  readonly rope_scaling: string;
  readonly tie_word_embeddings: boolean;
}
