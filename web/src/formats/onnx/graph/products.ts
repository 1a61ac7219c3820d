/** Classifies readers of a matrix: products, and look-ups of its rows. */
import { findInts, intOf, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import type { ReadingNode } from './graph.js';

/** Number of the element type that a reader sees: that of the last Cast before it. */
export function typeRead({ path }: ReadingNode, stored: string): number {
  const cast = path.findLast(({ opType, domain }) => opType === 'Cast' && domain === '');
  return cast === undefined ? onnxTypeNumber(stored) : intOf(cast, 'to', 0);
}

/** True if a path swaps both dimensions of a matrix, false if it leaves them; undefined for other moves. */
export function swaps(path: readonly OnnxNode[]): boolean | undefined {
  let swapped = false;
  for (const node of path) {
    const { opType, domain } = node;
    if ((opType === 'Identity' || opType === 'Cast') && domain === '') continue;
    if (opType !== 'Transpose' || domain !== '' || (findInts(node, 'perm') ?? [1, 0]).join() !== '1,0')
      return undefined;
    swapped = !swapped;
  }
  return swapped;
}

/** True if a product reads the transpose of the weight as its second factor; undefined for other readers. */
export function transposes({ node, input, path }: ReadingNode): boolean | undefined {
  const swapped = input === 1 && node.domain === '' ? swaps(path) : undefined;
  if (swapped === undefined || node.opType === 'MatMul') return swapped;
  return node.opType === 'Gemm' ? swapped !== (intOf(node, 'transB', 0) !== 0) : undefined;
}

/** True if a Gather looks up whole rows of the weight itself. */
export function looksUpRows({ node, input, path }: ReadingNode): boolean {
  return (
    node.opType === 'Gather' && node.domain === '' && input === 0 && path.length === 0 && intOf(node, 'axis', 0) === 0
  );
}
