/**
 * Finds nodes whose values float16 cannot hold: it ends at 65,504, and numbers below 2^-14 lose digits until they are 0 below 2^-25. They
 * compute in float32, from the node that makes such values to the one whose result has a usual size again.
 */
import type { Weight } from '../file/model.js';
import { floatOf, type OnnxNode } from '../file/proto.js';
import type { BeyondHalf } from '../reasons.js';
import type { Constants, Magnitudes } from './constants.js';
import { type Graphs, isConstant, type NodeInGraph, type Use, type Value } from './graph.js';
import { Types, wordSet } from './types.js';

/** Largest number of float16, and the least one with all digits. */
const [largestHalf, leastHalf] = [65504, 2 ** -14];

/** Magnitudes that activations of a usual size, up to 16, reach float16's limits with, times a factor. */
const [large, small] = [largestHalf / 16, leastHalf];

/** Least bound of a divisor that float16 holds with a few digits: 8 steps of its smallest numbers. */
const leastDivisor = 2 ** -21;

/** Operators that only move or choose elements of their first input. */
const moving = wordSet(
  `Identity Transpose Reshape Squeeze Unsqueeze Flatten Slice Split Gather GatherElements GatherND Expand Tile Pad DepthToSpace SpaceToDepth
  Trilu Compress ReverseSequence Cast`,
);

/** Operators whose results have the size of their first input. */
const keeping = wordSet(
  `Abs Neg Relu LeakyRelu PRelu Ceil Floor Round Dropout Clip ReduceMax ReduceMin ReduceMean ReduceSum ReduceL1 AveragePool GlobalAveragePool
  MaxPool GlobalMaxPool Resize Upsample TopK CumSum`,
);

/** Operators whose results are as large as the largest of their inputs. */
const merging = wordSet('Add Sub Sum Mean Max Min Where Concat');

/** Products of a value with weights. */
const products = wordSet('MatMul Gemm Conv ConvTranspose Einsum');

/** Products whose weights need digits. A table is a product, too. */
const weighted: ReadonlySet<string> = new Set([...products, 'LSTM', 'GRU', 'RNN', 'Gather']);

/** Operators that square or exponentiate inside, and give results of a usual size. */
const inside = wordSet('LpNormalization LpPool GlobalLpPool LRN MeanVarianceNormalization ReduceLogSumExp');

/** Operators that compute a row against its largest element. */
const relative = wordSet('Softmax LogSoftmax');

/** Operators that compare. */
const comparing = wordSet('Equal Greater GreaterOrEqual Less LessOrEqual');

/** Longest chain of nodes that is followed. */
const mostSteps = 64;

/** Facts about values in one graph with one set of types. */
interface Facts {
  readonly graphs: Graphs;
  readonly types: Types;
  readonly constants: Constants;
}

/** An input of a node, with its value. */
interface Input {
  readonly index: number;
  readonly value: Value;
  /** Undefined for values that are no constants, and for constants of unknown magnitudes. */
  readonly constant: Magnitudes | undefined;
  readonly isConstant: boolean;
}

/** The float inputs of a node. */
function floatInputs({ graphs, types, constants }: Facts, { node, graph }: NodeInGraph): Input[] {
  return node.inputs.flatMap((name, index) => {
    const value = name === '' ? undefined : graphs.valueAt(graph, name);
    if (value === undefined || !types.isFloat(value)) return [];
    const isFixed = isConstant(value) || value.producer?.opType === 'ConstantOfShape';
    return [{ index, value, constant: isFixed ? constants.at(value) : undefined, isConstant: isFixed }];
  });
}

const outputValues = ({ graphs }: Pick<Facts, 'graphs'>, { node, graph }: NodeInGraph): Value[] =>
  node.outputs.flatMap((name) => (name === '' ? [] : (graphs.valueAt(graph, name) ?? [])));

