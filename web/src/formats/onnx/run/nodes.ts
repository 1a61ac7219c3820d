/** Judges the nodes of a model one by one: each gets the inputs that a reference has. */
import { mismatchesOf, nonFiniteOf, sumIndex } from '../../../core/measure.js';
import type { BackendAnswer, BackendJob, NodeCheck, OffNode, RunTensor } from '../../run.js';
import type { OnnxModel, Weight } from '../file/model.js';
import type { OnnxNode } from '../file/proto.js';
import { apartOf, type Values } from './apart.js';
import { numpyNumbers } from './inputs.js';
import type { NumpyArray } from './npz.js';
import type { RunnableModel } from './runnable.js';
import { sumsOf } from './sums.js';
import { type Magnitude, toleranceOf } from './tolerance.js';
import { runtimeNumbers } from './values.js';

/** Types of weights that are read as numbers, by onnxruntime's names. */
const weightTypes = new Map<string, string>([
  ['F32', 'float32'],
  ['F16', 'float16'],
  ['F64', 'float64'],
  ['I8', 'int8'],
  ['U8', 'uint8'],
]);

function magnitudeOf(type: string, dims: readonly number[], values: ArrayLike<number>, keeps: boolean): Magnitude {
  let [squares, largest] = [0, 0];
  for (let i = 0; i < values.length; i++) {
    const value = Math.abs(values[i] as number);
    if (!(value < Infinity)) continue;
    squares += value * value;
    if (value > largest) largest = value;
  }
  return { type, dims, count: values.length, length: Math.sqrt(squares), largest, ...(keeps && { values }) };
}

/** Magnitudes of the values of a model: those of a run, and weights. */
class Magnitudes {
  readonly #model: OnnxModel;
  readonly #values: Values;
  readonly #weights = new Map<string, Weight>();
  readonly #known = new Map<string, Magnitude | undefined>();

  constructor(model: OnnxModel, values: Values) {
    this.#model = model;
    this.#values = values;
    for (const weight of model.weights) if (weight.graph === model.proto.graph) this.#weights.set(weight.value, weight);
  }

  async of(name: string): Promise<Magnitude | undefined> {
    if (this.#known.has(name)) return this.#known.get(name);
    const found = await this.#find(name);
    this.#known.set(name, found);
    return found;
  }

  async #find(name: string): Promise<Magnitude | undefined> {
    const value = this.#values.get(name);
    if (value !== undefined) {
      return value.type === 'string' ? undefined : magnitudeOf(value.type, value.dims, runtimeNumbers(value), true);
    }
    const { source } = this.#weights.get(name) ?? {};
    const type = weightTypes.get(source?.dtype ?? '');
    if (source === undefined || type === undefined) return undefined;
    const file = this.#model.files[source.file ?? 0];
    const bytes = await file?.read(source.byteOffset, source.byteOffset + source.bytes);
    if (bytes === undefined) return undefined;
    const numbers = numpyNumbers(
      { dtype: source.dtype as NumpyArray['dtype'], shape: source.shape, bytes },
      name,
    ) as ArrayLike<number>;
    return magnitudeOf(type, source.shape, numbers, false);
  }
}

/** The error of a value in relation to its length. Infinity if NaN or infinities differ, or if the shape does. */
function relativeError(reference: RunTensor, value: RunTensor): number {
  if (reference.dims.join() !== value.dims.join()) return Infinity;
  const [x, y] = [runtimeNumbers(reference), runtimeNumbers(value)];
  const sums = sumsOf(x, y);
  if (nonFiniteOf(sums) > 0 && mismatchesOf(x, y) > 0) return Infinity;
  const error = sums[sumIndex.squaredError] as number;
  return error === 0 ? 0 : Math.sqrt(error / (sums[sumIndex.squaredX] as number));
}

/** A model with its values. */
export interface RanModel {
  readonly model: OnnxModel;
  readonly runnable: RunnableModel;
  /** Inputs, and results of nodes in a run of the whole. */
  readonly values: Values;
}

/**
 * Judges nodes. Undefined if the nodes could not be run apart.
 * @param reference the right values
 * @param tested the model that runs on the backend
 * @param onBackend its values on the backend, in a run of the whole
 */
export async function checkNodes(
  reference: RanModel,
  tested: RanModel,
  onBackend: Values,
  feeds: BackendJob['feeds'],
  run: (job: BackendJob) => Promise<BackendAnswer>,
): Promise<NodeCheck | undefined> {
  const { inputs, outputs, ...model } = apartOf(tested.model, tested.runnable, reference.values, tested.values);
  const given = Object.fromEntries(inputs.map((name) => [name, reference.values.get(name) as RunTensor]));
  const answer = await run({ model, feeds: { ...feeds, ...given }, level: 'disabled', measures: false });
  if (answer.kind !== 'ran') return undefined;
  const magnitudes = new Magnitudes(reference.model, reference.values);
  const unknown = new Set<string>();
  let [compared, off, first] = [0, 0, undefined as OffNode | undefined];

  /** The error that rounding explains, in relation to the length of the value. */
  const toleranceFor = async (node: OnnxNode, output: number, name: string): Promise<number | undefined> => {
    const x = await Promise.all(node.inputs.map((input) => magnitudes.of(input)));
    const y = await magnitudes.of(name);
    const bound = y && toleranceOf({ node, output, x: (i) => x[i], y });
    return bound === undefined || y === undefined || y.length === 0 ? bound : bound / y.length;
  };

  for (const node of reference.model.proto.graph.nodes) {
    for (const [i, name] of node.outputs.entries()) {
      const [right, found] = [reference.values.get(name), answer.outputs[outputs.get(name) ?? '']];
      if (right === undefined || found === undefined || right.type === 'string' || found.type === 'string') continue;
      const tolerance = await toleranceFor(node, i, name);
      if (tolerance === undefined) {
        unknown.add(node.opType);
        continue;
      }
      compared++;
      const error = relativeError(right, found);
      if (error <= tolerance) continue;
      off++;
      const errorOf = (input: string): number | undefined => {
        const [before, after] = [reference.values.get(input), onBackend.get(input)];
        return before === undefined || after === undefined || before.type === 'string'
          ? undefined
          : relativeError(before, after);
      };
      first ??= {
        node: node.name,
        op: node.opType,
        output: name,
        error,
        tolerance,
        inputs: node.inputs.filter((input) => input !== '').map((input) => ({ name: input, error: errorOf(input) })),
      };
    }
  }
  return { compared, off, first, unknown: [...unknown].sort() };
}
