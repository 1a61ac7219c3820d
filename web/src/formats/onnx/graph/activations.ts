/** Finds the activations around products with weights, which static quantization stores as integers. */
import type { Weight } from '../file/model.js';
import type { OnnxGraph, OnnxNode } from '../file/proto.js';
import type { Graphs, ReadingNode } from './graph.js';

/** A product with a weight. */
export interface StaticProduct {
  readonly node: OnnxNode;
  readonly graph: OnnxGraph;
  readonly weight: Weight;
  /** The value that it multiplies. */
  readonly input: string;
  /** The last node of it: itself, or a Relu or Clip that alone reads it. */
  readonly last: OnnxNode;
  /** The value that `last` gives. */
  readonly output: string;
}

const products: readonly string[] = ['Conv', 'MatMul', 'Gemm'];

/** Operators that runtimes fuse with the product before them: integers that saturate give their results. */
const clamps: readonly string[] = ['Relu', 'Clip'];

/** Operators whose outputs are elements of their first input. */
const selecting: readonly string[] = [
  ...['Identity', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'Transpose'],
  ...['MaxPool', 'GlobalMaxPool', 'DepthToSpace', 'SpaceToDepth', 'Slice', 'Gather', 'Split', 'Expand'],
];

const isIn = ({ opType, domain }: OnnxNode, names: readonly string[]) => domain === '' && names.includes(opType);

/**
 * True if a branch or loop reads a value through nodes that only select and move its elements. onnxruntime (1.30) moves DequantizeLinear behind
 * such nodes, and then builds an invalid graph.
 */
function isReadInside(graphs: Graphs, graph: OnnxGraph, name: string): boolean {
  const seen = new Set<OnnxNode>();
  const movers = (from: string) =>
    graphs.uses(graph, from).filter(({ node }) => isIn(node, selecting) && !seen.has(node));
  for (let open = movers(name); open.length > 0; ) {
    for (const { node } of open) seen.add(node);
    const outputs = open.flatMap(({ node }) => node.outputs);
    if (outputs.some((output) => graphs.uses(graph, output).some((use) => use.graph !== graph))) return true;
    open = outputs.flatMap(movers);
  }
  return false;
}

/** The product of a reader of a weight in the main graph; undefined for other readers. */
export function staticProduct(
  graphs: Graphs,
  weight: Weight,
  { node, graph, input, path }: ReadingNode,
): StaticProduct | undefined {
  const isProduct = isIn(node, products) && input === 1 && path.length === 0 && graph === graphs.main.root;
  const [given = '', output = ''] = [node.inputs[0], node.outputs[0]];
  if (!isProduct || graphs.weightAt(graph, given) !== undefined || given === '') return undefined;
  const [use, ...others] = graphs.uses(graph, output);
  const isClamped =
    use !== undefined &&
    others.length === 0 &&
    use.input === 0 &&
    use.graph === graph &&
    isIn(use.node, clamps) &&
    !graphs.isOutput(graph, output);
  const last = isClamped ? use.node : node;
  const result = last.outputs[0] ?? '';
  return isReadInside(graphs, graph, result) ? undefined : { node, graph, weight, input: given, last, output: result };
}

/** The value that a value's elements come from, through nodes that only select and move them. */
export function selectedFrom(graphs: Graphs, graph: OnnxGraph, name: string): string {
  let at = name;
  for (let producer = graphs.valueAt(graph, at)?.producer; producer !== undefined && isIn(producer, selecting); ) {
    const [from = ''] = producer.inputs;
    if (graphs.valueAt(graph, from)?.weight !== undefined || graphs.valueAt(graph, from)?.graph !== graph) break;
    at = from;
    producer = graphs.valueAt(graph, at)?.producer;
  }
  return at;
}

/** Names of the activations of the main graph whose ranges static quantization needs, in order. */
export function rangedValues(graphs: Graphs, weights: readonly Weight[]): string[] {
  const names = new Set<string>();
  for (const weight of weights) {
    if (weight.source.dtype !== 'F32') continue;
    for (const reader of graphs.readers(weight)) {
      const product = staticProduct(graphs, weight, reader);
      if (product === undefined) continue;
      names.add(selectedFrom(graphs, product.graph, product.input));
      names.add(product.output);
    }
  }
  return [...names];
}
