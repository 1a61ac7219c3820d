/** Weights alone: codes that DequantizeLinear turns back into floats before they are used. */
import type { DequantizeLinearForm } from '../../../codecs/dequantize-linear.js';
import { canSearch } from '../../../codecs/dequantize-linear.js';
import type { SearchedRange } from '../../../core/range.js';
import { castNode, type NewNode, type NewTensor } from '../file/encode.js';
import type { Weight } from '../file/model.js';
import { type OnnxGraph, type OnnxNode, typeNumber } from '../file/proto.js';
import type { Reader } from '../graph/graph.js';
import { type Channels, intOf } from '../graph/readers.js';
import type { Builder } from './builder.js';

/** What decides about codes. */
export interface CodeOptions {
  readonly bits: 2 | 4 | 8;
  readonly signed: boolean;
  readonly symmetric: boolean;
  readonly blockSize?: number | undefined;
  readonly range?: SearchedRange | undefined;
  /** Whether codes of 8 bits become floats by Cast and Mul. */
  readonly casts?: boolean | undefined;
  /** Type of the scales, and of what codes become. Undefined: F32. */
  readonly scale?: 'F32' | 'F16' | undefined;
}

/** The form of codes with a scale for each index of an axis, or for blocks along it. */
export function linearForm(
  shape: readonly number[],
  axis: number | undefined,
  { bits, signed, symmetric, blockSize, range, scale = 'F32' }: CodeOptions,
): DequantizeLinearForm {
  const product = (dimensions: readonly number[]) => dimensions.reduce((all, n) => all * n, 1);
  let sharing: DequantizeLinearForm['sharing'] = 'tile';
  if (axis !== undefined) {
    const isLast =
      product(shape.slice(axis + 1)) === 1 && (blockSize !== undefined || product(shape.slice(0, axis)) > 1);
    if (blockSize !== undefined) sharing = isLast ? 'rowBlocks' : 'columnBlocks';
    else sharing = isLast ? 'columns' : 'rows';
  }
  const form = { codec: 'dequantize-linear', bits, signed, symmetric, sharing, axis, blockSize, scale } as const;
  // Symmetric codes with a sign have the zero point that is meant if there is none.
  const whole: DequantizeLinearForm = { ...form, zeroPoint: !(symmetric && signed) };
  return range !== undefined && canSearch(shape, whole) ? { ...whole, range } : whole;
}

/** Bytes that a form adds to a file besides its parts, roughly: the messages of tensors, and a node. */
const framing = 150;

/** Whether a weight takes fewer bytes in a form. */
export function isSmaller(builder: Builder, weight: Weight, form: DequantizeLinearForm): boolean {
  return builder.parts(weight, form).reduce((sum, { bytes }) => sum + bytes, framing) < weight.source.bytes;
}

/** The operator in some domain that reads codes with a form's scales; undefined if there is none. */
export function dequantizer(
  builder: Builder,
  { graph }: Weight,
  { bits, axis, blockSize, scale }: DequantizeLinearForm,
): string | undefined {
  const isHalf = scale === 'F16';
  const ofFloats = isHalf ? 19 : axis === undefined ? 10 : 13;
  const needed = bits === 2 ? 25 : bits === 4 || blockSize !== undefined ? 21 : ofFloats;
  if (builder.raise(graph, needed)) return '';
  return blockSize === undefined && bits !== 2 && !isHalf ? builder.importContrib(graph) : undefined;
}

/** Readers that look up rows of a table, or slices along another axis if everything has one scale. No Gather takes fewer bits. */
function lookups(
  { value }: Weight,
  { bits, axis, blockSize }: DequantizeLinearForm,
  { readers }: Channels,
): readonly Reader[] {
  if (bits !== 8 || blockSize !== undefined || (axis !== undefined && axis !== 0)) return [];
  return readers.filter(
    ({ node, input, path }) =>
      path.length === 0 &&
      input === 0 &&
      node.opType === 'Gather' &&
      node.domain === '' &&
      node.inputs[0] === value &&
      (axis === undefined || intOf(node, 'axis', 0) === axis),
  );
}

/** Operators whose weights are matrices, one or several: they sum over the last dimension, or over the one before it. */
const ofMatrices: readonly string[] = ['MatMul', 'FusedMatMul', 'LSTM', 'GRU', 'RNN'];

/** Blocks lie along the axis that a product sums over. Of several matrices, that has to hold a block. */
function blockAxis(shape: readonly number[], { opType, axis }: Channels, blockSize: number): number | undefined {
  const rank = shape.length;
  if (axis === undefined || axis < rank - 2) return undefined;
  const summed = 2 * rank - 3 - axis;
  return rank === 2 || (ofMatrices.includes(opType) && (shape[summed] as number) >= blockSize) ? summed : undefined;
}

