/** Finds the kind of a folder's tokenizer, and reads it. */
import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import type { Folder } from '../recipe.js';
import { byteCharacters, byteLevelKeys } from './bytelevel.js';
import { incomplete, unsupported } from './errors.js';
import { isObject, type Json, member, objectMember, parseObject } from './json.js';
import { tokenizerKeys } from './keys.js';
import { isRankFile, tokenizerOfRanks } from './ranks.js';
import { addedById, chatGlmFromModel, sentencePieceFromJson, sentencePieceFromModel } from './sentencepiece.js';
import { flatSteps } from './steps.js';
import { readTemplates } from './templates.js';
import type { EncoderTokenizer, Tokenizer, TokenizerFiles, TokenizerInput } from './tokenizer-input.js';
import { t5Keys, tokenTypeCount, xlmRobertaFromJson, xlmRobertaFromModel } from './unigram.js';
import { wordPieceKeys } from './wordpiece.js';

/** The type of a model. Older files lack it: that of GPT-2 has merges, Unigram a list of pieces, and WordPiece a mark of continuations. */
function modelType(model: Json | undefined): unknown {
  const stated = member(model, 'type');
  if (stated !== undefined && stated !== null) return stated;
  if (member(model, 'merges') !== undefined) return 'BPE';
  if (Array.isArray(member(model, 'vocab'))) return 'Unigram';
  return member(model, 'max_input_chars_per_word') === undefined ? stated : 'WordPiece';
}

/** Kind of a tokenizer.json: 'sentencepiece' for BPE that falls back to tokens of bytes, which byte-level BPE never does. */
function kindOf(tokenizer: Json): 'bytes' | 'sentencepiece' | 'wordpiece' | 'unigram' {
  const model = objectMember(tokenizer, 'model');
  const type = modelType(model);
  if (type === 'WordPiece') return 'wordpiece';
  if (type === 'Unigram') return 'unigram';
  if (type === 'BPE') {
    if (member(model, 'byte_fallback') !== true) return 'bytes';
    const steps = flatSteps(member(tokenizer, 'pre_tokenizer'), 'pretokenizers');
    return steps.some((step) => member(step, 'type') === 'ByteLevel') ? 'bytes' : 'sentencepiece';
  }
  return unsupported('tokenizer.json', `model.type is ${show(type)}; supported are BPE, WordPiece and Unigram`);
}

/** Kinds of the tokenizer.json of encoders. */
const encoderKinds = {
  wordpiece: 'wordpiece',
  roberta: 'bytes',
  'modern-bert': 'bytes',
  'xlm-roberta': 'unigram',
  t5: 'unigram',
} as const satisfies Record<EncoderTokenizer, string>;

/**
 * The note about tokens that take the blanks behind them. llama.cpp has this for models of Phi-3 alone, which it knows by their names.
 * Reference: src/llama-vocab.cpp of llama.cpp at eb6a99c.
 */
function stripNotes({ name = '' }: Folder, { architecture, tokenizer }: TokenizerFiles): Note[] {
  if (!['phi3', 'phimoe'].includes(architecture) || /phi-?3/i.test(name)) return [];
  const list = member(tokenizer, 'added_tokens');
  const strips = (Array.isArray(list) ? (list as unknown[]) : []).filter(
    (entry): entry is Json => isObject(entry) && member(entry, 'rstrip') === true,
  );
  if (strips.length === 0) return [];
  const tokens = strips.map((entry) => String(member(entry, 'content')));
  const text =
    `${tokens.length === 1 ? 'the token' : `${tokens.length} tokens, such as`} ${show(tokens[0])} ${tokens.length === 1 ? 'takes' : 'take'} the blanks ` +
    'behind, and llama.cpp does so only in models whose general.name contains phi-3: give the folder such a name';
  return [noteOf('nameNeeded', { name, tokens: tokens.length }, text)];
}

/** Reads a folder's tokenizer. @throws ScalepointError `BAD_FILE` or `UNKNOWN_FORMAT` */
export async function readTokenizer(folder: Folder, wish: TokenizerInput): Promise<Tokenizer> {
  const object = async (name: string) => {
    const bytes = await folder.file(name);
    return bytes === undefined ? undefined : parseObject(name, bytes);
  };
  const tokenizer = await object('tokenizer.json');
  const settings = await object('tokenizer_config.json');
  const files: TokenizerFiles = {
    ...wish,
    tokenizer,
    settings,
    added: await object('added_tokens.json'),
    generation: await object('generation_config.json'),
    templates: await readTemplates(folder, settings),
  };
  const read = await readKind(folder, files);
  return { keys: tokenizerKeys(read.keys), notes: [...read.notes, ...stripNotes(folder, files)] };
}

