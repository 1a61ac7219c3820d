/** Finds codes among the tensors of a model, and their scales, by the nodes that read them. */
import { type DequantizeLinearForm, isReadable } from '../../codecs/dequantize-linear.js';
import type { MatMulBnb4Form } from '../../codecs/matmul-bnb4.js';
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import type { LogicalTensor } from '../../format.js';
import { elementCount, plainTensor } from '../../tensors.js';
import type { OnnxModel, Weight } from '../file/model.js';
import { contrib, intOf, type OnnxGraph, onnxTypeNumber } from '../file/proto.js';
import { linearForm } from '../forms.js';
import { Graphs, type NodeInGraph } from './graph.js';
import { swaps, transposes } from './products.js';

/** Codes, their scales and zero points. */
interface StoredCodes {
  readonly name: string;
  readonly data: Weight;
  readonly scale: Weight | undefined;
  readonly zeroPoint: Weight | undefined;
}

/** Codes and the tensor that they form. */
interface FoundCodes extends StoredCodes {
  readonly shape: readonly number[];
  readonly form: DequantizeLinearForm | MatMulNBitsForm | MatMulBnb4Form;
  readonly scale: Weight;
  readonly turned?: LogicalTensor['turned'];
  readonly isTurned?: boolean;
}

/** Longest way from the codes of a table to its rows. */
const mostTableSteps = 16;

/** True if a tensor has as many elements as the product of `sizes`. */
function hasElements({ source }: Weight, sizes: readonly number[]): boolean {
  return elementCount(source.shape) === sizes.reduce((product, n) => product * n, 1);
}

/** Codes with scales of DequantizeLinear; undefined if sizes do not match, or if they cannot be read in tiles. */
function linearCodes(
  stored: StoredCodes,
  wanted: {
    readonly axis: number;
    readonly leading?: boolean;
    readonly blockSize?: number | undefined;
    readonly symmetric: boolean;
  },
): FoundCodes | undefined {
  const { data, scale, zeroPoint } = stored;
  const { shape, dtype } = data.source;
  const [, sign, bits] = /^([IU])([248])$/.exec(dtype) ?? [];
  const type = scale?.source.dtype;
  if (scale === undefined || bits === undefined || (type !== 'F32' && type !== 'F16')) return undefined;
  // Compare the scales and zero points with one for all, each index of the axis, or each block.
  const axis = wanted.axis < 0 ? wanted.axis + shape.length : wanted.axis;
  const isOne = hasElements(scale, [1]);
  const size = shape[axis];
  const { blockSize, leading, symmetric } = wanted;
  const sets = leading ? shape.slice(0, axis + 1) : [size ?? 0];
  const blocks = shape.map((n, i) => (i === axis ? Math.ceil(n / (blockSize ?? n)) : n));
  if (!isOne && (size === undefined || !hasElements(scale, blockSize === undefined ? sets : blocks))) return undefined;
  if (zeroPoint && (zeroPoint.source.dtype !== dtype || !hasElements(zeroPoint, scale.source.shape))) return undefined;
  const options = { bits: Number(bits) as 2 | 4 | 8, signed: sign === 'I', symmetric };
  const form = isOne ? linearForm(shape, undefined, options) : linearForm(shape, axis, { ...options, blockSize });
  const sharing = leading && !isOne ? ({ sharing: 'rows', leading: true } as const) : {};
  const whole = { ...form, ...sharing, zeroPoint: zeroPoint !== undefined, scale: type } as const;
  return isReadable(shape, whole) ? { ...stored, scale, shape, form: whole } : undefined;
}

/** Codes in blocks along the last dimension of a shape; undefined if sizes do not match. */
function blockCodes(
  stored: StoredCodes,
  shape: readonly number[],
  { bits, blockSize, takesFloats = false }: { bits: number; blockSize: number; takesFloats?: boolean },
): (FoundCodes & { readonly form: MatMulNBitsForm }) | undefined {
  const { scale, zeroPoint } = stored;
  const type = scale?.source.dtype;
  if (scale === undefined || (bits !== 2 && bits !== 4 && bits !== 8) || (type !== 'F32' && type !== 'F16')) {
    return undefined;
  }
  const leading = shape.slice(0, -1);
  const blocks = Math.ceil((shape.at(-1) ?? 0) / blockSize);
  const isFloat = takesFloats && zeroPoint?.source.dtype === type && bits !== 8;
  const isKnown = isFloat || zeroPoint === undefined || zeroPoint.source.dtype === 'U8';
  const zeros = isFloat ? blocks : Math.ceil((blocks * bits) / 8);
  if (!hasElements(scale, [...leading, blocks]) || !isKnown) return undefined;
  if (zeroPoint !== undefined && !hasElements(zeroPoint, [...leading, zeros])) return undefined;
  const form: MatMulNBitsForm = {
    codec: 'matmul-nbits',
    bits,
    blockSize,
    zeroPoint: zeroPoint !== undefined,
    ...(isFloat ? { floatZeroPoint: true } : {}),
    transposed: true,
    scale: type,
  };
  return { ...stored, scale, shape, form };
}

