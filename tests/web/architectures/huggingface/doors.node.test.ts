// Folders as people have them: with tensors that runtimes add, wrappers of trainers, and tokenizers whose files say less than others.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import type { Conversion } from '../../../../web/src/architectures/recipe.js';
import { folderOf, type Weight } from '../../support/recipes.js';
import {
  bertWeights,
  decoderConfig,
  decoderWeights,
  plainTokenizer,
  tiny,
  wordTokenizer,
} from '../../support/tiny-huggingface.js';

type Json = Record<string, unknown>;

interface Change {
  readonly config?: Json;
  readonly files?: Json;
  readonly weights?: ReadonlyMap<string, Weight>;
  readonly name?: string;
  readonly architecture?: string;
}

const base = decoderWeights();
const convert = ({ config, files, weights = base, name = 'tiny', architecture = 'LlamaForCausalLM' }: Change = {}) =>
  convertHuggingface(
    folderOf(
      weights,
      { 'config.json': decoderConfig(architecture, config), 'tokenizer.json': plainTokenizer(), ...files },
      { name },
    ),
  );
const scalar: Weight = { shape: [], values: Float32Array.of(0.5) };
const keyValue = ({ keys }: Conversion, name: string) => keys.find((key) => key.name === name)?.value;
const kindsOf = ({ notes }: Conversion) => notes.map(({ kind }) => kind);

describe('tensors', () => {
  it.each([
    'self_attn.k_proj.k_scale',
    'self_attn.v_proj.v_scale',
    'self_attn.k_scale',
    'self_attn.attn.q_scale',
    'mlp.down_proj.input_scale',
    'mlp.down_proj.input_zero_point',
  ])('that say how a layer runs are left out: %s', async (end) => {
    const plain = await convert();
    const changed = await convert({ weights: new Map([...base, [`model.layers.1.${end}`, scalar]]) });
    expect(changed).toEqual(plain);
  });

  it('of a classifier are left out with a note', async () => {
    const weights = new Map([
      ...base,
      ['score.weight', { shape: [2, tiny.hidden], values: new Float32Array(2 * tiny.hidden) }],
    ]);
    const changed = await convert({ weights });
    expect(changed.tensors).toEqual((await convert()).tensors);
    expect(changed.notes).toMatchObject([{ kind: 'scoreLeftOut', tensors: ['score.weight'] }]);
  });

  it.each(['_orig_mod.', 'module.', 'module._orig_mod.'])(
    'have the names of their files in wrappers: %s',
    async (prefix) => {
      const weights = new Map([...base].map(([name, weight]) => [`${prefix}${name}`, weight]));
      const plain = await convert();
      const { tensors, keys } = await convert({ weights });
      expect(keys).toEqual(plain.keys);
      expect(tensors).toEqual(
        plain.tensors.map((recipe) => ({ ...recipe, sources: recipe.sources.map((name) => `${prefix}${name}`) })),
      );
      const inside = new Map(
        [...base].map(([name, weight]) => [name.replace(/layers\.(\d)\./, 'layers.$1._orig_mod.'), weight]),
      );
      expect((await convert({ weights: inside })).tensors.map(({ name }) => name)).toEqual(
        plain.tensors.map(({ name }) => name),
      );
    },
  );

  it('of a head that differs from a tied embedding get a note', async () => {
    const table = base.get('model.embed_tokens.weight') as Weight;
    const other = { ...table, values: table.values.map((value, i) => (i === 5 ? value + 1 : value)) };
    const withHead = (head: Weight) => new Map([...base, ['lm_head.weight', head]]);
    const config = { tie_word_embeddings: true };
    const written = await convert({ weights: withHead(other), config });
    expect(written.notes).toMatchObject([{ kind: 'tiedHead', tensors: ['lm_head.weight'], isWritten: true }]);
    expect(kindsOf(await convert({ weights: withHead(table), config }))).toEqual([]);
    expect(kindsOf(await convert({ weights: withHead(other), config: { tie_word_embeddings: false } }))).toEqual([]);
    const alone = new Map([...withHead(table)].filter(([name]) => name !== 'lm_head.weight'));
    expect(kindsOf(await convert({ weights: alone, config }))).toEqual([]);
  });
});

