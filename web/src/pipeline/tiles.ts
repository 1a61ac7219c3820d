/**
 * Cuts the tensors of a plan into tiles, and says where each result goes. How a tensor is cut depends on its form and its source
 * alone, so that the same sums are added in the same order whoever does the work and wherever it goes.
 */
import {
  type Form,
  type Part,
  type Range,
  type RangeCut,
  type Rectangle,
  type Role,
  type Runs,
  type SetsCut,
  type TileCut,
  tileElements,
} from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { codecOf } from '../codecs/registry.js';
import type {
  Copied,
  FilePlan,
  LogicalTensor,
  MadeBytes,
  OutputFile,
  PlannedTensor,
  Segment,
  SourceTensor,
} from '../formats/format.js';
import {
  type Answer,
  type EncodeTask,
  isSameForm,
  type Keep,
  type Kept,
  type Output,
  type RangeTask,
  type SetsTask,
} from '../runner/task.js';
import { KeptRectangles } from './cached-rectangles.js';
import { pieceOf } from './rectangle-input.js';

/** Bytes that are known. */
export interface BytesStep {
  readonly kind: 'bytes';
  /** Which file of the result. */
  readonly file: number;
  readonly position: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Whether all of them are 0. */
  readonly zeros?: boolean;
}

/** Where runs of a part go. */
export interface Destination extends Omit<Runs, 'offset'> {
  readonly role: Role;
  /** Which file of the result, and where in it; or where in memory that is written later. */
  readonly file: number;
  readonly position: number;
  readonly into: Uint8Array<ArrayBuffer> | undefined;
}

/** A tile, and where its parts go. */
export interface TileStep {
  readonly kind: 'tile';
  readonly tensor: PlannedTensor;
  /** Which tensor of the plan it is. */
  readonly index: number;
  /** Its outputs are laid out with those of its batch. */
  readonly task: EncodeTask & { readonly outputs: Output[] };
  readonly destinations: readonly Destination[];
  /** Bytes of the source that this tile finishes. */
  readonly sourceBytes: number;
  readonly rectangle: Rectangle;
}

/** A question of a codec about a tensor, which is answered before the next step. */
export interface QuestionStep {
  readonly kind: 'question';
  readonly tensor: PlannedTensor;
  readonly cut: RangeCut | SetsCut;
  /** Which rectangles are to be kept for the tiles that follow, in the order of the cut. Undefined: none. */
  readonly keeps: readonly Keep[] | undefined;
}

/** What questions are answered with. */
type Reply = Range | Float32Array<ArrayBuffer>;

/** Bytes of the input. */
export interface CopiedStep {
  readonly kind: 'copied';
  /** Which file of the result. */
  readonly file: number;
  readonly position: number;
  readonly copied: Copied;
}

export type Step = BytesStep | TileStep;

/** Steps in order. A QuestionStep is answered, everything else with undefined. */
export type Steps = Generator<Step | QuestionStep | CopiedStep, void, Reply | undefined>;

/** Carries out a task about a rectangle out of turn. */
export type Ask = (tensor: PlannedTensor, task: RangeTask | SetsTask, rectangle: Rectangle) => Promise<Partial<Answer>>;

/** The index in its tensor of an element of a rectangle. */
export function elementAt({ row, column, columns, width }: Rectangle, index: number): number {
  return (row + Math.floor(index / columns)) * width + column + (index % columns);
}

/** Size of the stored tensors in bytes. */
export function storedBytes({ parts }: LogicalTensor): number {
  return parts.reduce((sum, { tensor }) => sum + tensor.bytes, 0);
}

/** The stored tensor that holds the elements. */
export function mainPart({ parts }: LogicalTensor): SourceTensor {
  return (parts[0] as (typeof parts)[number]).tensor;
}

/** Where a part of a tensor begins in the result. */
type Place = Pick<Destination, 'role' | 'file' | 'into'> & { readonly at: number };
type Places = readonly Place[];

