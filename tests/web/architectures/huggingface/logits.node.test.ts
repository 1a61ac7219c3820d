// Tiny random models of each architecture, converted and run by llama.cpp. The logits have to be those of a forward pass in float64 that
// knows Hugging Face's definitions only.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import type { Recipe } from '../../../../web/src/architectures/recipe.js';
import { type Decoder, decoderLogits, encoderVectors } from '../../support/forward.js';
import { NativeModel } from '../../support/llama-run.js';
import { needNative } from '../../support/native.js';
import { expectOutward } from '../../support/outward.js';
import { ownLogits } from '../../support/own-logits.js';
import { fileOf, folderOf, type Weights } from '../../support/recipes.js';
import {
  bertWeights,
  type DecoderOptions,
  decoderConfig,
  decoderWeights,
  nomicWeights,
  plainTokenizer,
  tiny,
  wordSettings,
  wordTokenizer,
} from '../../support/tiny-huggingface.js';

needNative();

/**
 * Logits are near 2. llama.cpp adds in float32, and its sums of 64 to 96 products pass through at most 7 layers: 1e-5 is about 40 units in
 * the last place of a logit. Its GELU comes from a table of half precision, whose steps of 2^-11 add up to 3e-3.
 */
const [near, nearGelu] = [1e-5, 3e-3];

/**
 * Our own pass adds in float32, too, and takes no gate from a table. Relative to the largest logit: at most 340 units in the last place, as
 * errors of a layer reach all logits, and norms divide by what may be less than 1.
 */
const ownNear = 2e-5;

const tokens = [1, 17, 200, 33, 4, 99, 250, 8, 17, 121];

function furthest(a: ArrayLike<number>[], b: ArrayLike<number>[]): number {
  let most = a.length === b.length ? 0 : Infinity;
  a.forEach((row, t) => {
    for (let i = 0; i < row.length; i++) most = Math.max(most, Math.abs(row[i]! - b[t]![i]!));
  });
  return most;
}

const largest = (logits: ArrayLike<number>[]) =>
  logits.reduce((most, row) => Array.from(row).reduce((a, b) => Math.max(a, Math.abs(b)), most), 0);

const unspoiled = (recipe: Recipe) => recipe;

async function distance(
  architecture: string,
  config: Record<string, unknown>,
  weights: Weights,
  model: Decoder,
  spoil: (recipe: Recipe) => Recipe = unspoiled,
): Promise<number> {
  const files = { 'config.json': decoderConfig(architecture, config), 'tokenizer.json': plainTokenizer() };
  const conversion = await convertHuggingface(folderOf(weights, files));
  if (spoil === unspoiled) await expectOutward(architecture, conversion, weights);
  const file = fileOf({ ...conversion, tensors: conversion.tensors.map(spoil) }, weights);
  const expected = decoderLogits(weights, model, tokens);
  // Spoiled models are for llama.cpp.
  if (spoil === unspoiled) {
    const far = furthest(await ownLogits(new Uint8Array(file), tokens), expected) / largest(expected);
    expect(far, architecture).toBeLessThan(ownNear);
  }
  using native = new NativeModel(file);
  return furthest(native.logits(tokens), expected);
}

const llama: Decoder = {
  layers: tiny.layers,
  heads: tiny.heads,
  keyHeads: tiny.keyHeads,
  head: 16,
  theta: 10000,
  epsilon: 1e-5,
  headName: 'lm_head.weight',
};

/** Frequencies by Llama 3's rule. */
const llama3 = (context: number) => (frequencies: readonly number[]) =>
  frequencies.map((f) => {
    const wave = (2 * Math.PI) / f;
    if (wave < context / 4) return f;
    if (wave > context) return f / 8;
    const smooth = (context / wave - 1) / 3;
    return ((1 - smooth) * f) / 8 + smooth * f;
  });

