// Notes about results, as data and in words.
import { type Mention, type Sentence, textOf } from './mention.js';

/** Something that users should know about a result. */
export interface Note {
  /** What it is about, such as `ruleWithoutEffect`. Programs decide by this, never by the text. */
  readonly kind: string;
  /** Names of the tensors that it is about. */
  readonly tensors?: readonly string[];
  /** A sentence without a full stop. Options are spelled as code. */
  readonly text: string;
  /** The same in parts, if it mentions options, for programs that spell these in another way. */
  readonly parts?: Sentence;
  /** More about it, by kind. */
  readonly [datum: string]: unknown;
}

/** Makes a note. @param data more about it, such as `tensors` */
export function noteOf(kind: string, data: Readonly<Record<string, unknown>>, ...parts: (string | Mention)[]): Note {
  const note = { kind, ...data, text: textOf(parts) };
  return parts.every((part) => typeof part === 'string') ? note : { ...note, parts };
}

/** The text of a note. @param spell how options are spelled */
export function noteText({ text, parts }: Note, spell: (mention: Mention) => string): string {
  return parts === undefined ? text : textOf(parts, spell);
}
