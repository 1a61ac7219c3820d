// Texts cut by llama.cpp with a converted vocabulary, and by Hugging Face's own tokenizer.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { architectureFacts } from '../../../../web/src/architectures/families/index.js';
import { Config } from '../../../../web/src/architectures/huggingface/config.js';
import { sampleTexts } from '../../../../web/src/architectures/huggingface/token-differences.js';
import type { TokenizerInput } from '../../../../web/src/architectures/huggingface/tokenizer-input.js';
import { needNative } from '../../support/native.js';
import { type Piece, sentencePieceFile } from '../../support/sentencepiece.js';
import { wordSettings, wordTokenizer } from '../../support/tiny-huggingface.js';
import {
  convertTokenizer,
  encoderOf,
  type Json,
  nativeTokenizer,
  needTokenizers,
  realTokenizer,
  texts,
} from '../../support/tokenizers.js';

needNative();
needTokenizers();

/** Which texts llama.cpp and Hugging Face cut differently. */
async function differing(
  files: { readonly tokenizer: Json; readonly settings?: Json },
  conversion: Awaited<ReturnType<typeof convertTokenizer>>,
  some: readonly string[] = texts,
  special = false,
): Promise<string[]> {
  using native = nativeTokenizer(conversion);
  const encoder = await encoderOf(files.tokenizer, files.settings);
  return some.filter((text) => {
    const expected = encoder.encode(text, { add_special_tokens: special }).ids;
    return JSON.stringify(native.tokenize(text, { parse: true, special })) !== JSON.stringify(expected);
  });
}

const filesOf = ({ tokenizer, settings }: { tokenizer: Json; settings?: Json }) => ({
  'tokenizer.json': tokenizer,
  ...(settings === undefined ? {} : { 'tokenizer_config.json': settings }),
});

describe('real tokenizers', () => {
  it('Llama 2: tokenizer.json with tokens for bytes, and a beginning that is added', async () => {
    const real = realTokenizer('llama2');
    const conversion = await convertTokenizer(filesOf(real), { size: 32000 });
    expect(conversion.notes).toEqual([]);
    expect(await differing(real, conversion, [...texts, ...sampleTexts])).toEqual([]);
    expect(await differing(real, conversion, ['', 'one', '<s>two</s>'], true)).toEqual([]);
  });

  it('Qwen3, cut to its first 6000 merges to save time', async () => {
    const { tokenizer, settings } = realTokenizer('qwen3');
    const model = tokenizer.model as { vocab: Record<string, number>; merges: unknown[] };
    model.merges = model.merges.slice(0, 6000);
    model.vocab = Object.fromEntries(Object.entries(model.vocab).filter(([, id]) => id < 6256));
    const added = tokenizer.added_tokens as { id: number; content: string }[];
    for (const token of added) token.id -= 151643 - 6256;
    const real = { tokenizer, settings };
    const conversion = await convertTokenizer(filesOf(real), { size: 6400, architecture: 'qwen3' });
    const keys = new Map(conversion.keys.map(({ name, value }) => [name, value]));
    expect(keys.get('tokenizer.ggml.pre')).toBe('qwen2');
    expect(await differing(real, conversion, [...texts, '<|im_start|>user\nhi<|im_end|>\n'])).toEqual([]);
    // Hugging Face composes these two characters to one.
    expect(conversion.notes).toMatchObject([{ kind: 'composes' }]);
    expect(await differing(real, conversion, ['e\u0301'])).toHaveLength(1);
  });

  const samples = process.env.SCALEPOINT_SAMPLES;
  it.skipIf(samples === undefined)('TinyStories: without tokens for bytes, on texts that it covers', async () => {
    const read = (name: string) =>
      JSON.parse(readFileSync(join(samples as string, 'tinystories-656k', name), 'utf8')) as Json;
    const real = { tokenizer: read('tokenizer.json'), settings: read('tokenizer_config.json') };
    const conversion = await convertTokenizer(filesOf(real), { size: 2048, missingBytes: 'keep' });
    const covered = [
      'Once upon a time, there was a little girl named Lily.',
      'He said, "I want to play with the big dog!"\nThe dog was very happy.',
      'Tom and Sue went to the park. They saw 3 birds.',
    ];
    expect(await differing(real, conversion, covered, true)).toEqual([]);
  });
});

