/**
 * Bounds of the error that rounding explains, for one node with exact inputs.
 *
 * Two programs that compute the same formula differ, as they add in another order and take other approximations. With the unit roundoff u, a sum
 * of K products differs from the exact one by at most K u / (1 - K u) times the sum of the products' magnitudes, in any order (Higham, Accuracy
 * and Stability of Numerical Algorithms, section 3.1), so two of them by twice that. Bounds here are of the Euclidean length of the error of
 * all elements together, because lengths of factors bound those sums: | |A| |B| | <= |A| |B|.
 *
 * Elementary functions are as exact as WGSL requires of GPUs (section 15.7.4, Accuracy of Concrete Floating Point Expressions): a sum or a
 * product is rounded once, a quotient is off by at most 2.5 units in the last place (ULP), a square root by 5, exp by 3 + 2 |x| ULP, tanh by
 * 1e-5 absolute, sin and cos by 2^-11 absolute.
 */
import { findInts, floatOf, intOf, type OnnxNode } from '../file/proto.js';

/** Facts about a value. */
export interface Magnitude {
  readonly dims: readonly number[];
  readonly type: string;
  /** Number of elements. */
  readonly count: number;
  /** Euclidean length. */
  readonly length: number;
  /** Largest magnitude of an element. */
  readonly largest: number;
  /** The elements; undefined for weights. */
  readonly values?: ArrayLike<number> | undefined;
}

/** A node, and the magnitudes of its values. */
export interface JudgedNode {
  readonly node: OnnxNode;
  /** Index of the output. */
  readonly output: number;
  readonly x: (input: number) => Magnitude | undefined;
  readonly y: Magnitude;
}

/** u: the largest relative error of rounding to a type. */
const roundoffs: Readonly<Record<string, number>> = { float16: 2 ** -11, float32: 2 ** -24, float64: 2 ** -53 };

type Rule = (judged: JudgedNode & { readonly u: number }) => number | undefined;

const productOf = (sizes: readonly number[]) => sizes.reduce((product, size) => product * size, 1);
const sizeAt = ({ dims }: Magnitude, axis: number) => dims[axis < 0 ? axis + dims.length : axis] ?? 1;

/** Twice the bound of `count` roundings, in relation to the sum of magnitudes. Sums beyond 1 / u terms have no bound. */
const gamma = (count: number, u: number) => (count * u < 1 ? (2 * count * u) / (1 - count * u) : Infinity);

// -------------------------------------------------------------------------------------------------------------------------- rules

const exact: Rule = () => 0;

/** Operators whose result is off by some ULP of itself. */
const ulps =
  (count: number): Rule =>
  ({ y, u }) =>
    gamma(count, u) * y.length;

/** Chains of a few sums and products, whose terms may cancel: every term is at most as large as the largest input or output. */
const chain =
  (count: number): Rule =>
  ({ node, x, y, u }) => {
    const largest = node.inputs.reduce((most, _, i) => Math.max(most, x(i)?.largest ?? 0), y.largest);
    return gamma(count, u) * Math.sqrt(y.count) * largest;
  };

/** Functions that two libraries approximate with an absolute error, in relation to 1, x and y. */
const approximated =
  (error: number): Rule =>
  ({ x, y, u }) => {
    const from = x(0)?.largest ?? 0;
    // exp has 3 + 2 |x| ULP; beyond |x| = 100 it is 0 or infinite.
    const relative = gamma(8 + 2 * Math.min(from, 100), u);
    return error * (Math.sqrt(y.count) + (x(0)?.length ?? 0)) + relative * y.length;
  };

/** 2^-16 is above the 1e-5 that tanh may be off by. */
const transcendental = approximated(2 ** -16);

/** Products: sums of K products of elements of a and b, and a bias. `copies`: how often an element of a is read for one column of b. */
function products(
  k: number,
  a: Magnitude | undefined,
  b: number | undefined,
  { y, u }: Parameters<Rule>[0],
  copies = 1,
) {
  if (a === undefined || b === undefined) return undefined;
  return gamma(k + 2, u) * (a.length * Math.sqrt(copies) * b + y.length);
}

