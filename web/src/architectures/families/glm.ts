/**
 * ChatGLM 3, GLM-4, GLM-Edge, and GLM-4 with experts.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ glm.py at 051139f and chatglm.py 32e9e04. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { member } from '../huggingface/json.js';
import { decoderDefaults, type ModelClass, never, readExperts, rotatedOf } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import type { TokenizerFacts } from '../huggingface/tokenizer-input.js';
import {
  attention,
  biasedInputs,
  denseThenExperts,
  headNorms,
  joinedFeedForward,
  norms,
  normsBetween,
  onlyIn,
  qwenExperts,
  sharedExperts,
  withBias,
} from './rows.js';

const glmDefaults = decoderDefaults([4096, 13696, 40], [32, 2, 128], 131072, {
  rms_norm_eps: 1.5625e-7,
  attention_bias: true,
});

const glm4: ModelClass = {
  architecture: 'glm4',
  traits: { pairs: 'neighbors' },
  classes: { Glm4ForCausalLM: glmDefaults },
  preTokenizers: { 'llama-bpe': 'glm4', 'smaug-bpe': 'glm4' },
  roleTokens: [
    ['eos', '<|endoftext|>'],
    ['eot', '<|user|>'],
    ['unk', '<|endoftext|>'],
    ['bos', '<|endoftext|>'],
  ],
  only: { hidden_act: ['silu'], use_sliding_window: [false] },
  scaling: ['linear', 'yarn'],
  slides: never,
  table: {
    layer: [
      { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
      { from: 'post_self_attn_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
      { from: 'post_attention_layernorm', to: 'ffn_norm', shape: ['hidden'] },
      { from: 'post_mlp_layernorm', to: 'post_ffw_norm', shape: ['hidden'] },
      ...biasedInputs,
      ...joinedFeedForward,
    ],
  },
  details(draft) {
    const { rope } = draft;
    if (member(rope.settings, 'mrope_section') !== undefined)
      unsupportedConfig(`${rope.where}.mrope_section is set; the language models of GLM-4V are not supported`);
    return { keys: { 'rope.dimension_count': rotatedOf(draft, 0.5) } };
  },
  mlx: { glm4: { head: 'own' } },
};

/** ChatGLM 3 and GLM-4-9B. */
const chatglm: ModelClass = {
  architecture: 'chatglm',
  traits: { pairs: 'neighbors' },
  classes: { ChatGLMModel: {}, ChatGLMForConditionalGeneration: {} },
  // llama.cpp knows a second name of it, glm4, for some tokenizers of this architecture, and takes both for the same.
  preTokenizers: { 'llama-bpe': 'chatglm-bpe', 'smaug-bpe': 'chatglm-bpe' },
  roleTokens: [
    ['eos', '<|endoftext|>'],
    ['eot', '<|user|>'],
    ['unk', '<|endoftext|>'],
  ],
  adds: { bos: false },
  only: {
    rmsnorm: [true],
    multi_query_attention: [true],
    post_layer_norm: [true],
    add_bias_linear: [false],
    apply_residual_connection_post_layernorm: [false],
  },
  decoder({ config }) {
    if (config.get('position_encoding_2d') !== undefined || config.get('inner_hidden_size') !== undefined)
      unsupportedConfig(
        'the model is ChatGLM 1, whose positions have two dimensions; llama.cpp computes ChatGLM 3 and later ones',
      );
    if (config.get('pre_seq_len') !== undefined)
      unsupportedConfig(
        `pre_seq_len is ${show(config.get('pre_seq_len'))}; llama.cpp computes no prefixes that were learned`,
      );
    const layers = config.maybeWhole('num_hidden_layers') ?? config.whole('num_layers');
    if (config.whole('num_layers', layers) !== layers)
      badConfig(`num_hidden_layers is ${layers} and num_layers ${show(config.get('num_layers'))}`);
    const hidden = config.whole('hidden_size');
    const heads = config.whole('num_attention_heads');
    return {
      layers,
      keyHeads: config.maybeWhole('multi_query_group_num') ?? config.whole('num_key_value_heads', heads),
      feedForward: config.maybeWhole('ffn_hidden_size') ?? config.whole('intermediate_size', 4 * hidden),
      context: config.whole('seq_length', hidden),
      rmsEpsilon: config.positive('layernorm_epsilon', 1e-5),
      theta: 10000 * config.positive('rope_ratio', 1),
      plainHeads: true,
    };
  },
  scaling: [],
  ties: false,
  details({ config, sizes }) {
    config.only('kv_channels', sizes.head);
    const share = config.positive('partial_rotary_factor', 0.5);
    const dimensions = Math.floor(config.whole('attention_dim', sizes.head) * share);
    if (dimensions < 2 || dimensions > sizes.head || dimensions % 2 !== 0)
      badConfig(`${dimensions} of ${sizes.head} elements of a head turn; they have to be pairs`);
    const biases = config.maybeFlag('add_qkv_bias');
    const products: Row = { from: 'self_attention.query_key_value', to: 'attn_qkv', shape: ['together', 'hidden'] };
    return {
      keys: { 'rope.dimension_count': dimensions },
      sizes: { vocabulary: config.maybeWhole('padded_vocab_size') ?? sizes.vocabulary },
      table: {
        layersKey: 'num_layers',
        layerPrefix: 'encoder.layers.',
        outside: [
          { from: 'embedding.word_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
          { from: 'encoder.final_layernorm', to: 'output_norm', shape: ['hidden'] },
          { from: 'output_layer', to: 'output', shape: ['vocabulary', 'hidden'], optional: true },
        ],
        layer: [
          ...norms,
          { ...products, bias: biases === undefined ? 'optional' : biases ? 'always' : 'never' },
          { from: 'self_attention.dense', to: 'attn_output', shape: ['hidden', 'queries'] },
          { from: 'mlp.dense_h_to_4h', to: 'ffn_up', shape: ['2 feedForward', 'hidden'] },
          { from: 'mlp.dense_4h_to_h', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
        ],
        rename: (name) => (name.endsWith('rotary_pos_emb.inv_freq') ? undefined : name.replace(/^transformer\./, '')),
      },
    };
  },
};

/**
 * GLM-4-9B and GLM-Edge in the names of transformers. The converter takes defaults for the context, the base and the addend of norms, which it looks
 * for under ChatGLM's names; here they are those of the folder.
 */
const glm: ModelClass = {
  architecture: 'chatglm',
  traits: { pairs: 'neighbors' },
  classes: { GlmForCausalLM: glmDefaults },
  adds: { bos: false },
  only: { hidden_act: ['silu'] },
  decoder: { plainHeads: true },
  scaling: [],
  table: { layer: [...norms, ...biasedInputs, ...joinedFeedForward] },
  details(draft) {
    draft.config.only('head_dim', draft.sizes.head);
    return { keys: { 'rope.dimension_count': rotatedOf(draft, 0.5) } };
  },
  mlx: { glm: {} },
};

/** Layers behind the last one, which predict further tokens. */
export const nextRows: readonly Row[] = [
  { from: 'eh_proj', to: 'nextn.eh_proj', shape: ['hidden', '2 hidden'] },
  { from: 'enorm', to: 'nextn.enorm', shape: ['hidden'] },
  { from: 'hnorm', to: 'nextn.hnorm', shape: ['hidden'] },
  { from: 'embed_tokens', to: 'nextn.embed_tokens', shape: ['vocabulary', 'hidden'], optional: true },
  { from: 'shared_head.head', to: 'nextn.shared_head_head', shape: ['vocabulary', 'hidden'], optional: true },
  { from: 'shared_head.norm', to: 'nextn.shared_head_norm', shape: ['hidden'], optional: true },
];

/** Names of a layer that predicts a further token, in models that have it apart. */
const nextNames: readonly (readonly [RegExp, string])[] = [
  [/^mtp\.layers\.0\./, 'model.layers.#.'],
  [/^mtp\.fc\./, 'model.layers.#.eh_proj.'],
  [/^mtp\.pre_fc_norm_embedding\./, 'model.layers.#.enorm.'],
  [/^mtp\.pre_fc_norm_hidden\./, 'model.layers.#.hnorm.'],
  [/^mtp\.norm\./, 'model.layers.#.shared_head.norm.'],
];

/** The name of such a tensor among those of layers. @param layers those before it */
export const nextName = (name: string, layers: number): string =>
  nextNames.reduce((own, [from, to]) => own.replace(from, to.replace('#', String(layers))), name);

/** Facts about the tokenizers of GLM with experts. */
export const glmTokenizer: TokenizerFacts = {
  preTokenizers: { 'llama-bpe': 'glm4', 'smaug-bpe': 'glm4' },
  roleTokens: [
    ['bos', '[gMASK]'],
    ['eot', '<|user|>'],
    ['unk', '<|endoftext|>'],
    ['eom', '<|observation|>'],
  ],
};

const glm4moe: ModelClass = {
  mlx: {
    glm4_moe: { head: 'own', experts: { block: 'mlp' }, plain: /\.mlp\.gate$/, uncast: /e_score_correction_bias/ },
  },
  ...glmTokenizer,
  architecture: 'glm4moe',
  traits: { pairs: 'halves', normsBetween: true, shares: 'sigmoid' },
  classes: {
    Glm4MoeForCausalLM: decoderDefaults([4096, 10944, 46], [96, 8], 131072, {
      rms_norm_eps: 1e-5,
      moe_intermediate_size: 1408,
      num_experts_per_tok: 8,
    }),
  },
  only: { hidden_act: ['silu'], n_group: [1], topk_group: [1] },
  scaling: ['linear', 'yarn'],
  details(draft) {
    const { config, sizes } = draft;
    const { keys, sizes: counts } = readExperts(config, 'n_routed_experts', { rows: 'moe_intermediate_size' });
    const nextLayers = config.maybeWhole('num_nextn_predict_layers', 0);
    const dense = config.maybeWhole('first_k_dense_replace', 0) ?? 0;
    const shared = config.whole('n_shared_experts');
    const layers = sizes.layers + (nextLayers ?? 0);
    const hasHeadNorms = config.maybeFlag('use_qk_norm') ?? false;
    return {
      keys: {
        ...keys,
        block_count: layers,
        expert_group_count: config.whole('n_group', 1),
        expert_group_used_count: config.whole('topk_group', 1),
        'rope.dimension_count': rotatedOf(draft, 0.5),
        expert_shared_count: shared,
        leading_dense_block_count: dense,
        // A sigmoid makes the shares.
        expert_gating_func: 2,
        expert_weights_scale: config.positive('routed_scaling_factor', 1),
        expert_weights_norm: config.maybeFlag('norm_topk_prob') ?? true,
        nextn_predict_layers: nextLayers,
      },
      sizes: { ...counts, layers, sharedFeedForward: shared * (counts.expertFeedForward ?? 0) },
      table: {
        layer: [
          ...normsBetween,
          ...withBias(attention.slice(0, 3), 'stated'),
          ...attention.slice(3),
          ...(hasHeadNorms ? headNorms : []),
          ...denseThenExperts(dense, [
            ...qwenExperts(false),
            { from: 'mlp.gate.e_score_correction_bias', to: 'exp_probs_b', whole: '.bias', shape: ['experts'] },
            ...sharedExperts('mlp.shared_experts'),
          ]),
          ...onlyIn(nextRows, (layer) => layer >= sizes.layers),
        ],
      },
    };
  },
};

/** Solar Open, which has the layers of GLM-4. */
const solarOpen: ModelClass = {
  ...glm4moe,
  classes: { SolarOpenForCausalLM: { ...glm4moe.classes.Glm4MoeForCausalLM, partial_rotary_factor: 1 } },
  preTokenizers: { qwen2: 'solar-open' },
  roleTokens: [
    ['eos', '<|endoftext|>'],
    ['eot', '<|endoftext|>'],
    ['unk', '<unk>'],
    ['bos', '<|startoftext|>'],
  ],
};

export const glmFamily: readonly ModelClass[] = [glm4, chatglm, glm, glm4moe, solarOpen];
