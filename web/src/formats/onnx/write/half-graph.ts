/**
 * A graph that computes with float16, as the usual converters make it: tensors and values are float16, inputs and outputs of the model stay
 * float32, and nodes that need float32 stand between casts. Graphs inside of others take and give what they did.
 * Reference: microsoft/onnxruntime, onnxruntime/python/tools/transformers/float16.py
 */

import type { NewNode } from '../file/encode.js';
import { constantOf, type Weight } from '../file/model.js';
import { type OnnxGraph, type OnnxNode, typeNumber } from '../file/proto.js';
import type { Use, Value } from '../graph/graph.js';
import { batchesMoved } from '../graph/moved.js';
import { computedFromIntegers, spreads } from '../graph/precise.js';
import { fewestElements } from '../graph/readers.js';
import { Types } from '../graph/types.js';
import type { Builder } from './builder.js';
import { halfForm, scaled } from './half.js';
import { castAttribute, fillWithZeros, floatOf, replaceConstant, setTypes } from './half-edits.js';

const [float, half] = [typeNumber('F32'), typeNumber('F16')];

/** What becomes of the graph of a model. */
export class HalfGraph {
  readonly #builder: Builder;
  readonly #types: Types;
  /** Nodes that compute with float16. */
  readonly #halves = new Set<OnnxNode>();
  readonly #next = new Map<OnnxNode, OnnxNode | undefined>();
  /** Nodes that stay in float32 though they compute with floats, by the type of operator. */
  readonly #kept = new Map<string, number>();
  /** Values that are float16 under their own names. */
  readonly #changed = new Map<OnnxGraph, Set<string>>();

