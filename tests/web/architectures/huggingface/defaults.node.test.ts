// A folder whose config.json lacks keys becomes the same file as one with the defaults of Hugging Face's classes written out. The table was
// written by hand from the classes.
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import {
  defaultsOf,
  families,
  knownModels,
  onnxGraphs,
  webllmFamilies,
} from '../../../../web/src/architectures/families/index.js';
import { Config } from '../../../../web/src/architectures/huggingface/config.js';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import { fileOf, folderOf, type Weights } from '../../support/recipes.js';
import {
  bertWeights,
  decoderWeights,
  plainTokenizer,
  wordSettings,
  wordTokenizer,
} from '../../support/tiny-huggingface.js';

type Json = Readonly<Record<string, unknown>>;

/** Keys that the class states, but no folder of the tests can have, because they need large tensors. */
const large: Readonly<Record<string, Json>> = {
  LlamaForCausalLM: { hidden_size: 4096, intermediate_size: 11008, num_hidden_layers: 32, num_attention_heads: 32 },
  MistralForCausalLM: {
    hidden_size: 4096,
    intermediate_size: 14336,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: 8,
  },
  MixtralForCausalLM: {
    hidden_size: 4096,
    intermediate_size: 14336,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    num_local_experts: 8,
  },
  SmolLM3ForCausalLM: {
    hidden_size: 2048,
    intermediate_size: 11008,
    num_hidden_layers: 36,
    num_attention_heads: 16,
    num_key_value_heads: 4,
  },
  Qwen2ForCausalLM: {
    hidden_size: 4096,
    intermediate_size: 22016,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: 32,
  },
  Qwen3ForCausalLM: {
    hidden_size: 4096,
    intermediate_size: 22016,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: 32,
    head_dim: 128,
  },
  Qwen3MoeForCausalLM: {
    hidden_size: 2048,
    intermediate_size: 6144,
    num_hidden_layers: 24,
    num_attention_heads: 32,
    num_key_value_heads: 4,
    moe_intermediate_size: 768,
    num_experts: 128,
  },
  Gemma2ForCausalLM: {
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 256,
  },
  Gemma3ForCausalLM: {
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 256,
  },
  Phi3ForCausalLM: { hidden_size: 3072, intermediate_size: 8192, num_hidden_layers: 32, num_attention_heads: 32 },
  BertModel: { hidden_size: 768, intermediate_size: 3072, num_hidden_layers: 12, num_attention_heads: 12 },
};

/** Keys that say little about the size of tensors. */
const small: Readonly<Record<string, Json>> = {
  LlamaForCausalLM: { max_position_embeddings: 2048, rms_norm_eps: 1e-6, rope_theta: 10000 },
  MistralForCausalLM: { max_position_embeddings: 131072, rms_norm_eps: 1e-6, rope_theta: 10000, sliding_window: 4096 },
  MixtralForCausalLM: { max_position_embeddings: 131072, rms_norm_eps: 1e-5, rope_theta: 1e6, num_experts_per_tok: 2 },
  SmolLM3ForCausalLM: {
    max_position_embeddings: 32768,
    rms_norm_eps: 1e-6,
    rope_theta: 2e6,
    tie_word_embeddings: true,
  },
  Qwen2ForCausalLM: { max_position_embeddings: 32768, rms_norm_eps: 1e-6, rope_theta: 10000 },
  Qwen3ForCausalLM: { max_position_embeddings: 32768, rms_norm_eps: 1e-6, rope_theta: 10000 },
  Qwen3MoeForCausalLM: {
    max_position_embeddings: 32768,
    rms_norm_eps: 1e-6,
    rope_theta: 10000,
    num_experts_per_tok: 8,
  },
  Gemma2ForCausalLM: {
    max_position_embeddings: 8192,
    rms_norm_eps: 1e-6,
    rope_theta: 10000,
    query_pre_attn_scalar: 256,
    sliding_window: 4096,
    attn_logit_softcapping: 50,
    final_logit_softcapping: 30,
    tie_word_embeddings: true,
  },
  Gemma3ForCausalLM: {
    max_position_embeddings: 131072,
    rms_norm_eps: 1e-6,
    rope_theta: 1e6,
    rope_local_base_freq: 10000,
    query_pre_attn_scalar: 256,
    sliding_window: 4096,
    tie_word_embeddings: true,
  },
  Phi3ForCausalLM: {
    max_position_embeddings: 4096,
    original_max_position_embeddings: 4096,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
  },
  BertModel: { layer_norm_eps: 1e-12, type_vocab_size: 2 },
};

