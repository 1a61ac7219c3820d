// Decoders without experts.
import { expect } from 'vitest';
import type { DecoderCase, Refusal } from '../decoder-cases.js';
import {
  attention,
  biases,
  changed,
  common,
  gated,
  headNorms,
  heads,
  type Keys,
  lateNorms,
  layerNorm,
  llamaKeys,
  normBiases,
  norms,
  normsBetween,
  outside,
  permuted,
  prefix,
  tiedOutside,
  untied,
  usualTable,
} from '../decoder-tables.js';
import { add, type Decoder, gelu, relu2, slices, turnedOf, type Vector } from '../forward.js';
import { weightsOfTable } from '../tensor-table.js';
import { attended } from './latent.js';

/** As in logits.node.test.ts: a table of GELU in half precision. */
const nearGelu = 3e-3;

const late: Partial<Decoder> = {
  norms: {
    attention: undefined,
    attentionAfter: 'post_attention_layernorm',
    feedForward: undefined,
    feedForwardAfter: 'post_feedforward_layernorm',
  },
};

/** Frequencies by YaRN, with 32 and 1 turns as the ends of the ramp. */
export const yarn = (dim: number, factor: number, context: number) => (frequencies: readonly number[]) => {
  const at = (turns: number) => (dim * Math.log(context / (turns * 2 * Math.PI))) / (2 * Math.log(10000));
  const [low, high] = [Math.max(Math.floor(at(32)), 0), Math.min(Math.ceil(at(1)), dim - 1)];
  return frequencies.map((f, i) => {
    const ramp = Math.min(Math.max((i - low) / (high - low), 0), 1);
    return (f / factor) * ramp + f * (1 - ramp);
  });
};

/** Frequencies by Llama 3's rule, with 1 and 4 turns as the ends of the ramp. */
const llama3 = (factor: number, context: number) => (frequencies: readonly number[]) =>
  frequencies.map((f) => {
    const ramp = Math.min(Math.max(((context * f) / (2 * Math.PI) - 1) / 3, 0), 1);
    return (f / factor) * (1 - ramp) + f * ramp;
  });

/** Keys of config.json that ChatGLM and Falcon call otherwise, or lack. */
const noUsual = {
  num_hidden_layers: undefined,
  num_key_value_heads: undefined,
  intermediate_size: undefined,
  max_position_embeddings: undefined,
  rms_norm_eps: undefined,
  rope_theta: undefined,
};

const falconConfig = {
  ...noUsual,
  num_hidden_layers: 3,
  layer_norm_epsilon: 1e-5,
  alibi: false,
  bias: false,
  parallel_attn: true,
};
/** Written from conversion/falcon.py. */
const falconKeys = (keyHeads: number): Keys =>
  common(
    ['rope.freq_base', undefined],
    ...layerNorm,
    ['context_length', 2048],
    ['tensor_data_layout', 'jploski'],
    ['feed_forward_length', 256],
    ['attention.head_count_kv', keyHeads],
  );
const falconOutside = `
  transformer.word_embeddings.weight  token_embd.weight   264x64
  transformer.ln_f.weight             output_norm.weight  64
  transformer.ln_f.bias               output_norm.bias    64`;
const falconRest = `
  self_attention.dense.weight  attn_output.weight  64x64
  mlp.dense_h_to_4h.weight     ffn_up.weight       256x64
  mlp.dense_4h_to_h.weight     ffn_down.weight     64x256`;
const falconModel: Partial<Decoder> = {
  embedding: 'transformer.word_embeddings.weight',
  prefix: 'transformer.h.',
  attentionPrefix: 'self_attention.',
  attentionOutput: 'dense',
  grouped: 'query_key_value',
  layerNorms: true,
  parallel: true,
  act: gelu,
  mlp: { up: 'mlp.dense_h_to_4h', down: 'mlp.dense_4h_to_h' },
  norms: { feedForward: undefined, final: 'transformer.ln_f' },
};

/** Written from conversion/arcee.py, whose class is that of Llama. */
const arcee: Omit<DecoderCase, 'name' | 'keys'> = {
  own: true,
  hugging: 'ArceeForCausalLM',
  architecture: 'arcee',
  config: { hidden_act: 'relu2' },
  table: usualTable(`${norms}${permuted}
      mlp.up_proj.weight    ffn_up.weight    96x64
      mlp.down_proj.weight  ffn_down.weight  64x96`),
  model: { ...untied, act: relu2, mlp: { up: 'mlp.up_proj', down: 'mlp.down_proj' } },
};

/** LFM2: norms of its layers, and layers with attention or a short convolution. */
export const lfm2 = {
  prefix,
  outside: `
    model.embed_tokens.weight    token_embd.weight       264x64
    model.embedding_norm.weight  token_embd_norm.weight  64`,
  layer: `
    operator_norm.weight  attn_norm.weight  64
    ffn_norm.weight       ffn_norm.weight   64`,
  some: [
    {
      layers: [1],
      lines: `
        self_attn.q_proj.weight       attn_q.weight       64x64
        self_attn.k_proj.weight       attn_k.weight       32x64
        self_attn.v_proj.weight       attn_v.weight       32x64
        self_attn.out_proj.weight     attn_output.weight  64x64
        self_attn.q_layernorm.weight  attn_q_norm.weight  16
        self_attn.k_layernorm.weight  attn_k_norm.weight  16`,
    },
    {
      layers: [0, 2],
      lines: `
        conv.conv.weight      shortconv.conv.weight      64x1x3  as=64x3
        conv.in_proj.weight   shortconv.in_proj.weight   192x64
        conv.out_proj.weight  shortconv.out_proj.weight  64x64`,
    },
  ],
};
export const lfm2Dense = `
  feed_forward.w1.weight  ffn_gate.weight  96x64
  feed_forward.w3.weight  ffn_up.weight    96x64
  feed_forward.w2.weight  ffn_down.weight  64x96`;
