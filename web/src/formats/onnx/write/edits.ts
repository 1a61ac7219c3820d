/**
 * Changes of a model. They are told by offsets in its file. Everything else is copied byte for byte; of the messages around a change only
 * the lengths are written anew.
 */
import type { Copied, OutputFile, PlannedTensor, Segment } from '../../format.js';
import { type Piece, piecesField, sizeOf } from '../file/encode.js';
import type { OnnxModel } from '../file/model.js';
import { modelSchema } from '../file/proto.js';
import type { ScanSchema } from '../file/wire.js';

/** Changes, by the offsets of the fields and messages that they concern. */
export class Edits {
  readonly #replaced = new Map<number, Piece[]>();
  readonly #before = new Map<number, Piece[]>();
  readonly #appended = new Map<number, Piece[]>();
  #positions: number[] | undefined;

  /** Replaces the field that begins at an offset. Without pieces it is left out. */
  replace(start: number, pieces: readonly Piece[] = []): void {
    this.#add(this.#replaced, start, pieces);
  }

  /** The same in place of what replaced it before. */
  set(start: number, pieces: readonly Piece[]): void {
    this.#replaced.delete(start);
    this.replace(start, pieces);
  }

  /** Puts something before the field that begins at an offset, behind what is there already. */
  before(start: number, pieces: readonly Piece[]): void {
    this.#add(this.#before, start, pieces);
  }

  /** Puts something at the end of the message that begins at an offset. */
  append(begin: number, pieces: readonly Piece[]): void {
    this.#add(this.#appended, begin, pieces);
  }

  isReplaced(start: number): boolean {
    return this.#replaced.has(start);
  }

  #add(map: Map<number, Piece[]>, at: number, pieces: readonly Piece[]): void {
    const known = map.get(at);
    if (known === undefined) map.set(at, [...pieces]);
    else known.push(...pieces);
    this.#positions = undefined;
  }

  /** Whether anything changes in [begin, end). */
  #touches(begin: number, end: number): boolean {
    this.#positions ??= [...this.#replaced.keys(), ...this.#before.keys(), ...this.#appended.keys()].sort(
      (a, b) => a - b,
    );
    const positions = this.#positions;
    let [low, high] = [0, positions.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((positions[middle] as number) < begin) low = middle + 1;
      else high = middle;
    }
    const first = positions[low];
    return first !== undefined && (first < end || first === begin);
  }

  /** A message with its changes. */
  apply({ skeleton }: OnnxModel, begin: number, end: number, schema: ScanSchema = modelSchema): Piece[] {
    const pieces: Piece[] = [];
    // A graph has more pieces than a call of push takes arguments.
    const add = (more: readonly Piece[] = []) => {
      for (const piece of more) pieces.push(piece);
    };
    for (const field of skeleton.fields(begin, end)) {
      const { start, number } = field;
      add(this.#before.get(start));
      const replaced = this.#replaced.get(start);
      const child = schema.messages[number] ?? leaf;
      if (replaced !== undefined) add(replaced);
      else if (field.wire === 2 && this.#touches(field.begin, field.end)) {
        add(piecesField(number, this.apply({ skeleton } as OnnxModel, field.begin, field.end, child)));
      } else pieces.push({ begin: start, end: field.end });
    }
    add(this.#appended.get(begin));
    return pieces;
  }
}

/** A message without messages that hold long values. */
const leaf: ScanSchema = { messages: {}, data: [] };

// ------------------------------------------------------------------------------------------------------------------------- layout

/** A kept tensor whose bytes are in the model's own file. */
interface Place {
  readonly tensor: number;
  readonly begin: number;
  readonly end: number;
}

/** Known bytes of a result that are joined. */
class Joined {
  readonly segments: Segment[] = [];
  at = 0;
  #known: Uint8Array[] = [];
  #begin = 0;

  bytes(bytes: Uint8Array): void {
    if (this.#known.length === 0) this.#begin = this.at;
    this.#known.push(bytes);
    this.at += bytes.length;
  }

  other(segment: { readonly copied: Copied } | { readonly tensor: number; readonly role: string }, size: number): void {
    this.flush();
    this.segments.push({ at: this.at, ...segment });
    this.at += size;
  }

  flush(): void {
    if (this.#known.length === 0) return;
    const bytes = new Uint8Array(this.at - this.#begin);
    let at = 0;
    for (const piece of this.#known) {
      bytes.set(piece, at);
      at += piece.length;
    }
    this.segments.push({ at: this.#begin, bytes });
    this.#known = [];
  }
}

/**
 * Lays out a file. Ranges of the model's file are cut at the tensors that are copied by themselves.
 * @param elsewhere tensors that have other places
 */
export function layOut(
  model: OnnxModel,
  pieces: readonly Piece[],
  tensors: readonly PlannedTensor[],
  elsewhere: ReadonlySet<number>,
): OutputFile {
  const places = tensors
    .flatMap(({ kept, source }, tensor): Place[] => {
      const [part] = source.parts;
      if (
        elsewhere.has(tensor) ||
        kept === undefined ||
        part === undefined ||
        part.tensor.file !== 0 ||
        part.tensor.bytes === 0
      )
        return [];
      const { byteOffset, bytes } = part.tensor;
      return [{ tensor, begin: byteOffset, end: byteOffset + bytes }];
    })
    .sort((a, b) => a.begin - b.begin);
  const result = new Joined();
  const copy = (begin: number, end: number) => {
    for (let at = begin; at < end; ) {
      const stretch = model.skeleton.find(at);
      if (stretch === undefined) {
        const next = Math.min(end, model.skeleton.next(at));
        result.other({ copied: { from: 0, begin: at, bytes: next - at } }, next - at);
        at = next;
      } else {
        const from = at - stretch.begin;
        const piece = stretch.bytes.subarray(from, Math.min(stretch.bytes.length, from + end - at));
        result.bytes(piece);
        at += piece.length;
      }
    }
  };
  for (const piece of pieces) {
    if ('bytes' in piece) result.bytes(piece.bytes);
    else if ('size' in piece) result.other({ tensor: piece.tensor, role: piece.role }, piece.size);
    else {
      let at = piece.begin;
      for (let i = firstFrom(places, at); (places[i]?.end ?? Number.POSITIVE_INFINITY) <= piece.end; i++) {
        const { tensor, begin, end } = places[i] as Place;
        copy(at, begin);
        result.other({ tensor, role: 'data' }, end - begin);
        at = end;
      }
      copy(at, piece.end);
    }
  }
  result.flush();
  return { suffix: '', size: sizeOf(pieces), segments: result.segments };
}

/** The first place that begins at or behind an offset. */
function firstFrom(places: readonly Place[], at: number): number {
  let [low, high] = [0, places.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((places[middle] as Place).begin < at) low = middle + 1;
    else high = middle;
  }
  return low;
}
