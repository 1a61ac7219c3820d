/** Weights as float16, which a Cast turns back into floats before they are used. */
import type { CastForm } from '../../codecs/cast.js';
import type { Builder } from './builder.js';
import type { Weight } from './model.js';
import { typeNumber } from './proto.js';

/** Stores a weight as float16. */
export function halveWeight(builder: Builder, weight: Weight): string | undefined {
  const { graph, value, node } = weight;
  const form: CastForm = { codec: 'cast', to: 'F16' };
  if (!builder.raise(graph, 6)) return `opset ${builder.opsetOf(graph)}`;
  const index = builder.convert(weight, form);
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
