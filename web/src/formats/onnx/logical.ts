/** Finds the codes among the tensors of a model, and the scales that belong to them: by the nodes that read them. */
import { type DequantizeLinearForm, isReadable } from '../../codecs/dequantize-linear.js';
import type { MatMulBnb4Form } from '../../codecs/matmul-bnb4.js';
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import type { LogicalTensor } from '../format.js';
import { elementCount, plainTensor } from '../tensors.js';
import { Graphs, type Reader } from './graph.js';
import type { OnnxModel, Weight } from './model.js';
import { swaps } from './nbits.js';
import { type OnnxNode, typeNumber } from './proto.js';
import { intOf } from './readers.js';
import { linearForm } from './weights.js';

/** Codes, what belongs to them, and what they are together. */
interface Found {
  readonly name: string;
  readonly shape: readonly number[];
  readonly form: DequantizeLinearForm | MatMulNBitsForm | MatMulBnb4Form;
  readonly data: Weight;
  readonly scale: Weight;
  readonly zeroPoint: Weight | undefined;
}

const codeTypes = /^([IU])([248])$/;

/** Whether a tensor has as many elements as all of these. */
function fits({ source }: Weight, ...sizes: readonly number[]): boolean {
  return elementCount(source.shape) === sizes.reduce((product, n) => product * n, 1);
}

