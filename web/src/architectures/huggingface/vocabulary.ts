/** A list of tokens that is filled by id, with the checks that all kinds of tokenizers share. */

import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { quoted } from '../../formats/files/bytes.js';
import { badConfig, badFolderFile, unsupported } from './errors.js';
import { arrayMember, isObject, type Json, member } from './json.js';
import type { TokenizerKeys } from './keys.js';
import type { SentencePieceModel } from './protobuf.js';

/** Kinds of tokens, with the numbers of `tokenizer.ggml.token_type`. */
export const kinds = { normal: 1, unknown: 2, control: 3, user: 4, unused: 5, byte: 6 } as const;

/** Scores of tokens that were added, and of ids without a token. */
export const addedScore = -1000;
export const fillerScore = -10000;

/** Largest vocabulary accepted. Real ones have up to 2^18 tokens. */
const mostTokens = 2 ** 22;

/** True for a whole number from 0 on, which may be more than any real id. */
export const isId = (id: unknown): id is number => Number.isInteger(id) && Number(id) >= 0;

/** A token with its kind, and its score, which is 0 unless given. */
interface ScoredToken {
  readonly text: string;
  readonly type: number;
  readonly score?: number;
}

/** Tokens by id, one for each row of the embedding. */
export class Vocabulary {
  readonly tokens: string[];
  readonly types: number[];
  readonly scores: number[];
  readonly notes: Note[] = [];

  /** Every token is a filler at first, with this score. */
  constructor(size: number, score = 0) {
    if (size > mostTokens) badConfig(`vocab_size is ${size}; more than ${mostTokens} tokens are not supported`);
    this.tokens = Array.from({ length: size }, (_, id) => `[PAD${id}]`);
    this.types = new Array<number>(size).fill(kinds.unused);
    this.scores = new Array<number>(size).fill(score);
  }

  get size(): number {
    return this.tokens.length;
  }

  set(id: number, { text, type, score = 0 }: ScoredToken): void {
    this.tokens[id] = text;
    this.types[id] = type;
    this.scores[id] = score;
  }

  /** An id from a file. @throws ScalepointError `BAD_FILE` if it has no row in the embedding */
  private idOf(file: string, id: unknown, token: string): number {
    if (!isId(id)) return badFolderFile(file, `the id of the token ${quoted(token)} is not a whole number`);
    if (id < this.size) return id;
    return badFolderFile(file, `the token ${quoted(token)} has the id ${id}, but the embedding has ${this.size} rows`);
  }

  /** Sets a token whose id comes from a file. @throws ScalepointError `BAD_FILE` if the id has no row in the embedding */
  put(file: string, id: unknown, token: ScoredToken): void {
    this.set(this.idOf(file, id, token.text), token);
  }

  /** Like `put`, and fails if the id is taken. */
  putOnce(file: string, id: unknown, token: ScoredToken): void {
    const own = this.idOf(file, id, token.text);
    if (this.types[own] !== kinds.unused) {
      const both = `${quoted(this.tokens[own] ?? '')} and ${quoted(token.text)}`;
      badFolderFile(file, `the tokens ${both} have the same id ${own}`);
    }
    this.set(own, token);
  }

  /** Sets the pieces of a SentencePiece model. Tokens of the user become normal ones. */
  putPieces(file: string, { pieces }: SentencePieceModel): void {
    pieces.forEach((piece, id) => {
      this.putOnce(file, id, piece.type === kinds.user ? { ...piece, type: kinds.normal } : piece);
    });
  }

  /**
   * Fails for tokens that are equal, at which llama.cpp aborts. It ends each token at its first NUL, so that tokens with one may equal others; if
   * they do not, there is a note about them.
   */
  check(file: string): void {
    // One search in all tokens takes less time than one in each.
    const all = this.tokens.join('\n');
    const [isText, hasNul] = [!/\p{Surrogate}/u.test(all), all.includes('\0')];
    const ids = new Map<string, number>();
    const ended: number[] = [];
    this.tokens.forEach((token, id) => {
      if (!isText && /\p{Surrogate}/u.test(token)) badFolderFile(file, `the token ${id} is not valid text`);
      const end = hasNul ? token.indexOf('\0') : -1;
      if (end >= 0) ended.push(id);
      // A token that nothing is left of gets a name of its own there.
      if (end === 0) return;
      const kept = end < 0 ? token : token.slice(0, end);
      const before = ids.get(kept);
      if (before !== undefined) this.failTwice(file, before, id);
      ids.set(kept, id);
    });
    if (ended.length === 0 || this.notes.some(({ kind }) => kind === 'tokensEnded')) return;
    const [first] = ended as [number];
    const which = ended.length === 1 ? 'the token' : `${ended.length} tokens, such as`;
    const text =
      `${which} ${quoted(this.tokens[first] as string)} with the id ${first} ${ended.length === 1 ? 'has' : 'have'} a NUL, at which llama.cpp ends ` +
      'a token, so that text is cut otherwise there';
    this.notes.push(noteOf('tokensEnded', { file, tokens: ended }, text));
  }

  private failTwice(file: string, before: number, id: number): never {
    const [first, second] = [this.tokens[before] as string, this.tokens[id] as string];
    if (first === second)
      return badFolderFile(file, `the token ${quoted(second)} occurs twice, with the ids ${before} and ${id}`);
    return badFolderFile(
      file,
      `the tokens ${quoted(first)} and ${quoted(second)}, with the ids ${before} and ${id}, are equal up to a NUL, at which llama.cpp ends a token; ` +
        'it aborts at equal tokens',
    );
  }
}

