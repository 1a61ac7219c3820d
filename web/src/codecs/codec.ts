/**
 * What all codecs share. A codec stores a tensor of floats in the form of a file: as one part, such as float16, or as several, such as
 * codes with scales. It decides what the parts are and how a tensor is cut into tiles; the core makes every number.
 *
 * The arithmetic of codec X is in cpp/codecs/X.cpp.
 */
import type { BlockType } from '../core/blocks.js';
import type { Sums } from '../core/measure.js';
import type { Core } from '../core/memory.js';
import type { Arena } from './arena.js';
import type { BitCheck } from './checks.js';

/**
 * How a tensor is stored: the id of a codec, and whatever else the codec has to know, as plain data. Workers are sent forms and find the
 * codec by its id.
 */
export interface Form {
  readonly codec: string;
}

/** What a part of a stored tensor holds, such as `data`, `scale` or `zeroPoint`. */
export type Role = string;

/** One of the arrays that a tensor is stored in. */
export interface Part {
  readonly role: Role;
  /** What its name has in addition to the tensor's. */
  readonly suffix: string;
  /** Element type, in the spelling of safetensors and GGUF. */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** The bytes themselves, where they follow from the shape alone. */
  readonly constant?: Uint8Array<ArrayBuffer>;
}

/**
 * A rectangle of a tensor that is seen as a matrix of `width` columns: rows [row, row + rows), columns [column, column + columns).
 * Elements keep their order, so that a tensor of n elements is also a matrix of one row and n columns.
 */
export interface Rectangle {
  readonly row: number;
  readonly rows: number;
  readonly column: number;
  readonly columns: number;
  readonly width: number;
}

/** Where a tensor can be cut so that every part falls into whole bytes. */
export interface Grid {
  /** Rows of the matrix; undefined if the elements have to be in no particular rows. */
  readonly rows: number | undefined;
  /** Rectangles begin at multiples of so many rows and columns. */
  readonly rowUnit: number;
  readonly columnUnit: number;
  /** Of a source: whether pieces of rows are dear to read, so that wide tiles are worth their memory. A server is asked for each of them. */
  readonly prefersWide?: boolean;
}

/** Bytes of a part: `count` runs of `bytes` bytes, each `stride` bytes after the start of the one before. */
export interface ByteRuns {
  /** Where the first run begins in the part. */
  readonly offset: number;
  readonly bytes: number;
  readonly count: number;
  readonly stride: number;
}

/** The smallest and the largest value. */
export type Range = readonly [min: number, max: number];

/** A tile: a rectangle, and the parts to make of it. */
export interface TileCut {
  readonly kind: 'tile';
  readonly rectangle: Rectangle;
  readonly roles: readonly Role[];
  /** Pairs of numbers for what shares a scale, where they are known: ranges, or what a SetsCut was answered with. */
  readonly ranges?: Float32Array<ArrayBuffer>;
  /** What the tile becomes, if that is only a part of the form of its tensor. It has the same parts. */
  readonly form?: Form;
  /** Rows that are read and encoded at a time, for codecs that make their parts piece by piece. Undefined: all of them. */
  readonly pieceRows?: number | undefined;
  /** False if the parts follow from the ranges alone, so that the elements need not be read. @defaultValue true */
  readonly reads?: boolean;
}

/** Asks for the range of everything in some rectangles. */
export interface RangeCut {
  readonly kind: 'range';
  readonly rectangles: readonly Rectangle[];
}

/**
 * Asks for what `observe` says of the sets of elements that share a scale. It is a pair of numbers for each set. If several pieces hold
 * elements of a set, it is the smallest of their first and the largest of their second numbers.
 */
export interface SetsCut {
  readonly kind: 'sets';
  /** Number of sets in all. */
  readonly count: number;
  /** Rectangles, and which sets they begin with. */
  readonly observed: readonly { readonly rectangle: Rectangle; readonly first: number }[];
  /** Rows that are read and looked at one after the other, of codecs whose `observe` goes on from row to row. Undefined: all of them. */
  readonly pieceRows?: number | undefined;
}

/** How a tensor is cut, in order. A RangeCut is answered with the range, a SetsCut with all pairs, everything else with undefined. */
export type Cuts = Generator<TileCut | RangeCut | SetsCut, void, Range | Float32Array<ArrayBuffer> | undefined>;

/** A tile in wasm memory. Addresses are in bytes. */
export interface Tile {
  readonly rows: number;
  readonly columns: number;
  /** Type of its elements: a float type of up to 64 bits, or a block type. */
  readonly type: string;
  readonly source: number;
  /** The parts to make. */
  readonly roles: readonly Role[];
  /** Whether to add up the errors. */
  readonly measures: boolean;
  readonly ranges: Float32Array<ArrayBuffer> | undefined;
  /** Of a tile that comes in pieces: its rows before those of this piece, and in all. The parts are those of the tile. */
  readonly piece?: { readonly row: number; readonly of: number } | undefined;
}

