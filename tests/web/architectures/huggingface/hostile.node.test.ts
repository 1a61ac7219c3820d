// Folders whose files hold values that nobody expects: each conversion works or fails with a typed error.
import { describe, expect, it } from 'vitest';
import { architectureNames } from '../../../../web/src/architectures/families/index.js';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import { convertTower } from '../../../../web/src/architectures/huggingface/vision/convert.js';
import type { Conversion, Folder } from '../../../../web/src/architectures/recipe.js';
import { folderOf, type Weights } from '../../support/recipes.js';
import {
  bertFiles,
  bertWeights,
  decoderConfig,
  decoderWeights,
  plainTokenizer,
} from '../../support/tiny-huggingface.js';
import { linesOf, towerCases, weightsOf } from '../../support/towers.js';

type Files = Readonly<Record<string, unknown>>;

/** A byte-level BPE tokenizer.json with an entry for each byte. */
function byteTokenizer() {
  const printable = (byte: number) => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
  let next = 0x100;
  const tokens = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
  const all = [...tokens, '<|endoftext|>', 'ab'];
  return {
    added_tokens: [{ id: 256, content: '<|endoftext|>', special: true }],
    normalizer: { type: 'Sequence', normalizers: [{ type: 'NFC' }] },
    pre_tokenizer: { type: 'Sequence', pretokenizers: [{ type: 'ByteLevel', add_prefix_space: false }] },
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<|endoftext|>' } }, { Sequence: { id: 'A' } }],
      pair: [{ Sequence: { id: 'A' } }, { SpecialToken: { id: '<|endoftext|>' } }, { Sequence: { id: 'B' } }],
    },
    model: { type: 'BPE', vocab: Object.fromEntries(all.map((token, id) => [token, id])), merges: ['a b'] },
  };
}

const settings = {
  bos_token: '<s>',
  eos_token: { content: '</s>' },
  add_bos_token: true,
  added_tokens_decoder: { '1': { content: '<s>', special: true } },
  chat_template: [{ name: 'default', template: 'x' }],
};
const rope = { rope_type: 'yarn', factor: 2, original_max_position_embeddings: 64, rope_theta: 10000 };
const modules = [{ type: 'sentence_transformers.models.Pooling', path: '1' }];

const decoder = decoderWeights();
const folders: readonly (readonly [what: string, Weights, Files])[] = [
  [
    'SentencePiece',
    decoder,
    {
      'config.json': decoderConfig('LlamaForCausalLM', {
        rope_scaling: rope,
        bos_token_id: 1,
        tie_word_embeddings: false,
      }),
      'tokenizer.json': plainTokenizer(),
      'tokenizer_config.json': settings,
    },
  ],
  [
    'byte-level BPE',
    decoderWeights({ biases: ['q_proj', 'k_proj', 'v_proj'] }),
    {
      'config.json': decoderConfig('Qwen2ForCausalLM', { layer_types: Array(3).fill('full_attention') }),
      'tokenizer.json': byteTokenizer(),
      'tokenizer_config.json': settings,
      'added_tokens.json': {},
      'modules.json': modules,
      '1/config.json': { pooling_mode_cls_token: true },
    },
  ],
  [
    'WordPiece',
    bertWeights(12),
    {
      ...bertFiles(12),
      'modules.json': modules,
      '1/config.json': { pooling_mode: 'mean' },
    },
  ],
];

/** Lists nested in each other, as JSON. */
const nested = (depth: number, open: string, inside: string, close: string) =>
  open.repeat(depth) + inside + close.repeat(depth);

const sequence = (list: string) => nested(10_000, `{"type":"Sequence","${list}":[`, '{"type":"NFC"}', ']}');

/** Values in the place of others, as JSON. */
const values: Readonly<Record<string, string>> = {
  'an object without a text': '{"toString":1,"valueOf":1}',
  'a property of all objects': '"__proto__"',
  'a list without end': nested(10_000, '[', '', ']'),
  'normalizers in each other': sequence('normalizers'),
  'pre-tokenizers in each other': sequence('pretokenizers'),
  'an empty list': '[]',
  'an empty object': '{}',
  'an empty text': '""',
  'half a character': '"\\ud800"',
  'a large number': '1e308',
  'a small one': '-1e-308',
  'a count that no memory holds': '2147483647',
  nothing: 'null',
  no: 'false',
};

/** Long values, which take the place of lists only. */
const longValues: Readonly<Record<string, string>> = {
  'a long list': JSON.stringify(Array.from({ length: 150_000 }, () => 0)),
  'a long list of objects': JSON.stringify(Array.from({ length: 150_000 }, () => ({ type: 'x' }))),
};

const slot = 'the value goes here';

