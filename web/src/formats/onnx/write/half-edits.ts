/** Edits for a float16 graph besides names and nodes: constants inside of nodes, and recorded types. */
import type { Form } from '../../codecs/codec.js';
import type { SourceTensor } from '../../format.js';
import { plainPlace } from '../file/data.js';
import { bytesPiece, integerField, piecesField, tensorPieces, textField } from '../file/encode.js';
import {
  attributeField,
  nodeField,
  type OnnxAttribute,
  type OnnxGraph,
  type OnnxNode,
  type OnnxTensor,
  onnxTypeNumber,
} from '../file/proto.js';
import type { Field, Skeleton } from '../file/wire.js';
import type { Builder } from './builder.js';

/** A tensor of a node as one of the model's; undefined if its elements are not contiguous. */
function sourceOf(name: string, { element, shape, bytes, data }: OnnxTensor): SourceTensor | undefined {
  const byteOffset = plainPlace(data);
  return element === undefined || byteOffset === undefined
    ? undefined
    : { name, dtype: element.name, shape, bytes, byteOffset, file: 0 };
}

/** The float attribute of a constant, as a tensor. */
export function floatTensorOf(skeleton: Skeleton, { attributes }: OnnxNode): OnnxTensor | undefined {
  const attribute = attributes.get('value_float');
  if (attribute === undefined || attribute.refers) return undefined;
  const [outer] = skeleton.fields(attribute.start, attribute.end);
  if (outer === undefined) return undefined;
  const field = [...skeleton.fields(outer.begin, outer.end)].findLast(({ number }) => number === attributeField.f);
  if (field === undefined) return undefined;
  const { start, begin, end } = field;
  const element = { id: onnxTypeNumber('F32'), name: 'F32', bits: 32, field: 4 };
  return {
    start,
    begin,
    end,
    name: '',
    element,
    shape: [],
    bytes: 4,
    data: { kind: 'raw', begin, bytes: 4 },
  };
}

/** Replaces a constant node by a tensor. Returns false if impossible. */
export function replaceConstant(
  builder: Builder,
  graph: OnnxGraph,
  node: OnnxNode,
  tensor: OnnxTensor,
  form: Form,
): boolean {
  const [name = ''] = node.outputs;
  const source = sourceOf(name, tensor);
  if (source === undefined) return false;
  const index = builder.convertMore(source, form);
  builder.addConstant(graph, builder.tensorOf(index, 'data', name));
  builder.removeNode(node);
  return true;
}

/** Converts the tensor of an attribute. */
export function castAttribute(builder: Builder, name: string, { tensor }: OnnxAttribute, form: Form): boolean {
  const source = tensor && sourceOf(name, tensor);
  if (tensor === undefined || source === undefined) return false;
  const index = builder.convertMore(source, form);
  const pieces = tensorPieces(builder.tensorOf(index, 'data', tensor.name));
  builder.edits.replace(tensor.start, piecesField(attributeField.t, pieces));
  return true;
}

/** Makes a ConstantOfShape give zeros of a 16-bit type. */
export function fillWithZeros({ edits }: Builder, { begin }: OnnxNode, type: number): boolean {
  const tensor = tensorPieces({ name: '', type, shape: [1], data: { bytes: new Uint8Array(2) } });
  const attribute = [
    bytesPiece([...textField(attributeField.name, 'value'), ...integerField(attributeField.type, 4)]),
    ...piecesField(attributeField.t, tensor),
  ];
  edits.append(begin, piecesField(nodeField.attribute, attribute));
  return true;
}

/** Sets the recorded types of values. */
export function setTypes(
  { edits, model }: Builder,
  { values }: Pick<OnnxGraph, 'values'>,
  names: ReadonlySet<string>,
  type: number,
): void {
  const { skeleton } = model;
  const inside = (field: Field, number: number) =>
    [...skeleton.fields(field.begin, field.end)].filter((one) => one.number === number);
  for (const { name, start, end } of values) {
    if (!names.has(name)) continue;
    const [outer] = skeleton.fields(start, end);
    if (outer === undefined) continue;
    // ValueInfoProto.type, TypeProto.tensor_type, its elem_type.
    for (const field of inside(outer, 2)
      .flatMap((one) => inside(one, 1))
      .flatMap((one) => inside(one, 1))) {
      edits.replace(field.start, [bytesPiece(integerField(1, type))]);
    }
  }
}