export const lfm2Model: Partial<Decoder> = {
  attentionOutput: 'out_proj',
  convolves: (layer) => layer !== 1,
  mlp: { gate: 'feed_forward.w1', up: 'feed_forward.w3', down: 'feed_forward.w2' },
  norms: {
    attention: 'operator_norm',
    feedForward: 'ffn_norm',
    query: 'q_layernorm',
    key: 'k_layernorm',
    final: 'model.embedding_norm',
  },
};

/** Apertus, whose layers have numbers of their activations. */
const apertusTable: DecoderCase['table'] = {
  prefix,
  outside,
  layer: `${attention}${headNorms}
    attention_layernorm.weight    attn_norm.weight  64
    feedforward_layernorm.weight  ffn_norm.weight   64
    mlp.up_proj.weight            ffn_up.weight     96x64
    mlp.down_proj.weight          ffn_down.weight   64x96
    mlp.act_fn.alpha_n            x                 1  drop
    mlp.act_fn.alpha_p            x                 1  drop
    mlp.act_fn.beta               x                 1  drop
    mlp.act_fn.eps                x                 1  drop`,
};
const apertusNumbers = (part: string) =>
  [0, 1, 2].map((layer) => weightsOfTable(apertusTable, 3).get(`model.layers.${layer}.mlp.act_fn.${part}`)!.values[0]);

