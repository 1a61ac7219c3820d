/**
 * Known architectures: the keys of config.json that each reads, and the settings that llama.cpp supports for each.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ base.py at 00bd27a, llama.py 0274f0f, qwen.py 03173d5, gemma.py 061b8c5, phi.py
 * 051139f, bert.py 2ca8afc. Tests compare with llama.cpp v0.5.0.
 */
import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { type Config, type Rope, readRope } from './config.js';
import { denseReaders } from './dense.js';
import { encoderReaders } from './encoders.js';
import { badFolderFile, unsupported } from './errors.js';
import { expertReaders } from './experts.js';
import { gemma3nReaders } from './gemma3n.js';
import { gemma4Readers } from './gemma4.js';
import { member } from './json.js';
import { linearReaders } from './linear.js';
import { multimodalReaders } from './multimodal.js';
import {
  areStacked,
  biased,
  checkDecoder,
  checkGemma,
  checkLayers,
  checkSparse,
  decoder,
  expertCounts,
  expertSizes,
  type Model,
  never,
  type Read,
  tiedIn,
  withSharedExpert,
} from './reading.js';
import { recurrentReaders } from './recurrent.js';
import { llama3Factors, longFactors, ropeKeys, setting, wholeSetting } from './rope.js';
import * as tables from './tables.js';
import { withoutModel } from './tables-dense.js';
import { phimoe as phimoeTable, qwen2moe as qwen2moeTable } from './tables-experts.js';
import type { Sizes, TensorTable } from './tensors.js';
import { viewedReaders } from './views.js';

const file = 'config.json';

function llama(read: Read, table: TensorTable = tables.llama): Model {
  const { config, rope, notes } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  const { hyper, sizes } = decoder(read);
  const window = config.maybeWhole('sliding_window');
  if (window === undefined) checkLayers(read, sizes.layers, never);
  else if (window < hyper.context) {
    const text = `sliding_window ${window} is not written, because llama.cpp computes this architecture without one`;
    notes.push(noteOf('noSlidingWindow', { window }, text));
  }
  return {
    architecture: 'llama',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['linear', 'yarn', 'llama3']),
      vocabulary: sizes.vocabulary,
      ropeDimensions: sizes.head,
    },
    sizes,
    table: biased(config, table),
    made: () => llama3Factors(rope, config, sizes.head, hyper.theta as number),
    tied: tiedIn(config),
    notes,
  };
}

function mixtral(read: Read): Model {
  const { config } = read;
  const model = llama(read, tables.mixtral);
  const [experts, usedExperts] = expertCounts(config, 'num_local_experts');
  return { ...model, hyper: { ...model.hyper, experts, usedExperts }, sizes: { ...model.sizes, experts } };
}

/** SmolLM3. llama.cpp skips the rotary embedding in every fourth layer, regardless of the file. */
function smollm3(read: Read): Model {
  const { config } = read;
  config.only('no_rope_layer_interval', 4);
  config.only('attention_bias', false);
  config.only('mlp_bias', false);
  const list = config.get('no_rope_layers');
  const { layers } = decoder(read).sizes;
  if (Array.isArray(list) && list.length > 0) {
    const other = list.findIndex((rotates, i) => rotates !== ((i + 1) % 4 === 0 ? 0 : 1));
    if (list.length !== layers) badFolderFile(file, `no_rope_layers has ${list.length} entries for ${layers} layers`);
    if (other >= 0)
      unsupported(file, `no_rope_layers[${other}] is ${show(list[other])}; llama.cpp computes it otherwise`);
  }
  return { ...llama(read, tables.smollm3), architecture: 'smollm3' };
}

function qwen(read: Read, architecture: 'qwen2' | 'qwen3' | 'qwen2moe' | 'qwen3moe', table: TensorTable): Model {
  const { config, rope, notes } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  if (architecture.startsWith('qwen3')) config.only('attention_bias', false);
  const { hyper, sizes } = decoder(read);
  checkLayers(read, sizes.layers, never);
  return {
    architecture,
    hyper: { ...hyper, ...ropeKeys(rope, ['linear', 'yarn']) },
    sizes,
    table,
    made: () => [],
    tied: tiedIn(config),
    notes,
  };
}

function qwenExpertCounts({ config }: Read): [experts: number, used: number] {
  const other = config.stated('num_experts') === undefined && config.stated('num_local_experts') !== undefined;
  return expertCounts(config, other ? 'num_local_experts' : 'num_experts');
}

function qwen2moe(read: Read): Model {
  const { config } = read;
  checkSparse(read);
  config.only('norm_topk_prob', false);
  config.only('qkv_bias', true);
  const model = qwen(read, 'qwen2moe', qwen2moeTable(areStacked(read)));
  return withSharedExpert(read, model, qwenExpertCounts(read));
}

