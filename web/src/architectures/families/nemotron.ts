/** Nemotron, and Nemotron-H with layers of Mamba 2. Reference: github.com/ggml-org/llama.cpp, conversion/nemotron.py at 003ebfc. Tests compare with llama.cpp v0.5.0. */
import { show } from '../../core/show.js';
import { isCount } from '../../formats/files/json.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { isObject, type Json, member } from '../huggingface/json.js';
import {
  type Draft,
  decoderDefaults,
  type ModelClass,
  type Read,
  readExperts,
  rotatedOf,
} from '../huggingface/reading.js';
import { setting } from '../huggingface/rope.js';
import type { Row } from '../huggingface/tensors.js';
import { nextRows } from './glm.js';
import { anyLength, checkSpace, checkVocabulary, mamba2Rows } from './mamba.js';
import {
  attention,
  embedding,
  feedForward,
  finalNorm,
  head,
  llamaAttention,
  norms,
  onlyIn,
  plusOne,
  withBias,
  withoutBias,
} from './rows.js';

const nemotron: ModelClass = {
  architecture: 'nemotron',
  traits: { pairs: 'halves', isCentered: true, gate: 'reluSquared' },
  classes: {
    NemotronForCausalLM: decoderDefaults([6144, 24576, 32], [48], 4096, {
      norm_eps: 1e-5,
      partial_rotary_factor: 0.5,
      hidden_act: 'relu2',
    }),
  },
  roleIds: () => ({ pad: 0, unk: 1 }),
  only: { hidden_act: ['relu2'] },
  decoder: { normEpsilon: 'norm_eps' },
  scaling: ['linear'],
  table: {
    outside: plusOne([embedding, { ...finalNorm, bias: 'always' }, head]),
    layer: [
      ...plusOne(withBias(norms)),
      ...withBias(attention, 'stated'),
      ...withBias(feedForward.slice(1), 'optional'),
    ],
  },
  details(draft) {
    const { config, rope, sizes, keys } = draft;
    const factor = config.maybePositive('factor') ?? setting(rope, 'factor');
    return {
      keys: {
        // The converter takes the same number for norms of two kinds.
        'attention.layer_norm_rms_epsilon': keys['attention.layer_norm_epsilon'],
        vocab_size: sizes.vocabulary,
        'rope.dimension_count': rotatedOf(draft, 0.5, [sizes.hidden, sizes.heads]),
        'rope.scaling.type': factor === undefined ? 'none' : 'linear',
        'rope.scaling.factor': factor,
      },
    };
  },
  mlx: { nemotron: {} },
};

// --------------------------------------------------------------------------------------------------------------------- Nemotron-H

/** Kinds of layers by the letters and the words of config.json. */
const kinds: Readonly<Record<string, 'space' | 'attention' | 'dense' | 'experts'>> = {
  ...{ M: 'space', mamba: 'space', linear_attention: 'space' },
  ...{ '*': 'attention', attention: 'attention', full_attention: 'attention' },
  ...{ '-': 'dense', mlp: 'dense', E: 'experts', moe: 'experts' },
};

/** Puzzle's entries for each layer; undefined for other models. */
function blocksOf({ config }: Read): readonly Json[] | undefined {
  const blocks = config.get('block_configs');
  if (!Array.isArray(blocks)) return undefined;
  const other = blocks.find((block) => !isObject(block));
  return other === undefined ? blocks : badConfig(`block_configs has to have objects, got ${show(other)}`);
}

/** The kind of each layer. */
function kindsOf(read: Read) {
  const { config } = read;
  const blocks = blocksOf(read)?.map((block) => member(block, 'block_type'));
  const stated = blocks ?? config.get('hybrid_override_pattern') ?? config.get('layers_block_type');
  const list: unknown[] = typeof stated === 'string' ? [...stated] : Array.isArray(stated) ? stated : [];
  if (list.length === 0) badConfig('hybrid_override_pattern or layers_block_type is missing');
  return list.map((kind, i) => {
    if (typeof kind === 'string' && Object.hasOwn(kinds, kind)) return kinds[kind];
    return unsupportedConfig(`layer ${i} is ${show(kind)}; it can be ${Object.keys(kinds).join(', ')}`);
  });
}

