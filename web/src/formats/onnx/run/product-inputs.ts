/** Finds the activations that weights are multiplied with, and how their columns lie in them. */
import type { UnreachedReason, UnreachedWeight } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { contrib, intOf, type OnnxGraph, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import type { Graphs, ReadingNode, Value } from '../graph/graph.js';
import { swaps, typeRead } from '../graph/products.js';
import { channelAxis, isCalled, readingOf } from '../graph/readers.js';

/** Dimension of an activation that holds its columns: the last one; the first of a matrix; the last but one; the second one, of channels. */
export type ColumnPlace = 'last' | 'first' | 'lastButOne' | 'channels';

/** Inputs of products, as rows of columns. */
export interface ProductInputs {
  readonly value: Value;
  readonly place: ColumnPlace;
  /** Columns of all matrices. */
  readonly columns: number;
  /** Number of matrices that share the columns: groups of a convolution. */
  readonly matrices: number;
  /** True if the values need a Cast to float32. */
  readonly isCast: boolean;
}

/** Weights with the same inputs. A weight of several products has several. */
export interface JointInputs {
  /** Names of the weights. */
  readonly names: string[];
  readonly columns: number;
  readonly matrices: number;
  readonly inputs: readonly ProductInputs[];
}

/** The inputs of all weights. */
export interface FoundInputs {
  /** In the order of the nodes that read them first. */
  readonly shared: readonly JointInputs[];
  readonly unreached: readonly UnreachedWeight[];
}

/** Columns of a reader's other input. */
type Columns = Pick<ProductInputs, 'place' | 'columns'> & { readonly input: number; readonly matrices?: number };

const isOp = ({ opType, domain }: OnnxNode, ...names: readonly string[]) =>
  names.includes(domain === contrib ? `${contrib}.${opType}` : domain === '' ? opType : '');

/** The columns that a weight is multiplied with in a reader; a kind of a reason if they are not known. */
function columnsIn(reader: ReadingNode, shape: readonly number[]): Columns | UnreachedReason['kind'] {
  const { node, input, path } = reader;
  if (isOp(node, 'Gather')) return 'lookup';
  const isRecurrent = isOp(node, 'LSTM', 'GRU', 'RNN');
  if (isRecurrent && input === 2) return 'state';
  const swapped = swaps(path);
  if (swapped === undefined) return 'moved';
  const isConvolution = isOp(node, 'Conv', `${contrib}.FusedConv`);
  if (isConvolution && input === 1 && !swapped) {
    const matrices = intOf(node, 'group', 1);
    return { input: 0, place: 'channels', columns: (shape[1] ?? 0) * matrices, matrices };
  }
  const turns = (name: string) => intOf(node, name, 0) !== 0;
  const isGemm = isOp(node, 'Gemm', `${contrib}.FusedGemm`);
  const isBatched = isOp(node, `${contrib}.FusedMatMul`);
  const isProduct =
    ((isGemm || isOp(node, 'MatMul')) && input < 2) ||
    (isRecurrent && input === 1 && !swapped) ||
    (isOp(node, `${contrib}.Attention`) && input === 1) ||
    (isBatched && input === 1 && !turns('transA') && !turns('transBatchA') && !turns('transBatchB'));
  const axis = channelAxis(reader, shape);
  if (!isProduct || axis === undefined) return 'operator';
  // A product sums over the one of the last two dimensions that is not that of its channels.
  const columns = shape[2 * shape.length - 3 - axis] ?? 0;
  // Gemm: rows of A' times columns of B'.
  const isTurned = isGemm && turns(input === 1 ? 'transA' : 'transB') === (input === 1);
  const place = isTurned ? 'first' : isOp(node, 'MatMul') && input === 0 ? 'lastButOne' : 'last';
  return { input: 1 - input, place, columns };
}

/** Words of each kind. */
const words: { readonly [Kind in UnreachedReason['kind']]: (operator: string) => string } = {
  lookup: () => 'its rows are looked up',
  operator: (operator) => `read by ${operator}`,
  state: (operator) => `multiplied with states inside of ${operator}`,
  moved: (operator) => `read by ${operator} through nodes that move its elements`,
  inFunction: (operator) => `read by ${operator} in a function`,
  inSubgraph: (operator) => `read by ${operator} in a subgraph of another operator than If, Loop and Scan`,
  notRun: () => 'no sample runs its graph',
};

export function reasonFor(kind: UnreachedReason['kind'], operator: string): UnreachedReason {
  return { kind, operator, text: words[kind](operator) };
}

/** True if sums in a graph can be passed on to the main graph. */
function isOpenGraph(graphs: Graphs, graph: OnnxGraph): boolean {
  const parent = graphs.parentOf(graph);
  if (parent === undefined) return graph === graphs.main.root;
  // Before version 9, Scan has batches.
  const isKnown =
    isOp(parent.node, 'If', 'Loop') || (isOp(parent.node, 'Scan') && (graphs.main.opsets.get('') ?? 0) >= 9);
  return isKnown && isOpenGraph(graphs, parent.graph);
}

/** Types of weights that have columns. */
const floats: readonly string[] = ['F32', 'F16', 'BF16', 'F64'];

/** Finds the inputs of the weights of a model. Weights that no product or look-up reads are not listed. */
export function findInputs(model: OnnxModel, graphs: Graphs): FoundInputs {
  const numbers = new Map(graphs.nodes.map(({ node }, i) => [node, i]));
  const valueKeys = new Map<Value, number>();
  const shared = new Map<string, JointInputs & { readonly order: number }>();
  const unreached: UnreachedWeight[] = [];
  for (const weight of model.weights) {
    const { name, dtype, shape } = weight.source;
    if (!floats.includes(dtype) || shape.length < 2) continue;
    const { channels, readers } = readingOf(graphs, weight);
    if (channels === undefined) continue;
    // Find the inputs of the products that read it.
    const inputs: ProductInputs[] = [];
    let reason: UnreachedReason | undefined;
    for (const reader of readers) {
      const { node, graph } = reader;
      const skip = (kind: UnreachedReason['kind']) => {
        if (reason === undefined || reason.kind === 'lookup') reason = reasonFor(kind, node.opType);
      };
      const found = columnsIn(reader, shape);
      if (isCalled(reader) || graphs.scopeOf(graph) !== graphs.main) skip('inFunction');
      else if (typeof found === 'string') skip(found);
      else {
        const value = graphs.valueAt(graph, node.inputs[found.input] ?? '');
        if (value === undefined || value.weight !== undefined || found.columns === 0) skip('operator');
        else if (!isOpenGraph(graphs, value.graph)) skip('inSubgraph');
        else inputs.push({ matrices: 1, ...found, value, isCast: typeRead(reader, dtype) !== onnxTypeNumber('F32') });
      }
    }
    const [first] = inputs;
    const isAlike = inputs.every(({ columns, matrices }) => columns === first?.columns && matrices === first.matrices);
    if (first === undefined || !isAlike) {
      unreached.push({ name, reason: reason ?? reasonFor('operator', channels.operator) });
      continue;
    }
    // Find others with the same inputs.
    const distinct = new Map<string, ProductInputs>();
    for (const input of inputs) {
      const { value, place, columns } = input;
      const number = valueKeys.get(value) ?? valueKeys.size;
      valueKeys.set(value, number);
      const key = `${number}:${place}:${columns}`;
      if (!distinct.has(key)) distinct.set(key, input);
    }
    const key = [...distinct.keys()].sort().join();
    const known = shared.get(key);
    const order = readers.reduce((least, { node }) => Math.min(least, numbers.get(node) ?? 0), graphs.nodes.length);
    if (known !== undefined) known.names.push(name);
    else {
      const { columns, matrices } = first;
      shared.set(key, { names: [name], columns, matrices, inputs: [...distinct.values()], order });
    }
  }
  return { shared: [...shared.values()].sort((a, b) => a.order - b.order), unreached };
}
