/**
 * Infers element types of values from operators, and knows the operators that compute in float16.
 * Reference: github.com/microsoft/onnxruntime 0c17f27, onnxruntime/python/tools/transformers/float16.py. Tests run onnxruntime-web 1.30.0.
 */

import { intOf, type OnnxGraph, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import type { Graphs, Scope, Value } from './graph.js';

const [float, int64, bool] = [onnxTypeNumber('F32'), onnxTypeNumber('I64'), onnxTypeNumber('BOOL')];

/** The words of a text. */
export const wordSet = (text: string): ReadonlySet<string> => new Set(text.split(/\s+/));

/** Operators whose floats share one type and that compute well in float16. */
const halfOps = wordSet(
  `Abs Acos Acosh Add Asin Asinh Atan Atanh Attention AveragePool BatchNormalization Ceil Clip Compress Concat Conv ConvTranspose Cos Cosh
  DepthToSpace Div Dropout Einsum Elu Erf Exp Expand Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool
  GlobalLpPool GlobalMaxPool GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization LRN LSTM LayerNormalization
  LeakyRelu Log LogSoftmax LpNormalization LpPool MatMul MaxPool Mean MeanVarianceNormalization Mish Mod Mul Neg PRelu Pad Pow RMSNormalization
  RNN Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
  Reshape ReverseSequence RotaryEmbedding Round Scatter ScatterElements ScatterND Selu Sigmoid Sign SimplifiedLayerNormalization Sin Sinh
  Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile Transpose Trilu Unsqueeze Where
  ArgMax ArgMin Equal Greater GreaterOrEqual Less LessOrEqual`,
);

/** Operators of com.microsoft whose floats share one type and that compute well in float16. */
const contribOps = wordSet(
  `Attention BiasGelu FastGelu FusedMatMul Gelu GroupQueryAttention MultiHeadAttention QuickGelu RotaryEmbedding SkipLayerNormalization
  SkipSimplifiedLayerNormalization`,
);

/** Operators that the usual converters leave in float32. Their first input determines the type. */
const floatOps = wordSet('Celu CumSum Max Min RandomNormalLike RandomUniformLike Resize RoiAlign TopK Upsample');

/** Operators that take floats of any type. */
const anyOps = wordSet('Cast NonZero Shape Size');

/** Type of an output: a fixed one, or that of the node's floats. */
type OutputType = number | 'floats';

/**
 * Types of outputs, of operators with several outputs, or with one of a fixed type. Others have one output with the type of the floats.
 * Reference: github.com/onnx/onnx v1.20, docs/Operators.md (opset 25), and github.com/microsoft/onnxruntime v1.22,
 * docs/ContribOperators.md.
 */
const outputs: Readonly<Record<string, readonly OutputType[]>> = {
  ...Object.fromEntries(
    ['Shape', 'Size', 'NonZero', 'ArgMax', 'ArgMin', 'NonMaxSuppression'].map((op) => [op, [int64]]),
  ),
  ...Object.fromEntries(
    'And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Xor'.split(' ').map((op) => [op, [bool]]),
  ),
  // Y, the present keys and values, and the products of queries and keys.
  Attention: ['floats', 'floats', 'floats', 'floats'],
  // Those of com.microsoft, with their caches.
  GroupQueryAttention: ['floats', 'floats', 'floats', 'floats'],
  MultiHeadAttention: ['floats', 'floats', 'floats', 'floats'],
  // Until opset 13, Y, mean, variance, and both as saved; since then Y and running statistics.
  BatchNormalization: ['floats', 'floats', 'floats', 'floats', 'floats'],
  Dropout: ['floats', bool],
  GRU: ['floats', 'floats'],
  LSTM: ['floats', 'floats', 'floats'],
  RNN: ['floats', 'floats'],
  MaxPool: ['floats', int64],
  TopK: ['floats', int64],
  Unique: ['floats', int64, int64, int64],
  // Mean and inverse deviation have the type of stash_type, float32 by default.
  LayerNormalization: ['floats', float, float],
  SkipLayerNormalization: ['floats', float, float, 'floats'],
  SkipSimplifiedLayerNormalization: ['floats', float, float, 'floats'],
  DynamicQuantizeLinear: [onnxTypeNumber('U8'), float, onnxTypeNumber('U8')],
  MatMulInteger: [onnxTypeNumber('I32')],
  ConvInteger: [onnxTypeNumber('I32')],
  RandomNormal: [float],
  RandomUniform: [float],
};

/** Type of an output by the operator; undefined if it is unknown. */
function listedType(opType: string, output: number): OutputType | undefined {
  const listed = outputs[opType];
  // Any number of outputs.
  if (listed === undefined) return output === 0 || opType === 'Split' ? 'floats' : undefined;
  return listed[output];
}

/** Input that determines the type of an operator's floats, if not the first one. */
const typeInputs: Readonly<Record<string, number>> = { Where: 1, DequantizeLinear: 1, SequenceInsert: -1 };

/** Inputs that stay float32, by operator. */
const floatInputs: Readonly<Record<string, number>> = { Dropout: 1 };

/** Arithmetic that a node supports: float16; floats of any type; float32 only. */
export type Arithmetic = 'half' | 'any' | 'float';

/** Types of values. */
export class Types {
  readonly #graphs: Graphs;
  readonly #types = new Map<Value, number>();

  constructor(graphs: Graphs, scope: Scope) {
    this.#graphs = graphs;
    const declared = new Map<OnnxGraph, Map<string, number>>();
    const hints = new Map<OnnxGraph, Map<string, number>>();
    for (const value of graphs.valuesOf(scope)) {
      const { name, graph, weight, producer } = value;
      if (producer !== undefined) continue;
      const known = declared.get(graph) ?? new Map(graph.inputs.map((input) => [input.name, input.type]));
      declared.set(graph, known);
      const type = weight === undefined ? known.get(name) : onnxTypeNumber(weight.source.dtype);
      if (type) this.#types.set(value, type);
    }
    for (const { node, graph } of graphs.nodes) {
      if (graphs.scopeOf(graph) !== scope) continue;
      const known =
        hints.get(graph) ?? new Map([...graph.values, ...graph.outputs].map(({ name, type }) => [name, type]));
      hints.set(graph, known);
      for (const [i, name] of node.outputs.entries()) {
        const value = graphs.valueAt(graph, name);
        const type = this.#outputType(node, graph, i) ?? known.get(name);
        if (value !== undefined && type) this.#types.set(value, type);
      }
    }
  }

  /** Type of a value; undefined if unknown or not a tensor. */
  of(value: Value | undefined): number | undefined {
    return value && this.#types.get(value);
  }

  isFloat(value: Value | undefined): boolean {
    return this.of(value) === float;
  }

  inputType({ inputs }: OnnxNode, graph: OnnxGraph, input: number): number | undefined {
    const name = inputs[input] ?? '';
    return name === '' ? undefined : this.of(this.#graphs.valueAt(graph, name));
  }

  /** The type of an operator's floats. */
  #floatType(node: OnnxNode, graph: OnnxGraph): number | undefined {
    const { opType, inputs } = node;
    const at = typeInputs[opType] ?? 0;
    const first = this.inputType(node, graph, at);
    if (first !== undefined || at !== 0 || !symmetricOps.has(opType)) return first;
    return inputs.map((_, i) => this.inputType(node, graph, i)).find((type) => type !== undefined);
  }

  #outputType(node: OnnxNode, graph: OnnxGraph, output: number): number | undefined {
    const { opType, domain, attributes } = node;
    if (domain !== '') {
      if (domain !== 'com.microsoft' || !contribOps.has(opType)) return undefined;
      const own = listedType(opType, output);
      return own === 'floats' ? this.#floatType(node, graph) : own;
    }
    if (opType === 'Cast') return intOf(node, 'to', 0);
    if (opType === 'Constant') {
      if (attributes.has('value_float') || attributes.has('value_floats')) return float;
      if (attributes.has('value_int') || attributes.has('value_ints')) return int64;
      return attributes.get('value')?.tensor?.element?.id;
    }
    if (opType === 'ConstantOfShape') return attributes.get('value')?.tensor?.element?.id ?? float;
    if (opType === 'If' || opType === 'Loop' || opType === 'Scan') return this.#bodyType(node, output);
    const type = listedType(opType, output);
    if (type !== 'floats') return type;
    const isKnown = halfOps.has(opType) || floatOps.has(opType) || opType === 'Range';
    return isKnown || opType === 'DequantizeLinear' ? this.#floatType(node, graph) : undefined;
  }

  /** Type of an output by the body of a subgraph. */
  #bodyType({ opType, attributes }: OnnxNode, output: number): number | undefined {
    const body = attributes.get(opType === 'If' ? 'then_branch' : 'body')?.graphs[0];
    // The first output of a Loop's body is its condition.
    return body?.outputs[opType === 'Loop' ? output + 1 : output]?.type || undefined;
  }

  /** Arithmetic that a node supports, by its operator and inputs. */
  arithmetic(node: OnnxNode, graph: OnnxGraph): Arithmetic {
    const { opType, domain, inputs } = node;
    if (domain === '' && anyOps.has(opType)) return 'any';
    const isKnown = domain === '' ? halfOps.has(opType) : domain === 'com.microsoft' && contribOps.has(opType);
    if (!isKnown || this.#floatType(node, graph) !== float) return 'float';
    // onnxruntime (1.30) scatters sums and other reductions in float32 alone.
    const { s: reduction = 'none' } = node.attributes.get('reduction') ?? {};
    if (opType.startsWith('Scatter') && reduction !== 'none') return 'float';
    // An input of unknown type might be a float that must change with the others.
    return inputs.every((name, i) => name === '' || this.inputType(node, graph, i) !== undefined) ? 'half' : 'float';
  }

  /** True if an input changes its type with the node. */
  changes({ opType }: OnnxNode, input: number): boolean {
    return floatInputs[opType] !== input;
  }

  /** True if an output has the type of the node's floats. */
  isResult({ opType }: OnnxNode, output: number): boolean {
    return listedType(opType, output) === 'floats';
  }
}

/** Operators all of whose inputs have one type. */
const symmetricOps = wordSet(
  'Add Concat Div Mean Mod Mul Pow Sub Sum MatMul Equal Greater GreaterOrEqual Less LessOrEqual Min Max',
);
