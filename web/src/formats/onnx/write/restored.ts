/** Writes codes, and nodes that restore their floats. */
import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { Dequantizer, Restored } from '../decide/decision.js';
import { broadcastOpset } from '../decide/restored.js';
import { castNode, type NewNode, nodeFor } from '../file/encode.js';
import type { Weight } from '../file/model.js';
import { intOf, onnxTypeNumber } from '../file/proto.js';
import type { Builder } from './builder.js';
import { setTypes } from './half.js';

/** Names of codes, scales and zero points. */
export interface CodeNames {
  readonly codes: string;
  readonly scale: string;
  readonly zeroPoint: string | undefined;
}

/** Codes of a weight that are stored. */
export interface WrittenCodes {
  readonly form: DequantizeLinearForm;
  readonly names: CodeNames;
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
  builder.addTensors(weight, [
    builder.tensorOf(index, 'scale', names.scale, setShape),
    ...(names.zeroPoint === undefined ? [] : [builder.tensorOf(index, 'zeroPoint', names.zeroPoint, setShape)]),
    builder.tensorOf(index, 'data', names.codes),
  ]);
  builder.remove(weight);
  return names;
}

/** Sets the recorded type of a weight to that of its restored floats. */
function recordFloats(builder: Builder, { graph, value, source }: Weight, type: 'F32' | 'F16'): void {
  if (source.dtype !== type) setTypes(builder, graph, new Set([value]), onnxTypeNumber(type));
}

/** Adds the node that restores floats, under the name of the weight. */
export function addDequantize(
  builder: Builder,
  weight: Weight,
  { form: { axis, blockSize, scale: type }, names: { codes, scale, zeroPoint } }: WrittenCodes,
  { domain, opset }: Dequantizer,
): void {
  const { graphs } = builder;
  const { graph, value, node: before } = weight;
  if (domain === '') builder.raise(graph, opset);
  else builder.importContrib(graph);
  // Make the permutations of Transposes behind a DequantizeLinear explicit.
  for (const { path, graph: inside } of graphs.readers(weight)) {
    let rank: number | undefined = weight.source.shape.length;
    for (const node of path) {
      const { opType, domain: of, inputs, attributes } = node;
      // Skip functions, which may be called with other ranks.
      if (rank === undefined || of !== '') break;
      builder.spellOut(node, rank);
      // Find the rank behind it by the attribute or constant that lists dimensions.
      const { weight: list, producer } = graphs.valueAt(inside, inputs[1] ?? '') ?? {};
      const constant = list?.source ?? producer?.attributes.get('value')?.tensor;
      const listed = attributes.get(opType === 'Reshape' ? 'shape' : 'axes')?.ints?.length ?? constant?.shape[0];
      if (opType === 'Flatten') rank = 2;
      else if (opType === 'Reshape') rank = listed;
      else if (opType === 'Squeeze') rank = listed && rank - listed;
      else if (opType === 'Unsqueeze') rank = listed && rank + listed;
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
  builder.addNodes({ graph, before }, [dequantize]);
}

/** Writes a weight as codes that are restored to floats. Returns their names if a DequantizeLinear restores them. */
export function writeRestored(builder: Builder, { weight, form, by }: Restored): CodeNames | undefined {
  const { value, graph, source } = weight;
  if (by.kind === 'dequantize') {
    const names = storeCodes(builder, weight, form);
    addDequantize(builder, weight, { form, names }, by);
    return names;
  }
  // Give scales extra dimensions: those of a table are gathered with its rows, others are multiplied by the codes.
  const broadcast = form.axis === undefined ? [] : source.shape.map((n, i) => (i === form.axis ? n : 1));
  const names = storeCodes(builder, weight, form, broadcast);
  const cast = (from: string, to: string) => castNode(from, to, onnxTypeNumber(form.scale));
  /** Nodes that compute (codes - zero point) * scale, of parts as `taken` gives them. Returns both factors. */
  const restore = (base: string, nodes: NewNode[], taken: (name: string, what: string) => string): [string, string] => {
    const fresh = (what: string) => builder.freshValue(`${base}_${what}`);
    const codes = taken(names.codes, 'codes');
    const scale = taken(names.scale, 'scale');
    let floats = fresh('floats');
    nodes.push(cast(codes, floats));
    if (names.zeroPoint !== undefined) {
      const zero = taken(names.zeroPoint, 'zero');
      const [zeroFloat, centered] = [fresh('zero_float'), fresh('centered')];
      nodes.push(cast(zero, zeroFloat), nodeFor(centered, 'Sub', [floats, zeroFloat]));
      floats = centered;
    }
    return [floats, scale];
  };
  if (by.kind === 'cast') {
    // onnxruntime folds these nodes when it loads the model.
    builder.raise(graph, broadcastOpset);
    const nodes: NewNode[] = [];
    const factors = restore(value, nodes, (name) => name);
    recordFloats(builder, weight, form.scale);
    nodes.push({ ...nodeFor(builder.floatName(weight), 'Mul', factors), name: `${value}_Mul` });
    builder.addNodes({ graph, before: weight.node }, nodes);
    return undefined;
  }
  // Gather codes and scales in place of floats, because a DequantizeLinear in front would restore the whole table at every run.
  for (const { node, graph: inside } of by.readers) {
    const [, indices = ''] = node.inputs;
    const [output = ''] = node.outputs;
    const axis = intOf(node, 'axis', 0);
    const nodes: NewNode[] = [];
    const factors = restore(output, nodes, (name, what) => {
      const rows = builder.freshValue(`${output}_${what}`);
      // A scalar needs no look-up.
      if (what !== 'codes' && form.axis === undefined) return name;
      nodes.push(nodeFor(rows, 'Gather', [name, indices], { axis }));
      return rows;
    });
    builder.addNodes({ graph: inside, before: node }, [...nodes, nodeFor(output, 'Mul', factors)]);
    builder.removeNode(node);
  }
  return undefined;
}