const experts = (count: number, router: string, names: (e: number) => readonly string[]) => ({ count, router, names });
const weightsOf: Readonly<Record<string, () => Weights>> = {
  MixtralForCausalLM: () => {
    const names = (e: number) => ['w1', 'w3', 'w2'].map((n) => `block_sparse_moe.experts.${e}.${n}`);
    return decoderWeights({ experts: experts(3, 'block_sparse_moe.gate', names) });
  },
  Qwen2ForCausalLM: () => decoderWeights({ biases: ['q_proj', 'k_proj', 'v_proj'] }),
  Qwen3ForCausalLM: () => decoderWeights({ headNorms: true }),
  Qwen3MoeForCausalLM: () => {
    const names = (e: number) => ['gate', 'up', 'down'].map((n) => `mlp.experts.${e}.${n}_proj`);
    return decoderWeights({ headNorms: true, experts: experts(9, 'mlp.gate', names) });
  },
  Gemma2ForCausalLM: () => decoderWeights({ gemma: true, head: 256 }),
  Gemma3ForCausalLM: () => decoderWeights({ gemma: true, headNorms: true, head: 256 }),
  Phi3ForCausalLM: () => decoderWeights({ fused: true }),
  BertModel: () => bertWeights(12),
};

/** Sizes of the tiny models, which differ from the defaults. */
const tiny: Json = {
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
};
const own: Readonly<Record<string, Json>> = {
  MixtralForCausalLM: { num_local_experts: 3 },
  Qwen3ForCausalLM: { head_dim: 16 },
  Qwen3MoeForCausalLM: { moe_intermediate_size: 96, num_experts: 9, norm_topk_prob: true },
  Gemma2ForCausalLM: { head_dim: 256 },
  Gemma3ForCausalLM: { head_dim: 256 },
  BertModel: { max_position_embeddings: 128 },
};

async function convert(architecture: string, weights: Weights, keys: Json) {
  const isBert = architecture === 'BertModel';
  const tokenizer = isBert
    ? { 'tokenizer.json': wordTokenizer(), 'tokenizer_config.json': wordSettings }
    : { 'tokenizer.json': plainTokenizer() };
  const config = { architectures: [architecture], ...keys };
  const conversion = await convertHuggingface(folderOf(weights, { ...tokenizer, 'config.json': config }));
  const file = fileOf(conversion, weights);
  return { bytes: file.length, hash: createHash('sha256').update(file).digest('hex'), notes: conversion.notes };
}

