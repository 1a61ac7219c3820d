/** Inputs and result of reading a tokenizer. */
import type { Note } from '../../core/note.js';
import type { GgufKey } from '../../formats/gguf/pairs.js';
import type { Config } from './config.js';
import type { Json } from './json.js';

/**
 * Tokenizers of encoders: WordPiece, the byte-level ones of RoBERTa and ModernBERT, and Unigram of XLM-R and T5. Decoders have the kind that
 * their tokenizer.json says.
 */
export type EncoderTokenizer = 'wordpiece' | 'roberta' | 'modern-bert' | 'xlm-roberta' | 't5';

/** The model that a tokenizer is read for. */
export interface TokenizerInput {
  readonly config: Config;
  readonly architecture: string;
  /** Undefined for decoders. */
  readonly encoder: EncoderTokenizer | undefined;
  /** Rows of the embedding. */
  readonly size: number;
  readonly missingBytes: 'refuse' | 'keep';
  /** Name of the pre-tokenizer in llama.cpp, for one that is not recognized. */
  readonly preTokenizer?: string | undefined;
}

/** The files of a tokenizer, parsed. */
export interface TokenizerFiles extends TokenizerInput {
  /** tokenizer.json */
  readonly tokenizer: Json | undefined;
  /** tokenizer_config.json */
  readonly settings: Json | undefined;
  /** added_tokens.json */
  readonly added: Json | undefined;
  /** generation_config.json */
  readonly generation: Json | undefined;
  /** Chat templates: one, or several by name. */
  readonly templates: readonly GgufKey[];
}

/** Keys of a tokenizer in writing order, and notes. */
export interface Tokenizer {
  readonly keys: readonly GgufKey[];
  readonly notes: readonly Note[];
}

/** Architectures whose converter writes add_prefix_space of tokenizer_config.json in front of the vocabulary. */
export const statesPrefix: readonly string[] = ['llama', 'mistral3', 'granite', 'granitemoe'];
