/** Helpers for tensors, shared by formats. */

import { isBlockType } from '../core/blocks.js';
import { type Note, noteOf } from '../core/note.js';
import type { CastForm } from './codecs/cast.js';
import type { Part } from './codecs/codec.js';
import type { CopyForm } from './codecs/copy.js';
import type { GgmlForm } from './codecs/ggml.js';
import type { LogicalTensor, PlannedTensor, SourceTensor } from './format.js';
import type { Reason } from './reason.js';

/** The note that says what was lost before; none without weights. @param weights with words for the method and the type of each */
export function quantizedBefore(weights: readonly { readonly name: string; readonly words: string }[]): Note[] {
  if (weights.length === 0) return [];
  const forms = new Map<string, number>();
  for (const { words } of weights) forms.set(words, (forms.get(words) ?? 0) + 1);
  const kinds = [...forms].map(([words, count]) => (forms.size === 1 ? words : `${count} in ${words}`));
  const were = weights.length === 1 ? 'a weight was' : `${weights.length} weights were`;
  const text =
    `${were} quantized before (${kinds.join('; ')}): what that lost stays lost, and the errors in the report are those against the ` +
    'restored values';
  return [noteOf('sourceQuantized', { tensors: weights.map(({ name }) => name) }, text)];
}

/** Number of elements of a shape; undefined if the product of its nonzero dimensions is not a safe integer. */
export function elementCount(shape: readonly number[]): number | undefined {
  let product = 1;
  for (const dimension of shape) {
    product *= dimension === 0 ? 1 : dimension;
    if (product > Number.MAX_SAFE_INTEGER) return undefined;
  }
  return shape.includes(0) ? 0 : product;
}

/** Places surrogates, which begin the code points beyond U+FFFF, behind all other units of UTF-16. */
function unitOrder(unit: number): number {
  if (unit < 0xd800) return unit;
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}

/** Code point order, which is UTF-8 byte order. (`<` on strings compares UTF-16 units, another order beyond U+FFFF.) */
export function compareNames(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const [left, right] = [a.charCodeAt(i), b.charCodeAt(i)];
    if (left !== right) return unitOrder(left) - unitOrder(right);
  }
  return a.length - b.length;
}

/** Form of each float type, shared by all tensors because a model may have a hundred thousand of them. */
const floatForms = new Map(
  (['F32', 'F16', 'BF16', 'F64'] as const).map((to): [string, CastForm] => [to, { codec: 'cast', to }]),
);

const blockForms = new Map<string, GgmlForm>();

/** The name of a part of a tensor. */
export function partName(name: string, { suffix, replaces }: Pick<Part, 'suffix' | 'replaces'>): string {
  const isReplaced = replaces !== undefined && name.endsWith(replaces);
  return (isReplaced ? name.slice(0, -replaces.length) : name) + suffix;
}

/** A stored tensor as a logical one: one array of elements. */
export function plainTensor(tensor: SourceTensor): LogicalTensor {
  const { name, shape, dtype, bytes } = tensor;
  let form: CastForm | GgmlForm | CopyForm | undefined = floatForms.get(dtype);
  if (form === undefined && isBlockType(dtype)) {
    form = blockForms.get(dtype) ?? { codec: 'ggml', to: dtype };
    blockForms.set(dtype, form);
  }
  form ??= { codec: 'copy', dtype, bytes };
  return { name, shape, type: dtype, form, parts: [{ role: 'data', tensor }] };
}

/** Forms and parts shared by copies of tensors of one type and shape. */
export type Copies = Map<string, { readonly form: CopyForm; readonly parts: readonly Part[] }>;

/** A stored tensor that is copied. @param copies cache shared with other copies */
export function keptTensor(tensor: SourceTensor, kept: Reason, copies: Copies = new Map()): PlannedTensor {
  const { name, shape, dtype, bytes } = tensor;
  const key = `${dtype} ${shape}`;
  let copy = copies.get(key);
  // Blocks of unknown types may have any size.
  if (copy?.form.bytes !== bytes) {
    const parts = [{ role: 'data', suffix: '', dtype, shape, bytes }];
    copy = { form: { codec: 'copy', dtype, bytes }, parts };
    copies.set(key, copy);
  }
  const { form, parts } = copy;
  return { source: { name, shape, type: dtype, form, parts: [{ role: 'data', tensor }] }, form, parts, kept };
}

/** Like `keptTensor`, for a tensor whose name or shape differs from the stored one. */
export function keptLogical(source: LogicalTensor, kept: Reason): PlannedTensor {
  const [{ tensor }] = source.parts as [LogicalTensor['parts'][number]];
  const { dtype, bytes } = tensor;
  const form: CopyForm = { codec: 'copy', dtype, bytes };
  const { shape } = source;
  return {
    source: { ...source, form },
    form,
    parts: [{ role: 'data', suffix: '', dtype, shape, bytes }],
    kept,
  };
}
