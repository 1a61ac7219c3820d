/**
 * Pre-tokenizers: the patterns by which a byte-level tokenizer cuts text into words before it merges. llama.cpp has some of them, by name.
 * The table recognizes each by the structure of `pre_tokenizer` and its patterns; others are refused.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a and src/llama-vocab.cpp at eb6a99c.
 */
import { type Note, noteOf } from '../../core/note.js';
import { mention } from '../../core/option-problem.js';
import { show } from '../../core/show.js';
import { unsupported } from './errors.js';
import { type Json, member, objectMember } from './json.js';
import { kimiPattern } from './ranks.js';
import { wordPattern } from './token-differences.js';
import type { TokenizerFacts } from './tokenizer-input.js';
import { addedTokens, flatSteps } from './vocabulary.js';

const file = 'tokenizer.json';

const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
/** Common ending of the patterns: signs, line ends, blanks. */
const rest = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
const upper = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const lower = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
const lead = String.raw`[^\r\n\p{L}\p{N}]?`;

/** Pattern of words with a sign before them, numbers of up to `digits` digits, and signs. */
const words = (digits: string) =>
  String.raw`${contractions}|${lead}\p{L}+|\p{N}${digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|${rest}`;

/** Words cut where an upper letter follows a lower one. */
const cased = (ending: string, digits: string, [high, low] = [upper, lower]) =>
  String.raw`${lead}${high}*${low}+${ending}|${lead}${high}+${low}*${ending}|\p{N}${digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${rest}`;

/** Classes of letters in llama.cpp's place of `upper` and `lower`: it knows the case of ASCII alone, and no marks. */
const plainCases: [string, string] = [String.raw`(?:(?=\p{L})[^a-z])`, String.raw`(?:(?=\p{L})[^A-Z])`];

const deepseek = String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_${'`'}{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|${rest}`;

/** Letters of the scripts that have cases, with a blank before them, as DeepSeek LLM lists them. */
const casedWords = String.raw`\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+`;

/** Words that end at signs of several scripts, as those of BLOOM. */
const bloomWords = String.raw` ?[^(\s|[.,!?…。，、।۔،])]+`;

const deepseekLlm = [
  String.raw`[\r\n]`,
  casedWords,
  String.raw`\s?[!-/:-~！-／：-～‘-‟　-。]+`,
  String.raw`\s+$`,
  '[一-龥ࠀ-一가-퟿]+',
];

const byteLevel = 'bytes';
const wordBytes = 'words and bytes';
const digit = 'digit';
const digits = 'digits';
const signs = 'signs';

/** Steps of each known pre-tokenizer, and those of llama.cpp where they are others. A step is a pattern, or one of the names above. */
const known: readonly {
  readonly name: string;
  readonly steps: readonly string[];
  readonly theirs?: readonly string[];
}[] = [
  { name: 'llama-bpe', steps: [words('{1,3}'), byteLevel] },
  { name: 'qwen2', steps: [words(''), byteLevel] },
  {
    name: 'qwen35',
    steps: [String.raw`${contractions}|${lead}[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|${rest}`, byteLevel],
  },
  { name: 'gpt-2', steps: [wordBytes] },
  { name: 'smollm', steps: [digit, wordBytes] },
  { name: 'falcon', steps: [signs, wordBytes, digits, '[0-9][0-9][0-9]'] },
  { name: 'tekken', steps: [cased('', ''), byteLevel], theirs: [cased('', '', plainCases)] },
  {
    name: 'gpt-4o',
    steps: [cased(`${contractions}?`, '{1,3}'), byteLevel],
    theirs: [cased(`${contractions}?`, '{1,3}', plainCases)],
  },
  { name: 'deepseek-v3', steps: [String.raw`\p{N}{1,3}`, '[一-龥぀-ゟ゠-ヿ]+', deepseek, byteLevel] },
  {
    name: 'seed-coder',
    steps: [String.raw`${contractions}|${lead}\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|${rest}`, byteLevel],
  },
  {
    name: 'deepseek-coder',
    steps: [String.raw`[\r\n]`, String.raw`\s?\p{L}+`, String.raw`\s?\p{P}+`, '[一-龥ࠀ-一가-퟿]+', digit, byteLevel],
  },
  {
    name: 'deepseek-llm',
    steps: [...deepseekLlm, digit, byteLevel],
    theirs: [...deepseekLlm, String.raw`\p{N}+`],
  },
  {
    name: 'youtu',
    steps: [
      '[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+',
      cased(`${contractions}?`, ''),
      byteLevel,
    ],
  },
  {
    name: 'exaone-moe',
    steps: [
      String.raw`${contractions}|${lead}(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`,
      byteLevel,
    ],
  },
  { name: 'kimi-k2', steps: [kimiPattern, byteLevel] },
  // Quantifiers that give nothing back, in the place of which llama.cpp has others: no character fits both of their neighbors.
  {
    name: 'bailingmoe',
    steps: [
      String.raw`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
      byteLevel,
    ],
  },
  { name: 'bloom', steps: [bloomWords, byteLevel] },
  { name: 'viking', steps: [bloomWords, digit, byteLevel] },
];

