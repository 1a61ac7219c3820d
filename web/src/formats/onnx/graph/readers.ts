/** What nodes do with a weight, and along which axis its channels lie. */
import type { Weight } from '../file/model.js';
import { intOf, type OnnxNode } from '../file/proto.js';
import type { Followed, Graphs, Reader } from './graph.js';
import { typeRead } from './products.js';

/** A letter of an Einsum's equation, or an ellipsis. */
const term = /[a-zA-Z]|\.\.\./g;

/** The last dimension of an input of Einsum that its output has as well, and that no other input has. */
function freeAxis({ attributes }: OnnxNode, input: number): number | 'tensor' {
  const [left = '', right] = (attributes.get('equation')?.s ?? '').split('->');
  const inputs = left.split(',').map((text): readonly string[] => text.match(term) ?? []);
  const own = inputs[input] ?? [];
  const others = new Set(inputs.flatMap((letters, i) => (i === input ? [] : letters)));
  // If the equation does not say what comes out, it is what occurs once.
  const isFree = (letter: string) =>
    letter !== '...' &&
    own.indexOf(letter) === own.lastIndexOf(letter) &&
    !others.has(letter) &&
    (right === undefined || right.includes(letter));
  const at = own.findLastIndex(isFree);
  if (at < 0) return 'tensor';
  return own.slice(0, at).includes('...') ? at - own.length : at;
}

/**
 * ConvTranspose: weights of [input channels, output channels of a group, ...]. Of many groups, channels that share the second index are more
 * than those that share the first.
 */
function transposedAxis(node: OnnxNode, shape: readonly number[]): number {
  return intOf(node, 'group', 1) > (shape[1] ?? 1) ? 0 : 1;
}

/** Axes of weights by operator and input; `tensor` if there are no channels. Negative ones count from the end. */
function axisIn({ node, input, path }: Reader, shape: readonly number[]): number | 'tensor' | undefined {
  const { opType, domain } = node;
  if (domain === 'com.microsoft') {
    if (opType === 'FusedMatMul' && input < 2) return input === 1 ? (intOf(node, 'transB', 0) ? -2 : -1) : -2;
    if (opType === 'Attention' && input === 1) return 1;
    if (opType === 'EmbedLayerNormalization' && input >= 2 && input <= 4) return 0;
    if (opType === 'FusedConv' && input === 1) return 0;
    if (opType === 'FusedGemm' && input === 1) return intOf(node, 'transB', 0) ? 0 : 1;
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
      return input === 1 ? (path.length === 0 ? transposedAxis(node, shape) : 1) : undefined;
    case 'Gather':
      return input === 0 ? (intOf(node, 'axis', 0) === 0 ? 0 : 'tensor') : undefined;
    case 'LSTM':
    case 'GRU':
    case 'RNN':
      return input === 1 || input === 2 ? 1 : undefined;
    case 'Einsum':
      return freeAxis(node, input);
    default:
      return undefined;
  }
}

/** An axis of what a reader sees, as an axis of the weight. */
function axisBefore(path: readonly OnnxNode[], axis: number, rank: number): number {
  let result = axis;
  for (const node of path.toReversed()) {
    const { opType, domain, attributes } = node;
    // A call of a function gives a value another name.
    if (domain !== '' || opType === 'Identity' || opType === 'Cast') continue;
    if (opType === 'Transpose') {
      const perm = attributes.get('perm')?.ints ?? Array.from({ length: rank }, (_, i) => rank - 1 - i);
      const at = result < 0 ? perm.length + result : result;
      result = perm[at] ?? 0;
    } else if (opType === 'Reshape' || opType === 'Flatten') {
      // Wherever the other dimensions go, the first and the last one mostly stay.
      result = result === -1 || (result > 0 && result === rank - 1) ? -1 : 0;
    } else return 0;
  }
  return result < 0 ? Math.max(0, rank + result) : Math.min(result, rank - 1);
}

/** The axis of a weight along which a reader has channels; undefined if it has none, or is not known. */
export function channelAxis(reader: Reader, shape: readonly number[]): number | undefined {
  const axis = axisIn(reader, shape);
  return typeof axis === 'number' ? axisBefore(reader.path, axis, shape.length) : undefined;
}

/** The axis along which a weight has channels; undefined if everything has one scale. */
export interface Channels {
  /** The operator that the axis is for. */
  readonly operator: string;
  readonly axis: number | undefined;
  /** The same for codes with zero points. */
  readonly zeroPointAxis: number | undefined;
}

/** What a graph says about a weight. */
export interface Reading extends Followed {
  readonly weight: Weight;
  /** A reader some of whose attributes are those of the function that it is in, so that they say nothing about axes. */
  readonly open: Reader | undefined;
  /** Undefined if no reader computes along an axis. */
  readonly channels: Channels | undefined;
  /** Numbers of the types of elements that the readers take it for. */
  readonly types: ReadonlySet<number>;
}

/** Whether a reader multiplies two weights. onnxruntime 1.30 fails to run that if the first one has a zero point for each row. */
function isLeftOfWeight(graphs: Graphs, { node, input, graph }: Reader): boolean {
  const isProduct = node.opType === 'MatMul' && node.domain === '' && input === 0;
  return isProduct && graphs.weightAt(graph, node.inputs[1] ?? '') !== undefined;
}

/** Whether a reader is in a function that is called with the value. Then the node stays as it is, as others may call the function. */
export function isCalled({ path }: Reader): boolean {
  return path.some(({ domain }) => domain !== '');
}

/** Attributes that say nothing about axes. */
const factors: readonly string[] = ['alpha', 'beta'];

/** Whether attributes of the function that a node is in decide how it reads a weight. */
function isOpen(reader: Reader): boolean {
  const isLeft = isCalled(reader);
  return [reader.node, ...reader.path].some(({ attributes }) =>
    [...attributes.values()].some(({ name, refers }) => refers && !(isLeft && factors.includes(name))),
  );
}

/** Reads in a graph what nodes do with a weight. */
export function readingOf(graphs: Graphs, weight: Weight): Reading {
  const { shape } = weight.source;
  const followed = graphs.follow(weight);
  const open = followed.readers.find(isOpen);
  // An axis that depends on open attributes is unknown.
  const first = open === undefined ? followed.readers.find((reader) => axisIn(reader, shape) !== undefined) : undefined;
  const axis = first && channelAxis(first, shape);
  const channels = first && {
    operator: first.node.opType,
    axis,
    zeroPointAxis: isLeftOfWeight(graphs, first) ? undefined : axis,
  };
  const types = new Set(followed.readers.map((reader) => typeRead(reader, weight.source.dtype)));
  return { ...followed, weight, open, channels, types };
}
