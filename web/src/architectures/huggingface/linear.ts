/**
 * Models with linear attention in most layers, Qwen3-Next and Qwen3.5: the keys that each reads, and the settings that llama.cpp supports.
 * Reference: github.com/Tippach/Franken-Llama 1774451, conversion/qwen.py, without the layers that predict further tokens. Tests compare
 * with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { badFolderFile, unsupported } from './errors.js';
import type { Hyper } from './hyper.js';
import { member } from './json.js';
import {
  areStacked,
  checkSparse,
  decoder,
  expertCounts,
  type Model,
  type Read,
  rotatedOf,
  tiedIn,
  withSharedExpert,
} from './reading.js';
import { ropeKeys, ropeSections } from './rope.js';
import * as tables from './tables-linear.js';
import type { TensorTable } from './tensors.js';

const file = 'config.json';

function linearOf({ config }: Read): tables.Linear {
  const linear = {
    keyHeads: config.whole('linear_num_key_heads'),
    valueHeads: config.whole('linear_num_value_heads'),
    key: config.whole('linear_key_head_dim'),
    value: config.whole('linear_value_head_dim'),
    convolved: config.whole('linear_conv_kernel_dim'),
  };
  const { keyHeads, valueHeads, key, value } = linear;
  if (valueHeads % keyHeads !== 0)
    badFolderFile(file, `linear_num_value_heads ${valueHeads} is not a multiple of linear_num_key_heads ${keyHeads}`);
  // llama.cpp has one size of states.
  if (key !== value)
    unsupported(
      file,
      `linear_key_head_dim is ${key} and linear_value_head_dim ${value}; llama.cpp takes equal ones only`,
    );
  return linear;
}

/** True for each layer with linear attention. */
function linearLayers({ config }: Read, layers: number, step: number): boolean[] {
  const usual = Array.from({ length: layers }, (_, i) => (i + 1) % step !== 0);
  const types = config.get('layer_types');
  if (types === undefined) return usual;
  if (!Array.isArray(types) || types.length !== layers)
    return badFolderFile(file, `layer_types has to be an array of ${layers} names, got ${show(types)}`);
  const other = types.findIndex((type, i) => type !== (usual[i] ? 'linear_attention' : 'full_attention'));
  if (other >= 0)
    unsupported(
      file,
      `layer_types[${other}] is ${show(types[other])}; llama.cpp computes every ${step}. layer with full attention`,
    );
  return usual;
}

/** Pairs of a head that turn by each coordinate of a position. The usual ones are written behind the other keys. */
function sectionsOf({ rope }: Read, rotated: number): Partial<Hyper> {
  const sections = ropeSections(rope, rotated, [11, 11, 10]);
  const isStated = member(rope.settings, 'mrope_section') !== undefined;
  return isStated ? { ropeSections: sections } : { lateRopeSections: sections };
}

type TableOf = (linear: tables.Linear, isLinear: (layer: number) => boolean) => TensorTable;

/** Metadata and tensors of Qwen3-Next and Qwen3.5. */
function linearModel(read: Read, architecture: 'qwen3next' | 'qwen35' | 'qwen35moe', tableOf: TableOf): Model {
  const { config, rope, notes } = read;
  config.only('hidden_act', 'silu');
  config.only('attention_bias', false);
  config.only('attn_output_gate', true);
  config.only('use_sliding_window', false);
  const hasExperts = architecture !== 'qwen35';
  const { hyper, sizes } = decoder(read, hasExperts ? { feedForward: config.whole('intermediate_size', 1) } : {});
  const linear = linearOf(read);
  const step = config.whole('full_attention_interval', 4);
  const recurrentLayers = linearLayers(read, sizes.layers, step);
  return {
    architecture,
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['linear', 'yarn']),
      stateConvolved: linear.convolved,
      stateSize: linear.key,
      stateGroups: linear.keyHeads,
      stateHeads: linear.valueHeads,
      stateInner: linear.value * linear.valueHeads,
      ...(config.get('layer_types') === undefined ? {} : { recurrentLayers }),
      fullStep: step,
      ropeDimensions: rotatedOf(read, sizes.head, 1, 0.25),
    },
    sizes: { ...sizes, twoQueries: 2 * sizes.queries },
    table: tableOf(linear, (layer) => recurrentLayers[layer] === true),
    made: () => [],
    tied: tiedIn(config),
    notes,
  };
}

/** A model with experts in each layer. */
function withExperts(read: Read, model: Model): Model {
  checkSparse(read);
  read.config.only('norm_topk_prob', true);
  return withSharedExpert(read, model, expertCounts(read.config, 'num_experts'));
}

function qwen3next(read: Read): Model {
  const table: TableOf = (linear, isLinear) => tables.qwen3next(linear, isLinear, areStacked(read));
  return withExperts(read, linearModel(read, 'qwen3next', table));
}

function qwen35(read: Read): Model {
  const model = linearModel(read, 'qwen35', (linear, isLinear) => tables.qwen35(linear, isLinear, undefined));
  return { ...model, hyper: { ...model.hyper, ...sectionsOf(read, model.hyper.ropeDimensions as number) } };
}

function qwen35moe(read: Read): Model {
  const table: TableOf = (linear, isLinear) => tables.qwen35(linear, isLinear, areStacked(read));
  const model = withExperts(read, linearModel(read, 'qwen35moe', table));
  return { ...model, hyper: { ...model.hyper, ...sectionsOf(read, model.hyper.ropeDimensions as number) } };
}

/** Readers by the name that config.json has under `architectures`. */
export const linearReaders: Readonly<Record<string, (read: Read) => Model>> = {
  Qwen3NextForCausalLM: qwen3next,
  Qwen3_5ForCausalLM: qwen35,
  Qwen3_5ForConditionalGeneration: qwen35,
  Qwen3_5MoeForCausalLM: qwen35moe,
  Qwen3_5MoeForConditionalGeneration: qwen35moe,
};
