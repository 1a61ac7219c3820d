/**
 * Writes a graph that computes in float16, like the usual converters: tensors and values are float16, inputs and outputs of the model stay
 * float32 unless they are caches that were asked for, and nodes that need float32 stand between casts. Inputs and outputs of subgraphs keep their types.
 * Reference: github.com/microsoft/onnxruntime 0c17f27, onnxruntime/python/tools/transformers/float16.py. Tests run onnxruntime-web 1.30.0.
 */
import type { HalfNodes } from '../decide/half-nodes.js';
import { castNode, type NewNode } from '../file/encode.js';
import { constantOf } from '../file/model.js';
import { type OnnxGraph, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { halfForm } from '../forms.js';
import type { Use, Value } from '../graph/graph.js';
import type { Builder } from './builder.js';
import { castAttribute, fillWithZeros, floatTensorOf, replaceConstant, setTypes } from './half-edits.js';

const [float, half] = [onnxTypeNumber('F32'), onnxTypeNumber('F16')];

/** A Cast named after its output. */
export function namedCast(from: string, to: string, type: number): NewNode {
  return { ...castNode(from, to, type), name: `${to}_cast` };
}

/** Lets inputs of nodes read another value. */
export function renameUses(builder: Builder, uses: readonly Use[], name: string): void {
  for (const { node, input } of uses) builder.renameInput(node, input, name);
}

/**
 * Gives values of a graph the types that their nodes need. Weights are written separately.
 * @param unneeded nodes that go with the weights that they move
 */
export function writeHalfGraph(builder: Builder, nodes: HalfNodes, unneeded: ReadonlySet<OnnxNode>): void {
  const { graphs } = builder;
  const changed = new Map<OnnxGraph, Set<string>>();
  for (const value of graphs.valuesOf(graphs.main)) {
    const isPlain = value.weight === undefined && nodes.types.isFloat(value);
    if (value.producer !== undefined && unneeded.has(value.producer)) continue;
    if (!isPlain || !convert(builder, nodes, value)) continue;
    const names = changed.get(value.graph) ?? new Set();
    changed.set(value.graph, names.add(value.name));
  }
  for (const [graph, names] of changed) setTypes(builder, graph, names, half);
  const { root } = graphs.main;
  const caches = new Set([...nodes.caches].map(({ name }) => name));
  setTypes(builder, { values: [...root.inputs, ...root.outputs] }, caches, half);
}

/** Gives each reader a value in the type it needs. Returns true if the value is float16 under its own name. */
function convert(builder: Builder, nodes: HalfNodes, value: Value): boolean {
  const { name, graph, producer, isOutput } = value;
  const { halves, floats } = nodes.readersOf(value);
  const isFree = halves.length > 0 && floats.length === 0 && !isOutput;
  const isCache = nodes.caches.has(value);
  const isHalf = producer === undefined ? isCache : gives(builder, nodes, producer, value, isFree);
  /** Lets inputs read the value under another name, and adds a Cast between both. */
  const cast = (uses: readonly Use[], other: string, from: string, to: string, type: number) => {
    renameUses(builder, uses, other);
    builder.addNodes(builder.behind(graph, producer), [namedCast(from, to, type)]);
  };
  if (producer !== undefined && isOutput && isHalf !== isCache) {
    // The output has the other type.
    const inside = builder.freshValue(`${name}_${isHalf ? 'fp16' : 'fp32'}`);
    builder.renameOutput(producer, name, inside);
    cast(isHalf ? halves : floats, inside, inside, name, isCache ? half : float);
  } else if (isHalf && floats.length > 0) {
    const restored = builder.freshValue(`${name}_fp32`);
    cast(floats, restored, name, restored, float);
  } else if (!isHalf && halves.length > 0) {
    const narrowed = builder.freshValue(`${name}_fp16`);
    cast(halves, narrowed, name, narrowed, half);
  }
  return isOutput ? isCache : isHalf;
}

/** Makes a node give a value as float16 if possible. @param isFree true if no node needs the value as float32 */
function gives(builder: Builder, nodes: HalfNodes, producer: OnnxNode, value: Value, isFree: boolean): boolean {
  const { opType, domain, attributes, outputs } = producer;
  if (nodes.has(producer)) return nodes.types.isResult(producer, outputs.indexOf(value.name));
  if (domain !== '' || !isFree) return false;
  if (opType === 'ConstantOfShape') {
    const attribute = attributes.get('value');
    if (attribute === undefined) return fillWithZeros(builder, producer, half);
    return !attribute.refers && castAttribute(builder, value.name, attribute, halfForm);
  }
  if (opType !== 'Constant') return false;
  const tensor = constantOf(producer) ?? floatTensorOf(builder.model.skeleton, producer);
  return tensor !== undefined && replaceConstant(builder, value.graph, producer, tensor, halfForm);
}
