/**
 * Models with selective state spaces: the keys that each reads, and the settings that llama.cpp supports for each.
 * Reference: github.com/Tippach/Franken-Llama 1774451, conversion/ mamba.py, falcon_h1.py and granite.py. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { granite } from './dense.js';
import { badFolderFile, unsupported } from './errors.js';
import {
  biased,
  checkDecoder,
  decoder,
  expertCounts,
  expertSizes,
  type Model,
  none,
  type Read,
  tiedIn,
  vocabularyOf,
} from './reading.js';
import { ropeKeys } from './rope.js';
import * as tables from './tables-recurrent.js';
import type { Sizes } from './tensors.js';

const file = 'config.json';

/** Tokens of a text that the converter states where a model has no limit. */
const anyLength = 2 ** 20;

/** Sizes of a model without attention. */
function plainSizes(layers: number, hidden: number, vocabulary: number): Sizes {
  return {
    ...none,
    layers,
    hidden,
    vocabulary,
    twoHidden: 2 * hidden,
    heads: 0,
    keyHeads: 0,
    head: 0,
    queries: 0,
    keys: 0,
    together: 0,
    feedForward: 0,
    twoFeedForward: 0,
  };
}

/** Fails for a vocabulary that the converter would fill up, though the embedding has no rows for that. */
function checkVocabulary({ config }: Read, vocabulary: number, usual: number): void {
  const unit = config.whole('pad_vocab_size_multiple', usual);
  if (vocabulary % unit !== 0)
    unsupported(file, `vocab_size ${vocabulary} is not a multiple of ${unit}, to which the converter fills it up`);
}

/** A model of Mamba or Mamba 2. */
function plain(read: Read, architecture: 'mamba' | 'mamba2', space: tables.StateSpace): Model {
  const { config, notes } = read;
  config.only('hidden_act', 'silu');
  config.only('use_bias', false);
  config.only('use_conv_bias', true);
  const [layers, hidden, vocabulary] = [
    config.whole('num_hidden_layers'),
    config.whole('hidden_size'),
    vocabularyOf(read),
  ];
  if (space.inner !== 2 * hidden)
    unsupported(file, `the channels have ${space.inner} elements; llama.cpp computes Mamba with ${2 * hidden} only`);
  checkVocabulary(read, vocabulary, architecture === 'mamba' ? 8 : 16);
  const tied = tiedIn(config) ?? true;
  const rmsEpsilon = config.maybePositive('layer_norm_epsilon') ?? config.positive('rms_norm_eps', 1e-5);
  return {
    architecture,
    hyper: {
      layers,
      hidden,
      context: anyLength,
      feedForward: 0,
      heads: 0,
      stateConvolved: space.convolved,
      stateInner: space.inner,
      stateSize: space.state,
      stateHeads: space.steps,
      ...(architecture === 'mamba' ? { normsSteps: false } : { stateGroups: space.groups }),
      rmsEpsilon,
    },
    sizes: plainSizes(layers, hidden, vocabulary),
    table: architecture === 'mamba' ? tables.mamba(space, tied) : tables.mamba2(space, tied),
    made: () => [],
    tied: undefined,
    notes,
  };
}

function mamba(read: Read): Model {
  const { config } = read;
  const hidden = config.whole('hidden_size');
  return plain(read, 'mamba', {
    inner: config.whole('intermediate_size', 2 * hidden),
    state: config.whole('state_size', 16),
    convolved: config.whole('conv_kernel', 4),
    steps: config.whole('time_step_rank', Math.ceil(hidden / 16)),
    groups: 1,
  });
}

/** Fails for channels that are not divided evenly. */
function checked(space: tables.StateSpace): tables.StateSpace {
  const { inner, steps, groups } = space;
  if (inner % steps !== 0 || steps % groups !== 0)
    badFolderFile(file, `${inner} channels are not divided evenly into ${steps} heads in ${groups} groups`);
  return space;
}

function mamba2(read: Read): Model {
  const { config } = read;
  const inner = config.whole('expand', 2) * config.whole('hidden_size');
  const head = config.whole('head_dim', 64);
  if (inner % head !== 0) badFolderFile(file, `${inner} channels are not a multiple of head_dim ${head}`);
  const steps = inner / head;
  config.only('num_heads', steps);
  const groups = config.whole('n_groups', 1);
  const space = {
    inner,
    state: config.whole('state_size', 128),
    convolved: config.whole('conv_kernel', 4),
    steps,
    groups,
  };
  return plain(read, 'mamba2', checked(space));
}

/** True for each layer with attention. */
function attentionLayers({ config }: Read, layers: number): boolean[] {
  const types = config.get('layer_types');
  if (!Array.isArray(types) || types.length !== layers)
    return badFolderFile(file, `layer_types has to be an array of ${layers} names, got ${show(types)}`);
  return types.map((type, i) => {
    if (type === 'attention' || type === 'mamba') return type === 'attention';
    return unsupported(file, `layer_types[${i}] is ${show(type)}; it can be attention or mamba`);
  });
}

