/**
 * Decides about weights of static quantization: codes that are restored to floats, and integers for the activations around their products, with
 * ranges that were measured before. Runtimes fuse the restored floats and the products to products of integers.
 * Reference: github.com/microsoft/onnxruntime 1.20, onnxruntime/python/tools/quantization/qdq_quantizer.py. Tests run onnxruntime-web 1.30.0.
 */

import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { ActivationRanges } from '../../statistics.js';
import type { Weight } from '../file/model.js';
import { floatOf } from '../file/proto.js';
import { type StaticProduct, selectedFrom, staticProduct } from '../graph/activations.js';
import type { Constants } from '../graph/constants.js';
import type { Graphs } from '../graph/graph.js';
import type { Channels, Reading } from '../graph/readers.js';
import type { TargetOf } from '../targets.js';
import type { Context, Dequantizer, WeightDecision } from './decision.js';
import { restoredOf } from './restored.js';

/** Scale and zero point of an activation, as uint8. */
export interface ActivationCodes {
  readonly scale: number;
  readonly zeroPoint: number;
}

/** A product whose activations become integers. */
export interface StaticDecision {
  readonly product: StaticProduct;
  /** Form of the weight. */
  readonly form: DequantizeLinearForm;
  readonly dequantizer: Dequantizer;
  readonly input: ActivationCodes | undefined;
  readonly output: ActivationCodes | undefined;
}

/** Decides about a weight of static quantization. */
export function decideStatic(context: Context, reading: Reading, { signed }: TargetOf<'static'>): WeightDecision {
  const range = context.choices.range === 'min-max' ? undefined : context.choices.range;
  // Products of integers with several matrices have a single scale.
  const { weight, readers } = reading;
  const isBatched = weight.source.shape.length > 2 && readers.some(({ node }) => node.opType === 'MatMul');
  const channels = reading.channels as Channels;
  const one = { ...reading, channels: { ...channels, axis: undefined, zeroPointAxis: undefined } };
  return restoredOf(context, isBatched ? one : reading, { bits: 8, signed, symmetric: signed, range }, false);
}

/**
 * uint8 codes for a range, which is widened to hold 0: scale (max - min) / 255, zero point round(-min / scale). A range of 0 alone has the
 * scale 1.
 */
function codesOf([least, largest]: readonly [number, number]): ActivationCodes {
  const [low, high] = [Math.min(0, least), Math.max(0, largest)];
  const scale = Math.fround((high - low) / 255) || 1;
  return { scale, zeroPoint: Math.min(255, Math.max(0, Math.round(-low / scale))) };
}

/** The largest code of a bias. Sums of products have as many bits again. */
const mostBias = 2 ** 30;

/** The bias of a product that becomes int32: with an element for each channel, and without factors. */
export function staticBias(graphs: Graphs, { node, graph, weight }: StaticProduct, { axis }: DequantizeLinearForm) {
  const name = node.inputs[2] ?? '';
  const bias = name === '' ? undefined : graphs.weightAt(graph, name);
  const isPlain = node.opType === 'Conv' || (floatOf(node, 'alpha', 1) === 1 && floatOf(node, 'beta', 1) === 1);
  const [size, ...more] = bias?.source.shape ?? [];
  const channels = axis === undefined ? size : weight.source.shape[axis];
  const fits = bias?.source.dtype === 'F32' && bias.graph === graph && more.length === 0 && size === channels;
  return fits && isPlain ? bias : undefined;
}

/**
 * Decisions whose scales leave room for biases: int32 holds each as a multiple of the scales of input and weight. Without this, biases of
 * channels with tiny weights, or with zeros alone, are lost.
 */
export function withBiases(
  graphs: Graphs,
  decisions: readonly WeightDecision[],
  statics: readonly StaticDecision[],
  constants: Constants,
): WeightDecision[] {
  const least = new Map<Weight, number>();
  for (const { product, form, input, output } of statics) {
    if (input === undefined || output === undefined) continue;
    const bias = staticBias(graphs, product, form);
    const most = (bias && constants.of(bias)?.most) ?? 0;
    const scale = Math.fround(most / input.scale / mostBias);
    if (scale > (least.get(product.weight) ?? 0)) least.set(product.weight, scale);
  }
  return decisions.map((decision) => {
    const leastScale = decision.kind === 'restored' ? least.get(decision.weight) : undefined;
    const isRaised = decision.kind === 'restored' && leastScale !== undefined && decision.form.symmetric;
    return isRaised ? { ...decision, form: { ...decision.form, leastScale } } : decision;
  });
}

/** First version of ai.onnx whose QuantizeLinear onnxruntime-web (1.30) loads: it spells version 10 out, with Round of version 11. */
export const quantizeOpset = 11;

/** Finds the products of weights that were decided on, and the codes of their activations. */
export function decideActivations(
  { graphs, opsets }: Pick<Context, 'graphs' | 'opsets'>,
  decisions: readonly WeightDecision[],
  isStatic: (decision: WeightDecision) => boolean,
  ranges: ActivationRanges,
): StaticDecision[] {
  const found: StaticDecision[] = [];
  if (opsets.obstacle(graphs.main.root, quantizeOpset) !== undefined) return found;
  for (const decision of decisions) {
    if (decision.kind !== 'restored' || decision.by.kind !== 'dequantize' || !isStatic(decision)) continue;
    for (const reader of graphs.readers(decision.weight)) {
      const product = staticProduct(graphs, decision.weight, reader);
      if (product === undefined) continue;
      const codes = (name: string) => {
        const range = ranges.get(name);
        return range && codesOf(range);
      };
      const input = codes(selectedFrom(graphs, product.graph, product.input));
      const { form, by: dequantizer } = decision;
      found.push({ product, form, dequantizer, input, output: codes(product.output) });
    }
  }
  return found;
}