function qwen3moe(read: Read): Model {
  const { config, notes } = read;
  checkSparse(read);
  config.only('norm_topk_prob', true);
  const model = qwen(read, 'qwen3moe', tables.qwen3moe(areStacked(read)));
  const [experts, usedExperts] = qwenExpertCounts(read);
  const expertFeedForward = config.whole('moe_intermediate_size');
  if (config.get('norm_topk_prob') === undefined) {
    const text = 'norm_topk_prob is missing in config.json; llama.cpp normalizes the weights of the chosen experts';
    notes.push(noteOf('normalizesExperts', {}, text));
  }
  return {
    ...model,
    hyper: { ...model.hyper, experts, usedExperts, expertFeedForward },
    sizes: { ...model.sizes, ...expertSizes(experts, expertFeedForward) },
  };
}

/** Fails if the scale of attention differs from llama.cpp's. Its largest models use another divisor. */
function checkScale({ config }: Read, { heads, hidden, head, layers }: Sizes, largestLayers: number): void {
  const scalar = config.maybePositive('query_pre_attn_scalar');
  const taken = layers === largestLayers ? hidden / heads : head;
  if (scalar !== undefined && scalar !== taken)
    unsupported(file, `query_pre_attn_scalar is ${scalar}; llama.cpp computes this model with ${taken}`);
}

/** A cap of Gemma 2, which llama.cpp always applies. */
function capOf(config: Config, name: string): number {
  return config.maybePositive(name) ?? unsupported(file, `${name} is null; llama.cpp computes Gemma 2 with a cap`);
}

function gemma2(read: Read): Model {
  const { config, rope, notes } = read;
  checkGemma(read);
  const { hyper, sizes } = decoder(read);
  checkScale(read, sizes, 46);
  checkLayers(read, sizes.layers, (i) => i % 2 === 0);
  // The converter of llama.cpp does not write the base. Its runtime uses 10000.
  const { theta, ...others } = hyper;
  return {
    architecture: 'gemma2',
    hyper: {
      ...others,
      ...(theta === 10000 ? {} : { theta: theta as number }),
      ...ropeKeys(rope, ['linear']),
      attentionCap: capOf(config, 'attn_logit_softcapping'),
      finalCap: capOf(config, 'final_logit_softcapping'),
      window: config.whole('sliding_window'),
    },
    sizes,
    table: tables.gemma2,
    made: () => [],
    tied: tiedIn(config),
    notes,
  };
}

function gemma3(read: Read, bothSides = false): Model {
  const { config, rope, notes } = read;
  checkGemma(read, bothSides);
  const { hyper, sizes } = decoder(read);
  checkScale(read, sizes, 62);
  checkLayers(read, sizes.layers, (i) => (i + 1) % 6 !== 0);
  config.only('sliding_window_pattern', 6);
  if (config.get('attn_logit_softcapping') !== undefined)
    unsupported(file, 'attn_logit_softcapping is set; llama.cpp computes Gemma 3 without it');
  const finalCap = config.maybePositive('final_logit_softcapping');
  return {
    architecture: 'gemma3',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['linear']),
      ...(rope.localTheta === undefined ? {} : { localTheta: rope.localTheta }),
      ...(finalCap === undefined ? {} : { finalCap }),
      window: config.whole('sliding_window'),
    },
    sizes,
    table: tables.gemma3,
    made: () => [],
    tied: tiedIn(config),
    longEmbedding: true,
    notes,
  };
}

/** EmbeddingGemma: each token sees the others on both sides. */
function embeddingGemma(read: Read): Model {
  const { config } = read;
  const window = config.stated('sliding_window');
  if (window === undefined) badFolderFile(file, 'sliding_window is missing');
  config.only('use_bidirectional_attention', true);
  const model = gemma3(read, true);
  return { ...model, architecture: 'gemma-embedding', table: withoutModel(model.table) };
}

