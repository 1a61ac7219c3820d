/** Language models whose outputs can be computed. Their traits stand with their families; names alone load none. */

/** Traits of an architecture whose outputs can be computed. The metadata state the rest. */
export interface Traits {
  /** Elements that the rotary embedding turns together: neighbors, or those at the same place of both halves. */
  readonly pairs: 'halves' | 'neighbors';
  /** The function of the feed-forward part: of its gate, or of its only product where it has no gate. @defaultValue 'silu' */
  readonly gate?: 'geluTanh' | 'reluSquared' | 'boundSilu';
  /** True if the embedding is multiplied by the root of its length. */
  readonly scalesEmbedding?: true;
  /** True for layers that see a window only. */
  readonly slides?: (layer: number) => boolean;
  /** True for layers without a rotary embedding. */
  readonly withoutRotary?: (layer: number) => boolean;
  /** True if layers turn only those that see a window, unless no layer does. */
  readonly rotatesWindowsOnly?: true;
  /** Base of the rotary frequencies of layers with a window, which are not scaled, unless the metadata state another; 0 for that of all layers. */
  readonly localBase?: number;
  readonly isCentered?: true;
  readonly hasBareNorms?: true;
  /**
   * True if attention and the feed-forward part read the same states; `norm` if they do unless the latter has a norm of its own, and `stated` if
   * the metadata say so.
   */
  readonly isParallel?: true | 'norm' | 'stated';
  readonly normsRotated?: true;
  readonly normsBetween?: true;
  /** True if the metadata have a factor by which logits are divided. */
  readonly dividesLogits?: true;
  /** The function that makes shares of the scores of experts. @defaultValue 'softmax' */
  readonly shares?: 'sigmoid';
  /** False if shares of experts keep their sums, unless the metadata say otherwise. */
  readonly normalizesShares?: false;
  /** The number of layers of the model whose attention is scaled by hidden / heads. */
  readonly largest?: number;
  /** Bound of attention scores unless the metadata state another. */
  readonly attentionCap?: number;
  /** Bound of logits unless the metadata state another. */
  readonly finalCap?: number;
}

/** Architectures with traits, in llama.cpp's spelling. */
export const languageArchitectures: readonly string[] = [
  ...['llama', 'smollm3', 'qwen2', 'qwen3', 'qwen3moe', 'mistral3', 'ernie4_5', 'glm4', 'chatglm', 'gemma'],
  ...['gemma2', 'gemma3', 'phi3', 'granite', 'granitemoe', 'olmo2', 'olmoe', 'command-r', 'cohere2'],
  ...['exaone4', 'hunyuan-dense', 'seed_oss', 'glm4moe', 'ernie4_5-moe', 'arcee', 'nemotron', 'starcoder2'],
  ...['stablelm', 'phi2', 'qwen2moe', 'phimoe', 'gptneox', 'falcon', 'olmo', 'gpt-oss'],
];
