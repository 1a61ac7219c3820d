/** The steps of a plan in order: known bytes, copied bytes, tiles, and questions about tensors. */
import { type Part, type Role, tileElements } from '../formats/codecs/codec.js';
import {
  type Copied,
  type FilePlan,
  type MadeBytes,
  md5Digits,
  type OutputFile,
  type PlannedTensor,
  type Segment,
} from '../formats/format.js';
import { type IsFar, type OutputPlace, type QuestionStep, type Reply, TileCutter, type TileStep } from './tiles.js';

/** Known bytes. */
export interface BytesStep {
  readonly kind: 'bytes';
  /** Index of the file of the result. */
  readonly file: number;
  readonly position: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** True if all of them are 0. */
  readonly zeros?: boolean;
}

/** Bytes that are copied from the input. */
export interface CopiedStep {
  readonly kind: 'copied';
  /** Index of the file of the result. */
  readonly file: number;
  readonly position: number;
  readonly copied: Copied;
}

/** A step that becomes part of a batch. */
export type BatchedStep = BytesStep | TileStep;

/** Steps in order. A QuestionStep is answered, everything else with undefined. */
export type Steps = Generator<BatchedStep | QuestionStep | CopiedStep, void, Reply | undefined>;

/** Zeros from a position up to another. Several steps, since the alignment of a file may be anything. */
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

/** Where the parts of every tensor begin. Plain numbers, because there may be several hundred thousand parts. */
class OutputPlaces {
  readonly #tensors: FilePlan['tensors'];
  /** Index of the first part of each tensor. */
  readonly #first: Uint32Array;
  /** By index of the part; the file is -1 if the part is not written. */
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
    if (index < 0) throw new Error(`the plan has a segment of no part, ${role}`);
    return (this.#first[tensor] as number) + index;
  }

  of(tensor: number): readonly OutputPlace[] {
    const places: OutputPlace[] = [];
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
  if ('md5' in segment) return md5Digits;
  const part = tensors[segment.tensor]?.parts.find(({ role }) => role === segment.role);
  if (part === undefined) throw new Error(`the plan has a segment of no part, ${segment.role}`);
  return part.bytes;
}

/** A file's segments in order. Empty segments come before others at the same position. */
function sortedSegments(plan: FilePlan, { segments }: OutputFile): readonly Segment[] {
  const compare = (a: Segment, b: Segment) => a.at - b.at || sizeOf(plan, a) - sizeOf(plan, b);
  // Most plans have them in order.
  const isSorted = segments.every((segment, i) => i === 0 || compare(segments[i - 1] as Segment, segment) <= 0);
  return isSorted ? segments : segments.toSorted(compare);
}

const rolesOf = (places: readonly OutputPlace[]) => places.map(({ role }) => role);

/** Most bytes of parts that wait in memory. */
const mostHeld = 2 ** 24;

/**
 * Parts that wait for their turn. A stream may want all scales before all codes, for example, while a tile makes both. The parts of small
 * tensors wait in memory; a large tensor is read once for each part.
 */
class HeldParts {
  readonly #parts = new Map<PlannedTensor, Map<Role, Uint8Array<ArrayBuffer>>>();
  #bytes = 0;