/** The node that gives a value, through nodes that only move its elements. */
function sourceBehindMoves({ graphs }: Facts, from: Value | undefined): Value | undefined {
  let value = from;
  for (let i = 0; i < mostSteps && value?.producer !== undefined; i++) {
    const { producer, graph } = value;
    if (producer.domain !== '' || !moving.has(producer.opType)) break;
    value = graphs.valueAt(graph, producer.inputs[0] ?? '');
  }
  return value;
}

// ---------------------------------------------------------------------------------------------------------------------- constants

/** True if float16 holds a constant well enough: no finite element is too large. */
const isInRange = ({ most }: Magnitudes) => most <= largestHalf;

/** True if all elements of a constant lose digits. */
const isTiny = ({ most }: Magnitudes) => most > 0 && most < leastHalf;

/** True if float16 holds a weight. Weights of unknown magnitudes count as held. */
export function holdsWeight(magnitudes: Magnitudes | undefined): boolean {
  return magnitudes === undefined || (isInRange(magnitudes) && !isTiny(magnitudes));
}

/**
 * Tells the numbers of constants that stand for infinity: they are added to values of a Softmax, where the largest number of float16 has the same
 * effect.
 */
class Masks {
  readonly #facts: Pick<Facts, 'graphs' | 'types'>;
  readonly #known = new Map<Value, Map<boolean, boolean>>();

  constructor(facts: Pick<Facts, 'graphs' | 'types'>) {
    this.#facts = facts;
  }

  /** @param constant the magnitudes of the input of the use */
  has(use: Use, { low, high }: Magnitudes): boolean {
    // A bound holds for all numbers of float16 anyway if it is a least number below them, or a largest one above them.
    const { node, input } = use;
    const { opType, inputs } = node;
    const isLow = (opType === 'Clip' && input === 1) || (opType === 'Max' && inputs.length > 1);
    const isHigh = (opType === 'Clip' && input === 2) || (opType === 'Min' && inputs.length > 1);
    if ((isLow && high < -largestHalf) || (isHigh && low > largestHalf)) return true;
    // Factors of masks are negative, or multiply negative numbers before they are added.
    return !comparing.has(opType) && this.#ends(use, false, 0);
  }

