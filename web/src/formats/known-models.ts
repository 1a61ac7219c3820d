/** Facts about models that layouts for known models need. Families of architectures state them, and the caller of a plan loads them. */

/** A model in mlx-lm. Without further members it has the names of Llama, and config.json says if the embedding is its output layer. */
interface KnownModel {
  /** Output layer: 'tied' if it is the embedding, 'own' if it is a weight. Undefined if config.json says which. */
  readonly head?: 'tied' | 'own';
  /**
   * The end of the module that experts stand in, which are stacked; the names of their projections in mlx-lm by those in the folder, in which
   * `gate_proj`, `up_proj` and `down_proj` keep their names; and the module of the stacks, by default `switch_mlp`.
   */
  readonly experts?: {
    readonly block: string;
    readonly projections?: Readonly<Record<string, string>>;
    readonly stack?: string;
  };
  /** Modules with 8 bits in groups of 64. */
  readonly precise?: RegExp;
  /** Modules that mlx-lm computes in floats, although others of their kind are quantized. */
  readonly plain?: RegExp;
  /** Vectors to which mlx-lm adds 1 when it converts. */
  readonly plusOne?: RegExp;
  /** True if keys and values of latent attention are two weights with a matrix for each head, in the place of kv_b_proj. */
  readonly splitsLatent?: true;
  /** Tensors that keep their type. */
  readonly uncast?: RegExp;
  /** Gives the name of a tensor in mlx-lm. */
  readonly rename?: (name: string) => string;
  /** Buffers that mlx-lm leaves out. */
  readonly unused?: RegExp;
  /** The embedding in mlx-lm. @defaultValue model.embed_tokens */
  readonly embedding?: string;
  /** The output layer in mlx-lm. @defaultValue lm_head */
  readonly output?: string;
}

/** Models by the `model_type` of config.json. */
export type KnownModels = Readonly<Record<string, KnownModel>>;