/** Bytes in wasm memory. */
export interface Bytes {
  readonly address: number;
  readonly bytes: number;
}

/** An element that cannot be stored. */
export interface Problem {
  /** NaN or infinite; beyond float32; beyond the type that it or its block's scale is stored in. */
  readonly kind: 'non-finite' | 'beyond float32' | 'overflow';
  /** Which element of the tile, counted row by row. */
  readonly index: number;
  readonly value: number;
}

/** The result of encoding a tile. */
export interface Encoded {
  /** The parts, by role, good until the core is called again. */
  readonly parts: Readonly<Record<Role, Bytes>>;
  /** Error sums, if the tile was measured. */
  readonly sums?: Sums;
  /** If there is one, everything else means nothing. */
  readonly problem?: Problem;
}

/** What is known of the sets of a tile. */
export interface Observed {
  /** A pair of numbers for each set. */
  readonly sets?: Float32Array<ArrayBuffer>;
  readonly problem?: Problem;
}

/** A rectangle in the form of a codec, in wasm memory. */
export interface StoredTile {
  readonly rows: number;
  readonly columns: number;
  /** Addresses of its parts, by role. */
  readonly parts: Readonly<Record<Role, number>>;
}

/** Codes as the API for arrays has them, one an element; or the blocks of ggml as they are. */
export type Codes =
  | {
      readonly kind: 'linear';
      readonly dtype: 'int4' | 'int8';
      readonly shape: readonly number[];
      readonly granularity:
        | { readonly kind: 'per-channel'; readonly axis: number }
        | { readonly kind: 'per-group'; readonly groupSize: number; readonly axis: number };
      readonly data: Int8Array<ArrayBuffer>;
      readonly scale: Float32Array<ArrayBuffer>;
      readonly zeroPoint: Int32Array<ArrayBuffer>;
    }
  | {
      readonly kind: 'blocks';
      readonly type: BlockType;
      readonly shape: readonly number[];
      readonly data: Uint8Array<ArrayBuffer>;
    };

/**
 * A codec. `encode` and `decode` begin by taking all memory that they need from the arena. If the arena only counts, they return at once.
 * So the size that is asked for is always the size that is used.
 */
export interface Codec<F extends Form = Form> {
  readonly id: F['codec'];
  /** Whether its elements are plain floats: it casts and does not quantize. */
  readonly isPlain?: boolean;
  /** Type of a tensor in this form, for reports. */
  label(form: F): string;
  /** The parts of a tensor. The first one holds its elements. */
  parts(shape: readonly number[], form: F): readonly Part[];
  grid(shape: readonly number[], form: F): Grid;
  /** Where a rectangle of the grid lies in a part. */
  runs(shape: readonly number[], form: F, role: Role, rectangle: Rectangle): ByteRuns;
  /**
   * Cuts a tensor into tiles that make the parts of some roles. `source` says where the stored tensor can be cut, and whether wide
   * tiles pay. This depends on nothing else, so that the error sums of a source are always equal.
   */
  cuts(shape: readonly number[], form: F, roles: readonly Role[], source?: Grid): Cuts;
  /** Floats to the bytes of parts. Undefined if tensors of this form are only read. */
  encode?(core: Core, tile: Tile, form: F, arena: Arena): Encoded;
  /** What is known of the sets of a tile, for a SetsCut. Undefined if the codec makes none. */
  observe?(core: Core, tile: Tile, form: F, arena: Arena): Observed;
  /** Bytes of parts to floats. Returns the address of the floats. Undefined if the elements are no floats. */
  decode?(core: Core, stored: StoredTile, form: F, arena: Arena): number;
  /** The codes of a whole tensor. Undefined if it has none that the API for arrays knows. @param parts their bytes, by role */
  codes?(shape: readonly number[], form: F, parts: Readonly<Record<Role, Uint8Array<ArrayBuffer>>>): Codes | undefined;
  /** The element type, if a tensor of this form is one part of floats or blocks, which every codec can take as its source. */
  elementType?(form: F): string | undefined;
  /** What the bits of a part may not be. Undefined if they may be anything. */
  checks?(shape: readonly number[], form: F, role: Role): readonly BitCheck[];
  /** The rest of an error message that begins `tensor X holds V at I`, for a value that overflows. */
  overflow?(form: F): string;
  /** What a user should know about tensors that become this form, in sentences without a full stop. */
  notes?(tensors: readonly { readonly shape: readonly number[]; readonly form: F }[]): readonly string[];
}

/** Elements of a tile: 4 MiB as float32. A multiple of every block, and of the 512 elements over which error sums are blocked. */
export const tileElements = 1 << 20;

/** The same for tiles that come in pieces of some rows. */
export const pieceElements = tileElements / 2;

/** The same for tiles of some columns of all rows. Their runs in the file are short; fewer tiles have longer ones. */
export const columnTileElements = 4 * tileElements;
