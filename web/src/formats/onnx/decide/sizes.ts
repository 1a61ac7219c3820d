/** Decides by size if a weight is worth another form. */
import type { Form } from '../../codecs/codec.js';
import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import { dtypeReason, rankReason } from '../../reason.js';
import { elementCount } from '../../tensors.js';
import type { Weight } from '../file/model.js';
import { isFloat32 } from '../graph/readers.js';
import { type OnnxReason, ownReasons } from '../reasons.js';
import type { TargetInfo } from '../targets.js';
import type { Context } from './decision.js';

/** Smallest element count worth a node and scales. */
export const fewestElements = 1024;

/** Reason to keep a weight regardless of its readers; undefined if it may be converted. */
export function whyNotWorth(
  { graphs, trains }: Context,
  weight: Weight,
  takes: TargetInfo['takes'],
): OnnxReason | undefined {
  const { dtype, shape } = weight.source;
  const isTaken = (takes as readonly string[]).includes(dtype) || isFloat32(graphs, weight);
  if (!isTaken) return dtypeReason(dtype) as OnnxReason;
  if (shape.length < 2) return rankReason(shape.length) as OnnxReason;
  if ((elementCount(shape) ?? 0) < fewestElements) return ownReasons.small;
  return trains ? ownReasons.training : undefined;
}

/** Size of the parts of a weight in a form. */
export function bytesInForm({ partsOf }: Context, { source }: Weight, form: Form): number {
  return partsOf(source.shape, form).reduce((sum, { bytes }) => sum + bytes, 0);
}

/** True if a weight takes fewer bytes as codes of a form. Besides their parts, codes add messages of tensors and a node, about 150 bytes. */
export function isSmaller(context: Context, weight: Weight, form: DequantizeLinearForm): boolean {
  return bytesInForm(context, weight, form) + 150 < weight.source.bytes;
}