const cases: readonly DecoderCase[] = [
  {
    name: 'Gemma 1',
    hugging: 'GemmaForCausalLM',
    architecture: 'gemma',
    config: { head_dim: 16, hidden_act: 'gelu' },
    keys: common(['rope.freq_base', undefined], ...heads),
    table: {
      prefix,
      outside: tiedOutside.replace(/ 64$/, ' 64 +1'),
      layer: norms.replaceAll(/ 64$/gm, ' 64 +1') + attention + gated,
    },
    model: {
      gemma: true,
      norms: {
        attention: 'input_layernorm',
        attentionAfter: undefined,
        feedForward: 'post_attention_layernorm',
        feedForwardAfter: undefined,
      },
    },
    bound: nearGelu,
    own: true,
  },
  {
    name: 'Mistral Small 3',
    hugging: 'Mistral3ForConditionalGeneration',
    architecture: 'mistral3',
    keys: common(...llamaKeys),
    table: usualTable(norms + permuted + gated),
    model: untied,
    own: true,
  },
  {
    name: 'Ministral 3, whose queries grow with their position',
    hugging: 'Ministral3ForCausalLM',
    architecture: 'mistral3',
    config: {
      model_type: 'ministral3',
      head_dim: 16,
      rope_theta: undefined,
      rope_parameters: {
        rope_type: 'yarn',
        rope_theta: 10000,
        factor: 4,
        original_max_position_embeddings: 8,
        beta_fast: 32,
        beta_slow: 1,
        mscale: 1,
        mscale_all_dim: 1,
        llama_4_scaling_beta: 0.5,
      },
    },
    keys: common(
      ...heads,
      ['rope.scaling.type', 'yarn'],
      ['rope.scaling.factor', 4],
      ['rope.scaling.original_context_length', 8],
      ['rope.scaling.yarn_beta_fast', 32],
      ['rope.scaling.yarn_beta_slow', 1],
      ...llamaKeys,
      ['rope.scaling.yarn_log_multiplier', 1],
      ['attention.temperature_scale', 0.5],
    ),
    table: usualTable(norms + permuted + gated),
    model: {
      ...untied,
      frequencies: yarn(16, 4, 8),
      temperature: (position) => 1 + 0.5 * Math.log(1 + Math.floor(position / 8)),
    },
  },
  {
    name: 'Granite',
    own: true,
    hugging: 'GraniteForCausalLM',
    architecture: 'granite',
    config: {
      attention_multiplier: 0.125,
      embedding_multiplier: 12,
      residual_multiplier: 0.22,
      logits_scaling: 8,
      tie_word_embeddings: true,
    },
    keys: common(
      ...llamaKeys,
      ['attention.scale', 0.125],
      ['embedding_scale', 12],
      ['residual_scale', 0.22],
      ['logit_scale', 8],
    ),
    table: usualTable(norms + permuted + gated, { outside: tiedOutside }),
    model: { scale: 64, embeddingFactor: 12, residualFactor: 0.22, logitFactor: 1 / 8 },
  },
  {
    name: 'OLMo',
    own: true,
    hugging: 'OlmoForCausalLM',
    architecture: 'olmo',
    config: { clip_qkv: 0.75, rms_norm_eps: undefined },
    keys: common(...layerNorm, ['attention.clamp_kqv', 0.75]),
    table: {
      prefix,
      outside: `
        model.embed_tokens.weight  token_embd.weight  264x64
        lm_head.weight             output.weight      264x64`,
      layer: permuted + gated,
    },
    model: { ...untied, layerNorms: true, clamp: 0.75 },
  },
  {
    name: 'OLMo 2',
    own: true,
    hugging: 'Olmo2ForCausalLM',
    architecture: 'olmo2',
    keys: common(),
    table: usualTable(`${lateNorms}${attention}
        self_attn.q_norm.weight  attn_q_norm.weight  64
        self_attn.k_norm.weight  attn_k_norm.weight  32
        ${gated}`),
    model: { ...untied, ...late, headNorms: 'all' },
  },
  {
    name: 'OLMo 3, with windows and YaRN in the layers without one',
    own: true,
    hugging: 'Olmo3ForCausalLM',
    architecture: 'olmo2',
    layers: 4,
    config: {
      sliding_window: 4,
      rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 32 },
    },
    keys: common(
      ['block_count', 4],
      ['rope.scaling.type', 'yarn'],
      ['rope.scaling.factor', 4],
      ['rope.scaling.original_context_length', 32],
      ['attention.sliding_window', 4],
      ['attention.sliding_window_pattern', [true, true, true, false]],
    ),
    table: usualTable(`${lateNorms}${attention}
        self_attn.q_norm.weight  attn_q_norm.weight  64
        self_attn.k_norm.weight  attn_k_norm.weight  32
        ${gated}`),
    model: {
      ...untied,
      ...late,
      headNorms: 'all',
      window: (layer) => (layer === 3 ? Infinity : 4),
      rotaryOf: (layer) =>
        layer === 3 ? { frequencies: yarn(16, 4, 32), factor: 0.1 * Math.log(4) + 1 } : { factor: 1 },
    },
  },
  {
    name: 'GLM-4',
    hugging: 'Glm4ForCausalLM',
    architecture: 'glm4',
    config: { head_dim: 16, attention_bias: true, rms_norm_eps: 1e-5, partial_rotary_factor: 0.5 },
    keys: common(...heads, ['rope.dimension_count', 8]),
    table: usualTable(`
        input_layernorm.weight           attn_norm.weight            64
        post_self_attn_layernorm.weight  post_attention_norm.weight  64
        post_attention_layernorm.weight  ffn_norm.weight             64
        post_mlp_layernorm.weight        post_ffw_norm.weight        64
        ${attention}${biases}
        mlp.gate_up_proj.weight          ffn_up.weight    192x64
        mlp.down_proj.weight             ffn_down.weight  64x96`),
    model: {
      ...untied,
      neighbors: true,
      rotated: 8,
      norms: {
        attention: 'input_layernorm',
        attentionAfter: 'post_self_attn_layernorm',
        feedForward: 'post_attention_layernorm',
        feedForwardAfter: 'post_mlp_layernorm',
      },
    },
    own: true,
  },
  {
    name: 'ChatGLM 3 and GLM-4-9B',
    hugging: 'ChatGLMModel',
    architecture: 'chatglm',
    config: {
      ...noUsual,
      num_layers: 3,
      multi_query_attention: true,
      multi_query_group_num: 2,
      ffn_hidden_size: 96,
      kv_channels: 16,
      seq_length: 128,
      layernorm_epsilon: 1e-6,
      rope_ratio: 50,
      add_qkv_bias: true,
      add_bias_linear: false,
      rmsnorm: true,
      post_layer_norm: true,
      original_rope: true,
      apply_query_key_layer_scaling: true,
      apply_residual_connection_post_layernorm: false,
      padded_vocab_size: 264,
      vocab_size: 264,
      tie_word_embeddings: false,
    },
    keys: common(['attention.layer_norm_rms_epsilon', 1e-6], ['rope.dimension_count', 8], ['rope.freq_base', 500000]),
    table: {
      prefix: 'transformer.encoder.layers.',
      outside: `
        transformer.embedding.word_embeddings.weight  token_embd.weight   264x64
        transformer.encoder.final_layernorm.weight    output_norm.weight  64
        transformer.output_layer.weight               output.weight       264x64`,
      layer: `
        input_layernorm.weight                 attn_norm.weight    64
        post_attention_layernorm.weight        ffn_norm.weight     64
        self_attention.query_key_value.weight  attn_qkv.weight     128x64
        self_attention.query_key_value.bias    attn_qkv.bias       128
        self_attention.dense.weight            attn_output.weight  64x64
        mlp.dense_h_to_4h.weight               ffn_up.weight       192x64
        mlp.dense_4h_to_h.weight               ffn_down.weight     64x96`,
    },
    model: {
      embedding: 'transformer.embedding.word_embeddings.weight',
      headName: 'transformer.output_layer.weight',
      prefix: 'transformer.encoder.layers.',
      attentionPrefix: 'self_attention.',
      togetherName: 'query_key_value',
      attentionOutput: 'dense',
      fusedName: 'mlp.dense_h_to_4h',
      fusedDown: 'mlp.dense_4h_to_h',
      norms: { final: 'transformer.encoder.final_layernorm' },
      neighbors: true,
      rotated: 8,
      theta: 500000,
      epsilon: 1e-6,
    },
    own: true,
  },
  {
    name: 'GLM in the names of transformers',
    hugging: 'GlmForCausalLM',
    architecture: 'chatglm',
    config: { head_dim: 16, attention_bias: true, partial_rotary_factor: 0.5, rope_theta: 5000 },
    keys: common(['rope.dimension_count', 8], ['rope.freq_base', 5000]),
    table: usualTable(`${norms}${attention}${biases}
        mlp.gate_up_proj.weight  ffn_up.weight    192x64
        mlp.down_proj.weight     ffn_down.weight  64x96`),
    model: { ...untied, neighbors: true, rotated: 8, theta: 5000 },
    own: true,
  },
  {
    name: 'Falcon with one key for all heads',
    hugging: 'FalconForCausalLM',
    architecture: 'falcon',
    config: {
      ...falconConfig,
      num_attention_heads: 4,
      // That of the first checkpoints, which says nothing.
      num_kv_heads: 4,
      multi_query: true,
      new_decoder_architecture: false,
    },
    keys: falconKeys(1),
    table: {
      prefix: 'transformer.h.',
      outside: falconOutside,
      layer: `
        input_layernorm.weight                 attn_norm.weight  64
        input_layernorm.bias                   attn_norm.bias    64
        self_attention.query_key_value.weight  attn_qkv.weight   96x64
        ${falconRest}`,
    },
    model: { ...falconModel, keyHeads: 1 },
    bound: nearGelu,
    own: true,
  },
  {
    name: 'Falcon with groups and two norms, as RefinedWeb',
    hugging: 'RWForCausalLM',
    architecture: 'falcon',
    config: {
      ...falconConfig,
      ...{ num_hidden_layers: undefined, num_attention_heads: undefined },
      ...{ model_type: 'RefinedWeb', n_layer: 3, n_head: 4, n_head_kv: 2, rope_theta: undefined },
    },
    keys: falconKeys(2),
    table: {
      prefix: 'transformer.h.',
      outside: `${falconOutside}
        lm_head.weight  output.weight  264x64`,
      layer: `
        ln_mlp.weight                          attn_norm.weight    64
        ln_mlp.bias                            attn_norm.bias      64
        ln_attn.weight                         attn_norm_2.weight  64
        ln_attn.bias                           attn_norm_2.bias    64
        self_attention.query_key_value.weight  attn_qkv.weight     128x64  rows=0+16,16+16,64+16,80+16,32+16,96+16,48+16,112+16
        ${falconRest}`,
    },
    model: {
      ...falconModel,
      headName: 'lm_head.weight',
      norms: { ...falconModel.norms, attention: 'ln_attn', feedForward: 'ln_mlp' },
    },
    bound: nearGelu,
    own: true,
  },
  {
    name: 'Falcon with groups and one norm, and a longer context',
    hugging: 'FalconForCausalLM',
    architecture: 'falcon',
    config: {
      ...falconConfig,
      ...{ num_kv_heads: 2, new_decoder_architecture: true, num_ln_in_parallel_attn: 1 },
      ...{ max_position_embeddings: 8192, rope_theta: 500042, ffn_hidden_size: 256 },
    },
    keys: changed(falconKeys(2), ['context_length', 8192], ['rope.freq_base', 500042]),
    table: {
      prefix: 'transformer.h.',
      outside: falconOutside,
      layer: `
        input_layernorm.weight                 attn_norm.weight  64
        input_layernorm.bias                   attn_norm.bias    64
        self_attention.query_key_value.weight  attn_qkv.weight   128x64  rows=0+16,16+16,64+16,80+16,32+16,96+16,48+16,112+16
        ${falconRest}`,
    },
    model: { ...falconModel, theta: 500042 },
    bound: nearGelu,
  },
  {
    name: 'Falcon with keys of each head',
    hugging: 'FalconForCausalLM',
    architecture: 'falcon',
    config: { ...falconConfig, multi_query: false, new_decoder_architecture: false },
    keys: falconKeys(4),
    table: {
      prefix: 'transformer.h.',
      outside: falconOutside,
      layer: `
        input_layernorm.weight                 attn_norm.weight  64
        input_layernorm.bias                   attn_norm.bias    64
        self_attention.query_key_value.weight  attn_qkv.weight   192x64  rows=0+16,48+16,96+16,144+16,16+16,64+16,112+16,160+16,32+16,80+16,128+16,176+16
        ${falconRest}`,
    },
    model: { ...falconModel, keyHeads: 4 },
    bound: nearGelu,
  },
  {
    name: 'StarCoder 2',
    own: true,
    hugging: 'Starcoder2ForCausalLM',
    architecture: 'starcoder2',
    config: { norm_epsilon: 1e-5, hidden_act: 'gelu_pytorch_tanh', use_bias: true },
    keys: common(...layerNorm),
    table: {
      prefix,
      outside: `${tiedOutside}
        model.norm.bias  output_norm.bias  64`,
      layer: `${norms}${normBiases}${attention}${biases}
        self_attn.o_proj.bias  attn_output.bias  64
        mlp.c_fc.weight        ffn_up.weight     96x64
        mlp.c_fc.bias          ffn_up.bias       96
        mlp.c_proj.weight      ffn_down.weight   64x96
        mlp.c_proj.bias        ffn_down.bias     64`,
    },
    model: { layerNorms: true, act: gelu, mlp: { up: 'mlp.c_fc', down: 'mlp.c_proj' } },
    bound: nearGelu,
  },
  {
    name: 'StableLM with biases',
    own: true,
    hugging: 'StableLmForCausalLM',
    architecture: 'stablelm',
    config: { layer_norm_eps: 1e-5, use_qkv_bias: true, partial_rotary_factor: 0.25 },
    keys: common(
      ['rope.freq_base', undefined],
      ...layerNorm,
      ['rope.dimension_count', 4],
      ['use_parallel_residual', false],
    ),
    table: {
      prefix,
      outside: `${outside}
        model.norm.bias  output_norm.bias  64`,
      layer: norms + normBiases + attention + biases + gated,
    },
    model: { ...untied, layerNorms: true, rotated: 4 },
  },
  {
    name: 'StableLM with one norm a layer and norms of each head',
    hugging: 'StableLmForCausalLM',
    architecture: 'stablelm',
    config: { layer_norm_eps: 1e-5, use_parallel_residual: true, qk_layernorm: true, partial_rotary_factor: 0.25 },
    keys: common(
      ['rope.freq_base', undefined],
      ...layerNorm,
      ['rope.dimension_count', 4],
      ['use_parallel_residual', true],
    ),
    table: {
      prefix,
      outside: `${outside}
        model.norm.bias  output_norm.bias  64`,
      layer: `
        input_layernorm.weight                   attn_norm.weight    64
        input_layernorm.bias                     attn_norm.bias      64
        self_attn.q_layernorm.norms.#.weight     attn_q_norm.weight  16  stack=4
        self_attn.k_layernorm.norms.#.weight     attn_k_norm.weight  16  stack=2
        ${attention}${gated}`,
    },
    model: {
      ...untied,
      layerNorms: true,
      rotated: 4,
      parallel: true,
      headNorms: 'each',
      norms: {
        attention: 'input_layernorm',
        feedForward: undefined,
        query: 'q_layernorm.norms.#',
        key: 'k_layernorm.norms.#',
      },
    },
  },
  {
    name: 'GPT-NeoX',
    own: true,
    hugging: 'GPTNeoXForCausalLM',
    architecture: 'gptneox',
    config: { layer_norm_eps: 1e-5, rotary_pct: 0.5, hidden_act: 'gelu_pytorch_tanh', rope_theta: undefined },
    keys: common(
      ['attention.head_count_kv', undefined],
      ['rope.freq_base', undefined],
      ...layerNorm,
      ['rope.dimension_count', 8],
      ['use_parallel_residual', true],
    ),
    table: {
      prefix: 'gpt_neox.layers.',
      outside: `
        gpt_neox.embed_in.weight          token_embd.weight   264x64
        gpt_neox.final_layer_norm.weight  output_norm.weight  64
        gpt_neox.final_layer_norm.bias    output_norm.bias    64
        embed_out.weight                  output.weight       264x64`,
      layer: `${norms}${normBiases}
        attention.query_key_value.weight  attn_qkv.weight  192x64  rows=0+16,48+16,96+16,144+16,16+16,64+16,112+16,160+16,32+16,80+16,128+16,176+16
        attention.query_key_value.bias    attn_qkv.bias    192     rows=0+16,48+16,96+16,144+16,16+16,64+16,112+16,160+16,32+16,80+16,128+16,176+16
        attention.dense.weight            attn_output.weight  64x64
        attention.dense.bias              attn_output.bias    64
        mlp.dense_h_to_4h.weight          ffn_up.weight       96x64
        mlp.dense_h_to_4h.bias            ffn_up.bias         96
        mlp.dense_4h_to_h.weight          ffn_down.weight     64x96
        mlp.dense_4h_to_h.bias            ffn_down.bias       64`,
    },
    model: {
      headName: 'embed_out.weight',
      embedding: 'gpt_neox.embed_in.weight',
      prefix: 'gpt_neox.layers.',
      attentionPrefix: 'attention.',
      attentionOutput: 'dense',
      grouped: 'query_key_value',
      keyHeads: 4,
      layerNorms: true,
      parallel: true,
      rotated: 8,
      act: gelu,
      mlp: { up: 'mlp.dense_h_to_4h', down: 'mlp.dense_4h_to_h' },
      norms: { final: 'gpt_neox.final_layer_norm' },
    },
    bound: nearGelu,
  },
  {
    name: 'Phi-2',
    own: true,
    hugging: 'PhiForCausalLM',
    architecture: 'phi2',
    config: {
      layer_norm_eps: 1e-5,
      partial_rotary_factor: 0.5,
      hidden_act: 'gelu_new',
      intermediate_size: 256,
      num_key_value_heads: null,
    },
    keys: common(
      ['rope.freq_base', undefined],
      ...layerNorm,
      ['feed_forward_length', 256],
      ['attention.head_count_kv', 4],
      ['rope.dimension_count', 8],
    ),
    table: {
      prefix,
      outside: `
        model.embed_tokens.weight     token_embd.weight   264x64
        model.final_layernorm.weight  output_norm.weight  64
        model.final_layernorm.bias    output_norm.bias    64
        lm_head.weight                output.weight       264x64
        lm_head.bias                  output.bias         264`,
      layer: `
        input_layernorm.weight   attn_norm.weight    64
        input_layernorm.bias     attn_norm.bias      64
        self_attn.q_proj.weight  attn_q.weight       64x64
        self_attn.q_proj.bias    attn_q.bias         64
        self_attn.k_proj.weight  attn_k.weight       64x64
        self_attn.k_proj.bias    attn_k.bias         64
        self_attn.v_proj.weight  attn_v.weight       64x64
        self_attn.v_proj.bias    attn_v.bias         64
        self_attn.dense.weight   attn_output.weight  64x64
        self_attn.dense.bias     attn_output.bias    64
        mlp.fc1.weight           ffn_up.weight       256x64
        mlp.fc1.bias             ffn_up.bias         256
        mlp.fc2.weight           ffn_down.weight     64x256
        mlp.fc2.bias             ffn_down.bias       64`,
    },
    model: {
      ...untied,
      keyHeads: 4,
      layerNorms: true,
      parallel: true,
      rotated: 8,
      act: gelu,
      attentionOutput: 'dense',
      mlp: { up: 'mlp.fc1', down: 'mlp.fc2' },
      norms: { attention: 'input_layernorm', feedForward: undefined, final: 'model.final_layernorm' },
    },
    bound: nearGelu,
  },
  {
    name: 'Command R',
    own: true,
    hugging: 'CohereForCausalLM',
    architecture: 'command-r',
    config: { layer_norm_eps: 1e-5, logit_scale: 0.25, model_max_length: 256 },
    keys: common(...layerNorm, ['context_length', 256], ['logit_scale', 0.25], ['rope.scaling.type', 'none']),
    table: usualTable(
      `
        input_layernorm.weight   attn_norm.weight    64
        ${attention}${gated}`,
      { outside: tiedOutside },
    ),
    model: {
      layerNorms: true,
      parallel: true,
      neighbors: true,
      logitFactor: 0.25,
      norms: { attention: 'input_layernorm', feedForward: undefined },
    },
  },
  {
    name: 'Command R+, whose heads have norms',
    hugging: 'CohereForCausalLM',
    architecture: 'command-r',
    layers: 64,
    config: { layer_norm_eps: 1e-5, logit_scale: 0.25, model_max_length: 256, use_qk_norm: true },
    keys: common(
      ...layerNorm,
      ['context_length', 256],
      ['block_count', 64],
      ['logit_scale', 0.25],
      ['rope.scaling.type', 'none'],
    ),
    table: usualTable(
      `
        input_layernorm.weight   attn_norm.weight    64
        self_attn.q_norm.weight  attn_q_norm.weight  4x16
        self_attn.k_norm.weight  attn_k_norm.weight  2x16
        ${attention}${gated}`,
      { outside: tiedOutside },
    ),
    model: {
      layerNorms: true,
      parallel: true,
      neighbors: true,
      headNorms: 'rows',
      logitFactor: 0.25,
      norms: { attention: 'input_layernorm', feedForward: undefined },
    },
  },
  {
    name: 'Cohere 2',
    own: true,
    hugging: 'Cohere2ForCausalLM',
    architecture: 'cohere2',
    layers: 4,
    config: { layer_norm_eps: 1e-5, logit_scale: 0.25, sliding_window: 4, rotary_pct: 1 },
    keys: common(
      ...layerNorm,
      ['block_count', 4],
      ['logit_scale', 0.25],
      ['attention.sliding_window', 4],
      ...llamaKeys,
      ['rope.scaling.type', 'none'],
    ),
    table: usualTable(
      `
        input_layernorm.weight  attn_norm.weight  64
        ${attention}${gated}`,
      { outside: tiedOutside },
    ),
    model: {
      layerNorms: true,
      parallel: true,
      neighbors: true,
      logitFactor: 0.25,
      rotates: (layer) => layer !== 3,
      window: (layer) => (layer === 3 ? Infinity : 4),
      norms: { attention: 'input_layernorm', feedForward: undefined },
    },
  },
  {
    name: 'EXAONE 4',
    own: true,
    hugging: 'Exaone4ForCausalLM',
    architecture: 'exaone4',
    config: { sliding_window: null, head_dim: 16 },
    keys: common(...heads, ['vocab_size', 264]),
    table: usualTable(lateNorms + attention + headNorms + gated),
    model: { ...untied, ...late },
  },
  {
    name: 'EXAONE 4 of 64 layers, with windows',
    own: true,
    hugging: 'Exaone4ForCausalLM',
    architecture: 'exaone4',
    layers: 64,
    config: { sliding_window: 4, sliding_window_pattern: 'LLLG' },
    keys: common(
      ['block_count', 64],
      ['vocab_size', 264],
      ['attention.sliding_window', 4],
      ['attention.sliding_window_pattern', Array.from({ length: 64 }, (_, i) => i % 4 !== 3)],
    ),
    table: usualTable(lateNorms + attention + headNorms + gated),
    model: {
      ...untied,
      ...late,
      rotates: (layer) => layer % 4 !== 3,
      window: (layer) => (layer % 4 === 3 ? Infinity : 4),
    },
  },
  {
    name: 'Hunyuan',
    own: true,
    hugging: 'HunYuanDenseV1ForCausalLM',
    architecture: 'hunyuan-dense',
    config: { use_qk_norm: true, rope_scaling: { type: 'xdrope', alpha: 50 }, tie_word_embeddings: true },
    keys: common(
      ['rope.freq_base', expect.closeTo(10000 * 50 ** (16 / 14), 6)],
      ['rope.scaling.type', 'none'],
      ['rope.scaling.factor', 1],
    ),
    table: usualTable(
      `${norms}${attention}
        self_attn.query_layernorm.weight  attn_q_norm.weight  16
        self_attn.key_layernorm.weight    attn_k_norm.weight  16
        ${gated}`,
      { outside: tiedOutside },
    ),
    model: {
      theta: 10000 * 50 ** (16 / 14),
      headNorms: 'rotated',
      norms: { query: 'query_layernorm', key: 'key_layernorm' },
    },
  },
  {
    name: 'Ernie 4.5',
    hugging: 'Ernie4_5ForCausalLM',
    architecture: 'ernie4_5',
    config: { head_dim: 16, tie_word_embeddings: true },
    keys: common(...heads),
    table: usualTable(norms + attention + gated, { outside: tiedOutside }),
    model: { neighbors: true },
    own: true,
  },
  {
    name: 'Ernie 4.5 with fused matrices',
    own: true,
    hugging: 'Ernie4_5_ForCausalLM',
    architecture: 'ernie4_5',
    config: { head_dim: 16 },
    keys: common(...heads),
    table: {
      prefix: 'ernie.layers.',
      outside: outside.replaceAll('model.', 'ernie.'),
      layer: `${norms}
        self_attn.qkv_proj.weight  attn_q.weight       128x64  rows=0+64    as=64x64
        self_attn.qkv_proj.weight  attn_k.weight       128x64  rows=64+32   as=32x64
        self_attn.qkv_proj.weight  attn_v.weight       128x64  rows=96+32   as=32x64
        self_attn.o_proj.weight    attn_output.weight  64x64
        mlp.up_gate_proj.weight    ffn_gate.weight     192x64  rows=0+96    as=96x64
        mlp.up_gate_proj.weight    ffn_up.weight       192x64  rows=96+96   as=96x64
        mlp.down_proj.weight       ffn_down.weight     64x96`,
    },
    model: {
      headName: 'lm_head.weight',
      neighbors: true,
      embedding: 'ernie.embed_tokens.weight',
      prefix: 'ernie.layers.',
      fusedName: 'mlp.up_gate_proj',
      norms: { final: 'ernie.norm' },
    },
  },
  {
    name: 'Nemotron',
    own: true,
    hugging: 'NemotronForCausalLM',
    architecture: 'nemotron',
    config: { norm_eps: 1e-5, partial_rotary_factor: 0.5, hidden_act: 'relu2', head_dim: 16 },
    keys: common(
      ...heads,
      ['vocab_size', 264],
      ['attention.layer_norm_epsilon', 1e-5],
      ['rope.dimension_count', 8],
      ['rope.scaling.type', 'none'],
    ),
    table: {
      prefix,
      outside: `
        model.embed_tokens.weight  token_embd.weight   264x64
        model.norm.weight          output_norm.weight  64  +1
        model.norm.bias            output_norm.bias    64
        lm_head.weight             output.weight       264x64`,
      layer: `
        input_layernorm.weight           attn_norm.weight  64  +1
        post_attention_layernorm.weight  ffn_norm.weight   64  +1
        ${normBiases}${attention}
        mlp.up_proj.weight    ffn_up.weight    96x64
        mlp.down_proj.weight  ffn_down.weight  64x96`,
    },
    model: {
      ...untied,
      layerNorms: true,
      normPlus: 1,
      rotated: 8,
      act: relu2,
      mlp: { up: 'mlp.up_proj', down: 'mlp.down_proj' },
    },
  },
  {
    ...arcee,
    name: 'Arcee',
    keys: common(...llamaKeys),
  },
  {
    ...arcee,
    name: 'Arcee with YaRN and lengths of heads',
    config: {
      ...arcee.config,
      head_dim: 16,
      rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 32 },
    },
    keys: common(
      ...llamaKeys,
      ...heads,
      ['rope.scaling.type', 'yarn'],
      ['rope.scaling.factor', 4],
      ['rope.scaling.original_context_length', 32],
    ),
    model: { ...arcee.model, frequencies: yarn(16, 4, 32), rotaryFactor: 0.1 * Math.log(4) + 1 },
  },
  {
    ...arcee,
    name: 'Arcee with the scaling of Llama 3',
    config: {
      ...arcee.config,
      rope_scaling: { rope_type: 'llama3', factor: 8, original_max_position_embeddings: 64 },
    },
    keys: common(...llamaKeys),
    model: { ...arcee.model, frequencies: llama3(8, 64) },
  },
  {
    name: 'LFM2, whose layers have attention or a short convolution',
    hugging: 'Lfm2ForCausalLM',
    architecture: 'lfm2',
    config: {
      norm_eps: 1e-5,
      conv_L_cache: 3,
      layer_types: ['conv', 'full_attention', 'conv'],
      block_ff_dim: 140,
      block_multiple_of: 32,
      tie_word_embeddings: true,
    },
    // Two thirds of 140 are 93, and 96 is the next multiple of 32.
    keys: common(['attention.head_count_kv', [0, 2, 0]], ['vocab_size', 264], ['shortconv.l_cache', 3]),
    table: { ...lfm2, layer: lfm2.layer + lfm2Dense },
    model: lfm2Model,
  },
  {
    name: 'Phi-4 with vision, without its tower',
    hugging: 'Phi4ForCausalLMV',
    architecture: 'phi3',
    config: { original_max_position_embeddings: 128, sliding_window: null, tie_word_embeddings: false },
    keys: common(
      ['rope.scaling.original_context_length', 128],
      ['rope.dimension_count', 16],
      ['attention.sliding_window', 0],
    ),
    table: usualTable(`${norms}
        self_attn.qkv_proj.weight  attn_qkv.weight     128x64
        self_attn.o_proj.weight    attn_output.weight  64x64
        mlp.gate_up_proj.weight    ffn_up.weight       192x64
        mlp.down_proj.weight       ffn_down.weight     64x96`),
    model: untied,
  },
  {
    name: 'Apertus',
    hugging: 'ApertusForCausalLM',
    architecture: 'apertus',
    config: {
      head_dim: 16,
      hidden_act: 'xielu',
      rope_scaling: { rope_type: 'llama3', factor: 8, original_max_position_embeddings: 64 },
    },
    keys: common(
      ...heads,
      ...llamaKeys,
      ...['alpha_n', 'alpha_p', 'beta', 'eps'].map((part) => [`xielu.${part}`, apertusNumbers(part)] as const),
    ),
    table: apertusTable,
    model: {
      ...untied,
      frequencies: llama3(8, 64),
      norms: { attention: 'attention_layernorm', feedForward: 'feedforward_layernorm' },
      grow(read, p, x) {
        const [n = 0, positive = 0, beta = 0, eps = 0] = ['alpha_n', 'alpha_p', 'beta', 'eps'].map(
          (part) => read.get(`${p}mlp.act_fn.${part}`).values[0]!,
        );
        const [below, above] = [beta + Math.log1p(Math.exp(n)), Math.log1p(Math.exp(positive))];
        const inner = read
          .linear(`${p}mlp.up_proj`, x)
          .map((v) => beta * v + (v > 0 ? above * v * v : below * (Math.expm1(Math.min(v, eps)) - v)));
        return read.linear(`${p}mlp.down_proj`, inner);
      },
    },
  },
  {
    name: 'Seed-OSS',
    own: true,
    hugging: 'SeedOssForCausalLM',
    architecture: 'seed_oss',
    config: { head_dim: 16, attention_bias: true, attention_out_bias: false },
    keys: common(...heads),
    table: usualTable(`${normsBetween}${attention}${biases}${gated}`),
    model: untied,
  },
  {
    name: 'InternLM 2',
    hugging: 'InternLM2ForCausalLM',
    architecture: 'internlm2',
    keys: common(),
    table: {
      prefix,
      outside: `
        model.tok_embeddings.weight  token_embd.weight   264x64
        model.norm.weight            output_norm.weight  64
        output.weight                output.weight       264x64`,
      layer: `
        attention_norm.weight   attn_norm.weight    64
        ffn_norm.weight         ffn_norm.weight     64
        attention.wqkv.weight   attn_q.weight       128x64  np=2x4x2x8x64[:,0:2]T01324  as=64x64
        attention.wqkv.weight   attn_k.weight       128x64  np=2x4x2x8x64[:,2:3]T01324  as=32x64
        attention.wqkv.weight   attn_v.weight       128x64  rows=48+16,112+16  as=32x64
        attention.wo.weight     attn_output.weight  64x64
        feed_forward.w1.weight  ffn_gate.weight     96x64
        feed_forward.w3.weight  ffn_up.weight       96x64
        feed_forward.w2.weight  ffn_down.weight     64x96`,
    },
    model: {
      headName: 'output.weight',
      embedding: 'model.tok_embeddings.weight',
      attentionPrefix: 'attention.',
      attentionOutput: 'wo',
      grouped: 'wqkv',
      norms: { attention: 'attention_norm', feedForward: 'ffn_norm' },
      mlp: { gate: 'feed_forward.w1', up: 'feed_forward.w3', down: 'feed_forward.w2' },
    },
  },
  {
    name: 'InternLM 3',
    own: true,
    hugging: 'InternLM3ForCausalLM',
    architecture: 'llama',
    config: { head_dim: 16, rope_scaling: { rope_type: 'dynamic', factor: 6 } },
    keys: common(...heads, ...llamaKeys),
    table: usualTable(norms + permuted + gated),
    model: untied,
  },
  {
    name: 'MiniCPM',
    hugging: 'MiniCPMForCausalLM',
    architecture: 'minicpm',
    config: { scale_emb: 12, scale_depth: 1.4, dim_model_base: 32, tie_word_embeddings: true },
    keys: common(['embedding_scale', 12], ['residual_scale', 1.4 / Math.sqrt(3)], ['logit_scale', 2]),
    table: usualTable(norms + permuted + gated, { outside: tiedOutside }),
    model: { embeddingFactor: 12, residualFactor: 1.4 / Math.sqrt(3), logitFactor: 1 / 2 },
  },
  {
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
    keys: common(
      ['attention.head_count_kv', undefined],
      ['rope.freq_base', undefined],
      ...layerNorm,
      ['context_length', 32],
      ['feed_forward_length', 256],
    ),
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
        return attended(q, k, v, { scale: 1 / 4 }, { heads: 4, keyHeads: 4 }).map((one) => dense('attn.c_proj', one));
      },
      grow(read, p, x) {
        const dense = (name: string, one: Vector) =>
          add(turnedOf(read, `${p}${name}.weight`, 0, one), Float64Array.from(read.get(`${p}${name}.bias`).values));
        return dense('mlp.c_proj', gelu(dense('mlp.c_fc', x)));
      },
    },
    bound: nearGelu,
  },
];

