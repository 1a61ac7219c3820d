/** Builds a result: collects the forms of tensors and the changes of the graphs. */
import type { Form, Part } from '../../codecs/codec.js';
import type { FilePlan, OutputFile, PartsOf, PlannedTensor, Segment, SourceTensor } from '../../format.js';
import { keptTensor, plainTensor } from '../../tensors.js';
import type { Decisions } from '../decide/decide.js';
import {
  attributePieces,
  bytesPiece,
  type External,
  externalPieces,
  externalTensorPieces,
  int64Piece,
  integerField,
  type MessagePiece,
  type NewNode,
  type NewTensor,
  nodePieces,
  opsetPieces,
  piecesField,
  tensorPieces,
  textField,
} from '../file/encode.js';
import type { OnnxModel, Weight } from '../file/model.js';
import {
  attributeField,
  contrib,
  graphField,
  type Int64,
  modelField,
  nodeField,
  type OnnxGraph,
  type OnnxNode,
  onnxTypeNumber,
  tensorField,
} from '../file/proto.js';
import type { Field } from '../file/wire.js';
import type { Graphs, Scope } from '../graph/graph.js';
import { irVersionOf, type Opsets, type Rewritten } from '../graph/opsets.js';
import type { OnnxReason } from '../reasons.js';
import { Edits } from './edits.js';
import { layOut } from './layout.js';

const functionNodeField = 7;
const functionOpsetField = 9;

/** Position of new nodes: before a node, or behind one, which may be the last; else at the start of the graph. */
export interface Position {
  readonly graph: OnnxGraph;
  readonly before: OnnxNode | undefined;
  /** The preceding node. */
  readonly behind?: OnnxNode | undefined;
}

export class Builder {
  readonly model: OnnxModel;
  readonly graphs: Graphs;
  readonly edits = new Edits();
  readonly #partsOf: PartsOf;
  readonly #feedback: Decisions['feedback'];
  readonly #newerOpsets: Opsets;
  readonly #valueNames: FreshNames;
  readonly #nodeNames: FreshNames;
  readonly #indexes: ReadonlyMap<Weight, number>;
  readonly #tensors: (PlannedTensor | undefined)[];
  readonly #more: PlannedTensor[] = [];
  readonly #opsets = new Map<Scope, Map<string, number>>();
  readonly #data: DataFile | undefined;
  readonly #dropped = new Set<OnnxGraph>();
  readonly #spelled = new Set<number>();
  /** Functions that add the nodes replacing others. */
  readonly #replaced: (() => void)[] = [];
  /** Names of constants that several nodes read. */
  readonly #shared = new Map<OnnxGraph, Map<string, string>>();
  readonly #names = new Map<OnnxNode, { readonly inputs: readonly string[]; readonly outputs: readonly string[] }>();

  /** @param dataFile name of the file beside the model for its weights; undefined if the model itself holds them */
  constructor(
    model: OnnxModel,
    { graphs, opsets, feedback }: Pick<Decisions, 'graphs' | 'opsets' | 'feedback'>,
    partsOf: PartsOf,
    dataFile: string | undefined,
  ) {
    this.model = model;
    this.#data = dataFile === undefined ? undefined : new DataFile(dataFile);
    this.graphs = graphs;
    this.#valueNames = new FreshNames(graphs.valueNames);
    this.#nodeNames = new FreshNames(graphs.nodeNames);
    this.#newerOpsets = opsets;
    this.#partsOf = partsOf;
    this.#feedback = feedback;
    this.#indexes = new Map(model.weights.map((weight, i) => [weight, i]));
    this.#tensors = model.weights.map(() => undefined);
    for (const scope of this.graphs.scopes) this.#opsets.set(scope, new Map(scope.opsets));
  }

  // --------------------------------------------------------------------------------------------------------------------- tensors

  /** Parts of a tensor in a form. */
  parts({ source }: Weight, form: Form): readonly Part[] {
    return this.#partsOf(source.shape, form);
  }

