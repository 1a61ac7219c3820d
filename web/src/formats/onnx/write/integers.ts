/**
 * Writes 8-bit integers that are multiplied directly: activations are quantized while the model runs, weights now. The pattern of operators
 * is that of onnxruntime's quantize_dynamic, which onnxruntime recognizes and fuses.
 * Reference: github.com/microsoft/onnxruntime 103f80c, onnxruntime/python/tools/quantization/operators. Tests run onnxruntime-web 1.30.0.
 */
import type { Integers } from '../decide/decision.js';
import { integerOpset } from '../decide/integers.js';
import { attributePiecesOf, castNode, type NewNode, nodeFor } from '../file/encode.js';
import { intOf, type OnnxGraph, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { swaps } from '../graph/products.js';
import type { Builder } from './builder.js';
import { addDequantize, type CodeNames, storeCodes } from './restored.js';

/** A quantized activation. */
type Activation = CodeNames & { readonly zeroPoint: string };

/** Writes weights of the targets for integers, whose nodes share quantized activations. */
export class IntegerWriter {
  readonly #builder: Builder;
  readonly #activations = new Map<OnnxGraph, Map<string, Activation>>();

  constructor(builder: Builder) {
    this.#builder = builder;
  }

  /** Writes a weight as codes, and replaces its readers by nodes that compute with them. */
  write({ weight, form, readers, unneeded, dequantizer }: Integers): void {
    const builder = this.#builder;
    const { shape } = weight.source;
    builder.raise(weight.graph, integerOpset);
    builder.removeNodes(unneeded);
    const names = storeCodes(builder, weight, form);
    if (dequantizer !== undefined) addDequantize(builder, weight, { form, names }, dequantizer);
    for (const { reader, operation } of readers) {
      const { node, graph, path } = reader;
      const [, second = '', third = '', mask = '', past = ''] = node.inputs;
      const [output = ''] = node.outputs;
      const name = `${node.name || output}_quant`;
      const position = { graph, before: node };
      const nodes: NewNode[] = [];
      if (operation === 'lookup') {
        // Gather rows of codes, and restore them to floats.
        const gathered = builder.freshValue(`${output}_quantized`);
        const copied = attributePiecesOf(node);
        const inputs = [gathered, names.scale, ...(names.zeroPoint === undefined ? [] : [names.zeroPoint])];
        nodes.push({ opType: 'Gather', name, inputs: [names.codes, second], outputs: [gathered], copied });
        nodes.push({ ...nodeFor(output, 'DequantizeLinear', inputs), name: `${output}_DequantizeLinear` });
      } else if (operation === 'convolution') {
        const x = this.#quantize(node, graph);
        const sum = third === '' ? output : builder.freshValue(`${output}_quant_scaled_output`);
        const product = builder.freshValue(`${output}_output_quantized`);
        const copied = attributePiecesOf(node);
        const reshape = (from: string, to: string): NewNode => {
          const channels = builder.addIntegers(graph, `${to}_shape`, [1, -1, ...shape.slice(2).map(() => 1)]);
          return nodeFor(to, 'Reshape', [from, channels]);
        };
        let { scale } = names;
        if (form.axis !== undefined) {
          scale = builder.freshValue(`${names.scale}_channels`);
          nodes.push(reshape(names.scale, scale));
        }
        // Convolutions take a single zero point, and codes with several scales are symmetric.
        const zeroPoint = form.axis === undefined ? names.zeroPoint : undefined;
        const inputs = [x.codes, names.codes, x.zeroPoint, ...this.#zeroPoints(graph, names.codes, zeroPoint, form)];
        nodes.push({ opType: 'ConvInteger', name, inputs, outputs: [product], copied });
        nodes.push(...this.#rescale(node, product, [x.scale, scale], sum));
        if (third !== '') {
          const reshaped = builder.freshValue(`${output}_bias_reshape_output`);
          nodes.push(reshape(third, reshaped));
          nodes.push({ ...nodeFor(output, 'Add', [sum, reshaped]), name: `${output}_bias_add` });
        }
      } else if (operation === 'attention') {
        // Multiply codes of activations and of the projections.
        const [zeroPoint = ''] = this.#zeroPoints(graph, names.codes, names.zeroPoint, form);
        const x = this.#quantize(node, graph);
        const copied = attributePiecesOf(node);
        const inputs = [x.codes, names.codes, third, x.scale, names.scale, mask, x.zeroPoint, zeroPoint, past];
        nodes.push({ opType: 'QAttention', domain: node.domain, name, inputs, outputs: node.outputs, copied });
      } else {
        // MatMul and Gemm.
        const zeroPoints = this.#zeroPoints(graph, names.codes, names.zeroPoint, form);
        const x = this.#quantize(node, graph);
        const isTransposed = node.opType === 'Gemm' && intOf(node, 'transB', 0) !== 0;
        let matrix = names.codes;
        if (shape.length === 2 && swaps(path) !== isTransposed) {
          // The optimizer folds this node when it loads the model.
          matrix = builder.freshValue(`${names.codes}_transposed`);
          nodes.push(nodeFor(matrix, 'Transpose', [names.codes], { perm: [1, 0] }));
        }
        const product = builder.freshValue(`${output}_output_quantized`);
        const c = node.opType === 'Gemm' ? third : '';
        const sum = c === '' ? output : builder.freshValue(`${output}_MatMul`);
        const inputs = [x.codes, matrix, x.zeroPoint, ...zeroPoints];
        nodes.push({ opType: 'MatMulInteger', name, inputs, outputs: [product] });
        nodes.push(...this.#rescale(node, product, [x.scale, names.scale], sum));
        if (c !== '') nodes.push({ ...nodeFor(output, 'Add', [sum, c]), name: `${node.name || output}_Add` });
      }
      builder.addNodes(position, nodes);
      builder.removeNode(node);
    }
  }

  /** Quantizes the first input of a node. */
  #quantize(node: OnnxNode, graph: OnnxGraph): Activation {
    const builder = this.#builder;
    const [name = ''] = node.inputs;
    const known = this.#activations.get(graph) ?? new Map<string, Activation>();
    this.#activations.set(graph, known);
    const there = known.get(name);
    if (there !== undefined) return there;
    const codes = builder.freshValue(`${name}_quantized`);
    const scale = builder.freshValue(`${name}_scale`);
    const zeroPoint = builder.freshValue(`${name}_zero_point`);
    known.set(name, { codes, scale, zeroPoint });
    // Place it before its first reader. Nodes of a graph are in order in the file.
    const readers = builder.graphs.uses(graph, name).filter((use) => use.graph === graph);
    const first = readers.reduce((least, use) => (use.node.start < least.start ? use.node : least), node);
    const outputs = [codes, scale, zeroPoint];
    builder.addNodes({ graph, before: first }, [
      { opType: 'DynamicQuantizeLinear', name: `${name}_QuantizeLinear`, inputs: [name], outputs },
    ]);
    return { codes, scale, zeroPoint };
  }

  /** Nodes that convert a product of integers to floats. */
  #rescale(node: OnnxNode, product: string, scales: readonly [string, string], output: string): NewNode[] {
    const [result = ''] = node.outputs;
    const name = node.name || result;
    const cast = this.#builder.freshValue(`${result}_output_quantized_cast_output`);
    const scale = this.#builder.freshValue(`${name}_quant_scales_mul:0`);
    return [
      { ...castNode(product, cast, onnxTypeNumber('F32')), name: `${result}_output_quantized_cast` },
      { opType: 'Mul', name: `${name}_quant_scales_mul`, inputs: scales, outputs: [scale] },
      { opType: 'Mul', name: `${name}_quant_output_scale_mul`, inputs: [cast, scale], outputs: [output] },
    ];
  }

  /** The input with the zero points of weights; empty for 0. Symmetric codes without a sign share one. */
  #zeroPoints(graph: OnnxGraph, codes: string, zeroPoint: string | undefined, { signed }: Integers['form']): string[] {
    if (zeroPoint !== undefined) return [zeroPoint];
    if (signed) return [];
    const name = this.#builder.freshValue(`${codes}_zero`);
    const data = { bytes: Uint8Array.of(128) };
    this.#builder.addConstant(graph, { name, type: onnxTypeNumber('U8'), shape: [], data });
    return [name];
  }
}
