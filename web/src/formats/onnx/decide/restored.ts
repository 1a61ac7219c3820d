/** Chooses weights that become codes and are restored to floats before use. */
import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import { reasons } from '../../reason.js';
import { contrib, intOf, type OnnxGraph } from '../file/proto.js';
import { type CodeOptions, linearForm } from '../forms.js';
import type { ReadingNode } from '../graph/graph.js';
import { looksUpRows } from '../graph/products.js';
import type { Channels, Reading } from '../graph/readers.js';
import type { OnnxReason } from '../reasons.js';
import type { TargetOf } from '../targets.js';
import { blocksOf, decideBlocks } from './blocks.js';
import type { Blocks, Context, Dequantizer, Keep, Restored } from './decision.js';
import { isSmaller } from './sizes.js';

/** First version of ai.onnx with the DequantizeLinear of a form. */
function opsetOf({ bits, axis, blockSize, scale }: DequantizeLinearForm): number {
  if (bits === 2) return 25;
  if (bits === 4 || blockSize !== undefined) return 21;
  if (scale === 'F16') return 19;
  return axis === undefined ? 10 : 13;
}

/** True if com.microsoft's DequantizeLinear, which models of any version can have, reads codes of a form. */
function isInContrib({ bits, blockSize, scale }: DequantizeLinearForm): boolean {
  return bits !== 2 && blockSize === undefined && scale === 'F32';
}

/** DequantizeLinear for codes of a form: that of ai.onnx, if the graph can have it. */
export function dequantizerOf({ opsets }: Context, graph: OnnxGraph, form: DequantizeLinearForm): Dequantizer {
  const opset = opsetOf(form);
  return opsets.obstacle(graph, opset) === undefined
    ? { kind: 'dequantize', domain: '', opset }
    : { kind: 'dequantize', domain: contrib, opset: 0 };
}

/** Operators whose weights are one or several matrices, summed over the last dimension or the one before it. */
const ofMatrices: readonly string[] = ['MatMul', 'FusedMatMul', 'MoE', 'LSTM', 'GRU', 'RNN'];

/** Axis of the blocks, which a product sums over. With several matrices it must hold at least one block. */
function blockAxis(shape: readonly number[], { operator, axis }: Channels, blockSize: number): number | undefined {
  const rank = shape.length;
  if (axis === undefined || axis < rank - 2) return undefined;
  const summed = 2 * rank - 3 - axis;
  return rank === 2 || (ofMatrices.includes(operator) && (shape[summed] as number) >= blockSize) ? summed : undefined;
}

/**
 * Gathers that look up rows of a table, or slices along another axis if there is a single scale; undefined if other nodes read it. Gather
 * does not take codes of fewer bits.
 */
function tableReaders(
  { graphs }: Context,
  { weight, readers }: Reading,
  { bits, axis, blockSize }: DequantizeLinearForm,
): readonly ReadingNode[] | undefined {
  const { graph, value } = weight;
  if (bits !== 8 || blockSize !== undefined || (axis !== undefined && axis !== 0)) return undefined;
  const found = readers.filter(
    ({ node, input, path }) =>
      path.length === 0 &&
      input === 0 &&
      node.opType === 'Gather' &&
      node.domain === '' &&
      node.inputs[0] === value &&
      (axis === undefined || intOf(node, 'axis', 0) === axis),
  );
  const isTable =
    found.length > 0 && found.length === graphs.uses(graph, value).length && !graphs.isOutput(graph, value);
  return isTable ? found : undefined;
}

/** First version of ai.onnx that broadcasts. */
export const broadcastOpset = 7;

/** Decides about codes that are restored to floats. @param casts true for Cast and Mul, if codes have 8 bits */
export function restoredOf(context: Context, reading: Reading, asked: CodeOptions, casts: boolean): Restored | Keep {
  const { weight } = reading;
  const { graph, source } = weight;
  const { shape } = source;
  const channels = reading.channels as Channels;
  const keep = (reason: OnnxReason): Keep => ({ kind: 'keep', weight, reason });
  // Choose the form: a scale for each channel or block, or one for all where that takes fewer bytes.
  const options: CodeOptions = { ...asked, scale: source.dtype === 'F16' ? 'F16' : 'F32' };
  const isSymmetric = options.symmetric && options.signed;
  const channelAxis = isSymmetric ? channels.axis : channels.zeroPointAxis;
  const axis = options.blockSize === undefined ? channelAxis : blockAxis(shape, channels, options.blockSize);
  if (options.blockSize !== undefined && axis === undefined) return keep({ kind: 'rank', rank: shape.length });
  let form = linearForm(shape, axis, options);
  if (!isSmaller(context, weight, form)) form = linearForm(shape, undefined, { ...options, blockSize: undefined });
  if (form.axis === undefined && !isSmaller(context, weight, form)) return keep(reasons.notSmaller);
  // Choose the nodes that restore the floats.
  const table = tableReaders(context, reading, form);
  if (table !== undefined) return { kind: 'restored', weight, form, by: { kind: 'gather', readers: table } };
  const { opsets } = context;
  if (casts && form.bits === 8 && opsets.obstacle(graph, broadcastOpset) === undefined) {
    return { kind: 'restored', weight, form, by: { kind: 'cast' } };
  }
  const obstacle = opsets.obstacle(graph, opsetOf(form));
  if (obstacle !== undefined && !isInContrib(form)) return keep(obstacle);
  return { kind: 'restored', weight, form, by: dequantizerOf(context, graph, form) };
}

