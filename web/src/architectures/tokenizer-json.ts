/**
 * The vocabulary of a GGUF file as a tokenizer.json: the way back from what the converter writes. Byte-level BPE has the pattern of its
 * pre-tokenizer, and SentencePiece's BPE the merges that its scores mean.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-vocab.cpp at 00ad355e; github.com/huggingface/transformers 5.0.0,
 * src/transformers/convert_slow_tokenizer.py (generate_merges).
 */
import { ScalepointError } from '../core/errors.js';
import { show } from '../core/show.js';
import type { GgufHeader } from '../formats/gguf/header.js';
import { arrayOf } from '../formats/gguf/pairs.js';
import { families } from './families/index.js';
import { preTokenizerSteps } from './huggingface/pretokenizer.js';
import { kinds } from './huggingface/vocabulary.js';

const cannot = (text: string) =>
  new ScalepointError(
    'UNKNOWN_FORMAT',
    `${text}; put the tokenizer.json of the folder that it was made from beside the file`,
  );

/** Merges of a vocabulary with scores: each pair of tokens that makes a token, the highest score first. */
function mergesOf(tokens: readonly string[], types: readonly number[], scores: readonly number[]): [string, string][] {
  const ids = new Map(tokens.map((token, id) => [token, id]));
  const found: { readonly score: number; readonly left: number; readonly right: number; readonly id: number }[] = [];
  for (const [id, token] of tokens.entries()) {
    if (types[id] !== kinds.normal || ids.get(token) !== id) continue;
    for (let at = 1; at < token.length; at++) {
      // Characters beyond the first plane have two units, which stay together.
      const unit = token.charCodeAt(at);
      if (unit >= 0xdc00 && unit < 0xe000) continue;
      const [left, right] = [ids.get(token.slice(0, at)), ids.get(token.slice(at))];
      if (left !== undefined && right !== undefined) found.push({ score: scores[id] ?? 0, left, right, id });
    }
  }
  found.sort((a, b) => b.score - a.score || a.id - b.id || a.left - b.left || a.right - b.right);
  return found.map(({ left, right }) => [tokens[left] as string, tokens[right] as string]);
}

/** Steps of a pre-tokenizer; undefined for names that are not known. */
const stepsOf = (pre: unknown) =>
  preTokenizerSteps(
    pre,
    families.flatMap(({ preTokenizers = {} }) => Object.entries(preTokenizers)),
  );

/** True if `tokenizerJson` can be made of the vocabulary of a GGUF file. */
export function hasTokenizerJson(header: GgufHeader): boolean {
  const kind = header.metadata['tokenizer.ggml.model'];
  if (header.metadata['tokenizer.ggml.tokens'] === undefined) return false;
  if (kind === 'gpt2') return stepsOf(header.metadata['tokenizer.ggml.pre']) !== undefined;
  return kind === 'llama' && arrayOf(header, 'tokenizer.ggml.token_type')?.includes(kinds.byte) === true;
}

/**
 * A tokenizer.json with the vocabulary of a GGUF file, for packages that read such files; undefined if the file has none.
 * @throws ScalepointError `UNKNOWN_FORMAT` for vocabularies of other kinds, and pre-tokenizers that are not known
 */
export function tokenizerJson(header: GgufHeader): object | undefined {
  const key = (name: string) => header.metadata[`tokenizer.ggml.${name}`];
  const list = <T extends string | number>(name: string) => (arrayOf(header, `tokenizer.ggml.${name}`) ?? []) as T[];
  const [tokens, types] = [list<string>('tokens'), list<number>('token_type')];
  if (tokens.length === 0) return undefined;
  const kind = key('model');
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
  const added = tokens.flatMap((content, id) => {
    const type = types[id];
    if (type !== kinds.control && type !== kinds.user && type !== kinds.unknown) return [];
    const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false };
    return [{ id, content, ...flags, special: type !== kinds.user }];
  });
  const common = { version: '1.0', truncation: null, padding: null, added_tokens: added, post_processor: null };
  if (kind === 'gpt2') {
    const pre = key('pre');
    const steps = stepsOf(pre);
    if (steps === undefined) throw cannot(`the pre-tokenizer ${show(pre)} is not known here`);
    return {
      ...common,
      normalizer: null,
      pre_tokenizer: { type: 'Sequence', pretokenizers: steps },
      decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
      model: {
        ...{ type: 'BPE', dropout: null, unk_token: null, fuse_unk: false, byte_fallback: false },
        ignore_merges: pre === 'llama-bpe' || pre === 'tekken',
        ...{ vocab, merges: list<string>('merges') },
      },
    };
  }
  if (kind !== 'llama') throw cannot(`the vocabulary ${show(kind)} cannot be read here`);
  if (!types.includes(kinds.byte)) throw cannot('the vocabulary has no tokens of single bytes');
  const addsBlank = key('add_space_prefix') !== false;
  const unknown = tokens[types.indexOf(kinds.unknown)] ?? null;
  const blankFrom = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
  const blankTo = { type: 'Replace', pattern: { String: '▁' }, content: ' ' };
  return {
    ...common,
    normalizer: {
      type: 'Sequence',
      normalizers: [...(addsBlank ? [{ type: 'Prepend', prepend: '▁' }] : []), blankFrom],
    },
    pre_tokenizer: null,
    decoder: {
      type: 'Sequence',
      decoders: [
        ...[blankTo, { type: 'ByteFallback' }, { type: 'Fuse' }],
        ...(addsBlank ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
      ],
    },
    model: {
      ...{ type: 'BPE', dropout: null, unk_token: unknown, fuse_unk: true, byte_fallback: true, ignore_merges: false },
      ...{ vocab, merges: mergesOf(tokens, types, list<number>('scores')) },
    },
  };
}
