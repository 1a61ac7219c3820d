/** Where the bytes are that a rectangle of a tensor consists of. */
import type { Rectangle } from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { codecOf } from '../codecs/registry.js';
import type { Gathered, LogicalTensor } from '../formats/format.js';
import type { Input, Piece } from '../runner/task.js';

/** Elements of one row. */
function inRow(column: number, columns: number, width: number): Rectangle {
  return { row: 0, rows: 1, column, columns, width };
}

/** The inputs of a gathered tensor, those of each stored tensor that has elements of the rectangle. Its elements are in one row. */
function gatheredInputs(
  { shape, form, parts }: LogicalTensor,
  { headRows, width }: Gathered,
  { row, rows, column, columns, width: total }: Rectangle,
  firstFile: number,
): Input[] {
  const each = elementsOf(shape) / parts.length;
  const { place } = codecOf(form);
  const inputs: Input[] = [];
  const end = row * total + column + rows * columns;
  for (let at = row * total + column; at < end; ) {
    const index = Math.floor(at / each);
    const { role, tensor } = parts[index] as (typeof parts)[number];
    const count = Math.min(end, (index + 1) * each) - at;
    const { offset, bytes } = place([each], form, role, inRow(at - index * each, count, each));
    const [file, begin] = [tensor.file + firstFile, tensor.byteOffset];
    const run = { role, file, bytes, count: 1, stride: bytes };
    if (headRows === undefined) inputs.push({ ...run, begin: begin + offset });
    else {
      const rowBytes = place([each], form, role, inRow(0, width, each)).bytes;
      inputs.push({ ...run, begin, moved: { head: headRows, rowBytes, from: offset } });
    }
    at += count;
  }
  return inputs;
}

/** A rectangle of a stored tensor. `firstFile` counts the files of a second model on. */
export function pieceOf(source: LogicalTensor, rectangle: Rectangle, firstFile = 0): Piece {
  const { shape, form, parts, gathered } = source;
  if (gathered !== undefined) return { form, inputs: gatheredInputs(source, gathered, rectangle, firstFile) };
  const codec = codecOf(form);
  const inputs = parts.map(({ role, tensor }) => {
    // Written out: to spread an object takes engines longer than the rest.
    const { offset, bytes, count, stride } = codec.place(shape, form, role, rectangle);
    return { role, file: tensor.file + firstFile, begin: tensor.byteOffset + offset, bytes, count, stride };
  });
  return { form, inputs };
}