  /** @param floats nodes that shall compute with float32 */
  constructor(builder: Builder, floats: ReadonlySet<OnnxNode>) {
    const { graphs } = builder;
    this.#builder = builder;
    const [main] = graphs.scopes;
    if (main === undefined) throw new Error('a model has no main graph');
    this.#types = new Types(graphs, main);
    const nodes = graphs.nodes.filter(({ graph }) => graphs.scopeOf(graph) === main);
    const precise = new Set([
      ...floats,
      ...computedFromIntegers(graphs, nodes, this.#types),
      ...spreads(graphs, nodes, this.#types),
      ...batchesMoved(graphs, nodes),
    ]);
    for (const { node, graph } of nodes) {
      if (this.#types.arithmetic(node, graph) === 'half' && !precise.has(node)) this.#halves.add(node);
      else if (
        node.inputs.some((_, i) => this.#wants({ node, graph, input: i }) === 'float' && this.#isFloat(node, graph, i))
      ) {
        this.#kept.set(node.opType, (this.#kept.get(node.opType) ?? 0) + 1);
      }
    }
    for (const graph of new Set(nodes.map((one) => one.graph))) {
      for (const [i, node] of graph.nodes.entries()) this.#next.set(node, graph.nodes[i + 1]);
    }
    for (const value of graphs.valuesOf(main)) if (this.#types.isFloat(value)) this.#convert(value);
    for (const [graph, names] of this.#changed) setTypes(builder, graph, names, half);
  }

  /** Whether a node computes with float16. */
  has(node: OnnxNode): boolean {
    return this.#halves.has(node);
  }

  #isFloat({ inputs }: OnnxNode, graph: OnnxGraph, input: number): boolean {
    return this.#types.isFloat(this.#builder.graphs.valueAt(graph, inputs[input] ?? ''));
  }

  #wants({ node, graph, input }: Use): 'half' | 'any' | 'float' {
    if (this.#halves.has(node)) return this.#types.changes(node, input) ? 'half' : 'float';
    return this.#types.arithmetic(node, graph) === 'any' ? 'any' : 'float';
  }

  /** Who reads a value as what. */
  #readers(value: Value): { halves: readonly Use[]; floats: readonly Use[] } {
    const halves = value.uses.filter((use) => this.#wants(use) === 'half');
    return { halves, floats: value.uses.filter((use) => this.#wants(use) === 'float') };
  }

  #cast(from: string, to: string, type: number): NewNode {
    return { opType: 'Cast', name: `${to}_cast`, inputs: [from], outputs: [to], attributes: { to: type } };
  }

  #rename(uses: readonly Use[], name: string): void {
    for (const { node, input } of uses) this.#builder.renameInput(node, input, name);
  }

  #change({ graph, name }: Value): void {
    const names = this.#changed.get(graph) ?? new Set();
    this.#changed.set(graph, names.add(name));
  }

  /** Gives a value that is no weight to all in the type that they want. */
  #convert(value: Value): void {
    const { name, graph, producer, weight, isOutput } = value;
    if (weight !== undefined) return;
    const { halves, floats } = this.#readers(value);
    const { graphs } = this.#builder;
    const behind =
      producer === undefined
        ? { graph, before: undefined }
        : { graph, behind: producer, before: this.#next.get(producer) };
    const isHalf =
      producer !== undefined && this.#gives(producer, value, halves.length > 0 && floats.length === 0 && !isOutput);
    if (isHalf && isOutput) {
      const changed = graphs.freshValue(`${name}_fp16`);
      this.#builder.renameOutput(producer as OnnxNode, name, changed);
      this.#rename(halves, changed);
      this.#builder.addNodes(behind, [this.#cast(changed, name, float)]);
    } else if (isHalf) {
      this.#change(value);
      if (floats.length === 0) return;
      const restored = graphs.freshValue(`${name}_fp32`);
      this.#rename(floats, restored);
      this.#builder.addNodes(behind, [this.#cast(name, restored, float)]);
    } else if (halves.length > 0) {
      const changed = graphs.freshValue(`${name}_fp16`);
      this.#rename(halves, changed);
      this.#builder.addNodes(behind, [this.#cast(name, changed, half)]);
    }
  }

  /** Whether a node gives a value as float16. @param isFree whether nobody needs it as float32 */
  #gives(producer: OnnxNode, value: Value, isFree: boolean): boolean {
    if (this.#halves.has(producer)) return this.#types.isResult(producer, producer.outputs.indexOf(value.name));
    if (producer.domain !== '' || !isFree) return false;
    if (producer.opType === 'ConstantOfShape') return this.#fill(producer, value);
    if (producer.opType !== 'Constant') return false;
    const tensor = constantOf(producer) ?? floatOf(this.#builder.model.skeleton, producer);
    return tensor !== undefined && replaceConstant(this.#builder, value.graph, producer, tensor, halfForm);
  }

  /** Makes a ConstantOfShape give float16. */
  #fill(producer: OnnxNode, { name }: Value): boolean {
    const attribute = producer.attributes.get('value');
    if (attribute === undefined) return fillWithZeros(this.#builder, producer, half);
    return !attribute.refers && castAttribute(this.#builder, name, attribute, halfForm);
  }

  /** Stores a weight. Returns why not, if it stays as it is. */
  store(weight: Weight): string | undefined {
    const builder = this.#builder;
    const { graph, value: name, node } = weight;
    const value = builder.graphs.valueAt(graph, name);
    if (value === undefined) return 'not read';
    const { halves, floats } = this.#readers(value);
    const needsFloats = floats.length > 0 || value.isOutput;
    const elements = weight.source.bytes / 4;
    const [first] = floats;
    if (value.uses.length === 0 && !value.isOutput) return 'not read';
    if (halves.length === 0 && first !== undefined && floats.every((use) => scaled.includes(use.node.opType))) {
      return `scales of ${first.node.opType}`;
    }
    if (needsFloats && elements < fewestElements) {
      if (halves.length === 0) return value.isOutput ? 'an output' : `read by ${first?.node.opType}`;
      const changed = builder.graphs.freshValue(`${name}_fp16`);
      this.#rename(halves, changed);
      builder.addNodes({ graph, before: node && this.#next.get(node), behind: node }, [
        this.#cast(name, changed, half),
      ]);
      return value.isOutput ? 'also an output' : `also read by ${first?.node.opType}`;
    }
    const index = builder.convert(weight, halfForm);
    const changed = needsFloats ? builder.graphs.freshValue(`${name}_fp16`) : name;
    builder.addTensors(weight, [builder.tensorOf(index, 'data', changed)]);
    builder.remove(weight);
    if (needsFloats) {
      this.#rename(halves, changed);
      builder.addNodes({ graph, before: node }, [this.#cast(changed, builder.floatName(weight), float)]);
    } else setTypes(builder, graph, new Set([name]), half);
    return undefined;
  }

  /** What stays in float32. */
  notes(): string[] {
    const kinds = [...this.#kept].sort(([, a], [, b]) => b - a);
    if (kinds.length === 0) return [];
    const list = kinds.slice(0, 6).map(([opType, n]) => `${n} ${opType}`);
    const more = kinds.length > list.length ? ', and others' : '';
    const sum = kinds.reduce((all, [, n]) => all + n, 0);
    return [
      `${sum} ${sum === 1 ? 'node computes' : 'nodes compute'} with float32 between casts: ${list.join(', ')}${more}`,
    ];
  }
}
