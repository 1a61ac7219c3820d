/** Finds nodes that need float32, though their operators accept float16: those with sizes and positions, and moves that fail to load. */

import { findInts, intOf, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { type Graphs, isConstant, isMover, mostMoves, type NodeInGraph, type Use, type Value } from './graph.js';
import type { Types } from './types.js';

const floats: readonly number[] = ['F32', 'F16', 'BF16', 'F64'].map(onnxTypeNumber);

/** Operators with positions or sizes as floats. */
const indexed: readonly string[] = ['Sin', 'Cos', 'Resize', 'Upsample', 'Range', 'NonMaxSuppression'];

/** Operators of networks, which compute no sizes and positions. */
const layers: readonly string[] = [
  ...['Conv', 'ConvTranspose', 'Gemm', 'LSTM', 'GRU', 'RNN', 'Softmax', 'Resize', 'Upsample'],
  ...['BatchNormalization', 'InstanceNormalization', 'LayerNormalization', 'GroupNormalization'],
  ...['AveragePool', 'MaxPool', 'GlobalAveragePool', 'GlobalMaxPool'],
];

/**
 * Nodes that compute sizes and positions from integers, up to integers again or to the angles of positions. float16 cannot hold odd numbers
 * beyond 2048.
 */
export function computedFromIntegers(graphs: Graphs, nodes: readonly NodeInGraph[], types: Types): Set<OnnxNode> {
  const derived = new Set<Value>();
  const computing = new Set<OnnxNode>();
  for (const { node, graph } of nodes) {
    const { opType, domain } = node;
    const inputs = node.inputs.flatMap((name) => (name === '' ? [] : (graphs.valueAt(graph, name) ?? [])));
    const read = inputs.filter((value) => types.isFloat(value));
    const type = types.inputType(node, graph, 0);
    const isStart =
      domain === '' &&
      ((opType === 'Cast' && read.length === 0) || opType === 'Range') &&
      type !== undefined &&
      !floats.includes(type);
    // Angles of positions are products with a vector of frequencies, not with a matrix.
    const isLayer =
      opType === 'MatMul'
        ? inputs.some(({ weight }) => (weight?.source.shape.filter((n) => n > 1).length ?? 0) > 1)
        : layers.includes(opType);
    const others = read.filter((value) => !isConstant(value));
    const goesOn =
      types.arithmetic(node, graph) === 'half' &&
      others.length > 0 &&
      others.every((value) => derived.has(value)) &&
      !isLayer;
    if (goesOn) computing.add(node);
    for (const name of isStart || goesOn ? node.outputs : []) {
      const value = graphs.valueAt(graph, name);
      if (value !== undefined && types.isFloat(value)) derived.add(value);
    }
  }
  /** True for a node that takes sizes or positions. An image that is resized is no size. */
  const endsWithIntegers = ({ node, input }: Use) => {
    const { opType, domain } = node;
    if (domain !== '' || (input === 0 && (opType === 'Resize' || opType === 'Upsample'))) return false;
    return opType === 'Cast' ? !floats.includes(intOf(node, 'to', 0)) : indexed.includes(opType);
  };
  const needed = new Set<OnnxNode>();
  for (const { node, graph } of nodes.toReversed()) {
    if (!computing.has(node)) continue;
    const uses = node.outputs.flatMap((name) => graphs.uses(graph, name));
    const isNeeded = uses.some((use) => needed.has(use.node) || endsWithIntegers(use));
    if (isNeeded || node.opType === 'Sin' || node.opType === 'Cos') needed.add(node);
  }
  return needed;
}

/** Largest rank of MatMul's inputs. */
const mostDimensions = 8;

/**
 * Transposes that move batches in front of a MatMul, with the nodes in between. onnxruntime 1.30 for Node crashes when it loads them in
 * float16, as in an LSTM with the batch first and a product behind it. In float32 the results are the same.
 */
export function batchesMoved(graphs: Graphs, nodes: readonly NodeInGraph[]): Set<OnnxNode> {
  const found = new Set<OnnxNode>();
  const known = new Map<string, boolean>();
  const leads = ({ node, input, graph }: Use, before: readonly number[], moves: number): boolean => {
    if (node.domain === '' && node.opType === 'MatMul') {
      // The first dimension moves next to the last, and all others stay in order.
      const last = before.length - 1;
      const [row = -1, column = -1] = before.slice(-2);
      const isMoved = (row === 0 && column === last) || (row === last && column === 0);
      return last > 1 && isMoved && before.slice(0, -2).every((from, i) => from === i + 1);
    }
    if (!isMover(node) || input > 0 || moves > mostMoves) return false;
    // Compose the permutation with those of Transposes before.
    let perm: readonly number[] | undefined = before;
    if (node.opType === 'Transpose') {
      perm = findInts(node, 'perm');
      if (perm === undefined || perm.length > mostDimensions) return false;
      if (before.length === perm.length) perm = perm.map((from) => before[from] ?? from);
    }
    if (perm.length === 0) return false;
    const key = `${node.start} ${perm}`;
    const there = known.get(key);
    if (there !== undefined) return there;
    known.set(key, false);
    const readers = node.outputs.flatMap((output) => graphs.uses(graph, output));
    const result = readers.map((use) => leads(use, perm, moves + 1)).includes(true);
    known.set(key, result);
    if (result) found.add(node);
    return result;
  };
  for (const { node, graph } of nodes) {
    if (node.opType === 'Transpose') leads({ node, graph, input: 0 }, [], 0);
  }
  return found;
}
