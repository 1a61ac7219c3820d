/** Step 3.5 and the language model of Step 3.7. Reference: conversion/step3.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0. */
import { show } from '../../core/show.js';
import { positive } from '../huggingface/config.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { member, objectMember } from '../huggingface/json.js';
import { type Draft, decoderDefaults, type ModelClass, readExperts, siluSettings } from '../huggingface/reading.js';
import { llama3Factors } from '../huggingface/rope.js';
import type { Row } from '../huggingface/tensors.js';
import { nextRows } from './glm.js';
import { attention, embedding, feedForward, finalNorm, headNorms, norms, onlyIn, plusOne } from './rows.js';

const experts: readonly Row[] = [
  { from: 'moe.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
  { from: 'moe.gate_proj', to: 'ffn_gate_exps', shape: ['experts', 'expertFeedForward', 'hidden'] },
  { from: 'moe.up_proj', to: 'ffn_up_exps', shape: ['experts', 'expertFeedForward', 'hidden'] },
  { from: 'moe.down_proj', to: 'ffn_down_exps', shape: ['experts', 'hidden', 'expertFeedForward'] },
  { from: 'share_expert.gate_proj', to: 'ffn_gate_shexp', shape: ['sharedFeedForward', 'hidden'] },
  { from: 'share_expert.up_proj', to: 'ffn_up_shexp', shape: ['sharedFeedForward', 'hidden'] },
  { from: 'share_expert.down_proj', to: 'ffn_down_shexp', shape: ['hidden', 'sharedFeedForward'] },
];

/** A list of config.json with an entry for each of at least `layers` layers. Those behind its end are `otherwise`. */
function listed({ config }: Draft, name: string, all: number, otherwise: unknown, layers = 0): readonly unknown[] {
  const list = config.get(name);
  if (!Array.isArray(list) || list.length < layers)
    return badConfig(`${name} has to be an array of ${layers} entries, got ${show(list)}`);
  return Array.from({ length: all }, (_, i) => (i < list.length ? (list as unknown[])[i] : otherwise));
}

/** Bounds of gates and ups, for each layer; 0 without one. */
function bounds(draft: Draft, name: string, all: number): readonly number[] | undefined {
  if (draft.config.get(name) === undefined) return undefined;
  return listed(draft, name, all, 0).map((bound) => {
    if (bound === null || (typeof bound === 'number' && Number.isFinite(bound) && bound >= 0)) return bound ?? 0;
    return badConfig(`${name} has to have numbers of at least 0, got ${show(bound)}`);
  });
}

/** Heads of layers with a window, which are others than those of the rest. */
function slidingHeads({ config, sizes }: Draft): readonly [heads: number, keyHeads: number] {
  const other = objectMember({ settings: config.get('attention_other_setting') }, 'settings');
  const count = (name: string, usual: number): number => {
    const value = member(other, name) ?? usual;
    if (Number.isInteger(value) && (value as number) > 0 && (value as number) < 2 ** 16) return value as number;
    return badConfig(`attention_other_setting.${name} has to be a whole number above 0, got ${show(value)}`);
  };
  if (count('head_dim', sizes.head) !== sizes.head)
    unsupportedConfig(`attention_other_setting.head_dim is not head_dim ${sizes.head}`);
  return [count('num_attention_heads', sizes.heads), count('num_attention_groups', sizes.keyHeads)];
}

/** The layers that have experts. */
function expertLayers({ config }: Draft): ReadonlySet<number> {
  const stated = config.get('moe_layers_enum');
  const list = typeof stated === 'string' && /^\s*\d+\s*(,\s*\d+\s*)*$/.test(stated) ? stated.split(',') : [];
  if (list.length === 0) badConfig(`moe_layers_enum has to be a list of numbers, got ${show(stated)}`);
  return new Set(list.map(Number));
}

/** Fails for settings that llama.cpp computes in one way, where they are lists. */
function checkLists({ config, rope }: Draft): void {
  const rotates = config.get('use_rope_layers');
  if (Array.isArray(rotates) && rotates.some((one) => one !== 1 && one !== true))
    unsupportedConfig(`use_rope_layers is ${show(rotates)}; llama.cpp turns heads in every layer`);
  const scaled = config.get('yarn_only_types');
  if (rope.type !== undefined && !(Array.isArray(scaled) && scaled.length === 1 && scaled[0] === 'full_attention'))
    unsupportedConfig(`yarn_only_types is ${show(scaled)}; llama.cpp scales in layers of full_attention only`);
}

/** The bases of the rotary embedding, of layers of full_attention and of the others, or one for each layer. */
function bases({ config }: Pick<Draft, 'config'>): readonly unknown[] {
  const stated = config.get('rope_theta');
  return Array.isArray(stated) ? stated : [stated];
}

const stepDefaults = decoderDefaults([4096, 11264, 45], [64], 262144, {
  rms_norm_eps: 1e-5,
  moe_router_activation: 'softmax',
  use_head_wise_attn_gate: false,
  use_moe_router_bias: false,
  moe_every_n_layer: 1,
});

export const step35: ModelClass = {
  architecture: 'step35',
  classes: { Step3p5ForCausalLM: stepDefaults, Step3p7ForConditionalGeneration: stepDefaults },
  only: {
    ...siluSettings,
    moe_router_activation: ['sigmoid'],
    moe_every_n_layer: [1],
    use_qk_norm: [true],
    zero_centered: [true],
    sink: [false],
    attention_bias: [false],
    // llama.cpp reads the head as a tensor of its own.
    tie_word_embeddings: [false],
  },
  decoder({ config }) {
    const [theta] = bases({ config });
    if (typeof theta !== 'number' || !(theta > 0))
      return badConfig(`rope_theta has to be numbers above 0, got ${show(theta)}`);
    config.whole('head_dim');
    return { keyHeads: config.whole('num_attention_groups'), theta };
  },
  scaling: ['llama3'],
  details(draft) {
    const { config, rope, sizes } = draft;
    const { layers, heads, keyHeads, head: size } = sizes;
    const next = config.maybeWhole('num_nextn_predict_layers', 0) ?? 0;
    const all = layers + next;
    checkLists(draft);
    // Read the kind of each layer, and check that all else follows from it.
    const types = listed(draft, 'layer_types', all, 'full_attention', layers);
    const slides = types.map((type, i) => {
      if (type === 'sliding_attention' || type === 'full_attention') return type === 'sliding_attention';
      return unsupportedConfig(`layer_types[${i}] is ${show(type)}; it can be sliding_attention or full_attention`);
    });
    const turned = listed(draft, 'partial_rotary_factors', all, 0.5, layers);
    const otherTurn = turned.findIndex((factor, i) => factor !== (slides[i] ? 1 : 0.5));
    if (otherTurn >= 0)
      unsupportedConfig(
        `partial_rotary_factors[${otherTurn}] is ${show(turned[otherTurn])}; llama.cpp turns half of a head in layers of ` +
          'full_attention, and whole ones in the others',
      );
    // llama.cpp has a base for each kind of layers, which the converter takes from the first two layers.
    const thetas = bases(draft);
    const otherBase = thetas.findIndex((theta, i) => i < all && theta !== thetas[slides[i] ? 1 : 0]);
    if (otherBase >= 0)
      unsupportedConfig(
        `rope_theta[${otherBase}] is ${show(thetas[otherBase])}; llama.cpp takes that of layer 0 for layers of full_attention, ` +
          'and that of layer 1 for the others',
      );
    const [slidingCount, slidingKeys] = slidingHeads(draft);
    const routed = expertLayers(draft);
    const firstRouted = Math.min(...routed);
    const { keys, sizes: counts } = readExperts(config, 'moe_num_experts', {
      used: 'moe_top_k',
      rows: 'moe_intermediate_size',
    });
    const shared = config.whole('share_expert_dim');
    const isNormed = config.maybeFlag('norm_expert_weight') ?? badConfig('norm_expert_weight is missing');
    const corrects = config.maybeFlag('use_moe_router_bias') === true;
    const gate = config.maybeFlag('use_head_wise_attn_gate') === true;
    // Rows of attention whose heads are counted.
    const attended = (count: number, keyCount: number): Row[] => [
      ...attention.map((row): Row => {
        const rows = row.to === 'attn_k' || row.to === 'attn_v' ? keyCount * size : count * size;
        return { ...row, shape: row.to === 'attn_output' ? ['hidden', rows] : [rows, 'hidden'] };
      }),
      ...(gate ? [{ from: 'self_attn.g_proj', to: 'attn_gate', shape: [count, 'hidden'] } as const] : []),
    ];
    const correction: Row = { from: 'moe.router_bias', to: 'exp_probs_b', whole: '.bias', shape: ['experts'] };
    return {
      keys: {
        ...keys,
        block_count: all,
        expert_gating_func: 2,
        'rope.freq_base_swa': positive('rope_theta', thetas[1]),
        'attention.head_count': slides.map((slide) => (slide ? slidingCount : heads)),
        'attention.head_count_kv': slides.map((slide) => (slide ? slidingKeys : keyHeads)),
        'attention.sliding_window': config.whole('sliding_window'),
        'attention.sliding_window_pattern': slides,
        expert_shared_feed_forward_length: shared,
        expert_weights_scale: config.maybePositive('moe_router_scaling_factor'),
        expert_weights_norm: isNormed,
        leading_dense_block_count: firstRouted,
        moe_every_n_layers: 1,
        swiglu_clamp_exp: bounds(draft, 'swiglu_limits', all),
        swiglu_clamp_shexp: bounds(draft, 'swiglu_limits_shared', all),
        nextn_predict_layers: next > 0 ? next : undefined,
      },
      sizes: { ...counts, layers: all, sharedFeedForward: shared },
      made: () =>
        llama3Factors(rope, config, { head: size / 2, theta: thetas[0] as number, isWide: true }).map((recipe) => {
          // llama.cpp takes the first ones for the half of a head that turns.
          const values = new Float32Array(size / 2).fill(1);
          values.set(recipe.values ?? []);
          return { ...recipe, shape: [values.length], values };
        }),
      table: {
        outside: plusOne([embedding, finalNorm, { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'] }]),
        layer: [
          ...plusOne([...norms, ...headNorms]),
          ...onlyIn(attended(heads, keyHeads), (layer) => slides[layer] !== true),
          ...onlyIn(attended(slidingCount, slidingKeys), (layer) => slides[layer] === true),
          ...onlyIn(feedForward, (layer) => !routed.has(layer)),
          ...onlyIn([...experts, ...(corrects ? [correction] : [])], (layer) => routed.has(layer)),
          ...onlyIn(plusOne(nextRows), (layer) => layer >= layers),
        ],
        rename(name) {
          const layer = Number(/^model\.layers\.(\d+)\./.exec(name)?.[1] ?? 0);
          return layer < layers
            ? name
            : name.replace('.transformer.', '.').replace('shared_head.output', 'shared_head.head');
        },
      },
    };
  },
};
