/**
 * WordPiece, the tokenizer of BERT. GGUF marks the beginnings of words, Hugging Face their continuations.
 * Reference: github.com/ggml-org/llama.cpp, conversion/bert.py at 2ca8afc.
 */
import { show } from '../../core/show.js';
import { badFolderFile, unsupported } from './errors.js';
import { type Json, member, objectMember } from './json.js';
import { specialKeys } from './special.js';
import type { Tokenizer, TokenizerFiles } from './tokenizer-input.js';
import { tokenTypeCount } from './unigram.js';
import { addedTokens, kinds, looksSpecial, Vocabulary, vocabularyEntries, vocabularyKeys } from './vocabulary.js';

const file = 'tokenizer.json';

/** Required roles. If one is missing, the runtime uses the ids of the original BERT. */
const needed = ['unknown', 'cls', 'seperator'] as const;

/** Reads a WordPiece tokenizer. */
export function wordPieceKeys(files: TokenizerFiles, tokenizer: Json): Tokenizer {
  const model = objectMember(tokenizer, 'model') as Json;
  const prefix = member(model, 'continuing_subword_prefix');
  if (prefix !== '##') unsupported(file, `model.continuing_subword_prefix is ${show(prefix)}; it has to be "##"`);
  // The runtime has BERT's normalizer built in.
  const normalizer = objectMember(tokenizer, 'normalizer');
  const type = member(normalizer, 'type');
  if (type !== 'BertNormalizer') unsupported(file, `the normalizer ${show(type)} is not supported for WordPiece`);
  const vocabulary = new Vocabulary(files.size);
  for (const [token, id] of vocabularyEntries(model)) vocabulary.putOnce(file, id, { text: token, type: kinds.normal });
  for (const { id, content, special } of addedTokens(tokenizer))
    vocabulary.put(file, id, { text: content, type: special || looksSpecial(content) ? kinds.control : kinds.user });
  vocabulary.check(file);
  vocabulary.tokens.forEach((token, id) => {
    if (vocabulary.types[id] === kinds.control) return;
    vocabulary.tokens[id] = token.startsWith('##') ? token.slice(2) : `▁${token}`;
  });
  vocabulary.check(file);
  const special = specialKeys(files, vocabulary, { normalizes: true });
  // The runtime strips accents by default; Hugging Face by default only together with lowering the case.
  const strips = member(normalizer, 'strip_accents') ?? member(normalizer, 'lowercase') !== false;
  for (const role of needed)
    if (special[`${role}_token_id`] === undefined)
      badFolderFile(
        'tokenizer_config.json',
        `nothing says which token is the ${role === 'seperator' ? 'separator' : role} one`,
      );
  return {
    keys: {
      // The runtime requires the name of a pre-tokenizer, but does not use it.
      ...vocabularyKeys('bert', 'jina-v2-en', vocabulary),
      token_type_count: tokenTypeCount(files),
      ...special,
      ...(strips === false && { 'normalizer.strip_accents': false }),
    },
    notes: vocabulary.notes,
  };
}
