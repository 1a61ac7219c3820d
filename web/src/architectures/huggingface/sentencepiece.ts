/**
 * SentencePiece's BPE, the tokenizer of Llama 2, Mistral, Gemma and Phi-3: from tokenizer.model, or from a tokenizer.json made of one.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a and src/llama-vocab.cpp at eb6a99c.
 */
import { noteOf } from '../../core/note.js';
import { mention } from '../../core/option-problem.js';
import { show } from '../../core/show.js';
import { badFolderFile, incomplete, unsupported } from './errors.js';
import { arrayMember, isObject, type Json, member, objectMember } from './json.js';
import type { TokenizerKeys } from './keys.js';
import { parseSentencePiece } from './protobuf.js';
import { specialKeys } from './special.js';
import { differencesNote, MergeRanks, sampleTexts, sentencePieceDifferences } from './token-differences.js';
import type { Tokenizer, TokenizerFiles } from './tokenizer-input.js';
import {
  type AddedToken,
  addedScore,
  addedToken,
  addedTokens,
  byteToken,
  checkMarks,
  fillerScore,
  flatSteps,
  isId,
  kinds,
  looksSpecial,
  mergeTexts,
  prependScheme,
  Vocabulary,
  vocabularyEntries,
  vocabularyKeys,
} from './vocabulary.js';

/** The blank in SentencePiece vocabularies. */
const blank = '▁';

const bytePattern = /^<0x[0-9A-F]{2}>$/;

/**
 * Fails, or adds a note, if the vocabulary lacks tokens for single bytes. llama.cpp looks for `<0x0A>`, whatever its kind, and then for the
 * character itself (llama_vocab::impl::byte_to_token).
 */
function checkBytes(file: string, vocabulary: Vocabulary, missingBytes: 'refuse' | 'keep'): void {
  const all = new Set(vocabulary.tokens);
  let missing = 0;
  for (let byte = 0; byte < 256; byte++) {
    const isThere = all.has(byteToken(byte));
    // A byte from 0x80 on is no character of its own, and llama.cpp ends a token at NUL.
    if (!isThere && !(byte > 0 && byte < 0x80 && all.has(String.fromCharCode(byte)))) missing++;
  }
  if (missing === 0) return;
  const text = `${missing} of the 256 tokens for single bytes (<0x00> to <0xFF>) are missing`;
  if (missingBytes === 'refuse')
    incomplete(file, `${text}; llama.cpp aborts at the first character without a token`, 'byte tokens', {
      kind: 'try',
      option: mention('missingBytes', 'keep'),
      effect: 'converts it all the same',
    });
  const note = `${text}: llama.cpp aborts at the first character that the vocabulary lacks`;
  vocabulary.notes.push(noteOf('missingBytes', { count: missing }, note));
}

/** Tokens of Gemma 4 that are shown, because programs read the structure of a chat from them. */
const shownTokens: readonly string[] = [
  '<|channel>',
  '<channel|>',
  '<|tool_call>',
  '<tool_call|>',
  '<|tool_response>',
  '<tool_response|>',
  '<|"|>',
];

/** Roles that Gemma's tokenizer has unless tokenizer_config.json names others. */
const gemmaRoles: Json = {
  bos_token: '<bos>',
  eos_token: '<eos>',
  unk_token: '<unk>',
  pad_token: '<pad>',
  mask_token: '<mask>',
};

/**
 * Tokenizer keys of Gemma 4, with its merges as they are.
 * Reference: github.com/Tippach/Franken-Llama 1774451, conversion/gemma.py, and LlamaHfVocab in gguf-py/gguf/vocab.py.
 * @param base tokens of the model; those behind them were added
 */
function gemma4Keys(
  files: TokenizerFiles,
  vocabulary: Vocabulary,
  base: number,
  merges: readonly string[],
): TokenizerKeys {
  // transformers counts tokens as special that a key ending in _token names, and further ones, as PreTrainedTokenizerBase of its version 5 does.
  // `special` of tokenizer.json does not count.
  const all: Json = { ...gemmaRoles, ...files.settings };
  const extra = member(all, 'extra_special_tokens') ?? member(all, 'additional_special_tokens');
  const lists = [extra, member(all, 'model_specific_special_tokens')];
  const entries = [
    ...Object.entries(all).flatMap(([key, entry]) => (key.endsWith('_token') ? [entry] : [])),
    ...lists.flatMap((list): unknown[] => (typeof list === 'object' && list !== null ? Object.values(list) : [])),
  ];
  const special = new Set(entries.map((entry) => (isObject(entry) ? member(entry, 'content') : entry)));
  const isUnified = String(files.config.get('architectures')).startsWith('Gemma4Unified');
  const suppressed = arrayMember(files.generation, 'suppress_tokens').filter((id) => isId(id));
  const types = vocabulary.types.map((type, id) => {
    const text = vocabulary.tokens[id] as string;
    if (shownTokens.includes(text)) return kinds.user;
    if (type === kinds.unused) return type;
    if (id < base && /^<0x[0-9A-Fa-f]{2}>$/.test(text)) return kinds.byte;
    if (special.has(text)) return kinds.control;
    return id < base ? kinds.normal : kinds.user;
  });
  return {
    ...{ model: 'gemma4', tokens: vocabulary.tokens, token_type: types, merges },
    scores: vocabulary.scores.map(() => addedScore),
    ...specialKeys(files, vocabulary),
    ...{ add_space_prefix: false, add_bos_token: true },
    // Models that take pictures and sound without towers name tokens that they never write.
    ...(isUnified && suppressed.length > 0 && { suppress_tokens: suppressed }),
  };
}

