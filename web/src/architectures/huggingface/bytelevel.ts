/**
 * Byte-level BPE, the tokenizer of GPT-2, Llama 3 and Qwen.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a and src/llama-vocab.cpp at eb6a99c.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { unsupported } from './errors.js';
import { type Json, member, objectMember } from './json.js';
import { preTokenizerOf } from './pretokenizer.js';
import { specialKeys } from './special.js';
import { byteLevelDifferences, differencesNote } from './token-differences.js';
import type { Tokenizer, TokenizerFiles } from './tokenizer-input.js';
import {
  addedTokens,
  byteCharacters,
  checkMarks,
  flatSteps,
  kinds,
  looksSpecial,
  mergeTexts,
  Vocabulary,
  vocabularyEntries,
  vocabularyKeys,
} from './vocabulary.js';

const file = 'tokenizer.json';

/** The blank in byte-level vocabularies. */
const blank = 'Ġ';

/** Pre-tokenizers for which the runtime adds the BOS token unless a key forbids it. */
const addBos = ['llama-bpe', 'tekken', 'lfm2', 'falcon-h1'];

/** Reads a byte-level BPE tokenizer. */
export function byteLevelKeys(files: TokenizerFiles, tokenizer: Json): Tokenizer {
  const model = objectMember(tokenizer, 'model') as Json;
  checkMarks(model);
  const { pre, note, theirs } = preTokenizerOf(tokenizer, files.settings, files.facts, files.preTokenizer);
  // Read the tokens of the model and those that were added.
  const vocabulary = new Vocabulary(files.size);
  const { notes } = vocabulary;
  for (const [token, id] of vocabularyEntries(model)) vocabulary.putOnce(file, id, { text: token, type: kinds.normal });
  const missing = byteCharacters.filter((character) => !Object.hasOwn(member(model, 'vocab') as object, character));
  const { length: count } = missing;
  const lost = `${count} of 256 bytes have no token; text with them is lost, in Hugging Face too`;
  if (count > 0) notes.push(noteOf('lostBytes', { count }, lost));
  for (const { id, content, special } of addedTokens(tokenizer)) {
    if (special || looksSpecial(content)) vocabulary.put(file, id, { text: content, type: kinds.control });
    else vocabulary.put(file, id, { text: content.replaceAll('▁', ' '), type: kinds.user });
  }
  vocabulary.check(file);
  if (note !== undefined) notes.push(note);
  // Refuse a normalizer that the runtime lacks. NFC, which rarely changes text, only adds a note.
  for (const step of flatSteps(member(tokenizer, 'normalizer'), 'normalizers')) {
    const type = member(step, 'type');
    if (type !== 'NFC') unsupported(file, `the normalizer ${show(type)} is not supported`);
    notes.push(noteOf('composes', {}, 'the tokenizer composes characters first (NFC), which llama.cpp does not'));
  }
  if (theirs !== undefined) {
    const ignores = ['tekken', 'llama-bpe'].includes(pre);
    notes.push(...differencesNote(byteLevelDifferences(tokenizer, theirs, ignores)));
  }
  const merges = mergeTexts(model, blank);
  const prefix = files.facts.usesLlamaConverter === true ? member(files.settings, 'add_prefix_space') : undefined;
  return {
    keys: {
      ...vocabularyKeys('gpt2', pre, vocabulary),
      merges,
      ...(typeof prefix === 'boolean' && { add_space_prefix: prefix }),
      ...specialKeys(files, vocabulary, addBos.includes(pre) ? { addsBos: false } : {}),
    },
    notes,
  };
}