/** Codes with the scales of DequantizeLinear. Undefined if they do not fit together, or cannot be read tile by tile. */
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
): Found | undefined {
  const [, sign, bits] = codeTypes.exec(data.source.dtype) ?? [];
  const { shape } = data.source;
  if (scale === undefined || bits === undefined || (scale.source.dtype !== 'F32' && scale.source.dtype !== 'F16'))
    return undefined;
  const axis = wanted.axis < 0 ? wanted.axis + shape.length : wanted.axis;
  const one = fits(scale, 1);
  const size = shape[axis];
  if (!one && size === undefined) return undefined;
  const { blockSize } = wanted;
  const own = wanted.leading ? shape.slice(0, axis + 1) : [size ?? 0];
  const sets = blockSize === undefined ? own : shape.map((n, i) => (i === axis ? Math.ceil(n / blockSize) : n));
  if (!one && !fits(scale, ...sets)) return undefined;
  if (
    zeroPoint !== undefined &&
    (zeroPoint.source.dtype !== data.source.dtype || !fits(zeroPoint, ...scale.source.shape))
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

/** What the name of a tensor has before that of its value. */
function prefixOf({ source, value }: Weight): string {
  return source.name.slice(0, source.name.length - value.length);
}

/** The name of the weight that codes were made of. */
function nameWithout({ source }: Weight, end: string): string {
  return source.name.endsWith(end) ? source.name.slice(0, -end.length) : source.name;
}

class Finder {
  readonly #graphs: Graphs;
  readonly #byName: ReadonlyMap<string, Weight>;
  readonly found: Found[] = [];
  /** Names that floats of 16 bits have as soon as a Cast has widened them. */
  readonly widened = new Map<Weight, string>();

  constructor(model: OnnxModel) {
    this.#graphs = new Graphs(model);
    this.#byName = new Map(model.weights.map((weight) => [weight.source.name, weight]));
    for (const { node, graph } of this.#graphs.nodes) {
      const weights = node.inputs.map((name) => (name === '' ? undefined : this.#graphs.weightAt(graph, name)));
      const [first] = weights;
      if (node.opType === 'Cast' && first?.source.dtype === 'F16' && intOf(node, 'to', 0) === typeNumber('F32')) {
        this.widened.set(first, prefixOf(first) + (node.outputs[0] ?? ''));
      }
      const found = this.#codesOf(node, weights);
      if (found !== undefined) this.found.push(found);
    }
    for (const weight of model.weights) {
      const found = this.#integers(weight);
      if (found !== undefined) this.found.push(found);
    }
  }

  /** The codes that a node reads with their scales. */
  #codesOf(node: OnnxNode, [first, second, third, fourth]: readonly (Weight | undefined)[]): Found | undefined {
    if (
      node.opType === 'DequantizeLinear' &&
      first !== undefined &&
      (node.inputs[2] === undefined) === (third === undefined)
    ) {
      const blockSize = intOf(node, 'block_size', 0) || undefined;
      const wanted = { axis: intOf(node, 'axis', 1), blockSize, symmetric: false };
      return linear(prefixOf(first) + (node.outputs[0] ?? ''), first, second, third, wanted);
    }
    if (node.domain !== 'com.microsoft' || second === undefined || third === undefined) return undefined;
    const [k, n, blockSize] = ['K', 'N', 'block_size'].map((name) => intOf(node, name, 0)) as [number, number, number];
    if (!(k > 0 && n > 0 && blockSize >= 16)) return undefined;
    const [shape, parts] = [[k, n], { data: second, scale: third }];
    if (node.opType === 'MatMulBnb4') {
      if (intOf(node, 'quant_type', 1) !== 1 || k % blockSize !== 0 || third.source.dtype !== 'F32') return undefined;
      if (!fits(second, k * n * 0.5) || !fits(third, (k * n) / blockSize)) return undefined;
      const form: MatMulBnb4Form = { codec: 'matmul-bnb4', blockSize, transposed: false };
      return { name: nameWithout(second, '_Bnb4'), shape, form, ...parts, zeroPoint: undefined };
    }
    const bits = intOf(node, 'bits', 4);
    const scale = third.source.dtype;
    if (node.opType !== 'MatMulNBits' || ![2, 4, 8].includes(bits) || (scale !== 'F32' && scale !== 'F16'))
      return undefined;
    const blocks = Math.ceil(k / blockSize);
    if (!fits(second, n, blocks, (blockSize * bits) / 8) || !fits(third, n, blocks)) return undefined;
    const isFloat = fourth !== undefined && fourth.source.dtype === scale && bits !== 8;
    if (fourth !== undefined && !isFloat && fourth.source.dtype !== 'U8') return undefined;
    if (fourth !== undefined && !fits(fourth, n, isFloat ? blocks : Math.ceil((blocks * bits) / 8))) return undefined;
    const form: MatMulNBitsForm = {
      codec: 'matmul-nbits',
      bits: bits as 2 | 4 | 8,
      blockSize,
      zeroPoint: fourth !== undefined,
      ...(isFloat ? { floatZeroPoint: true } : {}),
      transposed: false,
      scale,
    };
    return { name: nameWithout(second, `_Q${bits}`), shape, form, ...parts, zeroPoint: fourth };
  }

  /** Codes that are multiplied as integers. Their scales come later; names tell which they are. */
  #integers(data: Weight): Found | undefined {
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
    // Scales that are multiplied have the rank of the weight.
    const isMultiplied = reader.node.opType === 'Mul' || reader.node.opType === 'Sub';
    const along = isMultiplied ? scale?.source.shape.findIndex((n) => n > 1) : axisOf(reader, data);
    const wanted = { axis: leading ? 1 : Math.max(0, along ?? 0), leading, blockSize: undefined, symmetric };
    return linear(name, data, scale, zeroPoint, wanted);
  }
}

/** Operators that read codes, besides those whose names end with Integer. */
const integerReaders: readonly string[] = [
  'Gather',
  'Mul',
  'Sub',
  'DynamicQuantizeLSTM',
  'QAttention',
  'QEmbedLayerNormalization',
];

/** The axis of channels of codes that are multiplied as integers, or gathered. */
function axisOf({ node, path }: Reader, { source }: Weight): number {
  if (node.opType === 'QAttention') return 1;
  return node.opType === 'MatMulInteger' && !swaps(path) ? source.shape.length - 1 : 0;
}

/** The tensors of a model, codes together with their scales. Codes with several readers appear once. */
export function logicalTensors(model: OnnxModel): LogicalTensor[] {
  const taken = new Set<Weight>();
  const names = new Set<string>();
  const result: LogicalTensor[] = [];
  const finder = new Finder(model);
  for (const { name, shape, form, data, scale, zeroPoint } of finder.found) {
    if (names.has(name) || taken.has(data)) continue;
    names.add(name);
    const parts = [
      { role: 'data', tensor: data.source },
      { role: 'scale', tensor: scale.source },
      ...(zeroPoint === undefined ? [] : [{ role: 'zeroPoint', tensor: zeroPoint.source }]),
    ];
    for (const weight of [data, scale, ...(zeroPoint === undefined ? [] : [zeroPoint])]) taken.add(weight);
    result.push({ name, shape, type: data.source.dtype, form, parts });
  }
  for (const weight of model.weights) {
    if (taken.has(weight)) continue;
    const plain = plainTensor(weight.source);
    const name = finder.widened.get(weight);
    result.push(name === undefined || names.has(name) ? plain : { ...plain, name });
  }
  return result;
}
