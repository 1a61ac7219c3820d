/** The tensors of a safetensors model, codes together with their scales. */
import type { LogicalTensor, OpenModel } from '../format.js';
import { plainTensor } from '../tensors.js';
import { layouts } from './layouts/registry.js';
import { RemainingTensors } from './stored-model.js';

/** The tensors of a model, and why layouts refused some. */
interface ReadTensors {
  /** First the weights in layouts, then plain tensors. */
  readonly tensors: readonly LogicalTensor[];
  /** Names of the stored tensors of the weights. */
  readonly taken: ReadonlySet<string>;
  readonly refused: ReadonlyMap<string, string>;
}

/** Gathers the weights of each layout. */
export async function readTensors(model: OpenModel): Promise<ReadTensors> {
  const remaining = new RemainingTensors(model);
  const tensors: LogicalTensor[] = [];
  const taken = new Set<string>();
  const refused = new Map<string, string>();
  for (const { find } of layouts) {
    const found = await find?.(remaining);
    for (const { tensor, beside = [] } of found?.weights ?? []) {
      tensors.push(tensor);
      for (const { tensor: part } of tensor.parts) taken.add(part.name);
      for (const name of beside) taken.add(name);
    }
    for (const [name, why] of found?.refused ?? []) refused.set(name, why);
    remaining.take(taken);
  }
  for (const tensor of remaining.tensors) tensors.push(plainTensor(tensor));
  return { tensors, taken, refused };
}

/** The tensors of a model, codes together with their scales. */
export async function safetensorsLogicalTensors(model: OpenModel): Promise<readonly LogicalTensor[]> {
  return (await readTensors(model)).tensors;
}
