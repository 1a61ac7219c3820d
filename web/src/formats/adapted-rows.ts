/** Some rows of weights with adapters, as weights of their own. */
import { elementsOf } from './codecs/elements.js';
import type { LowRankForm } from './codecs/low-rank.js';
import { lowRankRoles } from './codecs/low-rank.js';
import type { LogicalTensor } from './format.js';

/**
 * Rows of a matrix with adapters. The matrices that belong to columns stay as they are.
 * @returns undefined for weights without adapters, and if the rows are not contiguous in each part
 */
export function adaptedRows(weight: LogicalTensor, first: number, count: number): LogicalTensor | undefined {
  const { form, parts, shape, gathered } = weight;
  if (form.codec !== 'low-rank' || gathered !== undefined || form.headRows !== undefined) return undefined;
  const { base, rows, pairs, rowLength } = form as LowRankForm;
  const isPlain = base.codec === 'cast' && rowLength === undefined && pairs.every(({ turned }) => !turned);
  if (!isPlain || shape[0] !== rows) return undefined;
  const byRows = new Set([
    'data',
    ...pairs.flatMap((_, i) => {
      const { up, magnitude } = lowRankRoles(i);
      return [up, magnitude];
    }),
  ]);
  const some = parts.map(({ role, tensor }) => {
    if (!byRows.has(role)) return { role, tensor };
    const rowBytes = tensor.bytes / rows;
    const own = [count, elementsOf(tensor.shape) / rows];
    const byteOffset = tensor.byteOffset + rowBytes * first;
    return { role, tensor: { ...tensor, shape: own, bytes: rowBytes * count, byteOffset } };
  });
  return { ...weight, shape: [count, ...shape.slice(1)], form: { ...form, rows: count } as LowRankForm, parts: some };
}
