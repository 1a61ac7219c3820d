import { describe, expect, it } from 'vitest';
import { convertedDecoder, type DecoderCase, testDecoders, testRefusals } from '../../support/decoder-cases.js';
import {
  attention,
  biases,
  common,
  gated,
  type Keys,
  norms,
  outside,
  prefix,
  tiedOutside,
} from '../../support/decoder-tables.js';
import {
  add,
  dot,
  gelu,
  joined,
  multiply,
  rotaryFrequencies,
  rotate,
  sigmoid,
  silu,
  slices,
  softmax,
  turnedOf,
  type Vector,
} from '../../support/forward.js';
import {
  best,
  deepseekExperts,
  deepseekLayer,
  deepseekMixture,
  heads,
  latent,
  latentConfig,
  latentKeys,
  withExperts,
} from '../../support/latent.js';
import { weightsOfTable } from '../../support/tensor-table.js';

/** As in logits.node.test.ts: a table of GELU in half precision. */
const nearGelu = 3e-3;

// ---------------------------------------------------------------------------------------------------------------------- GPT-2

const gpt2: DecoderCase = {
  name: 'GPT-2',
  hugging: 'GPT2LMHeadModel',
  architecture: 'gpt2',
  config: {
    n_embd: 64,
    n_layer: 3,
    n_head: 4,
    n_positions: 32,
    n_ctx: 32,
    layer_norm_epsilon: 1e-5,
    activation_function: 'gelu_new',
  },
  keys: [
    ['block_count', 3],
    ['context_length', 32],
    ['embedding_length', 64],
    ['feed_forward_length', 256],
    ['attention.head_count', 4],
    ['attention.layer_norm_epsilon', 1e-5],
  ],
  table: {
    prefix: 'transformer.h.',
    outside: `
      transformer.wte.weight   token_embd.weight     264x64
      transformer.wpe.weight   position_embd.weight  32x64
      transformer.ln_f.weight  output_norm.weight    64
      transformer.ln_f.bias    output_norm.bias      64`,
    layer: `
      ln_1.weight         attn_norm.weight    64
      ln_1.bias           attn_norm.bias      64
      ln_2.weight         ffn_norm.weight     64
      ln_2.bias           ffn_norm.bias       64
      attn.c_attn.weight  attn_qkv.weight     64x192  np=64x192T  as=192x64
      attn.c_attn.bias    attn_qkv.bias       192
      attn.c_proj.weight  attn_output.weight  64x64   np=64x64T   as=64x64
      attn.c_proj.bias    attn_output.bias    64
      mlp.c_fc.weight     ffn_up.weight       64x256  np=64x256T  as=256x64
      mlp.c_fc.bias       ffn_up.bias         256
      mlp.c_proj.weight   ffn_down.weight     256x64  np=256x64T  as=64x256
      mlp.c_proj.bias     ffn_down.bias       64`,
  },
  model: {
    prefix: 'transformer.h.',
    embedding: 'transformer.wte.weight',
    positions: 'transformer.wpe.weight',
    layerNorms: true,
    norms: { attention: 'ln_1', feedForward: 'ln_2', final: 'transformer.ln_f' },
    attend(read, p, _layer, x) {
      const dense = (name: string, one: Vector) =>
        add(turnedOf(read, `${p}${name}.weight`, 0, one), Float64Array.from(read.get(`${p}${name}.bias`).values));
      const parts = x.map((one) => slices(dense('attn.c_attn', one), 64));
      const [q, k, v] = [0, 1, 2].map((i) => parts.map((part) => part[i]!)) as [Vector[], Vector[], Vector[]];
      return heads(q, k, v, { scale: 1 / 4 }, { heads: 4, keyHeads: 4 }).map((one) => dense('attn.c_proj', one));
    },
    grow(read, p, x) {
      const dense = (name: string, one: Vector) =>
        add(turnedOf(read, `${p}${name}.weight`, 0, one), Float64Array.from(read.get(`${p}${name}.bias`).values));
      return dense('mlp.c_proj', gelu(dense('mlp.c_fc', x)));
    },
  },
  bound: nearGelu,
};

// --------------------------------------------------------------------------------------------------------------------- Llama 4

const heads16: Keys = [
  ['attention.layer_norm_rms_epsilon', 1e-5],
  ['attention.key_length', 16],
  ['attention.value_length', 16],
];

