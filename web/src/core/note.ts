// Notes about results, as data and in words.
import { type OptionMention, type OptionWords, sayMention } from './option-problem.js';

/** A sentence in parts: texts, and the options that it mentions. */
export type Sentence = readonly (string | OptionMention)[];

/** The text of a sentence. @param words how options are written; by default as code */
function sentenceText(sentence: Sentence, words?: OptionWords): string {
  return sentence.map((part) => (typeof part === 'string' ? part : sayMention(part, words))).join('');
}

/** A fact about a result that users should know. */
export interface Note {
  /** The kind of the note, such as `ruleWithoutEffect`. Programs decide by the kind, never by the text. */
  readonly kind: string;
  /** Names of the tensors in question. */
  readonly tensors?: readonly string[] | undefined;
  /** A sentence without a full stop. Options are written as code. */
  readonly text: string;
  /** The sentence in parts, if it mentions options, for programs that write these in another way. */
  readonly parts?: Sentence | undefined;
  /** Further data, depending on the kind. */
  readonly [datum: string]: unknown;
}

/** Makes a note. @param data its further data, such as `tensors` */
export function noteOf(
  kind: string,
  data: Readonly<Record<string, unknown>>,
  ...parts: (string | OptionMention)[]
): Note {
  const note = { kind, ...data, text: sentenceText(parts) };
  return parts.every((part) => typeof part === 'string') ? note : { ...note, parts };
}

/** The text of a note in the words of an edge. */
export function noteText({ text, parts }: Note, words: OptionWords): string {
  return parts === undefined ? text : sentenceText(parts, words);
}