/** @param hasBiases true if the products of attention have biases */
function phi3(read: Read, hasBiases = false): Model {
  const { config, rope, notes } = read;
  config.only('hidden_act', 'silu');
  config.only('attention_bias', hasBiases);
  const { hyper, sizes } = decoder(read);
  checkLayers(read, sizes.layers, never);
  if (rope.type !== undefined && !['su', 'longrope', 'yarn'].includes(rope.type))
    unsupported(file, `${rope.where}.type is ${show(rope.type)}; Phi-3 has su, longrope or yarn`);
  const original =
    wholeSetting(rope, 'original_max_position_embeddings') ?? config.whole('original_max_position_embeddings');
  const rotated = setting(rope, 'partial_rotary_factor') ?? config.positive('partial_rotary_factor', 1);
  if (original < 2 || rotated > 1)
    badFolderFile(file, `original_max_position_embeddings is ${original} and partial_rotary_factor ${rotated}`);
  const ropeDimensions = Math.floor(Math.floor(rotated * sizes.hidden) / sizes.heads);
  const { tensors, attentionFactor } = longFactors(rope, ropeDimensions, hyper.context, original);
  const { head: _, ...others } = hyper;
  return {
    architecture: 'phi3',
    hyper: {
      ...others,
      ...(attentionFactor === undefined ? {} : { attentionFactor }),
      ropeContext: original,
      ropeDimensions,
      window: config.maybeWhole('sliding_window') ?? 0,
    },
    sizes,
    table: tables.phi3,
    made: () => tensors,
    tied: tiedIn(config),
    notes,
  };
}

/** Phi with experts. */
function phimoe(read: Read): Model {
  const { config, notes } = read;
  config.only('lm_head_bias', true);
  const model = phi3(read, true);
  const [experts, usedExperts] = expertCounts(config, 'num_local_experts');
  const text =
    'llama.cpp does not subtract the mean in the norms of this architecture, makes the shares of its experts by one softmax, and derives ' +
    'the factor of long contexts, so that its logits differ from those of transformers';
  notes.push(noteOf('computedOtherwise', { architecture: 'phimoe' }, text));
  return {
    ...model,
    architecture: 'phimoe',
    hyper: { ...model.hyper, lateExperts: experts, lateUsedExperts: usedExperts },
    sizes: { ...model.sizes, experts },
    table: phimoeTable,
  };
}

/** Readers by the name that config.json has under `architectures`. */
const readers: Readonly<Record<string, (read: Read) => Model>> = {
  LlamaForCausalLM: (read) => llama(read),
  MistralForCausalLM: (read) => llama(read),
  MixtralForCausalLM: mixtral,
  SmolLM3ForCausalLM: smollm3,
  Qwen2ForCausalLM: (read) => qwen(read, 'qwen2', tables.qwen2),
  Qwen3ForCausalLM: (read) => qwen(read, 'qwen3', tables.qwen3),
  Qwen2MoeForCausalLM: qwen2moe,
  Qwen3MoeForCausalLM: qwen3moe,
  Gemma2ForCausalLM: gemma2,
  Gemma3ForCausalLM: (read) => gemma3(read),
  Gemma3ForConditionalGeneration: (read) => gemma3(read),
  Gemma3TextModel: embeddingGemma,
  Phi3ForCausalLM: (read) => phi3(read),
  PhiMoEForCausalLM: phimoe,
  ...encoderReaders,
  ...denseReaders,
  ...expertReaders,
  ...viewedReaders,
  ...linearReaders,
  ...recurrentReaders,
  ...gemma3nReaders,
  ...gemma4Readers,
  ...multimodalReaders(llama),
};

/** The names that config.json may have under `architectures`. */
export const architectureNames: readonly string[] = Object.keys(readers);

/** Architectures that are missing, with the reason and with advice. */
const missing: readonly (readonly [names: RegExp, reason: string])[] = [
  [/^MPNet/, 'llama.cpp has no graph for MPNet; export it to ONNX, and quantize that file here'],
];

/** The note about limits of YaRN that llama.cpp rounds. */
function ropeNotes({ type, settings, where }: Rope, architecture: string): Note[] {
  if (type !== 'yarn' || member(settings, 'truncate') !== false) return [];
  const text =
    `${where}.truncate is false in config.json; llama.cpp always rounds the limits between which YaRN scales frequencies to whole pairs, so ` +
    'that logits differ from those of transformers (by 0.3 % of the largest in gpt-oss)';
  return [noteOf('computedOtherwise', { architecture }, text)];
}

/** Reads a model of a known architecture. */
export function readModel(
  config: Config,
  { names, embeddingRows, isCoded }: Pick<Read, 'names' | 'embeddingRows' | 'isCoded'>,
): Model {
  const list = config.get('architectures');
  const name: unknown = Array.isArray(list) ? list[0] : undefined;
  if (typeof name !== 'string') return badFolderFile(file, 'architectures is missing, or names none');
  const read = Object.hasOwn(readers, name) ? readers[name] : undefined;
  if (read === undefined) {
    const [, reason] = missing.find(([names]) => names.test(name)) ?? [];
    const why = reason === undefined ? '' : `: ${reason}`;
    return unsupported(
      file,
      `the architecture ${show(name)} is not supported${why}; supported are ${architectureNames.join(', ')}`,
    );
  }
  const rope = readRope(config);
  return read({ config, rope, notes: ropeNotes(rope, name), names, embeddingRows, isCoded });
}
