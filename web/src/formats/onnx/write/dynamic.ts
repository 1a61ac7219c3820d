/**
 * 8-bit integers that are multiplied as they are: activations are quantized while the model runs, weights now. The pattern of operators is
 * that of onnxruntime's quantize_dynamic, which onnxruntime recognizes and fuses.
 * Reference: microsoft/onnxruntime, onnxruntime/python/tools/quantization/operators.
 */
import type { DequantizeLinearForm } from '../../../codecs/dequantize-linear.js';
import { int64Piece, type NewNode, type Piece } from '../file/encode.js';
import type { Weight } from '../file/model.js';
import { type OnnxGraph, type OnnxNode, typeNumber } from '../file/proto.js';
import type { Reader } from '../graph/graph.js';
import { type Channels, channelAxis, floatOf, intOf, isCalled } from '../graph/readers.js';
import type { Builder } from './builder.js';
import { swaps, typeRead } from './nbits.js';
import { convertTogether, type DynamicOptions } from './together.js';
import {
  addDequantize,
  type CodeNames,
  dequantizer,
  dequantizeWeight,
  isSmaller,
  linearForm,
  storeCodes,
} from './weights.js';

/** A quantized activation. */
interface Activation {
  readonly codes: string;
  readonly scale: string;
  readonly zeroPoint: string;
}

const attentions: readonly string[] = ['GroupQueryAttention', 'MultiHeadAttention'];

/** Whether the codes of q8 have a sign: in models without convolutions and without attention, as transformers.js has it. */
export function prefersSign({ graphs }: Builder): boolean {
  return !graphs.nodes.some(({ node }) => node.opType === 'Conv' || attentions.includes(node.opType));
}

type Kind = 'product' | 'convolution' | 'lookup' | 'attention';

/** Whether a node is an attention that there is one of integers for. */
function isAttention({ opType, domain, inputs, attributes }: OnnxNode): boolean {
  const [, , bias = '', , , ...more] = inputs;
  const isKnown = domain === 'com.microsoft' && opType === 'Attention' && !attributes.has('qkv_hidden_sizes');
  return isKnown && bias !== '' && more.every((input) => input === '');
}

/** The type of a reader that takes codes; undefined if it does not. */
function kindOf(reader: Reader, rank: number): Kind | undefined {
  const { node, input, path } = reader;
  if (path.length === 0 && input === 1 && isAttention(node)) return 'attention';
  if (node.domain !== '' || typeRead(reader, 'F32') !== typeNumber('F32')) return undefined;
  const swapped =
    rank === 2
      ? swaps(path)
      : path.some(({ opType, domain }) => opType !== 'Identity' || domain !== '')
        ? undefined
        : false;
  if (swapped === undefined) return undefined;
  if (node.opType === 'MatMul' && input === 1) return 'product';
  if (node.opType === 'Gemm' && input === 1) {
    const isPlain = floatOf(node, 'alpha', 1) === 1 && intOf(node, 'transA', 0) === 0;
    return isPlain && (node.inputs.length < 3 || floatOf(node, 'beta', 1) === 1) ? 'product' : undefined;
  }
  if (swapped) return undefined;
  if (node.opType === 'Conv' && input === 1) return 'convolution';
  return node.opType === 'Gather' && input === 0 ? 'lookup' : undefined;
}

/** A reader that takes codes. */
interface Taken {
  readonly reader: Reader;
  readonly kind: Kind;
}

/** Rewrites a model for dynamic quantization, one weight at a time. */
export class Dynamic {
  readonly #builder: Builder;
  readonly #options: DynamicOptions;
  readonly #activations = new Map<OnnxGraph, Map<string, Activation>>();
  readonly #order = new Map<OnnxNode, number>();
  /** Weights that become floats again, by reason. */
  readonly #left = new Map<string, number>();

  constructor(builder: Builder, options: DynamicOptions) {
    this.#builder = builder;
    this.#options = options;
    for (const [i, { node }] of builder.graphs.nodes.entries()) this.#order.set(node, i);
  }

