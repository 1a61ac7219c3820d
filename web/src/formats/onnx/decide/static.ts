/**
 * Decides about integers for the activations around products of static quantization, with ranges that were measured before. Runtimes fuse the
 * restored floats and the products to products of integers.
 * Reference: github.com/microsoft/onnxruntime 1.20, onnxruntime/python/tools/quantization/qdq_quantizer.py. Tests run onnxruntime-web 1.30.0.
 */

import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { ActivationRanges } from '../../statistics.js';
import type { Weight } from '../file/model.js';
import { floatOf, type OnnxGraph, type OnnxNode } from '../file/proto.js';
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
  /** True if the codes of the output do what the Clip does: they saturate at its bounds. */
  readonly isClamped: boolean;
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
  if (opsets.obstacle(graphs.main.root, quantizeOpset) !== undefined) return { decisions, statics: [] };
  const products = decisions.flatMap((decision) => {
    if (decision.kind !== 'restored' || decision.by.kind !== 'dequantize') return [];
    if (targetOf(decision.weight)?.kind !== 'static') return [];
    const { form, by: dequantizer } = decision;
    return graphs.readers(decision.weight).flatMap((reader) => {
      const product = staticProduct(graphs, decision.weight, reader);
      return product === undefined ? [] : { product, form, dequantizer };
    });
  });
  const outputs = new Set(products.map(({ product }) => product.output));
  const nearestEven = (value: number) => {
    const up = Math.round(value);
    return up - value === 0.5 && up % 2 !== 0 ? up - 1 : up;
  };
  /** True if values beyond the bounds of a Clip get the first and the last code without it. QuantizeLinear rounds ties to even codes. */
  const saturates = (graph: OnnxGraph, clip: OnnxNode, { scale, zeroPoint }: ActivationCodes) => {
    const boundOf = (input: number, attribute: string, otherwise: number) => {
      const name = clip.inputs[input] ?? '';
      const bound = graphs.valueAt(graph, name);
      return name === '' ? floatOf(clip, attribute, otherwise) : bound && constants.at(bound)?.values?.[0];
    };
    const [low, high] = [boundOf(1, 'min', -Infinity), boundOf(2, 'max', Infinity)];
    const codeOf = (bound: number) => nearestEven(Math.fround(bound / scale)) + zeroPoint;
    return low !== undefined && high !== undefined && codeOf(low) <= 0 && codeOf(high) >= 255;
  };
  /**
   * uint8 codes for the range of a value, which is widened to hold 0: scale (max - min) / 255, zero point round(-min / scale). A range of 0
   * alone has the scale 1.
   */
  const codesFor = (graph: OnnxGraph, name: string): ActivationCodes | undefined => {
    const range = ranges.get(name);
    if (range === undefined) return undefined;
    const low = Math.min(0, range[0]);
    let high = Math.max(0, range[1]);
    // onnxruntime's Softmax of codes (1.30) overflows if a scale is less than 1 / 148 of the mean, 1 / length. No maximum is below the mean,
    // so that twice the maximum is enough.
    const producer = graphs.valueAt(graph, name)?.producer;
    const isMadeBy = (op: string) => producer?.opType === op && producer.domain === '';
    const input = producer?.inputs[0] ?? '';
    if (isMadeBy('Softmax') && outputs.has(selectedFrom(graphs, graph, input))) high = Math.min(1, 2 * high);
    const codesIn = (steps: number): ActivationCodes => {
      const scale = Math.fround((high - low) / steps) || 1;
      return { scale, zeroPoint: Math.min(255, Math.max(0, Math.round(-low / scale))) };
    };
    const codes = codesIn(255);
    // onnxruntime (1.30) cannot load nodes with a Clip behind them that codes make superfluous. With two codes less they do not.
    const isClamped = isMadeBy('Clip') && !outputs.has(name) && saturates(graph, producer as OnnxNode, codes);
    return isClamped ? codesIn(253) : codes;
  };
  const statics = products.map(({ product, ...others }): StaticDecision => {
    const input = codesFor(product.graph, selectedFrom(graphs, product.graph, product.input));
    const output = codesFor(product.graph, product.output);
    const isClamped =
      output !== undefined && product.last.opType === 'Clip' && saturates(product.graph, product.last, output);
    return { product, ...others, input, output, isClamped };
  });
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
