/** Finds the caches of a language model: inputs with the keys and values of earlier tokens, and outputs that have those of new ones, too. */
import type { OnnxNode } from '../file/proto.js';
import type { Graphs, Value } from './graph.js';
import type { Types } from './types.js';

/**
 * Names of caches that transformers.js knows. It gives all of them one type.
 * Reference: github.com/huggingface/transformers.js 2827adf, src/models/session.js, and src/configs.js there.
 */
const [pastName, presentName] = [/^past_\w+\./, /^present(_\w+)?\./];

/** True for an input that is a cache to transformers.js. */
export const isPast = ({ name }: { readonly name: string }): boolean => pastName.test(name);

/** Inputs of attention that are caches, and its outputs that are. Those of other domains than the standard one begin with it. */
const places: Readonly<Record<string, { readonly inputs: readonly number[]; readonly outputs: readonly number[] }>> = {
  Attention: { inputs: [4, 5], outputs: [1, 2] },
  'com.microsoft.Attention': { inputs: [4], outputs: [1] },
  'com.microsoft.GroupQueryAttention': { inputs: [3, 4], outputs: [1, 2] },
  'com.microsoft.MultiHeadAttention': { inputs: [6, 7], outputs: [1, 2] },
};

const cachePlaces = ({ opType, domain }: OnnxNode) => places[domain === '' ? opType : `${domain}.${opType}`];

/** The float32 inputs and outputs of the main graph that are caches. */
export function cachesOf(graphs: Graphs, types: Types): Set<Value> {
  const { root } = graphs.main;
  const found = new Set<Value>();
  for (const { name } of root.inputs) {
    const value = graphs.valueAt(root, name);
    if (value === undefined || value.weight !== undefined || value.isOutput || !types.isFloat(value)) continue;
    const isAttended = value.uses.some(({ node, input }) => cachePlaces(node)?.inputs.includes(input));
    if (isAttended || isPast({ name })) found.add(value);
  }
  for (const { name } of root.outputs) {
    const value = graphs.valueAt(root, name);
    if (value?.producer === undefined || !types.isFloat(value)) continue;
    const isPresent = cachePlaces(value.producer)?.outputs.includes(value.producer.outputs.indexOf(name));
    if (isPresent || presentName.test(name)) found.add(value);
  }
  return found;
}
