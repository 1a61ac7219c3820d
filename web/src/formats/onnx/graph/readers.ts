/** Describes the readers of a weight, and the axis of its channels. */
import type { Weight } from '../file/model.js';
import { contrib, findInts, intOf, onnxTypeNumber } from '../file/proto.js';
import { type Followed, type Graphs, isConstant, isMover, type ReadingNode, type Use, type Value } from './graph.js';
import { typeRead } from './products.js';

/** A letter of an Einsum's equation, or an ellipsis. */
const term = /[a-zA-Z]|\.\.\./g;

/** Axes of weights by operator and input; `tensor` without channels. Negative axes count from the end. */
function axisIn({ node, input, path }: ReadingNode, shape: readonly number[]): number | 'tensor' | undefined {
  const { opType, domain } = node;
  if (domain === 'com.microsoft') {
    if (opType === 'FusedMatMul' && input < 2) return input === 1 ? (intOf(node, 'transB', 0) ? -2 : -1) : -2;
    if (opType === 'Attention' && input === 1) return 1;
    if (opType === 'EmbedLayerNormalization' && input >= 2 && input <= 4) return 0;
    if (opType === 'FusedConv' && input === 1) return 0;
    if (opType === 'FusedGemm' && input === 1) return intOf(node, 'transB', 0) ? 0 : 1;
    // Weights of experts, [experts, outputs, inputs].
    if (opType === 'MoE' && (input === 2 || input === 4 || input === 6)) return 1;
  }
  if (domain !== '') return undefined;
  switch (opType) {
    case 'MatMul':
      return input === 1 ? -1 : -2;
    case 'Gemm':
      if (input === 0) return intOf(node, 'transA', 0) ? 1 : 0;
      return input === 1 ? (intOf(node, 'transB', 0) ? 0 : 1) : undefined;
    case 'Conv':
      return input === 1 ? 0 : undefined;
    case 'ConvTranspose':
      // Weights [input channels, output channels of a group, ...]. With many groups, more channels share the second index than the first.
      if (input !== 1) return undefined;
      return path.length === 0 && intOf(node, 'group', 1) > (shape[1] ?? 1) ? 0 : 1;
    case 'Gather':
      return input === 0 ? (intOf(node, 'axis', 0) === 0 ? 0 : 'tensor') : undefined;
    case 'LSTM':
    case 'GRU':
    case 'RNN':
      return input === 1 || input === 2 ? 1 : undefined;
    case 'Einsum': {
      // Take the last dimension that the output has, but no other input. Without an explicit output, it has the letters that occur once.
      const [left = '', right] = (node.attributes.get('equation')?.s ?? '').split('->');
      const inputs = left.split(',').map((text): readonly string[] => text.match(term) ?? []);
      const letters = inputs[input] ?? [];
      const others = new Set(inputs.flatMap((some, i) => (i === input ? [] : some)));
      const at = letters.findLastIndex(
        (letter) =>
          letter !== '...' &&
          letters.indexOf(letter) === letters.lastIndexOf(letter) &&
          !others.has(letter) &&
          (right === undefined || right.includes(letter)),
      );
      if (at < 0) return 'tensor';
      return letters.slice(0, at).includes('...') ? at - letters.length : at;
    }
    default:
      return undefined;
  }
}

/** Channel axis of a weight for a reader; undefined without channels, and for unknown readers. */
export function channelAxis(reader: ReadingNode, shape: readonly number[]): number | undefined {
  const axis = axisIn(reader, shape);
  if (typeof axis !== 'number') return undefined;
  // Map the axis that the reader sees to one of the weight.
  const rank = shape.length;
  let result = axis;
  for (const node of reader.path.toReversed()) {
    const { opType, domain } = node;
    // Calls of functions only rename the value.
    if (domain !== '' || opType === 'Identity' || opType === 'Cast') continue;
    if (opType === 'Transpose') {
      const perm = findInts(node, 'perm') ?? Array.from({ length: rank }, (_, i) => rank - 1 - i);
      const at = result < 0 ? perm.length + result : result;
      result = perm[at] ?? 0;
    } else if (opType === 'Reshape' || opType === 'Flatten') {
      // The first and the last dimension mostly stay in place.
      result = result === -1 || (result > 0 && result === rank - 1) ? -1 : 0;
    } else return 0;
  }
  return result < 0 ? Math.max(0, rank + result) : Math.min(result, rank - 1);
}

/** Channel axis of a weight; undefined for a single scale. */
export interface Channels {
  /** Operator that determines the axis. */
  readonly operator: string;
  readonly axis: number | undefined;
  /** Channel axis for codes with zero points. */
  readonly zeroPointAxis: number | undefined;
}

/** Facts about a weight from its graph. */
export interface Reading extends Followed {
  readonly weight: Weight;
  /** A reader with attributes of its function, whose axes are therefore unknown. */
  readonly open: ReadingNode | undefined;
  /** Channels; undefined if no reader computes along an axis. */
  readonly channels: Channels | undefined;
  /** Numbers of the element types that the readers see. */
  readonly types: ReadonlySet<number>;
}

/** True for readers in a function that is called with the value. They stay unchanged, since the function may have other callers. */
export function isCalled({ path }: ReadingNode): boolean {
  return path.some(({ domain }) => domain !== '');
}

