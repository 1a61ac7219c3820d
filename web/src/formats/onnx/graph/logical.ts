/** Finds codes among the tensors of a model, and their scales, by the nodes that read them. */
import { type DequantizeLinearForm, isReadable } from '../../codecs/dequantize-linear.js';
import type { MatMulBnb4Form } from '../../codecs/matmul-bnb4.js';
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import type { LogicalTensor } from '../../format.js';
import { elementCount, plainTensor } from '../../tensors.js';
import type { OnnxModel, Weight } from '../file/model.js';
import { contrib, intOf, type OnnxGraph, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { linearForm } from '../forms.js';
import { Graphs, type ReadingNode } from './graph.js';
import { swaps, transposes } from './products.js';

/** Codes, their scales and zero points, and the tensor that they form. */
interface FoundCodes {
  readonly name: string;
  readonly shape: readonly number[];
  readonly form: DequantizeLinearForm | MatMulNBitsForm | MatMulBnb4Form;
  readonly data: Weight;
  readonly scale: Weight;
  readonly zeroPoint: Weight | undefined;
  readonly turned?: LogicalTensor['turned'];
  readonly isTurned?: boolean;
}

const codeTypes = /^([IU])([248])$/;

/** Longest way from the codes of a table to its rows. */
const mostSteps = 16;

/** True if a tensor has as many elements as the product of `sizes`. */
function fits({ source }: Weight, sizes: readonly number[]): boolean {
  return elementCount(source.shape) === sizes.reduce((product, n) => product * n, 1);
}

/** Codes with scales of DequantizeLinear; undefined if sizes do not match, or if they cannot be read in tiles. */
function linear(
  name: string,
  data: Weight,
  scale: Weight | undefined,
  zeroPoint: Weight | undefined,
  wanted: {
    readonly axis: number;
    readonly leading?: boolean;
    readonly blockSize: number | undefined;
    readonly symmetric: boolean;
  },
): FoundCodes | undefined {
  const [, sign, bits] = codeTypes.exec(data.source.dtype) ?? [];
  const { shape } = data.source;
  if (scale === undefined || bits === undefined || (scale.source.dtype !== 'F32' && scale.source.dtype !== 'F16'))
    return undefined;
  const axis = wanted.axis < 0 ? wanted.axis + shape.length : wanted.axis;
  const one = fits(scale, [1]);
  const size = shape[axis];
  if (!one && size === undefined) return undefined;
  const { blockSize } = wanted;
  const own = wanted.leading ? shape.slice(0, axis + 1) : [size ?? 0];
  const sets = blockSize === undefined ? own : shape.map((n, i) => (i === axis ? Math.ceil(n / blockSize) : n));
  if (!one && !fits(scale, sets)) return undefined;
  if (
    zeroPoint !== undefined &&
    (zeroPoint.source.dtype !== data.source.dtype || !fits(zeroPoint, scale.source.shape))
  ) {
    return undefined;
  }
  const options = { bits: Number(bits) as 2 | 4 | 8, signed: sign === 'I', symmetric: wanted.symmetric };
  const form = linearForm(
    shape,
    one ? undefined : axis,
    one || blockSize === undefined ? options : { ...options, blockSize },
  );
  const leading = wanted.leading && !one ? ({ sharing: 'rows', leading: true } as const) : {};
  const whole = { ...form, ...leading, zeroPoint: zeroPoint !== undefined, scale: scale.source.dtype } as const;
  return isReadable(shape, whole) ? { name, shape, form: whole, data, scale, zeroPoint } : undefined;
}

/** Prefix of a tensor's name before that of its value. */
function prefixOf({ source, value }: Weight): string {
  return source.name.slice(0, source.name.length - value.length);
}

/** Codes of a table with a GatherBlockQuantized. Those of uint8 lie side by side along rows, whose zero points are packed, too. */
function gathered(
  node: OnnxNode,
  prefix: string,
  data: Weight,
  scale: Weight | undefined,
  zeroPoint: Weight | undefined,
): FoundCodes | undefined {
  const blockSize = intOf(node, 'block_size', 128);
  const { dtype, shape } = data.source;
  const name = prefix + data.value;
  if (dtype !== 'U8') {
    return linear(name, data, scale, zeroPoint, { axis: intOf(node, 'quantize_axis', 1), blockSize, symmetric: false });
  }
  const bits = intOf(node, 'bits', 4);
  const type = scale?.source.dtype;
  if (![2, 4, 8].includes(bits) || (type !== 'F32' && type !== 'F16') || scale === undefined) return undefined;
  const [n = 0, bytes = 0, ...others] = shape;
  const columns = (bytes * 8) / bits;
  const blocks = Math.ceil(columns / blockSize);
  if (others.length > 0 || columns % blockSize !== 0 || !fits(scale, [n, blocks])) return undefined;
  if (zeroPoint !== undefined && !fits(zeroPoint, [n, Math.ceil((blocks * bits) / 8)])) return undefined;
  const form: MatMulNBitsForm = {
    codec: 'matmul-nbits',
    bits: bits as 2 | 4 | 8,
    blockSize,
    zeroPoint: zeroPoint !== undefined,
    transposed: true,
    scale: type,
  };
  return { name, shape: [n, columns], form, data, scale, zeroPoint };
}

/** Name of the weight that codes encode. */
function nameWithout({ source }: Weight, end: string): string {
  return source.name.endsWith(end) ? source.name.slice(0, -end.length) : source.name;
}

/** Codes of the layers of a QMoE, [experts, rows, columns] with blocks along the columns. */
function expertsOf(node: OnnxNode, weights: readonly (Weight | undefined)[]): FoundCodes[] {
  const [bits, blockSize] = [intOf(node, 'expert_weight_bits', 4), intOf(node, 'block_size', 0)];
  const isPlain = (node.attributes.get('quant_type')?.s ?? 'int') === 'int' && intOf(node, 'weights_prepacked', 0) <= 0;
  if ((bits !== 4 && bits !== 8) || blockSize < 16 || !isPlain) return [];
  return [0, 1, 2].flatMap((layer) => {
    const [data, scale, zeroPoint] = [weights[2 + 3 * layer], weights[3 + 3 * layer], weights[11 + layer]];
    const type = scale?.source.dtype;
    if (data?.source.dtype !== 'U8' || scale === undefined || (type !== 'F32' && type !== 'F16')) return [];
    const [experts = 0, rows = 0, bytes = 0, ...more] = data.source.shape;
    const columns = (bytes * 8) / bits;
    const blocks = columns / blockSize;
    if (more.length > 0 || columns % blockSize !== 0 || !fits(scale, [experts, rows, blocks])) return [];
    const hasZeroPoints = (node.inputs[11 + layer] ?? '') !== '';
    const isRead = zeroPoint?.source.dtype === 'U8' && fits(zeroPoint, [experts, rows, Math.ceil((blocks * bits) / 8)]);
    if (hasZeroPoints && !isRead) return [];
    const form: MatMulNBitsForm = {
      codec: 'matmul-nbits',
      bits,
      blockSize,
      zeroPoint: hasZeroPoints,
      transposed: true,
      scale: type,
    };
    return [{ name: nameWithout(data, `_Q${bits}`), shape: [experts, rows, columns], form, data, scale, zeroPoint }];
  });
}

class Finder {
  readonly #graphs: Graphs;
  readonly #byName: ReadonlyMap<string, Weight>;
  readonly found: FoundCodes[] = [];
  /** Names of 16-bit floats after a Cast has widened them. */
  readonly widened = new Map<Weight, string>();

  constructor(model: OnnxModel) {
    this.#graphs = new Graphs(model);
    this.#byName = new Map(model.weights.map((weight) => [weight.source.name, weight]));
    for (const { node, graph } of this.#graphs.nodes) {
      const weights = node.inputs.map((name) => (name === '' ? undefined : this.#graphs.weightAt(graph, name)));
      const [first] = weights;
      if (node.opType === 'Cast' && first?.source.dtype === 'F16' && intOf(node, 'to', 0) === onnxTypeNumber('F32')) {
        this.widened.set(first, prefixOf(first) + (node.outputs[0] ?? ''));
      }
      const found = this.#codesOf(node, graph, weights);
      if (found !== undefined) this.found.push(found);
      if (node.opType === 'QMoE' && node.domain === contrib) this.found.push(...expertsOf(node, weights));
    }
    for (const weight of model.weights) {
      const found = this.#integers(weight) ?? this.#table(weight);
      if (found !== undefined) this.found.push(found);
    }
  }

  /** Codes that a node reads, with their scales. */
  #codesOf(
    node: OnnxNode,
    graph: OnnxGraph,
    [first, second, third, fourth]: readonly (Weight | undefined)[],
  ): FoundCodes | undefined {
    // Match DequantizeLinear.
    if (
      node.opType === 'DequantizeLinear' &&
      first !== undefined &&
      (node.inputs[2] === undefined) === (third === undefined)
    ) {
      const blockSize = intOf(node, 'block_size', 0) || undefined;
      const wanted = { axis: intOf(node, 'axis', 1), blockSize, symmetric: false };
      const [output = ''] = node.outputs;
      const found = linear(prefixOf(first) + output, first, second, third, wanted);
      return found && { ...found, isTurned: this.isTurned(graph, output) };
    }
    if (node.opType === 'GatherBlockQuantized' && node.domain === contrib && first !== undefined) {
      return gathered(node, prefixOf(first), first, third, fourth);
    }
    // Read the sizes of blocks.
    if (node.domain !== 'com.microsoft' || second === undefined || third === undefined) return undefined;
    const [k, n, blockSize] = ['K', 'N', 'block_size'].map((name) => intOf(node, name, 0)) as [number, number, number];
    if (!(k > 0 && n > 0 && blockSize >= 16)) return undefined;
    const [shape, parts] = [[k, n], { data: second, scale: third }];
    // Match MatMulBnb4.
    if (node.opType === 'MatMulBnb4') {
      if (intOf(node, 'quant_type', 1) !== 1 || k % blockSize !== 0 || third.source.dtype !== 'F32') return undefined;
      if (!fits(second, [k * n * 0.5]) || !fits(third, [(k * n) / blockSize])) return undefined;
      const form: MatMulBnb4Form = { codec: 'matmul-bnb4', blockSize, transposed: false };
      const turned = { shape: [n, k], form: { ...form, transposed: true } };
      return { name: nameWithout(second, '_Bnb4'), shape, form, ...parts, zeroPoint: undefined, turned };
    }
    // Match MatMulNBits.
    const bits = intOf(node, 'bits', 4);
    const scale = third.source.dtype;
    if (node.opType !== 'MatMulNBits' || ![2, 4, 8].includes(bits) || (scale !== 'F32' && scale !== 'F16'))
      return undefined;
    const blocks = Math.ceil(k / blockSize);
    if (!fits(second, [n, blocks, (blockSize * bits) / 8]) || !fits(third, [n, blocks])) return undefined;
    const isFloat = fourth !== undefined && fourth.source.dtype === scale && bits !== 8;
    if (fourth !== undefined && !isFloat && fourth.source.dtype !== 'U8') return undefined;
    if (fourth !== undefined && !fits(fourth, [n, isFloat ? blocks : Math.ceil((blocks * bits) / 8)])) return undefined;
    const form: MatMulNBitsForm = {
      codec: 'matmul-nbits',
      bits: bits as 2 | 4 | 8,
      blockSize,
      zeroPoint: fourth !== undefined,
      ...(isFloat ? { floatZeroPoint: true } : {}),
      transposed: false,
      scale,
    };
    const turned = { shape: [n, k], form: { ...form, transposed: true } };
    return { name: nameWithout(second, `_Q${bits}`), shape, form, ...parts, zeroPoint: fourth, turned };
  }

  /** True if products read a matrix as its transpose. */
  isTurned(graph: OnnxGraph, value: string): boolean {
    return this.#graphs.readers({ graph, value }).some((reader) => {
      const { node, input, path } = reader;
      const isInteger = node.opType === 'MatMulInteger' && input === 1 && swaps(path) === true;
      return isInteger || transposes(reader) === true;
    });
  }

  /** Blocks of a table with row look-ups. */
  #table(data: Weight): FoundCodes | undefined {
    const [, start = '', bits = ''] = /^(.*)_Q([248])$/s.exec(data.source.name) ?? [];
    const [n = 0, blocks = 0, bytes = 0, ...others] = data.source.shape;
    const [scale, zeroPoint] = [this.#byName.get(`${start}_scales`), this.#byName.get(`${start}_zero_points`)];
    if (data.source.dtype !== 'U8' || others.length > 0 || n * blocks * bytes === 0 || scale === undefined)
      return undefined;
    if (!this.#graphs.readers(data).some(({ node, input }) => node.opType === 'Gather' && input === 0))
      return undefined;
    const { dtype } = scale.source;
    if ((dtype !== 'F32' && dtype !== 'F16') || !fits(scale, [n, blocks])) return undefined;
    const hasZeroPoints = zeroPoint !== undefined;
    if (
      hasZeroPoints &&
      (zeroPoint.source.dtype !== 'U8' || !fits(zeroPoint, [n, Math.ceil((blocks * Number(bits)) / 8)]))
    )
      return undefined;
    const form: MatMulNBitsForm = {
      codec: 'matmul-nbits',
      bits: Number(bits) as 2 | 4 | 8,
      blockSize: (bytes * 8) / Number(bits),
      zeroPoint: hasZeroPoints,
      transposed: true,
      scale: dtype,
    };
    const columns = this.#columnsBehind(data) ?? blocks * form.blockSize;
    return { name: start, shape: [n, columns], form, data, scale, zeroPoint };
  }

  /** Columns of a table whose last block is filled up: those that a Gather behind its product with the scales keeps. */
  #columnsBehind({ graph, value }: Weight): number | undefined {
    let uses = this.#graphs.uses(graph, value);
    for (let i = 0; i < mostSteps && uses[0] !== undefined; i++) {
      const { node, graph: inside } = uses[0];
      const chosen = this.#graphs.weightAt(inside, node.inputs[1] ?? '')?.source;
      if (node.opType === 'Gather' && intOf(node, 'axis', 0) === -1) return chosen?.shape[0];
      uses = this.#graphs.uses(inside, node.outputs[0] ?? '');
    }
    return undefined;
  }

  /** Codes that are multiplied as integers. Their scales are applied later, and found by name. */
  #integers(data: Weight): FoundCodes | undefined {
    if (!data.source.name.endsWith('_quantized') || !['I8', 'U8'].includes(data.source.dtype)) return undefined;
    const name = nameWithout(data, '_quantized');
    const reader = this.#graphs
      .readers(data)
      .find(({ node }) => node.opType.endsWith('Integer') || integerReaders.includes(node.opType));
    if (reader === undefined) return undefined;
    const zeroPoint = this.#byName.get(`${name}_zero_point`);
    const symmetric = data.source.dtype === 'U8' && zeroPoint === undefined;
    const scale = this.#byName.get(`${name}_scale`);
    const leading = reader.node.opType === 'DynamicQuantizeLSTM' && scale?.source.shape.length === 2;
    // Scales that are multiplied have the weight's rank.
    const isMultiplied = reader.node.opType === 'Mul' || reader.node.opType === 'Sub';
    const along = isMultiplied ? scale?.source.shape.findIndex((n) => n > 1) : axisOf(reader, data);
    const wanted = { axis: leading ? 1 : Math.max(0, along ?? 0), leading, blockSize: undefined, symmetric };
    const found = linear(name, data, scale, zeroPoint, wanted);
    return found && { ...found, isTurned: this.isTurned(data.graph, data.value) };
  }
}

