/** Writes weights as float16, and Casts of others for nodes in float16. */
import type { Half, Keep } from '../decide/decision.js';
import { castOpset } from '../decide/half.js';
import { castNode } from '../file/encode.js';
import { onnxTypeNumber } from '../file/proto.js';
import { halfForm } from '../forms.js';
import type { Builder } from './builder.js';
import { setTypes } from './half-edits.js';
import { namedCast, renameUses } from './half-graph.js';

const [float, half] = [onnxTypeNumber('F32'), onnxTypeNumber('F16')];

/** Copies a weight, and adds a Cast for nodes in float16. */
export function writeKept(builder: Builder, { weight, reason, halfUses }: Keep): void {
  const { graph, value, node } = weight;
  builder.keep(weight, reason);
  if (halfUses === undefined) return;
  const narrowed = builder.freshValue(`${value}_fp16`);
  renameUses(builder, halfUses, narrowed);
  builder.addNodes(builder.behind(graph, node), [namedCast(value, narrowed, half)]);
}

/** Stores a weight as float16, and adds a Cast for nodes that read float32. */
export function writeHalf(builder: Builder, { weight, inHalfGraph, isCast, halfUses }: Half): void {
  const { graph, value, node } = weight;
  const index = builder.convert(weight, halfForm);
  const stored = isCast ? builder.freshValue(`${value}_fp16`) : value;
  builder.addTensors(weight, [builder.tensorOf(index, 'data', stored)]);
  builder.remove(weight);
  renameUses(builder, halfUses, stored);
  if (!isCast) {
    setTypes(builder, graph, new Set([value]), half);
    return;
  }
  builder.raise(graph, castOpset);
  if (weight.source.dtype !== 'F32') setTypes(builder, graph, new Set([value]), float);
  const output = builder.floatName(weight);
  const cast = inHalfGraph ? namedCast(stored, output, float) : castNode(stored, output, float);
  builder.addNodes({ graph, before: node }, [inHalfGraph ? cast : { ...cast, name: `${value}_Cast` }]);
}
