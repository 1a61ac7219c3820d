/**
 * Outliers in channels of norms. Activations that are quantized have one scale for all channels, so that a few large channels cost the others
 * their precision. The output of a norm that only products read may have its channels divided, where those of the weights are multiplied. All
 * factors are powers of two, so that floats give the same outputs, bit by bit.
 */
import { rangeError } from '../../../core/errors.js';
import { oneOf } from '../../../core/option-problem.js';
import type { FoldedNorm } from '../../run.js';
import { plainTensor } from '../../tensors.js';
import type { OnnxModel, Weight } from '../file/model.js';
import { contrib, intOf, type OnnxNode } from '../file/proto.js';
import { Graphs, type ReadingNode } from './graph.js';
import { transposes } from './products.js';

/** A value whose channels can be scaled. */
export interface ScalableNorm {
  /** Its name in the main graph. */
  readonly value: string;
  /** Number of channels, its last dimension. */
  readonly channels: number;
  /** Its factors and addends, one for each channel. */
  readonly vectors: readonly Weight[];
  /** The weights that it is multiplied with, and the dimension that holds the channels. */
  readonly matrices: ReadonlyMap<Weight, 0 | 1>;
}

/** Inputs of norms with a number for each channel of the first output. */
const vectorInputs: Readonly<Record<string, readonly number[]>> = {
  LayerNormalization: [1, 2],
  RMSNormalization: [1],
  SimplifiedLayerNormalization: [1],
  [`${contrib}.SimplifiedLayerNormalization`]: [1],
  [`${contrib}.SkipLayerNormalization`]: [2, 3],
  [`${contrib}.SkipSimplifiedLayerNormalization`]: [2],
};

/** Operators that keep the order of elements, and so the channel of each, if the last dimension is the same in the end. */
const inOrder: readonly string[] = ['Identity', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze'];

/** Finds the norms of the main graph that only products with own weights read. */
export function scalableNorms({ weights, proto: { graph } }: OnnxModel, graphs: Graphs): ScalableNorm[] {
  const isPlain = ({ source: { dtype }, made, node }: Weight) =>
    dtype === 'F32' && made === undefined && node?.attributes.has('value_floats') !== true;
  /** Weights that products alone read, by their readers. */
  const matrices = new Map<
    OnnxNode,
    { readonly weight: Weight; readonly along: 0 | 1; readonly readers: readonly ReadingNode[] }
  >();
  for (const weight of weights) {
    if (weight.source.shape.length !== 2 || !isPlain(weight)) continue;
    const { readers, leaves } = graphs.follow(weight);
    /** The dimension of the inputs for a reader; undefined if it computes otherwise. */
    const inputsOf = (reader: ReadingNode): 0 | 1 | undefined => {
      const { node, input, path } = reader;
      if (path.some(({ opType }) => opType === 'Cast') || intOf(node, 'transA', 0) !== 0) return undefined;
      const isAttention = node.domain === contrib && node.opType === 'Attention' && input === 1 && path.length === 0;
      const isTransposed = isAttention ? false : transposes(reader);
      return isTransposed === undefined ? undefined : isTransposed ? 1 : 0;
    };
    const [along, ...others] = new Set(readers.map(inputsOf));
    if (leaves || along === undefined || others.length > 0) continue;
    for (const { node } of readers) matrices.set(node, { weight, along, readers });
  }
  /** A weight of a number for each channel that a node alone reads. */
  const vectorOf = (node: OnnxNode, input: number): Weight | undefined => {
    const value = graphs.valueAt(graph, node.inputs[input] ?? '');
    const weight = value?.uses.length === 1 && !value.isOutput ? value.weight : undefined;
    return weight !== undefined && weight.source.shape.length === 1 && isPlain(weight) ? weight : undefined;
  };
  /** Factors and addends behind the output of a node, in one node or in two. */
  const vectorsOf = (node: OnnxNode): readonly (Weight | undefined)[] => {
    const { opType, domain, inputs } = node;
    const known = vectorInputs[domain === '' ? opType : `${domain}.${opType}`];
    if (known !== undefined) return known.filter((i) => (inputs[i] ?? '') !== '').map((i) => vectorOf(node, i));
    if (domain !== '' || (opType !== 'Mul' && opType !== 'Add')) return [];
    const at = vectorOf(node, 0) === undefined ? 1 : 0;
    const own = vectorOf(node, at);
    if (opType === 'Mul') return [own];
    const before = graphs.valueAt(graph, inputs[1 - at] ?? '');
    const isSum = before?.producer?.opType === 'Mul' && before.uses.length === 1 && !before.isOutput;
    return isSum ? [own, ...vectorsOf(before.producer as OnnxNode)] : [];
  };
  return graph.nodes.flatMap((node): ScalableNorm[] => {
    const vectors = vectorsOf(node);
    const [value = ''] = node.outputs;
    const channels = vectors[0]?.source.shape[0] ?? 0;
    if (channels < 2 || vectors.some((one) => one?.source.shape[0] !== channels)) return [];
    const { readers, leaves } = graphs.follow({ graph, value });
    const products = new Set(readers.map((reader) => reader.node));
    const found = [...products].map((product) => matrices.get(product));
    const isRead = (reader: ReadingNode) =>
      reader.input === 0 && reader.path.every(({ opType, domain }) => domain === '' && inOrder.includes(opType));
    const areOwn = found.every(
      (one) => one?.weight.source.shape[one.along] === channels && one.readers.every(({ node }) => products.has(node)),
    );
    if (leaves || found.length === 0 || !readers.every(isRead) || !areOwn) return [];
    const own = new Map(found.flatMap((one) => (one === undefined ? [] : [[one.weight, one.along] as const])));
    return [{ value, channels, vectors: vectors as Weight[], matrices: own }];
  });
}

/**
 * The model with folded norms. Its bytes are not changed: weights are made with the factors of their rows.
 * @throws RangeError if the norms are those of another model
 */
export function withFolds(model: OnnxModel, folds: readonly FoldedNorm[]): OnnxModel {
  const known = new Map(scalableNorms(model, new Graphs(model)).map((norm) => [norm.value, norm]));
  const made = new Map<Weight, Weight>();
  for (const [i, { value, exponents }] of folds.entries()) {
    const norm = known.get(value);
    if (norm?.channels !== exponents.length)
      throw rangeError(`foldOutliers[${i}].value`, oneOf([...known.keys()]), value);
    /** Makes a weight with a factor for each index of a dimension. */
    const scale = (weight: Weight, along: 0 | 1, sign: number) => {
      const { source } = weight;
      const factors = Float32Array.from(exponents, (exponent) => 2 ** (sign * exponent));
      const gathered = { width: source.shape.at(-1) ?? 1, [along === 0 ? 'rowFactors' : 'columnFactors']: factors };
      made.set(weight, { ...weight, made: { ...plainTensor(source), gathered } });
    };
    for (const vector of norm.vectors) scale(vector, 1, -1);
    for (const [matrix, along] of norm.matrices) scale(matrix, along, 1);
  }
  return { ...model, weights: model.weights.map((weight) => made.get(weight) ?? weight) };
}
