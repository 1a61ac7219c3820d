/**
 * Judges the nodes of a model one by one. Each gets the values of a reference as its inputs, so that its result shows its own error alone.
 */
import { sumIndex } from '../../../core/measure.js';
import type { BackendAnswer, BackendJob, NodeCheck, OffNode, RunTensor } from '../../run.js';
import { bytesPiece, piecesField, textField, valuePieces } from '../file/encode.js';
import type { OnnxModel } from '../file/model.js';
import { graphField, intOf, nodeField, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { FreshNames, Graphs } from '../graph/graph.js';
import { wordSet } from '../graph/types.js';
import { Edits } from '../write/edits.js';
import { appendOutputs, editedModel, type RunnableModel } from './runnable.js';
import type { Loadable } from './runtime.js';
import { comparedSums, isNumberType, numberTypes, type Values } from './values.js';

// ---------------------------------------------------------------------------------------------------------------------- tolerances

/** Operators that move, choose or compare elements, or compute integers. */
const exactOperators = wordSet(
  `Identity Reshape Transpose Gather GatherElements GatherND Slice Concat Split Squeeze Unsqueeze Flatten Expand Tile Pad Shape Size Where
  ScatterElements ScatterND Compress OneHot Trilu DepthToSpace SpaceToDepth MaxPool GlobalMaxPool Relu Neg Abs Min Max Clip Sign Floor Ceil
  Round Equal Less LessOrEqual Greater GreaterOrEqual Not And Or Xor IsNaN IsInf NonZero ArgMax ArgMin TopK ReduceMax ReduceMin
  ConstantOfShape EyeLike ReverseSequence MatMulInteger ConvInteger Dropout BitShift Mod Range`,
);

/** Operators that round each element a few times. */
const roundingOperators = wordSet(
  'Add Sub Mul Div Reciprocal Sqrt Cast CastLike DequantizeLinear GatherBlockQuantized LeakyRelu PRelu ThresholdedRelu',
);

/** Operators whose results differ from run to run. */
const randomOperators = wordSet('RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli');

/**
 * Tolerances of each type, as shares of the Euclidean length of a result whose inputs are exact. u is the unit roundoff.
 *
 * Two programs that compute one formula differ, as they add in another order and take other approximations. Elementary functions are as exact
 * as WGSL requires of GPUs (section 15.7.4, Accuracy of Concrete Floating Point Expressions), in units in the last place (ULP) of up to 2 u:
 * - `rounding`, 16 u: a sum or a product is rounded once, a quotient is off by 2.5 ULP, a square root by 5.
 * - `other` of float32 and float64, 1024 u: twice the 406 u by which exp(x), 3 + 2 |x| ULP, may be off for |x| up to 100, beyond which it is 0
 *   or infinite. tanh may be off by 1e-5, 168 u. The roundings of a sum of K terms add up to some sqrt(K) u (Higham and Mary, A New Approach to
 *   Probabilistic Rounding Error Analysis, 2019), so that even 2^20 terms are covered. A weight in float16 in place of float32, 2800 u on
 *   average, is not.
 * - `other` of float16, 64 u: exp(x) may be off by 1 + 2 |x| ULP, 46 u for |x| up to 11; sqrt(K) is 64 for 4096 terms.
 */
const tolerances: Readonly<Record<string, { readonly rounding: number; readonly other: number }>> = {
  float16: { rounding: 2 ** -7, other: 2 ** -5 },
  float32: { rounding: 2 ** -20, other: 2 ** -14 },
  float64: { rounding: 2 ** -49, other: 2 ** -43 },
};

/** sin and cos may be off by 2^-11 in WGSL, and have a mean square of 1/2. */
const turningTolerance = 2 ** -10;

/** Products that are computed with activations of 8 bits, if the node allows it: steps of 1 / 127 of the largest one of a block. */
const int8Tolerance = 2 ** -5;

/** Elements that are smaller on average count as that large: they may be what is left of larger terms, or 0 on a GPU for being subnormal. */
const smallElement = 2 ** -10;

/**
 * The largest length of an error that rounding explains. Undefined for operators that are not judged: random ones, and those with graphs of
 * their own, in which errors add up.
 * @param length of the result. @param count of its elements
 */
function toleratedError(
  node: OnnxNode,
  { type, length, count }: { readonly type: string; readonly length: number; readonly count: number },
): number | undefined {
  const { opType } = node;
  const hasGraphs = [...node.attributes.values()].some(({ graphs }) => graphs.length > 0);
  if (hasGraphs || randomOperators.has(opType)) return undefined;
  if (exactOperators.has(opType)) return 0;
  const known = tolerances[type];
  // A quotient at a tie rounds either way: a code may be off by 1.
  if (known === undefined) return roundingOperators.has(opType) ? 0 : Math.sqrt(count);
  let share = roundingOperators.has(opType) ? known.rounding : known.other;
  if (opType === 'Sin' || opType === 'Cos') share = Math.max(share, turningTolerance);
  if (intOf(node, 'accuracy_level', 0) === 4) share = Math.max(share, int8Tolerance);
  return share * Math.max(length, smallElement * Math.sqrt(count));
}

/** The errors of a value, and its length. The error is infinite if NaN or infinities differ, or if the shape does. */
function errorLengths(reference: RunTensor, value: RunTensor): { readonly error: number; readonly length: number } {
  if (reference.dims.join() !== value.dims.join()) return { error: Infinity, length: 1 };
  const { sums, mismatched } = comparedSums(reference, value);
  const length = Math.sqrt(sums[sumIndex.squaredX] as number);
  return { error: mismatched > 0 ? Infinity : Math.sqrt(sums[sumIndex.squaredError] as number), length };
}

// ---------------------------------------------------------------------------------------------------------------------- nodes apart

/** Types of values that nodes get from the reference. */
const feedTypes: readonly string[] = ['float32', 'float16', 'float64', 'int8', 'uint8'];

/** A model with its values. */
export interface RanModel {
  readonly model: OnnxModel;
  readonly runnable: RunnableModel;
  /** Inputs, and results of nodes in a run of the whole. */
  readonly values: Values;
}

/** A model whose nodes run apart. */
interface ApartModel extends Loadable {
  /** Inputs beside those of the model, by the values of the reference that they take. */
  readonly inputs: readonly string[];
  /** Names of outputs by the values that they are to equal. */
  readonly outputs: ReadonlyMap<string, string>;
}

/**
 * Makes a model whose nodes run apart. Nodes of constants stay before their readers, because kernels prepare constant weights. Values whose
 * type or shape differs from that of the reference stay, too, and so do integers of 32 and 64 bits, which kernels need at load or compute
 * exactly.
 * @param reference values that nodes get
 */
function apartModel({ model, runnable, values }: RanModel, reference: Values): ApartModel {
  const { graph } = model.proto;
  const edits = new Edits();
  const fresh = new FreshNames(new Graphs(model).valueNames);
  // Find outputs of nodes that depend on constants alone.
  const constants = new Set([...graph.initializers.map(({ name }) => name), ...graph.sparse]);
  for (const { opType, inputs, outputs, attributes } of graph.nodes) {
    const hasGraphs = [...attributes.values()].some(({ graphs }) => graphs.length > 0);
    const isMade = inputs.length > 0 && !hasGraphs && inputs.every((name) => name === '' || constants.has(name));
    if (opType === 'Constant' || isMade) for (const name of outputs) constants.add(name);
  }
  const [inputs, outputs] = [[] as string[], new Map<string, string>()];
  for (const { start } of graph.outputs) edits.replace(start);
  for (const node of graph.nodes) {
    const fields = model.skeleton.fieldsOf(node, nodeField.output);
    for (const [i, name] of node.outputs.entries()) {
      const [value, mine, field] = [reference.get(name), values.get(name), fields[i]];
      if (name === '' || value === undefined || mine === undefined || field === undefined) continue;
      const { type, dims } = value;
      const isSame = type === mine.type && dims.join() === mine.dims.join();
      if (!isNumberType(type) || !feedTypes.includes(type) || !isSame || constants.has(name)) {
        outputs.set(name, name);
        continue;
      }
      // The node gives another name, so that all readers, also those in subgraphs, read the input.
      const renamed = fresh.add('apart');
      edits.replace(field.start, [bytesPiece(textField(nodeField.output, renamed))]);
      edits.appendTo(
        graph,
        piecesField(graphField.input, valuePieces(name, onnxTypeNumber(numberTypes[type].dtype), dims)),
      );
      inputs.push(name);
      outputs.set(name, renamed);
    }
  }
  appendOutputs(edits, graph, outputs.values());
  return { ...editedModel(model, edits, runnable), inputs, outputs };
}

/**
 * Judges nodes. Undefined if the nodes could not be run apart.
 * @param reference the right values
 * @param tested the model that runs on the backend, with `onBackend`, its values there in a run of the whole
 */
export async function checkNodes(
  reference: RanModel,
  tested: RanModel & { readonly onBackend: Values },
  feeds: BackendJob['feeds'],
  run: (job: BackendJob) => Promise<BackendAnswer>,
): Promise<NodeCheck | undefined> {
  const { inputs, outputs, ...model } = apartModel(tested, reference.values);
  const given = Object.fromEntries(inputs.map((name) => [name, reference.values.get(name) as RunTensor]));
  const answer = await run({ model, feeds: { ...feeds, ...given }, level: 'disabled', measures: false });
  if (answer.kind !== 'ran') return undefined;
  const unknown = new Set<string>();
  let [compared, off, first] = [0, 0, undefined as OffNode | undefined];
  const relative = (error: number, length: number) => (error === 0 ? 0 : error / length);
  for (const node of reference.model.proto.graph.nodes) {
    for (const name of node.outputs) {
      const [right, found] = [reference.values.get(name), answer.outputs[outputs.get(name) ?? '']];
      if (right === undefined || found === undefined || right.type === 'string' || found.type === 'string') continue;
      const { error, length } = errorLengths(right, found);
      const tolerated = toleratedError(node, { type: right.type, length, count: right.data.length });
      if (tolerated === undefined) {
        unknown.add(node.opType);
        continue;
      }
      compared++;
      if (error <= tolerated) continue;
      off++;
      first ??= {
        node: node.name,
        op: node.opType,
        output: name,
        error: relative(error, length),
        tolerance: relative(tolerated, length),
        // The errors of the inputs in the run of the whole show whether the node made the first one.
        inputs: node.inputs.flatMap((input) => {
          if (input === '') return [];
          const [before, after] = [reference.values.get(input), tested.onBackend.get(input)];
          const isKnown = before !== undefined && after !== undefined && before.type !== 'string';
          const known = isKnown && after.type !== 'string' ? errorLengths(before, after) : undefined;
          return [{ name: input, error: known && relative(known.error, known.length) }];
        }),
      };
    }
  }
  return { compared, off, first, unknown: [...unknown].sort() };
}