/** The keys of a vocabulary with scores. */
function sentencePieceKeys(files: TokenizerFiles, vocabulary: Vocabulary, addsBlank: boolean): TokenizerKeys {
  // The converters of Llama and Ernie write it as the file has it.
  const stated = member(files.settings, 'add_prefix_space');
  const isWritten = files.facts.usesLlamaConverter === true || files.architecture.startsWith('ernie4_5');
  const prefix = isWritten && typeof stated === 'boolean' ? stated : addsBlank ? undefined : false;
  return {
    ...vocabularyKeys('llama', files.architecture === 'chatglm' ? 'chatglm-spm' : 'default', vocabulary),
    scores: vocabulary.scores,
    ...(prefix !== undefined && { add_space_prefix: prefix }),
    ...specialKeys(files, vocabulary),
  };
}

/** Kinds of added tokens, and the treatment of ▁ in those of the user. */
interface AddedKinds {
  readonly kindOf: (token: AddedToken) => number;
  readonly keepsMarks: boolean;
}

/** Puts added tokens over a vocabulary. Those beyond the embedding are left out, with a note. */
function putAdded(
  vocabulary: Vocabulary,
  file: string,
  tokens: readonly AddedToken[],
  { kindOf, keepsMarks }: AddedKinds,
): void {
  const beyond: number[] = [];
  for (const token of tokens) {
    const { id, content } = token;
    if (id >= vocabulary.size) {
      beyond.push(id);
      continue;
    }
    const type = kindOf(token);
    const text = type === kinds.user && !keepsMarks ? content.replaceAll(blank, ' ') : content;
    vocabulary.set(id, { text, type, score: addedScore });
  }
  if (beyond.length === 0) return;
  const which =
    beyond.length === 1
      ? `the added token ${beyond[0]}`
      : `${beyond.length} added tokens from ${beyond.reduce((least, id) => Math.min(least, id))} on`;
  const rows = vocabulary.size;
  const text = `${which} of ${file} left out, because the embedding has ${rows} rows`;
  vocabulary.notes.push(noteOf('tokensLeftOut', { file, tokens: beyond, rows }, text));
}

/** `added_tokens_decoder` of tokenizer_config.json: tokens by id. */
export function addedById(settings: Json | undefined): AddedToken[] {
  const file = 'tokenizer_config.json';
  return Object.entries(objectMember(settings, 'added_tokens_decoder') ?? {}).map(([id, entry]) =>
    addedToken(file, `added_tokens_decoder[${show(id)}]`, entry, Number(id)),
  );
}

/** The pieces of a tokenizer.model. @param filler score of ids without a piece */
function readPieces({ size }: TokenizerFiles, file: string, bytes: Uint8Array, filler: number) {
  const model = parseSentencePiece(bytes);
  if (model.kind !== 2)
    unsupported(file, `its model_type is ${model.kind === 1 ? 'unigram' : model.kind}; supported is BPE`);
  const vocabulary = new Vocabulary(size, filler);
  vocabulary.putPieces(file, model);
  return { model, vocabulary };
}

/** Checks the tokens of a tokenizer.model, and gives its keys. */
function finished(
  files: TokenizerFiles,
  file: string,
  { model, vocabulary }: ReturnType<typeof readPieces>,
): Tokenizer {
  if (model.removesBlanks) {
    vocabulary.notes.push(noteOf('joinsBlanks', { file }, `${file} joins runs of blanks, which llama.cpp does not`));
  }
  vocabulary.check(file);
  checkBytes(file, vocabulary, files.missingBytes);
  return { keys: sentencePieceKeys(files, vocabulary, model.addsBlank), notes: vocabulary.notes };
}

/** Tokens that the class of ChatGLM 3's tokenizer adds behind those of its file. */
const chatTokens = [
  ...['[MASK]', '[gMASK]', '[sMASK]', 'sop', 'eop', '<|system|>', '<|user|>', '<|assistant|>', '<|observation|>'],
];

/**
 * Reads the tokenizer.model of ChatGLM 3, whose first tokens have names of their own, and adds the tokens of its class.
 * Reference: github.com/ggml-org/llama.cpp, conversion/chatglm.py at 32e9e04; tokenization_chatglm.py of huggingface.co/THUDM/chatglm3-6b.
 */
