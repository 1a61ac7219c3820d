/**
 * Decides about integers for the activations around products of static quantization, with ranges that were measured before. Runtimes fuse the
 * restored floats and the products to products of integers.
 * Reference: github.com/microsoft/onnxruntime 1.20, onnxruntime/python/tools/quantization/qdq_quantizer.py. Tests run onnxruntime-web 1.30.0.
 */

import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { ActivationRanges } from '../../statistics.js';
import type { Weight } from '../file/model.js';
import { floatOf } from '../file/proto.js';
import { type StaticProduct, selectedFrom, staticProduct } from '../graph/activations.js';
import type { Graphs } from '../graph/graph.js';
import type { Context, Dequantizer, WeightDecision } from './decision.js';

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

/** First version of ai.onnx whose QuantizeLinear onnxruntime-web (1.30) loads: it spells version 10 out, with Round of version 11. */
export const quantizeOpset = 11;

/** Finds the products of weights that were decided on, and the codes of their activations. Returns the decisions with room for biases. */
export function decideStatics(
  { graphs, opsets, constants, targetOf }: Context,
  decisions: readonly WeightDecision[],
  ranges: ActivationRanges,
): { readonly decisions: readonly WeightDecision[]; readonly statics: readonly StaticDecision[] } {
  const statics: StaticDecision[] = [];
  if (opsets.obstacle(graphs.main.root, quantizeOpset) !== undefined) return { decisions, statics };
  /**
   * uint8 codes for the range of a value, which is widened to hold 0: scale (max - min) / 255, zero point round(-min / scale). A range of 0
   * alone has the scale 1.
   */
  const codesFor = (name: string): ActivationCodes | undefined => {
    const range = ranges.get(name);
    if (range === undefined) return undefined;
    const [low, high] = [Math.min(0, range[0]), Math.max(0, range[1])];
    const scale = Math.fround((high - low) / 255) || 1;
    return { scale, zeroPoint: Math.min(255, Math.max(0, Math.round(-low / scale))) };
  };
  for (const decision of decisions) {
    if (decision.kind !== 'restored' || decision.by.kind !== 'dequantize') continue;
    if (targetOf(decision.weight)?.kind !== 'static') continue;
    for (const reader of graphs.readers(decision.weight)) {
      const product = staticProduct(graphs, decision.weight, reader);
      if (product === undefined) continue;
      const input = codesFor(selectedFrom(graphs, product.graph, product.input));
      const { form, by: dequantizer } = decision;
      statics.push({ product, form, dequantizer, input, output: codesFor(product.output) });
    }
  }
  // Make scales that leave room for biases: int32 holds each as a multiple of the scales of input and weight. Without this, biases of
  // channels with tiny weights, or with zeros alone, are lost.
  const least = new Map<Weight, number>();
  for (const { product, form, input, output } of statics) {
    if (input === undefined || output === undefined) continue;
    const bias = staticBias(graphs, product, form);
    const most = (bias && constants.of(bias)?.most) ?? 0;
    const scale = Math.fround(most / input.scale / mostBias);
    if (scale > (least.get(product.weight) ?? 0)) least.set(product.weight, scale);
  }
  const raised = decisions.map((decision) => {
    const leastScale = decision.kind === 'restored' ? least.get(decision.weight) : undefined;
    const isRaised = decision.kind === 'restored' && leastScale !== undefined && decision.form.symmetric;
    return isRaised ? { ...decision, form: { ...decision.form, leastScale } } : decision;
  });
  return { decisions: raised, statics };
}
