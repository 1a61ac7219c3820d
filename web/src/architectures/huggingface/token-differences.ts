/**
 * Counts sample texts that llama.cpp cuts into other tokens than a tokenizer.json says, where llama.cpp lacks its pattern or its order of merges.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-vocab.cpp at 00ad355e (llm_tokenizer_spm_session, llm_tokenizer_bpe_session);
 * github.com/huggingface/tokenizers, models/bpe and pre_tokenizers at version 0.21.
 */
import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { type Json, member, objectMember } from './json.js';
import {
  addedTokens,
  byteCharacters,
  byteToken,
  flatSteps,
  mergePairs,
  prependScheme,
  type Vocabulary,
  vocabularyEntries,
} from './vocabulary.js';

/** Words of several scripts and kinds, and the places that they have in texts. */
const sampleWords = [
  ...['Hello', "don't", 'iPhone', 'HTTPServer', 'x = y**2;', '3.14159', '1234567', 'naïve', 'cafe\u0301', 'Ünïcode'],
  ...[
    'Ελληνικά',
    'Русский',
    'Çağrı',
    'हिन्दी',
    'বাংলা',
    'ไทย',
    'ភាសាខ្មែរ',
    'עִבְרִית',
    'العَرَبِيّة',
    '漢字かな',
    '한국어',
    '👩‍👩‍👧🏽',
  ],
];
const samplePlaces: readonly ((word: string) => string)[] = [
  ...[(w: string) => w, (w: string) => ` ${w}`, (w: string) => `${w} ${w}`, (w: string) => `A${w}`],
  ...[(w: string) => `${w}'s`, (w: string) => `(${w})`, (w: string) => `${w}42`, (w: string) => `${w}\n`],
  ...[(w: string) => `  ${w}\r\n\n  ${w}`, (w: string) => `the ${w}, and ${w}.`],
];

/** 220 texts. */
export const sampleTexts: readonly string[] = sampleWords.flatMap((word) => samplePlaces.map((place) => place(word)));

/** Changes a text, or cuts it into pieces. */
type Cut = (text: string) => readonly string[];

