/** What is done to tiles. Plain data: tasks are sent to workers, and results come back. */
import type { Form, Problem, Range, Role, Runs } from '../codecs/codec.js';

/** Bytes of a file that a task needs. */
export interface Input extends Omit<Runs, 'offset'> {
  /** Which part of the stored tensor they are. */
  readonly role: Role;
  /** Which file, from 0. */
  readonly file: number;
  /** Where the first run begins in the file. */
  readonly begin: number;
}

/** A rectangle of a stored tensor. */
export interface Piece {
  readonly form: Form;
  readonly inputs: readonly Input[];
}

/** Makes parts out of a rectangle. */
export interface EncodeTask {
  readonly kind: 'encode';
  readonly rows: number;
  readonly columns: number;
  readonly pieces: readonly [Piece];
  readonly to: Form;
  /** The parts to make. */
  readonly roles: readonly Role[];
  /** Whether to add up the errors. */
  readonly measures: boolean;
  /** Ranges of the rows, if they are known. */
  readonly ranges?: readonly Range[];
}

/** Finds the smallest and the largest value of a rectangle. */
export interface RangeTask {
  readonly kind: 'range';
  readonly rows: number;
  readonly columns: number;
  readonly pieces: readonly [Piece];
}

/** Adds up the errors of the second rectangle against the first. */
export interface CompareTask {
  readonly kind: 'compare';
  readonly rows: number;
  readonly columns: number;
  readonly pieces: readonly [Piece, Piece];
}

export type TileTask = EncodeTask | RangeTask | CompareTask;

/** What came of a tile. */
export interface TileResult {
  readonly parts: Readonly<Record<Role, ArrayBuffer>>;
  /** Error sums, in the core's order. */
  readonly sums?: Float64Array<ArrayBuffer>;
  readonly range?: Range;
  /** If there is one, everything else means nothing. */
  readonly problem?: Problem;
}