describe('tokenizers', () => {
  it('may have several ends of a text', async () => {
    const settings = { eos_token: '</s>' };
    const result = await convert({ config: { eos_token_id: [2, 1] }, files: { 'tokenizer_config.json': settings } });
    expect(keyValue(result, 'tokenizer.ggml.eos_token_id')).toBe(2);
    expect(result.notes).toEqual([]);
    const listed = await convert({ config: { eos_token_id: [5, 1] } });
    expect(keyValue(listed, 'tokenizer.ggml.eos_token_id')).toBe(5);
    expect(listed.notes).toMatchObject([{ kind: 'severalTokens', role: 'eos', tokens: [5, 1] }]);
    expect((await convert({ config: { eos_token_id: [5] } })).notes).toEqual([]);
  });

  it('may have a character in place of a token for its byte, as those of Gemma have', async () => {
    const tokenizer = plainTokenizer() as { model: { vocab: Record<string, number> } };
    const { vocab } = tokenizer.model;
    const [tab] = [vocab['<0x09>']];
    delete vocab['<0x09>'];
    vocab['\t'] = tab as number;
    expect((await convert({ files: { 'tokenizer.json': tokenizer } })).notes).toEqual([]);
    // A byte beyond ASCII is no character.
    vocab['\u00e9'] = vocab['<0xE9>'] as number;
    delete vocab['<0xE9>'];
    await expect(convert({ files: { 'tokenizer.json': tokenizer } })).rejects.toThrow('1 of the 256');
  });

  it.each(['BPE', 'WordPiece'] as const)('may leave out the type of their model: %s', async (type) => {
    const isBert = type === 'WordPiece';
    const whole = (isBert ? wordTokenizer() : plainTokenizer()) as { model: Json };
    const settings = {
      unk_token: '[UNK]',
      sep_token: '[SEP]',
      cls_token: '[CLS]',
      pad_token: '[PAD]',
      mask_token: '[MASK]',
    };
    const given = (model: Json): Change => ({
      ...(isBert
        ? {
            architecture: 'BertModel',
            weights: bertWeights(13),
            config: { layer_norm_eps: 1e-12, type_vocab_size: 2, vocab_size: 13 },
          }
        : {}),
      files: { 'tokenizer.json': { ...whole, model }, ...(isBert ? { 'tokenizer_config.json': settings } : {}) },
    });
    const stated = { ...whole.model, ...(isBert ? { max_input_chars_per_word: 100 } : {}) };
    const { type: _, ...bare } = stated as Json & { type: unknown };
    expect(await convert(given(bare))).toEqual(await convert(given(stated)));
  });

  it('of BERT may be those of XLM-R', async () => {
    const pieces = ['<s>', '<pad>', '</s>', '<unk>', '▁', 'a', 'b', '▁a', 'ab', 'c', '▁ab', '<mask>'];
    const tokenizer = {
      added_tokens: ['<s>', '<pad>', '</s>', '<unk>'].map((content, id) => ({ id, content, special: true })),
      normalizer: null,
      pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always' },
      model: { unk_id: 3, vocab: pieces.map((piece, i) => [piece, -i]) },
    };
    const result = await convert({
      architecture: 'BertModel',
      weights: bertWeights(12),
      config: { layer_norm_eps: 1e-12, type_vocab_size: 2, vocab_size: 12 },
      files: { 'tokenizer.json': tokenizer },
    });
    expect(result.architecture).toBe('bert');
    expect(keyValue(result, 'tokenizer.ggml.model')).toBe('t5');
    expect(keyValue(result, 'tokenizer.ggml.tokens')).toEqual(pieces);
    expect(keyValue(result, 'tokenizer.ggml.token_type_count')).toBe(2);
  });

  it('of Mistral have its pre-tokenizer, though their file has the pattern of Llama 3', async () => {
    const pattern = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
    const tokenizer = (added: readonly string[]) => ({
      added_tokens: added.map((content, i) => ({ id: 4 + i, content, special: true })),
      normalizer: null,
      pre_tokenizer: {
        type: 'Sequence',
        pretokenizers: [
          { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false },
          { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
        ],
      },
      model: { type: 'BPE', ignore_merges: true, vocab: { a: 0, b: 1, ab: 2, Ġ: 3 }, merges: ['a b'] },
    });
    const mistral = await convert({
      files: { 'tokenizer.json': tokenizer(['[INST]', '[/INST]', '[AVAILABLE_TOOLS]', '[TOOL_CALLS]']) },
    });
    expect(keyValue(mistral, 'tokenizer.ggml.pre')).toBe('tekken');
    expect(kindsOf(mistral)).toContain('tekken');
    const llama = await convert({ files: { 'tokenizer.json': tokenizer(['[INST]']) } });
    expect(keyValue(llama, 'tokenizer.ggml.pre')).toBe('llama-bpe');
  });

  it('of Phi-3 need its name in that of the folder, where tokens take blanks', async () => {
    const tokenizer = plainTokenizer() as { added_tokens: Json[] };
    const stripping = {
      ...tokenizer,
      added_tokens: tokenizer.added_tokens.map((token) => ({ ...token, rstrip: true })),
    };
    const weights = decoderWeights({ fused: true });
    const phi = (name: string, json: Json) =>
      convert({
        architecture: 'Phi3ForCausalLM',
        weights,
        name,
        config: { original_max_position_embeddings: 128, sliding_window: 64 },
        files: { 'tokenizer.json': json },
      });
    expect(kindsOf(await phi('my-model', stripping))).toContain('nameNeeded');
    expect(kindsOf(await phi('my-Phi-3-mini', stripping))).not.toContain('nameNeeded');
    expect(kindsOf(await phi('my-model', tokenizer))).not.toContain('nameNeeded');
  });
});

it('pre-tokenizers that are not recognized take a name', async () => {
  const tokenizer = (pattern: string) => ({
    model: { type: 'BPE', vocab: Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`t${i}`, i])), merges: [] },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, use_regex: false },
      ],
    },
  });
  const named = (preTokenizer: string | undefined, pattern = 'x+') =>
    convertHuggingface(
      folderOf(base, {
        'config.json': decoderConfig('LlamaForCausalLM'),
        'tokenizer.json': tokenizer(pattern),
      }),
      { preTokenizer },
    );
  await expect(named(undefined)).rejects.toThrow('not known to llama.cpp');
  await expect(named(undefined)).rejects.toMatchObject({ hint: { kind: 'try', option: { option: 'preTokenizer' } } });
  const result = await named('qwen2');
  expect(keyValue(result, 'tokenizer.ggml.pre')).toBe('qwen2');
  expect(result.notes).toContainEqual(expect.objectContaining({ kind: 'preTokenizer', pre: 'qwen2' }));
});

it('layers of sentence-transformers behind the pooling get a note', async () => {
  const modules = [
    { idx: 0, path: '', type: 'sentence_transformers.models.Transformer' },
    { idx: 1, path: '2_Dense', type: 'sentence_transformers.models.Dense' },
    { idx: 2, path: '3_Dense', type: 'sentence_transformers.models.Dense' },
  ];
  const { notes } = await convert({ files: { 'modules.json': modules } });
  expect(notes).toMatchObject([{ kind: 'denseLeftOut', paths: ['2_Dense', '3_Dense'] }]);
});
