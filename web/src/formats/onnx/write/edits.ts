/**
 * Edits of a model by offsets in its file. Everything else is copied byte for byte; of the messages around an edit, only the lengths are
 * rewritten.
 */

import { type MessageSchema, messageIn } from '../../files/protobuf.js';
import { countBefore } from '../../files/search.js';
import { type MessagePiece, piecesField } from '../file/encode.js';
import type { OnnxModel } from '../file/model.js';
import { modelSchema, type OnnxGraph } from '../file/proto.js';

/** Edits by the offsets of the fields and messages concerned. */
export class Edits {
  readonly #replaced = new Map<number, MessagePiece[]>();
  readonly #before = new Map<number, MessagePiece[]>();
  readonly #appended = new Map<number, MessagePiece[]>();
  #positions: number[] | undefined;

  /** Replaces the field that begins at an offset, or removes it without pieces. */
  replace(start: number, pieces: readonly MessagePiece[] = []): void {
    this.#add(this.#replaced, start, pieces);
  }

  /** Replaces the field that begins at an offset, in place of an earlier replacement. */
  set(start: number, pieces: readonly MessagePiece[]): void {
    this.#replaced.delete(start);
    this.replace(start, pieces);
  }

  /** Inserts before the field that begins at an offset, behind earlier insertions. */
  before(start: number, pieces: readonly MessagePiece[]): void {
    this.#add(this.#before, start, pieces);
  }

  /** Appends to the message that begins at an offset. */
  append(begin: number, pieces: readonly MessagePiece[]): void {
    this.#add(this.#appended, begin, pieces);
  }

  /** Appends to a graph: to the last message of it. */
  appendTo({ messages }: Pick<OnnxGraph, 'messages'>, pieces: readonly MessagePiece[]): void {
    this.append((messages.at(-1) as OnnxGraph['messages'][number]).begin, pieces);
  }

  isReplaced(start: number): boolean {
    return this.#replaced.has(start);
  }

  #add(map: Map<number, MessagePiece[]>, at: number, pieces: readonly MessagePiece[]): void {
    const known = map.get(at);
    if (known === undefined) map.set(at, [...pieces]);
    else for (const piece of pieces) known.push(piece);
    this.#positions = undefined;
  }

  /** True if an edit lies in [begin, end). */
  #touches(begin: number, end: number): boolean {
    this.#positions ??= [...this.#replaced.keys(), ...this.#before.keys(), ...this.#appended.keys()].sort(
      (a, b) => a - b,
    );
    const positions = this.#positions;
    const first = positions[countBefore(positions, (position) => position < begin)];
    return first !== undefined && (first < end || first === begin);
  }

  /** A message with its edits applied. */
  apply(
    model: Pick<OnnxModel, 'skeleton'>,
    begin: number,
    end: number,
    schema: MessageSchema | undefined = modelSchema,
  ): MessagePiece[] {
    const pieces: MessagePiece[] = [];
    // Push one by one: a graph has more pieces than a call takes arguments.
    const add = (more: readonly MessagePiece[] = []) => {
      for (const piece of more) pieces.push(piece);
    };
    for (const field of model.skeleton.fields(begin, end)) {
      const { start, number } = field;
      add(this.#before.get(start));
      const replaced = this.#replaced.get(start);
      const child = messageIn(schema, number) ?? {};
      if (replaced !== undefined) add(replaced);
      else if (field.wire === 2 && this.#touches(field.begin, field.end)) {
        add(piecesField(number, this.apply(model, field.begin, field.end, child)));
      } else pieces.push({ begin: start, end: field.end });
    }
    add(this.#appended.get(begin));
    return pieces;
  }
}