/** Zeros from a position up to another, in pieces: the alignment of a file may be anything. */
function* padding(file: number, from: number, to: number): Steps {
  for (let position = from; position < to; ) {
    const bytes = new Uint8Array(Math.min(to - position, tileElements));
    yield { kind: 'bytes', file, position, bytes, zeros: true };
    position += bytes.length;
  }
}

/** Bytes that are made now. */
function* madeSteps(file: number, at: number, { make }: MadeBytes): Steps {
  let position = at;
  for (const bytes of make()) {
    yield { kind: 'bytes', file, position, bytes };
    position += bytes.length;
  }
}

/** Runs of a part, from where the part begins. */
type RunsOf<T> = Runs & T;

/** A tile of a tensor wherever it lies. Tensors of one shape and form have it in common. */
interface Tile extends Pick<TileCut, 'rectangle' | 'step'> {
  readonly ranges: TileCut['ranges'] | undefined;
  readonly form: Form;
  readonly reads: boolean | undefined;
  readonly measures: boolean;
  readonly sourceBytes: number;
  /** By the parts of the source. Of gathered tensors there are none: what they read depends on where each part is. */
  readonly inputs: readonly RunsOf<{ readonly role: Role }>[];
  /** By roles. */
  readonly outputs: readonly RunsOf<{ readonly role: Role }>[];
}

function tileOf({ source, form: whole, parts }: PlannedTensor, cut: TileCut): Tile {
  const { rectangle, roles, ranges, reads, step, form = whole } = cut;
  const { place } = codecOf(source.form);
  const stored = source.gathered === undefined ? source.parts : [];
  const inputs = stored.map(({ role }) => ({ role, ...place(source.shape, source.form, role, rectangle) }));
  const outputs = roles.map((role) => ({ role, ...codecOf(form).place(source.shape, form, role, rectangle) }));
  const measures = roles.includes(parts[0]?.role as Role);
  const read = source.gathered === undefined ? inputs : pieceOf(source, rectangle).inputs;
  const sourceBytes = measures ? read.reduce((sum, { bytes, count }) => sum + bytes * count, 0) : 0;
  return { rectangle, step, ranges, form, reads, measures, sourceBytes, inputs, outputs };
}

function stepOf(tensor: PlannedTensor, index: number, tile: Tile, places: Places, kept?: Kept): TileStep {
  const { source } = tensor;
  const { rectangle, step, ranges, form, reads, measures, sourceBytes } = tile;
  const { rows, columns } = rectangle;
  // Written out: to spread an object takes engines longer than the rest.
  const inputs =
    reads === false
      ? []
      : source.gathered !== undefined
        ? pieceOf(source, rectangle).inputs
        : tile.inputs.map(({ role, offset, bytes, count, stride }, i) => {
            const { file, byteOffset } = (source.parts[i] as (typeof source.parts)[number]).tensor;
            return { role, file, begin: byteOffset + offset, bytes, count, stride };
          });
  const pieces = [{ form: source.form, inputs }] as const;
  const task: TileStep['task'] =
    ranges === undefined
      ? { kind: 'encode', rows, columns, pieces, to: form, outputs: [], measures, step }
      : { kind: 'encode', rows, columns, pieces, to: form, outputs: [], measures, ranges, kept };
  const destinations = tile.outputs.map(({ role, offset, bytes, count, stride }): Destination => {
    const place = places.find((candidate) => candidate.role === role);
    if (place === undefined) throw new Error(`the plan has no place for the ${role} of ${source.name}`);
    return { role, file: place.file, position: place.at + offset, bytes, count, stride, into: place.into };
  });
  return { kind: 'tile', tensor, index, task, destinations, sourceBytes, rectangle };
}

/** The range of everything in some rectangles. */
async function rangeOf(
  tensor: PlannedTensor,
  rectangles: readonly Rectangle[],
  keeps: QuestionStep['keeps'],
  ask: Ask,
): Promise<Range> {
  const asked = rectangles.map((rectangle, i) => {
    const { rows, columns } = rectangle;
    const pieces = [pieceOf(tensor.source, rectangle)] as const;
    return ask(tensor, { kind: 'range', rows, columns, pieces, keep: keeps?.[i] }, rectangle);
  });
  const found = (await Promise.all(asked)).map(({ range }) => range as Range);
  return [Math.min(...found.map(([min]) => min)), Math.max(...found.map(([, max]) => max))];
}