/** Copies of a value with a slot in each place, the first few of long lists. */
function slotted(value: unknown): { readonly copy: unknown; readonly isList: boolean }[] {
  const whole = { copy: slot, isList: Array.isArray(value) };
  if (typeof value !== 'object' || value === null) return [whole];
  const entries = Object.entries(value).slice(0, 12);
  const inside = entries.flatMap(([key, member]) =>
    slotted(member).map(({ copy, isList }) => ({
      copy: Array.isArray(value) ? value.map((old, i) => (String(i) === key ? copy : old)) : { ...value, [key]: copy },
      isList,
    })),
  );
  return [whole, ...inside];
}

/** Fails unless a conversion works or fails with a typed error. */
async function expectTyped(what: string, conversion: Promise<Conversion>): Promise<void> {
  const error: unknown = await conversion.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error === undefined) return;
  const { name, code, message } = error as { name?: string; code?: string; message?: string };
  expect({ what, name, code, message }).toMatchObject({
    name: 'ScalepointError',
    code: expect.stringMatching(/^(BAD_FILE|INCOMPLETE|UNKNOWN_FORMAT)$/),
  });
  expect((message as string).length).toBeLessThan(3000);
}

/** Converts a folder with each value in each place of its files. */
async function expectAllTyped(convert: (folder: Folder) => Promise<Conversion>, weights: Weights, files: Files) {
  await expect(convert(folderOf(weights, files))).resolves.toMatchObject({});
  for (const [name, content] of Object.entries(files))
    for (const { copy, isList } of slotted(content))
      for (const [what, json] of Object.entries(isList ? { ...values, ...longValues } : values)) {
        const text = JSON.stringify(copy).replace(`"${slot}"`, () => json);
        await expectTyped(`${what} in ${name}`, convert(folderOf(weights, { ...files, [name]: text })));
      }
}

describe('a strange value in any place', () => {
  it.each(folders)(
    'of a folder with %s',
    (_, weights, files) => expectAllTyped(convertHuggingface, weights, files),
    60_000,
  );

  it.each(towerCases)('of a folder with the tower of $name', async (one) => {
    const lines = linesOf(one);
    const shapes = new Map(lines.map(({ from, shape }) => [from, shape]));
    const weights = new Map(
      [...weightsOf(lines)].map(([name, own]) => [name, { shape: shapes.get(name) ?? [], values: own }]),
    );
    const files = {
      'config.json': one.config,
      'preprocessor_config.json': one.preprocessor ?? {},
      'processor_config.json': {
        image_processor: { size: { longest_edge: 64 } },
        image_seq_length: 16,
        ...one.processor,
      },
    };
    await expectAllTyped((folder) => convertTower(folder, 'F16'), weights, files);
  });
});

it('counts of any architecture that no tensors can have are refused before they decide about memory', async () => {
  const keys = ['num_hidden_layers', 'n_layer', 'head_dim', 'num_attention_heads', 'n_head', 'num_key_value_heads'];
  const more = [
    'global_head_dim',
    'linear_num_key_heads',
    'linear_num_value_heads',
    'num_experts',
    'num_local_experts',
  ];
  for (const architecture of architectureNames) {
    for (const key of [...keys, ...more]) {
      const config = decoderConfig(architecture, { [key]: 2 ** 31 - 1 });
      const folder = folderOf(decoder, { 'config.json': config, 'tokenizer.json': plainTokenizer() });
      await expectTyped(`${architecture} ${key}`, convertHuggingface(folder));
    }
  }
});

describe('long lists', () => {
  const [, weights, files] = folders[0] as (typeof folders)[0];
  const many = Array.from({ length: 200_000 }, (_, i) => i);
  const convert = (more: Files) => convertHuggingface(folderOf(weights, { ...files, ...more }));

  it('of added tokens beyond the embedding are left out, with a note', async () => {
    const tokenizer = plainTokenizer();
    const beyond = many.map((i) => ({ id: 1000 + i, content: `<${i}>`, special: true }));
    const added_tokens = [...(tokenizer.added_tokens as object[]), ...beyond.toReversed()];
    const { notes } = await convert({ 'tokenizer.json': { ...tokenizer, added_tokens } });
    expect(notes).toHaveLength(1);
    expect(notes[0]).toMatchObject({ kind: 'tokensLeftOut', rows: 264 });
    expect(notes[0]?.text).toBe(
      '200000 added tokens from 1000 on of tokenizer.json left out, because the embedding has 264 rows',
    );
  });

  it('of chat templates are written', async () => {
    const chat_template = many.map((i) => ({ name: `t${i}`, template: 'x' }));
    const { keys } = await convert({ 'tokenizer_config.json': { ...settings, chat_template } });
    expect(keys.filter(({ name }) => name.startsWith('tokenizer.chat_template.'))).toHaveLength(200_000);
  });
});