/** A pre-tokenizer of llama.cpp. */
interface PreTokenizer {
  readonly pre: string;
  readonly note?: Note;
  /** Patterns by which llama.cpp cuts words, where these are not those of tokenizer.json. */
  readonly theirs?: readonly string[] | undefined;
}

/** Other names of pre-tokenizers of the table: those of tokenizers that differ in other facts than their patterns. */
const otherNames: Readonly<Record<string, string>> = {
  'smaug-bpe': 'llama-bpe',
  starcoder: 'smollm',
  exaone: 'smollm',
  'grok-2': 'qwen2',
  'poro-chat': 'bloom',
};

/** llama.cpp's patterns of a pre-tokenizer. Undefined for names that are not in the table. */
function theirPatterns(name: string): readonly string[] | undefined {
  const found = known.find((one) => one.name === (otherNames[name] ?? name));
  if (found?.theirs !== undefined) return found.theirs;
  const named: Readonly<Record<string, readonly string[]>> = {
    [byteLevel]: [],
    [wordBytes]: [wordPattern],
    [digit]: [String.raw`\p{N}`],
    [digits]: [String.raw`\p{N}+`],
    [signs]: [String.raw`[\p{P}$+<=>^~|${'`'}]+`],
  };
  return found?.steps.flatMap((step) => named[step] ?? [step]);
}

/**
 * Steps of a pre-tokenizer as tokenizer.json has them; undefined for names that are not known.
 * @param pre llama.cpp's name
 * @param renamed names that families give to pre-tokenizers, each behind the one in the table
 */
export function preTokenizerSteps(
  pre: unknown,
  renamed: readonly (readonly [own: string, name: string])[],
): readonly object[] | undefined {
  const own = renamed.find(([, name]) => name === pre)?.[0] ?? pre;
  const name = otherNames[String(own)] ?? own;
  const named: Readonly<Record<string, object>> = {
    [byteLevel]: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
    [wordBytes]: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    [digit]: { type: 'Digits', individual_digits: true },
    [digits]: { type: 'Digits', individual_digits: false },
    [signs]: { type: 'Punctuation', behavior: 'Contiguous' },
  };
  return known
    .find((one) => one.name === name)
    ?.steps.map(
      (step) => named[step] ?? { type: 'Split', pattern: { Regex: step }, behavior: 'Isolated', invert: false },
    );
}

/** A step in the spelling of the table, or its name in parentheses. `alone`: no other step splits by a pattern. */
function stepOf(entry: Json, alone: boolean): string {
  const type = member(entry, 'type');
  if (type === 'ByteLevel' && member(entry, 'add_prefix_space') !== true)
    return member(entry, 'use_regex') === false ? byteLevel : wordBytes;
  if (type === 'Digits') return member(entry, 'individual_digits') === true ? digit : digits;
  if (type === 'Punctuation' && member(entry, 'behavior') === 'Contiguous') return signs;
  if (type === 'Split') {
    const pattern = member(objectMember(entry, 'pattern'), 'Regex');
    const [behavior, inverted] = [member(entry, 'behavior'), member(entry, 'invert') === true];
    // 'Removed' has the same effect, because the patterns of all known steps that stand alone cover every text.
    const isolated = inverted ? alone && behavior === 'Removed' : behavior === 'Isolated';
    // Some files have real line ends in a pattern, others their escapes.
    if (typeof pattern === 'string' && isolated) return pattern.replaceAll('\r', '\\r').replaceAll('\n', '\\n');
  }
  return `(${typeof type === 'string' ? type : show(type)})`;
}

/** The note for a tokenizer whose ignore_merges differs from llama.cpp's. */
function mergesNote(pre: string, stated: boolean): Note {
  return noteOf(
    'ignoreMerges',
    { pre, stated },
    `model.ignore_merges of ${file} is ${stated}; llama.cpp takes ${!stated} for "${pre}", and rare words may be cut otherwise`,
  );
}

/**
 * llama.cpp's name of a tokenizer's pre-tokenizer.
 * @param given the name to write if it is not recognized
 */
export function preTokenizerOf(
  tokenizer: Json,
  settings: Json | undefined,
  { preTokenizers }: TokenizerFacts,
  given: string | undefined,
): PreTokenizer {
  const found = knownPreTokenizer(tokenizer, settings, given);
  if (found.note?.kind === 'preTokenizer') return found;
  const pre = preTokenizers?.[found.pre] ?? found.pre;
  if (given !== undefined && given !== pre)
    return unsupported(file, `the pre-tokenizer is that of ${show(pre)}, so that it cannot be called ${show(given)}`);
  // Under these names llama.cpp looks up no whole words.
  const merges = found.pre === 'llama-bpe' && ['glm4', 'chatglm-bpe'].includes(pre);
  return { ...found, pre, ...(merges ? { note: mergesNote(pre, true) } : {}) };
}

/** Tokens that Mistral's tokenizers since Nemo (tekken) have, and no others. */
const tekkenTokens = ['[INST]', '[/INST]', '[AVAILABLE_TOOLS]', '[TOOL_CALLS]'];

/** The name in `known`. */
function knownPreTokenizer(tokenizer: Json, settings: Json | undefined, given: string | undefined): PreTokenizer {
  const entries = flatSteps(member(tokenizer, 'pre_tokenizer') ?? {}, 'pretokenizers');
  const alone = entries.filter((entry) => member(entry, 'type') === 'Split').length === 1;
  const steps = entries.map((entry) => stepOf(entry, alone));
  const found = known.find(
    (one) => one.steps.length === steps.length && one.steps.every((step, i) => step === steps[i]),
  );
  if (found === undefined) {
    const text = `the pre-tokenizer is not known to llama.cpp: ${steps.map(show).join(', ').slice(0, 1000)}`;
    if (given === undefined)
      return unsupported(file, text, {
        kind: 'try',
        option: mention('preTokenizer'),
        effect: 'names the one that llama.cpp is to use',
      });
    const words = `${file}: the pre-tokenizer is not recognized; llama.cpp will cut text as its "${given}" does, as was asked for`;
    return { pre: given, note: noteOf('preTokenizer', { pre: given }, words), theirs: theirPatterns(given) };
  }
  const ignores = member(objectMember(tokenizer, 'model'), 'ignore_merges') === true;
  // tokenizer.json of Mistral Small 3.1 and its kin has the pattern of Llama 3 by mistake. transformers puts it right by `fix_mistral_regex`.
  const added = new Set(addedTokens(tokenizer).map(({ content }) => content));
  if (found.name === 'llama-bpe' && tekkenTokens.every((token) => added.has(token))) {
    const text =
      `the pattern of ${file} is that of Llama 3, but the tokens are those of Mistral's tekken, which is written; ` +
      'transformers does so with fix_mistral_regex';
    return { pre: 'tekken', note: noteOf('tekken', {}, text) };
  }
  if (found.name === 'llama-bpe') return { pre: ignores ? 'llama-bpe' : 'smaug-bpe' };
  if (found.name === 'smollm')
    return { pre: member(settings, 'clean_up_tokenization_spaces') === false ? 'smollm' : 'starcoder' };
  const theirs = found.theirs === undefined ? undefined : theirPatterns(found.name);
  if (ignores !== (found.name === 'tekken')) return { pre: found.name, note: mergesNote(found.name, ignores), theirs };
  return { pre: found.name, theirs };
}
