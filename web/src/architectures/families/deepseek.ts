/**
 * DeepSeek V2, V3 and V3.2, and models with their latent attention: GLM-4.7-Flash and GLM-5, Kimi K2 and Youtu.
 * Reference: github.com/ggml-org/llama.cpp, conversion/deepseek.py at 01a723d; glm.py of Tippach/Franken-Llama 1774451. Tests compare with
 * llama.cpp v0.5.0.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import {
  areStacked,
  type Details,
  type Draft,
  decoderDefaults,
  type ModelClass,
  readExperts,
  siluSettings,
} from '../huggingface/reading.js';
import { setting } from '../huggingface/rope.js';
import type { Row, Sizes, ViewOf } from '../huggingface/tensors.js';
import { glmTokenizer, nextRows } from './glm.js';
import { denseThenExperts, norms, onlyIn, qwenExperts, sharedExperts, viewFrom, withoutHead } from './rows.js';

/** The end of the name of a weight that mlx-lm has in the place of a part of kv_b_proj. */
export const splitName = '.self_attn.embed_q.weight';

/** Sizes of latent attention. */
interface Latent {
  /** Elements of the compressed queries; undefined if queries are not compressed. */
  readonly queryRank: number | undefined;
  readonly rank: number;
  /** Elements of a head's key without and with a rotary embedding, and of its value. */
  readonly plain: number;
  readonly rotated: number;
  readonly value: number;
}

/**
 * Latent attention. Keys and values of each head are one matrix, of which llama.cpp wants the keys transposed.
 * @param isSplit true if they are weights of their own, as in mlx-lm, which has them as llama.cpp does
 */
export function latentAttention(
  heads: number,
  { queryRank, rank, plain, rotated, value }: Latent,
  isSplit: boolean,
): Row[] {
  const queries = heads * (plain + rotated);
  const own: Row[] =
    queryRank === undefined
      ? [{ from: 'self_attn.q_proj', to: 'attn_q', shape: [queries, 'hidden'] }]
      : [
          { from: 'self_attn.q_a_proj', to: 'attn_q_a', shape: [queryRank, 'hidden'] },
          { from: 'self_attn.q_a_layernorm', to: 'attn_q_a_norm', shape: [queryRank] },
          { from: 'self_attn.q_b_proj', to: 'attn_q_b', shape: [queries, queryRank] },
        ];
  const each = (plain + value) * rank;
  const keys: ViewOf = () => viewFrom(0, [heads, each], [rank, 1], [plain, rank]);
  const values: ViewOf = () => viewFrom(plain * rank, [heads, each], [value * rank, 1]);
  return [
    ...own,
    { from: 'self_attn.kv_a_proj_with_mqa', to: 'attn_kv_a_mqa', shape: [rank + rotated, 'hidden'] },
    { from: 'self_attn.kv_a_layernorm', to: 'attn_kv_a_norm', shape: [rank] },
    ...(isSplit
      ? ([
          { from: 'self_attn.embed_q', to: 'attn_k_b', shape: ['heads', rank, plain] },
          { from: 'self_attn.unembed_out', to: 'attn_v_b', shape: ['heads', value, rank] },
        ] as const)
      : ([
          {
            from: 'self_attn.kv_b_proj',
            to: '',
            shape: [heads * (plain + value), rank],
            shares: [
              { to: 'attn_k_b', shape: ['heads', rank, plain], view: keys },
              { to: 'attn_v_b', shape: ['heads', value, rank], view: values },
            ],
          },
        ] as const)),
    { from: 'self_attn.o_proj', to: 'attn_output', shape: ['hidden', heads * value] },
  ];
}

/** Functions that make shares of scores, by their numbers in llama.cpp. */
const gatings: Readonly<Record<string, number>> = { softmax: 1, sigmoid: 2 };

