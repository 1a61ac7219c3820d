// The name that a mistyped one most likely stands for.
import { conditionsIn, type Expected, type Hint } from './option-problem.js';

/** Common spellings for kinds of numbers in type names: `fp16` for float16, `q8` for int8 or Q8_0. */
const kinds: readonly (readonly [kind: string, words: RegExp])[] = [
  ['integer', /^(i|int|integer|q|w|u|uint|bits?)$/],
  ['float', /^(f|fp|float|half)$/],
  ['bfloat', /^(bf|bfp|bfloat|brain)$/],
];

/** Words of other libraries for a name. */
const synonyms: readonly (readonly [words: RegExp, name: string])[] = [
  [/^(l2|squaredl2|euclid)$/, 'euclidean'],
  [/^(ip|inner|innerproduct)$/, 'dot'],
  [/^(absmax|minmax|max)$/, 'min-max'],
];

/** Kind and bits at the start of a name, such as `integer 8` for Q8_0; undefined for other names. */
function numberKind(name: string): string | undefined {
  const [, before, bits, after] = /^([a-z]*)[-_]?(\d+)[-_]?([a-z]*)/.exec(name.toLowerCase()) ?? [];
  const [kind] = kinds.find(([, words]) => words.test((before || after) ?? '')) ?? [];
  return kind && `${kind} ${bits}`;
}

/** Number of characters to add, remove, replace or swap with their neighbor to turn one word into the other. */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      const [left = Infinity, above = Infinity, corner = Infinity] = [next[j - 1], row[j], row[j - 1]];
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = (isSwapped ? before[j - 2] : undefined) ?? Infinity;
      next.push(Math.min(left + 1, above + 1, corner + cost, swapped + 1));
    }
    [before, row] = [row, next];
  }
  return row[b.length] ?? Infinity;
}

/** Longest word that is compared with names. */
const mostLetters = 40;

const plainName = (text: string) => text.toLowerCase().replace(/[-_.\s]/g, '');
const digits = (text: string) => text.replace(/\D/g, '');

/** True if two names begin with the same number, or the word has no number. */
const hasSameNumber = (word: string, name: string) =>
  !/\d/.test(word) || /\d+/.exec(word)?.[0] === /\d+/.exec(name)?.[0];

/** The name with the same letters and digits, apart from case, hyphens, points and spaces. */
export function sameName(word: unknown, names: readonly string[]): string | undefined {
  return typeof word === 'string' ? names.find((name) => plainName(name) === plainName(word)) : undefined;
}

/**
 * The name most likely meant by a word: the same letters, a longer or a shorter form, the same kind of number, or one or two letters apart.
 * Numbers of bits must match: `int3` has no near name.
 */
export function nearest(word: unknown, names: readonly string[]): string | undefined {
  if (typeof word !== 'string' || word === '' || word.length > mostLetters) return undefined;
  const [text, kind] = [plainName(word), numberKind(word)];
  const alike = kind === undefined ? [] : names.filter((name) => numberKind(name) === kind);
  const found =
    sameName(word, names) ??
    names.find((name) => synonyms.some(([words, meant]) => meant === name && words.test(text))) ??
    sameName(`${word}m`, names) ??
    names.find((name) => plainName(name).length > 2 && text.startsWith(plainName(name)) && hasSameNumber(word, name)) ??
    // Among several, prefer M, the usual one: Q4_K_M for q4.
    alike.find((name) => name.endsWith('_M')) ??
    alike[0] ??
    names.find((name) => text.length > 2 && plainName(name).startsWith(text) && hasSameNumber(word, name));
  if (found !== undefined) return found;
  const most = Math.min(2, Math.floor(text.length / 3));
  const [best] = names
    .filter((name) => digits(name) === digits(word))
    .map((name) => ({ name, far: distance(text, plainName(name)) }))
    .sort((a, b) => a.far - b.far);
  return best !== undefined && best.far <= most ? best.name : undefined;
}

/** The hint for an unknown name: the nearest name of each list. */
export function didYouMean(
  word: unknown,
  ...lists: readonly (readonly string[])[]
): Extract<Hint, { kind: 'didYouMean' }> {
  const found = new Set(lists.flatMap((names) => nearest(word, names) ?? []));
  return { kind: 'didYouMean', names: [...found].filter((name) => name !== word) };
}

/** The nearest accepted values, for a text that is not among them; undefined if all of them are far. */
export function nearestValue(expected: Expected, got: unknown): Hint | undefined {
  const lists = conditionsIn(expected).map((one) => (one.kind === 'oneOf' ? one.values : []));
  const hint = didYouMean(got, ...lists.map((values) => values.filter((value) => typeof value === 'string')));
  return hint.names.length === 0 ? undefined : hint;
}