/** Frequencies by YaRN, with 32 and 1 turns as the ends of the ramp. */
const yarn = (theta: number, dim: number, factor: number, context: number) => (frequencies: readonly number[]) => {
  const at = (turns: number) => (dim * Math.log(context / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const [low, high] = [Math.max(Math.floor(at(32)), 0), Math.min(Math.ceil(at(1)), dim - 1)];
  return frequencies.map((f, i) => {
    const ramp = Math.min(Math.max((i - low) / (high - low), 0), 1);
    return (f / factor) * ramp + f * (1 - ramp);
  });
};

interface Case {
  readonly name: string;
  readonly architecture: string;
  readonly config?: Record<string, unknown>;
  readonly weights?: DecoderOptions;
  readonly model?: Partial<Decoder>;
  readonly bound?: number;
}

const experts = {
  count: 5,
  router: 'mlp.gate',
  names: (e: number) => ['gate', 'up', 'down'].map((n) => `mlp.experts.${e}.${n}_proj`),
};
const mixtral = {
  count: 4,
  router: 'block_sparse_moe.gate',
  names: (e: number) => ['w1', 'w3', 'w2'].map((n) => `block_sparse_moe.experts.${e}.${n}`),
};
const expertNames = (of: typeof experts) => ({
  router: of.router,
  expert: (e: number) => of.names(e) as unknown as readonly [string, string, string],
});
const ropeLlama3 = {
  rope_type: 'llama3',
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 64,
};
const factors = (start: number) => Array.from({ length: 6 }, (_, i) => start + i / 4);

const cases: readonly Case[] = [
  { name: 'Llama', architecture: 'LlamaForCausalLM' },
  {
    name: 'Llama with tied embeddings and biases',
    architecture: 'MistralForCausalLM',
    config: { tie_word_embeddings: true, attention_bias: true },
    weights: { tied: true, biases: ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] },
    model: { headName: 'model.embed_tokens.weight' },
  },
  {
    name: 'Llama with heads of its own length',
    architecture: 'LlamaForCausalLM',
    config: { head_dim: 24 },
    weights: { head: 24 },
    model: { head: 24 },
  },
  {
    name: 'Llama 3 with scaled frequencies',
    architecture: 'LlamaForCausalLM',
    config: { rope_scaling: ropeLlama3 },
    model: { frequencies: llama3(64) },
  },
  {
    name: 'Llama with linear scaling',
    architecture: 'LlamaForCausalLM',
    config: { rope_scaling: { type: 'linear', factor: 4 } },
    model: { frequencies: (f) => f.map((one) => one / 4) },
  },
  {
    name: 'Mixtral',
    architecture: 'MixtralForCausalLM',
    config: { num_local_experts: 4, num_experts_per_tok: 2 },
    weights: { experts: mixtral },
    model: { experts: expertNames(mixtral), usedExperts: 2 },
  },
  {
    name: 'SmolLM3',
    architecture: 'SmolLM3ForCausalLM',
    config: { num_hidden_layers: 4, no_rope_layers: [1, 1, 1, 0] },
    weights: { layers: 4 },
    model: { layers: 4, rotates: (layer) => layer !== 3 },
  },
  { name: 'Qwen2', architecture: 'Qwen2ForCausalLM', weights: { biases: ['q_proj', 'k_proj', 'v_proj'] } },
  {
    name: 'Qwen2 with YaRN',
    architecture: 'Qwen2ForCausalLM',
    config: { rope_scaling: { type: 'yarn', factor: 4, original_max_position_embeddings: 32 } },
    weights: { biases: ['q_proj', 'k_proj', 'v_proj'] },
    model: { frequencies: yarn(10000, 16, 4, 32), rotaryFactor: 0.1 * Math.log(4) + 1 },
  },
  {
    name: 'Qwen3',
    architecture: 'Qwen3ForCausalLM',
    config: { head_dim: 24, tie_word_embeddings: true },
    weights: { head: 24, headNorms: true, tied: true },
    model: { head: 24, headName: 'model.embed_tokens.weight' },
  },
  {
    name: 'Qwen3 with experts',
    architecture: 'Qwen3MoeForCausalLM',
    config: { head_dim: 16, num_experts: 5, num_experts_per_tok: 2, moe_intermediate_size: 96, norm_topk_prob: true },
    weights: { headNorms: true, experts },
    model: { experts: expertNames(experts), usedExperts: 2 },
  },
  {
    name: 'Gemma 2',
    architecture: 'Gemma2ForCausalLM',
    config: { head_dim: 16, sliding_window: 4, query_pre_attn_scalar: 16 },
    weights: { gemma: true, tied: true },
    model: {
      gemma: true,
      headName: 'model.embed_tokens.weight',
      window: (layer) => (layer % 2 === 0 ? 4 : Infinity),
      attentionCap: 50,
      finalCap: 30,
    },
    bound: nearGelu,
  },
  {
    name: 'Gemma 3',
    architecture: 'Gemma3ForCausalLM',
    config: {
      num_hidden_layers: 7,
      head_dim: 16,
      query_pre_attn_scalar: 16,
      sliding_window: 4,
      rope_theta: 1e6,
      rope_local_base_freq: 10000,
      rope_scaling: { rope_type: 'linear', factor: 8 },
    },
    weights: { layers: 7, gemma: true, headNorms: true, tied: true },
    model: {
      layers: 7,
      gemma: true,
      headName: 'model.embed_tokens.weight',
      theta: 1e6,
      local: (layer) => (layer === 5 ? { theta: 1e6, divisor: 8 } : { theta: 10000, divisor: 1 }),
      window: (layer) => (layer === 5 ? Infinity : 4),
    },
    bound: nearGelu,
  },
  {
    name: 'Phi-3',
    architecture: 'Phi3ForCausalLM',
    config: { original_max_position_embeddings: 128, sliding_window: null },
    weights: { fused: true },
  },
  {
    name: 'Phi-3 with long contexts',
    architecture: 'Phi3ForCausalLM',
    config: {
      max_position_embeddings: 8192,
      original_max_position_embeddings: 4096,
      partial_rotary_factor: 0.75,
      sliding_window: 2047,
      rope_scaling: { type: 'longrope', long_factor: factors(4), short_factor: factors(1) },
    },
    weights: { fused: true },
    model: {
      rotated: 12,
      frequencies: (f) => f.map((one, i) => one / factors(1)[i]!),
      rotaryFactor: Math.sqrt(1 + Math.log(2) / Math.log(4096)),
    },
  },
];

describe('logits of tiny models', () => {
  for (const { name, architecture, config = {}, weights = {}, model = {}, bound = near } of cases)
    it(`are those of the definition: ${name}`, async () => {
      expect(await distance(architecture, config, decoderWeights(weights), { ...llama, ...model })).toBeLessThan(bound);
    });
});

/** A recipe without one of its parts. */
function without(recipe: Recipe, part: 'permuteHeads' | 'add'): Recipe {
  const { [part]: _, ...rest } = recipe;
  return rest;
}

describe('the comparison finds', () => {
  const gemma = cases.find(({ name }) => name === 'Gemma 2')!;

  it('rows that were not moved', async () => {
    const spoil = (recipe: Recipe) => without(recipe, 'permuteHeads');
    expect(await distance('LlamaForCausalLM', {}, decoderWeights(), llama, spoil)).toBeGreaterThan(0.1);
  });

  it('norms without their 1', async () => {
    const { config = {}, weights, model } = gemma;
    const far = await distance('Gemma2ForCausalLM', config, decoderWeights(weights), { ...llama, ...model }, (recipe) =>
      without(recipe, 'add'),
    );
    expect(far).toBeGreaterThan(0.1);
  });

  it("gate and up in each other's place", async () => {
    const other: Record<string, string> = { ffn_gate: 'ffn_up', ffn_up: 'ffn_gate' };
    const spoil = (recipe: Recipe) => ({
      ...recipe,
      name: recipe.name.replace(/ffn_(gate|up)/, (name) => other[name]!),
    });
    expect(await distance('LlamaForCausalLM', {}, decoderWeights(), llama, spoil)).toBeGreaterThan(0.1);
  });
});

describe('vectors of tiny encoders', () => {
  const text = [2, 5, 6, 7, 8, 9, 5, 10, 11, 3];
  const files = {
    'tokenizer.json': wordTokenizer(),
    'tokenizer_config.json': wordSettings,
    'modules.json': [{ idx: 1, type: 'sentence_transformers.models.Pooling', path: '1_Pooling' }],
  };

  it('are those of the definition: BERT, the first token', async () => {
    const weights = bertWeights(12);
    const conversion = await convertHuggingface(
      folderOf(weights, {
        ...files,
        '1_Pooling/config.json': { pooling_mode_cls_token: true, pooling_mode_mean_tokens: false },
        'config.json': {
          architectures: ['BertModel'],
          hidden_size: tiny.hidden,
          intermediate_size: tiny.feedForward,
          num_hidden_layers: tiny.layers,
          num_attention_heads: tiny.heads,
          max_position_embeddings: 128,
          layer_norm_eps: 1e-12,
          type_vocab_size: 2,
          vocab_size: 12,
          hidden_act: 'gelu',
        },
      }),
    );
    using native = new NativeModel(fileOf(conversion, weights));
    const expected = encoderVectors(weights, { layers: tiny.layers, heads: tiny.heads, epsilon: 1e-12 }, text);
    expect(furthest([native.pooled(text)], [expected[0]!])).toBeLessThan(nearGelu);
  });

  it('are those of the definition: Nomic, the mean', async () => {
    const weights = nomicWeights(12);
    const conversion = await convertHuggingface(
      folderOf(weights, {
        ...files,
        '1_Pooling/config.json': { pooling_mode_cls_token: false, pooling_mode_mean_tokens: true },
        'config.json': {
          architectures: ['NomicBertModel'],
          n_embd: tiny.hidden,
          n_inner: tiny.feedForward,
          n_layer: tiny.layers,
          n_head: tiny.heads,
          n_positions: 8192,
          layer_norm_epsilon: 1e-12,
          rotary_emb_base: 1000,
          type_vocab_size: 2,
          vocab_size: 12,
          activation_function: 'swiglu',
        },
      }),
    );
    using native = new NativeModel(fileOf(conversion, weights));
    const all = encoderVectors(weights, { layers: tiny.layers, heads: tiny.heads, epsilon: 1e-12, theta: 1000 }, text);
    const mean = all[0]!.map((_, i) => all.reduce((sum, one) => sum + one[i]!, 0) / all.length);
    expect(furthest([native.pooled(text)], [mean])).toBeLessThan(near);
  });
});

it('takes a bias of the head where llama.cpp adds it, and refuses it elsewhere', async () => {
  const values = Float32Array.from({ length: tiny.vocabulary }, (_, i) => Math.sin(i));
  const weights = new Map([
    ...decoderWeights({ tied: true, biases: ['q_proj', 'k_proj', 'v_proj'] }),
    ['lm_head.bias', { shape: [tiny.vocabulary], values }],
  ]);
  const convert = (architecture: string, own: Weights) =>
    convertHuggingface(
      folderOf(own, { 'config.json': decoderConfig(architecture), 'tokenizer.json': plainTokenizer() }),
    );
  const biased = fileOf(await convert('Qwen2ForCausalLM', weights), weights);
  const plain = new Map([...weights].filter(([name]) => name !== 'lm_head.bias'));
  using native = new NativeModel(biased);
  using without = new NativeModel(fileOf(await convert('Qwen2ForCausalLM', plain), plain));
  const sums = without.logits(tokens).map((row) => Float32Array.from(row, (logit, i) => logit + values[i]!));
  expect(native.logits(tokens)).toEqual(sums);
  expect(furthest(await ownLogits(new Uint8Array(biased), tokens), sums) / largest(sums)).toBeLessThan(ownNear);
  await expect(convert('LlamaForCausalLM', weights)).rejects.toThrow(
    'tensor "lm_head.bias" has no place in a model of the architecture llama',
  );
});
