// Tiny decoders of each family with what a forward pass in float64 needs to know about them, and runs that are compared with it.
import { expect } from 'vitest';
import { furthest, largest } from '../../support/decoder-tables.js';
import { type Decoder, decoderLogits } from '../../support/forward.js';
import type { Weights } from '../../support/recipes.js';
import {
  type DecoderOptions,
  decoderConfig,
  decoderWeights,
  Maker,
  plainTokenizer,
  tiny,
} from '../../support/tiny-huggingface.js';
import type { RunningDecoder } from './runs.js';

export const tokens = [1, 17, 200, 33, 4, 99, 250, 8, 17, 121];

/**
 * Largest distance from float64, relative to the largest logit. onnxruntime adds in float32: sums of up to 96 products pass through at most
 * 7 layers, whose errors add up like those of a random walk: sqrt(96 x 14) x 2^-24 is 2.2e-6.
 */
export const near = 2.2e-6;

export interface Case {
  readonly name: string;
  readonly architecture: string;
  readonly config?: Readonly<Record<string, unknown>>;
  readonly weights?: DecoderOptions | Weights;
  readonly model?: Partial<Decoder>;
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
const tied = { headName: 'model.embed_tokens.weight' } as const;

const llama3 = (frequencies: readonly number[]) =>
  frequencies.map((f) => {
    const wave = (2 * Math.PI) / f;
    if (wave < 64 / 4) return f;
    if (wave > 64) return f / 8;
    const smooth = (64 / wave - 1) / 3;
    return ((1 - smooth) * f) / 8 + smooth * f;
  });

const yarn = (frequencies: readonly number[]) => {
  const at = (turns: number) => (16 * Math.log(32 / (turns * 2 * Math.PI))) / (2 * Math.log(10000));
  const [low, high] = [Math.max(Math.floor(at(32)), 0), Math.min(Math.ceil(at(1)), 15)];
  return frequencies.map((f, i) => {
    const ramp = Math.min(Math.max((i - low) / (high - low), 0), 1);
    return (f / 4) * ramp + f * (1 - ramp);
  });
};

const factors = (start: number) => Array.from({ length: 6 }, (_, i) => start + i / 4);

/** The weights of OLMo 2: norms behind attention and feed-forward part, and of all queries together. */
function olmo2(): Weights {
  const weights = decoderWeights();
  const make = new Maker(9);
  for (let i = 0; i < tiny.layers; i++) {
    weights.delete(`model.layers.${i}.input_layernorm.weight`);
    make.vector(`model.layers.${i}.post_feedforward_layernorm.weight`, tiny.hidden, 1);
    make.vector(`model.layers.${i}.self_attn.q_norm.weight`, 64, 1);
    make.vector(`model.layers.${i}.self_attn.k_norm.weight`, 32, 1);
  }
  return new Map([...weights, ...make.weights]);
}

const longrope = { type: 'longrope', long_factor: factors(4), short_factor: factors(1) };
const phi3 = { partial_rotary_factor: 0.75, rope_scaling: longrope };

export const cases: readonly Case[] = [
  { name: 'Llama', architecture: 'LlamaForCausalLM' },
  {
    name: 'Llama with biases, tied',
    architecture: 'LlamaForCausalLM',
    config: { tie_word_embeddings: true, attention_bias: true, mlp_bias: true },
    weights: { tied: true, biases: ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] },
    model: tied,
  },
  {
    name: 'Llama 3 with scaled frequencies and heads of 24',
    architecture: 'LlamaForCausalLM',
    config: {
      rope_scaling: {
        rope_type: 'llama3',
        factor: 8,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 64,
      },
    },
    model: { frequencies: llama3 },
  },
  {
    name: 'Mistral with a window',
    architecture: 'MistralForCausalLM',
    config: { sliding_window: 4, head_dim: 24 },
    weights: { head: 24 },
    model: { head: 24, window: () => 4 },
  },
  {
    name: 'SmolLM3',
    architecture: 'SmolLM3ForCausalLM',
    config: { num_hidden_layers: 4, no_rope_layers: [1, 1, 1, 0], tie_word_embeddings: false },
    weights: { layers: 4 },
    model: { layers: 4, rotates: (layer) => layer !== 3 },
  },
  {
    name: 'Qwen 2.5 with YaRN',
    architecture: 'Qwen2ForCausalLM',
    config: {
      rope_scaling: { type: 'yarn', factor: 4, original_max_position_embeddings: 32 },
      sliding_window: 4,
      use_sliding_window: false,
    },
    weights: { biases: ['q_proj', 'k_proj', 'v_proj'] },
    model: { frequencies: yarn, rotaryFactor: 0.1 * Math.log(4) + 1 },
  },
  {
    name: 'Qwen 3',
    architecture: 'Qwen3ForCausalLM',
    config: { head_dim: 24, tie_word_embeddings: true },
    weights: { head: 24, headNorms: true, tied: true },
    model: { head: 24, ...tied },
  },
  {
    name: 'Gemma 2',
    architecture: 'Gemma2ForCausalLM',
    config: { head_dim: 16, sliding_window: 4, query_pre_attn_scalar: 32 },
    weights: { gemma: true, tied: true },
    model: {
      gemma: true,
      ...tied,
      scale: 32,
      window: (layer) => (layer % 2 === 0 ? 4 : Infinity),
      attentionCap: 50,
      finalCap: 30,
    },
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
      ...tied,
      theta: 1e6,
      local: (layer) => (layer === 5 ? { theta: 1e6, divisor: 8 } : { theta: 10000, divisor: 1 }),
      window: (layer) => (layer === 5 ? Infinity : 4),
    },
  },
  {
    name: 'Phi-3 within its first context',
    architecture: 'Phi3ForCausalLM',
    config: { ...phi3, max_position_embeddings: 64, original_max_position_embeddings: 32, sliding_window: 5 },
    weights: { fused: true },
    model: {
      rotated: 12,
      window: () => 5,
      frequencies: (f) => f.map((one, i) => one / factors(1)[i]!),
      rotaryFactor: Math.sqrt(1 + Math.log(2) / Math.log(32)),
    },
  },
  {
    name: 'Phi-3 beyond its first context',
    architecture: 'Phi3ForCausalLM',
    config: { ...phi3, max_position_embeddings: 64, original_max_position_embeddings: 4, sliding_window: null },
    weights: { fused: true },
    model: {
      rotated: 12,
      frequencies: (f) => f.map((one, i) => one / factors(4)[i]!),
      rotaryFactor: Math.sqrt(1 + Math.log(16) / Math.log(4)),
    },
  },
  {
    name: 'Granite',
    architecture: 'GraniteForCausalLM',
    config: {
      attention_multiplier: 0.125,
      embedding_multiplier: 12,
      residual_multiplier: 0.22,
      logits_scaling: 8,
      tie_word_embeddings: true,
    },
    weights: { tied: true },
    model: { scale: 64, embeddingFactor: 12, residualFactor: 0.22, logitFactor: 1 / 8, ...tied },
  },
  {
    name: 'OLMo 2',
    architecture: 'Olmo2ForCausalLM',
    weights: olmo2(),
    model: {
      norms: {
        attention: undefined,
        attentionAfter: 'post_attention_layernorm',
        feedForward: undefined,
        feedForwardAfter: 'post_feedforward_layernorm',
      },
      headNorms: 'all',
    },
  },
];

