/** Weights as float16, which a Cast turns back into floats before they are used. */
import type { CastForm } from '../../../codecs/cast.js';
import type { Weight } from '../file/model.js';
import { typeNumber } from '../file/proto.js';
import type { Builder } from './builder.js';

/** Operators whose floats are scales of codes. */
export const scaled: readonly string[] = [
  'DequantizeLinear',
  'QuantizeLinear',
  'MatMulNBits',
  'MatMulBnb4',
  'GatherBlockQuantized',
];

/** float16. Values beyond it, such as those of masks, become its largest one. */
export const halfForm: CastForm = { codec: 'cast', to: 'F16', saturate: true };

/** Stores a weight as float16. Returns why not, if that is not possible. */
export function halveWeight(builder: Builder, weight: Weight): string | undefined {
  const { graph, value, node } = weight;
  const readers = builder.graphs.readers(weight);
  const only = readers[0];
  if (only !== undefined && readers.every(({ node }) => scaled.includes(node.opType)))
    return `scales of ${only.node.opType}`;
  if (!builder.raise(graph, 6)) return builder.obstacle(graph);
  const index = builder.convert(weight, halfForm);
  const name = builder.graphs.freshValue(`${value}_fp16`);
  builder.addTensors(weight, [builder.tensorOf(index, 'data', name)]);
  builder.remove(weight);
  const cast = {
    opType: 'Cast',
    name: `${value}_Cast`,
    inputs: [name],
    outputs: [builder.floatName(weight)],
    attributes: { to: typeNumber('F32') },
  };
  builder.addNodes({ graph, before: node }, [cast]);
  return undefined;
}
