/**
 * Writes QuantizeLinear and DequantizeLinear around products, and biases as int32.
 * Reference: github.com/microsoft/onnxruntime 1.20, onnxruntime/python/tools/quantization/qdq_quantizer.py. Tests run onnxruntime-web 1.30.0.
 */
import { type ActivationCodes, quantizeOpset, type StaticDecision, staticBias } from '../decide/static.js';
import { type NewNode, nodeFor } from '../file/encode.js';
import type { Weight } from '../file/model.js';
import { contrib, type OnnxGraph, onnxTypeNumber } from '../file/proto.js';
import type { Builder, Position } from './builder.js';
import type { WrittenCodes } from './restored.js';

/** First version of ai.onnx with a scale for each channel, and all operators that make biases. */
const biasOpset = 13;

/** The largest float32 below 2^31. */
const mostBias = 2147483520;

/** Writes the activations of all products. */
export function writeStatic(
  builder: Builder,
  decisions: readonly StaticDecision[],
  written: ReadonlyMap<Weight, WrittenCodes>,
): void {
  const { graphs } = builder;
  /** Restored values by the names of those that were quantized. */
  const restored = new Map<string, { readonly name: string; readonly scale: string }>();

  /** Adds a pair of nodes, which quantizes a value and restores it under another name. */
  const addPair = (graph: OnnxGraph, position: Position, from: string, to: string, codes: ActivationCodes) => {
    builder.raise(graph, quantizeOpset);
    const scale = builder.addFloat(graph, `${to}_scale`, codes.scale);
    const [zeroPoint, quantized] = [builder.freshValue(`${to}_zero_point`), builder.freshValue(`${to}_quantized`)];
    const data = { bytes: Uint8Array.of(codes.zeroPoint) };
    builder.addConstant(graph, { name: zeroPoint, type: onnxTypeNumber('U8'), shape: [], data });
    builder.addNodes(position, [
      { ...nodeFor(quantized, 'QuantizeLinear', [from, scale, zeroPoint]), name: `${to}_QuantizeLinear` },
      { ...nodeFor(to, 'DequantizeLinear', [quantized, scale, zeroPoint]), name: `${to}_DequantizeLinear` },
    ]);
    return scale;
  };

  // Quantize outputs first: their restored values have their names, so that inputs that are such outputs are done.
  const outputs = new Set<string>();
  for (const { product, output, isClamped } of decisions) {
    if (output === undefined || outputs.has(product.output)) continue;
    outputs.add(product.output);
    const { graph, node } = product;
    const raw = builder.freshValue(`${product.output}_float`);
    // Leave out a Clip that the codes make superfluous: onnxruntime (1.30) cannot load a Conv with some of them.
    const last = isClamped ? node : product.last;
    if (isClamped) builder.removeNode(product.last);
    builder.renameOutput(last, last.outputs[0] ?? '', raw);
    const scale = addPair(graph, builder.behind(graph, last), raw, product.output, output);
    restored.set(product.output, { name: product.output, scale });
  }
  // Quantize inputs, each once.
  for (const { product, input, output, dequantizer } of decisions) {
    if (input === undefined || output === undefined) continue;
    const { node, graph, input: name } = product;
    let made = restored.get(name);
    if (made === undefined) {
      const to = builder.freshValue(`${name}_restored`);
      const position = builder.behind(graph, graphs.valueAt(graph, name)?.producer);
      made = { name: to, scale: addPair(graph, position, name, to, input) };
      restored.set(name, made);
    }
    if (made.name !== name) builder.renameInput(node, 0, made.name);
    // Store a bias as int32 with the product of the scales of input and weight, as products of integers need it. The scales of weights are
    // found while codes are written, so that nodes round the bias; runtimes fold them when they load the model.
    const codes = written.get(product.weight);
    const bias = codes && staticBias(graphs, product, codes.form)?.value;
    if (bias === undefined || codes === undefined || dequantizer.domain === contrib) continue;
    builder.raise(graph, biasOpset);
    const least = builder.addFloat(graph, `${bias}_least`, -mostBias);
    const most = builder.addFloat(graph, `${bias}_most`, mostBias);
    const nodes: NewNode[] = [];
    const add = (what: string, opType: string, inputs: readonly string[], attributes?: NewNode['attributes']) => {
      const name = builder.freshValue(`${bias}_${what}`);
      nodes.push(nodeFor(name, opType, inputs, attributes));
      return name;
    };
    const scale = add('scale', 'Mul', [made.scale, codes.names.scale]);
    const ratio = add('ratio', 'Div', [bias, scale]);
    const limited = add('limited', 'Clip', [add('rounded', 'Round', [ratio]), least, most]);
    const quantized = add('quantized', 'Cast', [limited], { to: onnxTypeNumber('I32') });
    const axis = codes.form.axis === undefined ? {} : { axis: 0 };
    const floats = add('restored', 'DequantizeLinear', [quantized, scale], axis);
    builder.addNodes({ graph, before: node }, nodes);
    builder.renameInput(node, 2, floats);
  }
}