/**
 * Reads the tokenizer.model of ChatGLM, which is SentencePiece's or tiktoken's. Undefined if the folder has none, or a tokenizer.json with the
 * same tokens as tiktoken's.
 */
async function chatGlmTokenizer(folder: Folder, files: TokenizerFiles): Promise<Tokenizer | undefined> {
  const model = await folder.file('tokenizer.model');
  if (model === undefined) return undefined;
  if (isRankFile(model)) {
    if (files.tokenizer !== undefined) return undefined;
    const { tokenizer, notes } = tokenizerOfRanks(model, byteCharacters(), addedById(files.settings));
    const read = byteLevelKeys({ ...files, tokenizer }, tokenizer);
    return { ...read, notes: [...notes, ...read.notes] };
  }
  // ChatGLM 2 has the same file, and no tokens for roles.
  const names = [files.config.get('_name_or_path'), folder.name];
  const isThird = names.some((name) => typeof name === 'string' && /chatglm3/i.test(name));
  if (!isThird && !JSON.stringify(files.settings ?? {}).includes('<|user|>'))
    unsupported(
      'tokenizer.model',
      "nothing says that the vocabulary is ChatGLM 3's, which _name_or_path of config.json, the folder's name and the tokens of " +
        'tokenizer_config.json tell; llama.cpp does not have that of ChatGLM 2',
    );
  return chatGlmFromModel(files, model);
}

/** Reads the files of a tokenizer by its kind. */
async function readKind(folder: Folder, files: TokenizerFiles): Promise<Tokenizer> {
  const { tokenizer, ...wish } = files;
  if (wish.architecture === 'chatglm') {
    const read = await chatGlmTokenizer(folder, files);
    if (read !== undefined) return read;
  }
  const kindFound = tokenizer === undefined ? undefined : kindOf(tokenizer);
  // Multilingual models of BERT's architecture have the tokenizer of XLM-R.
  const isOther = wish.encoder === 'wordpiece' && (kindFound === undefined || kindFound === 'unigram');
  const encoder = isOther ? 'xlm-roberta' : wish.encoder;
  const sentencePieces = encoder === 'xlm-roberta' ? await folder.file('sentencepiece.bpe.model') : undefined;
  if (sentencePieces !== undefined) return xlmRobertaFromModel(files, sentencePieces);
  if (encoder === 't5') return t5Keys(files, await t5Model(folder));
  const kind = kindFound ?? 'sentencepiece';
  if (encoder === undefined ? kind === 'wordpiece' || kind === 'unigram' : kind !== encoderKinds[encoder]) {
    if (tokenizer === undefined) return incomplete('tokenizer.json', 'the folder has none', 'tokenizer.json');
    return unsupported('tokenizer.json', `this kind of tokenizer is not supported for ${wish.architecture}: ${kind}`);
  }
  if (kind === 'unigram') return xlmRobertaFromJson(files, tokenizer as Json);
  if (kind === 'wordpiece') return wordPieceKeys(files, tokenizer as Json);
  if (kind === 'bytes') {
    const read = byteLevelKeys(files, tokenizer as Json);
    return encoder === 'roberta' ? { ...read, keys: [...read.keys, tokenTypeCount(files)] } : read;
  }
  // Gemma 4 is read from tokenizer.json alone.
  const model = wish.architecture === 'gemma4' ? undefined : await folder.file('tokenizer.model');
  if (model !== undefined) return sentencePieceFromModel(files, model);
  if (tokenizer === undefined) {
    return incomplete('tokenizer.json', 'the folder has none, and no tokenizer.model', 'tokenizer.json');
  }
  return sentencePieceFromJson(files, tokenizer);
}

/** The file with the vocabulary of T5, by either of its names. */
async function t5Model(folder: Folder): Promise<Uint8Array> {
  return (
    (await folder.file('tokenizer.model')) ??
    (await folder.file('spiece.model')) ??
    incomplete(
      'spiece.model',
      'the folder has none; the vocabulary of T5 is read from this file, not from tokenizer.json',
      'spiece.model',
    )
  );
}
