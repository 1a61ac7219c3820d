/**
 * Language models that have a vision tower beside them: the keys that each reads, and the settings that llama.cpp supports for each. The
 * towers are in vision/.
 * Reference: conversion/ llama.py at 0274f0f and qwen3vl.py at 06e514f of github.com/ggml-org/llama.cpp; qwenvl.py of
 * Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { unsupported } from './errors.js';
import { arrayMember, type Json } from './json.js';
import {
  checkDecoder,
  checkLayers,
  checkSparse,
  decoder,
  expertCounts,
  expertSizes,
  type Model,
  never,
  type Read,
  tiedIn,
} from './reading.js';
import { ropeKeys, ropeSections } from './rope.js';
import * as tables from './tables.js';
import { qwen3vlmoe as qwen3vlmoeTable } from './tables-views.js';
import type { TensorTable } from './tensors.js';

const file = 'config.json';

/** llama.cpp reads a bias of the head of this architecture, and does not add it. */
const qwen2vlTable: TensorTable = { ...tables.qwen2, outside: tables.outsideDecoder };

function qwenVl(read: Read, architecture: 'qwen2vl' | 'qwen3vl' | 'qwen3vlmoe', table: TensorTable): Model {
  const { config, rope, notes } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  if (architecture !== 'qwen2vl') config.only('attention_bias', false);
  const { hyper, sizes } = decoder(read);
  checkLayers(read, sizes.layers, never);
  return {
    architecture,
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['mrope', 'linear', 'yarn']),
      ropeSections: ropeSections(rope, sizes.head),
    },
    sizes,
    table,
    made: () => [],
    tied: tiedIn(config),
    notes,
  };
}

/** Layers that take more than the last output of the tower. */
function deepstackLayers({ config }: Read): number {
  return arrayMember(config.get('vision_config') as Json | undefined, 'deepstack_visual_indexes').length;
}

function qwen3vl(read: Read): Model {
  const model = qwenVl(read, 'qwen3vl', tables.qwen3);
  return { ...model, hyper: { ...model.hyper, deepstackLayers: deepstackLayers(read) } };
}

function qwen3vlmoe(read: Read): Model {
  const { config } = read;
  checkSparse(read);
  config.only('norm_topk_prob', true);
  const model = qwenVl(read, 'qwen3vlmoe', qwen3vlmoeTable);
  const stated = config.stated('num_local_experts') === undefined ? 'num_experts' : 'num_local_experts';
  const [experts, usedExperts] = expertCounts(config, stated);
  const expertFeedForward = config.whole('moe_intermediate_size');
  return {
    ...model,
    hyper: { ...model.hyper, experts, usedExperts, expertFeedForward, deepstackLayers: deepstackLayers(read) },
    sizes: { ...model.sizes, ...expertSizes(experts, expertFeedForward) },
  };
}

/** Families of text models beside a tower of LLaVA that llama.cpp runs as Llama. */
const asLlama: readonly unknown[] = [undefined, 'llama', 'mistral'];

type LlamaReader = (read: Read, table?: TensorTable) => Model;

/** The text model of SmolVLM and Idefics 3. */
const textModel: TensorTable = { ...tables.llama, rename: (name) => name.replace('text_model.', '') };

function llava(read: Read, llama: LlamaReader): Model {
  const type = read.config.get('model_type');
  if (!asLlama.includes(type) && type !== 'llava')
    unsupported(file, `the text model of LLaVA is ${show(type)}; llama or mistral are supported`);
  return llama(read);
}

/** Readers by the name that config.json has under `architectures`. @param llama the reader of Llama */
export const multimodalReaders = (llama: LlamaReader): Readonly<Record<string, (read: Read) => Model>> => ({
  Qwen2VLForConditionalGeneration: (read) => qwenVl(read, 'qwen2vl', qwen2vlTable),
  Qwen2_5_VLForConditionalGeneration: (read) => qwenVl(read, 'qwen2vl', qwen2vlTable),
  Qwen3VLForConditionalGeneration: qwen3vl,
  Qwen3VLMoeForConditionalGeneration: qwen3vlmoe,
  Idefics3ForConditionalGeneration: (read) => llama(read, textModel),
  SmolVLMForConditionalGeneration: (read) => llama(read, textModel),
  VLlama3ForCausalLM: (read) => llama(read, textModel),
  LlavaForConditionalGeneration: (read) => llava(read, llama),
});