/** Granite 4: layers with attention or Mamba 2, and experts or none. */
function graniteHybrid(read: Read): Model {
  const { config } = read;
  const model = granite(read);
  const { layers, hidden, keyHeads, feedForward, vocabulary } = model.sizes;
  const attends = attentionLayers(read, layers);
  const isHybrid = attends.includes(false);
  config.only('position_embedding_type', isHybrid ? 'nope' : 'rope');
  config.only('mamba_conv_bias', true);
  config.only('mamba_proj_bias', false);
  // Read the experts.
  const hasExperts = (config.maybeWhole('num_local_experts', 0) ?? 0) > 0;
  const [experts, usedExperts] = hasExperts ? expertCounts(config, 'num_local_experts') : [0, 0];
  const sharedFeedForward = config.whole('shared_intermediate_size');
  if (!hasExperts && sharedFeedForward !== feedForward)
    unsupported(
      file,
      `shared_intermediate_size is ${sharedFeedForward}; llama.cpp computes models without experts with ${feedForward} only`,
    );
  // Read the state space.
  const space = checked({
    inner: config.whole('mamba_expand') * hidden,
    state: config.whole('mamba_d_state'),
    convolved: config.whole('mamba_d_conv'),
    steps: config.whole('mamba_n_heads'),
    groups: config.whole('mamba_n_groups'),
  });
  if (isHybrid) checkVocabulary(read, vocabulary, 8);
  const { keyHeads: _, ...hyper } = model.hyper;
  const architecture = isHybrid ? 'granitehybrid' : hasExperts ? 'granitemoe' : 'granite';
  return {
    ...model,
    architecture,
    hyper: {
      ...hyper,
      ...(isHybrid ? { context: anyLength } : {}),
      layerKeyHeads: attends.map((one) => (one ? keyHeads : 0)),
      experts,
      usedExperts,
      sharedFeedForward,
      stateConvolved: space.convolved,
      stateSize: space.state,
      stateGroups: space.groups,
      stateInner: space.inner,
      stateHeads: space.steps,
      rotates: !isHybrid,
    },
    sizes: { ...model.sizes, ...expertSizes(experts, feedForward, sharedFeedForward) },
    table: biased(
      config,
      tables.graniteHybrid(isHybrid ? space : undefined, (i) => attends[i] === true, hasExperts),
    ),
  };
}

/** A list of factors, which is 1 for each where config.json has none. */
function factorsOf({ config }: Read, name: string, count: number): readonly number[] {
  const list = config.get(name) ?? new Array<number>(count).fill(1);
  if (!Array.isArray(list) || list.length !== count || !list.every((one) => Number.isFinite(one)))
    return badFolderFile(file, `${name} has to be an array of ${count} numbers, got ${show(list)}`);
  return list as number[];
}

/** The factors of Falcon-H1. */
function falconFactors(read: Read): tables.FalconFactors {
  const { config } = read;
  const one = (name: string) => config.positive(name, 1);
  const [gate = 1, down = 1] = factorsOf(read, 'mlp_multipliers', 2);
  return {
    embedding: one('embedding_multiplier'),
    head: one('lm_head_multiplier'),
    gate,
    down,
    key: one('key_multiplier'),
    attentionIn: one('attention_in_multiplier'),
    attentionOut: one('attention_out_multiplier'),
    stateIn: one('ssm_in_multiplier'),
    stateOut: one('ssm_out_multiplier'),
    states: factorsOf(read, 'ssm_multipliers', 5),
  };
}

/** The state space of Falcon-H1. */
function falconSpace({ config }: Read, hidden: number): tables.StateSpace {
  const inner = config.maybeWhole('mamba_d_ssm') ?? config.whole('mamba_expand') * hidden;
  const steps = config.whole('mamba_n_heads');
  const space = checked({
    inner,
    state: config.whole('mamba_d_state'),
    convolved: config.whole('mamba_d_conv'),
    steps,
    groups: config.whole('mamba_n_groups'),
  });
  config.only('mamba_d_head', 'auto', inner / steps);
  return space;
}

/** Falcon-H1: attention and Mamba 2 side by side in each layer. */
function falconH1(read: Read): Model {
  const { config, rope, notes } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  for (const key of ['attention_bias', 'mlp_bias', 'projectors_bias', 'mamba_proj_bias']) config.only(key, false);
  config.only('mamba_conv_bias', true);
  const { hyper, sizes } = decoder(read);
  const { layers, heads, keyHeads, head, hidden, feedForward, vocabulary } = sizes;
  const space = falconSpace(read, hidden);
  const factors = falconFactors(read);
  const normed = config.maybeFlag('mamba_rms_norm') ?? false;
  // llama.cpp multiplies by the gate before it norms.
  if (normed) config.only('mamba_norm_before_gate', false);
  ropeKeys(rope, []);
  const tied = tiedIn(config) ?? false;
  if (tied && factors.embedding !== factors.head)
    unsupported(
      file,
      `tie_word_embeddings is true, embedding_multiplier ${factors.embedding} and lm_head_multiplier ${factors.head}; llama.cpp has one ` +
        'tensor for both, which cannot hold two factors',
    );
  return {
    architecture: 'falcon-h1',
    hyper: {
      layers,
      hidden,
      context: hyper.context,
      feedForward,
      heads,
      keyHeads,
      stateConvolved: space.convolved,
      stateInner: space.inner,
      stateSize: space.state,
      stateHeads: space.steps,
      stateGroups: space.groups,
      rmsEpsilon: hyper.rmsEpsilon as number,
      vocabulary,
      head,
      theta: hyper.theta as number,
    },
    sizes,
    table: tables.falconH1(space, keyHeads * head, factors, normed),
    made: () => [],
    tied,
    notes,
  };
}

/** Readers by the name that config.json has under `architectures`. */
export const recurrentReaders: Readonly<Record<string, (read: Read) => Model>> = {
  MambaForCausalLM: mamba,
  Mamba2ForCausalLM: mamba2,
  GraniteMoeHybridForCausalLM: graniteHybrid,
  FalconH1ForCausalLM: falconH1,
};