/** The rows of an indexer, which chooses the tokens that a layer sees, and the layers that have one. */
function readIndexer({ config, sizes }: Draft, queryRank: number, layers: number) {
  const [heads, head] = [config.whole('index_n_heads'), config.whole('index_head_dim')];
  const types = config.get('indexer_types');
  if (types !== undefined && (!Array.isArray(types) || types.length < sizes.layers))
    badConfig(`indexer_types has to name the kind of each of ${sizes.layers} layers, got ${show(types)}`);
  const kinds = Array.isArray(types) ? types.map((type) => type === 'full') : undefined;
  const rows: Row[] = [
    { from: 'self_attn.indexer.wq_b', to: 'indexer.attn_q_b', shape: [heads * head, queryRank] },
    { from: 'self_attn.indexer.wk', to: 'indexer.attn_k', shape: [head, 'hidden'] },
    { from: 'self_attn.indexer.k_norm', to: 'indexer.k_norm', shape: [head], bias: 'always' },
    { from: 'self_attn.indexer.weights_proj', to: 'indexer.proj', shape: [heads, 'hidden'] },
  ];
  return {
    keys: {
      'attention.indexer.head_count': heads,
      'attention.indexer.key_length': head,
      'attention.indexer.top_k': config.whole('index_topk'),
      'attention.indexer.types': kinds,
    },
    rows: onlyIn(rows, (layer) => layer >= layers || (kinds?.[layer] ?? true)),
  };
}

/** The router and the experts of Mistral. */
const mistralExperts: readonly Row[] = [
  ...qwenExperts(true).filter(({ shares }) => shares === undefined),
  {
    from: 'mlp.experts.gate_up_proj',
    to: 'ffn_gate_up_exps',
    whole: '.weight',
    shape: ['experts', '2 expertFeedForward', 'hidden'],
  },
];

/** Choices of a model with latent attention. */
interface LatentChoices {
  /** True if layers that predict further tokens are kept. */
  readonly keepsNext?: boolean;
  /** True if layers have indexers. */
  readonly indexes?: boolean;
  /** True if scores do not grow with the factor of YaRN, and stacked experts keep gates and ups in one tensor, as in Mistral's models. */
  readonly isMistral?: boolean;
}

