/**
 * Writes 8-bit integers that are multiplied directly: activations are quantized while the model runs, weights now. The pattern of operators
 * is that of onnxruntime's quantize_dynamic, which onnxruntime recognizes and fuses.
 * Reference: github.com/microsoft/onnxruntime 103f80c, onnxruntime/python/tools/quantization/operators. Tests run onnxruntime-web 1.30.0.
 */
import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { Integers } from '../decide/decision.js';
import { integerOpset } from '../decide/integers.js';
import { attributePiecesOf, castNode, type NewNode } from '../file/encode.js';
import type { Weight } from '../file/model.js';
import { intOf, type OnnxGraph, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import type { ReadingNode } from '../graph/graph.js';
import { swaps } from '../graph/products.js';
import type { Builder } from './builder.js';
import { addDequantize, type CodeNames, storeCodes } from './restored.js';

/** A quantized activation. */
interface Activation {
  readonly codes: string;
  readonly scale: string;
  readonly zeroPoint: string;
}

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
    builder.raise(weight.graph, integerOpset);
    builder.removeNodes(unneeded);
    const names = storeCodes(builder, weight, form);
    if (dequantizer !== undefined) addDequantize(builder, weight, form, names, dequantizer);
    for (const { reader, operation } of readers) {
      if (operation === 'lookup') this.#lookUp(reader, names);
      else if (operation === 'convolution') this.#convolve(reader, names, form, weight.source.shape);
      else if (operation === 'attention') this.#attend(reader, names, form);
      else this.#multiply(reader, names, form, weight);
    }
  }

  /** Quantizes the first input of a node. */
  #quantize(node: OnnxNode, graph: OnnxGraph): Activation {
    const [name = ''] = node.inputs;
    const known = this.#activations.get(graph) ?? new Map<string, Activation>();
    this.#activations.set(graph, known);
    const there = known.get(name);
    if (there !== undefined) return there;
    const { graphs } = this.#builder;
    const activation = {
      codes: this.#builder.freshValue(`${name}_quantized`),
      scale: this.#builder.freshValue(`${name}_scale`),
      zeroPoint: this.#builder.freshValue(`${name}_zero_point`),
    };
    known.set(name, activation);
    // Place it before its first reader. Nodes of a graph are in order in the file.
    const readers = graphs.uses(graph, name).filter((use) => use.graph === graph);
    const first = readers.reduce((least, use) => (use.node.start < least.start ? use.node : least), node);
    const { codes, scale, zeroPoint } = activation;
    this.#builder.addNodes({ graph, before: first }, [
      {
        opType: 'DynamicQuantizeLinear',
        name: `${name}_QuantizeLinear`,
        inputs: [name],
        outputs: [codes, scale, zeroPoint],
      },
    ]);
    return activation;
  }

  /** Adds nodes that convert a product of integers to floats. */
  #rescale(node: OnnxNode, product: string, scales: readonly [string, string], output: string): NewNode[] {
    const builder = this.#builder;
    const [name, result] = [node.name || (node.outputs[0] ?? ''), node.outputs[0] ?? ''];
    const cast = builder.freshValue(`${result}_output_quantized_cast_output`);
    const scale = builder.freshValue(`${name}_quant_scales_mul:0`);
    return [
      { ...castNode(product, cast, onnxTypeNumber('F32')), name: `${result}_output_quantized_cast` },
      { opType: 'Mul', name: `${name}_quant_scales_mul`, inputs: scales, outputs: [scale] },
      { opType: 'Mul', name: `${name}_quant_output_scale_mul`, inputs: [cast, scale], outputs: [output] },
    ];
  }

  /** MatMul and Gemm. */
  #multiply({ node, graph, path }: ReadingNode, names: CodeNames, form: DequantizeLinearForm, weight: Weight): void {
    const builder = this.#builder;
    const { codes, scale } = names;
    const zeroPoint = this.#zeroPoint(graph, names, form);
    const x = this.#quantize(node, graph);
    const [output = ''] = node.outputs;
    const name = node.name || output;
    const position = { graph, before: node };
    const isSwapped =
      weight.source.shape.length === 2 && swaps(path) !== (node.opType === 'Gemm' && intOf(node, 'transB', 0) !== 0);
    let matrix = codes;
    if (isSwapped) {
      matrix = builder.freshValue(`${codes}_transposed`);
      // The optimizer folds this node when it loads the model.
      const perm = { perm: [1, 0] };
      builder.addNodes(position, [
        { opType: 'Transpose', name: matrix, inputs: [codes], outputs: [matrix], attributes: perm },
      ]);
    }
    const product = builder.freshValue(`${output}_output_quantized`);
    const c = node.opType === 'Gemm' ? (node.inputs[2] ?? '') : '';
    const sum = c === '' ? output : builder.freshValue(`${output}_MatMul`);
    const inputs = [x.codes, matrix, x.zeroPoint, ...(zeroPoint === undefined ? [] : [zeroPoint])];
    builder.addNodes(position, [
      { opType: 'MatMulInteger', name: `${name}_quant`, inputs, outputs: [product] },
      ...this.#rescale(node, product, [x.scale, scale], sum),
      ...(c === '' ? [] : [{ opType: 'Add', name: `${name}_Add`, inputs: [sum, c], outputs: [output] }]),
    ]);
    builder.removeNode(node);
  }

  #convolve(
    { node, graph }: ReadingNode,
    names: CodeNames,
    form: DequantizeLinearForm,
    shape: readonly number[],
  ): void {
    const builder = this.#builder;
    const x = this.#quantize(node, graph);
    const [output = ''] = node.outputs;
    const name = node.name || output;
    const position = { graph, before: node };
    const [, , bias = ''] = node.inputs;
    const sum = bias === '' ? output : builder.freshValue(`${output}_quant_scaled_output`);
    const product = builder.freshValue(`${output}_output_quantized`);
    const copied = attributePiecesOf(node);
    const channelShape = [1, -1, ...shape.slice(2).map(() => 1)];
    const nodes: NewNode[] = [];
    let scale = names.scale;
    if (form.axis !== undefined) {
      scale = builder.freshValue(`${names.scale}_channels`);
      nodes.push(this.#reshape(graph, names.scale, channelShape, scale));
    }
    // Convolutions take a single zero point, and codes with several scales are symmetric.
    const shared = form.axis === undefined ? names : { ...names, zeroPoint: undefined };
    const zeroPoint = this.#zeroPoint(graph, shared, form);
    const inputs = [x.codes, names.codes, x.zeroPoint, ...(zeroPoint === undefined ? [] : [zeroPoint])];
    nodes.push({ opType: 'ConvInteger', name: `${name}_quant`, inputs, outputs: [product], copied });
    nodes.push(...this.#rescale(node, product, [x.scale, scale], sum));
    if (bias !== '') {
      const reshaped = builder.freshValue(`${output}_bias_reshape_output`);
      nodes.push(this.#reshape(graph, bias, channelShape, reshaped));
      nodes.push({ opType: 'Add', name: `${output}_bias_add`, inputs: [sum, reshaped], outputs: [output] });
    }
    builder.addNodes(position, nodes);
    builder.removeNode(node);
  }

  /** The zero points of weights; undefined for 0. Symmetric codes without a sign share one. */
  #zeroPoint(graph: OnnxGraph, { codes, zeroPoint }: CodeNames, { signed }: DequantizeLinearForm): string | undefined {
    if (zeroPoint !== undefined || signed) return zeroPoint;
    const name = this.#builder.freshValue(`${codes}_zero`);
    this.#builder.addConstant(graph, {
      name,
      type: onnxTypeNumber('U8'),
      shape: [],
      data: { bytes: Uint8Array.of(128) },
    });
    return name;
  }

  #reshape(graph: OnnxGraph, from: string, shape: readonly number[], to: string): NewNode {
    const name = this.#builder.addIntegers(graph, `${to}_shape`, shape);
    return { opType: 'Reshape', name: to, inputs: [from, name], outputs: [to] };
  }

  /** Attention: codes of activations and of the projections are multiplied. */
  #attend({ node, graph }: ReadingNode, names: CodeNames, form: DequantizeLinearForm): void {
    const { codes, scale } = names;
    const zeroPoint = this.#zeroPoint(graph, names, form) ?? '';
    const x = this.#quantize(node, graph);
    const [, , bias = '', mask = '', past = ''] = node.inputs;
    const copied = attributePiecesOf(node);
    const inputs = [x.codes, codes, bias, x.scale, scale, mask, x.zeroPoint, zeroPoint, past];
    const name = `${node.name || node.outputs[0]}_quant`;
    this.#builder.addNodes({ graph, before: node }, [
      { opType: 'QAttention', domain: node.domain, name, inputs, outputs: node.outputs, copied },
    ]);
    this.#builder.removeNode(node);
  }

  /** Gather: rows of codes are gathered, then restored to floats. */
  #lookUp({ node, graph }: ReadingNode, { codes, scale, zeroPoint }: CodeNames): void {
    const [, indices = ''] = node.inputs;
    const [output = ''] = node.outputs;
    const gathered = this.#builder.freshValue(`${output}_quantized`);
    const copied = attributePiecesOf(node);
    const inputs = [gathered, scale, ...(zeroPoint === undefined ? [] : [zeroPoint])];
    this.#builder.addNodes({ graph, before: node }, [
      { opType: 'Gather', name: `${node.name || output}_quant`, inputs: [codes, indices], outputs: [gathered], copied },
      { opType: 'DequantizeLinear', name: `${output}_DequantizeLinear`, inputs, outputs: [output] },
    ]);
    this.#builder.removeNode(node);
  }
}
