// Notes about results, as data and in words.
import { type OptionMention, type OptionWords, sayMention } from './option-problem.js';

/** A sentence in parts: texts, and the options that it mentions. */
export type Sentence = readonly (string | OptionMention)[];

/** The text of a sentence. @param words how options are written; by default as code */
function sentenceText(sentence: Sentence, words?: OptionWords): string {
  return sentence.map((part) => (typeof part === 'string' ? part : sayMention(part, words))).join('');
}

/** Something that users should know about a result. */
export interface Note {
  /** What it is about, such as `ruleWithoutEffect`. Programs decide by this, never by the text. */
  readonly kind: string;
  /** Names of the tensors that it is about. */
  readonly tensors?: readonly string[];
  /** A sentence without a full stop. Options are written as code. */
  readonly text: string;
  /** The same in parts, if it mentions options, for programs that write these in another way. */
  readonly parts?: Sentence;
  /** More about it, by kind. */
  readonly [datum: string]: unknown;
}

/** Makes a note. @param data more about it, such as `tensors` */
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