/** A pattern of tokenizer.json. Undefined if JavaScript has no such pattern. */
function compilePattern(source: string): RegExp | undefined {
  // Letters of both cases, as `(?i:'s|'t)` has them, are written out for engines without modifiers.
  const plain = source.replace(
    /\(\?i:([^()[\]\\]*)\)/g,
    (_, body: string) => `(?:${body.replace(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`)})`,
  );
  try {
    return new RegExp(plain, 'gu');
  } catch {
    return undefined;
  }
}

interface Piece {
  readonly text: string;
  readonly isMatch: boolean;
}

/** Pieces of a text that a pattern matches, and those between them. */
function splitPieces(text: string, pattern: RegExp): Piece[] {
  const pieces: Piece[] = [];
  let at = 0;
  for (const { 0: found, index } of text.matchAll(pattern)) {
    if (found === '') continue;
    if (index > at) pieces.push({ text: text.slice(at, index), isMatch: false });
    pieces.push({ text: found, isMatch: true });
    at = index + found.length;
  }
  if (at < text.length) pieces.push({ text: text.slice(at), isMatch: false });
  return pieces;
}

/** Joins pieces in their order; `joins` says which one becomes a part of the one before it. */
function joinPieces(pieces: readonly Piece[], joins: (piece: Piece, before: Piece) => boolean): string[] {
  const texts: string[] = [];
  pieces.forEach((piece, i) => {
    const before = pieces[i - 1];
    if (before !== undefined && joins(piece, before)) texts.push(`${texts.pop()}${piece.text}`);
    else texts.push(piece.text);
  });
  return texts;
}

/** The behaviors of a pre-tokenizer that splits. */
const behaviors: Readonly<Record<string, (pieces: readonly Piece[]) => string[]>> = {
  Isolated: (pieces) => pieces.map(({ text }) => text),
  Removed: (pieces) => pieces.filter(({ isMatch }) => !isMatch).map(({ text }) => text),
  Contiguous: (pieces) => joinPieces(pieces, (piece, before) => piece.isMatch === before.isMatch),
  MergedWithPrevious: (pieces) => joinPieces(pieces, (piece, before) => piece.isMatch && !before.isMatch),
  MergedWithNext: (pieces) => joinPieces(pieces, (piece, before) => before.isMatch && !piece.isMatch),
};

function splitStep(pattern: RegExp | undefined, behavior: unknown, inverted: boolean): Cut | undefined {
  const join = typeof behavior === 'string' && Object.hasOwn(behaviors, behavior) ? behaviors[behavior] : undefined;
  if (pattern === undefined || join === undefined) return undefined;
  return (text) => join(splitPieces(text, pattern).map((piece) => ({ ...piece, isMatch: piece.isMatch !== inverted })));
}

const escapePattern = (text: string) => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');

/** The pattern of a step, which is text or an expression. */
function statedPattern(entry: Json): RegExp | undefined {
  const pattern = objectMember(entry, 'pattern');
  const [text, expression] = [member(pattern, 'String'), member(pattern, 'Regex')];
  if (typeof text === 'string') return new RegExp(escapePattern(text), 'gu');
  return typeof expression === 'string' ? compilePattern(expression) : undefined;
}

/** The pattern of GPT-2, which ByteLevel has. */
export const wordPattern = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** A step of a normalizer. Undefined if it is not known. */
function normalizerStep(entry: Json): Cut | undefined {
  const type = member(entry, 'type');
  if (type === 'NFC' || type === 'NFD' || type === 'NFKC' || type === 'NFKD') return (text) => [text.normalize(type)];
  const prefix = member(entry, 'prepend');
  if (type === 'Prepend' && typeof prefix === 'string') return (text) => [text === '' ? text : prefix + text];
  const [pattern, content] = [statedPattern(entry), member(entry, 'content')];
  if (type !== 'Replace' || pattern === undefined || typeof content !== 'string') return undefined;
  return (text) => [text.replaceAll(pattern, () => content)];
}

/** A step of a pre-tokenizer. Undefined if it is not known. */
function preTokenizerStep(entry: Json): Cut | undefined {
  switch (member(entry, 'type')) {
    case 'Split':
      return splitStep(statedPattern(entry), member(entry, 'behavior'), member(entry, 'invert') === true);
    case 'Digits':
      return member(entry, 'individual_digits') === true
        ? splitStep(/\p{N}/gu, 'Isolated', false)
        : splitStep(/\p{N}/gu, 'Contiguous', false);
    case 'Punctuation':
      return splitStep(/[\p{P}!-/:-@[-`{-~]/gu, member(entry, 'behavior') ?? 'Isolated', false);
    case 'ByteLevel': {
      if (member(entry, 'add_prefix_space') === true) return undefined;
      return member(entry, 'use_regex') === false
        ? (text) => [text]
        : splitStep(compilePattern(wordPattern), 'Isolated', false);
    }
    case 'Metaspace': {
      const blank = member(entry, 'replacement') ?? '▁';
      const scheme = prependScheme(entry);
      if (typeof blank !== 'string') return undefined;
      const split = splitStep(new RegExp(blank, 'gu'), 'MergedWithNext', false) as Cut;
      return (text) => {
        const marked = text.replaceAll(' ', blank);
        const whole = scheme === 'never' || marked.startsWith(blank) ? marked : blank + marked;
        return member(entry, 'split') === false ? [whole] : split(whole);
      };
    }
    default:
      return undefined;
  }
}

/** The cuts of a tokenizer.json. Undefined if one of its steps is not known. */
function cutOf(tokenizer: Json): Cut | undefined {
  return inTurn([
    ...flatSteps(member(tokenizer, 'normalizer'), 'normalizers').map(normalizerStep),
    ...flatSteps(member(tokenizer, 'pre_tokenizer'), 'pretokenizers').map(preTokenizerStep),
  ]);
}

