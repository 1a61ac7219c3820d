/** Plans ONNX results: decides about each weight, and changes the graph accordingly. Everything follows from the skeleton. */
import type { FilePlan, PartsOf } from '../format.js';
import { ruleFor } from '../options.js';
import { Builder } from './builder.js';
import { halveWeight } from './half.js';
import type { OnnxModel, Weight } from './model.js';
import { blockWeight } from './nbits.js';
import type { OnnxChoices, OnnxTarget } from './options.js';
import { channelsOf, reasonToKeep } from './readers.js';
import { dequantizeWeight } from './weights.js';

/** Converts a weight. Returns why not, if that is not possible. */
function convert(builder: Builder, weight: Weight, to: OnnxTarget, choices: OnnxChoices): string | undefined {
  const reason = reasonToKeep(builder.model, weight);
  if (reason !== undefined) return reason;
  if (to === 'fp16') return halveWeight(builder, weight);
  const channels = channelsOf(builder.graphs, weight);
  if (typeof channels === 'string') return channels;
  const { blockSize = 32, zeroPoints = false } = choices;
  const range = choices.range === 'min-max' ? undefined : choices.range;
  if (to === 'q4') return blockWeight(builder, weight, channels, { bits: 4, blockSize, zeroPoints, range: range && 'mse' });
  if (to === 'int8-weights' || to === 'uint8-weights') {
    const signed = to === 'int8-weights';
    return dequantizeWeight(builder, weight, channels, { bits: 8, signed, symmetric: signed, range });
  }
  const signed = !zeroPoints;
  return dequantizeWeight(builder, weight, channels, { bits: 4, signed, symmetric: signed, blockSize, range });
}

/** @throws ScalepointError */
export function planOnnx(model: OnnxModel, choices: OnnxChoices, partsOf: PartsOf): FilePlan {
  const { to, rules = [] } = choices;
  const builder = new Builder(model, partsOf);
  for (const weight of model.weights) {
    const rule = ruleFor(rules, weight.source.name);
    const reason = rule?.keep ? 'rule' : convert(builder, weight, (rule?.to as OnnxTarget | undefined) ?? to, choices);
    if (reason !== undefined) builder.keep(weight, reason);
  }
  const plan = builder.finish();
  if (plan.tensors.every(({ kept }) => kept !== undefined)) {
    return { ...plan, notes: [...plan.notes, 'nothing was converted: the model has no weights of a size and kind that pay'] };
  }
  return plan;
}