describe('defaults', () => {
  it.each(Object.keys(small))('of %s', async (architecture) => {
    const weights = weightsOf[architecture]?.() ?? decoderWeights();
    const base = { ...tiny, ...own[architecture] };
    const rows = architecture === 'BertModel' ? 12 : 264;
    const whole = await convert(architecture, weights, { ...base, ...small[architecture], vocab_size: rows });
    expect(whole.bytes).toBeGreaterThan(1000);
    expect(await convert(architecture, weights, base)).toEqual(whole);
    // Each key for itself, also as null where a null counts as missing.
    for (const key of Object.keys(small[architecture] as Json)) {
      const { [key]: _, ...rest } = { ...base, ...small[architecture] } as Record<string, unknown>;
      expect(await convert(architecture, weights, rest)).toEqual(whole);
      if (/sliding_window|softcapping/.test(key)) continue;
      expect(await convert(architecture, weights, { ...rest, [key]: null })).toEqual(whole);
    }
  });

  it.each(Object.entries(large))('of %s for sizes', (architecture, sizes) => {
    const config = new Config({ architectures: [architecture] }, defaultsOf);
    for (const [key, value] of Object.entries(sizes)) expect([key, config.get(key)]).toEqual([key, value]);
  });

  it('give way to what the file states, in text_config too', () => {
    const keys = { architectures: ['Gemma3ForConditionalGeneration'], text_config: { head_dim: 64 } };
    const config = new Config(keys, defaultsOf);
    expect([config.whole('head_dim'), config.whole('hidden_size'), config.stated('hidden_size')]).toEqual([
      64,
      2304,
      undefined,
    ]);
    expect(config.assumed).toEqual(['hidden_size 2304']);
    for (const name of ['constructor', '__proto__', 'toString', 7, null])
      expect(new Config({ architectures: [name] }, defaultsOf).get('hidden_size')).toBeUndefined();
  });

  it('of another base stand in rope_parameters, too', async () => {
    const weights = decoderWeights();
    const base = { ...tiny, ...small.LlamaForCausalLM };
    const { rope_theta: _, ...rest } = base as Record<string, unknown>;
    const written = await convert('LlamaForCausalLM', weights, { ...rest, rope_theta: 5e5 });
    const parameters = { rope_type: 'default', rope_theta: 5e5 };
    expect(await convert('LlamaForCausalLM', weights, { ...rest, rope_parameters: parameters })).toEqual(written);
    const usual = await convert('LlamaForCausalLM', weights, { ...rest, rope_parameters: { rope_type: 'default' } });
    expect(usual).toEqual(await convert('LlamaForCausalLM', weights, base));
  });

  it('reads null as no window, no cap, and one key head for each head', async () => {
    const weights = decoderWeights({ keyHeads: 4 });
    const llama = { ...tiny, num_key_value_heads: null };
    await expect(convert('LlamaForCausalLM', weights, llama)).resolves.toMatchObject({ notes: [] });
    const mistral = { ...tiny, num_key_value_heads: 4 };
    await expect(convert('MistralForCausalLM', weights, mistral)).resolves.toMatchObject({
      notes: [{ kind: 'noSlidingWindow', window: 4096 }],
    });
    await expect(convert('MistralForCausalLM', weights, { ...mistral, sliding_window: null })).resolves.toMatchObject({
      notes: [],
    });
    const gemma = { ...tiny, head_dim: 256 };
    for (const key of ['attn_logit_softcapping', 'final_logit_softcapping'])
      await expect(
        convert('Gemma2ForCausalLM', decoderWeights({ gemma: true, head: 256 }), { ...gemma, [key]: null }),
      ).rejects.toMatchObject({ code: 'UNKNOWN_FORMAT', message: expect.stringContaining(`${key} is null`) });
  });

  it('that contradict the tensors are named', async () => {
    const { hidden_size: _, ...rest } = tiny;
    await expect(convert('LlamaForCausalLM', decoderWeights(), rest)).rejects.toThrow(
      /has the shape \[264, 64\]; by config.json it is \[264, 4096\]; missing keys have defaults: .*hidden_size 4096/,
    );
  });
});

describe('models of other programs', () => {
  it('have one description each, whatever classes spread another one', () => {
    for (const { mlx = {}, webllm = {}, onnx = {} } of families) {
      for (const [type, model] of Object.entries(mlx)) expect(knownModels[type], type).toBe(model);
      for (const [name, family] of Object.entries(webllm)) expect(webllmFamilies.get(name), name).toBe(family);
      for (const [name, graph] of Object.entries(onnx))
        expect(onnxGraphs.get(graph.kind === 'decoder' ? name : `${name}Model`), name).toBe(graph);
    }
  });

  it('are those that mlx-lm has under the same names', () => {
    const { mixtral, qwen3_moe, ...others } = knownModels;
    expect(mixtral?.experts?.block).toBe('block_sparse_moe');
    expect(qwen3_moe?.precise).toEqual(/\.mlp\.gate$/);
    const having = (head?: string) => Object.keys(others).filter((type) => others[type]?.head === head);
    expect({ either: having().sort(), own: having('own').sort(), tied: having('tied').sort() }).toEqual({
      either: [
        ...['ernie4_5', 'exaone4', 'gemma3_text', 'glm', 'granite', 'granitemoe', 'llama', 'ministral3', 'mistral'],
        ...['nemotron', 'olmo2', 'olmo3', 'olmoe', 'phi3', 'qwen2', 'qwen3', 'qwen3_5', 'qwen3_5_moe', 'qwen3_next'],
        ...['seed_oss', 'smollm3', 'starcoder2'],
      ],
      own: [
        ...['deepseek_v2', 'deepseek_v3', 'glm4', 'glm4_moe', 'gpt_neox', 'gpt_oss', 'llama4', 'phi', 'qwen2_moe'],
        'stablelm',
      ],
      tied: ['cohere', 'cohere2', 'gemma', 'gemma2', 'gemma3', 'gemma4', 'gemma4_text', 'hunyuan_v1_dense', 'lfm2'],
    });
  });
});