/** True if all readers see a weight as float32: it is, or Casts widen or round it for them. */
export function isFloat32(graphs: Graphs, { graph, value, source: { dtype } }: Weight): boolean {
  if (dtype === 'F32') return true;
  if (dtype !== 'F16' && dtype !== 'BF16' && dtype !== 'F64') return false;
  const uses = graphs.uses(graph, value);
  const isCast = ({ node }: Use) =>
    node.opType === 'Cast' && node.domain === '' && intOf(node, 'to', 0) === onnxTypeNumber('F32');
  return uses.length > 0 && uses.every(isCast) && !graphs.isOutput(graph, value);
}

/** Longest way through factors. */
const mostFactors = 4;

/** Readers behind products and quotients with other constants: a weight of weight normalization is divided by its norm. */
function behindFactors(graphs: Graphs, readers: readonly ReadingNode[], steps = 0): ReadingNode[] {
  if (steps === mostFactors) return [];
  return readers.flatMap(({ node, graph: inside, input }) => {
    const isFactor = node.domain === '' && (node.opType === 'Mul' || (node.opType === 'Div' && input === 0));
    if (!isFactor || !isFixed(graphs, graphs.valueAt(inside, node.inputs[1 - input] ?? ''))) return [];
    const behind = graphs.readers({ graph: inside, value: node.outputs[0] ?? '' });
    return [...behind, ...behindFactors(graphs, behind, steps + 1)];
  });
}

/** True if a value is computed from constants alone. */
function isFixed(graphs: Graphs, value: Value | undefined, steps = 0): boolean {
  if (value === undefined || steps > 4 * mostFactors) return false;
  if (isConstant(value)) return true;
  const { producer: node, graph } = value;
  if (node === undefined || node.domain !== '' || node.inputs.length === 0) return false;
  return node.inputs.every((name) => name === '' || isFixed(graphs, graphs.valueAt(graph, name), steps + 1));
}

/** Collects the facts about a weight from its graph. */
export function readingOf(graphs: Graphs, weight: Weight): Reading {
  const { shape, dtype } = weight.source;
  const followed = graphs.follow(weight);
  const { readers } = followed;
  // Find a reader whose axes depend on attributes of its function, which are unknown. Factors do not affect the axes of called functions.
  const open = readers.find((reader) => {
    const factors = isCalled(reader) ? ['alpha', 'beta'] : [];
    return [reader.node, ...reader.path].some(({ attributes }) =>
      [...attributes.values()].some(({ name, refers }) => refers && !factors.includes(name)),
    );
  });
  const isKnown = (reader: ReadingNode) => axisIn(reader, shape) !== undefined;
  const types = new Set(readers.map((reader) => typeRead(reader, dtype)));
  const first =
    open === undefined ? (readers.find(isKnown) ?? behindFactors(graphs, readers).find(isKnown)) : undefined;
  if (first === undefined) return { ...followed, weight, open, channels: undefined, types };
  // onnxruntime 1.30 fails to multiply two weights if the first has a zero point for each row.
  const { node, input, graph } = first;
  const isLeft = node.opType === 'MatMul' && node.domain === '' && input === 0;
  const isLeftOfWeight = isLeft && graphs.weightAt(graph, node.inputs[1] ?? '') !== undefined;
  const axis = channelAxis(first, shape);
  const channels = { operator: node.opType, axis, zeroPointAxis: isLeftOfWeight ? undefined : axis };
  return { ...followed, weight, open, channels, types };
}

// ------------------------------------------------------------------------------------------------------------------------- scales

const codeTypes: readonly string[] = ['I8', 'U8', 'I4', 'U4', 'I2', 'U2'];

/** Longest way from codes to the product with their scales. */
const mostScaleSteps = 16;

/** True if a value is made of stored codes alone. */
function isFromCodes(graphs: Graphs, value: Value | undefined, steps = 0): boolean {
  if (value === undefined || steps > mostScaleSteps) return false;
  const { weight, producer: node, graph } = value;
  if (weight !== undefined) return codeTypes.includes(weight.source.dtype);
  if (node === undefined || node.domain !== '') return false;
  const from = (input: number) => isFromCodes(graphs, graphs.valueAt(graph, node.inputs[input] ?? ''), steps + 1);
  if (node.opType === 'Gather') return from(0) || from(1);
  return (isMover(node) || node.opType === 'Sub') && from(0);
}

/** Operators of onnxruntime with scales of codes among their inputs. */
const withScales: readonly string[] = ['MatMulNBits', 'MatMulBnb4', 'GatherBlockQuantized', 'QMoE'];

/** The operator that takes a tensor as scales or values of codes; undefined if others read it. */
export function operatorOfScales(graphs: Graphs, weight: Weight): string | undefined {
  const { readers, leaves } = graphs.follow(weight);
  const takesScales = ({ node, graph, input }: ReadingNode) => {
    if (node.domain === contrib) return withScales.includes(node.opType);
    if (node.domain !== '' || node.opType !== 'Gather' || input !== 0) return false;
    if (isFromCodes(graphs, graphs.valueAt(graph, node.inputs[1] ?? ''))) return true;
    const behind = graphs.readers({ graph, value: node.outputs[0] ?? '' });
    const isRestoring = ({ node: product, graph: inside, input: at }: ReadingNode) => {
      const other = graphs.valueAt(inside, product.inputs[1 - at] ?? '');
      return product.domain === '' && product.opType === 'Mul' && isFromCodes(graphs, other);
    };
    return behind.length > 0 && behind.every(isRestoring);
  };
  const isTaken = !leaves && readers.length > 0 && readers.every(takesScales);
  return isTaken ? readers[0]?.node.opType : undefined;
}
