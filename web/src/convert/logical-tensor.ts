/** Sizes of logical tensors, the bytes of their rectangles in files, and errors about them. */
import { ScalepointError } from '../core/errors.js';
import { type Hint, mention } from '../core/option-problem.js';
import type { Form, Grid, Problem, Rectangle } from '../formats/codecs/codec.js';
import { elementsOf, multipleOf } from '../formats/codecs/elements.js';
import { codecOf } from '../formats/codecs/registry.js';
import { type ByteSource, quoted, type Stretch } from '../formats/files/bytes.js';
import type {
  CodedView,
  ElementView,
  Gathered,
  LogicalTensor,
  PlannedTensor,
  SourceTensor,
} from '../formats/format.js';
import type { MovedElements } from '../formats/strided.js';
import { type InputPart, type TileInput, zerosFile } from './task.js';

/** Bytes of the stored tensors that a tensor consists of. */
export function storedBytes({ parts }: LogicalTensor): number {
  return parts.reduce((sum, { tensor }) => sum + tensor.bytes, 0);
}

/**
 * Announces the tensors that are read next, in order, to files on servers.
 * @param isLookedAt true for a tensor that is looked at before it is read
 */
export function announceReads<T extends LogicalTensor | { readonly source: LogicalTensor }>(
  files: readonly ByteSource[],
  tensors: Iterable<T>,
  isLookedAt: (tensor: T) => boolean = () => false,
): void {
  const stretches = files.map(({ expect }) => (expect === undefined ? undefined : new Map<number, Stretch>()));
  if (stretches.every((some) => some === undefined)) return;
  for (const one of tensors) {
    const { parts } = 'source' in one ? one.source : one;
    const times = isLookedAt(one) ? 2 : 1;
    for (const { tensor } of parts) {
      const { file, byteOffset: begin, bytes } = tensor;
      const known = stretches[file]?.get(begin);
      if (known === undefined || known.end < begin + bytes)
        stretches[file]?.set(begin, { begin, end: begin + bytes, times });
    }
  }
  for (const [i, some] of stretches.entries()) if (some !== undefined) files[i]?.expect?.([...some.values()]);
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

/** The runs of a view, by the size of an element. Elements that stay together are one run. */
const knownRuns = new WeakMap<ElementView, Map<number, Pick<MovedElements, 'unit' | 'dims'>>>();

function viewRuns(view: ElementView, element: number): Pick<MovedElements, 'unit' | 'dims'> {
  const known = knownRuns.get(view) ?? new Map<number, Pick<MovedElements, 'unit' | 'dims'>>();
  knownRuns.set(view, known);
  const found = known.get(element);
  if (found !== undefined) return found;
  const dims = view.dims.map(([count, stride]) => [count, stride * element] as const);
  let unit = element;
  while (dims.at(-1)?.[1] === unit) unit *= (dims.pop() as readonly [number, number])[0];
  const runs = { unit, dims };
  known.set(element, runs);
  return runs;
}

/** The input of a gathered tensor: a part for each stored tensor that has elements of the rectangle. These stand in one row. */
function gatheredParts(
  { shape, form, parts }: LogicalTensor,
  { view: ofEach, views, width, zeroRows = 0 }: Gathered,
  { row, rows, column, columns, width: total }: Rectangle,
  firstFile: number,
): InputPart[] {
  const usual = elementsOf(shape) / parts.length - zeroRows * width;
  const sizeOf = (part: number) => (views === undefined ? usual : elementsOf(parts[part]?.tensor.shape ?? []));
  const { runs } = codecOf(form);
  const inputs: InputPart[] = [];
  const end = row * total + column + rows * columns;
  // The part of an element, and its first one.
  let [index, first] = [0, 0];
  for (let at = row * total + column; at < end; ) {
    while (at >= first + sizeOf(index)) first += sizeOf(index++);
    const each = sizeOf(index);
    const view = views?.[index] ?? ofEach;
    const { role, tensor } = (parts[index] ?? parts[0]) as (typeof parts)[number];
    if (index >= parts.length) {
      // Rows of zeros fill up the only stored tensor.
      const bytes = Math.round((tensor.bytes * (end - at)) / each);
      inputs.push({ role, file: zerosFile, begin: 0, bytes, count: 1, stride: bytes });
      break;
    }
    const count = Math.min(end, first + each) - at;
    const inRow = { row: 0, rows: 1, column: at - first, columns: count, width: each };
    const { offset, bytes } = runs([each], form, role, inRow);
    const [file, begin] = [tensor.file + firstFile, tensor.byteOffset];
    const run = { role, file, bytes, count: 1, stride: bytes };
    if (view === undefined) inputs.push({ ...run, begin: begin + offset });
    else {
      const element = bytes / count;
      inputs.push({
        ...run,
        begin: begin + view.offset * element,
        moved: { ...viewRuns(view, element), from: offset },
      });
    }
    at += count;
  }
  return inputs;
}

/** Where the stored form of a tensor can be cut. */
export function gridOf({ shape, form, gathered }: LogicalTensor): Grid {
  const { members = [{ form }], coded } = gathered ?? {};
  if (coded !== undefined) {
    const rows = elementsOf(shape.slice(0, -1));
    const { matrixRows } = coded;
    const grid = { ...codecOf(form).grid([rows, ...shape.slice(-1)], form), rows };
    return matrixRows === undefined ? grid : { ...grid, matrixRows };
  }
  const stacked = members.length;
  const rows = elementsOf(shape.slice(0, -1)) / stacked;
  const one = stacked === 1 ? shape : [rows, ...shape.slice(-1)];
  const grids = members.map((member) => codecOf(member.form).grid(one, member.form));
  const [grid] = grids as [Grid];
  // Tiles of whole rows: the elements of a row of a transpose are far apart.
  // Factors belong to whole rows, too.
  const { view, views = view === undefined ? [] : [view], rowFactors, columnFactors } = gathered ?? {};
  if ((rowFactors ?? columnFactors) !== undefined || views.some(({ dims }) => dims.at(-1)?.[1] !== 1))
    return { ...grid, rows };
  if (stacked === 1 && form.headRows === undefined) return grid;
  return {
    ...grid,
    rows: rows * stacked,
    rowUnit: multipleOf([...grids.map(({ rowUnit }) => rowUnit), form.headRows ?? 1]),
    columnUnit: multipleOf(grids.map(({ columnUnit }) => columnUnit)),
    ...(stacked === 1 ? {} : { matrixRows: rows }),
  };
}

/** The parts of a weight whose codes change places. The rectangle holds whole rows, or a part of one. */
function codedParts(
  { shape, form, parts }: LogicalTensor,
  { views }: CodedView,
  rectangle: Rectangle,
  firstFile: number,
): InputPart[] {
  const matrix = [elementsOf(shape.slice(0, -1)), ...shape.slice(-1)];
  return parts.map(({ role, tensor }) => {
    const view = views[role] as ElementView;
    const { offset, bytes, count } = codecOf(form).runs(matrix, form, role, rectangle);
    const run = { bytes: bytes * count, count: 1, stride: bytes * count };
    const place = { file: tensor.file + firstFile, begin: tensor.byteOffset + view.offset };
    return { role, ...place, ...run, moved: { ...viewRuns(view, 1), from: offset } };
  });
}

/** A rectangle of a stored tensor as the input of a tile. @param firstFile added to file numbers, for the second of two models */
export function rectangleInput(source: LogicalTensor, rectangle: Rectangle, firstFile = 0): TileInput {
  const { shape, form, parts, gathered } = source;
  if (gathered?.coded !== undefined) return { form, parts: codedParts(source, gathered.coded, rectangle, firstFile) };
  if (gathered?.members !== undefined) {
    // The rectangle lies in one of the stacked weights.
    const rows = elementsOf(shape.slice(0, -1)) / gathered.members.length;
    const index = Math.floor(rectangle.row / rows);
    const { name, type } = source;
    const one = {
      name,
      type,
      shape: [rows, rectangle.width],
      ...(gathered.members[index] as NonNullable<Gathered['members']>[number]),
    };
    return rectangleInput(one, { ...rectangle, row: rectangle.row - index * rows }, firstFile);
  }
  if (gathered !== undefined) {
    const { rowFactors, columnFactors } = gathered;
    const { row, rows, column, columns } = rectangle;
    const factors = {
      ...(rowFactors && { rowFactors: rowFactors.slice(row, row + rows) }),
      ...(columnFactors && { columnFactors: columnFactors.slice(column, column + columns) }),
    };
    const own = rowFactors || columnFactors ? ({ ...form, ...factors } as Form) : form;
    return { form: own, parts: gatheredParts(source, gathered, rectangle, firstFile) };
  }
  const codec = codecOf(form);
  const inputs = parts.map(({ role, tensor }) => {
    // Written out because object spread is the slowest part of this function.
    const { offset, bytes, count, stride } = codec.runs(shape, form, role, rectangle);
    return { role, file: tensor.file + firstFile, begin: tensor.byteOffset + offset, bytes, count, stride };
  });
  return { form, parts: inputs };
}
