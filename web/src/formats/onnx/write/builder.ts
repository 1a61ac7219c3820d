/** Builds a result: collects the forms of tensors and the changes of the graphs. */
import type { Form } from '../../codecs/codec.js';
import { float32Form } from '../../codecs/registry.js';
import type { Field, Int64 } from '../../files/protobuf.js';
import type { FilePlan, PartsOf, PlannedTensor, Segment, SourceTensor } from '../../format.js';
import { keptTensor, plainTensor } from '../../tensors.js';
import type { Decisions } from '../decide/decide.js';
import {
  attributePieces,
  bytesPiece,
  type External,
  externalPieces,
  int64Piece,
  integerField,
  type MessagePiece,
  type NewNode,
  type NewTensor,
  nodePieces,
  piecesField,
  tensorPieces,
  textField,
  valueAttributePieces,
} from '../file/encode.js';
import type { OnnxModel, Weight } from '../file/model.js';
import {
  contrib,
  functionField,
  graphField,
  modelField,
  nodeField,
  type OnnxGraph,
  type OnnxNode,
  onnxTypeNumber,
  tensorField,
} from '../file/proto.js';
import { FreshNames, type Graphs, type Scope } from '../graph/graph.js';
import { irVersionFor, type Opsets, type Rewritten } from '../graph/opsets.js';
import type { OnnxReason } from '../reasons.js';
import { Edits } from './edits.js';
import { layOutModel } from './layout.js';

/** Position of new nodes: before a node, or behind one, which may be the last; else at the start of the graph. */
export interface Position {
  readonly graph: OnnxGraph;
  readonly before: OnnxNode | undefined;
  /** The preceding node. */
  readonly behind?: OnnxNode | undefined;
}

/** Suffix of the name of the file beside a model. */
export const dataSuffix = '_data';

/** Smallest external data in bytes, as in onnx (onnx/external_data_helper.py at f754691). */
const smallestExternal = 1024;

