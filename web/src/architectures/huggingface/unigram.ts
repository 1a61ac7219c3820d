/**
 * Unigram, the tokenizer of XLM-R and T5: pieces with the logarithms of their probabilities, and rules that replace characters first.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ bert.py at 2ca8afc (_xlmroberta_set_vocab), t5.py 5535795.
 */
import { show } from '../../core/show.js';
import { badFolderFile, unsupported } from './errors.js';
import { type Json, member, objectMember } from './json.js';
import type { TokenizerKeys } from './keys.js';
import { parseSentencePiece, type SentencePieceModel } from './protobuf.js';
import { specialKeys } from './special.js';
import type { Tokenizer, TokenizerFiles } from './tokenizer-input.js';
import {
  addedScore,
  addedTokens,
  fillerScore,
  flatSteps,
  isId,
  kinds,
  Vocabulary,
  vocabularyKeys,
} from './vocabulary.js';

/** Settings of the normalizer. */
interface Normalizer {
  readonly addsBlank: boolean;
  readonly removesBlanks: boolean;
  readonly charsmap: Uint8Array;
}

/** The number of kinds of tokens that an encoder tells apart. */
export const tokenTypeCount = ({ config }: TokenizerFiles): number => config.whole('type_vocab_size', 1);

/** The keys of a vocabulary. */
function unigramKeys(
  files: TokenizerFiles,
  vocabulary: Vocabulary,
  { addsBlank, removesBlanks, charsmap }: Normalizer,
): TokenizerKeys {
  return {
    ...vocabularyKeys('t5', 'default', vocabulary),
    scores: vocabulary.scores,
    add_space_prefix: addsBlank,
    remove_extra_whitespaces: removesBlanks,
    ...(charsmap.length > 0 && { precompiled_charsmap: charsmap }),
    ...specialKeys(files, vocabulary),
  };
}

/** Fails unless the rules begin with the size of their first part, which the runtime relies on. */
function checkCharsmap(file: string, charsmap: Uint8Array): void {
  if (charsmap.length === 0) return;
  const size = charsmap.length < 4 ? undefined : new DataView(charsmap.buffer, charsmap.byteOffset).getUint32(0, true);
  if (size === undefined || size % 4 !== 0 || size + 4 >= charsmap.length)
    badFolderFile(file, 'the rules that replace characters (precompiled_charsmap) are cut or damaged');
}

/** The model of a file. @throws ScalepointError `UNKNOWN_FORMAT` if it is not a Unigram model */
function unigramModel(file: string, bytes: Uint8Array): SentencePieceModel {
  const model = parseSentencePiece(bytes);
  if (model.kind !== 1)
    unsupported(
      file,
      `its model_type is ${model.kind === 2 ? 'BPE' : model.kind}; supported is unigram for this model`,
    );
  checkCharsmap(file, model.charsmap);
  return model;
}

/**
 * Reads sentencepiece.bpe.model of XLM-R, which is a Unigram model in spite of its name. Hugging Face has four other tokens at its beginning,
 * so that all ids are one more, and the last one of the list is dropped.
 */
export function xlmRobertaFromModel(files: TokenizerFiles, bytes: Uint8Array): Tokenizer {
  const file = 'sentencepiece.bpe.model';
  const model = unigramModel(file, bytes);
  const { pieces } = model;
  if (pieces.length > files.size)
    badFolderFile(file, `it has ${pieces.length} tokens, but the embedding has ${files.size} rows`);
  const vocabulary = new Vocabulary(files.size, fillerScore);
  // Behind the pieces are fillers, whose names count from the place before.
  for (let id = 4; id < vocabulary.size; id++) {
    const piece = pieces[id - 1];
    if (piece === undefined) vocabulary.set(id, { text: `[PAD${id - 1}]`, type: kinds.unused, score: fillerScore });
    else vocabulary.set(id, piece.type === kinds.user ? { ...piece, type: kinds.normal } : piece);
  }
  ['<s>', '<pad>', '</s>', '<unk>'].forEach((text, id) => {
    if (id < vocabulary.size) vocabulary.set(id, { text, type: text === '<unk>' ? kinds.unknown : kinds.control });
  });
  vocabulary.check(file);
  const keys = { ...unigramKeys(files, vocabulary, model), token_type_count: tokenTypeCount(files) };
  return { keys, notes: vocabulary.notes };
}

/** Reads a tokenizer.json of XLM-R. */
export function xlmRobertaFromJson(files: TokenizerFiles, tokenizer: Json): Tokenizer {
  const file = 'tokenizer.json';
  const model = objectMember(tokenizer, 'model') as Json;
  const pieces = member(model, 'vocab');
  if (!Array.isArray(pieces)) return badFolderFile(file, 'model.vocab has to be an array of pieces with scores');
  if (member(model, 'byte_fallback') === true)
    unsupported(file, 'model.byte_fallback is true; llama.cpp computes Unigram without tokens for bytes');
  const vocabulary = new Vocabulary(files.size, fillerScore);
  const unknown = member(model, 'unk_id') ?? 3;
  const added = new Map(addedTokens(tokenizer).map((token) => [token.id, token]));
  for (const [id, entry] of (pieces as unknown[]).entries()) {
    const [text, score]: unknown[] = Array.isArray(entry) ? entry : [];
    if (typeof text !== 'string' || typeof score !== 'number' || !Number.isFinite(score))
      return badFolderFile(file, `model.vocab[${id}] is not a piece with a score, but ${show(entry)}`);
    const special = added.get(id);
    const kind = special === undefined ? kinds.normal : special.special ? kinds.control : kinds.user;
    vocabulary.putOnce(file, id, { text, type: id === unknown ? kinds.unknown : kind, score });
  }
  vocabulary.check(file);
  // Decode the rules of the normalizer, which are in base64.
  const steps = flatSteps(member(tokenizer, 'normalizer'), 'normalizers');
  const rules = steps.map((step) => member(step, 'precompiled_charsmap')).find((one) => typeof one === 'string');
  let text = '';
  try {
    text = atob(rules ?? '');
  } catch {
    return badFolderFile(file, 'normalizer.precompiled_charsmap is not base64');
  }
  const charsmap = Uint8Array.from(text, (character) => character.charCodeAt(0));
  checkCharsmap(file, charsmap);
  const flag = (name: string) => member(files.settings, name) !== false;
  const normalizer = {
    addsBlank: flag('add_prefix_space'),
    removesBlanks: flag('clean_up_tokenization_spaces'),
    charsmap,
  };
  const keys = { ...unigramKeys(files, vocabulary, normalizer), token_type_count: tokenTypeCount(files) };
  return { keys, notes: vocabulary.notes };
}

/** Reads tokenizer.model or spiece.model of T5, and the tokens of added_tokens.json. */
export function t5Keys(files: TokenizerFiles, bytes: Uint8Array): Tokenizer {
  const file = 'spiece.model';
  const model = unigramModel(file, bytes);
  const vocabulary = new Vocabulary(files.size, fillerScore);
  vocabulary.putPieces(file, model);
  for (const [text, id] of Object.entries(files.added ?? {})) {
    if (!isId(id)) return badFolderFile('added_tokens.json', `the id of the token ${show(text)} is not a whole number`);
    if (id < vocabulary.size) vocabulary.set(id, { text, type: kinds.user, score: addedScore });
  }
  vocabulary.check(file);
  return { keys: unigramKeys(files, vocabulary, model), notes: vocabulary.notes };
}
