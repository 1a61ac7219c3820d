// Keys of tokenizers, as tables that were written from llama.cpp's converter and not from the code under test.
import { describe, expect, it } from 'vitest';
import { Config } from '../../../../web/src/architectures/huggingface/config.js';
import { parseSentencePiece } from '../../../../web/src/architectures/huggingface/protobuf.js';
import type { Conversion } from '../../../../web/src/architectures/recipe.js';
import { byName } from '../../support/recipes.js';
import { bytePieces, message, number, type Piece, sentencePieceFile } from '../../support/sentencepiece.js';
import { plainTokenizer, wordSettings, wordTokenizer } from '../../support/tiny-huggingface.js';
import { convertTokenizer, type Json } from '../../support/tokenizers.js';

const valueFor = ({ keys }: Conversion, name: string) => keys.find((key) => key.name === `tokenizer.${name}`)?.value;
const namesOf = ({ keys }: Conversion) => keys.slice(1).map(({ name }) => name.replace('tokenizer.', ''));
/** The keys behind the vocabulary. */
const small = ({ keys }: Conversion) =>
  keys
    .slice(1)
    .filter(({ type }) => !type.endsWith('[]'))
    .map(({ name, value }) => [name.replace('tokenizer.', ''), value]);

describe('Gemma 4', () => {
  // Written from conversion/gemma.py and LlamaHfVocab of gguf-py/gguf/vocab.py in Tippach/Franken-Llama at 1774451. Special are the tokens
  // that tokenizer_config.json names under keys that end in _token, or lists, as in version 5 of transformers; the names are those of the
  // published models.
  const settings = {
    bos_token: '<bos>',
    eos_token: '<eos>',
    sot_token: '<|turn>',
    soc_token: '<|channel>',
    escape_token: '<|"|>',
    extra_special_tokens: ['<|video|>'],
    chat_template: 'template',
    tokenizer_class: 'GemmaTokenizer',
  };
  const base: readonly (readonly [string, number])[] = [
    ['<pad>', 3],
    ['<eos>', 3],
    ['<bos>', 3],
    ['<unk>', 3],
    ['<mask>', 3],
    ['<0x0a>', 6],
    ['<|channel>', 4],
    ['<|"|>', 4],
    ['<|turn>', 3],
    ['<table>', 1],
    ['<unused0>', 1],
    ['▁a', 1],
  ];
  const added: readonly (readonly [string, number])[] = [
    ['<|video|>', 3],
    ['<later>', 4],
  ];
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`);
  const vocabulary = [...bytes, ...base.map(([token]) => token)];
  const merges = [
    ['▁', 'a'],
    [' ', 'a'],
  ];
  const tokenizer = {
    added_tokens: [...base.slice(0, -1), ...added].map(([content], i) => ({
      id: 256 + (i < base.length - 1 ? i : i + 1),
      content,
      // These do not count.
      special: content !== '<|turn>' && content !== '<table>',
    })),
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<bos>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
    },
    model: {
      type: 'BPE',
      byte_fallback: true,
      unk_token: '<unk>',
      vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
      merges,
    },
  };

  it('has types by what tokenizer_config.json names, and tokens that programs read', async () => {
    const files = { 'tokenizer.json': tokenizer, 'tokenizer_config.json': settings };
    const result = await convertTokenizer(files, { size: 270, architecture: 'gemma4' });
    expect(valueFor(result, 'ggml.tokens')).toEqual([...vocabulary, '<|video|>', '<later>']);
    expect(valueFor(result, 'ggml.token_type')).toEqual([
      ...bytes.map(() => 6),
      ...[...base, ...added].map(([, type]) => type),
    ]);
    expect(valueFor(result, 'ggml.scores')).toEqual(new Array(270).fill(-1000));
    expect(valueFor(result, 'ggml.merges')).toEqual(['▁ a', 'Ġ a']);
    expect(byName(small(result))).toEqual(
      byName([
        ['ggml.model', 'gemma4'],
        ['ggml.bos_token_id', 258],
        ['ggml.eos_token_id', 257],
        // Set by the template, and set again, which keeps its place.
        ['ggml.add_bos_token', true],
        ['chat_template', 'template'],
        ['ggml.add_space_prefix', false],
      ]),
    );
  });
});

describe('tokenizer.model', () => {
  const pieces: readonly Piece[] = [
    ['<unk>', 0, 2],
    ['<s>', 0, 3],
    ['</s>', 0, 3],
    ...bytePieces,
    ['▁a', -1],
    ['b', -2.5, 4],
    ['c', -3, 5],
  ];
  const model = sentencePieceFile(pieces);

  it('tokens, scores and types as they are, but those of the user become normal; fillers follow', async () => {
    const result = await convertTokenizer({ 'tokenizer.model': model }, { size: 264 });
    expect(namesOf(result)).toEqual(['ggml.model', 'ggml.pre', 'ggml.tokens', 'ggml.scores', 'ggml.token_type']);
    expect(byName(small(result))).toEqual(
      byName([
        ['ggml.model', 'llama'],
        ['ggml.pre', 'default'],
      ]),
    );
    expect((valueFor(result, 'ggml.tokens') as string[]).slice(-5)).toEqual(['▁a', 'b', 'c', '[PAD262]', '[PAD263]']);
    expect((valueFor(result, 'ggml.scores') as number[]).slice(-5)).toEqual([-1, -2.5, -3, -10000, -10000]);
    expect((valueFor(result, 'ggml.token_type') as number[]).slice(-5)).toEqual([1, 1, 5, 5, 5]);
    expect((valueFor(result, 'ggml.token_type') as number[]).slice(0, 4)).toEqual([2, 3, 3, 6]);
  });

  it('tokens that other files add', async () => {
    const files = {
      'tokenizer.model': model,
      'added_tokens.json': { '<|im_start|>': 262, '▁▁': 263, '[PAD]': 264 },
      'tokenizer_config.json': {
        added_tokens_decoder: {
          '1': { content: '<s>', special: true },
          '262': { content: '<|im_start|>', special: false },
          '263': { content: '▁▁', special: false },
        },
      },
    };
    const result = await convertTokenizer(files, { size: 264 });
    expect((valueFor(result, 'ggml.tokens') as string[]).slice(-2)).toEqual(['<|im_start|>', '  ']);
    expect((valueFor(result, 'ggml.scores') as number[]).slice(-2)).toEqual([-1000, -1000]);
    expect((valueFor(result, 'ggml.scores') as number[])[1]).toBe(-1000);
    // The text of the first one looks like a token that steers the model.
    expect((valueFor(result, 'ggml.token_type') as number[]).slice(-2)).toEqual([3, 4]);
    expect(result.notes).toMatchObject([
      { kind: 'tokensLeftOut', file: 'added_tokens.json', tokens: [264], rows: 264 },
    ]);
    const phi = await convertTokenizer(files, { size: 264, architecture: 'phi3' });
    expect((valueFor(phi, 'ggml.token_type') as number[]).slice(-2)).toEqual([4, 4]);
    expect((valueFor(phi, 'ggml.tokens') as string[]).at(-1)).toBe('▁▁');
  });

  it('goes before the vocabulary of tokenizer.json, which still says what is added', async () => {
    const files = {
      'tokenizer.model': sentencePieceFile(pieces, { normalizer: { 3: 0, 4: 0 } }),
      'tokenizer.json': plainTokenizer(),
      'tokenizer_config.json': { bos_token: '<s>', eos_token: { content: '</s>' }, add_bos_token: true },
    };
    const result = await convertTokenizer(files, { size: 262, architecture: 'gemma2' });
    expect((valueFor(result, 'ggml.tokens') as string[])[259]).toBe('▁a');
    expect(byName(small(result))).toEqual(
      byName([
        ['ggml.model', 'llama'],
        ['ggml.pre', 'default'],
        ['ggml.bos_token_id', 1],
        ['ggml.eos_token_id', 2],
        ['ggml.add_bos_token', true],
        ['ggml.add_space_prefix', false],
      ]),
    );
    expect(namesOf(result).at(-1)).toBe('ggml.add_space_prefix');
  });

  it('is refused if it is not BPE, has no tokens for bytes, or more tokens than the embedding has rows', async () => {
    const convert = (bytes: Uint8Array, size = 264) => convertTokenizer({ 'tokenizer.model': bytes }, { size });
    await expect(convert(sentencePieceFile(pieces, { trainer: { 3: 1 } }))).rejects.toMatchObject({
      code: 'UNKNOWN_FORMAT',
      message: expect.stringContaining('unigram'),
    });
    await expect(convert(sentencePieceFile(pieces.filter(([, , type]) => type !== 6)))).rejects.toThrow(
      /tokenizer\.model: 254 of the 256 tokens for single bytes/,
    );
    await expect(convert(model, 261)).rejects.toThrow(/"c" has the id 261, but the embedding has 261 rows/);
    await expect(convert(sentencePieceFile([...pieces, ['b', 0]]))).rejects.toThrow(
      /"b" occurs twice, with the ids 260 and 262/,
    );
    await expect(convert(sentencePieceFile(pieces, { normalizer: {} }))).resolves.toMatchObject({
      notes: [{ kind: 'joinsBlanks', file: 'tokenizer.model' }],
    });
  });

  it('may have fields that are not needed, of all kinds', () => {
    const more = [...number(9, 2 ** 33), ...message(4, [1, 2, 3]), 0x59, 1, 2, 3, 4, 5, 6, 7, 8];
    // A negative number has ten bytes.
    const negative = [0x60, ...new Array<number>(9).fill(0xff), 1];
    const read = parseSentencePiece(sentencePieceFile([['a', -1]], { more: [...more, ...negative] }));
    expect(read).toEqual({
      pieces: [{ text: 'a', score: -1, type: 1 }],
      kind: 2,
      addsBlank: true,
      removesBlanks: false,
      charsmap: new Uint8Array(0),
    });
  });

  it('fails with a typed error wherever it is cut, and for other files', () => {
    const file = sentencePieceFile([...pieces.slice(0, 3), ['▁a', -1]]);
    for (let size = 0; size < file.length; size++) {
      try {
        parseSentencePiece(file.subarray(0, size));
      } catch (error) {
        expect(error).toMatchObject({ name: 'ScalepointError', code: 'BAD_FILE' });
      }
    }
    const others = [
      Uint8Array.of(),
      new TextEncoder().encode('IQ== 0\nIg== 1\n'),
      new Uint8Array(64),
      new Uint8Array(64).fill(255),
      Uint8Array.from(message(1, [...number(1, 5)])),
      Uint8Array.from(message(1, message(1, [0xff]))),
      Uint8Array.from(message(1, number(3, 9))),
      Uint8Array.of(0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f),
      Uint8Array.of(0x0b),
    ];
    for (const other of others)
      expect(() => parseSentencePiece(other)).toThrow(expect.objectContaining({ code: 'BAD_FILE' }));
  });
});

describe('ChatGLM', () => {
  // Written from conversion/chatglm.py of github.com/ggml-org/llama.cpp at 32e9e04.
  const third: readonly Piece[] = [
    ['<unk>', 0, 2],
    ['<s>', 0, 3],
    ['</s>', 0, 3],
    ...bytePieces,
    ['▁a', -1],
    ['b', -2.5, 4],
  ];
  const roles = ['[MASK]', '[gMASK]', '[sMASK]', 'sop', 'eop', '<|system|>', '<|user|>', '<|assistant|>'];
  const file = sentencePieceFile(third, { normalizer: { 3: 1, 4: 0 } });
  const convert = (files: Json, size = 272, config: Json = { _name_or_path: 'THUDM/chatglm3-6b' }) =>
    convertTokenizer(files, { size, architecture: 'chatglm', config: new Config(config) });

  it('3: the pieces, the tokens of its class, and fillers without scores', async () => {
    const result = await convert({
      'tokenizer.model': file,
      'tokenizer_config.json': { add_eos_token: false, eos_token: '<|user|>', chat_template: 'template' },
    });
    const tokens = valueFor(result, 'ggml.tokens') as string[];
    expect(tokens.slice(0, 4)).toEqual(['<unk>', '<bos>', '<eos>', '<0x00>']);
    expect(tokens.slice(259)).toEqual(['▁a', 'b', ...roles, '<|observation|>', '[PAD270]', '[PAD271]']);
    expect((valueFor(result, 'ggml.scores') as number[]).slice(259)).toEqual([-1, -2.5, ...new Array(11).fill(0)]);
    const types = valueFor(result, 'ggml.token_type') as number[];
    expect([...types.slice(0, 4), ...types.slice(259)]).toEqual([2, 3, 3, 6, 1, 1, ...new Array(9).fill(3), 5, 5]);
    expect(byName(small(result))).toEqual(
      byName([
        ['ggml.model', 'llama'],
        ['ggml.pre', 'chatglm-spm'],
        ['ggml.add_bos_token', false],
        ['ggml.add_eos_token', false],
        ['chat_template', 'template'],
      ]),
    );
    expect(result.notes).toEqual([]);
  });

  it('3: ids of config.json, and a beginning by tokenizer_config.json', async () => {
    const config = { _name_or_path: 'THUDM/chatglm3-6b', eos_token_id: 2, pad_token_id: 0 };
    const result = await convert(
      { 'tokenizer.model': file, 'tokenizer_config.json': { add_bos_token: true } },
      272,
      config,
    );
    expect(byName(small(result))).toEqual(
      byName([
        ['ggml.model', 'llama'],
        ['ggml.pre', 'chatglm-spm'],
        ['ggml.eos_token_id', 2],
        ['ggml.padding_token_id', 0],
        ['ggml.add_bos_token', true],
      ]),
    );
  });

  it('2 is refused, and told from 3 by names and tokens', async () => {
    await expect(convert({ 'tokenizer.model': file }, 272, {})).rejects.toMatchObject({
      code: 'UNKNOWN_FORMAT',
      message: expect.stringMatching(/tokenizer\.model: .*llama\.cpp does not have that of ChatGLM 2/),
    });
    const settings = { added_tokens_decoder: { '267': { content: '<|user|>', special: true } } };
    await convert({ 'tokenizer.model': file, 'tokenizer_config.json': settings }, 272, {});
    await expect(convert({ 'tokenizer.model': file }, 269)).rejects.toThrow(
      /"<\|observation\|>" has the id 269, but the embedding has 269 rows/,
    );
  });

  /** Lines of a vocabulary of tiktoken: 256 bytes, and tokens behind them. */
  const ranksOf = (more: readonly string[]) =>
    [...Array.from({ length: 256 }, (_, i) => Buffer.of(i)), ...more.map((token) => Buffer.from(token))].map(
      (token, rank) => `${token.toString('base64')} ${rank}`,
    );
  const rankFile = (lines: readonly string[]) => new TextEncoder().encode(`${lines.join('\n')}\n`);

  it('4: the vocabulary of tiktoken, its merges, and the added tokens that tokenizer_config.json lists', async () => {
    const lines = ranksOf(['ab', 'c ', 'abc ', 'xyz']);
    const decoder = Object.fromEntries(
      ['<|endoftext|>', '[gMASK]', '<|user|>', 'plain'].map((content, i) => [
        String(260 + i),
        { content, special: content !== 'plain' },
      ]),
    );
    const result = await convert(
      { 'tokenizer.model': rankFile(lines), 'tokenizer_config.json': { added_tokens_decoder: decoder } },
      265,
      { eos_token_id: [260, 262], pad_token_id: 260 },
    );
    const tokens = valueFor(result, 'ggml.tokens') as string[];
    expect([tokens[0], tokens[32], tokens[65], ...tokens.slice(256)]).toEqual([
      ...['Ā', 'Ġ', 'A', 'ab', 'cĠ', 'abcĠ', 'xyz'],
      ...['<|endoftext|>', '[gMASK]', '<|user|>', 'plain', '[PAD264]'],
    ]);
    expect((valueFor(result, 'ggml.token_type') as number[]).slice(259)).toEqual([1, 3, 3, 3, 4, 5]);
    expect(valueFor(result, 'ggml.merges')).toEqual(['a b', 'c Ġ', 'ab cĠ']);
    expect(result.notes).toMatchObject([
      { kind: 'ignoreMerges', tokens: 1, text: expect.stringContaining('"xyz"') },
      { kind: 'severalTokens', role: 'eos' },
    ]);
    expect(byName(small(result))).toEqual(
      byName([
        ['ggml.model', 'gpt2'],
        ['ggml.pre', 'chatglm-bpe'],
        ['ggml.eos_token_id', 260],
        ['ggml.padding_token_id', 260],
        ['ggml.eot_token_id', 262],
        ['ggml.unknown_token_id', 260],
        ['ggml.add_bos_token', false],
      ]),
    );
  });

  it('4: the added tokens of its class if none are listed', async () => {
    const result = await convert({ 'tokenizer.model': rankFile(ranksOf([])) }, 270, {});
    const tokens = valueFor(result, 'ggml.tokens') as string[];
    expect([tokens[256], tokens[258], tokens[260], tokens[263], tokens[269]]).toEqual([
      ...['<|endoftext|>', '[gMASK]', '<sop>', '<|user|>', '<|end_of_video|>'],
    ]);
    expect(byName(small(result).slice(2))).toEqual(
      byName([
        ['ggml.eos_token_id', 256],
        ['ggml.eot_token_id', 263],
        ['ggml.unknown_token_id', 256],
        ['ggml.add_bos_token', false],
      ]),
    );
  });

  it.each([
    ['a line without a rank', [...ranksOf([]), 'YWI='], /line 257 is not a token in base64 and its rank/],
    ['no base64', [...ranksOf([]), 'YWI=Y 256'], /line 257 is not/],
    ['a token that is there twice', ranksOf(['a']), /the token "a" occurs twice/],
    ['a rank that is there twice', [...ranksOf([]), 'YWI= 5'], /have the same id 5/],
    ['a token of 257 bytes', ranksOf(['x'.repeat(257)]), /the token of line 257 has 257 bytes/],
    ['too many tokens', ranksOf(Array.from({ length: 99 }, (_, i) => `x${i}`)), /but the embedding has 270 rows/],
  ])('4: %s is an error', async (_, lines, words) => {
    await expect(convert({ 'tokenizer.model': rankFile(lines) }, 270, {})).rejects.toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringMatching(words),
    });
  });
});

describe('tokens with NUL, at which llama.cpp ends them', () => {
  const convert = (contents: readonly string[], architecture = 'llama') => {
    const json = plainTokenizer();
    const added = contents.map((content, i) => ({ id: 264 + i, content, special: false }));
    (json.added_tokens as unknown[]).push(...added);
    return convertTokenizer({ 'tokenizer.json': json }, { size: 268, architecture });
  };

  it('are named in a note', async () => {
    const one = await convert(['xyz\0c']);
    expect(one.notes).toMatchObject([
      { kind: 'tokensEnded', tokens: [264], text: expect.stringContaining('"xyz\\u0000c" with the id 264') },
    ]);
    expect((await convert(['\0', '\0more', 'w'])).notes).toMatchObject([{ kind: 'tokensEnded', tokens: [264, 265] }]);
  });

  it('are an error if they equal others then', async () => {
    for (const [contents, words] of [
      [['b\0c'], /"b" and "b\\u0000c", with the ids 260 and 264, are equal up to a NUL/],
      [['xyz\0c', 'xyz\0d'], /"xyz\\u0000c" and "xyz\\u0000d", with the ids 264 and 265/],
    ] as const)
      await expect(convert(contents)).rejects.toMatchObject({
        code: 'BAD_FILE',
        message: expect.stringMatching(words),
      });
  });

  it('are counted once in WordPiece', async () => {
    const json = wordTokenizer();
    (json.model as { vocab: Record<string, number> }).vocab['x\0y'] = 12;
    const files = { 'tokenizer.json': json, 'tokenizer_config.json': wordSettings };
    const result = await convertTokenizer(files, { size: 13, architecture: 'bert' });
    expect(result.notes).toMatchObject([{ kind: 'tokensEnded', tokens: [12] }]);
  });
});

describe('tokenizer.json made of SentencePiece', () => {
  const tokenizer = (more: Json = {}): Json => {
    const json = plainTokenizer(more);
    const model = json.model as { vocab: Record<string, number>; merges: unknown };
    Object.assign(model.vocab, { ab: 264, abc: 265, '▁a': 266 });
    model.merges = ['a b', 'ab c', ['a', 'bc'], '▁ a'];
    return json;
  };

  it('scores by the first merge that makes a token', async () => {
    const result = await convertTokenizer({ 'tokenizer.json': tokenizer() }, { size: 268 });
    expect((valueFor(result, 'ggml.tokens') as string[]).slice(259)).toEqual([
      ...'abcd▁',
      'ab',
      'abc',
      '▁a',
      '[PAD267]',
    ]);
    expect((valueFor(result, 'ggml.scores') as number[]).slice(259)).toEqual([0, 0, 0, 0, 0, 0, -1, -3, -10000]);
    expect((valueFor(result, 'ggml.scores') as number[]).slice(0, 4)).toEqual([-1000, -1000, -1000, 0]);
    expect((valueFor(result, 'ggml.token_type') as number[]).slice(0, 4)).toEqual([2, 3, 3, 6]);
    expect((valueFor(result, 'ggml.token_type') as number[]).slice(-2)).toEqual([1, 5]);
    expect(valueFor(result, 'ggml.pre')).toBe('default');
  });

  it('says whether a blank is put before the text', async () => {
    const prefix = async (more: Json, settings: Json = {}, architecture = 'llama') =>
      valueFor(
        await convertTokenizer(
          { 'tokenizer.json': tokenizer(more), 'tokenizer_config.json': settings },
          { size: 268, architecture },
        ),
        'ggml.add_space_prefix',
      );
    const replace = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
    const prepend = { type: 'Prepend', prepend: '▁' };
    const metaspace = (prepend_scheme: string) => ({
      normalizer: null,
      pre_tokenizer: { type: 'Metaspace', prepend_scheme },
    });
    expect(await prefix({})).toBe(false);
    expect(await prefix({ normalizer: { type: 'Sequence', normalizers: [prepend, replace] } })).toBeUndefined();
    expect(await prefix(metaspace('first'))).toBeUndefined();
    expect(await prefix(metaspace('never'))).toBe(false);
    expect(await prefix({}, { add_prefix_space: true })).toBe(true);
    expect(await prefix({}, { add_prefix_space: true }, 'phi3')).toBe(false);
  });

  it('leaves out what is added beyond the embedding', async () => {
    const json = tokenizer();
    (json.added_tokens as unknown[]).push({ id: 268, content: '<image>', special: true });
    const result = await convertTokenizer({ 'tokenizer.json': json }, { size: 267 });
    expect(result.notes).toMatchObject([{ kind: 'tokensLeftOut', file: 'tokenizer.json', tokens: [268], rows: 267 }]);
  });
});

describe('byte-level tokenizers', () => {
  const tokenizer = (more: Json = {}): Json => ({
    added_tokens: [
      { id: 4, content: '<|end|>', special: false },
      { id: 5, content: '▁tool', special: false },
      { id: 6, content: '<s>', special: true },
    ],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: true },
    model: { type: 'BPE', vocab: { a: 0, b: 1, ab: 2, Ġ: 3 }, merges: [['a', 'b']] },
    ...more,
  });
  const convert = (json: Json, size = 8, config: Json = {}, settings: Json = {}) =>
    convertTokenizer(
      { 'tokenizer.json': json, 'tokenizer_config.json': settings },
      { size, config: new Config(config) },
    );

  it('tokens, types and merges, and no scores', async () => {
    const result = await convert(tokenizer());
    expect(namesOf(result)).toEqual(['ggml.model', 'ggml.pre', 'ggml.tokens', 'ggml.token_type', 'ggml.merges']);
    expect(valueFor(result, 'ggml.model')).toBe('gpt2');
    expect(valueFor(result, 'ggml.tokens')).toEqual(['a', 'b', 'ab', 'Ġ', '<|end|>', ' tool', '<s>', '[PAD7]']);
    expect(valueFor(result, 'ggml.token_type')).toEqual([1, 1, 1, 1, 3, 4, 3, 5]);
    expect(valueFor(result, 'ggml.merges')).toEqual(['a b']);
    expect(result.notes).toMatchObject([{ kind: 'lostBytes', count: 253 }]);
  });

  it('a blank within a part of a merge is written as its character', async () => {
    const model = { type: 'BPE', vocab: { a: 0 }, merges: [[' ', 'a b']] };
    expect(valueFor(await convert(tokenizer({ model })), 'ggml.merges')).toEqual(['Ġ aĠb']);
  });

  it('merges are texts, pairs, or both', async () => {
    const merges = ['a b', 'ab Ġ'];
    const pairs = merges.map((merge) => merge.split(' '));
    for (const given of [merges, pairs, [merges[0], pairs[1]]]) {
      const model = { type: 'BPE', vocab: { a: 0 }, merges: given };
      expect(valueFor(await convert(tokenizer({ model })), 'ggml.merges')).toEqual(merges);
    }
    for (const wrong of ['a', 'a b c']) {
      const model = { type: 'BPE', vocab: { a: 0 }, merges: ['a b', wrong] };
      await expect(convert(tokenizer({ model }))).rejects.toThrow('model.merges[1] is not a pair of tokens');
    }
  });

  it('a vocabulary of 49152 tokens is for text without a beginning', async () => {
    const settings = { chat_template: 'x' };
    const result = await convert(tokenizer(), 49152, { vocab_size: 49152 }, settings);
    expect(byName(small(result).slice(2))).toEqual(
      byName([
        ['chat_template', 'x'],
        ['ggml.add_bos_token', false],
      ]),
    );
    const said = await convert(tokenizer(), 49152, { vocab_size: 49152 }, { ...settings, add_bos_token: true });
    expect(byName(small(said).slice(2))).toEqual(
      byName([
        ['ggml.add_bos_token', false],
        ['chat_template', 'x'],
      ]),
    );
  });

  it('a vocabulary of 32016 tokens has those that fill a gap', async () => {
    expect(byName(small(await convert(tokenizer(), 32016, { vocab_size: 32016 })).slice(2))).toEqual(
      byName([
        ['ggml.prefix_token_id', 32007],
        ['ggml.suffix_token_id', 32008],
        ['ggml.middle_token_id', 32009],
        ['ggml.eot_token_id', 32010],
      ]),
    );
  });

  it('a token that is added beyond the embedding is an error', async () => {
    await expect(convert(tokenizer(), 6)).rejects.toThrow(/"<s>" has the id 6, but the embedding has 6 rows/);
  });
});

describe('special tokens', () => {
  const special = (id: string) => ({ SpecialToken: { id, type_id: 0 } });
  const sequence = (id: string) => ({ Sequence: { id, type_id: 0 } });
  const template = (single: unknown[], pair: unknown[] = []) => ({
    post_processor: {
      type: 'Sequence',
      processors: [{ type: 'ByteLevel' }, { type: 'TemplateProcessing', single, pair }],
    },
  });
  const convert = async (more: Json, settings: Json | undefined, config: Json = {}) => {
    const files = { 'tokenizer.json': plainTokenizer(more), 'tokenizer_config.json': settings };
    return small(await convertTokenizer(files, { size: 264, config: new Config(config) })).slice(2, -1);
  };

  it('by their texts first, then by config.json', async () => {
    const settings = { bos_token: '<s>', eos_token: { content: '</s>' }, unk_token: '<none>' };
    const config = { bos_token_id: 7, eos_token_id: [1, 2], pad_token_id: 0, unk_token_id: 3, sep_token_id: 999 };
    expect(await convert({}, settings, config)).toEqual([
      ['ggml.bos_token_id', 1],
      ['ggml.eos_token_id', 2],
      ['ggml.unknown_token_id', 3],
      ['ggml.padding_token_id', 0],
    ]);
    expect(await convert({}, undefined, { text_config: { eos_token_id: 2 } })).toEqual([['ggml.eos_token_id', 2]]);
  });

  it('what is added by the template, and what tokenizer_config.json says instead', async () => {
    const settings = { bos_token: '<s>', eos_token: '</s>' };
    const ids = [
      ['ggml.bos_token_id', 1],
      ['ggml.eos_token_id', 2],
    ];
    const begins = template([special('<s>'), sequence('A')], [special('<s>'), sequence('A'), sequence('B')]);
    expect(await convert(begins, settings)).toEqual([...ids, ['ggml.add_bos_token', true]]);
    const both = template([special('<s>'), sequence('A'), special('</s>')]);
    expect(await convert(both, settings)).toEqual([...ids, ['ggml.add_bos_token', true], ['ggml.add_eos_token', true]]);
    expect(await convert(both, { ...settings, add_eos_token: false })).toEqual([
      ...ids,
      ['ggml.add_bos_token', true],
      ['ggml.add_eos_token', false],
    ]);
    const separated = template(
      [sequence('A'), special('</s>')],
      [sequence('A'), special('</s>'), special('</s>'), sequence('B'), special('</s>')],
    );
    expect(await convert(separated, settings)).toEqual([
      ...ids,
      ['ggml.seperator_token_id', 2],
      ['ggml.add_eos_token', true],
      ['ggml.add_sep_token', true],
    ]);
  });

  it('the end of the template is the end of a text, and the other one ends a turn', async () => {
    const ends = template([sequence('A'), special('</s>')]);
    expect(await convert(ends, { eos_token: '<unk>' })).toEqual([
      ['ggml.eos_token_id', 2],
      ['ggml.eot_token_id', 0],
      ['ggml.add_eos_token', true],
    ]);
  });

  it('of WordPiece: the class begins, the separator ends, and words are marked', async () => {
    const single = [special('[CLS]'), sequence('A'), special('[SEP]')];
    const pair = [special('[CLS]'), sequence('A'), special('[SEP]'), sequence('B'), special('[SEP]')];
    const files = {
      'tokenizer.json': wordTokenizer({ post_processor: { type: 'TemplateProcessing', single, pair } }),
      'tokenizer_config.json': wordSettings,
    };
    const config = new Config({ type_vocab_size: 2 });
    const result = await convertTokenizer(files, { size: 13, architecture: 'bert', config });
    expect(byName(small(result))).toEqual(
      byName([
        ['ggml.token_type_count', 2],
        ['ggml.model', 'bert'],
        ['ggml.pre', 'jina-v2-en'],
        ['ggml.bos_token_id', 2],
        ['ggml.eos_token_id', 3],
        ['ggml.unknown_token_id', 1],
        ['ggml.seperator_token_id', 3],
        ['ggml.padding_token_id', 0],
        ['ggml.cls_token_id', 2],
        ['ggml.mask_token_id', 4],
        ['ggml.add_bos_token', true],
        ['ggml.add_eos_token', true],
        ['ggml.add_sep_token', false],
        ['ggml.normalizer.lowercase', true],
      ]),
    );
    expect((valueFor(result, 'ggml.tokens') as string[]).slice(3)).toEqual([
      '[SEP]',
      '[MASK]',
      '▁the',
      '▁cat',
      '▁sat',
      's',
      '▁on',
      '▁mat',
      '▁.',
      '▁[PAD12]',
    ]);
    expect(valueFor(result, 'ggml.token_type')).toEqual([3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 5]);
    const bare = { 'tokenizer.json': wordTokenizer() };
    await expect(convertTokenizer(bare, { size: 12, architecture: 'bert' })).rejects.toMatchObject({
      code: 'BAD_FILE',
    });
  });
});

describe('chat templates', () => {
  const keys = async (files: Json) => {
    const result = await convertTokenizer({ 'tokenizer.json': plainTokenizer(), ...files }, { size: 264 });
    return result.keys
      .filter(({ name }) => name.startsWith('tokenizer.chat'))
      .map(({ name, value }) => [name.slice('tokenizer.'.length), value]);
  };

  it('of tokenizer_config.json, else of a file of their own', async () => {
    const jinja = { 'chat_template.jinja': '{{ two }}', 'chat_template.json': { chat_template: '{{ three }}' } };
    const settings = { 'tokenizer_config.json': { chat_template: '{{ one }}' } };
    expect(await keys({})).toEqual([]);
    expect(await keys({ ...settings, ...jinja })).toEqual([['chat_template', '{{ one }}']]);
    expect(await keys(jinja)).toEqual([['chat_template', '{{ two }}']]);
    expect(await keys({ 'chat_template.json': jinja['chat_template.json'] })).toEqual([
      ['chat_template', '{{ three }}'],
    ]);
  });

  it('several by name', async () => {
    const chat_template = [
      { name: 'default', template: 'd' },
      { name: 'tool use', template: 't' },
      { name: 'rag', template: 'r' },
    ];
    expect(await keys({ 'tokenizer_config.json': { chat_template } })).toEqual([
      ['chat_template.tool_use', 't'],
      ['chat_template.rag', 'r'],
      ['chat_templates', ['tool_use', 'rag']],
      ['chat_template', 'd'],
    ]);
  });
});
