/**
 * Architectures whose matrices are stored transposed, or whose parts lie apart: the keys that each reads, and the settings that llama.cpp
 * supports for each.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ gpt2.py 5535795, deepseek.py 01a723d, gpt_oss.py 2984e6e; llama4.py of
 * Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { badFolderFile, unsupported } from './errors.js';
import type { Hyper } from './hyper.js';
import {
  checkDecoder,
  checkLayers,
  decoder,
  expertCounts,
  expertSizes,
  type Model,
  none,
  type Read,
  tiedIn,
  vocabularyOf,
} from './reading.js';
import { llama3Factors, ropeKeys, setting } from './rope.js';
import * as tables from './tables-views.js';

const file = 'config.json';

function gpt2(read: Read): Model {
  const { config, notes } = read;
  config.only('activation_function', 'gelu_new', 'gelu_pytorch_tanh', 'gelu_fast');
  config.only('scale_attn_weights', true);
  config.only('scale_attn_by_inverse_layer_idx', false);
  config.only('add_cross_attention', false);
  const [layers, hidden, heads] = [config.whole('n_layer'), config.whole('n_embd'), config.whole('n_head')];
  if (hidden % heads !== 0) badFolderFile(file, `n_embd ${hidden} is not a multiple of n_head ${heads}`);
  const positions = config.whole('n_positions');
  const context = config.whole('n_ctx', positions);
  if (context !== positions) badFolderFile(file, `n_ctx is ${context} and n_positions is ${positions}`);
  const feedForward = 4 * hidden;
  config.only('n_inner', feedForward);
  const head = hidden / heads;
  return {
    architecture: 'gpt2',
    hyper: { layers, context, hidden, feedForward, heads, normEpsilon: config.positive('layer_norm_epsilon') },
    sizes: {
      ...none,
      layers,
      hidden,
      twoHidden: 2 * hidden,
      threeHidden: 3 * hidden,
      heads,
      keyHeads: heads,
      head,
      feedForward,
      twoFeedForward: 2 * feedForward,
      vocabulary: vocabularyOf(read),
      queries: hidden,
      keys: hidden,
      together: 3 * hidden,
      positions,
    },
    table: tables.gpt2,
    made: () => [],
    tied: undefined,
    notes,
  };
}

/** Layers of Llama 4 with experts: each n-th one. */
function expertLayers({ config }: Read, layers: number): (layer: number) => boolean {
  const step = config.whole('interleave_moe_layer_step');
  const has = (layer: number) => (layer + 1) % step === 0;
  const list = config.get('moe_layers');
  if (Array.isArray(list) && list.length > 0) {
    const stated = new Set<unknown>(list);
    const other = Array.from({ length: layers }, (_, i) => i).find((i) => stated.has(i) !== has(i));
    if (other !== undefined)
      unsupported(file, `moe_layers is ${show(list)}; llama.cpp computes experts in each layer of ${step} only`);
  }
  return has;
}

/** Fails unless each fourth layer lacks a rotary embedding, as llama.cpp has it whatever the file says. */
function checkRotaries({ config }: Read, layers: number): void {
  config.only('no_rope_layer_interval', 4);
  const list = config.get('no_rope_layers');
  if (!Array.isArray(list) || list.length === 0) return;
  if (list.length !== layers) badFolderFile(file, `no_rope_layers has ${list.length} entries for ${layers} layers`);
  const other = list.findIndex((rotates, i) => rotates !== ((i + 1) % 4 === 0 ? 0 : 1));
  if (other >= 0)
    unsupported(file, `no_rope_layers[${other}] is ${show(list[other])}; llama.cpp computes it otherwise`);
}

function llama4(read: Read): Model {
  const { config, rope, notes } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('attention_bias', false);
  config.only('attention_chunk_size', 8192);
  config.only('floor_scale', 8192);
  config.only('attn_scale', 0.1);
  config.only('attn_temperature_tuning', true, 4, 1);
  const { hyper, sizes } = decoder(read, { feedForward: config.whole('intermediate_size_mlp') });
  const [experts, usedExperts] = expertCounts(config, 'num_local_experts');
  // llama.cpp decides by the number of experts, whatever the file says.
  const normsHeads = experts !== 128;
  if ((config.maybeFlag('use_qk_norm') ?? true) !== normsHeads)
    unsupported(file, `use_qk_norm is ${!normsHeads}; llama.cpp computes ${experts} experts with ${normsHeads} only`);
  checkRotaries(read, sizes.layers);
  const types = config.get('layer_types');
  const whole = (i: number) => (i + 1) % 4 === 0;
  if (Array.isArray(types) && types.some((type, i) => type !== (whole(i) ? 'full_attention' : 'chunked_attention')))
    unsupported(file, 'layer_types differ from chunked_attention in three of four layers, as llama.cpp computes them');
  const expertFeedForward = config.whole('intermediate_size');
  const hasExperts = expertLayers(read, sizes.layers);
  return {
    architecture: 'llama4',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['llama3']),
      experts,
      usedExperts,
      vocabulary: sizes.vocabulary,
      ropeDimensions: sizes.head,
      expertStep: config.whole('interleave_moe_layer_step'),
      expertFeedForward,
    },
    sizes: { ...sizes, ...expertSizes(experts, expertFeedForward, expertFeedForward) },
    table: tables.llama4(hasExperts),
    made: () => llama3Factors(rope, config, sizes.head, hyper.theta as number),
    tied: tiedIn(config),
    notes,
  };
}

