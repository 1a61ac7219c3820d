/** Prepares ONNX models for running. */
import { type ByteSource, joinedBytes } from '../../files/bytes.js';
import { bytesPiece, piecesField, textField } from '../file/encode.js';
import type { OnnxModel } from '../file/model.js';
import { graphField, intOf, type OnnxGraph } from '../file/proto.js';
import { Graphs, isMover, mostMoves, type Use } from '../graph/graph.js';
import { Edits } from '../write/edits.js';
import type { Known } from './inputs.js';
import type { Loadable } from './runtime.js';

/** A value of a graph, and its node. */
export interface GraphValue {
  readonly name: string;
  readonly op: string;
  readonly inputs: readonly string[];
  /** True if it is an output of the model already. */
  readonly isOutput: boolean;
}

/** A model that can be run. */
export interface RunnableModel extends Loadable, Known {
  /** Values that nodes of the main graph compute, in order. */
  readonly values: readonly GraphValue[];
}

/** The tables of an operator for embeddings, by the inputs with their indices. */
const ofEmbeddings = { 0: 2, 1: 4 };

/** Inputs with tables of operators, by the inputs with their indices. */
const lookups: Readonly<Record<string, Readonly<Record<number, number>>>> = {
  Gather: { 1: 0 },
  GatherBlockQuantized: { 1: 0 },
  EmbedLayerNormalization: ofEmbeddings,
  QEmbedLayerNormalization: ofEmbeddings,
};

/** Elementwise operators that restore or convert floats. */
const widening: readonly string[] = ['DequantizeLinear', 'Cast', 'Mul', 'Sub', 'Identity'];

/** Shape of a table: that of a weight, or of its codes. */
function tableShape(graphs: Graphs, graph: OnnxGraph, name: string, moves = 0): readonly number[] | undefined {
  const value = graphs.valueAt(graph, name);
  if (value?.weight !== undefined) return value.weight.source.shape;
  const { producer } = value ?? {};
  if (value === undefined || producer === undefined || !widening.includes(producer.opType) || moves === mostMoves)
    return undefined;
  return tableShape(graphs, value.graph, producer.inputs[0] ?? '', moves + 1);
}

/** Nodes that read a value, or what others that pass its elements on make of it. */
function* usesBehind(
  graphs: Graphs,
  start: Pick<Use, 'graph'> & { readonly name: string },
  passes: (use: Use) => boolean,
): Generator<Use> {
  const names = new Set<string>();
  const open = [start];
  for (let at = open.shift(); at !== undefined; at = open.shift()) {
    if (names.has(at.name)) continue;
    names.add(at.name);
    for (const use of graphs.uses(at.graph, at.name)) {
      yield use;
      if (use.input === 0 && passes(use)) open.push({ graph: use.graph, name: use.node.outputs[0] ?? '' });
    }
  }
}

/** Least number of rows of the tables that an input indexes; undefined for other inputs. */
export function limitOf(graphs: Graphs, graph: OnnxGraph, name: string): number | undefined {
  const rows = [...usesBehind(graphs, { graph, name }, ({ node }) => isMover(node))].flatMap((use) => {
    const { node, input } = use;
    const table = Object.hasOwn(lookups, node.opType) ? lookups[node.opType]?.[input] : undefined;
    const axis = intOf(node, node.opType === 'Gather' ? 'axis' : 'gather_axis', 0);
    return table === undefined ? [] : (tableShape(graphs, use.graph, node.inputs[table] ?? '')?.at(axis) ?? []);
  });
  return rows.length === 0 ? undefined : Math.min(...rows);
}

/** Operators that keep the shape of their first input. */
const shapeless: readonly string[] = [...widening, 'DynamicQuantizeLinear', 'QuantizeLinear', 'Add', 'Div'];

/** Number of channels of an input that a convolution reads; undefined for other inputs. */
function channelsIn(graphs: Graphs, graph: OnnxGraph, name: string): number | undefined {
  for (const use of usesBehind(graphs, { graph, name }, ({ node }) => shapeless.includes(node.opType))) {
    const { node, input } = use;
    if (input !== 0 || (node.opType !== 'Conv' && node.opType !== 'ConvInteger')) continue;
    const each = tableShape(graphs, use.graph, node.inputs[1] ?? '')?.[1];
    if (each !== undefined) return each * intOf(node, 'group', 1);
  }
  return undefined;
}

/** Operators with outputs other than tensors. */
const withoutTensors = /^(Sequence|SplitToSequence|Optional)/;

/** Reads a whole model. */
export async function runnableOf(model: OnnxModel): Promise<RunnableModel> {
  const { proto, source, weights, files } = model;
  const external = new Map<string, ByteSource>();
  for (const { source: place, tensor } of weights) {
    if (tensor.data.kind === 'external') external.set(tensor.data.location, files[place.file ?? 0] as ByteSource);
  }
  const externalData = [];
  for (const [path, file] of external) externalData.push({ path, data: await file.read(0, file.size) });
  const graphs = new Graphs(model);
  const outputs = new Set(proto.graph.outputs.map(({ name }) => name));
  const values = proto.graph.nodes.flatMap(({ opType, domain, inputs, outputs: given }) => {
    if (opType === 'Constant' || (domain === '' && withoutTensors.test(opType))) return [];
    const named = given.filter((name) => name !== '');
    return named.map((name): GraphValue => ({ name, op: opType, inputs, isOutput: outputs.has(name) }));
  });
  const limits = new Map<string, number>();
  const channels = new Map<string, number>();
  for (const { name } of proto.graph.inputs) {
    const limit = limitOf(graphs, proto.graph, name);
    if (limit !== undefined) limits.set(name, limit);
    const count = channelsIn(graphs, proto.graph, name);
    if (count !== undefined) channels.set(name, count);
  }
  return { bytes: await source.read(0, source.size), externalData, values, limits, channels };
}

/** The model with edits that add no data of tensors. */
export function editedModel(model: OnnxModel, edits: Edits, { bytes, externalData }: RunnableModel): Loadable {
  const parts = edits.apply(model, 0, model.source.size).map((piece): Uint8Array => {
    if ('bytes' in piece) return piece.bytes;
    if ('begin' in piece) return bytes.subarray(piece.begin, piece.end);
    throw new Error('edits for a run have no parts of tensors');
  });
  return { bytes: joinedBytes(parts), externalData };
}

/** Makes values outputs of the main graph. Their types follow from the nodes. */
export function appendOutputs(edits: Edits, graph: OnnxGraph, names: Iterable<string>): void {
  for (const name of names) edits.appendTo(graph, piecesField(graphField.output, [bytesPiece(textField(1, name))]));
}

/** The model with more outputs. */
export function withGraphOutputs(model: OnnxModel, runnable: RunnableModel, names: readonly string[]): Loadable {
  const edits = new Edits();
  appendOutputs(edits, model.proto.graph, names);
  return editedModel(model, edits, runnable);
}
