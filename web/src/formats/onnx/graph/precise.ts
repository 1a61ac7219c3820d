/** Finds nodes with sizes and positions, which float16 rounds, though their operators accept it. */

import { intOf, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { type Graphs, isConstant, type NodeInGraph, type Use, type Value } from './graph.js';
import type { Types } from './types.js';

const floats: readonly number[] = ['F32', 'F16', 'BF16', 'F64'].map(onnxTypeNumber);

function inputsOf(graphs: Graphs, { node, graph }: NodeInGraph): Value[] {
  return node.inputs.flatMap((name) => (name === '' ? [] : (graphs.valueAt(graph, name) ?? [])));
}

/** Operators with positions or sizes as floats. */
const indexed: readonly string[] = ['Sin', 'Cos', 'Resize', 'Upsample', 'Range', 'NonMaxSuppression'];

/** Operators of networks, which compute no sizes and positions. */
const layers: readonly string[] = [
  ...['Conv', 'ConvTranspose', 'Gemm', 'LSTM', 'GRU', 'RNN', 'Softmax', 'Resize', 'Upsample'],
  ...['BatchNormalization', 'InstanceNormalization', 'LayerNormalization', 'GroupNormalization'],
  ...['AveragePool', 'MaxPool', 'GlobalAveragePool', 'GlobalMaxPool'],
];

/** True for a layer of a network. Angles of positions are products with a vector of frequencies, not with a matrix. */
function isLayer(graphs: Graphs, placed: NodeInGraph): boolean {
  const { opType } = placed.node;
  if (opType !== 'MatMul') return layers.includes(opType);
  return inputsOf(graphs, placed).some(({ weight }) => (weight?.source.shape.filter((n) => n > 1).length ?? 0) > 1);
}

/**
 * Nodes that compute sizes and positions from integers, up to integers again or to the angles of positions. float16 cannot hold odd numbers
 * beyond 2048.
 */
export function computedFromIntegers(graphs: Graphs, nodes: readonly NodeInGraph[], types: Types): Set<OnnxNode> {
  const derived = new Set<Value>();
  const computing = new Set<OnnxNode>();
  for (const placed of nodes) {
    const { node, graph } = placed;
    const inputs = inputsOf(graphs, placed).filter((value) => types.isFloat(value));
    const isStart =
      node.domain === '' &&
      ((node.opType === 'Cast' && inputs.length === 0) || node.opType === 'Range') &&
      !fromFloats(types, placed);
    const others = inputs.filter((value) => !isConstant(value));
    const goesOn =
      types.arithmetic(node, graph) === 'half' &&
      others.length > 0 &&
      others.every((value) => derived.has(value)) &&
      !isLayer(graphs, placed);
    if (!isStart && !goesOn) continue;
    if (goesOn) computing.add(node);
    for (const name of node.outputs) {
      const value = graphs.valueAt(graph, name);
      if (value !== undefined && types.isFloat(value)) derived.add(value);
    }
  }
  const needed = new Set<OnnxNode>();
  for (const { node, graph } of nodes.toReversed()) {
    if (!computing.has(node)) continue;
    const isNeeded = node.outputs.some((name) =>
      graphs.uses(graph, name).some((use) => needed.has(use.node) || endsWithIntegers(use)),
    );
    if (isNeeded || node.opType === 'Sin' || node.opType === 'Cos') needed.add(node);
  }
  return needed;
}

function fromFloats(types: Types, { node, graph }: NodeInGraph): boolean {
  const type = types.inputType(node, graph, 0);
  return type === undefined || floats.includes(type);
}

function endsWithIntegers({ node, input }: Use): boolean {
  if (node.domain !== '') return false;
  // An image that is resized is no size.
  if ((node.opType === 'Resize' || node.opType === 'Upsample') && input === 0) return false;
  return node.opType === 'Cast' ? !floats.includes(intOf(node, 'to', 0)) : indexed.includes(node.opType);
}
