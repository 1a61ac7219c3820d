/**
 * Writes weights as float16, and a graph that computes in float16, like the usual converters: tensors and values are float16, inputs and outputs
 * of the model stay float32 unless they are caches that were asked for, and nodes that need float32 stand between casts. Inputs and outputs of
 * subgraphs keep their types.
 * Reference: github.com/microsoft/onnxruntime 0c17f27, onnxruntime/python/tools/transformers/float16.py. Tests run onnxruntime-web 1.30.0.
 */

import type { SourceTensor } from '../../format.js';
import type { Half, Keep } from '../decide/decision.js';
import { castOpset } from '../decide/half.js';
import type { HalfNodes } from '../decide/half-nodes.js';
import { plainPlace } from '../file/data.js';
import {
  bytesPiece,
  castNode,
  integerField,
  type NewNode,
  piecesField,
  tensorPieces,
  valueAttributePieces,
} from '../file/encode.js';
import { constantOf } from '../file/model.js';
import { attributeField, type OnnxGraph, type OnnxNode, type OnnxTensor, onnxTypeNumber } from '../file/proto.js';
import { halfForm } from '../forms.js';
import type { Use, Value } from '../graph/graph.js';
import type { Builder } from './builder.js';

const [float, half] = [onnxTypeNumber('F32'), onnxTypeNumber('F16')];

/** A Cast named after its output, with an ending. */
function endedCast(from: string, to: string, type: number): NewNode {
  return { ...castNode(from, to, type), name: `${to}_cast` };
}

/** Lets inputs of nodes read another value. */
function renameUses(builder: Builder, uses: readonly Use[], name: string): void {
  for (const { node, input } of uses) builder.renameInput(node, input, name);
}

/** Sets the recorded types of values. */
export function setTypes(
  { edits, model: { skeleton } }: Builder,
  { values }: Pick<OnnxGraph, 'values'>,
  names: ReadonlySet<string>,
  type: number,
): void {
  for (const { name, start, end } of values) {
    const [outer] = names.has(name) ? skeleton.fields(start, end) : [];
    // ValueInfoProto.type, TypeProto.tensor_type, its elem_type.
    const types = outer === undefined ? [] : skeleton.fieldsOf(outer, 2).flatMap((one) => skeleton.fieldsOf(one, 1));
    for (const field of types.flatMap((one) => skeleton.fieldsOf(one, 1))) {
      edits.replace(field.start, [bytesPiece(integerField(1, type))]);
    }
  }
}

/** Copies a weight, and adds a Cast for nodes in float16. */
export function writeKept(builder: Builder, { weight, reason, halfUses }: Keep): void {
  const { graph, value, node } = weight;
  builder.keep(weight, reason);
  if (halfUses === undefined) return;
  const narrowed = builder.freshValue(`${value}_fp16`);
  renameUses(builder, halfUses, narrowed);
  builder.addNodes(builder.behind(graph, node), [endedCast(value, narrowed, half)]);
}

/** Stores a weight as float16, and adds a Cast for nodes that read float32. */
export function writeHalf(builder: Builder, { weight, inHalfGraph, isCast, halfUses }: Half): void {
  const { graph, value, node } = weight;
  const index = builder.convert(weight, halfForm);
  const stored = isCast ? builder.freshValue(`${value}_fp16`) : value;
  builder.addTensors(weight, [builder.tensorOf(index, 'data', stored)]);
  builder.remove(weight);
  renameUses(builder, halfUses, stored);
  if (!isCast) {
    setTypes(builder, graph, new Set([value]), half);
    return;
  }
  builder.raise(graph, castOpset);
  if (weight.source.dtype !== 'F32') setTypes(builder, graph, new Set([value]), float);
  const output = builder.floatName(weight);
  const cast = castNode(stored, output, float);
  builder.addNodes({ graph, before: node }, [{ ...cast, name: inHalfGraph ? `${output}_cast` : `${value}_Cast` }]);
}