  /** What to know of weights that are not multiplied as integers. */
  notes(): string[] {
    const reasons = [...this.#left].sort(([, a], [, b]) => b - a).map(([reason]) => reason);
    const sum = [...this.#left.values()].reduce((all, n) => all + n, 0);
    const weights = sum === 1 ? '1 weight becomes' : `${sum} weights become`;
    return sum === 0
      ? []
      : [`${weights} floats again at every run, as there are no integers for ${reasons.join(', ')}`];
  }

  /** Converts a weight. Returns why not, if that is not possible. */
  convert(weight: Weight, channels: Channels): string | undefined {
    const builder = this.#builder;
    const { shape } = weight.source;
    const { range, signed } = this.#options;
    const only = channels.readers.length === 1 ? channels.readers[0] : undefined;
    if (only !== undefined && convertTogether(builder, weight, only, this.#options)) return undefined;
    const taken = channels.readers.flatMap((reader) => {
      const kind = kindOf(reader, shape.length);
      return kind === undefined ? [] : [{ reader, kind }];
    });
    const isTaken = taken.length > 0;
    if (!isTaken || !builder.raise(weight.graph, 11)) {
      const [first] = channels.readers;
      const left = first === undefined ? 'an output' : `${first.node.opType}${isCalled(first) ? ' in a function' : ''}`;
      const why = isTaken ? builder.obstacle(weight.graph) : left;
      this.#left.set(why, (this.#left.get(why) ?? 0) + 1);
      return dequantizeWeight(builder, weight, channels, { bits: 8, signed, symmetric: signed, range });
    }
    let form = this.#formOf(weight, taken);
    if (!isSmaller(builder, weight, form)) return 'not smaller';
    const isNeeded = builder.release(
      weight,
      taken.map(({ reader }) => reader),
    );
    // DequantizeLinear needs the zero points: it takes 0 for those that are not stored.
    if (isNeeded && !form.zeroPoint && !form.signed) form = { ...form, zeroPoint: true };
    const domain = isNeeded ? dequantizer(builder, weight, form) : undefined;
    const names = storeCodes(builder, weight, form);
    if (domain !== undefined) addDequantize(builder, weight, form, names, domain);
    for (const { reader, kind } of taken) {
      if (kind === 'lookup') this.#lookUp(reader, names);
      else if (kind === 'convolution') this.#convolve(reader, names, form, shape);
      else if (kind === 'attention') this.#attend(reader, names);
      else this.#multiply(reader, names, weight);
    }
    return undefined;
  }

  /** How a weight is stored, which depends on all that read it. */
  #formOf({ source: { shape } }: Weight, taken: readonly Taken[]): DequantizeLinearForm {
    const { signed, perChannel, range } = this.#options;
    const kinds = new Set(taken.map(({ kind }) => kind));
    // Tables count as activations: without a sign, and one scale for all.
    if (kinds.has('lookup')) return linearForm(shape, undefined, { bits: 8, signed: false, symmetric: false, range });
    // Convolutions with signed weights are slow in WebAssembly. Codes with 128 for their zero point stand for the same numbers. They have
    // one zero point, so that only symmetric codes can have a scale for each channel.
    if (kinds.has('convolution')) {
      const each = perChannel && kinds.size === 1;
      const form = linearForm(shape, each ? 0 : undefined, {
        bits: 8,
        signed: false,
        symmetric: signed || each,
        range,
      });
      return each ? { ...form, zeroPoint: false } : form;
    }
    // Scales are multiplied with what comes out. If that is along different axes, there is one scale for all.
    const [axis, ...others] = new Set(taken.map(({ reader }) => channelAxis(reader, shape)));
    const along = perChannel && shape.length === 2 && others.length === 0 ? axis : undefined;
    return linearForm(shape, along, { bits: 8, signed, symmetric: signed, range });
  }

  /** The activation that a node reads first, quantized. */
  #quantize(node: OnnxNode, graph: OnnxGraph): Activation {
    const [name = ''] = node.inputs;
    const known = this.#activations.get(graph) ?? new Map<string, Activation>();
    this.#activations.set(graph, known);
    const there = known.get(name);
    if (there !== undefined) return there;
    const { graphs } = this.#builder;
    const activation = {
      codes: graphs.freshValue(`${name}_quantized`),
      scale: graphs.freshValue(`${name}_scale`),
      zeroPoint: graphs.freshValue(`${name}_zero_point`),
    };
    known.set(name, activation);
    // It stands where the first node in need of it may be.
    const readers = graphs.uses(graph, name).filter((use) => use.graph === graph);
    const first = readers.reduce((least, use) => (this.#at(use.node) < this.#at(least) ? use.node : least), node);
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

  #at(node: OnnxNode): number {
    return this.#order.get(node) ?? 0;
  }

  /** From a product of integers to floats: the nodes that follow it. */
  #rescale(node: OnnxNode, product: string, scales: readonly [string, string], output: string): NewNode[] {
    const { graphs } = this.#builder;
    const [name, result] = [node.name || (node.outputs[0] ?? ''), node.outputs[0] ?? ''];
    const cast = graphs.freshValue(`${result}_output_quantized_cast_output`);
    const scale = graphs.freshValue(`${name}_quant_scales_mul:0`);
    return [
      {
        opType: 'Cast',
        name: `${result}_output_quantized_cast`,
        inputs: [product],
        outputs: [cast],
        attributes: { to: typeNumber('F32') },
      },
      { opType: 'Mul', name: `${name}_quant_scales_mul`, inputs: scales, outputs: [scale] },
      { opType: 'Mul', name: `${name}_quant_output_scale_mul`, inputs: [cast, scale], outputs: [output] },
    ];
  }

  /** MatMul and Gemm. */
  #multiply({ node, graph, path }: Reader, { codes, scale, zeroPoint }: CodeNames, weight: Weight): void {
    const builder = this.#builder;
    const x = this.#quantize(node, graph);
    const [output = ''] = node.outputs;
    const name = node.name || output;
    const position = { graph, before: node };
    const isSwapped =
      weight.source.shape.length === 2 && swaps(path) !== (node.opType === 'Gemm' && intOf(node, 'transB', 0) !== 0);
    let matrix = codes;
    if (isSwapped) {
      matrix = builder.graphs.freshValue(`${codes}_transposed`);
      // The optimizer does this once, when it loads the model.
      const perm = { perm: [1, 0] };
      builder.addNodes(position, [
        { opType: 'Transpose', name: matrix, inputs: [codes], outputs: [matrix], attributes: perm },
      ]);
    }
    const product = builder.graphs.freshValue(`${output}_output_quantized`);
    const c = node.opType === 'Gemm' ? (node.inputs[2] ?? '') : '';
    const sum = c === '' ? output : builder.graphs.freshValue(`${output}_MatMul`);
    const inputs = [x.codes, matrix, x.zeroPoint, ...(zeroPoint === undefined ? [] : [zeroPoint])];
    builder.addNodes(position, [
      { opType: 'MatMulInteger', name: `${name}_quant`, inputs, outputs: [product] },
      ...this.#rescale(node, product, [x.scale, scale], sum),
      ...(c === '' ? [] : [{ opType: 'Add', name: `${name}_Add`, inputs: [sum, c], outputs: [output] }]),
    ]);
    builder.removeNode(node);
  }

  #convolve({ node, graph }: Reader, names: CodeNames, form: DequantizeLinearForm, shape: readonly number[]): void {
    const builder = this.#builder;
    const x = this.#quantize(node, graph);
    const [output = ''] = node.outputs;
    const name = node.name || output;
    const position = { graph, before: node };
    const [, , bias = ''] = node.inputs;
    const sum = bias === '' ? output : builder.graphs.freshValue(`${output}_quant_scaled_output`);
    const product = builder.graphs.freshValue(`${output}_output_quantized`);
    const copied: Piece[] = [...node.attributes.values()].map(({ start, end }) => ({ begin: start, end }));
    const channelShape = [1, -1, ...shape.slice(2).map(() => 1)];
    const nodes: NewNode[] = [];
    let scale = names.scale;
    if (form.axis !== undefined) {
      scale = builder.graphs.freshValue(`${names.scale}_channels`);
      nodes.push(this.#reshape(graph, names.scale, channelShape, scale));
    }
    const zeroPoint = this.#convolutionZeroPoint(graph, names, form);
    const inputs = [x.codes, names.codes, x.zeroPoint, ...(zeroPoint === undefined ? [] : [zeroPoint])];
    nodes.push({ opType: 'ConvInteger', name: `${name}_quant`, inputs, outputs: [product], copied });
    nodes.push(...this.#rescale(node, product, [x.scale, scale], sum));
    if (bias !== '') {
      const reshaped = builder.graphs.freshValue(`${output}_bias_reshape_output`);
      nodes.push(this.#reshape(graph, bias, channelShape, reshaped));
      nodes.push({ opType: 'Add', name: `${output}_bias_add`, inputs: [sum, reshaped], outputs: [output] });
    }
    builder.addNodes(position, nodes);
    builder.removeNode(node);
  }

  /** The one zero point of a convolution's weights. All those of symmetric codes are the same. */
  #convolutionZeroPoint(
    graph: OnnxGraph,
    { codes, zeroPoint }: CodeNames,
    { axis }: DequantizeLinearForm,
  ): string | undefined {
    if (axis === undefined) return zeroPoint;
    const name = this.#builder.graphs.freshValue(`${codes}_zero`);
    this.#builder.addConstant(graph, { name, type: typeNumber('U8'), shape: [], data: { bytes: Uint8Array.of(128) } });
    return name;
  }

  #reshape(graph: OnnxGraph, from: string, shape: readonly number[], to: string): NewNode {
    const name = this.#builder.graphs.freshValue(`${to}_shape`);
    this.#builder.addConstant(graph, { name, type: typeNumber('I64'), shape: [shape.length], data: int64Piece(shape) });
    return { opType: 'Reshape', name: to, inputs: [from, name], outputs: [to] };
  }

  /** Attention: codes of activations and of the projections are multiplied. */
  #attend({ node, graph }: Reader, { codes, scale, zeroPoint = '' }: CodeNames): void {
    const x = this.#quantize(node, graph);
    const [, , bias = '', mask = '', past = ''] = node.inputs;
    const copied: Piece[] = [...node.attributes.values()].map(({ start, end }) => ({ begin: start, end }));
    const inputs = [x.codes, codes, bias, x.scale, scale, mask, x.zeroPoint, zeroPoint, past];
    const name = `${node.name || node.outputs[0]}_quant`;
    this.#builder.addNodes({ graph, before: node }, [
      { opType: 'QAttention', domain: node.domain, name, inputs, outputs: node.outputs, copied },
    ]);
    this.#builder.removeNode(node);
  }

  /** Gather: rows of codes are gathered, then made floats. */
  #lookUp({ node, graph }: Reader, { codes, scale, zeroPoint }: CodeNames): void {
    const [, indices = ''] = node.inputs;
    const [output = ''] = node.outputs;
    const gathered = this.#builder.graphs.freshValue(`${output}_quantized`);
    const copied: Piece[] = [...node.attributes.values()].map(({ start, end }) => ({ begin: start, end }));
    const inputs = [gathered, scale, ...(zeroPoint === undefined ? [] : [zeroPoint])];
    this.#builder.addNodes({ graph, before: node }, [
      { opType: 'Gather', name: `${node.name || output}_quant`, inputs: [codes, indices], outputs: [gathered], copied },
      { opType: 'DequantizeLinear', name: `${output}_DequantizeLinear`, inputs, outputs: [output] },
    ]);
    this.#builder.removeNode(node);
  }
}