const llama4: DecoderCase = {
  name: 'Llama 4',
  hugging: 'Llama4ForCausalLM',
  architecture: 'llama4',
  layers: 4,
  config: {
    head_dim: 16,
    intermediate_size: 48,
    intermediate_size_mlp: 96,
    num_local_experts: 5,
    num_experts_per_tok: 1,
    interleave_moe_layer_step: 2,
    use_qk_norm: true,
    tie_word_embeddings: false,
  },
  keys: [
    ...withExperts(common(heads16), ['expert_count', 5], ['expert_used_count', 1]).map(
      ([name, value]) => [name, name === 'block_count' ? 4 : value] as const,
    ),
    ['vocab_size', 264],
    ['rope.dimension_count', 16],
    ['interleave_moe_layer_step', 2],
    ['expert_feed_forward_length', 48],
  ],
  table: {
    prefix,
    outside,
    layer: norms + attention,
    some: [
      { layers: [0, 2], lines: gated.replaceAll('mlp.', 'feed_forward.') },
      {
        layers: [1, 3],
        lines: `
          feed_forward.router.weight                   ffn_gate_inp.weight    5x64
          feed_forward.experts.gate_up_proj            ffn_gate_exps.weight   5x64x96  np=5x64x96[:,:,0:48]T   as=5x48x64
          feed_forward.experts.gate_up_proj            ffn_up_exps.weight     5x64x96  np=5x64x96[:,:,48:96]T  as=5x48x64
          feed_forward.experts.down_proj               ffn_down_exps.weight   5x48x64  np=5x48x64T             as=5x64x48
          feed_forward.shared_expert.gate_proj.weight  ffn_gate_shexp.weight  48x64
          feed_forward.shared_expert.up_proj.weight    ffn_up_shexp.weight    48x64
          feed_forward.shared_expert.down_proj.weight  ffn_down_shexp.weight  64x48`,
      },
    ],
  },
  model: {
    headName: 'lm_head.weight',
    attend(read, p, layer, x) {
      const rotates = (layer + 1) % 4 !== 0;
      const frequencies = rotaryFrequencies(10000, 16);
      const turn = (name: string) =>
        x.map((one, t) =>
          joined(
            slices(read.linear(`${p}self_attn.${name}_proj`, one), 16).map((head) => {
              if (!rotates) return head;
              const turned = rotate(head, t, frequencies, 1, true);
              return turned.map((v) => v / Math.sqrt(dot(turned, turned) / 16 + 1e-5));
            }),
          ),
        );
      const v = x.map((one) => read.linear(`${p}self_attn.v_proj`, one));
      const all = heads(turn('q'), turn('k'), v, { scale: 1 / 4 }, { heads: 4, keyHeads: 2 });
      return all.map((one) => read.linear(`${p}self_attn.o_proj`, one));
    },
    grow(read, p, x) {
      const own = `${p}feed_forward.`;
      const dense = (name: string, one: Vector) =>
        read.linear(
          `${name}down_proj`,
          multiply(silu(read.linear(`${name}gate_proj`, one)), read.linear(`${name}up_proj`, one)),
        );
      if (!read.has(`${own}router.weight`)) return dense(own, x);
      const scores = [...read.linear(`${own}router`, x)];
      const [e] = best(scores, 1) as [number];
      // The share weighs the input of the expert.
      const weighed = x.map((v) => v * sigmoid(scores[e]!));
      const name = `${own}experts.gate_up_proj`;
      const inner = multiply(
        silu(turnedOf(read, name, e, weighed, 0, 1, 48)),
        turnedOf(read, name, e, weighed, 48, 1, 48),
      );
      return add(turnedOf(read, `${own}experts.down_proj`, e, inner), dense(`${own}shared_expert.`, x));
    },
  },
};

// --------------------------------------------------------------------------------------------------------------------- gpt-oss

