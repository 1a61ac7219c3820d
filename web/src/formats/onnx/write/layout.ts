/** Lays out the file of a model: known bytes, bytes of the model, and parts of tensors. */
import type { Copied, OutputFile, PlannedTensor, Segment } from '../../format.js';
import { encodedSizeOf, type MessagePiece } from '../file/encode.js';
import type { OnnxModel } from '../file/model.js';
import { countBefore } from '../file/search.js';

/** A kept tensor whose bytes are in the model's own file. */
interface KeptBytes {
  readonly tensor: number;
  readonly begin: number;
  readonly end: number;
}

/** Joins known bytes of a result. */
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
 * Lays out a file. Ranges of the model's file are cut at tensors that are copied separately.
 * @param elsewhere tensors whose bytes are in another file
 */
export function layOut(
  model: OnnxModel,
  pieces: readonly MessagePiece[],
  tensors: readonly PlannedTensor[],
  elsewhere: ReadonlySet<number>,
): OutputFile {
  // Sort the copied tensors by offset.
  const keptBytes = tensors
    .flatMap(({ kept, source }, tensor): KeptBytes[] => {
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
  // Copy from memory where bytes are loaded, else from the file.
  const result = new Joined();
  const copy = (begin: number, end: number) => {
    for (let at = begin; at < end; ) {
      const loaded = model.skeleton.find(at);
      if (loaded === undefined) {
        const next = Math.min(end, model.skeleton.next(at));
        result.other({ copied: { from: 0, begin: at, bytes: next - at } }, next - at);
        at = next;
      } else {
        const from = at - loaded.begin;
        const piece = loaded.bytes.subarray(from, Math.min(loaded.bytes.length, from + end - at));
        result.bytes(piece);
        at += piece.length;
      }
    }
  };
  // Write the pieces, cut at copied tensors.
  for (const piece of pieces) {
    if ('bytes' in piece) result.bytes(piece.bytes);
    else if ('size' in piece) result.other({ tensor: piece.tensor, role: piece.role }, piece.size);
    else {
      let at = piece.begin;
      for (
        let i = countBefore(keptBytes, (one) => one.begin < at);
        (keptBytes[i]?.end ?? Number.POSITIVE_INFINITY) <= piece.end;
        i++
      ) {
        const { tensor, begin, end } = keptBytes[i] as KeptBytes;
        copy(at, begin);
        result.other({ tensor, role: 'data' }, end - begin);
        at = end;
      }
      copy(at, piece.end);
    }
  }
  result.flush();
  return { suffix: '', size: encodedSizeOf(pieces), segments: result.segments };
}
