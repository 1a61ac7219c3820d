/** The bytes of a rectangle of a tensor in its files. */
import type { Grid, Rectangle } from '../codecs/codec.js';
import { elementsOf, multipleOf } from '../codecs/elements.js';
import { codecOf } from '../codecs/registry.js';
import type { Gathered, LogicalTensor } from '../formats/format.js';
import type { InputPart, TileInput } from '../runner/task.js';

/** Elements of one row. */
function inRow(column: number, columns: number, width: number): Rectangle {
  return { row: 0, rows: 1, column, columns, width };
}

/** The input of a gathered tensor: a part for each stored tensor that has elements of the rectangle. These stand in one row. */
function gatheredParts(
  { shape, form, parts }: LogicalTensor,
  { headRows, width }: Gathered,
  { row, rows, column, columns, width: total }: Rectangle,
  firstFile: number,
): InputPart[] {
  const each = elementsOf(shape) / parts.length;
  const { runs } = codecOf(form);
  const inputs: InputPart[] = [];
  const end = row * total + column + rows * columns;
  for (let at = row * total + column; at < end; ) {
    const index = Math.floor(at / each);
    const { role, tensor } = parts[index] as (typeof parts)[number];
    const count = Math.min(end, (index + 1) * each) - at;
    const { offset, bytes } = runs([each], form, role, inRow(at - index * each, count, each));
    const [file, begin] = [tensor.file + firstFile, tensor.byteOffset];
    const run = { role, file, bytes, count: 1, stride: bytes };
    if (headRows === undefined) inputs.push({ ...run, begin: begin + offset });
    else {
      const rowBytes = runs([each], form, role, inRow(0, width, each)).bytes;
      inputs.push({ ...run, begin, moved: { head: headRows, rowBytes, from: offset } });
    }
    at += count;
  }
  return inputs;
}

/** Where the stored form of a tensor can be cut. */
export function gridOf({ shape, form, gathered }: LogicalTensor): Grid {
  const { members = [{ form }] } = gathered ?? {};
  const stacked = members.length;
  const rows = elementsOf(shape.slice(0, -1)) / stacked;
  const one = stacked === 1 ? shape : [rows, ...shape.slice(-1)];
  const grids = members.map((member) => codecOf(member.form).grid(one, member.form));
  const [grid] = grids as [Grid];
  if (stacked === 1 && form.headRows === undefined) return grid;
  return {
    ...grid,
    rows: rows * stacked,
    rowUnit: multipleOf([...grids.map(({ rowUnit }) => rowUnit), form.headRows ?? 1]),
    columnUnit: multipleOf(grids.map(({ columnUnit }) => columnUnit)),
    ...(stacked === 1 ? {} : { matrixRows: rows }),
  };
}

/** The rectangle of one of several stacked weights. The rectangle lies in it. */
function stackedInput(
  shape: readonly number[],
  members: NonNullable<Gathered['members']>,
  rectangle: Rectangle,
  firstFile: number,
): TileInput {
  const rows = elementsOf(shape.slice(0, -1)) / members.length;
  const index = Math.floor(rectangle.row / rows);
  const { form, parts } = members[index] as (typeof members)[number];
  const codec = codecOf(form);
  const within = { ...rectangle, row: rectangle.row - index * rows };
  const inputs = parts.map(({ role, tensor }) => {
    const { offset, bytes, count, stride } = codec.runs([rows, rectangle.width], form, role, within);
    return { role, file: tensor.file + firstFile, begin: tensor.byteOffset + offset, bytes, count, stride };
  });
  return { form, parts: inputs };
}

/** A rectangle of a stored tensor as the input of a tile. @param firstFile added to file numbers, for the second of two models */
export function rectangleInput(source: LogicalTensor, rectangle: Rectangle, firstFile = 0): TileInput {
  const { shape, form, parts, gathered } = source;
  if (gathered?.members !== undefined) return stackedInput(shape, gathered.members, rectangle, firstFile);
  if (gathered !== undefined) return { form, parts: gatheredParts(source, gathered, rectangle, firstFile) };
  const codec = codecOf(form);
  const inputs = parts.map(({ role, tensor }) => {
    // Written out because object spread is the slowest part of this function.
    const { offset, bytes, count, stride } = codec.runs(shape, form, role, rectangle);
    return { role, file: tensor.file + firstFile, begin: tensor.byteOffset + offset, bytes, count, stride };
  });
  return { form, parts: inputs };
}
