// Folders that are not converted. Each error is typed, and names the file and the key.
import { describe, expect, it } from 'vitest';
import { type ConvertOptions, convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import type { FolderTensor } from '../../../../web/src/architectures/recipe.js';
import { folderOf, type Weight } from '../../support/recipes.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';

type Json = Record<string, unknown>;
type Code = 'INCOMPLETE' | 'BAD_FILE' | 'UNKNOWN_FORMAT';

interface Change {
  readonly architecture?: string;
  readonly config?: Json;
  readonly files?: Json;
  readonly weights?: (weights: Map<string, Weight>) => void;
  readonly tensor?: (tensor: FolderTensor) => FolderTensor;
  readonly options?: ConvertOptions;
}

const base = decoderWeights();

async function convert({
  architecture = 'LlamaForCausalLM',
  config = {},
  files = {},
  weights,
  tensor,
  options,
}: Change) {
  const all = new Map(base);
  weights?.(all);
  const folder = folderOf(all, {
    'config.json': decoderConfig(architecture, config),
    'tokenizer.json': plainTokenizer(),
    ...files,
  });
  const tensors = tensor === undefined ? folder.tensors : folder.tensors.map(tensor);
  return convertHuggingface({ ...folder, tensors }, options);
}

async function refused(change: Change, code: Code, ...words: string[]): Promise<void> {
  const error = await convert(change).then(
    () => undefined,
    (reason: unknown) => reason as Error & { code: string },
  );
  expect(error?.name).toBe('ScalepointError');
  for (const word of words) expect(error?.message).toContain(word);
  expect(error?.code).toBe(code);
}

const qwen = (config: Json): Change => ({ architecture: 'Qwen3ForCausalLM', config });

describe('config.json', () => {
  it('the folder that all changes are made to is good', async () => {
    await expect(convert({})).resolves.toMatchObject({ architecture: 'llama', notes: [] });
  });

  it.each([
    ['hidden_size', 4096],
    ['num_hidden_layers', 32],
    ['num_attention_heads', 32],
    ['intermediate_size', 11008],
  ])('without %s, whose default the tensors contradict', (key, value) =>
    refused({ config: { [key]: undefined } }, 'BAD_FILE', 'missing keys have defaults', `${key} ${value}`),
  );

  it.each(['n_layer', 'n_embd', 'n_head', 'n_inner', 'n_positions', 'rotary_emb_base', 'layer_norm_epsilon'])(
    'of Nomic without %s',
    (key) => {
      const sizes = { n_layer: 3, n_embd: 64, n_head: 4, n_inner: 96, n_positions: 8192, rotary_emb_base: 1000 };
      const config = { ...sizes, layer_norm_epsilon: 1e-12, [key]: undefined };
      return refused({ architecture: 'NomicBertModel', config }, 'BAD_FILE', 'config.json', key, 'missing');
    },
  );

  it.each([
    ['hidden_size', 0],
    ['num_hidden_layers', 2.5],
    ['num_attention_heads', '4'],
    ['vocab_size', -1],
    ['intermediate_size', 2 ** 40],
    ['rms_norm_eps', 0],
    ['rope_theta', 'many'],
    ['tie_word_embeddings', 1],
    ['rope_scaling', 'linear'],
    ['head_dim', [16]],
  ])('a bad %s', (key, value) => refused({ config: { [key]: value } }, 'BAD_FILE', 'config.json', key));

  it('is missing, or is not JSON', async () => {
    const { file, ...folder } = folderOf(base, {});
    await expect(convertHuggingface({ ...folder, file })).rejects.toThrow(/^config.json: the folder has none/);
    await refused({ files: { 'config.json': '{' } }, 'BAD_FILE', 'config.json', 'JSON');
    await refused({ files: { 'config.json': '[]' } }, 'BAD_FILE', 'config.json');
    await refused({ files: { 'config.json': Uint8Array.of(0xff, 0xfe, 0) } }, 'BAD_FILE', 'config.json', 'UTF-8');
  });

  it('names architectures that are not known, and what has the name of a property of all objects', async () => {
    for (const name of ['OrionForCausalLM', 'constructor', '__proto__'])
      await refused(
        { architecture: name },
        'UNKNOWN_FORMAT',
        'config.json',
        `"${name}"`,
        ' with ForCausalLM at the end Llama,',
      );
    for (const [name, advice] of [
      ['MPNetModel', 'ONNX'],
      ['KimiK3ForCausalLM', 'residuals of attention'],
      ['Rwkv6ForCausalLM', 'the names and the order of its tensors'],
      ['HYV4ForCausalLM', 'convert_hf_to_gguf.py'],
      ['TalkieForCausalLM', 'the names and the order of its tensors are not known here'],
      ['FalconMambaForCausalLM', 'convert_hf_to_gguf.py'],
    ] as const)
      await refused({ architecture: name }, 'UNKNOWN_FORMAT', `"${name}" is not supported: `, advice);
    await refused({ config: { architectures: [] } }, 'BAD_FILE', 'architectures');
    await refused({ config: { architectures: undefined } }, 'BAD_FILE', 'architectures');
  });

  it('contradicts itself', async () => {
    await refused({ config: { num_key_value_heads: 3 } }, 'BAD_FILE', 'num_key_value_heads 3');
    await refused({ config: { num_attention_heads: 5, num_key_value_heads: 5 } }, 'BAD_FILE', 'num_attention_heads 5');
    await refused({ config: { head_dim: 15 } }, 'BAD_FILE', '15');
    await refused({ config: { rope_parameters: { rope_theta: 5 } } }, 'BAD_FILE', 'rope_theta');
  });

  it('contradicts the tensors', async () => {
    await refused({ config: { hidden_size: 128 } }, 'BAD_FILE', 'model.embed_tokens.weight', '[264, 64]', '[264, 128]');
    await refused({ config: { num_key_value_heads: 4 } }, 'BAD_FILE', 'k_proj.weight');
    await refused({ config: { vocab_size: 300 } }, 'BAD_FILE', 'model.embed_tokens.weight');
    await refused({ config: { num_hidden_layers: 2 } }, 'BAD_FILE', 'num_hidden_layers is 2', 'model.layers.2.');
    await refused({ config: { num_hidden_layers: 4 } }, 'BAD_FILE', 'is missing', 'model.layers.3.');
    await refused({ config: { num_hidden_layers: 1e9 } }, 'BAD_FILE', 'num_hidden_layers 1000000000');
    await refused({ config: { attention_bias: true } }, 'BAD_FILE', 'q_proj.bias');
    const headless: Change = {
      config: { tie_word_embeddings: false },
      weights: (all) => all.delete('lm_head.weight'),
    };
    await refused(headless, 'BAD_FILE', 'config.json', 'tie_word_embeddings is false', 'lm_head.weight');
  });

  it('asks for what llama.cpp does not compute', async () => {
    await refused({ config: { hidden_act: 'gelu' } }, 'UNKNOWN_FORMAT', 'hidden_act', '"gelu"');
    await refused({ config: { partial_rotary_factor: 0.5 } }, 'UNKNOWN_FORMAT', 'partial_rotary_factor');
    await refused(qwen({ use_sliding_window: true }), 'UNKNOWN_FORMAT', 'use_sliding_window');
    await refused(
      qwen({ layer_types: ['full_attention', 'sliding_attention', 'full_attention'] }),
      'UNKNOWN_FORMAT',
      'layer_types[1]',
    );
    await refused(
      { architecture: 'SmolLM3ForCausalLM', config: { no_rope_layers: [1, 0, 1] } },
      'UNKNOWN_FORMAT',
      'no_rope_layers[1]',
    );
    const gemma = (config: Json): Change => ({
      architecture: 'Gemma2ForCausalLM',
      config: { head_dim: 16, ...config },
    });
    await refused(gemma({ query_pre_attn_scalar: 224 }), 'UNKNOWN_FORMAT', 'query_pre_attn_scalar is 224');
    await refused(gemma({}), 'UNKNOWN_FORMAT', 'query_pre_attn_scalar is 256');
    await refused(
      {
        architecture: 'Gemma3ForCausalLM',
        config: { head_dim: 16, query_pre_attn_scalar: 16, sliding_window: 8, sliding_window_pattern: 3 },
      },
      'UNKNOWN_FORMAT',
      'sliding_window_pattern',
    );
    await refused(
      { architecture: 'Qwen3MoeForCausalLM', config: { norm_topk_prob: false } },
      'UNKNOWN_FORMAT',
      'norm_topk_prob',
    );
  });

  it('names a pooling outside of the folder, or one that is not there', async () => {
    const pooled = (path: unknown): Change => ({
      architecture: 'Qwen2ForCausalLM',
      weights: (all) => {
        for (let i = 0; i < 3; i++)
          for (const [name, rows] of [
            ['q', 64],
            ['k', 32],
            ['v', 32],
          ] as const)
            all.set(`model.layers.${i}.self_attn.${name}_proj.bias`, { shape: [rows], values: new Float32Array(rows) });
      },
      files: { 'modules.json': [{ type: 'x.Pooling', path }], 'good/config.json': { pooling_mode: 'max' } },
    });
    for (const path of ['../other', 'a/../../b', '/etc', 'C:\\x'])
      await refused(pooled(path), 'BAD_FILE', 'modules.json');
    await refused(pooled('none'), 'BAD_FILE', 'none/config.json');
    await refused(pooled(5), 'BAD_FILE', 'modules.json', '5');
    await refused(pooled('good'), 'UNKNOWN_FORMAT', 'good/config.json', 'pooling');
  });

  it('scales the rotary embedding in ways that are not known, or says too little', async () => {
    const scaled = (rope_scaling: Json): Change => ({ config: { rope_scaling } });
    await refused(scaled({ type: 'dynamic', factor: 2 }), 'UNKNOWN_FORMAT', 'rope_scaling.rope_type', '"dynamic"');
    await refused(scaled({ rope_type: 'longrope' }), 'UNKNOWN_FORMAT', '"longrope"');
    await refused(scaled({ type: 'linear' }), 'BAD_FILE', 'rope_scaling.factor is missing');
    await refused(scaled({ type: 'yarn', factor: 4 }), 'BAD_FILE', 'original_max_position_embeddings');
    await refused(scaled({ type: 7 }), 'BAD_FILE', 'rope_type');
    await refused(qwen({ rope_scaling: { rope_type: 'llama3' } }), 'UNKNOWN_FORMAT', '"llama3"');
    await refused(
      scaled({ rope_type: 'llama3', low_freq_factor: 4, high_freq_factor: 3 }),
      'BAD_FILE',
      'rope_scaling.low_freq_factor',
    );
  });

  it('says too little about Phi-3', async () => {
    const phi = (config: Json): Change => ({ architecture: 'Phi3ForCausalLM', config });
    const long = { original_max_position_embeddings: 128 };
    await refused(phi({ ...long, rope_scaling: { type: 'longrope', long_factor: [1, 2] } }), 'BAD_FILE', 'long_factor');
    await refused(
      phi({ ...long, rope_scaling: { type: 'longrope', long_factor: new Array(8).fill(1) } }),
      'BAD_FILE',
      'short_factor is missing',
    );
  });
});

describe('weights', () => {
  it('of an adapter', async () => {
    await refused({ files: { 'adapter_config.json': {} } }, 'UNKNOWN_FORMAT', 'adapter_config.json', 'LoRA');
    const name = 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight';
    await refused({ weights: (all) => all.set(name, base.get('model.norm.weight')!) }, 'BAD_FILE', 'LoRA', name);
  });

  it('that are quantized', async () => {
    const quantization_config = { quant_method: 'gptq', bits: 4 };
    await refused(
      { config: { quantization_config } },
      'UNKNOWN_FORMAT',
      'config.json',
      'quantization_config',
      '"gptq"',
    );
    await refused(
      { config: { text_config: { quantization_config } } },
      'UNKNOWN_FORMAT',
      'text_config.quantization_config',
    );
    const packed = 'model.layers.0.mlp.up_proj.weight_packed';
    await refused(
      { weights: (all) => all.set(packed, base.get('model.norm.weight')!) },
      'BAD_FILE',
      packed,
      'quantized',
    );
    const float8 = (tensor: FolderTensor) =>
      tensor.name.includes('up_proj') ? { ...tensor, dtype: 'F8_E4M3' } : tensor;
    await refused({ tensor: float8 }, 'BAD_FILE', 'F8_E4M3', 'up_proj');
  });

  it('that are missing, too many, of another shape, or there twice', async () => {
    await refused({ weights: (all) => all.clear() }, 'BAD_FILE', 'no tensors');
    await refused({ weights: (all) => all.delete('model.norm.weight') }, 'BAD_FILE', 'model.norm.weight');
    const extra = 'model.layers.1.mlp.router.weight';
    await refused({ weights: (all) => all.set(extra, base.get('model.norm.weight')!) }, 'BAD_FILE', extra, 'no place');
    const flat = { shape: [264 * 64], values: new Float32Array(0) };
    await refused({ weights: (all) => all.set('lm_head.weight', flat) }, 'BAD_FILE', 'lm_head.weight', '[16896]');
    const again = 'language_model.model.norm.weight';
    await refused(
      { weights: (all) => all.set(again, base.get('model.norm.weight')!) },
      'BAD_FILE',
      again,
      'same place',
    );
  });
});

describe('tokenizers', () => {
  const tokenizer = (change: (json: ReturnType<typeof parts>) => void): Change => {
    const json = parts();
    change(json);
    return { files: { 'tokenizer.json': json } };
  };
  const parts = () =>
    plainTokenizer() as Json & {
      model: Json & { vocab: Record<string, number> };
      added_tokens: Json[];
    };

  it('are missing', async () => {
    await refused({ files: { 'tokenizer.json': undefined } }, 'INCOMPLETE', 'tokenizer.json', 'none');
  });

  it('of kinds that are not known', async () => {
    await refused(
      tokenizer((json) => Object.assign(json.model, { type: 'Unigram' })),
      'UNKNOWN_FORMAT',
      'unigram',
    );
    await refused(
      tokenizer((json) => Object.assign(json.model, { type: 'WordPiece' })),
      'UNKNOWN_FORMAT',
      'llama',
    );
    await refused(
      tokenizer((json) => Object.assign(json, { normalizer: { type: 'Lowercase' } })),
      'UNKNOWN_FORMAT',
      'normalizer',
      '"Lowercase"',
    );
    await refused(
      tokenizer((json) => Object.assign(json, { pre_tokenizer: { type: 'Whitespace' } })),
      'UNKNOWN_FORMAT',
      'pre-tokenizer',
      '"Whitespace"',
    );
  });

  it('with ids beyond the embedding', async () => {
    await refused(
      tokenizer(({ model }) => Object.assign(model.vocab, { z: 264 })),
      'BAD_FILE',
      '"z"',
      '264',
    );
    await refused(
      tokenizer(({ model }) => Object.assign(model.vocab, { z: 1.5 })),
      'BAD_FILE',
      '"z"',
    );
    await refused(
      tokenizer(({ model }) => Object.assign(model.vocab, { z: -1 })),
      'BAD_FILE',
      '"z"',
    );
    await refused(
      tokenizer(({ model }) => Object.assign(model.vocab, { z: '5' })),
      'BAD_FILE',
      '"z"',
    );
  });

  it('with a token twice', async () => {
    await refused(
      tokenizer(({ model, added_tokens: added }) => {
        delete model.vocab['▁'];
        added.push({ id: 263, content: 'a', special: true });
      }),
      'BAD_FILE',
      'tokenizer.json',
      '"a"',
      '259 and 263',
    );
    await refused(
      tokenizer(({ model }) => Object.assign(model.vocab, { z: 260 })),
      'BAD_FILE',
      '"b"',
      '"z"',
      '260',
    );
  });

  it('without tokens for bytes, unless that is asked for', async () => {
    const change = tokenizer(({ model }) => delete model.vocab['<0x80>']);
    await refused(change, 'INCOMPLETE', 'tokenizer.json', '1 of the 256', 'llama.cpp');
    const { notes } = await convert({ ...change, options: { missingBytes: 'keep' } });
    expect(notes).toEqual([{ kind: 'missingBytes', count: 1, text: expect.stringContaining('1 of the 256') }]);
  });

  it('with parts of wrong types', async () => {
    await refused(
      tokenizer((json) => Object.assign(json, { added_tokens: 5 })),
      'BAD_FILE',
      'added_tokens',
    );
    await refused(
      tokenizer((json) => json.added_tokens.push({ id: 5 })),
      'BAD_FILE',
      'added_tokens[3]',
    );
    await refused(
      tokenizer(({ model }) => Object.assign(model, { vocab: [] })),
      'BAD_FILE',
      'model.vocab',
    );
    await refused(
      tokenizer(({ model }) => Object.assign(model, { merges: ['a'] })),
      'BAD_FILE',
      'model.merges[0]',
    );
    await refused(
      tokenizer(({ model }) => Object.assign(model, { merges: [['a', 1]] })),
      'BAD_FILE',
      'model.merges[0]',
    );
    await refused({ files: { 'tokenizer.json': 'none' } }, 'BAD_FILE', 'tokenizer.json', 'JSON');
    await refused({ files: { 'tokenizer_config.json': [] } }, 'BAD_FILE', 'tokenizer_config.json');
    await refused({ files: { 'tokenizer_config.json': { chat_template: 5 } } }, 'BAD_FILE', 'chat_template');
  });
});

/** Every path to a value of a JSON document, up to `most` entries of an array or object. */
function pathsOf(value: unknown, most: number): (string | number)[][] {
  if (typeof value !== 'object' || value === null) return [[]];
  const entries = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return [[], ...entries.slice(0, most).flatMap(([key, inner]) => pathsOf(inner, most).map((path) => [key, ...path]))];
}

/** A copy of a document with another value at a path. */
function replaced(document: unknown, [key, ...rest]: readonly (string | number)[], value: unknown): unknown {
  if (key === undefined) return value;
  const copy = (Array.isArray(document) ? [...document] : { ...(document as object) }) as Record<
    string | number,
    unknown
  >;
  copy[key] = replaced(copy[key], rest, value);
  return copy;
}

describe('any value of another type', () => {
  const special = (id: string) => ({ SpecialToken: { id, type_id: 0 } });
  const documents: Json = {
    'config.json': decoderConfig('LlamaForCausalLM', {
      head_dim: 16,
      attention_bias: false,
      hidden_act: 'silu',
      bos_token_id: 1,
      layer_types: new Array(3).fill('full_attention'),
      rope_scaling: { rope_type: 'llama3', factor: 8, original_max_position_embeddings: 64 },
    }),
    'tokenizer.json': plainTokenizer({
      normalizer: { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }] },
      pre_tokenizer: { type: 'Metaspace', prepend_scheme: 'first' },
      post_processor: {
        type: 'TemplateProcessing',
        single: [special('<s>'), { Sequence: { id: 'A' } }, special('</s>')],
        pair: [special('<s>'), { Sequence: { id: 'A' } }, special('</s>'), { Sequence: { id: 'B' } }],
      },
    }),
    'tokenizer_config.json': {
      bos_token: '<s>',
      eos_token: { content: '</s>' },
      add_bos_token: true,
      added_tokens_decoder: { 1: { content: '<s>', special: true } },
      chat_template: [{ name: 'default', template: 'x' }],
    },
    'added_tokens.json': { '<s>': 1 },
  };

  it.each(Object.keys(documents))('in %s is converted, or refused with a typed error', async (name) => {
    const values = [null, -1, 1e300, 'x', true, [[]], {}, { type: 'Sequence' }];
    let [good, bad] = [0, 0];
    for (const path of pathsOf(documents[name], name === 'config.json' ? 40 : 4))
      for (const value of values) {
        const files = { ...documents, [name]: replaced(documents[name], path, value) };
        try {
          await convert({ files });
          good++;
        } catch (error) {
          if ((error as Error).name !== 'ScalepointError')
            throw new Error(`${path.join('.')} = ${JSON.stringify(value)}`, { cause: error });
          bad++;
        }
      }
    expect(good).toBeGreaterThan(0);
    expect(bad).toBeGreaterThan(0);
  });
});
