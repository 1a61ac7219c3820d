/** Finds nodes that only move elements, but that onnxruntime cannot load in float16. */

import { findInts, type OnnxNode } from '../file/proto.js';
import { type Graphs, isMover, mostMoves, type NodeInGraph, type Use } from './graph.js';

/** True if the first dimension moves next to the last, and all others stay in order. */
function movesBatch(perm: readonly number[]): boolean {
  const last = perm.length - 1;
  const [row = -1, column = -1] = perm.slice(-2);
  const isMoved = (row === 0 && column === last) || (row === last && column === 0);
  return last > 1 && isMoved && perm.slice(0, -2).every((from, i) => from === i + 1);
}

/** Largest rank of MatMul's inputs. */
const mostDimensions = 8;

/** Permutation of a Transpose after others; undefined if unknown. */
function permutation(node: OnnxNode, before: readonly number[]): readonly number[] | undefined {
  if (node.opType !== 'Transpose') return before;
  const perm = findInts(node, 'perm');
  if (perm === undefined || perm.length > mostDimensions) return undefined;
  return before.length === perm.length ? perm.map((from) => before[from] ?? from) : perm;
}

/**
 * Transposes that move batches in front of a MatMul, with the nodes in between. onnxruntime 1.30 for Node crashes when it loads them in
 * float16, as in an LSTM with the batch first and a product behind it. In float32 the results are the same.
 */
export function batchesMoved(graphs: Graphs, nodes: readonly NodeInGraph[]): Set<OnnxNode> {
  const found = new Set<OnnxNode>();
  const known = new Map<string, boolean>();
  const leads = ({ node, input, graph }: Use, before: readonly number[], moves: number): boolean => {
    if (node.domain === '' && node.opType === 'MatMul') return movesBatch(before);
    if (!isMover(node) || input > 0 || moves > mostMoves) return false;
    const perm = permutation(node, before);
    if (perm === undefined || perm.length === 0) return false;
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