/** A file beside the model with data of its weights. */
interface DataChunk {
  /** Behind the name of the first one. */
  readonly ending: string;
  readonly segments: Extract<Segment, { readonly tensor: number }>[];
  size: number;
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
  readonly #opsets: ReadonlyMap<Scope, Map<string, number>>;
  /** Name of the first file beside the model for weights. */
  readonly #dataFile: string | undefined;
  readonly #chunks: DataChunk[] = [];
  /** True once an input of the graph was removed with its initializer. */
  #hasDropped = false;
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
    this.#dataFile = dataFile;
    this.graphs = graphs;
    this.#valueNames = new FreshNames(graphs.valueNames);
    this.#nodeNames = new FreshNames(graphs.nodeNames);
    this.#newerOpsets = opsets;
    this.#partsOf = partsOf;
    this.#feedback = feedback;
    this.#indexes = new Map(model.weights.map((weight, i) => [weight, i]));
    this.#tensors = model.weights.map(() => undefined);
    this.#opsets = new Map(graphs.scopes.map((scope) => [scope, new Map(scope.opsets)]));
  }

  // --------------------------------------------------------------------------------------------------------------------- tensors

  /** Converts a tensor, possibly to several forms. Returns its index in the plan. */
  convert(weight: Weight, form: Form): number {
    const index = this.#indexes.get(weight) as number;
    if (this.#tensors[index] !== undefined) return this.convertMore(weight.source, form, weight);
    this.#tensors[index] = this.#planned(weight.source, form, weight);
    return index;
  }

  /** Converts a tensor inside of a node, or a weight once more. Returns its index in the plan. */
  convertMore(source: SourceTensor, form: Form, weight?: Weight): number {
    this.#more.push(this.#planned(source, form, weight));
    return this.#tensors.length + this.#more.length - 1;
  }

  #planned(source: SourceTensor, form: Form, weight: Weight | undefined): PlannedTensor {
    const feedback = weight !== undefined && 'importance' in form ? this.#feedback.get(weight) : undefined;
    const made = weight?.made;
    const plain: PlannedTensor = {
      source: made ?? plainTensor(source),
      form,
      parts: this.#partsOf(source.shape, form),
    };
    return feedback === undefined ? plain : { ...plain, feedback, moments: feedback };
  }

  /** Copies a tensor. */
  keep(weight: Weight, reason: OnnxReason): void {
    const { source, tensor, graph, node } = weight;
    const index = this.#indexes.get(weight) as number;
    const isMade = weight.made !== undefined;
    this.#tensors[index] = isMade ? this.#planned(source, float32Form, weight) : keptTensor(source, reason);
    const bytes = { tensor: index, role: 'data', size: source.bytes };
    const isShape = source.dtype === 'I64' || node?.attributes.has('value_floats');
    const external = isShape ? undefined : this.#outside(graph, bytes);
    if (external === undefined && tensor.data.kind !== 'external' && !isMade) return;
    // Replace the data by other fields.
    const { raw, external: entries, location, floats, int32s, doubles, uint64s } = tensorField;
    const data: readonly number[] = [raw, entries, location, floats, int32s, doubles, uint64s];
    for (const { start, number } of this.model.skeleton.fields(tensor.begin, tensor.end)) {
      if (data.includes(number)) this.edits.replace(start);
    }
    const pieces = external === undefined ? piecesField(raw, [bytes]) : externalPieces(external);
    this.edits.append(tensor.begin, pieces);
  }

  /** Puts bytes into the file beside the model, if they belong there. */
  #outside(graph: OnnxGraph, data: MessagePiece): External | undefined {
    // Keep data of branches and loops inside, where onnxruntime-web does not find external data, and small tensors, which may determine
    // shapes.
    const isMain = graph === this.model.proto.graph;
    if (this.#dataFile === undefined || !isMain || !('size' in data) || data.size < smallestExternal) return undefined;
    // Align large tensors to pages, so that they can be mapped into memory.
    const { tensor, role, size } = data;
    const unit = size >= 1 << 20 ? 4096 : 64;
    const { mostData = Number.POSITIVE_INFINITY } = this.model;
    let chunk = this.#chunks.at(-1);
    if (chunk === undefined || Math.ceil(chunk.size / unit) * unit + size > mostData) {
      const count = this.#chunks.length;
      chunk = { ending: count === 0 ? '' : `_${count}`, segments: [], size: 0 };
      this.#chunks.push(chunk);
    }
    const offset = Math.ceil(chunk.size / unit) * unit;
    chunk.segments.push({ at: offset, tensor, role });
    chunk.size = offset + size;
    return { location: this.#dataFile + chunk.ending, offset, length: size };
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
    for (const one of tensors) this.addConstant(graph, one, node, node === undefined ? tensor.start : undefined);
  }

  /**
   * Adds a tensor: small known bytes, or a part of the plan.
   * @param before node that it stands before in a function
   * @param start offset of the initializer that it stands before; undefined for the end of the graph
   */
  addConstant(graph: OnnxGraph, tensor: NewTensor, before?: OnnxNode, start?: number): void {
    const pieces = tensorPieces(tensor, this.#outside(graph, tensor.data));
    if (this.#isFunction(graph)) {
      // Functions lack initializers: add a Constant.
      const head = bytesPiece([
        ...textField(nodeField.output, tensor.name),
        ...textField(nodeField.opType, 'Constant'),
      ]);
      const node = [head, ...valueAttributePieces(pieces)];
      this.#insert({ graph, before }, piecesField(functionField.node, node));
      return;
    }
    const field = piecesField(graphField.initializer, pieces);
    if (start === undefined) this.edits.appendTo(graph, field);
    else this.edits.before(start, field);
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

  #isFunction(graph: OnnxGraph): boolean {
    return this.graphs.scopeOf(graph).function?.body === graph;
  }

  /** The position behind a node; the start of the graph if undefined. */
  behind(graph: OnnxGraph, node: OnnxNode | undefined): Position {
    return { graph, before: node && this.graphs.nodeBehind(node), behind: node };
  }

  /** Puts nodes at a position. */
  addNodes(position: Position, nodes: readonly NewNode[]): void {
    const field = this.#isFunction(position.graph) ? functionField.node : graphField.node;
    for (const node of nodes) {
      const name = node.name === undefined ? {} : { name: this.#nodeNames.add(node.name) };
      this.#insert(position, nodePieces({ ...node, ...name }, field));
    }
  }

  #insert({ graph, before, behind }: Position, pieces: readonly MessagePiece[]): void {
    const first = before ?? (behind === undefined ? graph.nodes[0] : undefined);
    if (first === undefined) this.edits.appendTo(graph, pieces);
    else this.edits.before(first.start, pieces);
  }

  /** Removes a weight: its initializer with the input of the same name, or its node. */
  remove({ graph, tensor, node, value }: Weight): void {
    this.edits.replace(node?.start ?? tensor.start);
    for (const input of node === undefined ? graph.inputs : []) {
      if (input.name !== value) continue;
      this.edits.replace(input.start);
      this.#hasDropped = true;
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
    const start = this.model.skeleton.fieldsOf({ begin, end }, field)[index]?.start;
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
      return to > from ? this.#newerOpsets.raising(scope, to).rewritten : [];
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
    /** Replaces the first of some fields and removes the others; without fields, appends to their message. */
    const replaceAll = (begin: number, fields: readonly Field[], piece: MessagePiece[]) => {
      for (const [i, { start }] of fields.entries()) this.edits.replace(start, i === 0 ? piece : []);
      if (fields.length === 0) this.edits.append(begin, piece);
    };
    /** True for the import of ai.onnx, whose domain may be empty or absent. */
    const isStandard = ({ begin, end }: Field) =>
      [...skeleton.fields(begin, end)].every((field) => {
        if (field.number !== 1 || field.wire !== 2) return true;
        const name = new TextDecoder().decode(skeleton.bytes(field.begin, field.end));
        return name === '' || name === 'ai.onnx';
      });
    let ir = this.#hasDropped ? 4 : 0;
    for (const scope of this.graphs.scopes) {
      const isMain = scope.function === undefined;
      const [{ begin, end } = { begin: 0, end: 0 }] = isMain ? [{ begin: 0, end: source.size }] : scope.root.messages;
      const field = isMain ? modelField.opsetImport : functionField.opsetImport;
      for (const [domain, version] of this.#opsets.get(scope) ?? []) {
        if (scope.opsets.get(domain) === version) continue;
        const old = domain === '' ? skeleton.fieldsOf({ begin, end }, field).filter(isStandard) : [];
        const name = domain === '' ? [] : textField(1, domain);
        replaceAll(begin, old, piecesField(field, [bytesPiece([...name, ...integerField(2, version)])]));
        if (domain === '' && isMain) ir = Math.max(ir, irVersionFor(version));
      }
    }
    if (ir <= proto.irVersion) return;
    const old = skeleton.fieldsOf({ begin: 0, end: source.size }, modelField.irVersion);
    replaceAll(0, old, [bytesPiece(integerField(modelField.irVersion, ir))]);
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
    const outside = this.#chunks.flatMap(({ segments }) => segments.map(({ tensor }) => tensor));
    const files = [layOutModel(this.model, pieces, tensors, new Set(outside))];
    // There may be no data file: all tensors may be small, or in branches.
    for (const { ending, size, segments } of this.#chunks) files.push({ suffix: dataSuffix + ending, size, segments });
    return { format: 'onnx', files, tensors, notes: [], sidecars: [] };
  }
}