/** Keys, sizes and the table of a model with latent attention. */
export function readLatent(draft: Draft, choices: LatentChoices = {}): Details {
  const { keepsNext = false, indexes = false, isMistral = false } = choices;
  const { config, rope, names, notes, sizes } = draft;
  const { layers, heads, vocabulary } = sizes;
  const nextLayers = keepsNext ? config.maybeWhole('num_nextn_predict_layers', 0) : undefined;
  const all = layers + (nextLayers ?? 0);
  config.only('num_key_value_heads', heads);
  const latent: Latent = {
    queryRank: config.maybeWhole('q_lora_rank'),
    rank: config.whole('kv_lora_rank'),
    plain: config.whole('qk_nope_head_dim'),
    rotated: config.whole('qk_rope_head_dim'),
    value: config.whole('v_head_dim'),
  };
  // llama.cpp decides by the number of layers, whatever the file says (src/models/deepseek2.cpp).
  const isLite = layers === 26 || layers === 27 || (layers === 48 && vocabulary === 128256);
  if ((latent.queryRank === undefined) !== isLite)
    unsupportedConfig(
      `q_lora_rank is ${latent.queryRank ?? 'null'}; llama.cpp computes ${layers} layers ${isLite ? 'without' : 'with'} one only`,
    );
  if (latent.rotated % 2 !== 0) badConfig(`qk_rope_head_dim is ${latent.rotated}; it has to be even`);
  // llama.cpp takes one factor of attention for scaled positions, and Hugging Face the quotient of two.
  const [scaleOfAll, scale] = [setting(rope, 'mscale_all_dim'), setting(rope, 'mscale')];
  if (scale !== undefined && scale !== scaleOfAll)
    unsupportedConfig(
      `${rope.where}.mscale is ${scale} and mscale_all_dim ${show(scaleOfAll)}; llama.cpp takes equal ones only`,
    );
  // Read the experts. llama.cpp needs the rows of one of models without any, too.
  const isDense = config.get('n_routed_experts') === undefined;
  const { keys, sizes: counts } = isDense
    ? { keys: { expert_feed_forward_length: sizes.feedForward }, sizes: {} as Partial<Sizes> }
    : readExperts(config, 'n_routed_experts', { rows: 'moe_intermediate_size' });
  const shared = isDense ? 0 : (config.maybeWhole('n_shared_experts', 0) ?? 0);
  const dense = isDense ? layers : config.whole('first_k_dense_replace', 0, 0);
  if (indexes && latent.queryRank === undefined) badConfig('q_lora_rank is missing, and indexers need it');
  const indexer = indexes ? readIndexer(draft, latent.queryRank ?? 0, layers) : undefined;
  const [groups, usedGroups] = [config.maybeWhole('n_group'), config.maybeWhole('topk_group')];
  const scoring = config.get('scoring_func');
  const gating = typeof scoring === 'string' && Object.hasOwn(gatings, scoring) ? gatings[scoring] : undefined;
  if (scoring !== undefined && gating === undefined)
    unsupportedConfig(`scoring_func is ${show(scoring)}; it can be ${Object.keys(gatings).join(' or ')}`);
  const corrects = names.some((name) => name.endsWith('.mlp.gate.e_score_correction_bias'));
  const correction: Row = {
    from: 'mlp.gate.e_score_correction_bias',
    to: 'exp_probs_b',
    whole: '.bias',
    shape: ['experts'],
  };
  if (config.get('topk_method') === 'group_limited_greedy' && (groups ?? 1) > 1) {
    const text =
      'topk_method is "group_limited_greedy"; llama.cpp chooses groups of experts by their two best, not by the best one';
    notes.push(noteOf('choosesGroups', {}, text));
  }
  const isTied = config.maybeFlag('tie_word_embeddings') === true;
  return {
    keys: {
      ...keys,
      ...indexer?.keys,
      block_count: all,
      nextn_predict_layers: nextLayers,
      'attention.head_count_kv': 1,
      'rope.scaling.yarn_log_multiplier': scaleOfAll === undefined || isMistral ? undefined : 0.1 * scaleOfAll,
      expert_group_count: groups,
      expert_group_used_count: usedGroups,
      expert_gating_func: gating,
      leading_dense_block_count: dense,
      vocab_size: vocabulary,
      'attention.q_lora_rank': latent.queryRank,
      'attention.kv_lora_rank': latent.rank,
      // The cache holds keys and values before they are restored.
      'attention.key_length': latent.rank + latent.rotated,
      'attention.value_length': latent.rank,
      'attention.key_length_mla': latent.plain + latent.rotated,
      'attention.value_length_mla': latent.value,
      expert_shared_count: shared,
      expert_weights_scale: config.positive('routed_scaling_factor', 1),
      expert_weights_norm: config.maybeFlag('norm_topk_prob') === true ? true : undefined,
      'rope.dimension_count': latent.rotated,
    },
    sizes: { ...counts, layers: all, sharedFeedForward: shared * (counts.expertFeedForward ?? 0) },
    table: {
      layer: [
        ...norms,
        ...latentAttention(
          heads,
          latent,
          names.some((name) => name.endsWith(splitName)),
        ),
        ...denseThenExperts(dense, [
          ...(isMistral && areStacked(draft) ? mistralExperts : qwenExperts(areStacked(draft))),
          ...(corrects ? [correction] : []),
          ...(shared > 0 ? sharedExperts('mlp.shared_experts') : []),
        ]),
        ...(indexer?.rows ?? []),
        ...onlyIn(nextRows, (layer) => layer >= layers),
      ],
      rename: (name) => {
        // Leave out the layers that predict further tokens.
        const layer = /^model\.layers\.(\d+)\./.exec(name)?.[1];
        if (layer !== undefined && Number(layer) >= all) return undefined;
        return isTied ? withoutHead(name) : name;
      },
    },
  };
}

const latentDefaults = {
  kv_lora_rank: 512,
  q_lora_rank: 1536,
  qk_nope_head_dim: 128,
  qk_rope_head_dim: 64,
  v_head_dim: 128,
};

const v3Defaults = decoderDefaults([7168, 18432, 61], [128], 4096, {
  ...latentDefaults,
  first_k_dense_replace: 3,
  n_shared_experts: 1,
  n_routed_experts: 256,
  num_experts_per_tok: 8,
  moe_intermediate_size: 2048,
  routed_scaling_factor: 2.5,
  n_group: 8,
  topk_group: 4,
  norm_topk_prob: true,
});

