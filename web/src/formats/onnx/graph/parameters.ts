/** Tells weights, which hold finite numbers alone, from other constants such as masks. */
import type { SourceTensor } from '../../format.js';
import type { OnnxModel, Weight } from '../file/model.js';
import { holdsMasks } from './beyond-half.js';
import type { Graphs } from './graph.js';
import { readingOf } from './readers.js';

/** Operators besides products and look-ups that read parameters. */
const others =
  /Normalization$|^(DequantizeLinear|QuantizeLinear|MatMulNBits|MatMulBnb4|GatherBlockQuantized|Q?MoE|PRelu|BiasGelu|FastGelu)$/;

/** The weights of a model. A table whose rows are added to the values of a Softmax is a mask. */
export function parametersIn(graphs: Graphs, weights: OnnxModel['weights']): Set<SourceTensor> {
  const isMask = holdsMasks(graphs);
  const isRead = (weight: Weight) => {
    const { readers, channels } = readingOf(graphs, weight);
    return channels !== undefined || readers.some(({ node }) => others.test(node.opType));
  };
  const found = weights.filter((weight) => isRead(weight) && !isMask(weight));
  return new Set(found.map(({ source }) => source));
}
