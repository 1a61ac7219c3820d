// Texts that models write on from the same beginning: their words, what differs, and what is to be said about it.
import { formatMany } from './format.js';

/** A text ends that repeats up to this many tokens this many times. */
const longestPeriod = 6;
const repetitions = 6;

/** True if the last tokens repeat a few again and again. */
export function isStuck(tokens: readonly number[]): boolean {
  for (let period = 1; period <= longestPeriod; period++) {
    const repeated = tokens.slice(-period * repetitions);
    if (repeated.length === period * repetitions && repeated.every((token, i) => token === repeated[i % period]))
      return true;
  }
  return false;
}

/** The sentence about a whole text. @param noun what it is */
export function verdictOf(
  noun: string,
  words: readonly string[],
  original: readonly string[],
  marks: readonly boolean[],
  stuck: boolean,
): string {
  if (stuck) return 'It fell apart, and repeats itself without end.';
  const count = marks.filter(Boolean).length;
  if (count === 0 && words.length === original.length) return `Word for word the same ${noun}.`;
  if (count === 0) return `The same words, but ${formatMany(original.length - words.length, 'word')} are missing.`;
  return `${count} of ${formatMany(words.length, 'word')} ${count === 1 ? 'differs' : 'differ'}.`;
}

/** Words of a text with the blanks before them. */
export const wordsOf = (text: string): string[] => text.match(/\s*\S+/g) ?? [];

/**
 * For each word of a text, true if it is not part of the longest common sequence of words with another text.
 */
export function differing(text: readonly string[], other: readonly string[]): boolean[] {
  const width = other.length + 1;
  const [a, b] = [text.map((word) => word.trim()), other.map((word) => word.trim())];
  // The length of the longest common sequence of the rest of both, from each place on.
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const skipped = Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!);
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1]! + 1 : skipped;
    }
  }
  const differs = a.map(() => true);
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) {
      differs[i++] = false;
      j++;
    } else if (lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!) i++;
    else j++;
  }
  return differs;
}
