/** Writes codes, and nodes that restore their floats. */
import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { Dequantizer, Restored } from '../decide/decision.js';
import { broadcastOpset } from '../decide/restored.js';
import { castNode, type NewNode, type NewTensor } from '../file/encode.js';
import type { Weight } from '../file/model.js';
import { intOf, type OnnxGraph, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import type { ReadingNode } from '../graph/graph.js';
import type { Builder } from './builder.js';
import { setTypes } from './half-edits.js';

/** Writes a weight as codes that are restored to floats. Returns their names if a DequantizeLinear restores them. */
export function writeRestored(builder: Builder, { weight, form, by }: Restored): CodeNames | undefined {
  const { shape } = weight.source;
  if (by.kind === 'dequantize') {
    const names = storeCodes(builder, weight, form);
    addDequantize(builder, weight, form, names, by);
    return names;
  }
  // Give scales extra dimensions: those of a table are gathered with its rows, others are multiplied by the codes.
  const broadcast = form.axis === undefined ? [] : shape.map((n, i) => (i === form.axis ? n : 1));
  const names = storeCodes(builder, weight, form, broadcast);
  if (by.kind === 'cast') addCast(builder, weight, form, names);
  else for (const reader of by.readers) gatherCodes(builder, reader, form, names);
  return undefined;
}

/** Names of codes, scales and zero points. */
export interface CodeNames {
  readonly codes: string;
  readonly scale: string;
  readonly zeroPoint: string | undefined;
}

/** Replaces a weight by codes, scales and zero points. */
export function storeCodes(
  builder: Builder,
  weight: Weight,
  form: DequantizeLinearForm,
  setShape?: readonly number[],
): CodeNames {
  const { value } = weight;
  const index = builder.convert(weight, form);
  const names = {
    codes: builder.freshValue(`${value}_quantized`),
    scale: builder.freshValue(`${value}_scale`),
    zeroPoint: form.zeroPoint ? builder.freshValue(`${value}_zero_point`) : undefined,
  };
  const tensors: NewTensor[] = [
    builder.tensorOf(index, 'scale', names.scale, setShape),
    ...(names.zeroPoint === undefined ? [] : [builder.tensorOf(index, 'zeroPoint', names.zeroPoint, setShape)]),
    builder.tensorOf(index, 'data', names.codes),
  ];
  builder.addTensors(weight, tensors);
  builder.remove(weight);
  return names;
}

/** Rank of the output of a node that moves a tensor's elements; undefined if unknown. */
function rankBehind({ graphs }: Builder, graph: OnnxGraph, node: OnnxNode, rank: number): number | undefined {
  const { opType, inputs, attributes } = node;
  /** Number of integers in the attribute or constant that lists dimensions. */
  const listed = (attribute: string): number | undefined => {
    const { weight, producer } = graphs.valueAt(graph, inputs[1] ?? '') ?? {};
    const constant = weight?.source ?? producer?.attributes.get('value')?.tensor;
    return attributes.get(attribute)?.ints?.length ?? constant?.shape[0];
  };
  if (opType === 'Flatten') return 2;
  if (opType === 'Reshape') return listed('shape');
  if (opType !== 'Squeeze' && opType !== 'Unsqueeze') return rank;
  const axes = listed('axes');
  return axes && rank + (opType === 'Squeeze' ? -axes : axes);
}

/** Sets the recorded type of a weight to that of its restored floats. */
function recordFloats(builder: Builder, { graph, value, source }: Weight, type: 'F32' | 'F16'): void {
  if (source.dtype !== type) setTypes(builder, graph, new Set([value]), onnxTypeNumber(type));
}

/** Adds the node that restores floats, under the name of the weight. */
export function addDequantize(
  builder: Builder,
  weight: Weight,
  { axis, blockSize, scale: type }: DequantizeLinearForm,
  { codes, scale, zeroPoint }: CodeNames,
  { domain, opset }: Dequantizer,
): void {
  const { graph, value, node } = weight;
  if (domain === '') builder.raise(graph, opset);
  else builder.importContrib(graph);
  // Make the permutations of Transposes behind a DequantizeLinear explicit.
  for (const { path, graph: inside } of builder.graphs.readers(weight)) {
    let rank: number | undefined = weight.source.shape.length;
    for (const node of path) {
      // Skip functions, which may be called with other ranks.
      if (rank === undefined || node.domain !== '') break;
      builder.spellOut(node, rank);
      rank = rankBehind(builder, inside, node, rank);
    }
  }
  recordFloats(builder, weight, type);
  const dequantize: NewNode = {
    opType: 'DequantizeLinear',
    domain,
    name: `${value}_DequantizeLinear`,
    inputs: [codes, scale, ...(zeroPoint === undefined ? [] : [zeroPoint])],
    outputs: [builder.floatName(weight)],
    attributes: {
      ...(axis === undefined ? {} : { axis }),
      ...(blockSize === undefined ? {} : { block_size: blockSize }),
    },
  };
  builder.addNodes({ graph, before: node }, [dequantize]);
}

/** Adds nodes that restore floats and that onnxruntime folds when it loads the model. */
function addCast(
  builder: Builder,
  weight: Weight,
  { scale: type }: DequantizeLinearForm,
  { codes, scale, zeroPoint }: CodeNames,
): void {
  const { graph, value, node } = weight;
  builder.raise(graph, broadcastOpset);
  const fresh = (what: string) => builder.freshValue(`${value}_${what}`);
  const cast = (from: string, to: string) => castNode(from, to, onnxTypeNumber(type));
  const floats = fresh('floats');
  const nodes = [cast(codes, floats)];
  let centered = floats;
  if (zeroPoint !== undefined) {
    const zero = fresh('zero_float');
    centered = fresh('centered');
    nodes.push(cast(zeroPoint, zero), { opType: 'Sub', name: centered, inputs: [floats, zero], outputs: [centered] });
  }
  recordFloats(builder, weight, type);
  const output = builder.floatName(weight);
  nodes.push({ opType: 'Mul', name: `${value}_Mul`, inputs: [centered, scale], outputs: [output] });
  builder.addNodes({ graph, before: node }, nodes);
}

/** Gathers codes and scales in place of floats, because a DequantizeLinear in front would restore the whole table at every run. */
function gatherCodes(
  builder: Builder,
  { node, graph }: ReadingNode,
  { scale: type, axis: channels }: DequantizeLinearForm,
  names: CodeNames,
): void {
  const [, indices = ''] = node.inputs;
  const [output = ''] = node.outputs;
  const fresh = (what: string) => builder.freshValue(`${output}_${what}`);
  const position = { graph, before: node };
  const axis = intOf(node, 'axis', 0);
  const gather = (from: string, to: string): NewNode => {
    return { opType: 'Gather', name: to, inputs: [from, indices], outputs: [to], attributes: { axis } };
  };
  const cast = (from: string, to: string) => castNode(from, to, onnxTypeNumber(type));
  const two = (opType: string, a: string, b: string, to: string): NewNode => {
    return { opType, name: to, inputs: [a, b], outputs: [to] };
  };
  const nodes: NewNode[] = [];
  /** Gathers rows of a tensor; returns the tensor itself if it is a scalar. */
  const rows = (from: string, to: string): string => {
    if (channels === undefined) return from;
    nodes.push(gather(from, to));
    return to;
  };
  const [codes, floats] = [fresh('codes'), fresh('floats')];
  nodes.push(gather(names.codes, codes));
  const scale = rows(names.scale, fresh('scale'));
  nodes.push(cast(codes, floats));
  let centered = floats;
  if (names.zeroPoint !== undefined) {
    const zero = rows(names.zeroPoint, fresh('zero'));
    const zeroFloat = fresh('zero_float');
    centered = fresh('centered');
    nodes.push(cast(zero, zeroFloat), two('Sub', floats, zeroFloat, centered));
  }
  builder.addNodes(position, [...nodes, two('Mul', centered, scale, output)]);
  builder.removeNode(node);
}
