/** Names of weights in statistics, where they differ from those of a model's tensors. */

/** A name that statistics may have for a weight. */
export interface WeightName {
  readonly name: string;
  /** Index of the weight among the matrices of the entry, such as experts, and their number. Undefined: the only one. */
  readonly matrix?: readonly [index: number, of: number] | undefined;
}

/** Names that statistics may have for tensors, by the names of these. */
export type WeightNames = ReadonlyMap<string, readonly WeightName[]>;