/** What the codec has to know of all sets. */
async function setsOf(
  tensor: PlannedTensor,
  { count, pieces, step }: SetsCut,
  keeps: QuestionStep['keeps'],
  ask: Ask,
): Promise<Float32Array<ArrayBuffer>> {
  const all = new Float32Array(2 * count);
  for (let i = 0; i < 2 * count; i++) all[i] = i % 2 === 0 ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  const add = async ({ rectangle, first }: (typeof pieces)[number], i: number) => {
    const { rows, columns } = rectangle;
    const task: SetsTask = {
      kind: 'sets',
      rows,
      columns,
      pieces: [pieceOf(tensor.source, rectangle)],
      to: tensor.form,
      keep: keeps?.[i],
      step,
    };
    const { sets = new Float32Array(0) } = await ask(tensor, task, rectangle);
    for (let from = 0, to = 2 * first; from < sets.length; from += 2, to += 2) {
      if ((sets[from] as number) < (all[to] as number)) all[to] = sets[from] as number;
      if ((sets[from + 1] as number) > (all[to + 1] as number)) all[to + 1] = sets[from + 1] as number;
    }
  };
  await Promise.all(pieces.map(add));
  return all;
}

/** Answers a question. */
export function answerTo({ tensor, cut, keeps }: QuestionStep, ask: Ask): Promise<Reply> {
  return cut.kind === 'range' ? rangeOf(tensor, cut.rectangles, keeps, ask) : setsOf(tensor, cut, keeps, ask);
}

const isSameList = <T>(a: readonly T[], b: readonly T[]) => a.length === b.length && a.every((x, i) => x === b[i]);

/** Whether a file is far away, so that each stretch of it that is read costs. */
export type IsFar = (file: number) => boolean;

/** Cuts tensors. */
class Cutter {
  readonly #isFar: IsFar;
  /** The last tensor that was one tile. Small tensors come in long rows of equals. */
  #last: { readonly tensor: PlannedTensor; readonly roles: readonly Role[]; readonly tile: Tile } | undefined;

  constructor(isFar: IsFar) {
    this.#isFar = isFar;
  }

