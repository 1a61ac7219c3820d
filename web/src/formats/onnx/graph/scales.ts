/** Finds floats that belong to codes: scales and values of codes that nodes look up. */

import type { Weight } from '../file/model.js';
import { contrib } from '../file/proto.js';
import { type Graphs, isMover, type ReadingNode, type Value } from './graph.js';

const codeTypes: readonly string[] = ['I8', 'U8', 'I4', 'U4', 'I2', 'U2'];

/** Longest way from codes to the product with their scales. */
const mostSteps = 16;

/** True if a value is made of stored codes alone. */
function isFromCodes(graphs: Graphs, value: Value | undefined, steps = 0): boolean {
  if (value === undefined || steps > mostSteps) return false;
  const { weight, producer: node, graph } = value;
  if (weight !== undefined) return codeTypes.includes(weight.source.dtype);
  if (node === undefined || node.domain !== '') return false;
  const from = (input: number) => isFromCodes(graphs, graphs.valueAt(graph, node.inputs[input] ?? ''), steps + 1);
  if (node.opType === 'Gather') return from(0) || from(1);
  return (isMover(node) || node.opType === 'Sub') && from(0);
}

/** Operators of onnxruntime with scales of codes among their inputs. */
const withScales: readonly string[] = ['MatMulNBits', 'MatMulBnb4', 'GatherBlockQuantized', 'QMoE'];

/** True if a reader of a tensor takes it as scales of codes, or as the values of codes. */
function takesScales(graphs: Graphs, { node, graph, input }: ReadingNode): boolean {
  if (node.domain === contrib) return withScales.includes(node.opType);
  if (node.domain !== '' || node.opType !== 'Gather' || input !== 0) return false;
  if (isFromCodes(graphs, graphs.valueAt(graph, node.inputs[1] ?? ''))) return true;
  const readers = graphs.readers({ graph, value: node.outputs[0] ?? '' });
  return (
    readers.length > 0 &&
    readers.every(({ node: product, graph: inside, input: at }) => {
      const other = graphs.valueAt(inside, product.inputs[1 - at] ?? '');
      return product.domain === '' && product.opType === 'Mul' && isFromCodes(graphs, other);
    })
  );
}

/** The operator that takes a tensor as scales of codes; undefined if others read it. */
export function operatorOfScales(graphs: Graphs, weight: Weight): string | undefined {
  const { readers, leaves } = graphs.follow(weight);
  const isTaken = !leaves && readers.length > 0 && readers.every((reader) => takesScales(graphs, reader));
  return isTaken ? readers[0]?.node.opType : undefined;
}
