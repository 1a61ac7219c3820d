/**
 * Facts about a language model, from the metadata of its GGUF form. Folders have the same metadata once they are converted, so one set of
 * keys describes both.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-model.cpp at commit a5410f046c01d01330c8a42f13b64a211fedf2c3, and
 * ggml/src/ggml-cpu/ops.cpp at commit 1f08e2d662715ead7987c365eced4f273d90e431 (rope_yarn, ggml_rope_cache_init).
 */
import { architectureFacts } from '../architectures/families/index.js';
import { languageArchitectures } from '../architectures/traits.js';
import { GateId, RotaryPairsId, SharesId } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';

/** A value of the metadata; undefined if the key is missing. */
export type Metadata = (key: string) => unknown;

/** The rotary embedding of a layer. */
export interface Rotary {
  readonly pairs: RotaryPairsId;
  /** Radians for each position, one for each pair of elements. */
  readonly frequencies: Float64Array<ArrayBuffer>;
  /** Factor of the turned elements. */
  readonly factor: number;
}

/** A language model: its sizes, and the functions between its products. */
export interface LanguageFacts {
  readonly architecture: string;
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly headSize: number;
  /** Tokens that the model was made for. */
  readonly context: number;
  /** Addend under the roots of norms. */
  readonly epsilon: number;
  /** Factor of the embedding of each token. */
  readonly embeddingScale: number;
  /** Factor of what attention and the feed-forward part of each layer add to its states. */
  readonly residualScale: number;
  /** Factor of logits, before `finalCap`. */
  readonly logitScale: number;
  /** Factor of the products of queries and keys. */
  readonly attentionScale: number;
  /** Bound of attention scores, through tanh; 0 without one. */
  readonly attentionCap: number;
  /** Bound of logits, through tanh; 0 without one. */
  readonly finalCap: number;
  /** Bound of queries, keys and values; 0 without one. */
  readonly clamp: number;
  /** The function of the feed-forward part: of its gate, or of its only product where it has no gate. */
  readonly gate: GateId;
  /** True if norms subtract the mean of a row (LayerNorm). */
  readonly isCentered: boolean;
  /** True if the norms of states have no weights. */
  readonly hasBareNorms: boolean;
  /** True if attention and the feed-forward part read the same states, and false if the latter reads those behind attention. */
  isParallel(hasFeedForwardNorm: boolean): boolean;
  /** True if queries and keys are normalized after they are turned. */
  readonly normsRotated: boolean;
  /** True if the norm that is named for its place behind attention stands before the feed-forward part. */
  readonly normsBetween: boolean;
  /** Experts of layers that have some, and those that a token uses. 0 in dense models. */
  readonly experts: number;
  readonly usedExperts: number;
  /** The function that makes shares of the scores of experts, what it is multiplied by, and true if shares are divided by their sum. */
  readonly shares: SharesId;
  readonly sharesScale: number;
  readonly normalizesShares: boolean;
  /** Tokens that a token sees in a layer; 0 for all before it. */
  window(layer: number): number;
  /** The rotary embedding of a layer; undefined for layers without positions. */
  rotary(layer: number): Rotary | undefined;
}

/** Keys with numbers that decide how much is kept. */
const counts = /block_count|head_count|key_length|dimension_count|expert|embedding_length/;

/** The rotary frequencies of a base, with the scaling that the metadata state. */
function frequenciesOf(
  number: (key: string, otherwise?: number) => number,
  scaling: unknown,
  size: number,
  base: number,
): { frequencies: Float64Array<ArrayBuffer>; factor: number } {
  const frequencies = Float64Array.from({ length: size / 2 }, (_, i) => base ** ((-2 * i) / size));
  const factor = number('rope.scaling.attn_factor', 1);
  if (scaling === 'linear') {
    const divisor = number('rope.scaling.factor');
    return { frequencies: frequencies.map((frequency) => frequency / divisor), factor };
  }
  if (scaling !== 'yarn') return { frequencies, factor };
  const divisor = number('rope.scaling.factor');
  const context = number('rope.scaling.original_context_length');
  const pairWith = (turns: number) => (size * Math.log(context / (turns * 2 * Math.PI))) / (2 * Math.log(base));
  const first = Math.max(0, Math.floor(pairWith(number('rope.scaling.yarn_beta_fast', 32))));
  const last = Math.min(size - 1, Math.ceil(pairWith(number('rope.scaling.yarn_beta_slow', 1))));
  const share = number('rope.scaling.yarn_ext_factor', 1);
  return {
    frequencies: frequencies.map((frequency, i) => {
      const kept = share * (1 - Math.min(1, Math.max(0, (i - first) / Math.max(0.001, last - first))));
      return (frequency / divisor) * (1 - kept) + frequency * kept;
    }),
    factor: factor * number('rope.scaling.yarn_attn_factor', 1) * (1 + 0.1 * Math.log(divisor)),
  };
}

