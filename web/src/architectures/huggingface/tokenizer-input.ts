/** Inputs and result of reading a tokenizer. */
import type { Note } from '../../core/note.js';
import type { Config } from './config.js';
import type { Json } from './json.js';
import type { TokenizerKeys } from './keys.js';

/**
 * Tokenizers of encoders: WordPiece, the byte-level ones of RoBERTa and ModernBERT, and Unigram of XLM-R and T5. Decoders have the kind that
 * their tokenizer.json says.
 */
export type EncoderTokenizer = 'wordpiece' | 'roberta' | 'modern-bert' | 'xlm-roberta' | 't5';

/** Facts about the tokenizers of an architecture. */
export interface TokenizerFacts {
  /** True if llama.cpp converts it as Llama: it writes add_prefix_space, and knows tokens of CodeLlama and Granite by the size of the vocabulary. */
  readonly usesLlamaConverter?: true | undefined;
  /** Names of pre-tokenizers by the one with the same patterns. The converter tells them apart by their vocabularies. */
  readonly preTokenizers?: Readonly<Record<string, string>>;
  /** Tokens that tokenizers add unless the files say otherwise, by their roles. */
  readonly adds?: Readonly<Record<string, boolean>>;
  /** Tokens that a role has unless the files name others. */
  readonly roleTokens?: readonly (readonly [role: string, text: string])[];
  /** The token that ends a text if the tokenizer has it, whatever the files say. */
  readonly endToken?: string;
  /** Ids that a role has, whatever the files say. @param ends eos_token_id of generation_config.json, if it is a list */
  readonly roleIds?: (config: Config, ends: readonly unknown[]) => Readonly<Record<string, unknown>>;
}

/** The model that a tokenizer is read for. */
export interface TokenizerInput {
  readonly config: Config;
  readonly architecture: string;
  readonly facts: TokenizerFacts;
  /** Undefined for decoders. */
  readonly encoder: EncoderTokenizer | undefined;
  /** Rows of the embedding. */
  readonly size: number;
  readonly missingBytes: 'refuse' | 'keep';
  /** Name of the pre-tokenizer in llama.cpp, for one that is not recognized. */
  readonly preTokenizer?: string | undefined;
  /** Chat templates besides those of the folder, by name. */
  readonly templates?: Readonly<Record<string, string>> | undefined;
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
}

/** Keys of a tokenizer without chat templates, and notes. */
export interface Tokenizer {
  readonly keys: TokenizerKeys;
  readonly notes: readonly Note[];
}
