// Learns a byte-level vocabulary: words are cut as GPT-2 does, and the most frequent pair of neighboring tokens is merged, again and again.
// Reference: github.com/huggingface/tokenizers, tokenizers/src/models/bpe/trainer.rs at v0.20.

/** Tokens of their own, which no text becomes. */
export const special = { unknown: 0, first: 1, last: 2 };
const specialNames = ['<unk>', '<s>', '</s>'];

const words = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

/** The character that stands for each byte in a tokenizer.json: itself if it is visible, otherwise one from U+0100 on. */
const letters = (() => {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCodePoint(visible ? byte : next++);
  });
})();

const bytesOf = (text) => [...new TextEncoder().encode(text)];

/**
 * Learns merges. Of pairs that are equally frequent, the one with the smaller tokens comes first.
 * @param {Iterable<string>} texts @param {number} size number of tokens, special ones and 256 bytes included
 */
export function learnVocabulary(texts, size) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const text of texts) for (const [word] of text.matchAll(words)) counts.set(word, (counts.get(word) ?? 0) + 1);
  const list = [...counts].map(([word, count]) => ({
    tokens: bytesOf(word).map((byte) => byte + specialNames.length),
    count,
  }));
  const tokens = [...specialNames, ...letters];
  /** @type {[number, number][]} */
  const merges = [];
  while (tokens.length < size) {
    /** @type {Map<number, number>} */
    const pairs = new Map();
    for (const { tokens: own, count } of list) {
      for (let i = 0; i + 1 < own.length; i++) {
        const key = own[i] * size + own[i + 1];
        pairs.set(key, (pairs.get(key) ?? 0) + count);
      }
    }
    let best;
    for (const [key, count] of pairs)
      if (best === undefined || count > best.count || (count === best.count && key < best.key)) best = { key, count };
    if (best === undefined) break;
    const pair = /** @type {[number, number]} */ ([Math.floor(best.key / size), best.key % size]);
    merges.push(pair);
    tokens.push(tokens[pair[0]] + tokens[pair[1]]);
    for (const word of list) word.tokens = merged(word.tokens, pair, tokens.length - 1);
  }
  return new Vocabulary(tokens, merges);
}

/** @param {number[]} tokens @param {[number, number]} pair @param {number} into */
function merged(tokens, [a, b], into) {
  const result = [];
  for (let i = 0; i < tokens.length; i++) {
    const isPair = tokens[i] === a && tokens[i + 1] === b;
    result.push(isPair ? into : tokens[i]);
    if (isPair) i++;
  }
  return result;
}

class Vocabulary {
  #known = new Map();

  /** @param {string[]} tokens @param {[number, number][]} merges */
  constructor(tokens, merges) {
    this.tokens = tokens;
    this.merges = merges;
  }

  /** Tokens of a text. @param {string} text @returns {number[]} */
  encode(text) {
    return [...text.matchAll(words)].flatMap(([word]) => {
      const known = this.#known.get(word);
      if (known !== undefined) return known;
      let tokens = bytesOf(word).map((byte) => byte + specialNames.length);
      for (const [i, pair] of this.merges.entries()) tokens = merged(tokens, pair, specialNames.length + 256 + i);
      this.#known.set(word, tokens);
      return tokens;
    });
  }

  /** A tokenizer.json. */
  json() {
    const added = specialNames.map((content, id) => {
      return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
    });
    const bytes = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
    return {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: added,
      normalizer: null,
      pre_tokenizer: bytes,
      post_processor: {
        type: 'TemplateProcessing',
        single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
        pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
        special_tokens: { '<s>': { id: '<s>', ids: [special.first], tokens: ['<s>'] } },
      },
      decoder: bytes,
      model: {
        type: 'BPE',
        dropout: null,
        unk_token: null,
        continuing_subword_prefix: null,
        end_of_word_suffix: null,
        fuse_unk: false,
        byte_fallback: false,
        ignore_merges: false,
        vocab: Object.fromEntries(this.tokens.map((token, id) => [token, id])),
        merges: this.merges.map(([a, b]) => `${this.tokens[a]} ${this.tokens[b]}`),
      },
    };
  }
}