/**
 * Reads the facts of a model.
 * @param divisors of the frequencies, from the tensor `rope_freqs.weight` or `rope_factors_*`
 * @param mostCount the largest number of layers, heads or elements that the tensors have room for
 * @throws ScalepointError `UNKNOWN_FORMAT` for other architectures, `BAD_FILE` for missing or wrong numbers
 */
export function languageFacts(metadata: Metadata, divisors?: Float32Array, mostCount = 2 ** 31 - 1): LanguageFacts {
  const architecture = metadata('general.architecture');
  const traits = typeof architecture === 'string' ? architectureFacts(architecture).traits : undefined;
  if (typeof architecture !== 'string' || traits === undefined) {
    const text = `the outputs of the architecture ${String(architecture)} cannot be computed here; ${languageArchitectures.join(', ')} can`;
    throw new ScalepointError('UNKNOWN_FORMAT', text);
  }
  const number = (key: string, otherwise?: number): number => {
    const value = metadata(`${architecture}.${key}`) ?? otherwise;
    if (typeof value === 'number' && Number.isFinite(value)) return value;
    throw new ScalepointError('BAD_FILE', `${architecture}.${key} is missing or no number`);
  };
  const whole = (key: string, otherwise?: number): number => {
    const value = number(key, otherwise);
    if (counts.test(key) && value > mostCount) {
      const message = `${architecture}.${key} is ${value}, but the tensors have room for at most ${mostCount}`;
      throw new ScalepointError('BAD_FILE', message);
    }
    if (Number.isSafeInteger(value) && value >= 0 && value < 2 ** 31) return value;
    throw new ScalepointError('BAD_FILE', `${architecture}.${key} is ${value} instead of a whole number`);
  };

  if (metadata(`${architecture}.attention.causal`) === false) {
    const text = `tokens of this model see those behind them (${architecture}.attention.causal is false); it writes no texts`;
    throw new ScalepointError('UNKNOWN_FORMAT', text);
  }
  if (metadata(`${architecture}.attention.temperature_scale`) !== undefined) {
    const text = 'the outputs of Ministral 3, whose queries grow with their position, cannot be computed here';
    throw new ScalepointError('UNKNOWN_FORMAT', text);
  }

  // Read the sizes.
  // Layers that predict further tokens are the last ones.
  const layers = Math.max(0, whole('block_count') - whole('nextn_predict_layers', 0));
  const [hidden, heads] = [whole('embedding_length'), whole('attention.head_count')];
  const keyHeads = whole('attention.head_count_kv', heads);
  if (layers * hidden * heads * keyHeads === 0 || heads % keyHeads !== 0) {
    throw new ScalepointError(
      'BAD_FILE',
      `${heads} heads, ${keyHeads} heads of keys and ${hidden} elements do not fit`,
    );
  }
  const headSize = whole('attention.key_length', hidden / heads);
  const turning = whole('rope.dimension_count', headSize);
  if (turning > headSize || turning % 2 !== 0) {
    throw new ScalepointError('BAD_FILE', `${turning} elements turn in heads of ${headSize}`);
  }

  // Make the rotary embeddings: one for all layers, or one for those with a window and one for the others.
  const scaling = metadata(`${architecture}.rope.scaling.type`);
  const base = number('rope.freq_base', 10000);
  const global = frequenciesOf(number, scaling, turning, base);
  const scaled: Rotary = {
    pairs: RotaryPairsId[traits.pairs],
    factor: global.factor,
    frequencies:
      divisors === undefined ? global.frequencies : global.frequencies.map((f, i) => f / (divisors[i] as number)),
  };
  const localBase = number('rope.freq_base_swa', traits.localBase || base);
  const local: Rotary =
    traits.localBase === undefined
      ? scaled
      : {
          pairs: RotaryPairsId[traits.pairs],
          factor: 1,
          frequencies: frequenciesOf(number, undefined, turning, localBase).frequencies,
        };

  const [experts, usedExperts] = [whole('expert_count', 0), whole('expert_used_count', 0)];
  if (experts > 0 && (usedExperts === 0 || usedExperts > experts)) {
    throw new ScalepointError('BAD_FILE', `a token uses ${usedExperts} of ${experts} experts`);
  }
  const window = whole('attention.sliding_window', 0);
  const pattern = metadata(`${architecture}.attention.sliding_window_pattern`);
  const slides = (layer: number) =>
    window > 0 &&
    (traits.slides !== undefined && Array.isArray(pattern) ? Boolean(pattern[layer]) : traits.slides?.(layer) === true);
  // Files without some factor have 0, or none.
  const factor = (key: string, otherwise: number) => number(key, 0) || otherwise;
  const turns = (layer: number) =>
    traits.withoutRotary?.(layer) !== true && (traits.rotatesWindowsOnly !== true || window === 0 || slides(layer));
  const logitScale = factor('logit_scale', 1);
  return {
    architecture,
    layers,
    hidden,
    heads,
    keyHeads,
    headSize,
    context: whole('context_length'),
    epsilon: number(traits.isCentered ? 'attention.layer_norm_epsilon' : 'attention.layer_norm_rms_epsilon'),
    embeddingScale: traits.scalesEmbedding === true ? Math.sqrt(hidden) : factor('embedding_scale', 1),
    residualScale: factor('residual_scale', 1),
    logitScale: traits.dividesLogits === true ? 1 / logitScale : logitScale,
    attentionScale: factor('attention.scale', 1 / Math.sqrt(layers === traits.largest ? hidden / heads : headSize)),
    attentionCap: traits.attentionCap === undefined ? 0 : number('attn_logit_softcapping', traits.attentionCap),
    finalCap: number('final_logit_softcapping', traits.finalCap ?? 0),
    clamp: number('attention.clamp_kqv', 0),
    gate: GateId[traits.gate ?? 'silu'],
    isCentered: traits.isCentered === true,
    hasBareNorms: traits.hasBareNorms === true,
    isParallel: (hasNorm) => {
      if (traits.isParallel === 'stated') return metadata(`${architecture}.use_parallel_residual`) === true;
      return traits.isParallel === true || (traits.isParallel === 'norm' && !hasNorm);
    },
    normsRotated: traits.normsRotated === true,
    normsBetween: traits.normsBetween === true,
    experts,
    usedExperts,
    shares: SharesId[traits.shares ?? 'softmax'],
    sharesScale: factor('expert_weights_scale', 1),
    normalizesShares: traits.normalizesShares ?? true,
    window: (layer) => (slides(layer) ? window : 0),
    rotary: (layer) => (turns(layer) ? (slides(layer) ? local : scaled) : undefined),
  };
}