  /**
   * Memory for all parts of a tensor, or for those whose turn comes later, with the place of the one whose turn it is. Undefined if a tensor
   * has only one part, or if they are too large.
   */
  hold(tensor: PlannedTensor, now: OutputPlace): readonly OutputPlace[] | undefined {
    const { parts } = tensor;
    if (parts.length < 2) return undefined;
    const size = (some: readonly Part[]) => some.reduce((sum, { bytes }) => sum + bytes, 0);
    const later = parts.filter(({ role }) => role !== now.role);
    const kept = [parts, later].find((some) => this.#bytes + size(some) <= mostHeld);
    if (kept === undefined) return undefined;
    this.#bytes += size(kept);
    const held = new Map(kept.map(({ role, bytes }) => [role, new Uint8Array(bytes)]));
    this.#parts.set(tensor, held);
    return parts.map(({ role }) => {
      const into = held.get(role);
      return into === undefined ? now : { role, file: -1, at: 0, into };
    });
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

/** The steps of tensors for files that take bytes in the order of positions. */
class SequentialParts {
  readonly #cutter: TileCutter;
  readonly #held = new HeldParts();
  readonly #begun = new Set<PlannedTensor>();

  constructor(cutter: TileCutter) {
    this.#cutter = cutter;
  }

  /** The steps of one part. */
  *stepsOf(tensor: PlannedTensor, index: number, role: Role, places: readonly OutputPlace[]): Steps {
    const own = places.find((place) => place.role === role) as OutputPlace;
    const room = this.#begun.has(tensor) ? undefined : this.#held.hold(tensor, own);
    this.#begun.add(tensor);
    if (room !== undefined) yield* this.#cutter.tilesOf(tensor, index, rolesOf(places), room);
    // The place of a part that is not held is the file itself.
    if (room?.includes(own)) return;
    const bytes = this.#held.take(tensor, role);
    if (bytes === undefined) {
      yield* this.#cutter.tilesOf(tensor, index, [role], places);
      return;
    }
    const { file, at } = own;
    if (bytes.length > 0) yield { kind: 'bytes', file, position: at, bytes };
  }
}

/** Made bytes from this size on come between tiles, so that workers have something to do meanwhile. */
const longMade = 1 << 20;
/** Tensors between two steps of such bytes. A multiple of the tensors of a batch. */
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

/** The bytes of a segment that holds no tensor. Long ones that may be written later are added to `late`. */
function* otherSteps(
  file: number,
  segment: Exclude<Segment, { tensor: number } | { md5: number }>,
  sequential: boolean,
  late: Steps[],
): Steps {
  const { at: position } = segment;
  if ('bytes' in segment) yield { kind: 'bytes', file, position, bytes: segment.bytes };
  else if ('copied' in segment) yield { kind: 'copied', file, position, copied: segment.copied };
  else {
    const steps = madeSteps(file, position, segment.made);
    if (sequential || segment.made.bytes < longMade) yield* steps;
    else late.push(steps);
  }
}

/**
 * Everything that has to be written, each byte once: in the order of positions if `sequential`, otherwise tensor by tensor, all parts of a
 * tile at once. Bytes that no segment holds become zeros.
 * @param dataFile index of the plan's `data` among the files
 */
export function* stepsOf(plan: FilePlan, sequential: boolean, isFar: IsFar = () => false, dataFile?: number): Steps {
  const places = new OutputPlaces(plan);
  const cutter = new TileCutter(isFar, dataFile, false, plan.refusesNonFinite);
  const inTurn = new SequentialParts(cutter);
  const late: Steps[] = [];
  let begunTensors = 0;
  for (const [file, output] of plan.files.entries()) {
    let end = 0;
    for (const segment of sortedSegments(plan, output)) {
      // Fill the gap before the segment.
      if (end < segment.at) yield* padding(file, end, segment.at);
      end = segment.at + sizeOf(plan, segment);
      // Checksums are known only after all steps.
      if ('md5' in segment) continue;
      if (!('tensor' in segment)) {
        yield* otherSteps(file, segment, sequential, late);
        continue;
      }
      const { tensor: index, role } = segment;
      const tensor = plan.tensors[index] as PlannedTensor;
      if (sequential) yield* inTurn.stepsOf(tensor, index, role, places.of(index));
      else if (role === tensor.parts[0]?.role) {
        // Cut the tensor. The first part brings the others along.
        const own = places.of(index);
        const roles = rolesOf(own);
        const tile = cutter.again(tensor, index, roles, own);
        if (tile !== undefined) yield tile;
        else yield* cutter.tilesOf(tensor, index, roles, own);
        if (++begunTensors % tensorsBetween === 0) yield* nextOf(late);
      }
    }
    yield* padding(file, end, output.size);
  }
  for (const steps of late) yield* steps;
}