/** The characters of byte-level vocabularies for the 256 bytes. */
const characters = (() => {
  const stands = (byte: number) => (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(stands(byte) ? byte : next++));
})();

/**
 * A byte-level tokenizer whose merges were learned from the texts as wholes. They cross the ends of words, so a wrong way of cutting words
 * is seen at once.
 */
const learn = (alphabet: readonly string[], pieces: string[][], rounds = 300) => {
  const merges: [string, string][] = [];
  const vocabulary = new Set(alphabet);
  for (let round = 0; round < rounds; round++) {
    const counts = new Map<string, { pair: [string, string]; count: number }>();
    for (const piece of pieces)
      for (let i = 1; i < piece.length; i++) {
        const pair: [string, string] = [piece[i - 1]!, piece[i]!];
        const key = pair.join(' ');
        counts.set(key, { pair, count: (counts.get(key)?.count ?? 0) + 1 });
      }
    const best = [...counts.values()].reduce((a, b) => (b.count > a.count ? b : a));
    const [left, right] = best.pair;
    if (vocabulary.has(left + right)) break;
    merges.push(best.pair);
    vocabulary.add(left + right);
    pieces.forEach((piece, p) => {
      const next: string[] = [];
      for (let i = 0; i < piece.length; i++)
        next.push(piece[i] === left && piece[i + 1] === right ? piece[i] + piece[++i]! : piece[i]!);
      pieces[p] = next;
    });
  }
  const vocab = Object.fromEntries([...vocabulary].map((token, id) => [token, id]));
  return { vocab, merges, size: vocabulary.size };
};
const lettersOf = (text: string) => [...new TextEncoder().encode(text)].map((byte) => characters[byte]!);
const learned = learn(characters, texts.map(lettersOf));
/** The same without merges of digits, which DeepSeek's vocabulary does not have, either. */
const { vocab: plainVocab, merges: plainMerges } = learn(
  characters,
  texts.map((text) => lettersOf(text.replaceAll(/\d+/g, ''))),
);

/** A vocabulary of tiktoken. */
const rankFile = (vocab: Record<string, number>): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(
    Object.entries(vocab)
      .map(([token, rank]) => {
        const bytes = Uint8Array.from(token, (letter) => characters.indexOf(letter));
        return `${Buffer.from(bytes).toString('base64')} ${rank}\n`;
      })
      .join(''),
  );

/** Tokens by tiktoken's rule: in each word the neighbors whose bytes together have the least rank become one. */
function tiktoken(
  text: string,
  ranks: ReadonlyMap<string, number>,
  pattern = /'s|'t|'re|'ve|'m|'ll|'d|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+/giu,
): number[] {
  return [...text.matchAll(pattern)].flatMap(([word]) => {
    const parts = [...new TextEncoder().encode(word)].map((byte) => characters[byte] as string);
    for (;;) {
      const all = parts.slice(1).map((part, i) => ranks.get(`${parts[i]}${part}`) ?? Infinity);
      const least = Math.min(...all);
      if (!(least < Infinity)) return parts.map((part) => ranks.get(part) as number);
      const at = all.indexOf(least);
      parts.splice(at, 2, `${parts[at]}${parts[at + 1]}`);
    }
  });
}

const byteLevel = (use_regex: boolean) => ({
  type: 'ByteLevel',
  add_prefix_space: false,
  trim_offsets: true,
  use_regex,
});
const split = (pattern: string) => ({
  type: 'Split',
  pattern: { Regex: pattern },
  behavior: 'Isolated',
  invert: false,
});
const sequence = (...pretokenizers: object[]) => ({ type: 'Sequence', pretokenizers });