  /** True if all ways from a use end in a Softmax. @param isAdded true if the value was added to others */
  #ends({ node, graph, input }: Use, isAdded: boolean, steps: number): boolean {
    const { opType, domain } = node;
    if (steps > mostSteps || domain !== '') return false;
    if (relative.has(opType)) return isAdded;
    if (opType === 'Attention') return input === 3;
    if (steps > 0 && comparing.has(opType)) return true;
    const outputs = outputValues(this.#facts, { node, graph });
    if (opType === 'Cast' && !this.#facts.types.isFloat(outputs[0])) return steps > 0;
    const adds = merging.has(opType) || opType.startsWith('Scatter');
    if (!moving.has(opType) && !adds && opType !== 'Mul') return false;
    return outputs.length > 0 && outputs.every((output) => this.#allEnd(output, isAdded || adds, steps));
  }

  /** True if numbers of a value stand for minus infinity. */
  hasValue(value: Value): boolean {
    return this.#allEnd(value, true, 0);
  }

  #allEnd(value: Value, isAdded: boolean, steps: number): boolean {
    const known = this.#known.get(value)?.get(isAdded);
    if (known !== undefined) return known;
    const result =
      !value.isOutput && value.uses.length > 0 && value.uses.every((use) => this.#ends(use, isAdded, steps + 1));
    this.#known.set(value, (this.#known.get(value) ?? new Map()).set(isAdded, result));
    return result;
  }
}

/** A test for constants whose infinities stand for masked values. */
export function holdsMasks(graphs: Graphs): (weight: Pick<Weight, 'graph' | 'value'>) => boolean {
  const masks = new Masks({ graphs, types: new Types(graphs, graphs.main) });
  return ({ graph, value: name }) => {
    const value = graphs.valueAt(graph, name);
    return value !== undefined && masks.hasValue(value);
  };
}

// ------------------------------------------------------------------------------------------------------------------------- growth

/** Operators that square. */
const squares = wordSet('Pow ReduceL2 ReduceSumSquare');
/** Operators between squares and their root. */
const afterSquares = wordSet('Add Clip Div Mul Reciprocal ReduceMean ReduceSum Sqrt');
/** Operators that grow by exponentials, or along an axis. */
const growing = wordSet('Exp Sinh Cosh CumSum Range');
/** Operators that pass large values on as well, if these come to a usual size behind them. */
const passing: ReadonlySet<string> = new Set([
  ...['Sub', 'Sum', 'Max', 'Min', 'Where', 'Concat', 'Log', 'ReduceLogSum', 'Sin', 'Cos', 'Mod'],
  ...products,
  ...moving,
  ...keeping,
]);
/** Operators that bring large values to a usual size. */
const shrinking = wordSet('Log ReduceLogSum Sqrt Sin Cos Reciprocal');
/** Operators whose results are not negative. */
const positive = wordSet('Abs Relu Softplus Exp ReduceSumSquare ReduceL2 Sqrt Sigmoid');

/** True if an operator brings large values to a usual size. */
function shrinks(facts: Facts, placed: NodeInGraph): boolean {
  const { opType } = placed.node;
  if (shrinking.has(opType)) return true;
  const inputs = opType === 'Div' || opType === 'Pow' ? floatInputs(facts, placed) : [];
  // A quotient of two large values.
  if (opType === 'Div') return inputs.every(({ isConstant: isFixed }) => !isFixed);
  const exponent = inputs.find(({ index }) => index === 1)?.constant;
  return exponent !== undefined && exponent.high < 1;
}

/** True if a value is at most a small number, so that its exponential has a usual size. */
function isBelow(facts: Facts, from: Value | undefined): boolean {
  const { producer: node, graph } = sourceBehindMoves(facts, from) ?? {};
  if (node === undefined || graph === undefined) return false;
  const inputs = floatInputs(facts, { node, graph });
  const operatorBehind = (input: Input | undefined) => sourceBehindMoves(facts, input?.value)?.producer?.opType ?? '';
  switch (node.opType) {
    case 'Sub':
      return operatorBehind(inputs[1]) === 'ReduceMax';
    case 'LogSoftmax':
      return true;
    case 'Min':
      return inputs.some(({ constant }) => constant !== undefined && constant.high <= 10);
    case 'Clip':
      return (inputs.find(({ index }) => index === 2)?.constant?.high ?? floatOf(node, 'max', Infinity)) <= 10;
    case 'Neg':
      return positive.has(operatorBehind(inputs[0]));
    default:
      return false;
  }
}

/** Nodes from squares, exponentials and running sums to where values have a usual size again. */
function growthIn(facts: Facts, nodes: readonly NodeInGraph[]): Map<OnnxNode, 'squares' | 'growth'> {
  const { graphs, types } = facts;
  /** Nodes that stay in any case, and those that stay if values behind them have a usual size again. */
  const found = new Set<OnnxNode>();
  const possible = new Set<OnnxNode>();
  const apart = new Set<OnnxNode>();
  const isBehind = (set: ReadonlySet<OnnxNode>, placed: NodeInGraph) => {
    const others = floatInputs(facts, placed).filter(({ value }) => !isConstant(value));
    return others.length > 0 && others.every(({ value: { producer } }) => producer !== undefined && set.has(producer));
  };
  /** True for the exponential in 1 / (1 + exp(x)), which is right even if it is infinite. */
  const isInSigmoid = ({ node, graph }: NodeInGraph) => {
    const usesBehind = (one: OnnxNode) => graphs.uses(graph, one.outputs[0] ?? '');
    const isDivisor = ({ node: { opType }, input }: Use) =>
      opType === 'Reciprocal' || (opType === 'Div' && input === 1);
    const sums = usesBehind(node).map((use) => use.node);
    const isSum = (sum: OnnxNode) =>
      sum.opType === 'Add' && usesBehind(sum).length > 0 && usesBehind(sum).every(isDivisor);
    return sums.length > 0 && sums.every(isSum);
  };
  const starts: NodeInGraph[] = [];
  const ends: OnnxNode[] = [];
  for (const placed of nodes) {
    const { node, graph } = placed;
    if (node.domain !== '') continue;
    const isHalf = types.arithmetic(node, graph) === 'half';
    const { opType } = node;
    const [a, b] = node.inputs;
    if (isHalf && (squares.has(opType) || (opType === 'Mul' && a === b))) {
      found.add(node);
      possible.add(node);
      starts.push(placed);
    } else if (growing.has(opType)) {
      const [x] = floatInputs(facts, placed);
      const isFlat = opType === 'Exp' && (isBelow(facts, x?.value) || isInSigmoid(placed));
      if (!isFlat && (x !== undefined || opType === 'Range')) possible.add(node);
    } else if (isHalf && inside.has(opType)) apart.add(node);
    else {
      if (isHalf && afterSquares.has(opType) && isBehind(found, placed)) found.add(node);
      const passes = afterSquares.has(opType) || passing.has(opType);
      if (!passes || !isBehind(possible, placed)) continue;
      // Magnitudes of spectra stay large behind their root.
      if (opType !== 'Sqrt' && shrinks(facts, placed)) ends.push(node);
      else possible.add(node);
    }
  }
  for (const node of ends) possible.add(node);
  // Keep those behind which values come to a usual size, or leave the model.
  const leads = new Set<OnnxNode>();
  for (const placed of nodes.toReversed()) {
    const { node } = placed;
    if (!possible.has(node)) continue;
    const outputs = outputValues(facts, placed);
    const isEnd = shrinks(facts, placed) || outputs.some(({ isOutput }) => isOutput);
    if (!isEnd && !outputs.some(({ uses }) => uses.some(({ node: reader }) => leads.has(reader)))) continue;
    leads.add(node);
    if (!found.has(node)) apart.add(node);
  }
  // Transforms of a model's input before squares, as of a signal, are as large as their roots.
  for (const { node, graph } of starts) {
    if (!leads.has(node)) continue;
    const chain: OnnxNode[] = [];
    let value = graphs.valueAt(graph, node.inputs[0] ?? '');
    for (let i = 0; i < mostSteps && value?.producer !== undefined; i++) {
      const { producer, graph: inGraph }: Value = value;
      const others = floatInputs(facts, { node: producer, graph: inGraph }).filter(({ isConstant: is }) => !is);
      const isLinear = products.has(producer.opType) || moving.has(producer.opType) || producer.opType === 'Mul';
      if (producer.domain !== '' || !isLinear || others.length !== 1) break;
      chain.push(producer);
      value = others[0]?.value;
    }
    const isInput = value !== undefined && value.producer === undefined && value.weight === undefined;
    if (isInput && chain.some(({ opType }) => products.has(opType))) for (const one of chain) apart.add(one);
  }
  return new Map([
    ...[...apart].map((node) => [node, 'growth'] as const),
    ...[...found].map((node) => [node, 'squares'] as const),
  ]);
}

// --------------------------------------------------------------------------------------------------------------------- estimates

/** Numbers of the types uint16, uint32 and uint64. */
const unsigned: readonly number[] = [4, 12, 13];

/** Operators that give values of a usual size from tiny ones, besides normalizations. */
const magnifying = wordSet('Mul Div Log Reciprocal Pow Sqrt');

/** Nodes whose values constants make large, or tiny before something magnifies them. Other values count as 1. */
function estimatesIn(facts: Facts, nodes: readonly NodeInGraph[]): Set<OnnxNode> {
  const { graphs, types } = facts;
  const masks = new Masks(facts);
  const sizes = new Map<Value, number>();
  const found = new Set<OnnxNode>();
  const tiny = new Set<OnnxNode>();
  const magnified = new Set<OnnxNode>();

  /** Magnitude of a result; undefined if nothing is known. @param outs constants that count as large or tiny ones */
  const sizeBehind = (placed: NodeInGraph, inputs: readonly Input[], outs: ReadonlySet<Input>): number | undefined => {
    const { node, graph } = placed;
    const { opType, domain } = node;
    if (domain !== '') return undefined;
    const [first, second, third] = inputs;
    if (first === undefined) {
      // Integers of 16 bits and more without a sign, as in pictures of depth, become floats.
      return opType === 'Cast' && unsigned.includes(types.inputType(node, graph, 0) ?? 0) ? 2 ** 16 : undefined;
    }
    // Constants have sizes only where they count, as bounds and masks do not.
    const sizeOf = (input: Input) => (outs.has(input) ? input.constant?.most : sizes.get(input.value));
    const isSized = inputs.some((input) => sizeOf(input) !== undefined);
    if (opType === 'Mul' || opType === 'Div') {
      if (second === undefined) return undefined;
      const factor = (input: Input) => {
        const { constant, index } = input;
        if (constant === undefined || constant.most === 0) return sizeOf(input) ?? 1;
        // Masks multiply by numbers that stand for infinity.
        const isMask = constant.most > large && !outs.has(input) && masks.has({ node, graph, input: index }, constant);
        return isMask ? 1 : constant.most;
      };
      const result = opType === 'Mul' ? factor(first) * factor(second) : factor(first) / factor(second);
      return result > large || result < small || isSized ? result : undefined;
    }
    if (products.has(opType)) {
      const given = isSized ? inputs.slice(0, 2).reduce((all, one) => all * (sizeOf(one) ?? 1), 1) : undefined;
      const bias = third && sizeOf(third);
      return bias === undefined ? given : Math.max(given ?? 0, bias);
    }
    if (isSized && merging.has(opType)) {
      // A tiny value vanishes beside one of a usual size.
      const plain = ({ constant }: Input) => (constant === undefined || !isInRange(constant) ? 1 : constant.most);
      return inputs.reduce((most, one) => Math.max(most, sizeOf(one) ?? plain(one)), 0);
    }
    const size = sizeOf(first);
    if (size === undefined) return undefined;
    if (opType === 'Sqrt') return Math.sqrt(size);
    if (opType === 'Reciprocal') return 1 / size;
    if (opType === 'Pow') {
      const exponent = inputs.find(({ index }) => index === 1)?.constant;
      return exponent !== undefined && exponent.low === exponent.high ? size ** exponent.high : undefined;
    }
    return moving.has(opType) || keeping.has(opType) ? size : undefined;
  };

  for (const placed of nodes) {
    const { node, graph } = placed;
    const { opType } = node;
    const inputs = floatInputs(facts, placed);
    // Find the constants that count as large or tiny ones where the node reads them.
    const outs = inputs.filter(({ index, constant }) => {
      if (constant === undefined) return false;
      if (!isInRange(constant)) return !masks.has({ node, graph, input: index }, constant);
      const isWeight = index === 1 || (index === 0 && (opType === 'MatMul' || opType === 'Gather'));
      return isWeight && weighted.has(opType) && isTiny(constant);
    });
    // A factor or a divisor may make values large that float16 holds itself.
    const size = sizeBehind(placed, inputs, new Set(outs));
    const before = inputs.map(({ value }) => sizes.get(value)).filter((one) => one !== undefined);
    if (outs.length > 0 || before.some((one) => one > large) || (size ?? 0) > large) found.add(node);
    if (size !== undefined && (size > large || size < small)) {
      for (const output of outputValues(facts, placed)) sizes.set(output, size);
      if (size < small) tiny.add(node);
    } else if (before.some((one) => one < small)) {
      if (magnifying.has(opType) || opType.endsWith('Normalization')) magnified.add(node);
    }
  }
  for (const { node, graph } of nodes.toReversed()) {
    const readers = node.outputs.flatMap((name) => graphs.uses(graph, name));
    if (tiny.has(node) && readers.some((use) => magnified.has(use.node))) magnified.add(node);
  }
  for (const node of magnified) found.add(node);
  return found;
}

// ----------------------------------------------------------------------------------------------------------------------- divisors

const probabilities = wordSet('Softmax Sigmoid Exp Div Reciprocal');

/** Nodes from a tiny bound to the quotient or the logarithm that needs it. */
function divisorsIn(facts: Facts, nodes: readonly NodeInGraph[]): Set<OnnxNode> {
  const found = new Set<OnnxNode>();
  /** Values with their bound, and the nodes since the bound was set. */
  const bounded = new Map<Value, { readonly bound: number; readonly path: readonly NodeInGraph[] }>();
  for (const placed of nodes) {
    const { opType, domain } = placed.node;
    if (domain !== '') continue;
    const inputs = floatInputs(facts, placed);
    const set = (bound: number, path: readonly NodeInGraph[]) => {
      if (bound <= 0 || bound >= leastDivisor || path.length > mostSteps) return;
      for (const output of outputValues(facts, placed)) bounded.set(output, { bound, path });
    };
    const given = inputs.map(({ value }) => bounded.get(value));
    const divisor = opType === 'Div' ? given[1] : ['Reciprocal', 'Log'].includes(opType) ? given[0] : undefined;
    if (divisor !== undefined) {
      for (const one of [...divisor.path, placed]) found.add(one.node);
      // The logarithm of a probability needs it beyond float16, too.
      const [start] = divisor.path;
      const producer = start && floatInputs(facts, start).find(({ isConstant: is }) => !is)?.value.producer;
      if (opType === 'Log' && producer && probabilities.has(producer.opType)) found.add(producer);
      continue;
    }
    const [first] = given;
    if (first !== undefined && (moving.has(opType) || opType === 'Neg')) set(first.bound, [...first.path, placed]);
    else if (first !== undefined && opType === 'Sqrt') set(Math.sqrt(first.bound), [...first.path, placed]);
    else if (opType === 'Clip') {
      const low = inputs.find(({ index }) => index === 1)?.constant?.low ?? floatOf(placed.node, 'min', 0);
      set(low, [placed]);
    } else if (opType === 'Max' || opType === 'Add') {
      const bound = inputs.find(({ constant }) => constant !== undefined && constant.low > 0)?.constant;
      if (bound !== undefined && bound.low === bound.high) set(bound.low, [placed]);
    }
  }
  return found;
}

// --------------------------------------------------------------------------------------------------------------------- statistics

/** Deviations from the mean that values of a channel reach. */
const deviations = 8;

/** BatchNormalizations that float16 does not compute, and nodes whose values their statistics say to be too large. */
function statisticsIn(facts: Facts, nodes: readonly NodeInGraph[]): Set<OnnxNode> {
  const found = new Set<OnnxNode>();
  for (const placed of nodes) {
    const { node, graph } = placed;
    if (node.opType !== 'BatchNormalization' || node.domain !== '') continue;
    const [scales, biases, means, variances] = [1, 2, 3, 4].map((input) => {
      const value = facts.graphs.valueAt(graph, node.inputs[input] ?? '');
      return value && facts.constants.at(value)?.values;
    });
    if (scales === undefined || biases === undefined || means === undefined || variances === undefined) continue;
    const epsilon = floatOf(node, 'epsilon', 1e-5);
    let [isLost, isLarge] = [false, false];
    for (const [i, variance] of variances.entries()) {
      const [scale, mean] = [Math.abs(scales[i] ?? 0), Math.abs(means[i] ?? 0)];
      const deviation = Math.sqrt(variance);
      if (mean + deviations * deviation > largestHalf) isLarge = true;
      // Rounding of a variance below 2^-14 is up to 2^-25.
      if (scale < 2 ** -10) continue;
      const divisor = variance + epsilon;
      if (scale / Math.sqrt(divisor) < leastHalf || (variance < leastHalf && 2 ** -25 / divisor > 2 ** -8))
        isLost = true;
    }
    if (isLost || isLarge) found.add(node);
    if (!isLarge) continue;
    const from = sourceBehindMoves(facts, facts.graphs.valueAt(graph, node.inputs[0] ?? ''))?.producer;
    if (from !== undefined) found.add(from);
  }
  return found;
}

// ----------------------------------------------------------------------------------------------------------------------- together

/** True for a range that float16 does not hold: too large, or so small that no element has all digits. */
const isBeyond = ([low, high]: readonly [number, number]) => {
  const most = Math.max(-low, high);
  return most > largestHalf || (most > 0 && most < leastHalf);
};

/** Values of the main graph whose measured ranges float16 does not hold, with their largest magnitudes. */
export function measuredBeyond(
  facts: Facts,
  ranges: ReadonlyMap<string, readonly [number, number]>,
): Map<string, number> {
  const masks = new Masks(facts);
  const found = new Map<string, number>();
  for (const [name, range] of ranges) {
    const value = facts.graphs.valueAt(facts.graphs.main.root, name);
    if (value === undefined || !isBeyond(range)) continue;
    // Masked values are as good as infinite.
    const isMasked = range[1] <= largestHalf && range[0] < -largestHalf && masks.hasValue(value);
    if (!isMasked) found.set(name, Math.max(-range[0], range[1]));
  }
  return found;
}

/**
 * Finds nodes whose values float16 cannot hold.
 * @param ranges measured ranges of values of the main graph, which decide where constants do not
 */
export function findBeyondHalf(
  facts: Facts,
  nodes: readonly NodeInGraph[],
  ranges: ReadonlyMap<string, readonly [number, number]> = new Map(),
): {
  readonly nodes: ReadonlyMap<OnnxNode, BeyondHalf>;
  /** Largest measured magnitude beyond float16; undefined without. */
  readonly reached: number | undefined;
} {
  const { graphs } = facts;
  const found = new Map<OnnxNode, BeyondHalf>();
  const add = (more: Iterable<OnnxNode>, why: BeyondHalf) => {
    for (const node of more) if (!found.has(node)) found.set(node, why);
  };
  /** True if measured ranges stay away from float16's limit by a factor of 4, for inputs other than those of the samples. */
  const isMeasuredCalm = (placed: NodeInGraph) => {
    const read = floatInputs(facts, placed).filter(({ isConstant: is }) => !is);
    const values = [...read.map(({ value }) => value), ...outputValues(facts, placed)];
    return values.every((value) => {
      const range = value.graph === graphs.main.root ? ranges.get(value.name) : undefined;
      return range !== undefined && Math.max(-range[0], range[1]) <= largestHalf / 4 && !isBeyond(range);
    });
  };
  const growth = growthIn(facts, nodes);
  add(statisticsIn(facts, nodes), 'statistics');
  add(estimatesIn(facts, nodes), 'constant');
  add(divisorsIn(facts, nodes), 'divisor');
  for (const placed of nodes) {
    const why = growth.get(placed.node);
    if (why !== undefined && (ranges.size === 0 || !isMeasuredCalm(placed))) add([placed.node], why);
  }
  let reached: number | undefined;
  const measured = ranges.size === 0 ? undefined : measuredBeyond(facts, ranges);
  for (const placed of measured === undefined ? [] : nodes) {
    const inputs = floatInputs(facts, placed).map(({ value }) => value);
    for (const value of [...inputs, ...outputValues(facts, placed)]) {
      const most = value.graph === graphs.main.root ? measured?.get(value.name) : undefined;
      if (most === undefined) continue;
      if (most > largestHalf) reached = Math.max(reached ?? 0, most);
      add([placed.node], 'measured');
    }
  }
  return { nodes: found, reached };
}