export const deepseek2: ModelClass = {
  mlx: {
    deepseek_v2: { head: 'own', experts: { block: 'mlp' }, plain: /\.mlp\.gate$/ },
    // What stays kv_b_proj is taken apart as mlx-lm loads the model.
    deepseek_v3: {
      head: 'own',
      experts: { block: 'mlp' },
      plain: /\.(mlp\.gate|kv_b_proj)$/,
      splitsLatent: true,
      uncast: /e_score_correction_bias/,
    },
  },
  architecture: 'deepseek2',
  classes: {
    DeepseekV2ForCausalLM: decoderDefaults([4096, 11008, 32], [32], 2048, {
      ...latentDefaults,
      first_k_dense_replace: 0,
      n_shared_experts: 2,
      n_routed_experts: 64,
      moe_intermediate_size: 1407,
      routed_scaling_factor: 1,
      norm_topk_prob: false,
    }),
    DeepseekV3ForCausalLM: v3Defaults,
    // Their language models beside a tower for pictures.
    KimiVLForConditionalGeneration: v3Defaults,
    KimiK25ForConditionalGeneration: v3Defaults,
    // Without experts.
    YoutuForCausalLM: decoderDefaults([2048, 6144, 32], [16], 131072, latentDefaults),
  },
  only: {
    ...siluSettings,
    attention_bias: [false],
    moe_layer_freq: [1],
    rope_interleave: [true],
    topk_method: ['greedy', 'noaux_tc', 'group_limited_greedy'],
  },
  decoder: { plainHeads: true },
  scaling: ['yarn'],
  // The classes differ in the way that they choose experts.
  outward({ key, has }, name) {
    const corrects = has(/\.exp_probs_b\./);
    const own = key('expert_count') === undefined ? 'Youtu' : corrects ? 'DeepseekV3' : 'DeepseekV2';
    const groups = Number(key('expert_group_count') ?? 1);
    const method = corrects ? 'noaux_tc' : groups > 1 ? 'group_limited_greedy' : 'greedy';
    return name.startsWith(own) ? { topk_method: method } : undefined;
  },
  details: (draft) => readLatent(draft),
};

const glmLiteDefaults = decoderDefaults([2048, 10240, 47], [20], 202752, {
  ...latentDefaults,
  rms_norm_eps: 1e-5,
  rope_theta: 1e6,
  q_lora_rank: 768,
  qk_nope_head_dim: 192,
  v_head_dim: 256,
  first_k_dense_replace: 1,
  n_shared_experts: 1,
  n_routed_experts: 64,
  num_experts_per_tok: 4,
  moe_intermediate_size: 1536,
  routed_scaling_factor: 1.8,
  n_group: 1,
  topk_group: 1,
  norm_topk_prob: true,
  // llama.cpp knows it by the size of the model, and the converter writes nothing.
  scoring_func: 'sigmoid',
});

/** GLM-4.7-Flash. */
const glmLite: ModelClass = {
  ...deepseek2,
  ...glmTokenizer,
  classes: { Glm4MoeLiteForCausalLM: glmLiteDefaults },
  outward: () => ({ topk_method: 'noaux_tc' }),
  details: (draft) => readLatent(draft, { keepsNext: true }),
};

/** GLM-5, whose layers choose the tokens that they see. */
const glmDsa: ModelClass = {
  ...glmLite,
  architecture: 'glm-dsa',
  classes: {
    GlmMoeDsaForCausalLM: {
      ...glmLiteDefaults,
      hidden_size: 6144,
      intermediate_size: 12288,
      num_hidden_layers: 78,
      num_attention_heads: 64,
      q_lora_rank: 2048,
      first_k_dense_replace: 3,
      n_routed_experts: 256,
      num_experts_per_tok: 8,
      moe_intermediate_size: 2048,
      routed_scaling_factor: 2.5,
      index_head_dim: 128,
      index_n_heads: 32,
      index_topk: 2048,
    },
  },
  only: { ...deepseek2.only, indexer_rope_interleave: [true] },
  details: (draft) => readLatent(draft, { keepsNext: true, indexes: true }),
};

const deepseek32: ModelClass = {
  ...deepseek2,
  architecture: 'deepseek32',
  outward: () => ({ topk_method: 'noaux_tc' }),
  classes: {
    DeepseekV32ForCausalLM: {
      ...v3Defaults,
      scoring_func: 'sigmoid',
      index_head_dim: 128,
      index_n_heads: 64,
      index_topk: 2048,
    },
  },
  details: (draft) => readLatent(draft, { keepsNext: true, indexes: true }),
};

export const deepseekFamily: readonly ModelClass[] = [deepseek2, glmLite, glmDsa, deepseek32];
