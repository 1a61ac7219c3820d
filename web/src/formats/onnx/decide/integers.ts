/**
 * Chooses weights that become 8-bit integers, which are multiplied directly: activations are quantized while the model runs, weights now.
 * Reference: github.com/microsoft/onnxruntime 103f80c, onnxruntime/python/tools/quantization/operators;
 * github.com/huggingface/transformers.js, scripts/quantize.py at 4e1b4b6^. Tests run onnxruntime-web 1.30.0.
 */
import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import { reasons } from '../../reason.js';
import { contrib, floatOf, intOf, onnxTypeNumber } from '../file/proto.js';
import { linearForm } from '../forms.js';
import type { ReadingNode } from '../graph/graph.js';
import { swaps, typeRead } from '../graph/products.js';
import { channelAxis, isCalled, type Reading } from '../graph/readers.js';
import type { TargetOf } from '../targets.js';
import { type Context, type IntegerReader, keepWeight, type WeightDecision } from './decision.js';
import { chooseRestored, dequantizerOf } from './restored.js';
import { isSmaller } from './sizes.js';
import { decideTogether, type IntegerOptions } from './together.js';

/** First version of ai.onnx with DynamicQuantizeLinear. */
export const integerOpset = 11;

/**
 * Codes of products of a target in a model. On x86 processors without VNNI, onnxruntime adds two products of uint8 and int8 in 16 bits, which
 * saturate unless weights have 7 bits (reduce_range of its tools). uint8 weights do not, and take at most 1.9 times as long there
 * (tests/bench/backends.mjs). So codes of q8 that would be int8 have 128 added, and those of int8 have 7 bits.
 */
function productCodes({ hasSymmetricQ8, choices: { reduceRange } }: Context, { signed }: TargetOf<'integers'>) {
  const symmetric = signed === 'byModel' ? hasSymmetricQ8 : signed;
  return {
    signed: signed === 'byModel' ? symmetric && reduceRange === true : signed,
    symmetric,
    reduced: reduceRange !== false,
  };
}

/** Integer operation of a reader; undefined if it does not take codes. */
function integerOperation(reader: ReadingNode, rank: number): IntegerReader['operation'] | undefined {
  const { node, input, path } = reader;
  const { opType, domain, inputs, attributes } = node;
  // Attention has an integer counterpart with a bias, and without further inputs.
  const [, , bias = '', , , ...more] = inputs;
  const isAttention = domain === contrib && opType === 'Attention' && !attributes.has('qkv_hidden_sizes');
  if (isAttention && input === 1 && path.length === 0 && bias !== '' && more.every((one) => one === '')) {
    return 'attention';
  }
  if (domain !== '' || typeRead(reader, 'F32') !== onnxTypeNumber('F32')) return undefined;
  // Nodes before it may swap both dimensions of a matrix, for a product alone.
  const isUnmoved = path.every((one) => one.domain === '' && (one.opType === 'Identity' || one.opType === 'Cast'));
  const swapped = rank === 2 ? swaps(path) : isUnmoved ? false : undefined;
  if (swapped === undefined) return undefined;
  // A Gemm is a product and a sum if it has no factors.
  const isSum =
    opType === 'Gemm' &&
    floatOf(node, 'alpha', 1) === 1 &&
    intOf(node, 'transA', 0) === 0 &&
    (inputs.length < 3 || floatOf(node, 'beta', 1) === 1);
  if (input === 1 && (opType === 'MatMul' || isSum)) return 'product';
  if (input === 1 && opType === 'Conv' && !swapped) return 'convolution';
  return input === 0 && opType === 'Gather' && !swapped ? 'lookup' : undefined;
}

/** Form of a weight, which depends on all of its readers. */
function integerForm(
  shape: readonly number[],
  readers: readonly IntegerReader[],
  { signed, symmetric, reduced, perChannel, range }: IntegerOptions,
): DequantizeLinearForm {
  const operations = new Set(readers.map(({ operation }) => operation));
  // Treat tables as activations: unsigned, with a single scale.
  if (operations.has('lookup')) {
    return linearForm(shape, undefined, { bits: 8, signed: false, symmetric: false, range });
  }
  // Convolutions with signed weights are slow in WebAssembly, and unsigned codes with zero point 128 have the same values. A convolution
  // has one zero point, so only symmetric codes can have a scale for each channel.
  if (operations.has('convolution')) {
    const each = perChannel && operations.size === 1;
    const codes = { bits: 8, signed: false, symmetric: symmetric || each, range } as const;
    const form = linearForm(shape, each ? 0 : undefined, codes);
    return each ? { ...form, zeroPoint: false } : form;
  }
  // Outputs are multiplied by the scales. If channels lie along different axes, use a single scale.
  const [axis, ...others] = new Set(readers.map(({ reader }) => channelAxis(reader, shape)));
  const along = perChannel && shape.length === 2 && others.length === 0 ? axis : undefined;
  const form = linearForm(shape, along, { bits: 8, signed, symmetric, reduced: signed && reduced, range });
  // Symmetric codes have one zero point for all channels, which is not stored beside each scale.
  return symmetric ? { ...form, zeroPoint: false } : form;
}

/** Decides about a weight of a target for integers. */
export function decideIntegers(context: Context, reading: Reading, target: TargetOf<'integers'>): WeightDecision {
  const { graphs, choices, opsets, range } = context;
  const { weight, readers } = reading;
  const { shape } = weight.source;
  const codes = productCodes(context, target);
  const { symmetric } = codes;
  const options: IntegerOptions = {
    ...codes,
    perChannel: choices.perTensor !== true,
    range,
    asks: (other) => {
      const wanted = context.targetOf(other);
      const isTaken = other.source.dtype === 'F32' && wanted?.kind === 'integers';
      return isTaken && productCodes(context, wanted).symmetric === symmetric;
    },
  };
  // Take all weights of a node at once, if it computes with integers only then.
  const [first, ...others] = readers as readonly [ReadingNode, ...ReadingNode[]];
  const together = others.length === 0 ? decideTogether(context, weight, first, options) : undefined;
  if (together !== undefined) return together;
  // Find the readers that take codes.
  const taken = readers.flatMap((reader): IntegerReader[] => {
    const operation = integerOperation(reader, shape.length);
    return operation === undefined ? [] : [{ reader, operation }];
  });
  const reason =
    taken.length > 0
      ? opsets.obstacle(weight.graph, integerOpset)
      : ({ kind: isCalled(first) ? 'inFunction' : 'readBy', operator: first.node.opType } as const);
  if (reason !== undefined) {
    const found = chooseRestored(context, reading, { bits: 8, signed: symmetric, symmetric, range });
    return found.kind === 'restored' ? { ...found, reason } : found;
  }
  const form = integerForm(shape, taken, options);
  if (!isSmaller(context, weight, form)) return keepWeight(weight, reasons.notSmaller);
  const { isRead, unneeded } = graphs.release(
    weight,
    taken.map(({ reader }) => reader),
  );
  // Store zero points for DequantizeLinear, which defaults to 0.
  const whole = isRead && !form.signed ? { ...form, zeroPoint: true } : form;
  const dequantizer = isRead ? dequantizerOf(context, weight.graph, whole) : undefined;
  return { kind: 'integers', weight, form: whole, readers: taken, isSymmetric: symmetric, unneeded, dequantizer };
}
