/** Finds the kind of a folder's tokenizer, and reads it. */
import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { quoted } from '../../formats/files/bytes.js';
import type { GgufKey } from '../../formats/gguf/pairs.js';
import type { Folder } from '../recipe.js';
import { byteLevelKeys } from './bytelevel.js';
import { badFolderFile, incomplete, unsupported } from './errors.js';
import { arrayMember, decodeText, isObject, type Json, member, objectMember, parseObject } from './json.js';
import { tokenizerKeys } from './keys.js';
import { plamoFile, plamoKeys } from './plamo.js';
import { glmRanks, isRankFile, kimiRanks, tokenizerOfRanks, tokenizerOfTekken } from './ranks.js';
import { rwkvFile, rwkvKeys } from './rwkv.js';
import { addedById, chatGlmFromModel, sentencePieceFromJson, sentencePieceFromModel } from './sentencepiece.js';
import type { EncoderTokenizer, Tokenizer, TokenizerFiles, TokenizerInput } from './tokenizer-input.js';
import { t5Keys, tokenTypeCount, xlmRobertaFromJson, xlmRobertaFromModel } from './unigram.js';
import { flatSteps } from './vocabulary.js';
import { wordPieceKeys } from './wordpiece.js';

/** Kind of a tokenizer.json: 'sentencepiece' for BPE that falls back to tokens of bytes, which byte-level BPE never does. */
function tokenizerKind(tokenizer: Json): 'bytes' | 'sentencepiece' | 'wordpiece' | 'unigram' {
  const model = objectMember(tokenizer, 'model');
  // Older files lack the type: that of GPT-2 has merges, Unigram a list of pieces, and WordPiece a mark of continuations.
  const isWordPiece = member(model, 'max_input_chars_per_word') !== undefined;
  const usual = Array.isArray(member(model, 'vocab')) ? 'Unigram' : isWordPiece ? 'WordPiece' : undefined;
  const type = member(model, 'type') ?? (member(model, 'merges') !== undefined ? 'BPE' : usual);
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

const templateKey = 'tokenizer.chat_template';

/** Keys of the chat templates, from tokenizer_config.json, else from their own file. A list has one key per name; the template `default` gets the plain key. */
async function readTemplates(
  folder: Folder,
  settings: Json | undefined,
  more: Readonly<Record<string, string>>,
): Promise<readonly GgufKey[]> {
  let template = member(settings, 'chat_template');
  if (template === undefined) {
    const [jinja, json] = [await folder.file('chat_template.jinja'), await folder.file('chat_template.json')];
    if (jinja !== undefined) template = decodeText('chat_template.jinja', jinja);
    else if (json !== undefined) template = member(parseObject('chat_template.json', json), 'chat_template');
  }
  if (typeof template === 'string') template = [{ name: 'default', template }];
  if (template !== undefined && !Array.isArray(template))
    return badFolderFile(
      'tokenizer_config.json',
      `chat_template has to be a string or an array, got ${show(template)}`,
    );
  const named = new Map<string, string>();
  for (const entry of ((template ?? []) as unknown[]).filter(isObject)) {
    const [name, text] = [member(entry, 'name'), member(entry, 'template')];
    if (typeof name === 'string' && name !== '' && typeof text === 'string')
      named.set(name.replace(/[^A-Za-z0-9]/g, '_'), text);
  }
  for (const [name, text] of Object.entries(more)) named.set(name, text);
  const others = [...named].filter(([name]) => name !== 'default');
  const standard = named.get('default');
  return [
    ...others.map(([name, value]): GgufKey => ({ name: `${templateKey}.${name}`, type: 'string', value })),
    ...(others.length === 0
      ? []
      : [{ name: 'tokenizer.chat_templates', type: 'string[]', value: others.map(([name]) => name) } as const]),
    ...(standard === undefined ? [] : [{ name: templateKey, type: 'string', value: standard } as const]),
  ];
}

/** Reads a folder's tokenizer. Its keys are in writing order, chat templates last. @throws ScalepointError `BAD_FILE` or `UNKNOWN_FORMAT` */
export async function readTokenizer(
  folder: Folder,
  wish: TokenizerInput,
): Promise<{ keys: readonly GgufKey[]; notes: readonly Note[] }> {
  const object = async (name: string) => {
    const bytes = await folder.file(name);
    return bytes === undefined ? undefined : parseObject(name, bytes);
  };
  const stated = await object('tokenizer.json');
  const tekken = stated === undefined ? await object('tekken.json') : undefined;
  const made = tekken === undefined ? undefined : tokenizerOfTekken(tekken);
  const tokenizer = stated ?? made?.tokenizer;
  const settings = (await object('tokenizer_config.json')) ?? made?.settings;
  const files: TokenizerFiles = {
    ...wish,
    tokenizer,
    settings,
    added: await object('added_tokens.json'),
    generation: await object('generation_config.json'),
  };
  const templates = await readTemplates(folder, settings, wish.templates ?? {});
  const read = await readKind(folder, files);
  const notes = [...(made?.notes ?? []), ...read.notes];
  // Note what llama.cpp does for models of Phi-3 alone, which it knows by their names: see src/llama-vocab.cpp of llama.cpp at eb6a99c. Tokens
  // take the blanks behind them, and some are looked up, without which it does not load the model.
  const { name = '' } = folder;
  const isNamed = /phi-?3/i.test(name);
  const entries = arrayMember(tokenizer, 'added_tokens').filter(isObject);
  const strips = entries.filter((entry) => member(entry, 'rstrip') === true);
  if (!isNamed && ['phi3', 'phimoe'].includes(wish.architecture) && strips.length > 0) {
    const [subject, verb] = strips.length === 1 ? ['the token', 'takes'] : [`${strips.length} tokens, such as`, 'take'];
    const text =
      `${subject} ${show(String(member(strips[0], 'content')))} ${verb} the blanks ` +
      'behind, and llama.cpp does so only in models whose general.name contains phi-3: give the folder such a name';
    notes.push(noteOf('nameNeeded', { name, tokens: strips.length }, text));
  }
  const tokens = new Set(Array.isArray(read.keys.tokens) ? read.keys.tokens : []);
  const missing = ['</s>', '<unk>', '<s>', '<|endoftext|>'].filter((token) => !tokens.has(token));
  if (isNamed && missing.length > 0) {
    const text =
      `llama.cpp does not load a model called ${quoted(name)} without the tokens ${missing.join(', ')}, which this vocabulary lacks; ` +
      'another general.name avoids this';
    notes.push(noteOf('nameNeedsTokens', { name, missing }, text));
  }
  // The converter leaves out the templates of PLaMo 2.
  const keys = tokenizerKeys(read.keys);
  return { keys: wish.architecture === 'plamo2' ? keys : [...keys, ...templates], notes };
}

/** Reads a vocabulary of tiktoken. */
function rankKeys(files: TokenizerFiles, kind: typeof glmRanks, bytes: Uint8Array): Tokenizer {
  const { tokenizer, notes } = tokenizerOfRanks(kind, bytes, addedById(files.settings));
  const read = byteLevelKeys({ ...files, tokenizer }, tokenizer);
  return { ...read, notes: [...notes, ...read.notes] };
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
    return rankKeys(files, glmRanks, model);
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
  const list = { plamo2: [plamoFile, plamoKeys], rwkv7: [rwkvFile, rwkvKeys] } as const;
  if (Object.hasOwn(list, wish.architecture)) {
    const [name, keysOf] = list[wish.architecture as keyof typeof list];
    const bytes = await folder.file(name);
    return keysOf(files, bytes ?? incomplete(name, 'the folder has none', name));
  }
  if (wish.architecture === 'chatglm') {
    const read = await chatGlmTokenizer(folder, files);
    if (read !== undefined) return read;
  }
  const kimi = tokenizer === undefined ? await folder.file(kimiRanks.file) : undefined;
  if (kimi !== undefined && isRankFile(kimi)) return rankKeys(files, kimiRanks, kimi);
  const kindFound = tokenizer === undefined ? undefined : tokenizerKind(tokenizer);
  // Multilingual models of BERT's architecture have the tokenizer of XLM-R.
  const isOther = wish.encoder === 'wordpiece' && (kindFound === undefined || kindFound === 'unigram');
  const encoder = isOther ? 'xlm-roberta' : wish.encoder;
  const sentencePieces = encoder === 'xlm-roberta' ? await folder.file('sentencepiece.bpe.model') : undefined;
  if (sentencePieces !== undefined) return xlmRobertaFromModel(files, sentencePieces);
  if (encoder === 't5') {
    const bytes = (await folder.file('tokenizer.model')) ?? (await folder.file('spiece.model'));
    const text = 'the folder has none; the vocabulary of T5 is read from this file, not from tokenizer.json';
    return t5Keys(files, bytes ?? incomplete('spiece.model', text, 'spiece.model'));
  }
  const kind = kindFound ?? 'sentencepiece';
  if (encoder === undefined ? kind === 'wordpiece' || kind === 'unigram' : kind !== encoderKinds[encoder]) {
    if (tokenizer === undefined) return incomplete('tokenizer.json', 'the folder has none', 'tokenizer.json');
    return unsupported('tokenizer.json', `this kind of tokenizer is not supported for ${wish.architecture}: ${kind}`);
  }
  if (kind === 'unigram') return xlmRobertaFromJson(files, tokenizer as Json);
  if (kind === 'wordpiece') return wordPieceKeys(files, tokenizer as Json);
  if (kind === 'bytes') {
    const read = byteLevelKeys(files, tokenizer as Json);
    return encoder === 'roberta' ? { ...read, keys: { ...read.keys, token_type_count: tokenTypeCount(files) } } : read;
  }
  // Gemma 4 is read from tokenizer.json alone.
  const model = wish.architecture.startsWith('gemma4') ? undefined : await folder.file('tokenizer.model');
  if (model !== undefined) return sentencePieceFromModel(files, model);
  if (tokenizer === undefined) {
    return incomplete('tokenizer.json', 'the folder has none, and no tokenizer.model', 'tokenizer.json');
  }
  return sentencePieceFromJson(files, tokenizer);
}