const matMul: Rule = (judged) => {
  const [a, b] = [judged.x(0), judged.x(1)];
  return a && products(sizeAt(a, -1), a, b?.length, judged);
};

const gemm: Rule = (judged) => {
  const { node, x } = judged;
  const [a, b, c] = [x(0), x(1), x(2)];
  if (a === undefined || b === undefined) return undefined;
  const [alpha, beta] = [floatOf(node, 'alpha', 1), floatOf(node, 'beta', 1)];
  const k = sizeAt(a, intOf(node, 'transA', 0) === 0 ? -1 : 0);
  const bound = products(k, a, b.length * Math.abs(alpha), judged);
  const bias = c === undefined ? 0 : Math.abs(beta) * c.largest * Math.sqrt(judged.y.count);
  return bound && bound + gamma(k + 2, judged.u) * bias;
};

/** Convolutions. Each element of the input is read once for each element of the kernel at most. */
const conv =
  (channelAxis: number): Rule =>
  (judged) => {
    const [a, w] = [judged.x(0), judged.x(1)];
    if (w === undefined) return undefined;
    const kernel = productOf(w.dims.slice(2));
    return products((w.dims[channelAxis] ?? 1) * kernel, a, w.length, judged, kernel);
  };

/** Length of weights in blocks with scales: an element is at most `codes` scales. */
const blockLength = (codes: number, block: number, scales: Magnitude | undefined) =>
  scales && codes * Math.sqrt(block) * scales.length;

/** Codes differ from their zero points by less than 2^bits. */
const matMulNBits: Rule = (judged) => {
  const { node, x } = judged;
  const b = blockLength(2 ** intOf(node, 'bits', 4), intOf(node, 'block_size', 32), x(2));
  return products(intOf(node, 'K', 1), x(0), b, judged);
};

/** Entries of the codebook are at most 1. */
const matMulBnb4: Rule = (judged) => {
  const { node, x } = judged;
  return products(intOf(node, 'K', 1), x(0), blockLength(1, intOf(node, 'block_size', 64), x(2)), judged);
};

/** Contracted indices of an einsum are those that the output lacks. */
const einsum: Rule = (judged) => {
  const [left = '', right = ''] = (judged.node.attributes.get('equation')?.s ?? '').replaceAll(' ', '').split('->');
  const [first = '', second] = left.split(',');
  const [a, b] = [judged.x(0), judged.x(1)];
  if (a === undefined || left.includes('.') || right === '') return undefined;
  const k = [...first].reduce((size, index, i) => (right.includes(index) ? size : size * (a.dims[i] ?? 1)), 1);
  return products(k, a, second === undefined ? Math.sqrt(k) : b?.length, judged);
};

/** Sums over n elements each: at most gamma sqrt(n) |x|. Means are n times smaller. */
const reduction =
  (isMean: boolean): Rule =>
  ({ x, y, u }) => {
    const from = x(0);
    if (from === undefined) return undefined;
    const n = Math.max(1, from.count / Math.max(1, y.count));
    return gamma(n + 4, u) * (Math.sqrt(n) * from.length * (isMean ? 1 / n : 1) + y.length);
  };

/** Windows of an average overlap: each element is read once for each element of the window at most. */
const averagePool: Rule = ({ node, x, y, u }) => {
  const n = productOf(findInts(node, 'kernel_shape') ?? [1]);
  return gamma(n + 4, u) * Math.max(y.length, x(0)?.length ?? 0);
};

/** Sums of squares, whose terms do not cancel. */
const squares: Rule = ({ x, y, u }) => {
  const n = Math.max(1, (x(0)?.count ?? 1) / Math.max(1, y.count));
  return gamma(n + 8, u) * y.length;
};

