/**
 * Reads tokenizer.model: the few fields of SentencePiece's protobuf that a conversion needs. Others are skipped.
 * Reference: github.com/google/sentencepiece, src/sentencepiece_model.proto at 05db089.
 */
import { badFolderFile } from './errors.js';

const file = 'tokenizer.model';

/** A token of the model. */
interface TokenPiece {
  readonly text: string;
  readonly score: number;
  /** 1 normal, 2 unknown, 3 control, 4 defined by the user, 5 unused, 6 byte. */
  readonly type: number;
}

/** The fields read from a tokenizer.model. */
export interface SentencePieceModel {
  readonly pieces: readonly TokenPiece[];
  /** 1 unigram, 2 BPE, 3 word, 4 char. */
  readonly kind: number;
  /** True if a blank is put before the text. */
  readonly addsBlank: boolean;
  /** True if runs of blanks become one. */
  readonly removesBlanks: boolean;
  /** Rules that replace characters, compiled; empty without any. */
  readonly charsmap: Uint8Array;
}

/** A field: its number, and a number or bytes as its value. */
type Field = readonly [field: number, value: number | Uint8Array];

/** Bound of the varint positions that are added up; sizes and kinds are smaller. */
const most = 2 ** 35;

/** The fields of a message, in order. Groups are refused. */
function* fieldsOf(bytes: Uint8Array): Generator<Field> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      const byte = bytes[at++] ?? badFolderFile(file, 'it ends within a number');
      // Longer numbers are negative ones in two's complement, which the fields read here never hold.
      if (shift < most) value += (byte & 127) * shift;
      if (byte < 128) return value;
      if (shift > 2 ** 70) badFolderFile(file, 'a number has more than 10 bytes');
    }
  };
  const skip = (size: number) => {
    if (size > bytes.length - at) badFolderFile(file, 'it ends within a field');
    at += size;
    return at - size;
  };
  while (at < bytes.length) {
    const tag = varint();
    const [field, wire] = [Math.floor(tag / 8), tag % 8];
    if (field === 0) badFolderFile(file, 'it is not a SentencePiece model');
    if (wire === 0) yield [field, varint()];
    else if (wire === 1) yield [field, view.getFloat64(skip(8), true)];
    else if (wire === 2) {
      const size = varint();
      const begin = skip(size);
      yield [field, bytes.subarray(begin, begin + size)];
    } else if (wire === 5) yield [field, view.getFloat32(skip(4), true)];
    else badFolderFile(file, 'it is not a SentencePiece model');
  }
}

function messageOf(value: number | Uint8Array): Uint8Array {
  return typeof value === 'number' ? badFolderFile(file, 'it is not a SentencePiece model') : value;
}

function numberOf(value: number | Uint8Array): number {
  return typeof value === 'number' ? value : badFolderFile(file, 'it is not a SentencePiece model');
}

function pieceOf(bytes: Uint8Array, id: number): TokenPiece {
  let [text, score, type] = ['', 0, 1];
  for (const [field, value] of fieldsOf(bytes)) {
    if (field === 1) {
      try {
        text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(messageOf(value));
      } catch {
        badFolderFile(file, `the token ${id} is not UTF-8`);
      }
    } else if (field === 2) score = numberOf(value);
    else if (field === 3) type = numberOf(value);
  }
  if (!Number.isFinite(score)) badFolderFile(file, `the score of the token ${id} is not a number`);
  if (type < 1 || type > 6) badFolderFile(file, `the token ${id} has the type ${type}`);
  return { text, score, type };
}

/** Reads a tokenizer.model, or a file of another name in the same form. @throws ScalepointError `BAD_FILE` */
export function parseSentencePiece(bytes: Uint8Array): SentencePieceModel {
  const pieces: TokenPiece[] = [];
  let [kind, addsBlank, removesBlanks] = [1, true, true];
  let charsmap = new Uint8Array(0);
  for (const [field, value] of fieldsOf(bytes)) {
    if (field === 1) pieces.push(pieceOf(messageOf(value), pieces.length));
    else if (field === 2) {
      for (const [name, setting] of fieldsOf(messageOf(value))) if (name === 3) kind = numberOf(setting);
    } else if (field === 3) {
      for (const [name, setting] of fieldsOf(messageOf(value))) {
        if (name === 2) charsmap = messageOf(setting).slice();
        if (name === 3) addsBlank = numberOf(setting) !== 0;
        if (name === 4) removesBlanks = numberOf(setting) !== 0;
      }
    }
  }
  if (pieces.length === 0) badFolderFile(file, 'it has no tokens');
  return { pieces, kind, addsBlank, removesBlanks, charsmap };
}