const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const words = (digits: string) =>
  String.raw`${contractions}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}${digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
const cased = (end: string, digits: string) =>
  String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+${end}|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*${end}|\p{N}${digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
const deepseek =
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+';

const deepseekLlm = [
  '[\r\n]',
  String.raw`\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+`,
  String.raw`\s?[!-/:-~！-／：-～‘-‟　-。]+`,
  String.raw`\s+$`,
  '[一-龥ࠀ-一가-퟿]+',
];
const ways: readonly (readonly [
  name: string,
  preTokenizer: object,
  more?: Json,
  settings?: Json,
  facts?: TokenizerInput['facts'],
])[] = [
  ['llama-bpe', sequence(split(words('{1,3}')), byteLevel(false)), { ignore_merges: true }],
  ['smaug-bpe', sequence(split(words('{1,3}')), byteLevel(false))],
  ['qwen2', sequence(split(words('')), byteLevel(false))],
  ['hunyuan', sequence(split(words('')), byteLevel(false)), {}, {}, architectureFacts('hunyuan-moe')],
  ['gpt-2', byteLevel(true)],
  ['starcoder', sequence({ type: 'Digits', individual_digits: true }, byteLevel(true))],
  [
    'smollm',
    sequence({ type: 'Digits', individual_digits: true }, byteLevel(true)),
    {},
    { clean_up_tokenization_spaces: false },
  ],
  [
    'falcon',
    sequence(
      { type: 'Punctuation', behavior: 'Contiguous' },
      byteLevel(true),
      { type: 'Digits', individual_digits: false },
      split('[0-9][0-9][0-9]'),
    ),
  ],
  ['tekken', sequence(split(cased('', '')), byteLevel(false)), { ignore_merges: true }],
  [
    'gpt-4o',
    sequence({ ...split(cased(`${contractions}?`, '{1,3}')), behavior: 'Removed', invert: true }, byteLevel(false)),
  ],
  [
    'deepseek-v3',
    sequence(split(String.raw`\p{N}{1,3}`), split('[一-龥぀-ゟ゠-ヿ]+'), split(deepseek), byteLevel(false)),
  ],
  [
    'hunyuan-dense',
    sequence(split(String.raw`\p{N}{1,3}`), split('[一-龥぀-ゟ゠-ヿ]+'), split(deepseek), byteLevel(false)),
    {},
    {},
    architectureFacts('hunyuan-dense'),
  ],
  [
    'youtu',
    sequence(
      split('[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+'),
      split(cased(`${contractions}?`, '')),
      byteLevel(false),
    ),
  ],
  [
    'exaone-moe',
    sequence(
      split(
        String.raw`${contractions}|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`,
      ),
      byteLevel(false),
    ),
  ],
  [
    'deepseek-llm',
    sequence(...deepseekLlm.map(split), { type: 'Digits', individual_digits: true }, byteLevel(false)),
    { vocab: plainVocab, merges: plainMerges },
  ],
  [
    'deepseek-coder',
    sequence(
      split('[\r\n]'),
      split(String.raw`\s?\p{L}+`),
      split(String.raw`\s?\p{P}+`),
      split('[一-龥ࠀ-一가-퟿]+'),
      { type: 'Digits', individual_digits: true },
      byteLevel(false),
    ),
  ],
];

describe('ways of cutting words', () => {
  const tokenizerOf = (pre_tokenizer: object, more: Json = {}): Json => ({
    added_tokens: [],
    normalizer: null,
    pre_tokenizer,
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: { type: 'BPE', vocab: learned.vocab, merges: learned.merges, ...more },
  });

  it.each(ways.map((way) => ({ way, name: way[0] })))(
    '$name',
    async ({ way: [name, preTokenizer, more, settings, facts] }) => {
      const tokenizer = tokenizerOf(preTokenizer, more);
      const files = { tokenizer, settings: settings ?? {} };
      const conversion = await convertTokenizer(filesOf(files), {
        size: learned.size,
        architecture: 'qwen2',
        ...(facts === undefined ? {} : { facts }),
      });
      expect(conversion.keys.find((key) => key.name === 'tokenizer.ggml.pre')?.value).toBe(name);
      // The samples differ for patterns that llama.cpp lacks, which is counted below.
      const own = name === 'tekken' || name === 'gpt-4o' ? texts : [...texts, ...sampleTexts];
      expect(await differing(files, conversion, own)).toEqual([]);
      expect(await differing(files, conversion, ['', 'one'], true)).toEqual([]);
    },
  );

  it.each<[string, object, object]>([
    [
      'bailingmoe',
      split(
        String.raw`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
      ),
      split(
        String.raw`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
      ),
    ],
    ['bloom', split(String.raw` ?[^(\s|[.,!?…。，、।۔،])]+`), split(String.raw` ?[^(\s|.,!?…。，、।۔،)]+`)],
  ])('%s, whose pattern is spelled otherwise for JavaScript', async (name, own, spelled) => {
    const conversion = await convertTokenizer(
      { 'tokenizer.json': tokenizerOf(sequence(own, byteLevel(false))) },
      { size: learned.size, architecture: 'qwen2' },
    );
    expect(conversion.keys.find((key) => key.name === 'tokenizer.ggml.pre')?.value).toBe(name);
    const tokenizer = tokenizerOf(sequence(spelled, byteLevel(false)));
    expect(await differing({ tokenizer }, conversion, [...texts, ...sampleTexts])).toEqual([]);
  });

  it('viking, whose digits are words of their own', async () => {
    const digits = { type: 'Digits', individual_digits: true };
    const conversion = await convertTokenizer(
      {
        'tokenizer.json': tokenizerOf(
          sequence(split(String.raw` ?[^(\s|[.,!?…。，、।۔،])]+`), digits, byteLevel(false)),
        ),
      },
      { size: learned.size, architecture: 'qwen2' },
    );
    expect(conversion.keys.find((key) => key.name === 'tokenizer.ggml.pre')?.value).toBe('viking');
    const spelled = sequence(split(String.raw` ?[^(\s|.,!?…。，、।۔،)]+`), digits, byteLevel(false));
    expect(await differing({ tokenizer: tokenizerOf(spelled) }, conversion, [...texts, ...sampleTexts])).toEqual([]);
  });

  it.each(['tekken', 'gpt-4o'])('%s: texts that llama.cpp cuts otherwise are counted', async (name) => {
    const [, preTokenizer, more] = ways.find((way) => way[0] === name)!;
    // Merges of the samples themselves, so that other cuts give other tokens.
    const marked = sampleTexts.filter((text) => /\p{M}/u.test(text));
    const own = learn(
      characters,
      marked.map((text) => [...new TextEncoder().encode(text)].map((byte) => characters[byte]!)),
      80,
    );
    const tokenizer = tokenizerOf(preTokenizer, { ...more, vocab: own.vocab, merges: own.merges });
    const conversion = await convertTokenizer({ 'tokenizer.json': tokenizer }, { size: own.size });
    const others = await differing({ tokenizer }, conversion, sampleTexts);
    expect(others.length).toBeGreaterThan(20);
    expect(conversion.notes).toMatchObject([
      { kind: 'tokensDiffer', count: others.length, of: 220, texts: others.slice(0, 8) },
    ]);
  });

  it('that are given by name count the texts, too', async () => {
    const pattern = words('{1,2}');
    const tokenizer = tokenizerOf(sequence(split(pattern), byteLevel(false)));
    const conversion = await convertTokenizer(
      { 'tokenizer.json': tokenizer },
      { size: learned.size, preTokenizer: 'qwen2' },
    );
    const others = await differing({ tokenizer }, conversion, sampleTexts);
    expect(others.length).toBeGreaterThan(0);
    expect(conversion.notes.find(({ kind }) => kind === 'tokensDiffer')).toMatchObject({ count: others.length });
  });

  it.each([
    ['end_of_word_suffix', '</w>', sequence(split(words('')), byteLevel(false))],
    ['continuing_subword_prefix', '##', byteLevel(true)],
  ])('are refused for marks of words: %s', async (name, mark, preTokenizer) => {
    const convert = (value: string) =>
      convertTokenizer({ 'tokenizer.json': tokenizerOf(preTokenizer, { [name]: value }) }, { size: learned.size });
    await expect(convert(mark)).rejects.toMatchObject({
      code: 'UNKNOWN_FORMAT',
      message: `tokenizer.json: model.${name} is "${mark}", which llama.cpp does not have`,
    });
    await convert('');
  });

  it('the texts tell them apart', async () => {
    const tokenizer = tokenizerOf(ways[2]![1]);
    const conversion = await convertTokenizer({ 'tokenizer.json': tokenizer }, { size: learned.size });
    const keys = conversion.keys.map((key) =>
      key.name === 'tokenizer.ggml.pre' ? { name: key.name, type: 'string' as const, value: 'gpt-2' } : key,
    );
    expect(await differing({ tokenizer }, { ...conversion, keys })).not.toEqual([]);
  });

  it('are refused by their patterns if they are not known', async () => {
    for (const preTokenizer of [
      sequence(split(words('{1,2}')), byteLevel(false)),
      sequence(split(words('')), byteLevel(true)),
      { type: 'ByteLevel', add_prefix_space: true, use_regex: true },
      sequence({ type: 'Digits', individual_digits: false }, byteLevel(true)),
      sequence({ ...split(words('')), behavior: 'MergedWithNext' }, byteLevel(false)),
      null,
    ]) {
      const tokenizer = tokenizerOf(preTokenizer as object);
      await expect(convertTokenizer({ 'tokenizer.json': tokenizer }, { size: learned.size })).rejects.toMatchObject({
        code: 'UNKNOWN_FORMAT',
        message: expect.stringContaining('tokenizer.json: the pre-tokenizer is not known'),
      });
    }
  });
});

describe('ChatGLM', () => {
  const pre = ({ keys }: Awaited<ReturnType<typeof convertTokenizer>>) =>
    keys.find(({ name }) => name === 'tokenizer.ggml.pre')?.value;
  const tokenizer: Json = {
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: sequence(split(words('{1,3}')), byteLevel(false)),
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: { type: 'BPE', vocab: learned.vocab, merges: learned.merges },
  };

  it('GLM-4-9B with tokenizer.json, which goes before the vocabulary of tiktoken', async () => {
    const files = { 'tokenizer.json': tokenizer, 'tokenizer.model': rankFile(learned.vocab) };
    const conversion = await convertTokenizer(files, { size: learned.size, architecture: 'chatglm' });
    expect(pre(conversion)).toBe('chatglm-bpe');
    expect(await differing({ tokenizer }, conversion, [...texts, ...sampleTexts])).toEqual([]);
  });

  it.each(['chatglm', 'glm4'])('%s: a note says that whole words are not looked up', async (architecture) => {
    const model = { ...(tokenizer.model as Json), ignore_merges: true };
    const conversion = await convertTokenizer(
      { 'tokenizer.json': { ...tokenizer, model } },
      { size: learned.size, architecture },
    );
    expect(conversion.notes).toMatchObject([{ kind: 'ignoreMerges', stated: true }]);
  });

  it('GLM-4-9B with the vocabulary of tiktoken: tokens are those of its rule', async () => {
    const size = learned.size + 14;
    const conversion = await convertTokenizer(
      { 'tokenizer.model': rankFile(learned.vocab) },
      { size: size + 1, architecture: 'chatglm' },
    );
    expect(pre(conversion)).toBe('chatglm-bpe');
    expect(conversion.notes).toEqual([]);
    using native = nativeTokenizer(conversion);
    const ranks = new Map(Object.entries(learned.vocab));
    for (const text of [...texts, ...sampleTexts])
      expect(native.tokenize(text, { parse: true, special: false }), text).toEqual(tiktoken(text, ranks));
    const role = native.tokenize('[gMASK]<sop><|user|>a', { parse: true, special: false });
    expect(role).toEqual([2, 4, 7].map((n) => learned.size + n).concat(learned.vocab.a as number));
  });

  it('Kimi K2 with the vocabulary of tiktoken: tokens are those of its rule, and all its own tokens have a place', async () => {
    const size = learned.size + 256;
    const settings = {
      added_tokens_decoder: { [learned.size + 1]: { content: '[EOS]', special: true } },
      eos_token: '[EOS]',
    };
    const files = { 'tiktoken.model': rankFile(learned.vocab), 'tokenizer_config.json': settings };
    const conversion = await convertTokenizer(files, { size, architecture: 'deepseek2' });
    expect(pre(conversion)).toBe('kimi-k2');
    const keys = new Map(conversion.keys.map(({ name, value }) => [name, value]));
    expect(keys.get('tokenizer.ggml.eos_token_id')).toBe(learned.size + 1);
    const names = keys.get('tokenizer.ggml.tokens') as string[];
    expect(names.slice(learned.size, learned.size + 2)).toEqual([`<|reserved_token_${learned.size}|>`, '[EOS]']);
    // Chinese characters are words of their own.
    const letters = (kind: string) => String.raw`[[\p{${kind}}\p{Lm}\p{Lo}\p{M}]--\p{sc=Han}]`;
    const [high, low] = [letters(String.raw`Lu}\p{Lt`), letters('Ll')];
    const lead = String.raw`[^\r\n\p{L}\p{N}]?`;
    const end = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";
    const rest = String.raw`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
    const source = String.raw`\p{sc=Han}+|${lead}${high}*${low}+${end}|${lead}${high}+${low}*${end}|${rest}`;
    const ranks = new Map(Object.entries(learned.vocab));
    using native = nativeTokenizer(conversion);
    const differ = [...texts, ...sampleTexts].filter(
      (text) =>
        JSON.stringify(native.tokenize(text, { parse: true })) !==
        JSON.stringify(tiktoken(text, ranks, new RegExp(source, 'gv'))),
    );
    expect(differ).toEqual([]);
  });

  it('merges of a vocabulary of tiktoken are those of its tokenizer.json: Qwen3', async () => {
    const { tokenizer } = realTokenizer('qwen3');
    const { vocab, merges } = tokenizer.model as { vocab: Record<string, number>; merges: (string | string[])[] };
    const conversion = await convertTokenizer(
      { 'tokenizer.model': rankFile(vocab) },
      { size: 151657, architecture: 'chatglm' },
    );
    const own = conversion.keys.find(({ name }) => name === 'tokenizer.ggml.merges')?.value as string[];
    expect(own).toEqual(merges.map((merge) => [merge].flat().join(' ')));
  });

  it('ChatGLM 3 with the vocabulary of SentencePiece: tokens are those of Hugging Face for the same pieces', async () => {
    const real = realTokenizer('llama2');
    const { vocab, merges } = real.tokenizer.model as { vocab: Record<string, number>; merges: string[] };
    const tokens = Object.entries(vocab).sort(([, a], [, b]) => a - b);
    // The first merge that makes a token says its score.
    const scores = new Map(merges.map((merge, i) => [merge.replace(' ', ''), -i] as const).reverse());
    const typeOf = (id: number) => (id === 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1);
    const pieces = tokens.map(([token, id]): Piece => [token, scores.get(token) ?? 0, typeOf(id)]);
    const conversion = await convertTokenizer(
      { 'tokenizer.model': sentencePieceFile(pieces, { normalizer: { 3: 1, 4: 0 } }) },
      { size: 32064, architecture: 'chatglm', config: new Config({ _name_or_path: 'THUDM/chatglm3-6b' }) },
    );
    expect(pre(conversion)).toBe('chatglm-spm');
    // Their names differ there.
    const own = [...texts, ...sampleTexts].filter((text) => !/<\/?s>/.test(text));
    expect(await differing(real, conversion, own)).toEqual([]);
    using native = nativeTokenizer(conversion);
    expect(native.tokenize('[gMASK]sop<|user|>', { parse: true, special: false })).toEqual([32001, 32003, 32006]);
  });
});

