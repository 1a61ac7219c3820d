/** Errors that name the tensor in which something went wrong. */

import { ScalepointError } from '../core/errors.js';
import { type Hint, mention } from '../core/option-problem.js';
import type { Problem } from '../formats/codecs/codec.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { codecOf } from '../formats/codecs/registry.js';
import { type ByteSource, quoted } from '../formats/files/bytes.js';
import type { LogicalTensor, PlannedTensor } from '../formats/format.js';
import { indexOf, mainPart } from './logical-tensor.js';

/** The byte offset of an element in its file; undefined if the element has no whole bytes of its own there. */
function offsetOf(source: LogicalTensor, element: number): number | undefined {
  const codec = codecOf(source.form);
  const { byteOffset, rearranged } = mainPart(source);
  if (codec.elementType === undefined || rearranged || source.gathered !== undefined) return undefined;
  const rectangle = { row: 0, rows: 1, column: element, columns: 1, width: elementsOf(source.shape) };
  const { offset, bytes } = codec.runs(source.shape, source.form, 'data', rectangle);
  return Number.isInteger(bytes) ? byteOffset + offset : undefined;
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
  const statement = `tensor ${quoted(name)}${stored} holds ${value} at ${indexOf(element, shape)}${reason}`;
  const place = { tensor: name, byteOffset: offsetOf(source, element) };
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
