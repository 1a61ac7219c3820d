/** Facts about models that layouts for known models need. Families of architectures state them, and the caller of a plan loads them. */

/** A model in mlx-lm. Without further members it has the names of Llama, and config.json says if the embedding is its output layer. */
interface KnownModel {
  /** Output layer: 'tied' if it is the embedding, 'own' if it is a weight. Undefined if config.json says which. */
  readonly head?: 'tied' | 'own';
  /** The module of a layer with experts, which are stacked, and the names of their projections in mlx-lm by those in the folder. */
  readonly experts?: { readonly block: string; readonly projections: Readonly<Record<string, string>> };
  /** End of the names of modules with 8 bits in groups of 64. */
  readonly precise?: string;
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
