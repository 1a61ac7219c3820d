/**
 * Models with selective state spaces: Mamba, Mamba 2 and Falcon-H1.
 * Reference: github.com/Tippach/Franken-Llama 1774451, conversion/ mamba.py and falcon_h1.py. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { type Draft, decoderDefaults, type ModelClass, siluSettings, vocabularyOf } from '../huggingface/reading.js';
import type { Row, TensorTable } from '../huggingface/tensors.js';
import { attention, embedding, feedForward, finalNorm, head } from './rows.js';

/** Sizes of a selective state space. */
interface StateSpace {
  /** Elements of all channels. */
  readonly inner: number;
  /** Elements of a channel's state. */
  readonly state: number;
  /** Tokens that its convolution sees. */
  readonly convolved: number;
  /** Mamba: elements that the steps of all channels are made of. Mamba 2: heads. */
  readonly steps: number;
  /** Groups of heads that share their inputs and outputs of states; 1 in Mamba. */
  readonly groups: number;
}

/** Tensors of Mamba 2. */
export function mamba2Rows(prefix: string, { inner, state, convolved, steps: heads, groups }: StateSpace): Row[] {
  const channels = inner + 2 * groups * state;
  return [
    { from: `${prefix}A_log`, to: 'ssm_a', whole: '', shape: [heads], as: [heads, 1], negativeExp: true },
    { from: `${prefix}D`, to: 'ssm_d', whole: '', shape: [heads], as: [heads, 1] },
    { from: `${prefix}dt_bias`, to: 'ssm_dt', whole: '.bias', shape: [heads] },
    {
      from: `${prefix}conv1d`,
      to: 'ssm_conv1d',
      shape: [channels, 1, convolved],
      as: [channels, convolved],
      bias: 'always',
    },
    { from: `${prefix}in_proj`, to: 'ssm_in', shape: [inner + channels + heads, 'hidden'] },
    { from: `${prefix}norm`, to: 'ssm_norm', shape: [inner], as: [groups, inner / groups] },
    { from: `${prefix}out_proj`, to: 'ssm_out', shape: ['hidden', inner] },
  ];
}

/** Tokens of a text that the converter states where a model has no limit. */
export const anyLength = 2 ** 20;

/** Fails for a vocabulary that the converter would fill up, though the embedding has no rows for that. */
export function checkVocabulary({ config, sizes: { vocabulary } }: Draft, usual: number): void {
  const unit = config.whole('pad_vocab_size_multiple', usual);
  if (vocabulary % unit !== 0)
    unsupportedConfig(`vocab_size ${vocabulary} is not a multiple of ${unit}, to which the converter fills it up`);
}

/** Fails for channels that are not divided evenly. */
export function checkSpace(space: StateSpace): StateSpace {
  const { inner, steps, groups } = space;
  if (inner % steps !== 0 || steps % groups !== 0)
    badConfig(`${inner} channels are not divided evenly into ${steps} heads in ${groups} groups`);
  return space;
}