/** Layers whose errors add up from step to step. int4-weights gives them 8 bits. */
const recurrent: readonly string[] = ['LSTM', 'GRU', 'RNN'];

/** Decides about a weight whose target restores floats. */
export function decideRestored(
  context: Context,
  reading: Reading,
  target: TargetOf<'restored'>,
): Restored | Blocks | Keep {
  const { range: asked, zeroPoints = false, blockSize = target.blockSize, dequantize } = context.choices;
  const range = asked === 'min-max' ? undefined : asked;
  if (target.blockSize === undefined) {
    const signed = target.signed === true;
    return restoredOf(context, reading, { bits: 8, signed, symmetric: signed, range }, dequantize === 'cast');
  }
  if (reading.readers.some(({ node }) => recurrent.includes(node.opType))) {
    return restoredOf(context, reading, { bits: 8, signed: true, symmetric: true, range }, false);
  }
  // Use blocks: DequantizeLinear would restore the whole table at every run, and Gather does not take int4.
  if (reading.readers.every(looksUpRows) && (range === undefined || range === 'mse')) {
    const isHalf = reading.weight.source.dtype === 'F16';
    const found = blocksOf(context, reading, {
      codec: 'matmul-nbits',
      bits: 4,
      blockSize: blockSize as number,
      zeroPoints,
      scale: isHalf ? 'F16' : 'F32',
      range,
      isHalf: () => isHalf,
    });
    if (found.kind === 'blocks') return found;
  }
  const signed = zeroPoints === false;
  const found = restoredOf(context, reading, { bits: 4, signed, symmetric: signed, blockSize, range }, false);
  // Convolutions lose too much with 4 bits.
  const others = { bits: 8, signed: true, symmetric: true, range } as const;
  return found.kind === 'keep' && found.reason.kind === 'rank' ? restoredOf(context, reading, others, false) : found;
}

/**
 * True for products with several matrices, in functions, and behind norms, and for experts without a QMoE, whose nodes stay: DequantizeLinear
 * restores their blocks.
 */
function isRestorable({ halves }: Context, { readers, channels }: Reading, { kind }: OnnxReason): boolean {
  const isProduct = (operator: string) => operator === 'MatMul' || operator === 'Gemm' || operator === 'MoE';
  const areProducts = readers.every(({ node }) => isProduct(node.opType));
  const isNormed = kind === 'readBy' && channels !== undefined && isProduct(channels.operator);
  return halves === undefined && (isNormed || (areProducts && (kind === 'rank' || kind === 'inFunction')));
}

/** Kinds of reasons to keep a weight from blocks that leave it to other codes. */
const open: readonly OnnxReason['kind'][] = ['readBy', 'rank', 'matrixRows', 'alsoReadBy', 'moved', 'inFunction'];

/**
 * Decides about a weight of a target with blocks. Others may have 8 bits and be restored when the model is loaded, so that they have the speed
 * of floats on each backend. They are unsigned, because onnxruntime-web (1.30) looks up int8 on the CPU where all else runs on WebGPU.
 */
export function decideBlocksOrRestored(
  context: Context,
  reading: Reading,
  target: TargetOf<'blocks'>,
): Blocks | Restored | Keep {
  const found = decideBlocks(context, reading, target);
  const isOpen = found.kind === 'keep' && 'restoresOthers' in target && open.includes(found.reason.kind);
  if (!isOpen) {
    const isCoded = target.codec === 'matmul-nbits' && target.bits < 8;
    if (found.kind !== 'keep' || !isCoded || !isRestorable(context, reading, found.reason)) return found;
    const blockSize = context.choices.blockSize ?? target.blockSize;
    const codes = restoredOf(context, reading, { bits: 4, signed: true, symmetric: true, blockSize }, false);
    return codes.kind === 'restored' ? codes : found;
  }
  const range = context.choices.range === 'mse' ? 'mse' : undefined;
  const others = restoredOf(context, reading, { bits: 8, signed: false, symmetric: false, range }, true);
  return others.kind === 'restored' ? others : found;
}