function gptOss(read: Read): Model {
  const { config, rope, notes } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('attention_bias', true);
  config.only('swiglu_limit', 7);
  const { hyper, sizes } = decoder(read);
  checkLayers(read, sizes.layers, (i) => i % 2 === 0);
  const [experts, usedExperts] = expertCounts(config, 'num_local_experts');
  return {
    architecture: 'gpt-oss',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['yarn']),
      experts,
      usedExperts,
      window: config.whole('sliding_window'),
      expertFeedForward: sizes.feedForward,
    },
    sizes: { ...sizes, ...expertSizes(experts, sizes.feedForward) },
    table: tables.gptOss(read.isCoded),
    made: () => [],
    tied: tiedIn(config),
    notes,
  };
}

/** Functions that make shares of scores, by their numbers in llama.cpp. */
const gatings: Readonly<Record<string, number>> = { softmax: 1, sigmoid: 2 };

/** Scaling of the rotary embedding. llama.cpp takes one factor of attention, and Hugging Face the quotient of two. */
function latentRope({ rope }: Read): Partial<Hyper> {
  const keys = ropeKeys(rope, ['yarn']);
  const all = setting(rope, 'mscale_all_dim');
  const own = setting(rope, 'mscale');
  if (own !== undefined && own !== all)
    unsupported(
      file,
      `${rope.where}.mscale is ${own} and mscale_all_dim ${show(all)}; llama.cpp takes equal ones only`,
    );
  return { ...keys, ...(all === undefined ? {} : { yarnLogMultiplier: 0.1 * all }) };
}

/** DeepSeek V2 and V3, and models with their attention. */
function deepseek2(read: Read): Model {
  const { config, notes } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('attention_bias', false);
  config.only('moe_layer_freq', 1);
  config.only('rope_interleave', true);
  config.only('topk_method', 'greedy', 'noaux_tc', 'group_limited_greedy');
  const { hyper, sizes } = decoder(read, { plainHeads: true });
  const { layers, heads } = sizes;
  config.only('num_key_value_heads', heads);
  const latent: tables.Latent = {
    queryRank: config.maybeWhole('q_lora_rank'),
    rank: config.whole('kv_lora_rank'),
    plain: config.whole('qk_nope_head_dim'),
    rotated: config.whole('qk_rope_head_dim'),
    value: config.whole('v_head_dim'),
  };
  // llama.cpp decides by the number of layers, whatever the file says (src/models/deepseek2.cpp).
  const isLite = layers === 26 || layers === 27 || (layers === 48 && sizes.vocabulary === 128256);
  if ((latent.queryRank === undefined) !== isLite)
    unsupported(
      file,
      `q_lora_rank is ${latent.queryRank ?? 'null'}; llama.cpp computes ${layers} layers ${isLite ? 'without' : 'with'} one only`,
    );
  if (latent.rotated % 2 !== 0) badFolderFile(file, `qk_rope_head_dim is ${latent.rotated}; it has to be even`);
  // Read the experts.
  const [experts, usedExperts] = expertCounts(config, 'n_routed_experts');
  const expertFeedForward = config.whole('moe_intermediate_size');
  const sharedExperts = config.maybeWhole('n_shared_experts', 0) ?? 0;
  const dense = config.whole('first_k_dense_replace', 0, 0);
  const [expertGroups, usedGroups] = [config.maybeWhole('n_group'), config.maybeWhole('topk_group')];
  const scoring = config.get('scoring_func');
  const gating = typeof scoring === 'string' && Object.hasOwn(gatings, scoring) ? gatings[scoring] : undefined;
  if (scoring !== undefined && gating === undefined)
    unsupported(file, `scoring_func is ${show(scoring)}; it can be ${Object.keys(gatings).join(' or ')}`);
  const corrects = read.names.some((name) => name.endsWith('.mlp.gate.e_score_correction_bias'));
  if (config.get('topk_method') === 'group_limited_greedy' && (expertGroups ?? 1) > 1) {
    const text =
      'topk_method is "group_limited_greedy"; llama.cpp chooses groups of experts by their two best, not by the best one';
    notes.push(noteOf('choosesGroups', {}, text));
  }
  const tied = tiedIn(config);
  const flags = { dense, hasShared: sharedExperts > 0, corrects, tied: tied === true };
  return {
    architecture: 'deepseek2',
    hyper: {
      ...hyper,
      keyHeads: 1,
      ...latentRope(read),
      experts,
      usedExperts,
      ...(expertGroups === undefined ? {} : { expertGroups }),
      ...(usedGroups === undefined ? {} : { usedGroups }),
      ...(gating === undefined ? {} : { earlyGating: gating }),
      denseLayers: dense,
      vocabulary: sizes.vocabulary,
      ...(latent.queryRank === undefined ? {} : { queryRank: latent.queryRank }),
      latentRank: latent.rank,
      keyLength: latent.rank + latent.rotated,
      valueLength: latent.rank,
      restoredKey: latent.plain + latent.rotated,
      restoredValue: latent.value,
      expertFeedForward,
      sharedExperts,
      expertScale: config.positive('routed_scaling_factor', 1),
      ...(config.maybeFlag('norm_topk_prob') === true ? { normalizesExperts: true } : {}),
      ropeDimensions: latent.rotated,
    },
    sizes: { ...sizes, ...expertSizes(experts, expertFeedForward, sharedExperts * expertFeedForward) },
    table: tables.deepseek2(layers, heads, latent, flags),
    made: () => [],
    tied,
    notes,
  };
}

/** Readers by the name that config.json has under `architectures`. */
export const viewedReaders: Readonly<Record<string, (read: Read) => Model>> = {
  GPT2LMHeadModel: gpt2,
  Llama4ForCausalLM: llama4,
  Llama4ForConditionalGeneration: llama4,
  GptOssForCausalLM: gptOss,
  DeepseekV2ForCausalLM: deepseek2,
  DeepseekV3ForCausalLM: deepseek2,
};