/** Name of the weight that codes encode. */
function nameWithout({ source }: Weight, end: string): string {
  return source.name.endsWith(end) ? source.name.slice(0, -end.length) : source.name;
}

/** Prefix of a tensor's name before that of its value. */
function prefixOf({ source, value }: Weight): string {
  return source.name.slice(0, source.name.length - value.length);
}

/** True if products read a matrix as its transpose. */
function isReadTurned(graphs: Graphs, graph: OnnxGraph, value: string): boolean {
  return graphs.readers({ graph, value }).some((reader) => {
    const { node, input, path } = reader;
    const isInteger = node.opType === 'MatMulInteger' && input === 1 && swaps(path) === true;
    return isInteger || transposes(reader) === true;
  });
}

/** Codes that a node reads, with their scales. */
function codesReadBy(
  graphs: Graphs,
  { node, graph }: NodeInGraph,
  weights: readonly (Weight | undefined)[],
): FoundCodes[] {
  const { opType, domain } = node;
  const [first, second, third, fourth] = weights;
  const [output = ''] = node.outputs;
  if (opType === 'DequantizeLinear' && first && (node.inputs[2] === undefined) === (third === undefined)) {
    const stored = { name: prefixOf(first) + output, data: first, scale: second, zeroPoint: third };
    const blockSize = intOf(node, 'block_size', 0) || undefined;
    const found = linearCodes(stored, { axis: intOf(node, 'axis', 1), blockSize, symmetric: false });
    return found === undefined ? [] : [{ ...found, isTurned: isReadTurned(graphs, graph, output) }];
  }
  if (domain !== contrib) return [];
  if (opType === 'GatherBlockQuantized' && first !== undefined) {
    const stored = { name: prefixOf(first) + first.value, data: first, scale: third, zeroPoint: fourth };
    const { dtype, shape } = first.source;
    const [bits, blockSize] = [intOf(node, 'bits', 4), intOf(node, 'block_size', 128)];
    // Codes of uint8 lie side by side along rows, whose zero points are packed, too.
    const [n = 0, bytes = 0, ...others] = shape;
    const columns = (bytes * 8) / bits;
    const isWhole = others.length === 0 && columns % blockSize === 0;
    const packed = isWhole ? blockCodes(stored, [n, columns], { bits, blockSize }) : undefined;
    const wanted = { axis: intOf(node, 'quantize_axis', 1), blockSize, symmetric: false };
    const found = dtype === 'U8' ? packed : linearCodes(stored, wanted);
    return found === undefined ? [] : [found];
  }
  if (opType === 'QMoE') {
    // Layers are [experts, rows, columns] with blocks along the columns.
    const [bits, blockSize] = [intOf(node, 'expert_weight_bits', 4), intOf(node, 'block_size', 0)];
    const isPlain =
      (node.attributes.get('quant_type')?.s ?? 'int') === 'int' && intOf(node, 'weights_prepacked', 0) <= 0;
    if ((bits !== 4 && bits !== 8) || blockSize < 16 || !isPlain) return [];
    return [0, 1, 2].flatMap((layer) => {
      const [data, scale, zeroPoint] = [weights[2 + 3 * layer], weights[3 + 3 * layer], weights[11 + layer]];
      if (data?.source.dtype !== 'U8') return [];
      const [experts = 0, rows = 0, bytes = 0, ...more] = data.source.shape;
      const columns = (bytes * 8) / bits;
      const isStored = (node.inputs[11 + layer] ?? '') === '' || zeroPoint !== undefined;
      if (more.length > 0 || columns % blockSize !== 0 || !isStored) return [];
      const stored = { name: nameWithout(data, `_Q${bits}`), data, scale, zeroPoint };
      return blockCodes(stored, [experts, rows, columns], { bits, blockSize }) ?? [];
    });
  }
  // Read the sizes of a matrix in blocks.
  const [k, n, blockSize] = ['K', 'N', 'block_size'].map((name) => intOf(node, name, 0)) as [number, number, number];
  if (second === undefined || third === undefined || !(k > 0 && n > 0 && blockSize >= 16)) return [];
  if (opType === 'MatMulBnb4') {
    const isPlain = intOf(node, 'quant_type', 1) === 1 && k % blockSize === 0 && third.source.dtype === 'F32';
    if (!isPlain || !hasElements(second, [k * n * 0.5]) || !hasElements(third, [(k * n) / blockSize])) return [];
    const form: MatMulBnb4Form = { codec: 'matmul-bnb4', blockSize, transposed: false };
    const turned = { shape: [n, k], form: { ...form, transposed: true } };
    const stored = { name: nameWithout(second, '_Bnb4'), data: second, scale: third, zeroPoint: undefined };
    return [{ ...stored, shape: [k, n], form, turned }];
  }
  if (opType !== 'MatMulNBits') return [];
  const bits = intOf(node, 'bits', 4);
  const stored = { name: nameWithout(second, `_Q${bits}`), data: second, scale: third, zeroPoint: fourth };
  const isWhole = hasElements(second, [n, Math.ceil(k / blockSize), (blockSize * bits) / 8]);
  const turned = isWhole ? blockCodes(stored, [n, k], { bits, blockSize, takesFloats: true }) : undefined;
  if (turned === undefined) return [];
  return [
    {
      ...turned,
      shape: [k, n],
      form: { ...turned.form, transposed: false },
      turned: { shape: [n, k], form: turned.form },
    },
  ];
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

/** Codes whose scales are applied later, and found by name: integers that are multiplied, and blocks of a table with row look-ups. */
function codesByName(graphs: Graphs, byName: ReadonlyMap<string, Weight>, data: Weight): FoundCodes | undefined {
  const { name: stored, dtype, shape } = data.source;
  if (!/_(quantized|Q[248])$/.test(stored)) return undefined;
  const readers = graphs.readers(data);
  const reader = readers.find(({ node }) => node.opType.endsWith('Integer') || integerReaders.includes(node.opType));
  if (stored.endsWith('_quantized') && (dtype === 'I8' || dtype === 'U8') && reader !== undefined) {
    const { node, path } = reader;
    const name = nameWithout(data, '_quantized');
    const [scale, zeroPoint] = [byName.get(`${name}_scale`), byName.get(`${name}_zero_point`)];
    const symmetric = dtype === 'U8' && zeroPoint === undefined;
    const leading = node.opType === 'DynamicQuantizeLSTM' && scale?.source.shape.length === 2;
    // Find the channels: scales that are multiplied have the weight's rank.
    let axis = 0;
    if (node.opType === 'Mul' || node.opType === 'Sub') axis = scale?.source.shape.findIndex((n) => n > 1) ?? 0;
    else if (node.opType === 'QAttention' || leading) axis = 1;
    else if (node.opType === 'MatMulInteger' && !swaps(path)) axis = shape.length - 1;
    const found = linearCodes({ name, data, scale, zeroPoint }, { axis: Math.max(0, axis), leading, symmetric });
    return found && { ...found, isTurned: isReadTurned(graphs, data.graph, data.value) };
  }
  const [, name = '', digits] = /^(.*)_Q([248])$/s.exec(stored) ?? [];
  const [n = 0, blocks = 0, bytes = 0, ...others] = shape;
  const isTable = readers.some(({ node, input }) => node.opType === 'Gather' && input === 0);
  if (digits === undefined || dtype !== 'U8' || others.length > 0 || n * blocks * bytes === 0 || !isTable)
    return undefined;
  const bits = Number(digits);
  const blockSize = (bytes * 8) / bits;
  const parts = { name, data, scale: byName.get(`${name}_scales`), zeroPoint: byName.get(`${name}_zero_points`) };
  const found = blockCodes(parts, [n, blocks * blockSize], { bits, blockSize });
  // A last block that is filled up has fewer columns: those that a Gather behind the product with the scales keeps.
  let uses = graphs.uses(data.graph, data.value);
  for (let i = 0; found && i < mostTableSteps && uses[0] !== undefined; i++) {
    const { node, graph } = uses[0];
    if (node.opType === 'Gather' && intOf(node, 'axis', 0) === -1) {
      const columns = graphs.weightAt(graph, node.inputs[1] ?? '')?.source.shape[0];
      return columns === undefined ? found : { ...found, shape: [n, columns] };
    }
    uses = graphs.uses(graph, node.outputs[0] ?? '');
  }
  return found;
}

/** Tensors of a model, codes together with their scales. Codes with several readers appear once. */
export function onnxLogicalTensors(model: OnnxModel): LogicalTensor[] {
  const graphs = new Graphs(model);
  const codes: FoundCodes[] = [];
  /** Names of 16-bit floats after a Cast has widened them. */
  const widened = new Map<Weight, string>();
  for (const placed of graphs.nodes) {
    const { node, graph } = placed;
    const weights = node.inputs.map((name) => (name === '' ? undefined : graphs.weightAt(graph, name)));
    const [first] = weights;
    if (node.opType === 'Cast' && first?.source.dtype === 'F16' && intOf(node, 'to', 0) === onnxTypeNumber('F32')) {
      widened.set(first, prefixOf(first) + (node.outputs[0] ?? ''));
    }
    codes.push(...codesReadBy(graphs, placed, weights));
  }
  const byName = new Map(model.weights.map((weight) => [weight.source.name, weight]));
  for (const weight of model.weights) {
    const found = codesByName(graphs, byName, weight);
    if (found !== undefined) codes.push(found);
  }
  const taken = new Set<Weight>();
  const names = new Set<string>();
  const result: LogicalTensor[] = [];
  for (const { name, shape, form, data, scale, zeroPoint, turned, isTurned } of codes) {
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
    const isTurned = weight.source.shape.length === 2 && isReadTurned(graphs, weight.graph, weight.value);
    const plain = { ...(weight.made ?? plainTensor(weight.source)), ...(isTurned ? { isTurned } : {}) };
    const name = widened.get(weight);
    result.push(name === undefined || names.has(name) ? plain : { ...plain, name });
  }
  return result;
}