/** One cut after the other. Undefined if one is not known. */
function inTurn(steps: readonly (Cut | undefined)[]): Cut | undefined {
  if (!steps.every((step) => step !== undefined)) return undefined;
  return (text) => steps.reduce<readonly string[]>((pieces, step) => pieces.flatMap(step), [text]);
}

/** The order of a tokenizer's merges. */
export class MergeRanks {
  readonly #pairs: readonly (readonly [left: string, right: string])[];
  /** The first merge that makes a token, and for each merge the next one that makes the same. */
  readonly #first = new Map<string, number>();
  readonly #next: Int32Array;

  constructor(model: Json) {
    this.#pairs = mergePairs(model);
    this.#next = new Int32Array(this.#pairs.length);
    for (let i = this.#pairs.length - 1; i >= 0; i--) {
      const made = (this.#pairs[i] as readonly [string, string]).join('');
      this.#next[i] = this.#first.get(made) ?? -1;
      this.#first.set(made, i);
    }
  }

  /** The place of the first merge that makes a token. */
  firstOf(token: string): number | undefined {
    return this.#first.get(token);
  }

  /** Rank of a merge among the merges. Infinity stands for a pair without a merge. */
  rankOf(left: string, right: string): number {
    let i = this.#first.get(left + right) ?? -1;
    while (i >= 0 && this.#pairs[i]?.[0] !== left) i = this.#next[i] as number;
    return i < 0 ? Infinity : i;
  }
}

/** Merges symbols, that of the least rank first, and the leftmost of equal ones. */
function mergeSymbols(given: readonly string[], rankOf: (left: string, right: string) => number): readonly string[] {
  const symbols = [...given];
  const rankAt = (i: number) =>
    i >= 0 && i + 1 < symbols.length ? rankOf(symbols[i] as string, symbols[i + 1] as string) : Infinity;
  const ranks = symbols.map((_, i) => rankAt(i));
  for (;;) {
    let at = 0;
    for (let i = 1; i < ranks.length; i++) if ((ranks[i] as number) < (ranks[at] as number)) at = i;
    if (!((ranks[at] ?? Infinity) < Infinity)) return symbols;
    symbols.splice(at, 2, `${symbols[at]}${symbols[at + 1]}`);
    ranks.splice(at, 1);
    ranks[at] = rankAt(at);
    if (at > 0) ranks[at - 1] = rankAt(at - 1);
  }
}

const encoder = new TextEncoder();

/** The note about sample texts that differ, if some do. */
export function differencesNote(differing: readonly string[] = []): Note[] {
  if (differing.length === 0) return [];
  const [count, of] = [differing.length, sampleTexts.length];
  const text =
    `llama.cpp cuts ${count} of ${of} sample texts into other tokens than the folder's tokenizer does, ` +
    `such as ${differing.slice(0, 2).map(show).join(' and ')}`;
  return [noteOf('tokensDiffer', { count, of, texts: differing.slice(0, 8) }, text)];
}

/**
 * Sample texts that become other tokens, for byte-level BPE whose pattern is another one in llama.cpp. Undefined if a pattern is not known.
 * @param patterns by which llama.cpp cuts words
 * @param ignoring true if llama.cpp takes a word that is a token as a whole
 */
export function byteLevelDifferences(
  tokenizer: Json,
  patterns: readonly string[],
  ignoring: boolean,
): string[] | undefined {
  // llama.cpp cuts at the matches of patterns, one after the other.
  const theirs = inTurn(patterns.map((pattern) => splitStep(compilePattern(pattern), 'Isolated', false)));
  const own = cutOf(tokenizer);
  if (own === undefined || theirs === undefined) return undefined;
  const model = objectMember(tokenizer, 'model') as Json;
  const ignores = member(model, 'ignore_merges') === true;
  const ranks = new MergeRanks(model);
  const vocabulary = objectMember(model, 'vocab') as Json;
  const tokensOf = (words: readonly string[], whole: boolean) =>
    words.flatMap((word) => {
      const symbols = [...encoder.encode(word)].map((byte) => byteCharacters[byte] as string);
      const all = symbols.join('');
      if (whole && Object.hasOwn(vocabulary, all)) return [all];
      return mergeSymbols(symbols, (left, right) => ranks.rankOf(left, right));
    });
  const isOther = (text: string) =>
    tokensOf(own(text), ignores).join('\n') !== tokensOf(theirs(text), ignoring).join('\n');
  return sampleTexts.filter(isOther);
}

/** Texts at the places of tokens that are looked for before a text is cut, and those between them. */
function fragmentsOf(text: string, tokens: ReadonlySet<string>): Piece[] {
  const found = [...tokens].filter((token) => token !== '' && text.includes(token)).sort((a, b) => b.length - a.length);
  if (found.length === 0) return [{ text, isMatch: false }];
  const pattern = found.map(escapePattern).join('|');
  return splitPieces(text, new RegExp(pattern, 'gu'));
}

/**
 * Sample texts that become other tokens, for BPE that falls back to bytes. llama.cpp carries it out as SentencePiece's: it cuts no words, and
 * merges whatever two neighbors make a token, that of the highest score first. Undefined if a step of the tokenizer is not known.
 * @param addsBlank true if llama.cpp puts a blank before the text
 */
export function sentencePieceDifferences(
  tokenizer: Json,
  ranks: MergeRanks,
  vocabulary: Vocabulary,
  addsBlank: boolean,
): string[] | undefined {
  const own = cutOf(tokenizer);
  if (own === undefined) return undefined;
  const tokens = new Set(vocabularyEntries(objectMember(tokenizer, 'model') as Json).map(([token]) => token));
  const scores = new Map(vocabulary.tokens.map((token, id) => [token, vocabulary.scores[id] as number]));
  const added = addedTokens(tokenizer).map(({ content }) => content);
  const [theirAdded, ownAdded] = [new Set(added.map((token) => token.replaceAll('▁', ' '))), new Set(added)];
  const symbolsOf = (text: string, has: (token: string) => boolean) =>
    [...text].flatMap((character) => {
      if (has(character)) return [character];
      const bytes = [...encoder.encode(character)].map(byteToken);
      // Hugging Face takes the token for what is unknown, and llama.cpp aborts.
      return bytes.every(has) ? bytes : ['\u0000'];
    });
  const ownTokens = (text: string) =>
    fragmentsOf(text, ownAdded).flatMap((piece) =>
      piece.isMatch
        ? [piece.text]
        : own(piece.text).flatMap((word) =>
            mergeSymbols(
              symbolsOf(word, (token) => tokens.has(token)),
              (left, right) => ranks.rankOf(left, right),
            ),
          ),
    );
  const theirTokens = (text: string) =>
    fragmentsOf(text, theirAdded).flatMap((piece) => {
      if (piece.isMatch) return [piece.text];
      const whole = `${addsBlank ? ' ' : ''}${piece.text}`.replaceAll(' ', '▁');
      return mergeSymbols(
        symbolsOf(whole, (token) => scores.has(token)),
        (left, right) => 0 - (scores.get(left + right) ?? -Infinity),
      );
    });
  const isOther = (text: string) => {
    // Added tokens have blanks in llama.cpp's vocabulary.
    const [mine, other] = [ownTokens(text), theirTokens(text)].map((all) => all.join('\n').replaceAll(' ', '▁'));
    // A note of its own says that llama.cpp aborts at characters without a token.
    return mine !== other && other?.includes('\u0000') === false;
  };
  return sampleTexts.filter(isOther);
}
