/**
 * Cuts the tensors of a plan into tiles, and says where each result goes. How a tensor is cut depends on its form alone, so that the same
 * sums are added in the same order whoever does the work and wherever it goes.
 */
import {
  type Range,
  type Rectangle,
  type Role,
  type Runs,
  type SetsCut,
  type TileCut,
  tileElements,
} from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { codecOf } from '../codecs/registry.js';
import type { ByteSource } from '../files/bytes.js';
import type { Copied, FilePlan, LogicalTensor, OutputFile, PlannedTensor, SourceTensor } from '../formats/format.js';
import type { EncodeTask, Piece, RangeTask, SetsTask, TileResult } from './tasks.js';

/** Bytes that are known. */
export interface BytesStep {
  readonly kind: 'bytes';
  /** Which file of the result. */
  readonly file: number;
  readonly position: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Where runs of a part go. */
export interface Destination extends Omit<Runs, 'offset'> {
  readonly role: Role;
  /** Which file of the result, and where in it. */
  readonly file: number;
  readonly position: number;
}

/** A tile, and where its parts go. */
export interface TileStep {
  readonly kind: 'tile';
  readonly tensor: PlannedTensor;
  /** Without outputs: they are laid out with those of its batch. */
  readonly task: Omit<EncodeTask, 'outputs'>;
  readonly destinations: readonly Destination[];
  /** Bytes of the source that this tile finishes. */
  readonly sourceBytes: number;
  readonly rectangle: Rectangle;
}

export type Step = BytesStep | TileStep;

/** Carries out a task about a rectangle out of turn. */
export type Ask = (tensor: PlannedTensor, task: RangeTask | SetsTask, rectangle: Rectangle) => Promise<TileResult>;

/** The index in its tensor of an element of a rectangle. */
export function elementAt({ row, column, columns, width }: Rectangle, index: number): number {
  return (row + Math.floor(index / columns)) * width + column + (index % columns);
}

/** A rectangle of a stored tensor. `firstFile` counts the files of a second model on. */
export function pieceOf({ shape, form, parts }: LogicalTensor, rectangle: Rectangle, firstFile = 0): Piece {
  const codec = codecOf(form);
  const inputs = parts.map(({ role, tensor }) => {
    const { offset, ...runs } = codec.place(shape, form, role, rectangle);
    return { role, file: tensor.file + firstFile, begin: tensor.byteOffset + offset, ...runs };
  });
  return { form, inputs };
}

/** Size of the stored tensors in bytes. */
export function storedBytes({ parts }: LogicalTensor): number {
  return parts.reduce((sum, { tensor }) => sum + tensor.bytes, 0);
}

/** The stored tensor that holds the elements. */
export function mainPart({ parts }: LogicalTensor): SourceTensor {
  return (parts[0] as (typeof parts)[number]).tensor;
}

/** The files of the input. */
type Files = readonly ByteSource[];

/** Where the parts of a tensor begin in the result, by role. */
type Places = ReadonlyMap<Role, { readonly file: number; readonly at: number }>;

/** Zeros from a position up to another, in pieces: the alignment of a file may be anything. */
function* padding(file: number, from: number, to: number): Generator<BytesStep> {
  for (let position = from; position < to; ) {
    const bytes = new Uint8Array(Math.min(to - position, tileElements));
    yield { kind: 'bytes', file, position, bytes };
    position += bytes.length;
  }
}

function stepOf(tensor: PlannedTensor, { rectangle, roles, ranges, reads }: TileCut, places: Places): TileStep {
  const { source, form, parts } = tensor;
  const codec = codecOf(form);
  const piece = pieceOf(source, rectangle);
  const { rows, columns } = rectangle;
  const measures = roles.includes(parts[0]?.role as Role);
  const task: TileStep['task'] = {
    kind: 'encode',
    rows,
    columns,
    pieces: [reads === false ? { ...piece, inputs: [] } : piece],
    to: form,
    measures,
    ...(ranges === undefined ? {} : { ranges }),
  };
  const destinations = roles.map((role): Destination => {
    const place = places.get(role);
    if (place === undefined) throw new Error(`the plan has no place for the ${role} of ${source.name}`);
    const { offset, ...runs } = codec.place(source.shape, form, role, rectangle);
    return { role, file: place.file, position: place.at + offset, ...runs };
  });
  const sourceBytes = measures ? piece.inputs.reduce((sum, { bytes, count }) => sum + bytes * count, 0) : 0;
  return { kind: 'tile', tensor, task, destinations, sourceBytes, rectangle };
}

/** The range of everything in some rectangles. */
async function rangeOf(tensor: PlannedTensor, rectangles: readonly Rectangle[], ask: Ask): Promise<Range> {
  const asked = rectangles.map((rectangle) => {
    const { rows, columns } = rectangle;
    return ask(tensor, { kind: 'range', rows, columns, pieces: [pieceOf(tensor.source, rectangle)] }, rectangle);
  });
  const found = (await Promise.all(asked)).map(({ range }) => range as Range);
  return [Math.min(...found.map(([min]) => min)), Math.max(...found.map(([, max]) => max))];
}

/** What the codec has to know of all sets. */
async function setsOf(tensor: PlannedTensor, { count, pieces }: SetsCut, ask: Ask): Promise<Float32Array<ArrayBuffer>> {
  const all = new Float32Array(2 * count);
  for (let i = 0; i < count; i++) all.set([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY], 2 * i);
  const add = async ({ rectangle, first }: (typeof pieces)[number]) => {
    const { rows, columns } = rectangle;
    const task: SetsTask = {
      kind: 'sets',
      rows,
      columns,
      pieces: [pieceOf(tensor.source, rectangle)],
      to: tensor.form,
    };
    const { sets = new Float32Array(0) } = await ask(tensor, task, rectangle);
    for (let from = 0, to = 2 * first; from < sets.length; from += 2, to += 2) {
      all[to] = Math.min(all[to] as number, sets[from] as number);
      all[to + 1] = Math.max(all[to + 1] as number, sets[from + 1] as number);
    }
  };
  await Promise.all(pieces.map(add));
  return all;
}

/** The tiles of a tensor that make the parts of some roles. */
async function* tilesOf(
  tensor: PlannedTensor,
  roles: readonly Role[],
  places: Places,
  ask: Ask,
): AsyncGenerator<TileStep> {
  const { source, form } = tensor;
  if (elementsOf(source.shape) === 0) return;
  const cuts = codecOf(form).cuts(source.shape, form, roles);
  let answer: Range | Float32Array<ArrayBuffer> | undefined;
  for (;;) {
    const { value: cut, done } = cuts.next(answer);
    if (done) return;
    answer = undefined;
    if (cut.kind === 'range') answer = await rangeOf(tensor, cut.rectangles, ask);
    else if (cut.kind === 'sets') answer = await setsOf(tensor, cut, ask);
    else yield stepOf(tensor, cut, places);
  }
}

/** Where the parts of every tensor begin. */
function placesOf({ tensors, files }: FilePlan): readonly Places[] {
  const places = tensors.map(() => new Map<Role, { file: number; at: number }>());
  for (const [file, { segments }] of files.entries()) {
    for (const segment of segments) {
      if ('tensor' in segment) places[segment.tensor]?.set(segment.role, { file, at: segment.at });
    }
  }
  return places;
}

/** Bytes of the input, some at a time. */
async function* copied(
  file: number,
  position: number,
  { from, begin, bytes }: Copied,
  files: Files,
): AsyncGenerator<BytesStep> {
  const source = files[from];
  if (source === undefined) throw new Error(`the plan copies from file ${from}, which is not there`);
  for (let done = 0; done < bytes; ) {
    const size = Math.min(bytes - done, tileElements);
    yield {
      kind: 'bytes',
      file,
      position: position + done,
      bytes: await source.read(begin + done, begin + done + size),
    };
    done += size;
  }
}

/** A file's segments in order, with their sizes. Empty ones come before what begins at the same position. */
function sortedSegments({ tensors }: FilePlan, { segments }: OutputFile) {
  const sizes = segments.map((segment) => {
    if ('bytes' in segment) return { segment, size: segment.bytes.length };
    if ('copied' in segment) return { segment, size: segment.copied.bytes };
    const part = tensors[segment.tensor]?.parts.find(({ role }) => role === segment.role);
    if (part === undefined) throw new Error(`the plan has a segment for nothing, ${segment.role}`);
    return { segment, size: part.bytes };
  });
  return sizes.sort((a, b) => a.segment.at - b.segment.at || a.size - b.size);
}

/**
 * Everything that has to be written, each byte once. In the order of positions if `sequential`; otherwise tensor by tensor, all parts of a
 * tile at once. What the segments leave free is filled with zeros.
 */
export async function* stepsOf(plan: FilePlan, files: Files, sequential: boolean, ask: Ask): AsyncGenerator<Step> {
  const places = placesOf(plan);
  for (const [file, output] of plan.files.entries()) {
    let end = 0;
    for (const { segment, size } of sortedSegments(plan, output)) {
      const { at } = segment;
      yield* padding(file, end, at);
      end = at + size;
      if ('bytes' in segment) {
        yield { kind: 'bytes', file, position: at, bytes: segment.bytes };
        continue;
      }
      if ('copied' in segment) {
        yield* copied(file, at, segment.copied, files);
        continue;
      }
      const tensor = plan.tensors[segment.tensor] as PlannedTensor;
      const where = places[segment.tensor] as Places;
      if (sequential) yield* tilesOf(tensor, [segment.role], where, ask);
      // The others come with the first.
      else if (segment.role === tensor.parts[0]?.role) yield* tilesOf(tensor, [...where.keys()], where, ask);
    }
    yield* padding(file, end, output.size);
  }
}