const gptOss: DecoderCase = {
  name: 'gpt-oss in 16 bits',
  own: true,
  hugging: 'GptOssForCausalLM',
  architecture: 'gpt-oss',
  layers: 4,
  config: {
    head_dim: 16,
    num_local_experts: 5,
    num_experts_per_tok: 2,
    sliding_window: 4,
    attention_bias: true,
    swiglu_limit: 7,
    layer_types: ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention'],
    tie_word_embeddings: false,
  },
  keys: [
    ...withExperts(common(heads16), ['expert_count', 5], ['expert_used_count', 2]).map(
      ([name, value]) => [name, name === 'block_count' ? 4 : value] as const,
    ),
    ['attention.sliding_window', 4],
    ['expert_feed_forward_length', 96],
  ],
  table: {
    prefix,
    outside,
    layer: `
      input_layernorm.weight           attn_norm.weight            64
      post_attention_layernorm.weight  post_attention_norm.weight  64
      ${attention}${biases}
      self_attn.o_proj.bias            attn_output.bias      64
      self_attn.sinks                  attn_sinks.weight     4
      mlp.router.weight                ffn_gate_inp.weight   5x64
      mlp.router.bias                  ffn_gate_inp.bias     5
      mlp.experts.gate_up_proj         ffn_gate_exps.weight  5x64x192  np=5x64x192[:,:,0::2]T  as=5x96x64
      mlp.experts.gate_up_proj         ffn_up_exps.weight    5x64x192  np=5x64x192[:,:,1::2]T  as=5x96x64
      mlp.experts.gate_up_proj_bias    ffn_gate_exps.bias    5x192     np=5x192[:,0::2]        as=5x96
      mlp.experts.gate_up_proj_bias    ffn_up_exps.bias      5x192     np=5x192[:,1::2]        as=5x96
      mlp.experts.down_proj            ffn_down_exps.weight  5x96x64   np=5x96x64T             as=5x64x96
      mlp.experts.down_proj_bias       ffn_down_exps.bias    5x64`,
  },
  model: {
    headName: 'lm_head.weight',
    attend(read, p, layer, x) {
      const frequencies = rotaryFrequencies(10000, 16);
      const part = (name: string) => x.map((one) => read.linear(`${p}self_attn.${name}_proj`, one));
      const turn = (all: Vector[]) =>
        all.map((one, t) => joined(slices(one, 16).map((head) => rotate(head, t, frequencies, 1))));
      const sinks = read.get(`${p}self_attn.sinks`).values;
      const wish = { scale: 1 / 4, window: layer % 2 === 0 ? 4 : Infinity, sinks };
      const all = heads(turn(part('q')), turn(part('k')), part('v'), wish, { heads: 4, keyHeads: 2 });
      return all.map((one) => read.linear(`${p}self_attn.o_proj`, one));
    },
    grow(read, p, x) {
      const scores = [...read.linear(`${p}mlp.router`, x)];
      const chosen = best(scores, 2);
      const shares = softmax(chosen.map((e) => scores[e]!));
      const name = `${p}mlp.experts.gate_up_proj`;
      const bias = read.get(`${name}_bias`).values;
      const outputs = chosen.map((e, i) => {
        const part = (first: 0 | 1) =>
          turnedOf(read, name, e, x, first, 2, 96).map((v, o) => v + bias[e * 192 + 2 * o + first]!);
        const gate = part(0).map((v) => Math.min(v, 7));
        const up = part(1).map((v) => Math.max(-7, Math.min(v, 7)));
        const inner = gate.map((v, o) => v * sigmoid(1.702 * v) * (up[o]! + 1));
        const down = turnedOf(read, `${p}mlp.experts.down_proj`, e, inner);
        return down.map((v, o) => (v + read.get(`${p}mlp.experts.down_proj_bias`).values[e * 64 + o]!) * shares[i]!);
      });
      return outputs.reduce(add);
    },
  },
};

// -------------------------------------------------------------------------------------------------------------------- DeepSeek

const deepseekV2: DecoderCase = {
  name: 'DeepSeek V2 Lite',
  hugging: 'DeepseekV2ForCausalLM',
  architecture: 'deepseek2',
  // llama.cpp takes only models of this depth for ones whose queries are not compressed.
  layers: 26,
  config: {
    ...latentConfig,
    q_lora_rank: null,
    n_routed_experts: 5,
    scoring_func: 'softmax',
    topk_method: 'greedy',
    norm_topk_prob: false,
    tie_word_embeddings: true,
  },
  keys: latentKeys(
    [
      ['expert_count', 5],
      ['expert_used_count', 2],
      ['expert_gating_func', 1],
    ],
    [],
    [],
  ).map(([name, value]) => [name, name === 'block_count' ? 26 : value] as const),
  table: {
    prefix,
    outside: tiedOutside,
    layer: `${deepseekLayer}
      self_attn.q_proj.weight  attn_q.weight  80x64`,
    some: [
      { layers: [0], lines: gated },
      { layers: Array.from({ length: 25 }, (_, i) => i + 1), lines: deepseekMixture(5) },
    ],
  },
  model: { attend: latent, grow: deepseekExperts(false) },
};