/** Numbers of experts. Layers of Puzzle have experts of their own sizes, of which a token uses another number in each. */
function readMixtures(draft: Draft, layers: readonly unknown[]) {
  const { config } = draft;
  const blocks = blocksOf(draft);
  if (blocks === undefined) return readExperts(config, 'n_routed_experts', { rows: 'moe_intermediate_size' });
  const experts = config.whole('n_routed_experts');
  const each = (name: string, most: number) =>
    blocks.map((block, i): number => {
      const value = member(block, name) ?? 0;
      if (isCount(value) && value <= most && value > 0 === (layers[i] === 'experts')) return value;
      return badConfig(
        `block_configs[${i}].${name} is ${show(value)}; it can be 1 to ${most} in layers of experts, and 0 in others`,
      );
    });
  return {
    keys: {
      expert_count: experts,
      expert_used_count: each('num_experts_per_tok', experts),
      expert_feed_forward_length: each('moe_intermediate_size', 2 ** 31 - 1),
    },
    sizes: { experts },
  };
}

/** Tensors outside of layers, and the norm before each. */
const outsideOfSpaces = [
  { ...embedding, from: 'backbone.embeddings' },
  { ...finalNorm, from: 'backbone.norm_f' },
  head,
];

const nemotronHDefaults = decoderDefaults([4096, 21504, 52], [32, 8, 128], 4096, {
  layer_norm_epsilon: 1e-5,
  ssm_state_size: 128,
  mamba_num_heads: 128,
  mamba_head_dim: 64,
  n_groups: 8,
  conv_kernel: 4,
  n_group: 1,
  topk_group: 1,
  norm_topk_prob: true,
  routed_scaling_factor: 1,
});