/** Running sums: n terms each, of magnitudes up to that of the largest. */
const cumulative: Rule = ({ x, y, u }) => {
  const from = x(0);
  if (from === undefined) return undefined;
  const n = Math.max(...from.dims, 1);
  return gamma(n, u) * n * from.largest * Math.sqrt(y.count);
};

/** The largest ratio of the mean square of n neighbors to their variance. */
function conditionOf(values: ArrayLike<number>, n: number, epsilon: number): number {
  let most = 1;
  for (let begin = 0; begin + n <= values.length; begin += n) {
    let [sum, squared] = [0, 0];
    for (let i = begin; i < begin + n; i++) {
      const value = values[i] as number;
      sum += value;
      squared += value * value;
    }
    const [mean, square] = [sum / n, squared / n];
    most = Math.max(most, square / Math.max(square - mean * mean, epsilon));
  }
  return most;
}

/**
 * (x - mean) / deviation * scale + bias. With c the ratio of the mean square to the variance, the error of the mean is up to gamma sqrt(c)
 * deviations. The variance may be the mean of squares minus the squared mean, whose relative error is up to gamma c.
 */
const normalization =
  (size: (from: Magnitude, node: OnnxNode) => number): Rule =>
  ({ x, y, u, node }) => {
    const from = x(0);
    if (from?.values === undefined) return undefined;
    const n = size(from, node);
    const [scale, bias] = [x(1)?.largest ?? 1, x(2)?.largest ?? 0];
    const c = conditionOf(from.values, n, floatOf(node, 'epsilon', 1e-5));
    const all = Math.sqrt(y.count);
    return gamma(n + 16, u) * (c * (y.length + bias * all) + Math.sqrt(c) * all * scale);
  };

const softmax: Rule = ({ node, x, y, u }) => {
  const from = x(0);
  if (from === undefined) return undefined;
  const n = sizeAt(from, intOf(node, 'axis', -1));
  // exp of differences up to twice the largest input, 100 at most, then a sum of n positive terms, and a quotient.
  return gamma(n + 8 + 4 * Math.min(from.largest, 50), u) * y.length;
};

const logSoftmax: Rule = (judged) => {
  const { node, x, y, u } = judged;
  const from = x(0);
  if (from === undefined) return undefined;
  const n = sizeAt(from, intOf(node, 'axis', -1));
  return gamma(n + 8 + 4 * Math.min(from.largest, 50), u) * (Math.sqrt(y.count) + y.length + from.length);
};

/**
 * Recurrent layers: products with the input and the state in each of T steps. Gates are contractions, so errors of the steps add up. An
 * element of the state is at most 1.
 */
const recurrent =
  (gates: number): Rule =>
  ({ x, y, u, output }) => {
    const [from, w, r] = [x(0), x(1), x(2)];
    if (from === undefined || w === undefined || r === undefined) return undefined;
    const [steps, wide, hidden] = [from.dims[0] ?? 1, w.dims[2] ?? 1, (w.dims[1] ?? gates) / gates];
    const once = gamma(wide + hidden + 2, u) * (w.length * from.length + r.length * Math.sqrt(hidden)) + 2 ** -16;
    // The state of an LSTM's cell grows by 1 a step at most.
    return once * steps * Math.sqrt(y.count) * (output === 2 ? steps : 1);
  };

/** A quotient at a tie rounds either way: a code may be off by 1. Scales are quotients of differences. */
const quantize: Rule = (judged) => {
  if (judged.output === 1) return ulps(8)(judged);
  return Math.sqrt(judged.y.count);
};

/** Casts to float16 may round down or up; others to floats are rounded to the nearest. */
const cast: Rule = ({ y }) => (roundoffs[y.type] ?? 0) * 2 * y.length;

const all = (rule: Rule, names: string): [string, Rule][] => names.split(' ').map((name) => [name, rule]);