/** Operators that read codes, in addition to those whose names end with Integer. */
const integerReaders: readonly string[] = [
  'Gather',
  'Mul',
  'Sub',
  'DynamicQuantizeLSTM',
  'QAttention',
  'QEmbedLayerNormalization',
];

/** Channel axis of codes that are multiplied as integers, or gathered. */
function axisOf({ node, path }: ReadingNode, { source }: Weight): number {
  if (node.opType === 'QAttention') return 1;
  return node.opType === 'MatMulInteger' && !swaps(path) ? source.shape.length - 1 : 0;
}

/** Tensors of a model, codes together with their scales. Codes with several readers appear once. */
export function onnxLogicalTensors(model: OnnxModel): LogicalTensor[] {
  const taken = new Set<Weight>();
  const names = new Set<string>();
  const result: LogicalTensor[] = [];
  const finder = new Finder(model);
  for (const { name, shape, form, data, scale, zeroPoint, turned, isTurned } of finder.found) {
    if (names.has(name) || taken.has(data)) continue;
    names.add(name);
    const parts = [
      { role: 'data', tensor: data.source },
      { role: 'scale', tensor: scale.source },
      ...(zeroPoint === undefined ? [] : [{ role: 'zeroPoint', tensor: zeroPoint.source }]),
    ];
    for (const weight of [data, scale, ...(zeroPoint === undefined ? [] : [zeroPoint])]) taken.add(weight);
    const way = { ...(turned === undefined ? {} : { turned }), ...(isTurned ? { isTurned } : {}) };
    result.push({ name, shape, type: data.source.dtype, form, parts, ...way });
  }
  for (const weight of model.weights) {
    if (taken.has(weight)) continue;
    const isMatrix = weight.source.shape.length === 2;
    const plain = {
      ...plainTensor(weight.source),
      ...(isMatrix && finder.isTurned(weight.graph, weight.value) ? { isTurned: true } : {}),
    };
    const name = finder.widened.get(weight);
    result.push(name === undefined || names.has(name) ? plain : { ...plain, name });
  }
  return result;
}
