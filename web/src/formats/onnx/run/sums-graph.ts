/**
 * Makes a model that gives sums over activations in place of its outputs. Outputs of the model are dropped, with the nodes behind the last
 * activation that counts. Sums in subgraphs are passed on: a Loop and a Scan carry them from step to step, and an If whose other branch runs
 * gives 0.
 */
import type { RunTensor } from '../../run.js';
import {
  bytesPiece,
  int64Piece,
  type MessagePiece,
  type NewNode,
  nodePieces,
  piecesField,
  tensorPieces,
  textField,
  valuePieces,
} from '../file/encode.js';
import type { OnnxModel } from '../file/model.js';
import { graphField, intOf, nodeField, type OnnxGraph, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { FreshNames, type Graphs, namesReadBy, type Value } from '../graph/graph.js';
import { Edits } from '../write/edits.js';
import type { ColumnPlace, ProductInputs } from './product-inputs.js';
import { editedModel, type RunnableModel } from './runnable.js';
import type { Loadable } from './runtime.js';

const [float, int64] = [onnxTypeNumber('F32'), onnxTypeNumber('I64')];

/** A sum of the results of several runs of a subgraph. Without runs it is 0. */
interface SumValue {
  readonly type: number;
  readonly shape: readonly number[];
}

/** Names of outputs for some inputs: the sum of squares of each column, or the sums of products of all; and the number of elements. */
export interface SumOutputs {
  readonly squares: string | undefined;
  readonly moments: string | undefined;
  readonly elements: string;
}

export class SumsGraph {
  readonly #model: OnnxModel;
  readonly #main: OnnxGraph;
  readonly #opset: number;
  readonly #edits = new Edits();
  readonly #graphs: Graphs;
  readonly #names: FreshNames;
  /** Constants of the main graph, by contents. */
  readonly #constants = new Map<string, string>();
  /** Number of outputs that were added behind those that a node carries. */
  readonly #padded = new Set<OnnxNode>();
  /** Values and nodes of the main graph that are needed. */
  readonly #wanted = new Set<string>();
  readonly #wantedNodes = new Set<OnnxNode>();
  /** Sums by their inputs. */
  readonly #made = new Map<string, SumOutputs>();
  readonly #rows = new Map<string, { readonly rows: string; readonly elements: string }>();
  readonly #valueKeys = new Map<Value, number>();

  constructor(model: OnnxModel, graphs: Graphs) {
    this.#model = model;
    this.#main = model.proto.graph;
    this.#opset = graphs.main.opsets.get('') ?? 1;
    this.#graphs = graphs;
    this.#names = new FreshNames(graphs.valueNames);
    for (const { start } of this.#main.outputs) this.#edits.replace(start);
  }

  // ------------------------------------------------------------------------------------------------------------------------ nodes

  #fresh(): string {
    return this.#names.add('sum');
  }

  /** Adds a node with one output. Returns the name of it. */
  #node(graph: OnnxGraph, opType: string, inputs: readonly string[], attributes: NewNode['attributes'] = {}): string {
    const output = this.#fresh();
    const node = { opType, inputs, outputs: [output], attributes };
    this.#edits.appendTo(graph, nodePieces(node, graphField.node));
    return output;
  }

  /** A constant of the main graph. */
  #constant(type: number, shape: readonly number[], values: readonly number[]): string {
    const key = JSON.stringify([type, shape, values.map(String)]);
    const known = this.#constants.get(key);
    if (known !== undefined) return known;
    const name = this.#fresh();
    const data: MessagePiece =
      type === int64 ? int64Piece(values) : { bytes: new Uint8Array(Float32Array.from(values).buffer) };
    const pieces = piecesField(graphField.initializer, tensorPieces({ name, type, shape, data }));
    this.#edits.appendTo(this.#main, pieces);
    this.#constants.set(key, name);
    return name;
  }

  #integers(...values: readonly number[]): string {
    return this.#constant(int64, [values.length], values);
  }

  /** Reduces an axis, which goes away: sums by default. */
  #reduce(graph: OnnxGraph, from: string, axis: number, operator = 'ReduceSum'): string {
    const isAttribute = this.#opset < (operator === 'ReduceSum' ? 13 : 18);
    if (isAttribute) return this.#node(graph, operator, [from], { axes: [axis], keepdims: 0 });
    return this.#node(graph, operator, [from, this.#integers(axis)], { keepdims: 0 });
  }

  /** Makes a value an output of a graph. */
  #output(graph: OnnxGraph, name: string, type: number, shape: readonly number[]): void {
    this.#edits.appendTo(graph, piecesField(graphField.output, valuePieces(name, type, shape)));
  }

  // -------------------------------------------------------------------------------------------------------------------- subgraphs

  /** The sum of no runs, as a value of the main graph. */
  #zero({ type, shape }: SumValue): string {
    const one = this.#constant(type, [], [0]);
    if (shape.length === 0) return one;
    const key = `${one} ${shape.join()}`;
    const known = this.#constants.get(key) ?? this.#node(this.#main, 'Expand', [one, this.#integers(...shape)]);
    this.#constants.set(key, known);
    return known;
  }

  /** Inserts a field before that of an offset, or at the end of a node or a graph. */
  #insert(at: number | undefined, inside: OnnxNode | OnnxGraph, pieces: readonly MessagePiece[]): void {
    if (at !== undefined) this.#edits.before(at, pieces);
    else if ('messages' in inside) this.#edits.appendTo(inside, pieces);
    else this.#edits.append(inside.begin, pieces);
  }

  /** Passes a value of a graph on to the main graph. Returns the name of it there. */
  #lift(graph: OnnxGraph, name: string, sum: SumValue): string {
    const parent = this.#graphs.parentOf(graph);
    if (parent === undefined) return name;
    const { node } = parent;
    if (node.opType !== 'If') return this.#lift(parent.graph, this.#fromBody(graph, node, name, sum), sum);
    // The other branch of an If gives 0.
    for (const { graphs } of node.attributes.values()) {
      for (const branch of graphs) {
        const given = branch === graph ? name : this.#node(branch, 'Identity', [this.#zero(sum)]);
        this.#output(branch, given, sum.type, sum.shape);
      }
    }
    const output = this.#fresh();
    this.#edits.append(node.begin, [bytesPiece(textField(nodeField.output, output))]);
    return this.#lift(parent.graph, output, sum);
  }

  /** Passes a value of the body of a Loop or a Scan on, added up over its steps. */
  #fromBody(graph: OnnxGraph, node: OnnxNode, name: string, sum: SumValue): string {
    const { type, shape } = sum;
    const isLoop = node.opType === 'Loop';
    // States: a Loop has two inputs before them and one output of the body; a Scan has other inputs behind them.
    const states = node.inputs.length - (isLoop ? 2 : intOf(node, 'num_scan_inputs', 1));
    const bodyOutput = graph.outputs[states + (isLoop ? 1 : 0)]?.start;
    const [before, output] = [this.#fresh(), this.#fresh()];
    const after = this.#node(graph, 'Add', [before, name]);
    const input = piecesField(graphField.input, valuePieces(before, type, shape));
    this.#insert(isLoop ? undefined : graph.inputs[states]?.start, graph, input);
    this.#insert(bodyOutput, graph, piecesField(graphField.output, valuePieces(after, type, shape)));
    // Fill up outputs that the node leaves out.
    if (!this.#padded.has(node)) {
      this.#padded.add(node);
      for (let i = node.outputs.length; i < states; i++) {
        this.#edits.append(node.begin, [bytesPiece(textField(nodeField.output, ''))]);
      }
    }
    const given = bytesPiece(textField(nodeField.input, this.#zero(sum)));
    this.#insert(isLoop ? undefined : this.#model.skeleton.fieldsOf(node, nodeField.input)[states]?.start, node, [
      given,
    ]);
    const taken = bytesPiece(textField(nodeField.output, output));
    this.#insert(this.#model.skeleton.fieldsOf(node, nodeField.output)[states]?.start, node, [taken]);
    return output;
  }

  // ------------------------------------------------------------------------------------------------------------------------- sums

  /** Keeps the nodes that give a value. */
  #want(graph: OnnxGraph, name: string): void {
    const parent = this.#graphs.parentOf(graph);
    if (parent === undefined) this.#wanted.add(name);
    else if (parent.graph === this.#main) this.#wantedNodes.add(parent.node);
    else this.#want(parent.graph, '');
  }

  /** The values as rows of columns, [rows, columns], or for channels [samples, columns, positions]; and the number of elements. */
  #rowsOf(key: string, { value, place, columns, isCast }: ProductInputs) {
    const known = this.#rows.get(key);
    if (known !== undefined) return known;
    const { graph, name } = value;
    const floats = isCast ? this.#node(graph, 'Cast', [name], { to: float }) : name;
    const turns: { readonly [Place in ColumnPlace]?: () => string } = {
      first: () => this.#node(graph, 'Transpose', [floats], { perm: [1, 0] }),
      // The rank is not known.
      lastButOne: () => this.#node(graph, 'Einsum', [floats], { equation: '...kn->...nk' }),
    };
    const shape = place === 'channels' ? this.#integers(0, columns, -1) : this.#integers(-1, columns);
    const rows = this.#node(graph, 'Reshape', [turns[place]?.() ?? floats, shape]);
    const elements = this.#lift(graph, this.#node(graph, 'Size', [floats]), { type: int64, shape: [] });
    this.#output(this.#main, elements, int64, []);
    const made = { rows, elements };
    this.#rows.set(key, made);
    return made;
  }

  /** Adds sums over the inputs of products. @param wantsMoments true for the sums of products of all columns */
  add(inputs: ProductInputs, wantsMoments: boolean): SumOutputs {
    const number = this.#valueKeys.get(inputs.value) ?? this.#valueKeys.size;
    this.#valueKeys.set(inputs.value, number);
    const key = `${number} ${inputs.place} ${inputs.columns}`;
    const ownKey = `${key} ${wantsMoments}`;
    const known = this.#made.get(ownKey);
    if (known !== undefined) return known;
    const { value, place, columns } = inputs;
    const { graph } = value;
    this.#want(graph, value.name);
    const { rows, elements } = this.#rowsOf(key, inputs);
    const give = (name: string, shape: readonly number[]) => {
      const given = this.#lift(graph, name, { type: float, shape });
      this.#output(this.#main, given, float, shape);
      return given;
    };
    let made: SumOutputs;
    if (wantsMoments) {
      const turned = this.#node(graph, 'Transpose', [rows], { perm: [1, 0] });
      const moments = give(this.#node(graph, 'MatMul', [turned, rows]), [columns, columns]);
      made = { squares: undefined, moments, elements };
    } else {
      const squares = this.#node(graph, 'Mul', [rows, rows]);
      const summed = place === 'channels' ? this.#reduce(graph, squares, 2) : squares;
      made = { squares: give(this.#reduce(graph, summed, 0), [columns]), moments: undefined, elements };
    }
    this.#made.set(ownKey, made);
    return made;
  }

  /**
   * Adds the least and the largest elements of values of the main graph, as one output: the least ones, then the largest ones. Returns the
   * name of it.
   */
  addRanges(names: readonly string[]): string {
    const graph = this.#main;
    const one = this.#integers(1);
    const ends = ['ReduceMin', 'ReduceMax'].flatMap((operator) =>
      names.map((name) => {
        this.#want(graph, name);
        return this.#node(graph, 'Reshape', [this.#node(graph, operator, [name], { keepdims: 0 }), one]);
      }),
    );
    const all = this.#node(graph, 'Concat', ends, { axis: 0 });
    this.#output(graph, all, float, [ends.length]);
    return all;
  }

  /**
   * Adds the least and the largest element of each column of a value of the main graph, as one output: the least ones, then the largest ones.
   * Returns the name of it.
   * @param along the dimension of the columns of a matrix; undefined for the last one of any value
   */
  addColumnRanges(name: string, columns: number, along?: 0 | 1): string {
    const graph = this.#main;
    this.#want(graph, name);
    const turned = along === 0 ? this.#node(graph, 'Transpose', [name], { perm: [1, 0] }) : name;
    const rows = this.#node(graph, 'Reshape', [turned, this.#integers(-1, columns)]);
    const ends = ['ReduceMin', 'ReduceMax'].map((operator) => this.#reduce(graph, rows, 0, operator));
    const all = this.#node(graph, 'Concat', ends, { axis: 0 });
    this.#output(graph, all, float, [2 * columns]);
    return all;
  }

  // ------------------------------------------------------------------------------------------------------------------------ result

  /** The model with its sums, without the nodes that no sum needs. Call once. */
  finish(runnable: RunnableModel): Loadable {
    const { nodes } = this.#main;
    const producers = new Map<string, OnnxNode>();
    for (const node of nodes) for (const output of node.outputs) if (output !== '') producers.set(output, node);
    const open = [...this.#wantedNodes];
    const add = (name: string) => {
      const producer = producers.get(name);
      if (producer === undefined || this.#wantedNodes.has(producer)) return;
      this.#wantedNodes.add(producer);
      open.push(producer);
    };
    for (const name of this.#wanted) add(name);
    for (let node = open.pop(); node !== undefined; node = open.pop()) for (const name of namesReadBy(node)) add(name);
    for (const node of nodes) if (!this.#wantedNodes.has(node)) this.#edits.replace(node.start);
    return editedModel(this.#model, this.#edits, runnable);
  }
}

/** Ranges of values by name. */
export type ValueRanges = Map<string, readonly [least: number, largest: number]>;

/** Widens ranges by those that a model gives. @param names as `addRanges` got them */
export function widenRanges(ranges: ValueRanges, names: readonly string[], { data }: Pick<RunTensor, 'data'>): void {
  for (const [i, name] of names.entries()) {
    const [least, largest] = [data[i] as number, data[names.length + i] as number];
    const [low, high] = ranges.get(name) ?? [least, largest];
    ranges.set(name, [Math.min(low, least), Math.max(high, largest)]);
  }
}