/** Pre-tokenizers of byte-level BPE, in llama.cpp's spelling, that add a token in front of texts unless the file says otherwise. */
const addBeginning: readonly unknown[] = [
  ...['llama3', 'llama-v3', 'llama-bpe', 'falcon3', 'falcon-h1', 'pixtral', 'midm-2.0', 'lfm2', 'jina-v5-nano'],
  ...['tekken', 'chameleon'],
];

/** Ids of the first token of a text by the kind of the tokenizer, for files that do not state one. */
const usualBeginning: Readonly<Record<string, number>> = { llama: 1, gpt2: 11 };

/**
 * Id of the token in front of texts; undefined if the model adds none. Tokenizers of the kind `llama` (SPM) add one by default, those of the
 * kind `gpt2` (BPE) by their pre-tokenizer. An id that the vocabulary lacks is ignored.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-vocab.cpp at commit 00ad355e009e83abf98f96a6ded7193b95763681 (llama_vocab::impl::load).
 * @param tokens size of the vocabulary
 */
export function beginningOf(metadata: Metadata, tokens: number): number | undefined {
  const model = String(metadata('tokenizer.ggml.model'));
  const byDefault = model === 'llama' || (model === 'gpt2' && addBeginning.includes(metadata('tokenizer.ggml.pre')));
  const stated = metadata('tokenizer.ggml.add_bos_token');
  if (!(typeof stated === 'boolean' ? stated : byDefault)) return undefined;
  const isId = (id: unknown): id is number => typeof id === 'number' && id < tokens;
  return [metadata('tokenizer.ggml.bos_token_id'), usualBeginning[model]].find(isId);
}