const deepseekV3: DecoderCase = {
  name: 'DeepSeek V3',
  hugging: 'DeepseekV3ForCausalLM',
  architecture: 'deepseek2',
  config: {
    ...latentConfig,
    q_lora_rank: 24,
    n_routed_experts: 6,
    n_group: 3,
    topk_group: 2,
    scoring_func: 'sigmoid',
    topk_method: 'noaux_tc',
    norm_topk_prob: true,
    tie_word_embeddings: false,
  },
  keys: latentKeys(
    [
      ['expert_count', 6],
      ['expert_used_count', 2],
      ['expert_group_count', 3],
      ['expert_group_used_count', 2],
      ['expert_gating_func', 2],
    ],
    [['attention.q_lora_rank', 24]],
    [['expert_weights_norm', true]],
  ),
  table: {
    prefix,
    outside,
    layer: `${deepseekLayer}
      self_attn.q_a_proj.weight       attn_q_a.weight       24x64
      self_attn.q_a_layernorm.weight  attn_q_a_norm.weight  24
      self_attn.q_b_proj.weight       attn_q_b.weight       80x24`,
    some: [
      { layers: [0], lines: gated },
      {
        layers: [1, 2],
        lines: `${deepseekMixture(6)}
          mlp.gate.e_score_correction_bias  exp_probs_b.bias  6`,
      },
    ],
  },
  model: { headName: 'lm_head.weight', attend: latent, grow: deepseekExperts(true) },
};

const cases: readonly DecoderCase[] = [gpt2, llama4, gptOss, deepseekV2, deepseekV3];

testDecoders(cases);

testRefusals(cases, [
  ['GPT-2', { activation_function: 'relu' }, /activation_function is "relu"/, 'UNKNOWN_FORMAT'],
  ['GPT-2', { n_inner: 100 }, /n_inner is 100/, 'UNKNOWN_FORMAT'],
  ['GPT-2', { n_ctx: 16 }, /n_ctx is 16 and n_positions is 32/, 'BAD_FILE'],
  ['GPT-2', { n_head: 5 }, /n_embd 64 is not a multiple/, 'BAD_FILE'],
  ['Llama 4', { use_qk_norm: false }, /use_qk_norm is false/, 'UNKNOWN_FORMAT'],
  ['Llama 4', { moe_layers: [0, 1, 2, 3] }, /moe_layers/, 'UNKNOWN_FORMAT'],
  ['Llama 4', { no_rope_layers: [1, 1, 1, 1] }, /no_rope_layers\[3\] is 1/, 'UNKNOWN_FORMAT'],
  ['Llama 4', { attention_chunk_size: 4096 }, /attention_chunk_size is 4096/, 'UNKNOWN_FORMAT'],
  ['gpt-oss in 16 bits', { swiglu_limit: 6 }, /swiglu_limit is 6/, 'UNKNOWN_FORMAT'],
  ['gpt-oss in 16 bits', { layer_types: Array(4).fill('full_attention') }, /layer_types\[0\]/, 'UNKNOWN_FORMAT'],
  [
    'DeepSeek V3',
    { q_lora_rank: null },
    /q_lora_rank is null; llama.cpp computes 3 layers with one only/,
    'UNKNOWN_FORMAT',
  ],
  ['DeepSeek V3', { rope_interleave: false }, /rope_interleave is false/, 'UNKNOWN_FORMAT'],
  ['DeepSeek V3', { scoring_func: 'relu' }, /scoring_func is "relu"/, 'UNKNOWN_FORMAT'],
  ['DeepSeek V3', { n_routed_experts: 2 ** 30 }, /too few/, 'BAD_FILE'],
  ['DeepSeek V3', { kv_lora_rank: 16 }, /has the shape/, 'BAD_FILE'],
  [
    'DeepSeek V3',
    {
      rope_scaling: { type: 'yarn', factor: 4, original_max_position_embeddings: 32, mscale: 1, mscale_all_dim: 0.5 },
    },
    /mscale is 1 and mscale_all_dim 0.5/,
    'UNKNOWN_FORMAT',
  ],
]);

describe('limits of YaRN that llama.cpp rounds', () => {
  it.each([
    [false, 1],
    [true, 0],
    [undefined, 0],
  ])('have a note where config.json does not truncate them: %s', async (truncate, count) => {
    const yarn = { rope_type: 'yarn', factor: 32, original_max_position_embeddings: 64, truncate };
    const one = { ...gptOss, config: { ...gptOss.config, rope_scaling: yarn } };
    const { notes } = await convertedDecoder(one, weightsOfTable(one.table, 4));
    const found = notes.filter(({ kind }) => kind === 'computedOtherwise');
    expect(found).toHaveLength(count);
    if (count > 0) expect(found[0]?.text).toContain('rope_scaling.truncate is false');
  });
});
