/**
 * Decides about weights of static quantization: codes that are restored to floats, and integers for the activations around their products, with
 * ranges that were measured before. Runtimes fuse the restored floats and the products to products of integers.
 * Reference: github.com/microsoft/onnxruntime 1.20, onnxruntime/python/tools/quantization/qdq_quantizer.py. Tests run onnxruntime-web 1.30.0.
 */

import type { ActivationRanges } from '../../statistics.js';
import { type StaticProduct, selectedFrom, staticProduct } from '../graph/activations.js';
import type { Graphs } from '../graph/graph.js';
import type { Reading } from '../graph/readers.js';
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
  readonly dequantizer: Dequantizer;
  readonly input: ActivationCodes | undefined;
  readonly output: ActivationCodes | undefined;
}

/** Decides about a weight of static quantization. */
export function decideStatic(context: Context, reading: Reading, { signed }: TargetOf<'static'>): WeightDecision {
  const range = context.choices.range === 'min-max' ? undefined : context.choices.range;
  return restoredOf(context, reading, { bits: 8, signed, symmetric: signed, range }, false);
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

/** Finds the products of weights that were decided on, and the codes of their activations. */
export function decideActivations(
  graphs: Graphs,
  decisions: readonly WeightDecision[],
  isStatic: (decision: WeightDecision) => boolean,
  ranges: ActivationRanges,
): StaticDecision[] {
  const found: StaticDecision[] = [];
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
      found.push({ product, dequantizer: decision.by, input, output: codes(product.output) });
    }
  }
  return found;
}