/** Rules by operator. Operators without one are not judged: random ones, control flow, and fused ones whose formula is not known here. */
const rules = new Map<string, Rule>([
  ...all(
    exact,
    'Identity Reshape Transpose Gather GatherElements GatherND Slice Concat Split Squeeze Unsqueeze Flatten Expand Tile Pad Shape Size Where ' +
      'ScatterElements ScatterND Compress OneHot Trilu DepthToSpace SpaceToDepth MaxPool GlobalMaxPool Relu Neg Abs Min Max Clip Sign Floor ' +
      'Ceil Round Equal Less LessOrEqual Greater GreaterOrEqual Not And Or Xor IsNaN IsInf NonZero ArgMax ArgMin TopK ReduceMax ReduceMin ' +
      'ConstantOfShape EyeLike ReverseSequence MatMulInteger ConvInteger Dropout BitShift Mod Range',
  ),
  ...all(ulps(1), 'Add Sub Mul DequantizeLinear GatherBlockQuantized LeakyRelu PRelu ThresholdedRelu'),
  ...all(ulps(3), 'Div Reciprocal'),
  ...all(ulps(5), 'Sqrt'),
  ...all(chain(4), 'Sum Mean HardSigmoid HardSwish'),
  ...all(chain(16), 'BatchNormalization Resize Upsample RotaryEmbedding'),
  ...all(
    transcendental,
    'Exp Log Sigmoid Tanh Erf Gelu FastGelu BiasGelu QuickGelu Elu Selu Celu Softplus Softsign Mish Pow Swish Silu Asin Acos Atan Sinh Cosh',
  ),
  ...all(approximated(2 ** -11), 'Sin Cos'),
  ...all(matMul, 'MatMul FusedMatMul MatMulIntegerToFloat'),
  ...all(gemm, 'Gemm'),
  ...all(conv(1), 'Conv FusedConv'),
  ...all(conv(0), 'ConvTranspose'),
  ...all(matMulNBits, 'MatMulNBits'),
  ...all(matMulBnb4, 'MatMulBnb4'),
  ...all(einsum, 'Einsum'),
  ...all(reduction(false), 'ReduceSum ReduceL1'),
  ...all(reduction(true), 'ReduceMean GlobalAveragePool'),
  ...all(averagePool, 'AveragePool'),
  ...all(squares, 'ReduceSumSquare ReduceL2'),
  ...all(cumulative, 'CumSum'),
  ...all(
    normalization((from, node) => productOf(from.dims.slice(intOf(node, 'axis', -1)))),
    'LayerNormalization SimplifiedLayerNormalization RMSNormalization',
  ),
  ...all(
    normalization((from) => productOf(from.dims.slice(2))),
    'InstanceNormalization',
  ),
  ...all(
    normalization((from, node) => productOf(from.dims.slice(1)) / Math.max(1, intOf(node, 'num_groups', 1))),
    'GroupNormalization',
  ),
  ...all(softmax, 'Softmax'),
  ...all(logSoftmax, 'LogSoftmax'),
  ...all(recurrent(4), 'LSTM'),
  ...all(recurrent(3), 'GRU'),
  ...all(recurrent(1), 'RNN'),
  ...all(quantize, 'QuantizeLinear DynamicQuantizeLinear'),
  ...all(cast, 'Cast CastLike'),
]);

/** Largest length of the error that rounding explains; undefined if it is not known for the operator. */
export function toleranceOf(judged: JudgedNode): number | undefined {
  const { node, x, y } = judged;
  const rule = rules.get(node.opType);
  const types = [y.type, ...node.inputs.map((_, i) => x(i)?.type ?? '')];
  const u = types.reduce((most, type) => Math.max(most, roundoffs[type] ?? 0), 0);
  const bound = rule?.({ ...judged, u });
  // Numbers below the smallest normal one may become 0 on a GPU.
  const tiny = roundoffs[y.type] === undefined ? 0 : Math.sqrt(y.count) * (y.type === 'float16' ? 2 ** -14 : 2 ** -126);
  return bound === undefined ? undefined : bound + tiny;
}