  /** Converts a tensor, possibly to several forms. Returns its index in the plan. */
  convert(weight: Weight, form: Form): number {
    const feedback = 'importance' in form ? this.#feedback.get(weight) : undefined;
    const plain: PlannedTensor = { source: plainTensor(weight.source), form, parts: this.parts(weight, form) };
    const planned = feedback === undefined ? plain : { ...plain, feedback, moments: feedback };
    const index = this.#indexOf(weight);
    if (this.#tensors[index] === undefined) {
      this.#tensors[index] = planned;
      return index;
    }
    this.#more.push(planned);
    return this.#tensors.length + this.#more.length - 1;
  }

  #indexOf(weight: Weight): number {
    return this.#indexes.get(weight) as number;
  }

  /** Converts a tensor inside of a node. Returns its index in the plan. */
  convertMore(source: SourceTensor, form: Form): number {
    this.#more.push({ source: plainTensor(source), form, parts: this.#partsOf(source.shape, form) });
    return this.#tensors.length + this.#more.length - 1;
  }

  /** Copies a tensor. */
  keep(weight: Weight, reason: OnnxReason): void {
    const index = this.#indexOf(weight);
    this.#tensors[index] = keptTensor(weight.source, reason);
    const bytes = { tensor: index, role: 'data', size: weight.source.bytes };
    const isShape = weight.source.dtype === 'I64' || weight.node?.attributes.has('value_floats');
    const external = isShape ? undefined : this.#outside(weight.graph, bytes);
    if (external !== undefined) this.#replaceData(weight, externalPieces(external));
    else if (weight.tensor.data.kind === 'external') this.#replaceData(weight, piecesField(tensorField.raw, [bytes]));
  }

  /** Puts bytes into the file beside the model, if they belong there. */
  #outside(graph: OnnxGraph, data: MessagePiece): External | undefined {
    // Keep data of branches and loops inside, where onnxruntime-web does not find external data, and small tensors, which may determine
    // shapes.
    const isMain = graph === this.model.proto.graph;
    return isMain && 'size' in data && data.size >= smallestExternal ? this.#data?.add(data) : undefined;
  }

  /** Replaces a tensor's data by other fields. */
  #replaceData({ tensor }: Weight, pieces: readonly MessagePiece[]): void {
    const { raw, external, location, floats, int32s, doubles, uint64s } = tensorField;
    const data: readonly number[] = [raw, external, location, floats, int32s, doubles, uint64s];
    for (const { start, number } of this.model.skeleton.fields(tensor.begin, tensor.end)) {
      if (data.includes(number)) this.edits.replace(start);
    }
    this.edits.append(tensor.begin, pieces);
  }

  /** A part of a converted tensor as a tensor of the result. */
  tensorOf(index: number, role: string, name: string, shape?: readonly number[]): NewTensor {
    const planned = this.#tensors[index] ?? this.#more[index - this.#tensors.length];
    const part = planned?.parts.find((one) => one.role === role);
    if (part === undefined) throw new Error(`tensor ${index} has no ${role}`);
    const data: MessagePiece = { tensor: index, role, size: part.bytes };
    return { name, type: onnxTypeNumber(part.dtype), shape: shape ?? part.shape, data };
  }

  // ---------------------------------------------------------------------------------------------------------------------- graphs

  /** Adds tensors to the graph of a weight, replacing it if it is an initializer. */
  addTensors({ graph, tensor, node }: Weight, tensors: readonly NewTensor[]): void {
    for (const one of tensors) {
      const external = this.#outside(graph, one.data);
      const pieces = external === undefined ? tensorPieces(one) : externalTensorPieces(one, external);
      // Functions lack initializers: add a Constant.
      if (this.graphs.scopeOf(graph).function?.body === graph) {
        this.#addConstant(graph, node, one, pieces);
        continue;
      }
      const field = piecesField(graphField.initializer, pieces);
      if (node === undefined) this.edits.before(tensor.start, field);
      else this.edits.append(this.#lastMessage(graph), field);
    }
  }

  /** Adds a tensor without replacing one: small known bytes, or a part of the plan. */
  addConstant(graph: OnnxGraph, tensor: NewTensor): void {
    const external = this.#outside(graph, tensor.data);
    const pieces = external === undefined ? tensorPieces(tensor) : externalTensorPieces(tensor, external);
    if (this.graphs.scopeOf(graph).function?.body === graph) this.#addConstant(graph, undefined, tensor, pieces);
    else this.edits.append(this.#lastMessage(graph), piecesField(graphField.initializer, pieces));
  }

  /** Adds a float32 constant for one node. Returns its name. */
  addFloat(graph: OnnxGraph, wanted: string, value: number): string {
    const name = this.freshValue(wanted);
    const bytes = new Uint8Array(Float32Array.of(value).buffer);
    this.addConstant(graph, { name, type: onnxTypeNumber('F32'), shape: [], data: { bytes } });
    return name;
  }

  /** Adds an int64 constant for one node. Returns its name. */
  addIntegers(graph: OnnxGraph, wanted: string, values: readonly Int64[]): string {
    const name = this.freshValue(wanted);
    this.addConstant(graph, { name, type: onnxTypeNumber('I64'), shape: [values.length], data: int64Piece(values) });
    return name;
  }

  /** Adds a constant to the main graph, or to a function, once. Returns its name. */
  sharedConstant(graph: OnnxGraph, wanted: string, make: () => Omit<NewTensor, 'name'>): string {
    const { root } = this.graphs.scopeOf(graph);
    const inRoot = this.#shared.get(root) ?? new Map<string, string>();
    this.#shared.set(root, inRoot);
    const known = inRoot.get(wanted);
    if (known !== undefined) return known;
    const name = this.freshValue(wanted);
    this.addConstant(root, { name, ...make() });
    inRoot.set(wanted, name);
    return name;
  }

  #addConstant(
    graph: OnnxGraph,
    before: OnnxNode | undefined,
    { name }: NewTensor,
    pieces: readonly MessagePiece[],
  ): void {
    const attribute = [
      bytesPiece([...textField(attributeField.name, 'value'), ...integerField(attributeField.type, 4)]),
      ...piecesField(attributeField.t, pieces),
    ];
    const node = [
      bytesPiece([...textField(nodeField.output, name), ...textField(nodeField.opType, 'Constant')]),
      ...piecesField(nodeField.attribute, attribute),
    ];
    this.#insert({ graph, before }, piecesField(this.#nodeField(graph), node));
  }

  #lastMessage(graph: OnnxGraph): number {
    return (graph.messages.at(-1) as OnnxGraph['messages'][number]).begin;
  }

  #nodeField(graph: OnnxGraph): number {
    return this.graphs.scopeOf(graph).function?.body === graph ? functionNodeField : graphField.node;
  }

  /** The position behind a node; the start of the graph if undefined. */
  behind(graph: OnnxGraph, node: OnnxNode | undefined): Position {
    return { graph, before: node && this.graphs.nodeBehind(node), behind: node };
  }

  /** Puts nodes at a position. */
  addNodes(position: Position, nodes: readonly NewNode[]): void {
    const field = this.#nodeField(position.graph);
    for (const node of nodes) {
      const name = node.name === undefined ? {} : { name: this.#nodeNames.add(node.name) };
      this.#insert(position, nodePieces({ ...node, ...name }, field));
    }
  }

  #insert({ graph, before, behind }: Position, pieces: readonly MessagePiece[]): void {
    const first = before ?? (behind === undefined ? graph.nodes[0] : undefined);
    if (first === undefined) this.edits.append(this.#lastMessage(graph), pieces);
    else this.edits.before(first.start, pieces);
  }

  /** Removes a weight: its initializer with the input of the same name, or its node. */
  remove({ graph, tensor, node, value }: Weight): void {
    this.edits.replace(node?.start ?? tensor.start);
    if (node !== undefined) return;
    for (const input of graph.inputs) {
      if (input.name !== value) continue;
      this.edits.replace(input.start);
      this.#dropped.add(graph);
    }
  }

  /**
   * Name for the restored floats of a weight: that of the weight, so that its readers stay unchanged. Unlike initializers, nodes must not
   * give one name in nested graphs; then the readers get another name.
   */
  floatName(weight: Weight): string {
    const { graph, value } = weight;
    if (!this.graphs.isShadowed(weight) || this.graphs.isOutput(graph, value)) return value;
    const name = this.freshValue(`${value}_float`);
    for (const { node, input } of this.graphs.uses(graph, value)) {
      // Skip readers already renamed to a float16 Cast.
      if (this.inputsOf(node)[input] === value) this.renameInput(node, input, name);
    }
    return name;
  }

  /** Current inputs and outputs of a node. */
  inputsOf(node: OnnxNode): readonly string[] {
    return this.#names.get(node)?.inputs ?? node.inputs;
  }

  outputsOf(node: OnnxNode): readonly string[] {
    return this.#names.get(node)?.outputs ?? node.outputs;
  }

  /** Lets a node read another value. */
  renameInput(node: OnnxNode, input: number, name: string): void {
    this.#rename(node, nodeField.input, input, name);
    this.#names.set(node, { inputs: this.inputsOf(node).with(input, name), outputs: this.outputsOf(node) });
  }

  /** Renames an output of a node. */
  renameOutput(node: OnnxNode, from: string, name: string): void {
    const output = this.outputsOf(node).indexOf(from);
    this.#rename(node, nodeField.output, output, name);
    this.#names.set(node, { inputs: this.inputsOf(node), outputs: this.outputsOf(node).with(output, name) });
  }

  #rename({ begin, end }: OnnxNode, field: number, index: number, name: string): void {
    const fields = [...this.model.skeleton.fields(begin, end)].filter(({ number }) => number === field);
    const start = fields[index]?.start;
    if (start !== undefined) this.edits.set(start, [bytesPiece(textField(field, name))]);
  }

  /**
   * Adds the default permutation to a Transpose without one: onnxruntime 1.30 fails to load a DequantizeLinear in front of a Transpose and
   * a MatMul otherwise.
   */
  spellOut({ opType, attributes, begin }: OnnxNode, rank: number): void {
    if (opType !== 'Transpose' || attributes.has('perm') || this.#spelled.has(begin)) return;
    this.#spelled.add(begin);
    const perm = Array.from({ length: rank }, (_, i) => rank - 1 - i);
    this.edits.append(begin, attributePieces('perm', perm));
  }

  removeNode(node: OnnxNode): void {
    this.edits.replace(node.start);
  }

  /** Replaces a node once everything is decided, because its inputs may be renamed until then. */
  replaceNode(node: OnnxNode, graph: OnnxGraph, make: () => readonly NewNode[]): void {
    this.removeNode(node);
    this.#replaced.push(() => this.addNodes({ graph, before: node }, make()));
  }

  /** Removes nodes, each once. */
  removeNodes(nodes: readonly OnnxNode[]): void {
    for (const node of nodes) if (!this.edits.isReplaced(node.start)) this.removeNode(node);
  }

  // ----------------------------------------------------------------------------------------------------------------------- names

  /** An unused name of a value, similar to the given one. */
  freshValue(name: string): string {
    return this.#valueNames.add(name);
  }

  // ---------------------------------------------------------------------------------------------------------------------- opsets

  /** Raises a graph to at least a version of ai.onnx, which `Opsets` must allow. */
  raise(graph: OnnxGraph, version: number): void {
    const opsets = this.#opsets.get(this.graphs.scopeOf(graph));
    if ((opsets?.get('') ?? version) < version) opsets?.set('', version);
  }

  /** Nodes that the raised versions rewrite. */
  raised(): Rewritten[] {
    return this.graphs.scopes.flatMap((scope) => {
      const [from = 0, to = 0] = [scope.opsets.get(''), this.#opsets.get(scope)?.get('')];
      return to > from ? this.#newerOpsets.rewritten(scope, to) : [];
    });
  }

  /** Imports onnxruntime's operators. */
  importContrib(graph: OnnxGraph): string {
    const opsets = this.#opsets.get(this.graphs.scopeOf(graph));
    if (opsets !== undefined && !opsets.has(contrib)) opsets.set(contrib, 1);
    return contrib;
  }

  // ---------------------------------------------------------------------------------------------------------------------- result

  /** Writes the changed versions. */
  #writeVersions(): void {
    const { proto, skeleton, source } = this.model;
    let ir = this.#dropped.size > 0 ? 4 : 0;
    for (const scope of this.graphs.scopes) {
      const [begin, end, field] =
        scope.function === undefined
          ? [0, source.size, modelField.opsetImport]
          : [scope.root.messages[0]?.begin ?? 0, scope.root.messages[0]?.end ?? 0, functionOpsetField];
      for (const [domain, version] of this.#opsets.get(scope) ?? []) {
        if (scope.opsets.get(domain) === version) continue;
        const pieces = opsetPieces(domain, version, field);
        const old = [...skeleton.fields(begin, end)].filter(
          ({ number, begin: at, end: to }) => domain === '' && number === field && !this.#isOther(at, to),
        );
        this.#replaceAll(begin, old, pieces);
        if (domain === '' && scope.function === undefined) ir = Math.max(ir, irVersionOf(version));
      }
    }
    if (ir <= proto.irVersion) return;
    const old = [...skeleton.fields(0, source.size)].filter(({ number }) => number === modelField.irVersion);
    this.#replaceAll(0, old, [bytesPiece(integerField(modelField.irVersion, ir))]);
  }

  /** Replaces the first of some fields and removes the others; without fields, appends to their message. */
  #replaceAll(begin: number, fields: readonly Field[], pieces: readonly MessagePiece[]): void {
    for (const [i, { start }] of fields.entries()) this.edits.replace(start, i === 0 ? pieces : []);
    if (fields.length === 0) this.edits.append(begin, pieces);
  }

  /** True for opsets of domains other than ai.onnx. */
  #isOther(begin: number, end: number): boolean {
    for (const field of this.model.skeleton.fields(begin, end)) {
      if (field.number !== 1 || field.wire !== 2) continue;
      const name = new TextDecoder().decode(this.model.skeleton.bytes(field.begin, field.end));
      if (name !== '' && name !== 'ai.onnx') return true;
    }
    return false;
  }

  finish(): FilePlan {
    for (const add of this.#replaced) add();
    this.#writeVersions();
    const tensors = [
      ...this.#tensors.map((planned, i) => {
        if (planned === undefined) throw new Error(`nothing was decided about ${this.model.weights[i]?.source.name}`);
        return planned;
      }),
      ...this.#more,
    ];
    const pieces = this.edits.apply(this.model, 0, this.model.source.size);
    const placed = new Set(this.#data?.segments.map((segment) => ('tensor' in segment ? segment.tensor : -1)));
    const main = layOut(this.model, pieces, tensors, placed);
    // The data file is omitted if empty: all tensors may be small, or in branches.
    const files = this.#data === undefined || placed.size === 0 ? [main] : [main, this.#data.file()];
    return { format: 'onnx', files, tensors, notes: [], sidecars: [] };
  }
}

