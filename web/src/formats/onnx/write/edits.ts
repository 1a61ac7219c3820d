/**
 * Changes of a model, by offsets in its file. Everything else is copied byte for byte; of the messages around a change only the lengths are
 * written anew.
 */
import { type Piece, piecesField } from '../file/encode.js';
import type { OnnxModel } from '../file/model.js';
import { modelSchema } from '../file/proto.js';
import { countBefore } from '../file/search.js';
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
    const first = positions[countBefore(positions, (position) => position < begin)];
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