describe('BPE that falls back to bytes', () => {
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`);
  const letters = [...new Set(sampleTexts.join(''))].filter((letter) => letter !== ' ' && letter < '\u1000');
  // As the trainer of Hugging Face makes it: one merge for each token, where SentencePiece's has all pairs that make it.
  const own = learn(
    ['<unk>', ...bytes, '▁', ...letters],
    sampleTexts.slice(0, 60).map((text) => [...`▁${text.replaceAll(' ', '▁')}`]),
    60,
  );
  const replaced = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
  const prepended = { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, replaced] };
  const tokenizerOf = (normalizer: object | null, pre_tokenizer: object | null, more: Json = {}): Json => ({
    added_tokens: [{ id: 0, content: '<unk>', special: true }],
    normalizer,
    pre_tokenizer,
    post_processor: null,
    decoder: { type: 'ByteFallback' },
    model: { type: 'BPE', byte_fallback: true, unk_token: '<unk>', vocab: own.vocab, merges: own.merges, ...more },
  });

  const whole = { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: false };
  const reversed = { merges: [...own.merges].reverse() };
  it.each<[string, object | null, object | null, Json?]>([
    ['with a blank where there is none', null, whole],
    ['with other merges', prepended, null, reversed],
    ['with single digits', replaced, { type: 'Digits', individual_digits: true }],
    ['with a pattern', replaced, split(String.raw`\p{N}{1,3}|▁?[^\p{N}▁]+`)],
  ])('%s: texts that llama.cpp cuts otherwise are counted', async (_, normalizer, preTokenizer, more) => {
    const tokenizer = tokenizerOf(normalizer, preTokenizer, more);
    const conversion = await convertTokenizer({ 'tokenizer.json': tokenizer }, { size: own.size });
    const others = await differing({ tokenizer }, conversion, sampleTexts);
    expect(others.length).toBeGreaterThan(0);
    expect(conversion.notes).toMatchObject([
      { kind: 'tokensDiffer', count: others.length, of: 220, texts: others.slice(0, 8) },
    ]);
  });

  it('with words, which Metaspace cuts unless it is told not to', async () => {
    // The package above does not cut them; the tokens are those of huggingface/tokenizers at 0.21, pre_tokenizers/metaspace.rs.
    const letters = Object.entries(own.vocab).filter(([token, id]) => id < 257 || [...token].length === 1);
    const model = { vocab: { ...Object.fromEntries(letters), 'o▁': own.size }, merges: [['o', '▁']] };
    const notes = async (split: boolean) => {
      const tokenizer = tokenizerOf(null, { ...whole, prepend_scheme: 'never', split }, model);
      return (await convertTokenizer({ 'tokenizer.json': tokenizer }, { size: own.size + 1 })).notes;
    };
    expect(await notes(false)).toEqual([]);
    // 'Hello Hello', and no other text has a blank behind this letter.
    expect(await notes(true)).toMatchObject([{ kind: 'tokensDiffer', count: 1, texts: ['Hello Hello'] }]);
  });

  it('is refused if llama.cpp cuts most texts otherwise, or a step is not known', async () => {
    const convert = (preTokenizer: object) =>
      convertTokenizer({ 'tokenizer.json': tokenizerOf(replaced, preTokenizer) }, { size: own.size });
    await expect(convert({ type: 'Split', pattern: { Regex: '.' }, behavior: 'Isolated' })).rejects.toThrow(
      /the pre-tokenizer "Split" is not supported for this kind of tokenizer: llama\.cpp would cut \d+ of 220/,
    );
    await expect(convert({ type: 'UnicodeScripts' })).rejects.toThrow('"UnicodeScripts" is not supported');
  });

  it('of bytes, whose fallback has no effect, is byte-level BPE', async () => {
    const tokenizer = {
      ...tokenizerOf(null, byteLevel(true)),
      added_tokens: [],
      model: { type: 'BPE', byte_fallback: true, vocab: learned.vocab, merges: learned.merges },
    };
    const conversion = await convertTokenizer({ 'tokenizer.json': tokenizer }, { size: learned.size });
    expect(conversion.keys.find((key) => key.name === 'tokenizer.ggml.model')?.value).toBe('gpt2');
    expect(await differing({ tokenizer }, conversion)).toEqual([]);
  });
});

describe('WordPiece', () => {
  const words = [
    'the cat sat.',
    'The CATS sat on the mat',
    'a dog',
    'cats, mats.',
    '',
    '[MASK] cat',
    'café Café CAFÉ cafe',
    '猫cat猫',
  ];
  const special = (id: string) => ({ SpecialToken: { id, type_id: 0 } });
  const template = {
    type: 'TemplateProcessing',
    single: [special('[CLS]'), { Sequence: { id: 'A', type_id: 0 } }, special('[SEP]')],
    pair: [],
    special_tokens: Object.fromEntries(['[CLS]', '[SEP]'].map((id, i) => [id, { id, ids: [2 + i], tokens: [id] }])),
  };

  it.each([
    ['in lower case', { lowercase: true, strip_accents: null }],
    ['in both cases', { lowercase: false, strip_accents: null }],
    ['in lower case with accents', { lowercase: true, strip_accents: false }],
  ])('%s', async (_, choice) => {
    const normalizer = { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, ...choice };
    const tokenizer = wordTokenizer({ normalizer, post_processor: template, decoder: { type: 'WordPiece' } });
    const { vocab } = tokenizer.model as { vocab: Record<string, number> };
    for (const word of ['cafe', 'café', 'Café', '猫']) vocab[word] = Object.keys(vocab).length;
    const files = { tokenizer, settings: wordSettings };
    const conversion = await convertTokenizer(filesOf(files), { size: 16, architecture: 'bert' });
    expect(await differing(files, conversion, words, true)).toEqual([]);
  });
});
