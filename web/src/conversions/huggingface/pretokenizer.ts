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
import { flatSteps } from './steps.js';
import { addedTokens } from './vocabulary.js';

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
const cased = (ending: string, digits: string) =>
  String.raw`${lead}${upper}*${lower}+${ending}|${lead}${upper}+${lower}*${ending}|\p{N}${digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${rest}`;

const deepseek = String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_${'`'}{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|${rest}`;

const byteLevel = 'bytes';
const wordBytes = 'words and bytes';
const digit = 'digit';

/** Steps of each known pre-tokenizer. A step is a pattern, or one of the names above. */
const known: readonly { readonly name: string; readonly steps: readonly string[] }[] = [
  { name: 'llama-bpe', steps: [words('{1,3}'), byteLevel] },
  { name: 'qwen2', steps: [words(''), byteLevel] },
  {
    name: 'qwen35',
    steps: [String.raw`${contractions}|${lead}[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|${rest}`, byteLevel],
  },
  { name: 'gpt-2', steps: [wordBytes] },
  { name: 'smollm', steps: [digit, wordBytes] },
  { name: 'tekken', steps: [cased('', ''), byteLevel] },
  { name: 'gpt-4o', steps: [cased(`${contractions}?`, '{1,3}'), byteLevel] },
  { name: 'deepseek-v3', steps: [String.raw`\p{N}{1,3}`, '[一-龥぀-ゟ゠-ヿ]+', deepseek, byteLevel] },
  {
    name: 'seed-coder',
    steps: [String.raw`${contractions}|${lead}\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|${rest}`, byteLevel],
  },
  {
    name: 'deepseek-coder',
    steps: [String.raw`[\r\n]`, String.raw`\s?\p{L}+`, String.raw`\s?\p{P}+`, '[一-龥ࠀ-一가-퟿]+', digit, byteLevel],
  },
];

/** Names that share their patterns with one in `known`, by architecture. The converter tells them apart by their vocabularies. */
const namesakes: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  gptneox: { 'gpt-2': 'olmo' },
  olmo: { 'gpt-2': 'olmo' },
  phi2: { 'gpt-2': 'phi-2' },
  exaone4: { 'gpt-2': 'exaone4' },
  stablelm: { qwen2: 'stablelm2' },
  'command-r': { smollm: 'command-r', starcoder: 'command-r' },
  cohere2: { smollm: 'command-r', starcoder: 'command-r' },
  granite: { smollm: 'refact', starcoder: 'refact', 'smaug-bpe': 'dbrx' },
  granitemoe: { smollm: 'refact', starcoder: 'refact', 'smaug-bpe': 'dbrx' },
  olmoe: { 'gpt-2': 'olmo' },
  mamba: { 'gpt-2': 'olmo' },
  mamba2: { 'gpt-2': 'olmo' },
  granitehybrid: { smollm: 'refact', starcoder: 'refact', 'smaug-bpe': 'dbrx' },
  olmo2: { 'smaug-bpe': 'dbrx' },
  starcoder2: { smollm: 'starcoder' },
  lfm2: { 'llama-bpe': 'lfm2' },
  'falcon-h1': { 'llama-bpe': 'falcon-h1' },
  glm4: { 'llama-bpe': 'glm4', 'smaug-bpe': 'glm4' },
  glm4moe: { 'llama-bpe': 'glm4', 'smaug-bpe': 'glm4' },
  // RoBERTa, whose architecture in llama.cpp is that of BERT.
  bert: { 'gpt-2': 'roberta-bpe' },
  'modern-bert': { 'gpt-2': 'modern-bert' },
  llama4: { 'gpt-4o': 'llama4' },
  'hunyuan-dense': { 'deepseek-v3': 'hunyuan-dense' },
};

/** A step in the spelling of the table, or its name in parentheses. `alone`: no other step splits by a pattern. */
function stepOf(entry: Json, alone: boolean): string {
  const type = member(entry, 'type');
  if (type === 'ByteLevel' && member(entry, 'add_prefix_space') !== true)
    return member(entry, 'use_regex') === false ? byteLevel : wordBytes;
  if (type === 'Digits' && member(entry, 'individual_digits') === true) return digit;
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
  architecture: string,
  given: string | undefined,
): { readonly pre: string; readonly note?: Note } {
  const found = knownPreTokenizer(tokenizer, settings, given);
  if (found.note?.kind === 'preTokenizer') return found;
  const pre = (Object.hasOwn(namesakes, architecture) ? namesakes[architecture]?.[found.pre] : undefined) ?? found.pre;
  if (given !== undefined && given !== pre)
    return unsupported(file, `the pre-tokenizer is that of ${show(pre)}, so that it cannot be called ${show(given)}`);
  return { ...found, pre };
}

/** Tokens that Mistral's tokenizers since Nemo (tekken) have, and no others. */
const tekkenTokens = ['[INST]', '[/INST]', '[AVAILABLE_TOOLS]', '[TOOL_CALLS]'];

/**
 * True for a tokenizer of tekken whose tokenizer.json has the pattern of Llama 3, as those of Mistral Small 3.1 and its kin do by mistake.
 * transformers puts it right by `fix_mistral_regex`.
 */
function isMislabeledTekken(tokenizer: Json): boolean {
  const added = new Set(addedTokens(tokenizer).map(({ content }) => content));
  return tekkenTokens.every((token) => added.has(token));
}

/** The name in `known`. */
function knownPreTokenizer(
  tokenizer: Json,
  settings: Json | undefined,
  given: string | undefined,
): { readonly pre: string; readonly note?: Note } {
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
    return { pre: given, note: noteOf('preTokenizer', { pre: given }, words) };
  }
  const ignores = member(objectMember(tokenizer, 'model'), 'ignore_merges') === true;
  if (found.name === 'llama-bpe' && isMislabeledTekken(tokenizer)) {
    const text =
      `the pattern of ${file} is that of Llama 3, but the tokens are those of Mistral's tekken, which is written; ` +
      'transformers does so with fix_mistral_regex';
    return { pre: 'tekken', note: noteOf('tekken', {}, text) };
  }
  if (found.name === 'llama-bpe') return { pre: ignores ? 'llama-bpe' : 'smaug-bpe' };
  if (found.name === 'smollm')
    return { pre: member(settings, 'clean_up_tokenization_spaces') === false ? 'smollm' : 'starcoder' };
  if (ignores !== (found.name === 'tekken'))
    return {
      pre: found.name,
      note: mergesNote(found.name, ignores),
    };
  return { pre: found.name };
}
