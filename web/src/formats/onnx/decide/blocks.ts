/** Chooses weights that become blocks, which operators of onnxruntime read directly. */
import type { MatMulBnb4Form } from '../../codecs/matmul-bnb4.js';
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import { reasons } from '../../reason.js';
import { floatOf, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import type { ReadingNode } from '../graph/graph.js';
import { looksUpRows, swaps, transposes } from '../graph/products.js';
import { isCalled, type Reading } from '../graph/readers.js';
import { type OnnxReason, ownReasons } from '../reasons.js';
import type { TargetOf } from '../targets.js';
import type { Blocks, Context, Keep } from './decision.js';
import { bytesIn } from './sizes.js';

/** Smallest block. Smaller ones do not pay for their scales, and runtimes lack them. */
export const smallestBlock = 16;

/** Requested blocks. */
export interface RequestedBlocks {
  readonly codec: 'matmul-nbits' | 'matmul-bnb4';
  readonly bits: 2 | 4 | 8;
  readonly blockSize: number;
  readonly zeroPoints: boolean | 'float';
  /** Type of the scales, in which MatMulNBits computes. */
  readonly scale: 'F32' | 'F16';
  readonly range: 'mse' | undefined;
  /** True if a node reads and gives float16. */
  isHalf(node: OnnxNode): boolean;
}

/** Float type as which all readers read a weight; undefined for several or other types. */
export function floatsRead({ types }: Reading): 'F32' | 'F16' | undefined {
  if (types.size > 1) return undefined;
  return (['F32', 'F16'] as const).find((name) => types.has(onnxTypeNumber(name)));
}

/** Range of a Gemm's factors that float16 holds at full precision. */
const [leastHalf, mostHalf] = [2 ** -14, 65504];

/** True if a Gemm adds its third input. With a factor of 0 it does not read it. */
export function addsC(node: OnnxNode): boolean {
  return node.opType === 'Gemm' && (node.inputs[2] ?? '') !== '' && floatOf(node, 'beta', 1) !== 0;
}

/** True if the factors of a Gemm can be multiplied in its type. */
function holdsFactors(node: OnnxNode, { scale, isHalf }: RequestedBlocks): boolean {
  const isHeld = (factor: 'alpha' | 'beta') => {
    const magnitude = Math.abs(floatOf(node, factor, 1));
    return magnitude >= leastHalf && magnitude <= mostHalf;
  };
  const isFloat = node.opType !== 'Gemm' || scale !== 'F16' || !isHalf(node);
  return isFloat || (isHeld('alpha') && (!addsC(node) || isHeld('beta')));
}

/** The largest of blockSize, blockSize / 2, blockSize / 4 … that divides `rows`. */
export function dividing(rows: number, blockSize: number): number {
  return rows % blockSize === 0 || blockSize < smallestBlock ? blockSize : dividing(rows, blockSize / 2);
}

/** Form of a matrix of k rows, with blocks along its columns, or along its rows if it is transposed. */
function formOf(
  { codec, bits, blockSize, zeroPoints, scale, range }: RequestedBlocks,
  k: number,
  transposed: boolean,
  isTable: boolean,
): MatMulNBitsForm | MatMulBnb4Form {
  if (codec === 'matmul-bnb4') return { codec, blockSize: dividing(k, blockSize), transposed };
  // Look-ups of rows need whole zero points.
  const isFloat = zeroPoints === 'float' && !isTable;
  return {
    codec,
    bits,
    blockSize,
    zeroPoint: zeroPoints !== false,
    ...(isFloat ? { floatZeroPoint: true } : {}),
    transposed,
    scale,
    ...(range === undefined ? {} : { range }),
  };
}

/** The reason why a reader cannot take blocks. */
function whyNotTaken(reader: ReadingNode, rank: number): OnnxReason {
  const { node, input, path } = reader;
  const operator = node.opType;
  if (node.domain !== '' || (operator !== 'MatMul' && operator !== 'Gemm')) return { kind: 'readBy', operator };
  if (rank !== 2) return { kind: 'rank', rank };
  if (input === 0) return { kind: 'firstInput', operator };
  if (isCalled(reader)) return { kind: 'inFunction', operator };
  if (swaps(path) !== undefined) return { kind: input === 1 ? 'factor' : 'readBy', operator };
  return { kind: 'moved', operator, movers: [...new Set(path.map(({ opType }) => opType))] };
}

/** A check that returns the reason to keep a weight, if it cannot become blocks. */
type Obstacle = () => OnnxReason | false | undefined;

function firstReason(obstacles: readonly Obstacle[]): OnnxReason | undefined {
  for (const obstacle of obstacles) {
    const reason = obstacle();
    if (reason) return reason;
  }
  return undefined;
}

/** Decides about a weight whose target is blocks: blocks if all readers can take them. */
export function blocksOf(context: Context, reading: Reading, options: RequestedBlocks): Blocks | Keep {
  const { weight, readers, leaves } = reading;
  const { shape, bytes } = weight.source;
  const [rows = 0, columns = 0] = shape;
  // Find the readers that can take blocks. Blocks of a table lie along its rows, then also for products.
  const isWhole = options.bits < 8 || columns % options.blockSize === 0;
  const canLookUp = options.codec === 'matmul-nbits' && shape.length === 2 && isWhole;
  const lookups = canLookUp ? readers.filter(looksUpRows) : [];
  const factors = readers.filter((reader) => transposes(reader) !== undefined && holdsFactors(reader.node, options));
  const transposed = lookups.length > 0 || (factors[0] !== undefined && transposes(factors[0]) === true);
  const products = factors.filter((reader) => transposes(reader) === transposed);
  const taken = [...products, ...lookups];
  const known = new Set(taken);
  const other = readers.find((reader) => !known.has(reader));
  // Choose the form.
  const [k, n] = transposed ? [columns, rows] : [rows, columns];
  const form = formOf(options, k, transposed, lookups.length > 0);
  // Check the obstacles.
  const obstacles: readonly Obstacle[] = [
    () => taken.length === 0 && whyNotTaken(readers[0] as ReadingNode, shape.length),
    () => shape.length !== 2 && { kind: 'rank', rank: shape.length },
    () => other && { kind: 'alsoReadBy', operator: other.node.opType },
    () => leaves && ownReasons.output,
    () => form.blockSize < smallestBlock && { kind: 'matrixRows', rows: k },
    () => bytesIn(context, weight, form) >= bytes && reasons.notSmaller,
  ];
  const reason = firstReason(obstacles);
  if (reason !== undefined) return { kind: 'keep', weight, reason };
  const { unneeded } = context.graphs.release(weight, taken);
  const halves = new Set(taken.map(({ node }) => node).filter((node) => options.isHalf(node)));
  return { kind: 'blocks', weight, form, k, n, products, lookups, unneeded, halves };
}

/** Decides about a weight of a target with blocks. */
export function decideBlocks(context: Context, reading: Reading, target: TargetOf<'blocks'>): Blocks | Keep {
  const { choices, halves } = context;
  // Readers in float16 compute in float16.
  const readsHalf = floatsRead(reading) === 'F16';
  const isBeyond = reading.readers.some(({ node }) => halves?.isBeyond(node));
  return blocksOf(context, reading, {
    codec: target.codec,
    bits: target.bits,
    blockSize: choices.blockSize ?? target.blockSize,
    zeroPoints: choices.zeroPoints ?? false,
    scale: readsHalf || (target.half && !isBeyond) ? 'F16' : 'F32',
    range: choices.range === undefined || choices.range === 'min-max' ? undefined : 'mse',
    isHalf: (node) => readsHalf || halves?.has(node) === true,
  });
}
