/**
 * Granite: dense, with experts, and with layers of Mamba 2.
 * Reference: github.com/ggml-org/llama.cpp, conversion/granite.py at 010f22d; granite.py of Tippach/Franken-Llama 1774451. Tests compare with
 * llama.cpp v0.5.0.
 */
import { unsupportedConfig } from '../huggingface/errors.js';
import { type Draft, layerKinds, type ModelClass, readExperts, siluSettings } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { llamaDefaults, llamaKeys, llamaTable } from './llama.js';
import { anyLength, checkSpace, checkVocabulary, mamba2Rows } from './mamba.js';
import { gateUpShares, joinedShared, llamaAttention, norms, onlyIn } from './rows.js';

/** Keys of all models. */
function graniteKeys(draft: Draft) {
  const { config, sizes } = draft;
  const stated = config.maybeWhole('head_dim');
  if (stated !== undefined && stated !== sizes.head)
    unsupportedConfig(`head_dim is ${stated}; llama.cpp computes Granite with hidden_size / num_attention_heads only`);
  return {
    ...llamaKeys(draft),
    'attention.scale': config.positive('attention_multiplier', 1),
    embedding_scale: config.positive('embedding_multiplier', 1),
    residual_scale: config.positive('residual_multiplier', 1),
    logit_scale: config.positive('logits_scaling', 1),
  };
}

const granite: ModelClass = {
  architecture: 'granite',
  traits: { pairs: 'neighbors', dividesLogits: true },
  classes: { GraniteForCausalLM: llamaDefaults },
  usesLlamaConverter: true,
  preTokenizers: { smollm: 'refact', starcoder: 'refact', 'smaug-bpe': 'dbrx' },
  only: siluSettings,
  decoder: { plainHeads: true },
  scaling: ['linear', 'yarn', 'llama3'],
  table: llamaTable,
  details: (draft) => ({ keys: graniteKeys(draft) }),
  mlx: { granite: {} },
  onnx: { GraniteForCausalLM: { kind: 'decoder', modelType: 'granite', hasFactors: true } },
};

/** Experts. The gates and ups of all of them are one tensor. */
const graniteExperts: readonly Row[] = [
  { from: 'block_sparse_moe.router.layer', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
  {
    from: 'block_sparse_moe.input_linear',
    to: '',
    shape: ['experts', '2 expertFeedForward', 'hidden'],
    shares: gateUpShares,
  },
  { from: 'block_sparse_moe.output_linear', to: 'ffn_down_exps', shape: ['experts', 'hidden', 'expertFeedForward'] },
];

/** Granite with experts, and perhaps some that all tokens pass. */
const graniteMoe: ModelClass = {
  ...granite,
  mlx: { granitemoe: { experts: { block: 'block_sparse_moe' }, precise: /\.router\.layer$/ } },
  architecture: 'granitemoe',
  classes: { GraniteMoeForCausalLM: llamaDefaults, GraniteMoeSharedForCausalLM: llamaDefaults },
  details(draft) {
    const { config, sizes } = draft;
    const own = graniteKeys(draft);
    const sharedFeedForward = config.maybeWhole('shared_intermediate_size', 0) || undefined;
    const { keys, sizes: counts } = readExperts(config, 'num_local_experts');
    const shared = sharedFeedForward === undefined ? [] : joinedShared('_shexp');
    return {
      keys: { ...own, ...keys, expert_shared_feed_forward_length: sharedFeedForward },
      sizes: { ...counts, expertFeedForward: sizes.feedForward, sharedFeedForward },
      table: { layer: [...norms, ...llamaAttention, ...graniteExperts, ...shared] },
    };
  },
};

/** Granite 4: layers with attention or Mamba 2, and experts or a dense part alone. */
const graniteHybrid: ModelClass = {
  ...granite,
  architecture: 'granitehybrid',
  traits: undefined,
  classes: { GraniteMoeHybridForCausalLM: llamaDefaults },
  usesLlamaConverter: undefined,
  details(draft) {
    const { config, sizes } = draft;
    const { hidden, keyHeads, feedForward: rows } = sizes;
    const own = graniteKeys(draft);
    const attends = layerKinds(draft, ['attention', 'mamba']);
    const isHybrid = attends.includes(false);
    config.only('position_embedding_type', isHybrid ? 'nope' : 'rope');
    config.only('mamba_conv_bias', true);
    config.only('mamba_proj_bias', false);
    // Read the experts.
    const hasExperts = (config.maybeWhole('num_local_experts', 0) ?? 0) > 0;
    const { keys, sizes: counts } = hasExperts
      ? readExperts(config, 'num_local_experts')
      : { keys: { expert_count: 0, expert_used_count: 0 }, sizes: {} };
    const sharedFeedForward = config.whole('shared_intermediate_size');
    if (!hasExperts && sharedFeedForward !== rows)
      unsupportedConfig(
        `shared_intermediate_size is ${sharedFeedForward}; llama.cpp computes models without experts with ${rows} only`,
      );
    // Read the state space.
    const space = checkSpace({
      inner: config.whole('mamba_expand') * hidden,
      state: config.whole('mamba_d_state'),
      convolved: config.whole('mamba_d_conv'),
      steps: config.whole('mamba_n_heads'),
      groups: config.whole('mamba_n_groups'),
    });
    if (isHybrid) checkVocabulary(draft, 8);
    const isAttention = (layer: number) => attends[layer] === true;
    return {
      architecture: isHybrid ? 'granitehybrid' : hasExperts ? 'granitemoe' : 'granite',
      keys: {
        ...own,
        ...keys,
        context_length: isHybrid ? anyLength : draft.keys.context_length,
        'attention.head_count_kv': attends.map((one) => (one ? keyHeads : 0)),
        expert_shared_feed_forward_length: sharedFeedForward,
        'ssm.conv_kernel': space.convolved,
        'ssm.state_size': space.state,
        'ssm.group_count': space.groups,
        'ssm.inner_size': space.inner,
        'ssm.time_step_rank': space.steps,
        'rope.scaling.finetuned': !isHybrid,
      },
      sizes: { ...counts, expertFeedForward: rows, sharedFeedForward },
      table: {
        layer: [
          ...norms,
          ...onlyIn(llamaAttention, isAttention),
          ...(isHybrid ? onlyIn(mamba2Rows('mamba.', space), (layer) => !isAttention(layer)) : []),
          ...(hasExperts ? [...graniteExperts, ...joinedShared('_shexp')] : joinedShared('')),
        ],
      },
    };
  },
};

export const graniteFamily: readonly ModelClass[] = [granite, graniteMoe, graniteHybrid];
