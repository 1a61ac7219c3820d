/**
 * Chooses nodes that are replaced once all their weights are codes: recurrent layers, and the embeddings of transformers.
 * Reference: github.com/microsoft/onnxruntime 103f80c, onnxruntime/python/tools/quantization/operators. Tests run onnxruntime-web 1.30.0.
 */

import type { SearchedRange } from '../../../core/range.js';
import { canSearch, type DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { Weight } from '../file/model.js';
import { contrib, intOf } from '../file/proto.js';
import { linearForm } from '../forms.js';
import type { ReadingNode } from '../graph/graph.js';
import type { Context, Together } from './decision.js';
import { isSmaller, whyNotWorth } from './sizes.js';

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

/**
 * Weights at some inputs of a node, if they have no other readers and all shall become codes; undefined otherwise. Absent inputs are
 * skipped.
 */
export function ownWeights(
  { graphs, decided }: Context,
  { node, graph }: ReadingNode,
  inputs: readonly number[],
  { asks }: Pick<IntegerOptions, 'asks'>,
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

/** The form of a recurrent weight [directions, gates, inputs]: a scale for each gate, or for each direction. */
function gatesForm(shape: readonly number[], { perChannel, reduced, range }: IntegerOptions): DequantizeLinearForm {
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
}

/** LSTM: products of integers, states of floats. */
function decideGates(context: Context, reader: ReadingNode, options: IntegerOptions): Together | undefined {
  const own = ownWeights(context, reader, [1, 2], options);
  if (own?.size !== 2 || intOf(reader.node, 'layout', 0) !== 0) return undefined;
  const weights = new Map(
    [...own].map(([input, weight]) => [input, { weight, form: gatesForm(weight.source.shape, options) }]),
  );
  const pays = [...weights.values()].every(
    ({ weight, form }) =>
      weight.source.shape.length === 3 &&
      whyNotWorth(context, weight, ['F32']) === undefined &&
      isSmaller(context, weight, form),
  );
  return pays ? { kind: 'together', operator: 'LSTM', reader, weights } : undefined;
}

/** Weight inputs of an EmbedLayerNormalization: three tables, and scale and bias of the normalization. */
export const tableInputs: readonly number[] = [2, 3, 4, 5, 6];

/** EmbedLayerNormalization: tables count as activations, unsigned and with a single scale. */
function decideTables(context: Context, reader: ReadingNode, options: IntegerOptions): Together | undefined {
  const own = ownWeights(context, reader, tableInputs, options);
  if (own === undefined || own.size < 4 || reader.node.outputs.length > 2) return undefined;
  const wanted = { bits: 8, signed: false, symmetric: false, range: options.range } as const;
  const weights = new Map(
    [...own].map(([input, weight]) => [input, { weight, form: linearForm(weight.source.shape, undefined, wanted) }]),
  );
  return { kind: 'together', operator: 'EmbedLayerNormalization', reader, weights };
}

/** Decides about all weights of the only reader of a weight; undefined if that node cannot compute with codes. */
export function decideTogether(
  context: Context,
  { source }: Weight,
  reader: ReadingNode,
  options: IntegerOptions,
): Together | undefined {
  const { node, input, path } = reader;
  if (path.length > 0) return undefined;
  const isRecurrent = node.opType === 'LSTM' && node.domain === '' && (input === 1 || input === 2);
  if (isRecurrent) return decideGates(context, reader, options);
  const isEmbedding = node.opType === 'EmbedLayerNormalization' && node.domain === contrib;
  return isEmbedding && source.shape.length === 2 ? decideTables(context, reader, options) : undefined;
}