const refusals: readonly Refusal[] = [
  ['Gemma 1', { rope_theta: 5000 }, /rope_theta is 5000/],
  ['Gemma 1', { hidden_act: 'relu' }, /hidden_act is "relu"/],
  ['Granite', { head_dim: 32 }, /head_dim is 32/],
  [
    'OLMo 3, with windows and YaRN in the layers without one',
    { layer_types: new Array(4).fill('sliding_attention') },
    /layer 3 has a window/,
  ],
  ['GLM-4', { rope_scaling: { type: 'default', mrope_section: [1, 1, 2] } }, /mrope_section/],
  ['ChatGLM 3 and GLM-4-9B', { position_encoding_2d: true }, /ChatGLM 1, whose positions have two dimensions/],
  ['ChatGLM 3 and GLM-4-9B', { multi_query_attention: false }, /multi_query_attention is false/],
  ['ChatGLM 3 and GLM-4-9B', { kv_channels: 32 }, /kv_channels is 32/],
  ['ChatGLM 3 and GLM-4-9B', { pre_seq_len: 8 }, /pre_seq_len is 8/],
  ['ChatGLM 3 and GLM-4-9B', { num_hidden_layers: 2 }, /num_hidden_layers is 2 and num_layers 3/, 'BAD_FILE'],
  ['GLM in the names of transformers', { head_dim: 32 }, /head_dim is 32/],
  ['GLM in the names of transformers', { rope_scaling: { type: 'linear', factor: 2 } }, /rope_type is "linear"/],
  ['Falcon with one key for all heads', { alibi: true }, /alibi is true/],
  ['Falcon with one key for all heads', { parallel_attn: false }, /parallel_attn is false/],
  ['Falcon with one key for all heads', { bias: true }, /bias is true/],
  ['Falcon with one key for all heads', { ffn_hidden_size: 96 }, /ffn_hidden_size is 96/],
  ['StarCoder 2', { use_bias: false }, /use_bias is false/],
  ['StableLM with biases', { rope_theta: 500 }, /rope_theta is 500/],
  ['GPT-NeoX', { rotary_emb_base: 500 }, /rotary_emb_base is 500/],
  ['Phi-2', { intermediate_size: 96 }, /intermediate_size 96/],
  ['Command R', { use_qk_norm: true }, /use_qk_norm is true/],
  ['Cohere 2', { rotary_pct: 0.5 }, /8 of 16 elements/],
  ['EXAONE 4', { sliding_window: 4 }, /sliding_window is 4/],
  ['Hunyuan', { num_experts: 4 }, /num_experts is more than 1/],
  ['Hunyuan', { rope_scaling: { type: 'dynamic', alpha: 50 } }, /max_position_embeddings 128/],
  ['Nemotron', { hidden_act: 'silu' }, /hidden_act is "silu"/],
  [
    'LFM2, whose layers have attention or a short convolution',
    { layer_types: ['conv', 'sliding_attention', 'conv'] },
    /"sliding_attention"/,
  ],
  ['Seed-OSS', { mlp_bias: true }, /mlp_bias is true/],
  ['Arcee', { hidden_act: 'silu' }, /hidden_act is "silu"/],
  ['Arcee', { attention_bias: true }, /attention_bias is true/],
  ['Arcee', { mlp_bias: true }, /mlp_bias is true/],
  ['Arcee', { rope_scaling: { type: 'dynamic', factor: 2 } }, /rope_type is "dynamic"/],
  ['MiniCPM', { rope_scaling: { rope_type: 'yarn', factor: 2 } }, /rope_type is "yarn"/],
  [
    'MiniCPM',
    { rope_scaling: { rope_type: 'longrope', original_max_position_embeddings: 64 } },
    /original_max_position_embeddings is 64/,
  ],
  ['GPT-2', { activation_function: 'relu' }, /activation_function is "relu"/],
  ['GPT-2', { n_inner: 100 }, /n_inner is 100/],
  ['GPT-2', { n_ctx: 16 }, /n_ctx is 16 and n_positions is 32/, 'BAD_FILE'],
  ['GPT-2', { n_head: 5 }, /n_embd 64 is not a multiple/, 'BAD_FILE'],
];

export const dense = { cases, refusals };