/** Names that a result adds. */
class FreshNames {
  readonly #taken: ReadonlySet<string>;
  readonly #added = new Set<string>();
  /** Last numbers behind names that were wanted again. Thousands of nodes may want one name. */
  readonly #numbers = new Map<string, number>();

  constructor(taken: ReadonlySet<string>) {
    this.#taken = taken;
  }

  /** Adds a name much like a given one that is neither taken nor added. */
  add(wanted: string): string {
    let number = this.#numbers.get(wanted) ?? 0;
    let name = number === 0 ? wanted : `${wanted}_${++number}`;
    while (this.#taken.has(name) || this.#added.has(name)) name = `${wanted}_${++number}`;
    if (number > 0) this.#numbers.set(wanted, number);
    this.#added.add(name);
    return name;
  }
}

/** Suffix of the name of the file beside a model. */
export const dataSuffix = '_data';

/** Smallest external data in bytes, as in onnx (onnx/external_data_helper.py at f754691). */
const smallestExternal = 1024;

/** A file beside the model for weights. */
class DataFile {
  readonly segments: Segment[] = [];
  readonly #name: string;
  #size = 0;

  constructor(name: string) {
    this.#name = name;
  }

  add({ tensor, role, size }: { readonly tensor: number; readonly role: string; readonly size: number }): External {
    // Align large tensors to pages, so that they can be mapped into memory.
    const unit = size >= 1 << 20 ? 4096 : 64;
    const offset = Math.ceil(this.#size / unit) * unit;
    this.segments.push({ at: offset, tensor, role });
    this.#size = offset + size;
    return { location: this.#name, offset, length: size };
  }

  file(): OutputFile {
    return { suffix: dataSuffix, size: this.#size, segments: this.segments };
  }
}
