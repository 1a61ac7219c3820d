/**
 * Chooses nodes that are replaced once all their weights are codes: recurrent layers, the embeddings of transformers, and mixtures of experts.
 * Reference: github.com/microsoft/onnxruntime 103f80c, onnxruntime/python/tools/quantization/operators, onnxruntime/contrib_ops/{cpu,webgpu}/moe.
 * Tests run onnxruntime-web 1.30.0.
 */

import type { SearchedRange } from '../../../core/range.js';
import { canSearch, type DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import type { Weight } from '../file/model.js';
import { contrib, intOf } from '../file/proto.js';
import { linearForm } from '../forms.js';
import type { ReadingNode } from '../graph/graph.js';
import type { Reading } from '../graph/readers.js';
import type { TargetOf } from '../targets.js';
import { dividing, floatsRead, smallestBlock } from './blocks.js';
import type { Context, Experts, Together } from './decision.js';
import { bytesInForm, isSmaller, whyNotWorth } from './sizes.js';

/** Options for integer codes. */
export interface IntegerOptions {
  readonly signed: boolean;
  readonly symmetric: boolean;
  /** True if signed codes have 7 bits. */
  readonly reduced: boolean;
  readonly perChannel: boolean;
  readonly range: SearchedRange | undefined;
  /** True if a weight is float32, and its target is the same kind of codes. */
  asks(weight: Weight): boolean;
}

/** Weight inputs of an EmbedLayerNormalization: three tables, and scale and bias of the normalization. */
export const tableInputs: readonly number[] = [2, 3, 4, 5, 6];

/**
 * Weights at some inputs of a node, if they have no other readers and all shall become codes; undefined otherwise. Absent inputs are
 * skipped.
 */
function ownWeights(
  { graphs, decided }: Context,
  { node, graph }: ReadingNode,
  inputs: readonly number[],
  asks: (weight: Weight) => boolean,
): ReadonlyMap<number, Weight> | undefined {
  const found = new Map<number, Weight>();
  for (const input of inputs) {
    const name = node.inputs[input] ?? '';
    if (name === '') continue;
    const weight = graphs.weightAt(graph, name);
    if (weight === undefined || decided.has(weight) || !asks(weight)) return undefined;
    const isOwn = graphs.uses(graph, name).length === 1 && weight.graph === graph && !graphs.isOutput(graph, name);
    if (!isOwn || graphs.isShadowed(weight)) return undefined;
    found.set(input, weight);
  }
  return found;
}

/** Decides about all weights of the only reader of a weight; undefined if that node cannot compute with codes. */
export function decideTogether(
  context: Context,
  { source }: Weight,
  reader: ReadingNode,
  { perChannel, reduced, range, asks }: IntegerOptions,
): Together | undefined {
  const { node, input, path } = reader;
  const { opType, domain } = node;
  const isRecurrent = opType === 'LSTM' && domain === '' && (input === 1 || input === 2);
  const isEmbedding = opType === 'EmbedLayerNormalization' && domain === contrib && source.shape.length === 2;
  if (path.length > 0 || !(isRecurrent || isEmbedding)) return undefined;
  const found = ownWeights(context, reader, isRecurrent ? [1, 2] : tableInputs, asks);
  if (found === undefined) return undefined;
  const withForms = (form: (shape: readonly number[]) => DequantizeLinearForm) =>
    new Map([...found].map(([at, weight]) => [at, { weight, form: form(weight.source.shape) }]));
  // EmbedLayerNormalization: tables count as activations, unsigned and with a single scale.
  if (isEmbedding) {
    const wanted = { bits: 8, signed: false, symmetric: false, range } as const;
    const weights = withForms((shape) => linearForm(shape, undefined, wanted));
    const isTaken = weights.size >= 4 && node.outputs.length <= 2;
    return isTaken ? { kind: 'together', operator: 'EmbedLayerNormalization', reader, weights } : undefined;
  }
  // LSTM: products of integers, states of floats. A weight [directions, gates, inputs] has a scale for each gate, or for each direction.
  const weights = withForms((shape) => {
    const form: DequantizeLinearForm = {
      codec: 'dequantize-linear',
      bits: 8,
      signed: true,
      symmetric: true,
      ...(reduced ? { reduced } : {}),
      zeroPoint: true,
      sharing: 'rows',
      axis: perChannel ? 1 : 0,
      ...(perChannel ? { leading: true } : {}),
      scale: 'F32',
    };
    return range !== undefined && canSearch(shape, form) ? { ...form, range } : form;
  });
  const pays = [...weights.values()].every(
    ({ weight, form }) =>
      weight.source.shape.length === 3 &&
      whyNotWorth(context, weight, ['F32']) === undefined &&
      isSmaller(context, weight, form),
  );
  const isTaken = weights.size === 2 && intOf(node, 'layout', 0) === 0 && pays;
  return isTaken ? { kind: 'together', operator: 'LSTM', reader, weights } : undefined;
}

/** Inputs of a MoE with weights. Those of a third layer, which onnxruntime does not take, and its biases follow. */
const [first, second, third] = [2, 4, 6];

/** Decides about both weights of a mixture of experts; undefined if onnxruntime would not compute the same with codes. */
export function decideExperts(context: Context, reading: Reading, target: TargetOf<'blocks'>): Experts | undefined {
  const { choices, halves } = context;
  const { readers, leaves, open } = reading;
  const [reader] = readers;
  if (reader === undefined || readers.length > 1 || leaves || open !== undefined || reader.path.length > 0) {
    return undefined;
  }
  const { node, input } = reader;
  const { opType, domain, attributes } = node;
  const isGated = attributes.get('activation_type')?.s === 'swiglu';
  const isKnown =
    opType === 'MoE' &&
    domain === contrib &&
    (input === first || input === second) &&
    target.codec === 'matmul-nbits' &&
    target.bits !== 2 &&
    intOf(node, 'use_sparse_mixer', 0) === 0 &&
    node.inputs.slice(third).every((name) => name === '') &&
    (!isGated || intOf(node, 'swiglu_fusion', 0) === 1);
  if (!isKnown) return undefined;
  // Find both weights, and compare their shapes.
  const isWanted = (weight: Weight) =>
    context.targetOf(weight) === target && whyNotWorth(context, weight, target.takes) === undefined;
  const weights = ownWeights(context, reader, [first, second], isWanted);
  const [up, down] = [weights?.get(first), weights?.get(second)];
  if (weights === undefined || up === undefined || down === undefined || up.source.dtype !== down.source.dtype) {
    return undefined;
  }
  const [experts, rows, hidden = 0, ...more] = up.source.shape;
  const inner = down.source.shape[2] ?? 0;
  const fits = down.source.shape.join() === [experts, hidden, inner].join() && rows === (isGated ? 2 : 1) * inner;
  // Choose the form: one block size for both, and the type that the node reads.
  const blockSize = fits ? dividing(inner, dividing(hidden, choices.blockSize ?? target.blockSize)) : 0;
  if (more.length > 0 || blockSize < smallestBlock) return undefined;
  const form: MatMulNBitsForm = {
    codec: 'matmul-nbits',
    bits: target.bits,
    blockSize,
    zeroPoint: false,
    transposed: true,
    scale: floatsRead(reading) === 'F16' || halves?.has(node) === true ? 'F16' : 'F32',
    ...(choices.range === 'mse' ? { range: 'mse' } : {}),
  };
  const pays = [up, down].every((weight) => bytesInForm(context, weight, form) < weight.source.bytes);
  return pays ? { kind: 'experts', operator: 'MoE', reader, weights, form } : undefined;
}
