/** The steps of a plan in order: known bytes, copied bytes, tiles, and questions about tensors. */
import { type Part, type Role, tileElements } from '../formats/codecs/codec.js';
import type { ByteSource } from '../formats/files/bytes.js';
import {
  type Copied,
  type FilePlan,
  type MadeBytes,
  md5Digits,
  type PlannedTensor,
  type Segment,
} from '../formats/format.js';
import { type OutputPlace, type QuestionStep, type Reply, TileCutter, type TileStep } from './tiles.js';

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
interface CopiedStep extends Pick<BytesStep, 'file' | 'position'> {
  readonly kind: 'copied';
  readonly copied: Copied;
}

/** A step that becomes part of a batch. */
export type BatchedStep = BytesStep | TileStep;

/** Steps in order. A QuestionStep is answered, everything else with undefined. */
export type Steps = Generator<BatchedStep | QuestionStep | CopiedStep, void, Reply | undefined>;

/** Zeros from a position up to another. Several steps, since the alignment of a file may be anything. */
function* zeroSteps(file: number, from: number, to: number): Steps {
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

/** Index of a part of a planned tensor. */
function partIndex(tensor: PlannedTensor | undefined, role: Role): number {
  const index = tensor?.parts.findIndex((part) => part.role === role) ?? -1;
  if (index < 0) throw new Error(`the plan has a segment of no part, ${role}`);
  return index;
}

/** Size of a segment in bytes. */
function segmentBytes({ tensors }: FilePlan, segment: Segment): number {
  if ('bytes' in segment) return segment.bytes.length;
  if ('made' in segment) return segment.made.bytes;
  if ('copied' in segment) return segment.copied.bytes;
  if ('md5' in segment) return md5Digits;
  const tensor = tensors[segment.tensor];
  const part = tensor?.parts[partIndex(tensor, segment.role)] as Part;
  return part.bytes;
}

/** Most bytes of parts that wait in memory. */
const mostHeld = 2 ** 24;

/**
 * The steps of tensors for files that take bytes in the order of positions. A stream may want all scales before all codes, for example, while
 * a tile makes both. The parts of small tensors wait in memory for their turn; a large tensor is read once for each part.
 */
class SequentialParts {
  readonly #cutter: TileCutter;
  /** Parts that wait, of the tensors that were begun. */
  readonly #held = new Map<PlannedTensor, Map<Role, Uint8Array<ArrayBuffer>>>();
  #heldBytes = 0;

  constructor(cutter: TileCutter) {
    this.#cutter = cutter;
  }

  /** The steps of one part. */
  *stepsOf(tensor: PlannedTensor, index: number, role: Role, places: readonly OutputPlace[]): Steps {
    const now = places.find((place) => place.role === role) as OutputPlace;
    let held = this.#held.get(tensor);
    if (held === undefined) {
      // Hold all parts of a tensor that is begun, or those whose turn comes later, unless they are too large.
      const { parts } = tensor;
      const size = (some: readonly Part[]) => some.reduce((sum, { bytes }) => sum + bytes, 0);
      const later = parts.filter((part) => part.role !== role);
      const lists = parts.length < 2 ? [] : [parts, later];
      const kept = lists.find((some) => this.#heldBytes + size(some) <= mostHeld) ?? [];
      held = new Map(kept.map((part) => [part.role, new Uint8Array(part.bytes)]));
      this.#held.set(tensor, held);
      this.#heldBytes += size(kept);
      if (kept.length > 0) {
        const memory = held;
        const targets = parts.map((part): OutputPlace => {
          const into = memory.get(part.role);
          return into === undefined ? now : { role: part.role, file: -1, at: 0, into };
        });
        const roles = places.map((place) => place.role);
        yield* this.#cutter.tilesOf(tensor, index, roles, targets);
        // The place of a part that is not held is the file itself.
        if (targets.includes(now)) return;
      }
    }
    const bytes = held.get(role);
    if (bytes === undefined) {
      yield* this.#cutter.tilesOf(tensor, index, [role], places);
      return;
    }
    this.#heldBytes -= bytes.length;
    held.delete(role);
    if (bytes.length > 0) yield { kind: 'bytes', file: now.file, position: now.at, bytes };
  }
}

/** Made bytes from this size on come between tiles, so that workers have something to do meanwhile. */
const longMade = 1 << 20;
/** Tensors between two steps of such bytes. A multiple of the tensors of a batch. */
const tensorsBetween = 1 << 9;

/** Options of `stepsOf`. */
interface StepOptions {
  /** True for files that take bytes in the order of positions. */
  readonly sequential: boolean;
  /** The files of the input. */
  readonly files?: readonly ByteSource[] | undefined;
  /** Index of the plan's `moments` among the files of the input. */
  readonly momentsFile?: number | undefined;
}

/**
 * Everything that has to be written, each byte once: in the order of positions if `sequential`, otherwise tensor by tensor, all parts of a
 * tile at once. Bytes that no segment holds become zeros.
 */
export function* stepsOf(plan: FilePlan, { sequential, files, momentsFile }: StepOptions): Steps {
  const { tensors, files: outputs } = plan;
  // Find where the parts of each tensor begin, in plain numbers, because there may be several hundred thousand parts: the index of the first
  // part of each tensor; then position and file of each part, which is -1 if the part is not written.
  const firstParts = new Uint32Array(tensors.length + 1);
  for (const [i, { parts }] of tensors.entries()) firstParts[i + 1] = (firstParts[i] as number) + parts.length;
  const positions = new Float64Array(firstParts.at(-1) as number);
  const fileOfPart = new Int32Array(positions.length).fill(-1);
  for (const [i, { segments }] of outputs.entries()) {
    for (const segment of segments) {
      if (!('tensor' in segment)) continue;
      const part = (firstParts[segment.tensor] as number) + partIndex(tensors[segment.tensor], segment.role);
      positions[part] = segment.at;
      fileOfPart[part] = i;
    }
  }
  const cutter = new TileCutter({ files, momentsFile, refuses: plan.refusesNonFinite });
  const inTurn = sequential ? new SequentialParts(cutter) : undefined;
  const late: Steps[] = [];
  let begunTensors = 0;
  for (const [file, { segments, size }] of outputs.entries()) {
    // Put segments in order, which most plans have. Empty ones come before others at the same position.
    const sorted = segments.toSorted((a, b) => a.at - b.at || segmentBytes(plan, a) - segmentBytes(plan, b));
    let end = 0;
    for (const segment of sorted) {
      const { at: position } = segment;
      // Fill the gap before the segment.
      if (end < position) yield* zeroSteps(file, end, position);
      end = position + segmentBytes(plan, segment);
      // Checksums are known only after all steps.
      if ('md5' in segment) continue;
      if ('bytes' in segment) yield { kind: 'bytes', file, position, bytes: segment.bytes };
      else if ('copied' in segment) yield { kind: 'copied', file, position, copied: segment.copied };
      else if ('made' in segment) {
        const steps = madeSteps(file, position, segment.made);
        if (sequential || segment.made.bytes < longMade) yield* steps;
        else late.push(steps);
      } else {
        const { tensor: index, role } = segment;
        const tensor = tensors[index] as PlannedTensor;
        // The first part of a tensor brings the others along, unless bytes come in the order of positions.
        if (inTurn === undefined && role !== tensor.parts[0]?.role) continue;
        const places: OutputPlace[] = [];
        for (const [i, { role }] of tensor.parts.entries()) {
          const part = (firstParts[index] as number) + i;
          const file = fileOfPart[part] as number;
          if (file >= 0) places.push({ role, file, at: positions[part] as number, into: undefined });
        }
        if (inTurn !== undefined) {
          yield* inTurn.stepsOf(tensor, index, role, places);
          continue;
        }
        const roles = places.map((place) => place.role);
        const tile = cutter.again(tensor, index, roles, places);
        if (tile !== undefined) yield tile;
        else yield* cutter.tilesOf(tensor, index, roles, places);
        // Make the next of the bytes that may be written later.
        if (++begunTensors % tensorsBetween !== 0) continue;
        while (late.length > 0) {
          const { value, done } = (late[0] as Steps).next(undefined);
          if (!done) {
            yield value;
            break;
          }
          late.shift();
        }
      }
    }
    yield* zeroSteps(file, end, size);
  }
  for (const steps of late) yield* steps;
}
