/**
 * Chooses mixtures of experts whose weights become blocks: a MoE becomes a QMoE.
 * Reference: github.com/microsoft/onnxruntime, onnxruntime/contrib_ops/{cpu,webgpu}/moe. Tests run onnxruntime-web 1.30.0.
 */
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import { contrib, intOf } from '../file/proto.js';
import type { Reading } from '../graph/readers.js';
import type { TargetOf } from '../targets.js';
import { dividing, floatsRead, smallestBlock } from './blocks.js';
import type { Context, Experts } from './decision.js';
import { bytesIn, whyNotWorth } from './sizes.js';
import { ownWeights } from './together.js';

/** Inputs of a MoE with weights. Those of a third layer, which onnxruntime does not take, and its biases follow. */
const [first, second, third] = [2, 4, 6];

/**
 * Decides about both weights of a mixture of experts; undefined if onnxruntime would not compute the same with codes.
 */
export function decideExperts(context: Context, reading: Reading, target: TargetOf<'blocks'>): Experts | undefined {
  const { readers, leaves, open } = reading;
  const [reader] = readers;
  if (reader === undefined || readers.length > 1 || leaves || open !== undefined || reader.path.length > 0)
    return undefined;
  const { node, input } = reader;
  if (node.opType !== 'MoE' || node.domain !== contrib || (input !== first && input !== second)) return undefined;
  if (target.codec !== 'matmul-nbits' || target.bits === 2) return undefined;
  if (intOf(node, 'use_sparse_mixer', 0) !== 0) return undefined;
  const isGated = node.attributes.get('activation_type')?.s === 'swiglu';
  if (node.inputs.slice(third).some((name) => name !== '')) return undefined;
  if (isGated && intOf(node, 'swiglu_fusion', 0) !== 1) return undefined;
  // Find both weights, and compare their shapes.
  const own = ownWeights(context, reader, [first, second], {
    asks: (weight) => context.targetOf(weight) === target && whyNotWorth(context, weight, target.takes) === undefined,
  });
  const [up, down] = [own?.get(first), own?.get(second)];
  if (own === undefined || up === undefined || down === undefined || up.source.dtype !== down.source.dtype)
    return undefined;
  const [experts, rows, hidden = 0, ...more] = up.source.shape;
  const inner = down.source.shape[2] ?? 0;
  const fits = down.source.shape.join() === [experts, hidden, inner].join() && rows === (isGated ? 2 : 1) * inner;
  if (!fits || more.length > 0) return undefined;
  // Choose the form: one block size for both, and the type that the node reads.
  const { choices, halves } = context;
  const blockSize = dividing(inner, dividing(hidden, choices.blockSize ?? target.blockSize));
  if (blockSize < smallestBlock) return undefined;
  const form: MatMulNBitsForm = {
    codec: 'matmul-nbits',
    bits: target.bits,
    blockSize,
    zeroPoint: false,
    transposed: true,
    scale: floatsRead(reading) === 'F16' || halves?.has(node) === true ? 'F16' : 'F32',
    ...(choices.range === 'mse' ? { range: 'mse' } : {}),
  };
  const isSmaller = [up, down].every((weight) => bytesIn(context, weight, form) < weight.source.bytes);
  if (!isSmaller) return undefined;
  return { kind: 'experts', operator: 'MoE', reader, weights: own, form };
}
