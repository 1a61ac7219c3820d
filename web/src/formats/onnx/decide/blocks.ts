/** Chooses weights that become blocks, which operators of onnxruntime read directly. */
import type { MatMulBnb4Form } from '../../codecs/matmul-bnb4.js';
import type { BlockBits, MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import { reasons } from '../../reason.js';
import { floatOf, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import type { ReadingNode } from '../graph/graph.js';
import { looksUpRows, swaps, transposes } from '../graph/products.js';
import { isCalled, type Reading } from '../graph/readers.js';
import { type OnnxReason, ownReasons } from '../reasons.js';
import { type Blocks, type Context, type Keep, keepWeight } from './decision.js';
import { bytesInForm } from './sizes.js';

/** Smallest block. Smaller ones do not pay for their scales, and runtimes lack them. */
export const smallestBlock = 16;

/** Requested blocks. */
interface RequestedBlocks {
  readonly codec: 'matmul-nbits' | 'matmul-bnb4';
  readonly bits: BlockBits;
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

/** True if a Gemm adds its third input. With a factor of 0 it does not read it. */
export function addsC(node: OnnxNode): boolean {
  return node.opType === 'Gemm' && (node.inputs[2] ?? '') !== '' && floatOf(node, 'beta', 1) !== 0;
}

/** The largest of blockSize, blockSize / 2, blockSize / 4 … that divides `rows`. */
export function dividing(rows: number, blockSize: number): number {
  return rows % blockSize === 0 || blockSize < smallestBlock ? blockSize : dividing(rows, blockSize / 2);
}

/** Decides about a weight whose target is blocks: blocks if all readers can take them. */
export function chooseBlocks(context: Context, reading: Reading, options: RequestedBlocks): Blocks | Keep {
  const { weight, readers, leaves } = reading;
  const { codec, bits, blockSize, zeroPoints, scale, range } = options;
  const { shape, bytes } = weight.source;
  const [rows = 0, columns = 0] = shape;
  /** True if the factors of a Gemm can be multiplied in its type: float16 holds them at full precision. */
  const holdsFactors = (node: OnnxNode) =>
    node.opType !== 'Gemm' ||
    scale !== 'F16' ||
    !options.isHalf(node) ||
    (['alpha', 'beta'] as const)
      .filter((factor) => factor === 'alpha' || addsC(node))
      .map((factor) => Math.abs(floatOf(node, factor, 1)))
      .every((magnitude) => magnitude >= 2 ** -14 && magnitude <= 65504);
  // Find the readers that can take blocks. Blocks of a table lie along its rows, then also for products.
  const canLookUp = codec === 'matmul-nbits' && shape.length === 2 && (bits < 8 || columns % blockSize === 0);
  const lookups = canLookUp ? readers.filter(looksUpRows) : [];
  const factors = readers.filter((reader) => transposes(reader) !== undefined && holdsFactors(reader.node));
  const transposed = lookups.length > 0 || (factors[0] !== undefined && transposes(factors[0]) === true);
  const products = factors.filter((reader) => transposes(reader) === transposed);
  const taken = new Set([...products, ...lookups]);
  // Choose the form. Look-ups of rows need whole zero points.
  const [k, n] = transposed ? [columns, rows] : [rows, columns];
  const form: MatMulNBitsForm | MatMulBnb4Form =
    codec === 'matmul-bnb4'
      ? { codec, blockSize: dividing(k, blockSize), transposed }
      : {
          codec,
          bits,
          blockSize,
          zeroPoint: zeroPoints !== false,
          ...(zeroPoints === 'float' && lookups.length === 0 ? { floatZeroPoint: true } : {}),
          transposed,
          scale,
          ...(range === undefined ? {} : { range }),
        };
  // Find the first reason to keep the weight.
  const first = readers[0] as ReadingNode;
  const operator = first.node.opType;
  const isTaken = taken.size > 0;
  const isProduct = first.node.domain === '' && (operator === 'MatMul' || operator === 'Gemm');
  const other = readers.find((reader) => !taken.has(reader));
  const reason: OnnxReason | false | undefined =
    (!isTaken && !isProduct && { kind: 'readBy', operator }) ||
    (shape.length !== 2 && { kind: 'rank', rank: shape.length }) ||
    (!isTaken && first.input === 0 && { kind: 'firstInput', operator }) ||
    (!isTaken && isCalled(first) && { kind: 'inFunction', operator }) ||
    (!isTaken && swaps(first.path) !== undefined && { kind: first.input === 1 ? 'factor' : 'readBy', operator }) ||
    (!isTaken && { kind: 'moved', operator, movers: [...new Set(first.path.map(({ opType }) => opType))] }) ||
    (other && { kind: 'alsoReadBy', operator: other.node.opType }) ||
    (leaves && ownReasons.output) ||
    (form.blockSize < smallestBlock && { kind: 'matrixRows', rows: k }) ||
    (bytesInForm(context, weight, form) >= bytes && reasons.notSmaller);
  if (reason) return keepWeight(weight, reason);
  const { unneeded } = context.graphs.release(weight, [...taken]);
  const halves = new Set([...taken].map(({ node }) => node).filter((node) => options.isHalf(node)));
  return { kind: 'blocks', weight, form, k, n, products, lookups, unneeded, halves };
}