/** Each layer has one part: Mamba 2, attention without positions, or a feed-forward part, which is dense or has experts. */
const nemotronH: ModelClass = {
  architecture: 'nemotron_h',
  classes: {
    NemotronHForCausalLM: nemotronHDefaults,
    // Puzzle, whose layers have sizes of their own.
    NemotronHPuzzleForCausalLM: nemotronHDefaults,
  },
  only: {
    mlp_hidden_act: ['relu2'],
    mamba_hidden_act: ['silu'],
    attention_bias: [false],
    mlp_bias: [false],
    use_bias: [false],
    mamba_proj_bias: [false],
    use_conv_bias: [true],
    sliding_window: [null],
    n_group: [1],
    topk_group: [1],
  },
  decoder: (read) => ({ layers: kindsOf(read).length, rmsEpsilon: 'layer_norm_epsilon' }),
  lacks: ['rope.freq_base'],
  details(draft) {
    const { config, sizes, keys: usual } = draft;
    const trunk = kindsOf(draft);
    const experts = trunk.includes('experts');
    // The layer that predicts a further token has attention, and experts behind it.
    // llama.cpp computes its experts without a latent space alone.
    const latent = experts ? config.maybeWhole('moe_latent_size') : undefined;
    const predicts =
      experts &&
      latent === undefined &&
      blocksOf(draft) === undefined &&
      config.maybeWhole('num_nextn_predict_layers', 0) === 1 &&
      draft.names.some((name) => name.startsWith('mtp.layers.1.'));
    const next = trunk.length;
    const layers = predicts ? [...trunk, 'next' as const] : trunk;
    if (experts && layers.includes('dense'))
      unsupportedConfig('layers are dense and have experts; llama.cpp computes all feed-forward parts alike');
    checkVocabulary(draft, 8);
    const steps = config.whole('mamba_num_heads');
    const space = checkSpace({
      inner: steps * config.whole('mamba_head_dim'),
      state: config.whole('ssm_state_size'),
      convolved: config.whole('conv_kernel'),
      steps,
      groups: config.whole('n_groups'),
    });
    const counts = experts ? readMixtures(draft, layers) : undefined;
    const shared = experts ? config.whole('moe_shared_expert_intermediate_size') : undefined;
    const ofExperts = counts?.keys.expert_feed_forward_length ?? 0;
    const rowsOf = (layer: number) => (typeof ofExperts === 'number' ? ofExperts : (ofExperts[layer] ?? 0));
    const width = latent ?? 'hidden';
    const isA = (kind: string) => (layer: number) =>
      layers[layer] === kind || (layers[layer] === 'next' && (kind === 'attention' || kind === 'experts'));
    const mixture = (rows: number): Row[] => [
      { from: 'mixer.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
      { from: 'mixer.gate.e_score_correction_bias', to: 'exp_probs_b', whole: '.bias', shape: ['experts'] },
      { from: 'mixer.experts.#.up_proj', to: 'ffn_up_exps', shape: [rows, width] },
      { from: 'mixer.experts.#.down_proj', to: 'ffn_down_exps', shape: [width, rows] },
      { from: 'mixer.shared_experts.up_proj', to: 'ffn_up_shexp', shape: ['sharedFeedForward', 'hidden'] },
      { from: 'mixer.shared_experts.down_proj', to: 'ffn_down_shexp', shape: ['hidden', 'sharedFeedForward'] },
      ...(latent === undefined
        ? []
        : ([
            { from: 'mixer.fc1_latent_proj', to: 'ffn_latent_down', shape: [latent, 'hidden'] },
            { from: 'mixer.fc2_latent_proj', to: 'ffn_latent_up', shape: ['hidden', latent] },
          ] as const)),
    ];
    const mixtures = [...new Set(trunk.flatMap((kind, i) => (kind === 'experts' ? [rowsOf(i)] : [])))].flatMap((rows) =>
      onlyIn(mixture(rows), (layer) => isA('experts')(layer) && rowsOf(layer) === rows),
    );
    const inMixer = (row: Row): Row => ({ ...row, from: row.from.replace(/^(mlp|self_attn)/, 'mixer') });
    return {
      ...(experts ? { architecture: 'nemotron_h_moe' } : {}),
      keys: {
        ...counts?.keys,
        context_length: anyLength,
        vocab_size: sizes.vocabulary,
        'rope.dimension_count': Math.floor(sizes.hidden / sizes.heads),
        'attention.layer_norm_epsilon': usual['attention.layer_norm_rms_epsilon'],
        'ssm.conv_kernel': space.convolved,
        'ssm.state_size': space.state,
        'ssm.group_count': space.groups,
        'ssm.inner_size': space.inner,
        'ssm.time_step_rank': space.steps,
        'attention.head_count_kv': layers.map((_, i) => (isA('attention')(i) ? sizes.keyHeads : 0)),
        'rope.scaling.finetuned': false,
        'attention.key_length': sizes.head,
        'attention.value_length': sizes.head,
        feed_forward_length: layers.map((kind, i) =>
          kind === 'dense' ? sizes.feedForward : isA('experts')(i) ? rowsOf(i) : 0,
        ),
        ...(predicts && { block_count: layers.length, nextn_predict_layers: 1 }),
        ...(experts && {
          expert_shared_feed_forward_length: shared,
          expert_shared_count: config.whole('n_shared_experts', 1),
          expert_weights_norm: config.maybeFlag('norm_topk_prob'),
          expert_weights_scale: config.positive('routed_scaling_factor'),
          expert_group_count: 1,
          expert_group_used_count: 1,
          moe_latent_size: latent,
        }),
      },
      sizes: { ...counts?.sizes, sharedFeedForward: shared, layers: layers.length },
      table: {
        layerPrefix: 'backbone.layers.',
        layersKey: blocksOf(draft) === undefined ? 'hybrid_override_pattern' : 'block_configs',
        outside: outsideOfSpaces,
        layer: [
          { from: 'norm', to: 'attn_norm', shape: ['hidden'] },
          ...onlyIn(mamba2Rows('mixer.', space), isA('space')),
          ...onlyIn(
            llamaAttention.map((row) => withoutBias(inMixer(row))),
            isA('attention'),
          ),
          ...onlyIn(feedForward.slice(1).map(inMixer), isA('dense')),
          ...mixtures,
          ...onlyIn(
            [...nextRows, { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] }],
            isA('next'),
          ),
        ],
        rename(name) {
          if (!name.startsWith('mtp.')) return name.replace(/^model\.(?=layers|embeddings|norm_f)/, 'backbone.');
          if (!predicts) return undefined;
          return name
            .replace(/^mtp\.layers\.1\.norm\./, `backbone.layers.${next}.post_attention_layernorm.`)
            .replace(/^mtp\.layers\.1\.final_layernorm\./, `backbone.layers.${next}.shared_head.norm.`)
            .replace(/^mtp\.layers\.[01]\./, `backbone.layers.${next}.`);
        },
      },
    };
  },
};

export const nemotronFamily: readonly ModelClass[] = [nemotron, nemotronH];