/** Keys of all vocabularies: the kind of the tokenizer, its pre-tokenizer, and the tokens with their kinds. */
export function vocabularyKeys(model: string, pre: string, { tokens, types }: Vocabulary) {
  return { model, pre, tokens, token_type: types } satisfies TokenizerKeys;
}

/** A token that was added to the model's vocabulary. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
}

/** `added_tokens` of a tokenizer.json. */
export function addedTokens(tokenizer: Json | undefined): readonly AddedToken[] {
  const list = member(tokenizer, 'added_tokens') ?? [];
  if (!Array.isArray(list)) return badFolderFile('tokenizer.json', 'added_tokens has to be an array');
  return (list as unknown[]).map((entry, i) => addedToken('tokenizer.json', `added_tokens[${i}]`, entry, undefined));
}

/** Reads an added token. Its id is a member, or a key outside of it. */
export function addedToken(file: string, where: string, entry: unknown, key: number | undefined): AddedToken {
  if (!isObject(entry)) return badFolderFile(file, `${where} is not an object`);
  const [content, id] = [member(entry, 'content'), key ?? member(entry, 'id')];
  if (typeof content !== 'string') return badFolderFile(file, `${where}.content is not a string`);
  if (!isId(id)) return badFolderFile(file, `${where} has no id`);
  return { id, content, special: member(entry, 'special') === true };
}

/** True if a token looks like a control token, though its folder does not mark it as one. */
export function looksSpecial(token: string): boolean {
  return (
    ['<pad>', '<mask>', '<2mass>', '[@BOS@]'].includes(token) ||
    /^<\|.*\|>$/s.test(token) ||
    /^<｜.*｜>$/s.test(token) ||
    /^<unused.*>$/s.test(token)
  );
}

/** `model.vocab` of a tokenizer.json that gives each token an id. */
export function vocabularyEntries(model: Json): readonly (readonly [token: string, id: unknown])[] {
  const vocabulary = member(model, 'vocab');
  if (!isObject(vocabulary)) return badFolderFile('tokenizer.json', 'model.vocab has to be an object');
  // Takes a quarter of the time of Object.entries, for 128,000 tokens.
  return Object.keys(vocabulary).map((token) => [token, vocabulary[token]]);
}

/** Fails for BPE that marks where words continue or end, as that of CLIP does. llama.cpp has none of the kind. */
export function checkMarks(model: Json): void {
  for (const name of ['continuing_subword_prefix', 'end_of_word_suffix']) {
    const mark = member(model, name) ?? '';
    if (mark !== '') unsupported('tokenizer.json', `model.${name} is ${show(mark)}, which llama.cpp does not have`);
  }
}

/** `model.merges` as pairs: strings with one blank, or arrays of two strings. */
export function mergePairs(model: Json): readonly (readonly [string, string])[] {
  const merges = member(model, 'merges') ?? [];
  if (!Array.isArray(merges)) return badFolderFile('tokenizer.json', 'model.merges has to be an array');
  return (merges as unknown[]).map((merge, i) => {
    const parts: unknown = typeof merge === 'string' ? merge.split(' ') : merge;
    const [left, right] = Array.isArray(parts) && parts.length === 2 ? (parts as unknown[]) : [];
    if (typeof left !== 'string' || typeof right !== 'string')
      return badFolderFile('tokenizer.json', `model.merges[${i}] is not a pair of tokens`);
    return [left, right] as const;
  });
}

/** `model.merges` as texts, with a blank between two tokens. @param blank stands for blanks inside of tokens */
export function mergeTexts(model: Json, blank: string): string[] {
  const merges = member(model, 'merges');
  const isPair = (merge: unknown) =>
    typeof merge === 'string' && merge.includes(' ') && merge.indexOf(' ') === merge.lastIndexOf(' ');
  // Most files have texts, which need not be taken apart.
  if (Array.isArray(merges) && merges.every(isPair)) return merges as string[];
  return mergePairs(model).map(([a, b]) => `${a.replaceAll(' ', blank)} ${b.replaceAll(' ', blank)}`);
}

/**
 * Characters that stand for the 256 bytes in byte-level vocabularies. The printable ones of Latin-1 stand for themselves; others map, in
 * order, to characters behind Latin-1.
 */
export const byteCharacters: readonly string[] = (() => {
  let next = 0x100;
  const isPrintable = (byte: number) => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
})();

/** The token of a byte in SentencePiece's vocabularies. */
export const byteToken = (byte: number) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;

/** When a step of the type Metaspace puts a blank before the text. */
export function prependScheme(step: Json): unknown {
  return member(step, 'prepend_scheme') ?? (member(step, 'add_prefix_space') === false ? 'never' : 'always');
}

/** Sequences in each other that are read. Real files have two. */
const mostDepth = 8;

/** The list of a sequence's members, and the word for one of them. */
const stepWords = { normalizers: 'normalizer', pretokenizers: 'pre-tokenizer' } as const;

/** Steps of a normalizer or pre-tokenizer, nested sequences laid flat. @throws ScalepointError `UNKNOWN_FORMAT` */
export function flatSteps(entry: unknown, list: keyof typeof stepWords, depth = 0): readonly Json[] {
  if (entry === undefined) return [];
  if (!isObject(entry)) return unsupported('tokenizer.json', `the ${stepWords[list]} ${show(entry)} is not known`);
  if (depth > mostDepth)
    return unsupported('tokenizer.json', `${list} are nested too deeply: more than ${mostDepth} sequences`);
  if (member(entry, 'type') !== 'Sequence') return [entry];
  return arrayMember(entry, list).flatMap((one) => flatSteps(one, list, depth + 1));
}