export const filesOf = ({ architecture, config = {} }: Case) =>
  ({ 'config.json': decoderConfig(architecture, config), 'tokenizer.json': plainTokenizer() }) as const;

export const weightsOf = ({ weights = {} }: Case): Weights =>
  weights instanceof Map ? weights : decoderWeights(weights as DecoderOptions);

/** Runs a decoder: all of a text at once, its beginning and then one by one, and beside a shorter text with padding in front. */
export async function expectDefinition(one: Case, decoder: RunningDecoder): Promise<void> {
  const weights = weightsOf(one);
  const model = { ...llama, ...one.model };
  const expected = decoderLogits(weights, model, tokens);
  const bound = near * largest(expected);
  const { logits } = await decoder.run([tokens]);
  expect(furthest(logits[0]!, expected)).toBeLessThan(bound);
  const isLong = one.name.includes('beyond');
  let { cache, logits: first } = await decoder.run([tokens.slice(0, isLong ? 6 : 4)]);
  const all = [...first[0]!];
  for (const token of tokens.slice(all.length)) {
    const step = await decoder.run([[token]], cache);
    all.push(...step.logits[0]!);
    ({ cache } = step);
  }
  expect(furthest(all, expected)).toBeLessThan(bound);
  const short = tokens.slice(2, 8);
  const padded = [...Array.from({ length: 4 }, () => undefined), ...short];
  const both = await decoder.run([tokens, padded]);
  expect(furthest(both.logits[0]!, expected)).toBeLessThan(bound);
  // Frequencies of long contexts are those of the longest text.
  if (isLong) return;
  const alone = decoderLogits(weights, model, short);
  expect(furthest(both.logits[1]!.slice(4), alone)).toBeLessThan(near * largest(alone));
}