/** A tensor of a node as one of the model's; undefined if its elements are not contiguous. */
function sourceInNode(name: string, { element, shape, bytes, data }: OnnxTensor): SourceTensor | undefined {
  const byteOffset = plainPlace(data);
  return element === undefined || byteOffset === undefined
    ? undefined
    : { name, dtype: element.name, shape, bytes, byteOffset, file: 0 };
}

/** Makes a constant give float16 if possible. Returns true if it does. */
function narrowConstant(builder: Builder, node: OnnxNode, { name, graph }: Value): boolean {
  const { edits, model } = builder;
  const { opType, attributes, begin } = node;
  if (opType === 'ConstantOfShape') {
    const attribute = attributes.get('value');
    if (attribute === undefined) {
      // Fill with zeros of 16 bits.
      const zeros = tensorPieces({ name: '', type: half, shape: [1], data: { bytes: new Uint8Array(2) } });
      edits.append(begin, valueAttributePieces(zeros));
      return true;
    }
    const { tensor, refers } = attribute;
    const source = tensor && sourceInNode(name, tensor);
    if (refers || tensor === undefined || source === undefined) return false;
    const narrowed = builder.tensorOf(builder.convertMore(source, halfForm), 'data', tensor.name);
    edits.replace(tensor.start, piecesField(attributeField.t, tensorPieces(narrowed)));
    return true;
  }
  // Replace a Constant by a tensor: that of its attribute, or its float.
  let source: SourceTensor | undefined;
  const tensor = opType === 'Constant' ? constantOf(node) : undefined;
  const number = attributes.get('value_float');
  if (tensor !== undefined) source = sourceInNode(name, tensor);
  else if (opType === 'Constant' && number !== undefined && !number.refers) {
    const [outer] = model.skeleton.fields(number.start, number.end);
    const field = outer && model.skeleton.fieldsOf(outer, attributeField.f).at(-1);
    if (field) source = { name, dtype: 'F32', shape: [], bytes: 4, byteOffset: field.begin, file: 0 };
  }
  if (source === undefined) return false;
  builder.addConstant(graph, builder.tensorOf(builder.convertMore(source, halfForm), 'data', name));
  builder.removeNode(node);
  return true;
}

/**
 * Gives values of a graph the types that their nodes need. Weights are written separately.
 * @param unneeded nodes that go with the weights that they move
 */
export function writeHalfGraph(builder: Builder, nodes: HalfNodes, unneeded: ReadonlySet<OnnxNode>): void {
  const { graphs } = builder;
  const changed = new Map<OnnxGraph, Set<string>>();
  for (const value of graphs.valuesOf(graphs.main)) {
    const { name, graph, producer, isOutput, weight } = value;
    if (weight !== undefined || !nodes.types.isFloat(value) || (producer && unneeded.has(producer))) continue;
    const { halves, floats } = nodes.readersOf(value);
    // Find the type that it has under its own name. A constant that no node reads as float32 may be narrowed.
    const isCache = nodes.caches.has(value);
    let isHalf = isCache;
    if (producer !== undefined) {
      const isFree = halves.length > 0 && floats.length === 0 && !isOutput && producer.domain === '';
      isHalf = nodes.has(producer)
        ? nodes.types.isResult(producer, producer.outputs.indexOf(name))
        : isFree && narrowConstant(builder, producer, value);
    }
    /** Lets inputs read the value under another name, and adds a Cast between both. */
    const cast = (uses: readonly Use[], other: string, from: string, to: string, type: number) => {
      renameUses(builder, uses, other);
      builder.addNodes(builder.behind(graph, producer), [endedCast(from, to, type)]);
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
    if (isOutput ? isCache : isHalf) changed.set(graph, (changed.get(graph) ?? new Set()).add(name));
  }
  for (const [graph, names] of changed) setTypes(builder, graph, names, half);
  const { root } = graphs.main;
  const caches = new Set([...nodes.caches].map(({ name }) => name));
  setTypes(builder, { values: [...root.inputs, ...root.outputs] }, caches, half);
}
