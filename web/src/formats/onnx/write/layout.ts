/** Lays out the file of a model: known bytes, bytes of the model, and parts of tensors. */

import { joinedBytes } from '../../files/bytes.js';
import { countBefore } from '../../files/search.js';
import type { OutputFile, PlannedTensor, Segment } from '../../format.js';
import { encodedSizeOf, type MessagePiece } from '../file/encode.js';
import type { OnnxModel } from '../file/model.js';

/**
 * Lays out a file. Ranges of the model's file are cut at tensors that are copied separately.
 * @param elsewhere tensors whose bytes are in another file
 */
export function layOutModel(
  { skeleton, files, source: model }: OnnxModel,
  pieces: readonly MessagePiece[],
  tensors: readonly PlannedTensor[],
  elsewhere: ReadonlySet<number>,
): OutputFile {
  const own = files.indexOf(model);
  // Sort the kept tensors whose bytes are in the model's own file by offset.
  const keptBytes = tensors
    .flatMap(({ kept, source }, tensor) => {
      const { byteOffset = 0, bytes = 0, file } = source.parts[0]?.tensor ?? {};
      const isCopied = kept !== undefined && file === own && bytes > 0 && !elsewhere.has(tensor);
      return isCopied ? [{ tensor, begin: byteOffset, end: byteOffset + bytes }] : [];
    })
    .sort((a, b) => a.begin - b.begin);
  // Join known bytes up to the next segment of another kind.
  const segments: Segment[] = [];
  let at = 0;
  let known: Uint8Array[] = [];
  const flush = () => {
    const bytes = joinedBytes(known);
    if (known.length > 0) segments.push({ at: at - bytes.length, bytes });
    known = [];
  };
  const addBytes = (bytes: Uint8Array) => {
    known.push(bytes);
    at += bytes.length;
  };
  const addTensor = (tensor: number, role: string, size: number) => {
    flush();
    segments.push({ at, tensor, role });
    at += size;
  };
  /** Copies from memory where bytes are loaded, else from the file. */
  const copy = (begin: number, end: number) => {
    for (let from = begin; from < end; ) {
      const loaded = skeleton.find(from);
      if (loaded === undefined) {
        const next = Math.min(end, skeleton.next(from));
        flush();
        segments.push({ at, copied: { from: own, begin: from, bytes: next - from } });
        at += next - from;
        from = next;
      } else {
        const first = from - loaded.begin;
        const piece = loaded.bytes.subarray(first, Math.min(loaded.bytes.length, first + end - from));
        addBytes(piece);
        from += piece.length;
      }
    }
  };
  // Write the pieces, cut at copied tensors.
  for (const piece of pieces) {
    if ('bytes' in piece) addBytes(piece.bytes);
    else if ('size' in piece) addTensor(piece.tensor, piece.role, piece.size);
    else {
      let from = piece.begin;
      const first = countBefore(keptBytes, ({ begin }) => begin < piece.begin);
      for (let i = first; (keptBytes[i]?.end ?? Number.POSITIVE_INFINITY) <= piece.end; i++) {
        const { tensor, begin, end } = keptBytes[i] as (typeof keptBytes)[number];
        copy(from, begin);
        addTensor(tensor, 'data', end - begin);
        from = end;
      }
      copy(from, piece.end);
    }
  }
  flush();
  return { suffix: '', size: encodedSizeOf(pieces), segments };
}
