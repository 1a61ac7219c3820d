/** Sizes and positions in logical tensors. */

import { ScalepointError } from '../core/errors.js';
import { type Hint, mention } from '../core/option-problem.js';
import type { Problem, Rectangle } from '../formats/codecs/codec.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { codecOf } from '../formats/codecs/registry.js';
import { type ByteSource, quoted } from '../formats/files/bytes.js';
import type { LogicalTensor, PlannedTensor, SourceTensor } from '../formats/format.js';

/** Bytes of the stored tensors that a tensor consists of. */
export function storedBytes({ parts }: LogicalTensor): number {
  return parts.reduce((sum, { tensor }) => sum + tensor.bytes, 0);
}

/** The stored tensor that holds the elements. */
export function mainPart({ parts }: LogicalTensor): SourceTensor {
  return (parts[0] as (typeof parts)[number]).tensor;
}

/** The position in its tensor of an element of a rectangle. */
export function elementAt({ row, column, columns, width }: Rectangle, index: number): number {
  return (row + Math.floor(index / columns)) * width + column + (index % columns);
}

/** The index of an element, as in `[3, 0, 7]`. */
export function elementIndex(element: number, shape: readonly number[]): string {
  const index: number[] = [];
  let rest = element;
  for (const dimension of [...shape].reverse()) {
    index.unshift(rest % dimension);
    rest = Math.floor(rest / dimension);
  }
  return `[${index.join(', ')}]`;
}

/** The error for an element that cannot be converted. */
export function problemError(
  { source, form }: PlannedTensor,
  { kind, value }: Problem,
  element: number,
): ScalepointError {
  const { name, shape, isRenamed, parts } = source;
  // The name in the file, by which users know the tensor.
  const stored = isRenamed && parts.length === 1 ? ` (${quoted(mainPart(source).name)})` : '';
  const reason = {
    'non-finite': '',
    'beyond float32': ', too large for float32',
    overflow: codecOf(form).overflow?.(form) ?? ', too large',
  }[kind];
  const statement = `tensor ${quoted(name)}${stored} holds ${value} at ${elementIndex(element, shape)}${reason}`;
  // Find the byte offset of the element in its file, unless it has no whole bytes of its own there.
  const codec = codecOf(source.form);
  const { byteOffset, rearranged } = mainPart(source);
  let offset: number | undefined;
  if (codec.elementType !== undefined && !rearranged && source.gathered === undefined) {
    const rectangle = { row: 0, rows: 1, column: element, columns: 1, width: elementsOf(shape) };
    const run = codec.runs(shape, source.form, 'data', rectangle);
    if (Number.isInteger(run.bytes)) offset = byteOffset + run.offset;
  }
  const place = { tensor: name, byteOffset: offset };
  // A tensor that stays floats can hold the value.
  if (kind === 'non-finite' && codecOf(form).isPlain) {
    const hint: Hint = { kind: 'try', option: mention('nonFinite', 'keep'), effect: 'writes it as it is' };
    return new ScalepointError('NON_FINITE', statement, { ...place, hint });
  }
  const code = kind === 'overflow' ? 'OVERFLOW' : 'NON_FINITE';
  return new ScalepointError(code, `${statement}; a rule can keep it`, place);
}

/** Adds the name of its tensor to an error. @param files named in the message if the tensor's file is among them */
export function tensorError(error: unknown, { source }: PlannedTensor, files: readonly ByteSource[]): unknown {
  if (!(error instanceof ScalepointError) || error.tensor !== undefined) return error;
  const label = files[mainPart(source).file]?.name;
  const place = `tensor ${quoted(source.name)}${label === undefined ? '' : ` of ${quoted(label)}`}`;
  return new ScalepointError(error.code, `${place}: ${error.message}`, {
    tensor: source.name,
    byteOffset: error.byteOffset,
    path: error.path,
    cause: error.cause ?? error,
  });
}