export function chatGlmFromModel(files: TokenizerFiles, bytes: Uint8Array): Tokenizer {
  const file = 'tokenizer.model';
  const read = readPieces(files, file, bytes, 0);
  const { model, vocabulary } = read;
  const { pieces } = model;
  ['<unk>', '<bos>', '<eos>'].forEach((token, id) => {
    const piece = pieces[id] ?? badFolderFile(file, `it has ${pieces.length} tokens`);
    vocabulary.set(id, { ...piece, text: token });
  });
  for (const [i, text] of chatTokens.entries())
    vocabulary.putOnce(file, pieces.length + i, { text, type: kinds.control });
  return finished(files, file, read);
}

/** Reads a tokenizer.model, and the tokens that other files add. */
export function sentencePieceFromModel(files: TokenizerFiles, bytes: Uint8Array): Tokenizer {
  const file = 'tokenizer.model';
  const read = readPieces(files, file, bytes, fillerScore);
  const { vocabulary } = read;
  const phi = files.architecture === 'phi3' || files.architecture === 'phimoe';
  const kindOf = ({ special, content }: AddedToken) =>
    special || (!phi && looksSpecial(content)) ? kinds.control : kinds.user;
  const byText = Object.entries(files.added ?? {}).map(([content, id]) =>
    addedToken('added_tokens.json', show(content), { content, id }, undefined),
  );
  putAdded(vocabulary, 'added_tokens.json', byText, { kindOf: () => kinds.user, keepsMarks: true });
  putAdded(vocabulary, 'tokenizer_config.json', addedById(files.settings), { kindOf, keepsMarks: phi });
  if (phi) putAdded(vocabulary, 'tokenizer.json', addedTokens(files.tokenizer), { kindOf, keepsMarks: true });
  return finished(files, file, read);
}

/** True if a tokenizer.json puts a blank before the text, and its first step that llama.cpp lacks. */
function readSteps(tokenizer: Json): { readonly addsBlank: boolean; readonly lacking: string | undefined } {
  let addsBlank = false;
  const lacking: string[] = [];
  for (const step of flatSteps(member(tokenizer, 'normalizer'), 'normalizers')) {
    const [type, text] = [member(step, 'type'), member(objectMember(step, 'pattern'), 'String')];
    if (type === 'Prepend' && member(step, 'prepend') === blank) addsBlank = true;
    else if (!(type === 'Replace' && text === ' ' && member(step, 'content') === blank))
      lacking.push(`the normalizer ${show(type)}`);
  }
  for (const step of flatSteps(member(tokenizer, 'pre_tokenizer'), 'pretokenizers')) {
    const [type, text] = [member(step, 'type'), member(objectMember(step, 'pattern'), 'String')];
    if (type === 'Metaspace') {
      addsBlank ||= prependScheme(step) !== 'never';
    } else if (!(type === 'Split' && text === ' ')) lacking.push(`the pre-tokenizer ${show(type)}`);
  }
  return { addsBlank, lacking: lacking[0] };
}

/**
 * Reads a tokenizer.json. llama.cpp merges the pair with the highest score first, and Hugging Face the one whose merge comes first, so the
 * score of a token is minus the index of the first merge that makes it.
 */
export function sentencePieceFromJson(files: TokenizerFiles, tokenizer: Json): Tokenizer {
  const file = 'tokenizer.json';
  const model = objectMember(tokenizer, 'model') as Json;
  const vocabulary = new Vocabulary(files.size, fillerScore);
  checkMarks(model);
  const ranks = new MergeRanks(model);
  const unknown = member(model, 'unk_token');
  const isGemma4 = files.architecture.startsWith('gemma4');
  const entries = vocabularyEntries(model);
  for (const [text, id] of entries) {
    const type = text === unknown ? kinds.unknown : bytePattern.test(text) ? kinds.byte : kinds.normal;
    vocabulary.putOnce(file, id, { text, type, score: 0 - (ranks.firstOf(text) ?? 0) });
  }
  const kindOf = ({ content, special }: AddedToken) =>
    content === unknown ? kinds.unknown : special ? kinds.control : kinds.user;
  putAdded(vocabulary, file, addedTokens(tokenizer), { kindOf, keepsMarks: isGemma4 });
  const { addsBlank, lacking } = readSteps(tokenizer);
  const notSupported = (why = '') => unsupported(file, `${lacking} is not supported for this kind of tokenizer${why}`);
  if (lacking !== undefined && isGemma4) notSupported();
  vocabulary.check(file);
  checkBytes(file, vocabulary, files.missingBytes);
  // Blanks inside of merged tokens become the letter that byte-level vocabularies have for them, as in the converter.
  if (isGemma4) {
    const merges = mergeTexts(model, 'Ġ');
    return { keys: gemma4Keys(files, vocabulary, entries.length, merges), notes: vocabulary.notes };
  }
  const keys = sentencePieceKeys(files, vocabulary, addsBlank);
  const differing = sentencePieceDifferences(tokenizer, ranks, vocabulary, keys.add_space_prefix !== false);
  if (lacking !== undefined) {
    if (differing === undefined) notSupported();
    else if (differing.length > sampleTexts.length / 2)
      notSupported(`: llama.cpp would cut ${differing.length} of ${sampleTexts.length} sample texts otherwise`);
  }
  return { keys, notes: [...vocabulary.notes, ...differencesNote(differing)] };
}
