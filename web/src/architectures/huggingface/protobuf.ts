/**
 * Reads tokenizer.model: the few fields of SentencePiece's protobuf that a conversion needs. Others are skipped.
 * Reference: github.com/google/sentencepiece, src/sentencepiece_model.proto at 05db089.
 */
import { ScalepointError } from '../../core/errors.js';
import {
  bytes,
  float,
  integer,
  MessageReader,
  malformed,
  many,
  messages,
  one,
  place,
  Skeleton,
} from '../../formats/files/protobuf.js';
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

const pieceSchema = {
  text: one(1, 'the text of a token', bytes, new Uint8Array(0)),
  score: one(2, 'the score of a token', float, 0),
  type: one(3, 'the type of a token', integer, 1),
};
const trainerSchema = { kind: one(3, 'model_type', integer, 1) };
const normalizerSchema = {
  charsmap: one(2, 'precompiled_charsmap', bytes, new Uint8Array(0)),
  addsBlank: one(3, 'add_dummy_prefix', integer, 1),
  removesBlanks: one(4, 'remove_extra_whitespaces', integer, 1),
};
const modelSchema = {
  pieces: messages(1, 'a token', () => pieceSchema),
  trainer: many(2, 'trainer_spec', place),
  normalizer: many(3, 'normalizer_spec', place),
};

/** Reads a tokenizer.model, or a file of another name in the same form. @throws ScalepointError `BAD_FILE` */
export function parseSentencePiece(content: Uint8Array): SentencePieceModel {
  const skeleton = new Skeleton();
  skeleton.add({ begin: 0, bytes: content });
  const reader = new MessageReader(skeleton);
  try {
    const { pieces, trainer, normalizer } = reader.read(modelSchema, { begin: 0, end: content.length });
    const { kind } = reader.read(trainerSchema, ...trainer);
    const { charsmap, addsBlank, removesBlanks } = reader.read(normalizerSchema, ...normalizer);
    if (pieces.length === 0) malformed('it has no tokens', 0);
    const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
    const tokens = pieces.map(({ text, score, type }, id): TokenPiece => {
      if (!Number.isFinite(score)) malformed(`the score of the token ${id} is not a number`, 0);
      if (type < 1 || type > 6) malformed(`the token ${id} has the type ${type}`, 0);
      try {
        return { text: utf8.decode(text), score, type };
      } catch {
        return malformed(`the token ${id} is not UTF-8`, 0);
      }
    });
    const [blank, runs] = [addsBlank !== 0, removesBlanks !== 0];
    return { pieces: tokens, kind, addsBlank: blank, removesBlanks: runs, charsmap: charsmap.slice() };
  } catch (error) {
    if (error instanceof ScalepointError) badFolderFile(file, error.message);
    throw error;
  }
}