/** Stores a weight as codes. Returns why not, if that is not possible. */
export function dequantizeWeight(
  builder: Builder,
  weight: Weight,
  channels: Channels,
  asked: CodeOptions,
): string | undefined {
  const { shape, dtype } = weight.source;
  const options: CodeOptions = { ...asked, scale: dtype === 'F16' ? 'F16' : 'F32' };
  const hasZeroPoints = !(options.symmetric && options.signed);
  const channelAxis = hasZeroPoints ? channels.zeroPointAxis : channels.axis;
  const axis = options.blockSize === undefined ? channelAxis : blockAxis(shape, channels, options.blockSize);
  if (options.blockSize !== undefined && axis === undefined) return `${shape.length}-D`;
  let form = linearForm(shape, axis, options);
  if (!isSmaller(builder, weight, form)) {
    form = linearForm(shape, undefined, { ...options, blockSize: undefined });
    if (!isSmaller(builder, weight, form)) return 'not smaller';
  }
  const { graph, value } = weight;
  const gathered = lookups(weight, form, channels);
  const uses = builder.graphs.uses(graph, value);
  const isTable = gathered.length > 0 && gathered.length === uses.length && !builder.graphs.isOutput(graph, value);
  const casts = options.casts === true && form.bits === 8 && !isTable;
  // Integers are cast to floats since opset 6, and numbers are broadcast since 7.
  const domain = isTable || (casts && builder.raise(graph, 7)) ? '' : dequantizer(builder, weight, form);
  if (domain === undefined) return builder.obstacle(graph);

  // Rows of a table are gathered together with their scales, which therefore have dimensions to spare.
  const broadcast = form.axis === undefined ? [] : shape.map((n, i) => (i === form.axis ? n : 1));
  const setShape = isTable || casts ? broadcast : undefined;
  const names = storeCodes(builder, weight, form, setShape);
  if (isTable) for (const reader of gathered) gatherCodes(builder, reader, form, names);
  else if (casts) addCast(builder, weight, form, names);
  else addDequantize(builder, weight, form, names, domain);
  return undefined;
}

/** Names of codes and of what belongs to them. */
export interface CodeNames {
  readonly codes: string;
  readonly scale: string;
  readonly zeroPoint: string | undefined;
}

/** Puts codes, scales and zero points in the place of a weight. */
export function storeCodes(
  builder: Builder,
  weight: Weight,
  form: DequantizeLinearForm,
  setShape?: readonly number[],
): CodeNames {
  const { value } = weight;
  const index = builder.convert(weight, form);
  const names = {
    codes: builder.graphs.freshValue(`${value}_quantized`),
    scale: builder.graphs.freshValue(`${value}_scale`),
    zeroPoint: form.zeroPoint ? builder.graphs.freshValue(`${value}_zero_point`) : undefined,
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

/** The rank of what a node makes of a tensor whose elements it moves; undefined if that is not known. */
function rankBehind({ graphs }: Builder, graph: OnnxGraph, node: OnnxNode, rank: number): number | undefined {
  const { opType, inputs, attributes } = node;
  /** How many integers the attribute or the constant holds that says where dimensions go. */
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

/** Adds the node that makes floats of codes, under the name of the weight. */
export function addDequantize(
  builder: Builder,
  weight: Weight,
  { axis, blockSize }: DequantizeLinearForm,
  { codes, scale, zeroPoint }: CodeNames,
  domain: string,
): void {
  const { graph, value, node } = weight;
  for (const { path, graph: inside } of builder.graphs.readers(weight)) {
    let rank: number | undefined = weight.source.shape.length;
    for (const node of path) {
      // Functions may be called with other ranks.
      if (rank === undefined || node.domain !== '') break;
      builder.spellOut(node, rank);
      rank = rankBehind(builder, inside, node, rank);
    }
  }
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

/** Adds nodes that make floats of codes and that onnxruntime carries out when it loads the model. */
function addCast(
  builder: Builder,
  weight: Weight,
  { scale: type }: DequantizeLinearForm,
  { codes, scale, zeroPoint }: CodeNames,
): void {
  const { graph, value, node } = weight;
  const fresh = (what: string) => builder.graphs.freshValue(`${value}_${what}`);
  const cast = (from: string, to: string) => castNode(from, to, typeNumber(type));
  const floats = fresh('floats');
  const nodes = [cast(codes, floats)];
  let centered = floats;
  if (zeroPoint !== undefined) {
    const zero = fresh('zero_float');
    centered = fresh('centered');
    nodes.push(cast(zeroPoint, zero), { opType: 'Sub', name: centered, inputs: [floats, zero], outputs: [centered] });
  }
  const output = builder.floatName(weight);
  nodes.push({ opType: 'Mul', name: `${value}_Mul`, inputs: [centered, scale], outputs: [output] });
  builder.addNodes({ graph, before: node }, nodes);
}

/** Gathers codes and scales in place of floats: a DequantizeLinear in front would restore the whole table at every run. */
function gatherCodes(
  builder: Builder,
  { node, graph }: Reader,
  { scale: type, axis: channels }: DequantizeLinearForm,
  names: CodeNames,
): void {
  const [, indices = ''] = node.inputs;
  const [output = ''] = node.outputs;
  const fresh = (what: string) => builder.graphs.freshValue(`${output}_${what}`);
  const position = { graph, before: node };
  const axis = intOf(node, 'axis', 0);
  const gather = (from: string, to: string): NewNode => {
    return { opType: 'Gather', name: to, inputs: [from, indices], outputs: [to], attributes: { axis } };
  };
  const cast = (from: string, to: string) => castNode(from, to, typeNumber(type));
  const two = (opType: string, a: string, b: string, to: string): NewNode => {
    return { opType, name: to, inputs: [a, b], outputs: [to] };
  };
  const nodes: NewNode[] = [];
  /** What is gathered of a tensor; all of it if it is one number. */
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