  /** The only tile of a tensor, if it is like that of the last one. */
  again(tensor: PlannedTensor, index: number, roles: readonly Role[], places: Places): TileStep | undefined {
    if (this.#last === undefined || tensor.source.gathered !== undefined) return undefined;
    const { source, form } = this.#last.tensor;
    const isLike =
      isSameForm(tensor.form, form) &&
      isSameForm(tensor.source.form, source.form) &&
      isSameList(tensor.source.shape, source.shape) &&
      isSameList(roles, this.#last.roles);
    return isLike ? stepOf(tensor, index, this.#last.tile, places) : undefined;
  }

  /** The tiles of a tensor that make the parts of some roles. */
  *tilesOf(tensor: PlannedTensor, index: number, roles: readonly Role[], places: Places): Steps {
    const { source, form } = tensor;
    if (elementsOf(source.shape) === 0) return;
    const prefersWide = source.parts.some(({ tensor: { file } }) => this.#isFar(file));
    const stored = { ...codecOf(source.form).grid(source.shape, source.form), prefersWide };
    const cuts = codecOf(form).cuts(source.shape, form, roles, stored);
    // What nothing is made of is not read again.
    const kept = roles.includes(tensor.parts[0]?.role as Role) ? new KeptRectangles(tensor) : undefined;
    let count = 0;
    let reply: Reply | undefined;
    for (;;) {
      const { value: cut, done } = cuts.next(reply);
      if (done) return;
      if (cut.kind !== 'tile') {
        reply = yield { kind: 'question', tensor, cut, keeps: kept?.add(cut) };
        continue;
      }
      reply = undefined;
      const tile = tileOf(tensor, cut);
      const { rows, columns } = tile.rectangle;
      const isOne = count++ === 0 && rows * columns === elementsOf(source.shape);
      const isWhole = isOne && isSameList(cut.roles, roles) && source.gathered === undefined;
      this.#last = isWhole && tile.ranges === undefined ? { tensor, roles, tile } : undefined;
      yield stepOf(tensor, index, tile, places, cut.reads === false ? undefined : kept?.take(cut));
    }
  }
}

/** The tiles of one tensor that make the parts of some roles. */
export function tilesOf(tensor: PlannedTensor, index: number, roles: readonly Role[], places: Places): Steps {
  return new Cutter(() => false).tilesOf(tensor, index, roles, places);
}

/** Where the parts of every tensor begin. In plain numbers: there may be several hundred thousand of them. */
class PartPlaces {
  readonly #tensors: FilePlan['tensors'];
  /** The number of the first part of each tensor. */
  readonly #first: Uint32Array;
  /** By the numbers of parts; a file of -1 if a part is written nowhere. */
  readonly #at: Float64Array;
  readonly #file: Int32Array;

  constructor({ tensors, files }: FilePlan) {
    this.#tensors = tensors;
    this.#first = new Uint32Array(tensors.length);
    let count = 0;
    for (let i = 0; i < tensors.length; i++) {
      this.#first[i] = count;
      count += (tensors[i] as PlannedTensor).parts.length;
    }
    this.#at = new Float64Array(count);
    this.#file = new Int32Array(count).fill(-1);
    for (const [file, { segments }] of files.entries()) {
      for (const segment of segments) {
        if (!('tensor' in segment)) continue;
        const part = this.#partOf(segment.tensor, segment.role);
        this.#at[part] = segment.at;
        this.#file[part] = file;
      }
    }
  }

  #partOf(tensor: number, role: Role): number {
    const index = this.#tensors[tensor]?.parts.findIndex((part) => part.role === role) ?? -1;
    if (index < 0) throw new Error(`the plan has a segment for nothing, ${role}`);
    return (this.#first[tensor] as number) + index;
  }

  of(tensor: number): Places {
    const places: Place[] = [];
    const first = this.#first[tensor] as number;
    const { parts } = this.#tensors[tensor] as PlannedTensor;
    for (let i = 0; i < parts.length; i++) {
      const file = this.#file[first + i] as number;
      const { role } = parts[i] as Part;
      if (file >= 0) places.push({ role, file, at: this.#at[first + i] as number, into: undefined });
    }
    return places;
  }
}

/** Size of a segment in bytes. */
function sizeOf({ tensors }: FilePlan, segment: Segment): number {
  if ('bytes' in segment) return segment.bytes.length;
  if ('made' in segment) return segment.made.bytes;
  if ('copied' in segment) return segment.copied.bytes;
  const part = tensors[segment.tensor]?.parts.find(({ role }) => role === segment.role);
  if (part === undefined) throw new Error(`the plan has a segment for nothing, ${segment.role}`);
  return part.bytes;
}

/** A file's segments in order. Empty ones come before what begins at the same position. */
function sortedSegments(plan: FilePlan, { segments }: OutputFile): readonly Segment[] {
  const compare = (a: Segment, b: Segment) => a.at - b.at || sizeOf(plan, a) - sizeOf(plan, b);
  // Most plans have them in order.
  const isSorted = segments.every((segment, i) => i === 0 || compare(segments[i - 1] as Segment, segment) <= 0);
  return isSorted ? segments : segments.toSorted(compare);
}

/** Bytes of results that may wait in memory for their turn. */
const mostHeld = 2 ** 24;

/**
 * Parts that wait for their turn. A file that takes no positions has all scales before all codes, say, and a tensor makes both at once.
 * Those of small tensors wait in memory; a large tensor is read once for each part.
 */
class HeldParts {
  readonly #parts = new Map<PlannedTensor, Map<Role, Uint8Array<ArrayBuffer>>>();
  #bytes = 0;

  /** Memory for all parts of a tensor that has several; undefined if they are too large. */
  hold(tensor: PlannedTensor): Places | undefined {
    const { parts } = tensor;
    const size = parts.reduce((sum, { bytes }) => sum + bytes, 0);
    if (parts.length < 2 || this.#bytes + size > mostHeld) return undefined;
    this.#bytes += size;
    const held = new Map(parts.map(({ role, bytes }) => [role, new Uint8Array(bytes)]));
    this.#parts.set(tensor, held);
    return [...held].map(([role, into]) => ({ role, file: -1, at: 0, into }));
  }

  /** Gives a part that was held. */
  take(tensor: PlannedTensor, role: Role): Uint8Array<ArrayBuffer> | undefined {
    const held = this.#parts.get(tensor);
    const bytes = held?.get(role);
    if (held === undefined || bytes === undefined) return undefined;
    this.#bytes -= bytes.length;
    held.delete(role);
    return bytes;
  }
}

/** The steps of a part of a file that takes no positions. */
function* partInTurn(
  tensor: PlannedTensor,
  index: number,
  role: Role,
  places: Places,
  held: HeldParts,
  isFirst: boolean,
  cutter: Cutter,
): Steps {
  const room = isFirst ? held.hold(tensor) : undefined;
  if (room !== undefined) yield* cutter.tilesOf(tensor, index, rolesOf(places), room);
  const bytes = held.take(tensor, role);
  if (bytes === undefined) {
    yield* cutter.tilesOf(tensor, index, [role], places);
    return;
  }
  const { file, at } = places.find((place) => place.role === role) as Place;
  if (bytes.length > 0) yield { kind: 'bytes', file, position: at, bytes };
}

/** Bytes from which on those that are made do not hold up the tiles. */
const longMade = 1 << 20;
/** Tensors after which some more of them are made. A multiple of what goes into a batch. */
const tensorsBetween = 1 << 9;

/** The next step of the first list that has one. */
function* nextOf(lists: Steps[]): Steps {
  while (lists.length > 0) {
    const { value, done } = (lists[0] as Steps).next(undefined);
    if (!done) {
      yield value;
      return;
    }
    lists.shift();
  }
}

const rolesOf = (places: Places) => places.map(({ role }) => role);

/**
 * Everything that has to be written, each byte once. In the order of positions if `sequential`; otherwise tensor by tensor, all parts of a
 * tile at once. What the segments leave free is filled with zeros.
 */
export function* stepsOf(plan: FilePlan, sequential: boolean, isFar: IsFar = () => false): Steps {
  const places = new PartPlaces(plan);
  const cutter = new Cutter(isFar);
  const held = new HeldParts();
  const begun = new Set<PlannedTensor>();
  /** Bytes that are made while workers are busy. */
  const late: Steps[] = [];
  let begunTensors = 0;
  for (const [file, output] of plan.files.entries()) {
    let end = 0;
    for (const segment of sortedSegments(plan, output)) {
      const { at } = segment;
      if (end < at) yield* padding(file, end, at);
      end = at + sizeOf(plan, segment);
      if ('bytes' in segment) {
        yield { kind: 'bytes', file, position: at, bytes: segment.bytes };
        continue;
      }
      if ('made' in segment) {
        const steps = madeSteps(file, at, segment.made);
        if (sequential || segment.made.bytes < longMade) yield* steps;
        else late.push(steps);
        continue;
      }
      if ('copied' in segment) {
        yield { kind: 'copied', file, position: at, copied: segment.copied };
        continue;
      }
      const { tensor: index, role } = segment;
      const tensor = plan.tensors[index] as PlannedTensor;
      if (sequential) {
        yield* partInTurn(tensor, index, role, places.of(index), held, !begun.has(tensor), cutter);
        begun.add(tensor);
      } else if (role === tensor.parts[0]?.role) {
        // The others come with the first.
        const where = places.of(index);
        const roles = rolesOf(where);
        const tile = cutter.again(tensor, index, roles, where);
        if (tile !== undefined) yield tile;
        else yield* cutter.tilesOf(tensor, index, roles, where);
        if (++begunTensors % tensorsBetween === 0) yield* nextOf(late);
      }
    }
    yield* padding(file, end, output.size);
  }
  for (const steps of late) yield* steps;
}