/** Keys and the table of a state space. @param rows those of a layer behind its norm */
function stateModel(draft: Draft, { inner, state, convolved, steps }: StateSpace, rows: readonly Row[]) {
  const { hidden } = draft.sizes;
  if (inner !== 2 * hidden)
    unsupportedConfig(`the channels have ${inner} elements; llama.cpp computes Mamba with ${2 * hidden} only`);
  const isTied = draft.config.maybeFlag('tie_word_embeddings') ?? true;
  const table: TensorTable = {
    layerPrefix: 'backbone.layers.',
    outside: [
      { from: 'backbone.embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
      { ...finalNorm, from: 'backbone.norm_f' },
      head,
    ],
    layer: [{ from: 'norm', to: 'attn_norm', shape: ['hidden'] }, ...rows],
    rename(name) {
      const own = name.replace(/^model\.(?=backbone|lm_head)/, '');
      return isTied && own === 'lm_head.weight' ? undefined : own;
    },
  };
  const keys = {
    'ssm.conv_kernel': convolved,
    'ssm.inner_size': inner,
    'ssm.state_size': state,
    'ssm.time_step_rank': steps,
  };
  return { keys, table };
}

const stateSettings = { hidden_act: ['silu'], use_bias: [false], use_conv_bias: [true] };

const mamba: ModelClass = {
  architecture: 'mamba',
  classes: { MambaForCausalLM: {} },
  preTokenizers: { 'gpt-2': 'olmo' },
  only: stateSettings,
  numbers(read) {
    const { config } = read;
    const [layers, hidden] = [config.whole('num_hidden_layers'), config.whole('hidden_size')];
    const unused = { heads: 0, keyHeads: 0, head: 0, queries: 0, keys: 0, together: 0, feedForward: 0 };
    return {
      keys: {
        block_count: layers,
        embedding_length: hidden,
        context_length: anyLength,
        feed_forward_length: 0,
        'attention.head_count': 0,
        'attention.layer_norm_rms_epsilon':
          config.maybePositive('layer_norm_epsilon') ?? config.positive('rms_norm_eps', 1e-5),
      },
      sizes: { ...unused, layers, hidden, vocabulary: vocabularyOf(read) },
    };
  },
  ties: false,
  details(draft) {
    const { config, sizes } = draft;
    checkVocabulary(draft, 8);
    const [inner, state] = [config.whole('intermediate_size', 2 * sizes.hidden), config.whole('state_size', 16)];
    const convolved = config.whole('conv_kernel', 4);
    const steps = config.whole('time_step_rank', Math.ceil(sizes.hidden / 16));
    const { keys, table } = stateModel(draft, { inner, state, convolved, steps, groups: 1 }, [
      { from: 'mixer.A_log', to: 'ssm_a', whole: '', shape: [inner, state], negativeExp: true },
      { from: 'mixer.D', to: 'ssm_d', whole: '', shape: [inner] },
      { from: 'mixer.conv1d', to: 'ssm_conv1d', shape: [inner, 1, convolved], as: [inner, convolved], bias: 'always' },
      { from: 'mixer.in_proj', to: 'ssm_in', shape: [2 * inner, 'hidden'] },
      { from: 'mixer.x_proj', to: 'ssm_x', shape: [steps + 2 * state, inner] },
      { from: 'mixer.dt_proj', to: 'ssm_dt', shape: [inner, steps], bias: 'always' },
      { from: 'mixer.out_proj', to: 'ssm_out', shape: ['hidden', inner] },
    ]);
    return { keys: { ...keys, 'ssm.dt_b_c_rms': false }, table };
  },
};

const mamba2: ModelClass = {
  ...mamba,
  architecture: 'mamba2',
  classes: { Mamba2ForCausalLM: {} },
  details(draft) {
    const { config, sizes } = draft;
    checkVocabulary(draft, 16);
    const inner = config.whole('expand', 2) * sizes.hidden;
    const headSize = config.whole('head_dim', 64);
    if (inner % headSize !== 0) badConfig(`${inner} channels are not a multiple of head_dim ${headSize}`);
    const steps = inner / headSize;
    config.only('num_heads', steps);
    const groups = config.whole('n_groups', 1);
    const [state, convolved] = [config.whole('state_size', 128), config.whole('conv_kernel', 4)];
    const space = checkSpace({ inner, state, convolved, steps, groups });
    const { keys, table } = stateModel(draft, space, mamba2Rows('mixer.', space));
    return { keys: { ...keys, 'ssm.group_count': groups }, table };
  },
};

// --------------------------------------------------------------------------------------------------------------------- Falcon-H1

/** One number for each of some rows; undefined if it is 1. */
function rowFactorsOf(rows: readonly (readonly [count: number, factor: number])[]) {
  if (rows.every(([, factor]) => factor === 1)) return undefined;
  return Float32Array.from(rows.flatMap(([count, factor]) => new Array<number>(count).fill(factor)));
}

/** Falcon-H1, whose layers add what attention and Mamba 2 make of the same states. Its factors become parts of its weights. */
const falconH1: ModelClass = {
  architecture: 'falcon-h1',
  classes: {
    FalconH1ForCausalLM: decoderDefaults([4096, 14336, 32], [32, 8], 8192, {
      rms_norm_eps: 1e-5,
      mamba_d_ssm: 1024,
      mamba_n_heads: 128,
      mamba_n_groups: 1,
      mamba_d_state: 256,
      mamba_d_conv: 4,
      mamba_expand: 2,
      mamba_norm_before_gate: true,
      mamba_rms_norm: false,
    }),
  },
  preTokenizers: { 'llama-bpe': 'falcon-h1' },
  only: {
    ...siluSettings,
    attention_bias: [false],
    mlp_bias: [false],
    projectors_bias: [false],
    mamba_proj_bias: [false],
    mamba_conv_bias: [true],
  },
  scaling: [],
  details(draft) {
    const { config, sizes } = draft;
    const { hidden, vocabulary, keyHeads } = sizes;
    // Read the state space.
    const inner = config.maybeWhole('mamba_d_ssm') ?? config.whole('mamba_expand') * hidden;
    const steps = config.whole('mamba_n_heads');
    const [state, convolved] = [config.whole('mamba_d_state'), config.whole('mamba_d_conv')];
    const groups = config.whole('mamba_n_groups');
    const space = checkSpace({ inner, state, convolved, steps, groups });
    config.only('mamba_d_head', 'auto', inner / steps);
    // Read the factors, which are 1 where config.json has none.
    const one = (name: string) => config.positive(name, 1);
    const several = (name: string, count: number): number[] => {
      const list = config.get(name) ?? new Array<number>(count).fill(1);
      if (Array.isArray(list) && list.length === count && list.every((n) => Number.isFinite(n))) return list;
      return badConfig(`${name} has to be an array of ${count} numbers, got ${show(list)}`);
    };
    const [gate, down] = several('mlp_multipliers', 2);
    const [ofEmbedding, ofHead] = [one('embedding_multiplier'), one('lm_head_multiplier')];
    const ofKeys = one('key_multiplier');
    const [attentionIn, attentionOut] = [one('attention_in_multiplier'), one('attention_out_multiplier')];
    const [stateIn, stateOut] = [one('ssm_in_multiplier'), one('ssm_out_multiplier')];
    // The gate, the channels, the inputs and the outputs of states, and the steps.
    const states = several('ssm_multipliers', 5);
    const counts = [inner, inner, groups * state, groups * state, steps];
    const times: Readonly<Record<string, Partial<Row>>> = {
      token_embd: { factor: ofEmbedding },
      output: { factor: ofHead },
      ffn_gate: { factor: gate },
      ffn_down: { factor: down },
      attn_q: { factor: attentionIn },
      attn_k: { factor: ofKeys, rowFactors: rowFactorsOf([[sizes.keys, attentionIn]]) },
      attn_v: { factor: attentionIn },
      attn_output: { factor: attentionOut },
      ssm_out: { factor: stateOut },
      ssm_in: { factor: stateIn, rowFactors: rowFactorsOf(counts.map((count, i) => [count, states[i] ?? 1])) },
    };
    const withFactors = (row: Row): Row => ({ ...row, ...times[row.to] });
    const isNormed = config.maybeFlag('mamba_rms_norm') ?? false;
    // llama.cpp multiplies by the gate before it norms.
    if (isNormed) config.only('mamba_norm_before_gate', false);
    const isTied = config.maybeFlag('tie_word_embeddings') ?? false;
    if (isTied && ofEmbedding !== ofHead)
      unsupportedConfig(
        `tie_word_embeddings is true, embedding_multiplier ${ofEmbedding} and lm_head_multiplier ${ofHead}; llama.cpp has one ` +
          'tensor for both, which cannot hold two factors',
      );
    return {
      tied: isTied,
      keys: {
        vocab_size: vocabulary,
        'attention.head_count_kv': keyHeads,
        'attention.key_length': sizes.head,
        'attention.value_length': sizes.head,
        'ssm.conv_kernel': convolved,
        'ssm.inner_size': inner,
        'ssm.state_size': state,
        'ssm.time_step_rank': steps,
        'ssm.group_count': groups,
      },
      table: {
        outside: [embedding, { ...finalNorm, from: 'model.final_layernorm' }, head].map(withFactors),
        layer: [
          { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
          // llama.cpp reads this norm under a name without an ending.
          { from: 'pre_ff_layernorm.weight', to: 'ffn_norm', whole: '', shape: ['hidden'] },
          ...attention.map(withFactors),
          ...mamba2Rows('mamba.', space)
            .filter(({ to }) => isNormed || to !== 'ssm_norm')
            .map(withFactors),
          ...feedForward.map((row) => withFactors({ ...row, from: row.from.replace('mlp.', 'feed_forward.') })),
        ],
      },
    };
  },
};

export const mambaFamily: readonly ModelClass[] = [mamba, mamba2, falconH1];
