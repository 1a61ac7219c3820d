/**
 * The interface of codecs. A codec stores a tensor of floats in the form of a file: as one part, such as float16, or as several, such as
 * codes with scales. It defines the parts and cuts tensors into tiles; the core makes every number.
 *
 * The arithmetic of codec X is in cpp/codecs/X.cpp.
 */

import type { BlockType } from '../../core/blocks.js';
import { outOfMemory } from '../../core/errors.js';
import type { Sums } from '../../core/measure.js';
import type { Core } from '../../core/memory.js';
import type { Note } from '../../core/note.js';
import type { BitCheck } from './checks.js';

/**
 * The form of a stored tensor: the id of a codec and its parameters, as plain data. Workers receive forms and find the codec by its id.
 */
export interface Form {
  readonly codec: string;
  /**
   * Rows d of a head, for codes whose rows change places once they are restored: row h·d + half·d/2 + i becomes row h·d + 2i + half. Tiles
   * hold whole heads.
   */
  readonly headRows?: number | undefined;
  /**
   * Weights of the squared errors, for codecs that take them: one for each column of each matrix, one matrix after the other; for each row,
   * where columns share scales. Tiles have those of their own matrix alone. Scales are then searched for.
   */
  readonly importance?: Float32Array<ArrayBuffer> | undefined;
}

/** The contents of a part of a stored tensor, such as `data`, `scale` or `zeroPoint`. */
export type Role = string;

/** One of the arrays that a tensor is stored in. */
export interface Part {
  readonly role: Role;
  /** Appended to the tensor's name. */
  readonly suffix: string;
  /** End of the tensor's name that the suffix replaces, such as `.weight`, if the name has it. */
  readonly replaces?: string;
  /** Element type, in the spelling of safetensors and GGUF. */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** The bytes, if they follow from the shape alone. */
  readonly constant?: Uint8Array<ArrayBuffer>;
}

/**
 * A rectangle of a tensor, as a matrix of `width` columns: rows [row, row + rows), columns [column, column + columns).
 * Elements keep their order, so that a tensor of n elements is also a matrix of one row and n columns.
 */
export interface Rectangle {
  readonly row: number;
  readonly rows: number;
  readonly column: number;
  readonly columns: number;
  readonly width: number;
}

/** The positions at which a tensor can be cut so that every part of a tile is whole bytes. */
export interface Grid {
  /** Rows of the matrix; undefined if the elements may be in rows of any length. */
  readonly rows: number | undefined;
  /** Rectangles begin at multiples of these numbers of rows and columns. */
  readonly rowUnit: number;
  readonly columnUnit: number;
  /** Rows of one of the matrices that stand below each other, if no rectangle may hold rows of two. */
  readonly matrixRows?: number | undefined;
  /** True for a source from which reading parts of rows is slow, such as a server, so that wide tiles are worth their memory. */
  readonly prefersWide?: boolean;
}

/** Bytes of a part: `count` runs of `bytes` bytes, each `stride` bytes after the start of the one before. */
export interface ByteRuns {
  /** Offset of the first run in the part. */
  readonly offset: number;
  readonly bytes: number;
  readonly count: number;
  readonly stride: number;
}

/** The smallest and the largest value. */
export type ValueRange = readonly [min: number, max: number];

/** A tile: a rectangle, and the parts to make of it. */
export interface TileCut {
  readonly kind: 'tile';
  readonly rectangle: Rectangle;
  readonly roles: readonly Role[];
  /** A pair of numbers for each set of elements that share a scale, if known: ranges, or the answer to a SetsCut. */
  readonly ranges?: Float32Array<ArrayBuffer>;
  /** The form of the tile, if it differs from that of its tensor. It has the same parts. */
  readonly form?: Form;
  /** Rows of a piece, for codecs that encode tiles piece by piece. Undefined: all rows. */
  readonly pieceRows?: number | undefined;
  /** False if the parts follow from the ranges alone, so that no elements are read. @defaultValue true */
  readonly reads?: boolean;
}

/** Asks for the range of all elements of some rectangles. */
export interface RangeCut {
  readonly kind: 'range';
  readonly rectangles: readonly Rectangle[];
}

/**
 * Asks for a pair of numbers for each set of elements that share a scale, as `observe` gives them. If several rectangles hold elements of a
 * set, the answer is the minimum of the first and the maximum of the second numbers.
 */
export interface SetsCut {
  readonly kind: 'sets';
  /** Number of sets in all. */
  readonly count: number;
  /** Rectangles, each with the index of its first set. */
  readonly observed: readonly { readonly rectangle: Rectangle; readonly first: number }[];
  /** Rows of a piece, for codecs whose `observe` continues from piece to piece. Undefined: all rows. */
  readonly pieceRows?: number | undefined;
}

/** The cuts of a tensor, in order. The answer to a RangeCut is the range, to a SetsCut all pairs, to a TileCut undefined. */
export type Cuts = Generator<TileCut | RangeCut | SetsCut, void, ValueRange | Float32Array<ArrayBuffer> | undefined>;

/** A tile in wasm memory. Addresses are in bytes. */
export interface Tile {
  readonly rows: number;
  readonly columns: number;
  /** Type of its elements: a float type of up to 64 bits, or a block type. */
  readonly type: string;
  readonly source: number;
  /** The parts to make. */
  readonly roles: readonly Role[];
  /** True: adds up the errors. */
  readonly measures: boolean;
  readonly ranges: Float32Array<ArrayBuffer> | undefined;
  /** In a tile in pieces: the first row of this piece, and the count of all rows. The parts are those of the whole tile. */
  readonly piece?: { readonly row: number; readonly of: number } | undefined;
  /** Second moments for GPTQ, for codecs that have it. */
  readonly moments?: TileMoments | undefined;
}

/** Sizes of the groups of neighboring columns that share a grid. 0: none. */
interface FeedbackGroups {
  readonly group: number;
  /** Columns of an outer group, whose grids share numbers, as in a super-block of ggml. */
  readonly outer: number;
}

/** The second moments of a matrix's inputs in wasm memory, and their factor. */
export interface TileMoments {
  /** Addresses of floats. */
  readonly moments: number;
  readonly feedback: number;
  readonly weights: number;
  /** The damping that was used. */
  readonly damping: number;
  /** Address of the order of columns that feedback and weights are in; 0: as they are. */
  readonly order: number;
  /** Address of the moments of held-back data; 0: none. */
  readonly heldBack: number;
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
  /** Index of the element in the tile, counted row by row. */
  readonly index: number;
  readonly value: number;
}

/** The result of encoding a tile. */
export interface Encoded {
  /** The parts, by role, valid until the arena is rewound. */
  readonly parts: Readonly<Record<Role, Bytes>>;
  /** Error sums, if the tile was measured. */
  readonly sums?: Sums;
  /** If set, the rest of the result is meaningless. */
  readonly problem?: Problem;
}

/** The result of observing the sets of a tile. */
interface Observed {
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

/** Codes as the API for arrays has them, one for each element; or blocks of ggml, unchanged. */
type Codes =
  | {
      readonly kind: 'linear';
      readonly dtype: `int${2 | 3 | 4 | 5 | 6 | 7 | 8}`;
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
 * A codec. `encode`, `observe` and `decode` take all memory that they need from the arena. Wasm memory may grow with each piece that they
 * or the core take, so they get views of it afterwards.
 */
export interface Codec<F extends Form = Form> {
  readonly id: F['codec'];
  /** True if its elements are plain: it casts or copies them, and `label` is their type. */
  readonly isPlain?: boolean;
  /** Type of a tensor in this form, for reports. */
  label(form: F): string;
  /** The parts of a tensor. The first one holds its elements. */
  parts(shape: readonly number[], form: F): readonly Part[];
  grid(shape: readonly number[], form: F): Grid;
  /** The bytes of a part that hold a rectangle of the grid. */
  runs(shape: readonly number[], form: F, role: Role, rectangle: Rectangle): ByteRuns;
  /**
   * Cuts a tensor into tiles that make the parts of some roles. The result depends on the arguments alone, so that the error sums of a
   * source are always equal.
   * Undefined if tensors of this form are only read.
   * @param source where the stored tensor can be cut
   */
  cuts?(shape: readonly number[], form: F, roles: readonly Role[], source?: Grid): Cuts;
  /** Floats to the bytes of parts. Undefined if tensors of this form are only read. */
  encode?(core: Core, tile: Tile, form: F, arena: Arena): Encoded;
  /** True if tiles of a form take over the codes of their source by `recode`, without rounding them again. */
  recodes?(form: F): boolean;
  /** Codes of another form to the bytes of parts. The values of codes stay as they are. */
  recode?(core: Core, stored: StoredTile, from: Form, tile: Pick<Tile, 'roles' | 'measures'>, arena: Arena): Encoded;
  /** Sizes of the groups of columns that share a grid, if GPTQ may round columns in an order of its own. */
  feedbackGroups?(core: Core, form: F): FeedbackGroups;
  /** Observes the sets of a tile, for a SetsCut. Undefined if the codec makes no SetsCut. */
  observe?(core: Core, tile: Tile, form: F, arena: Arena): Observed;
  /** Bytes of parts to floats. Returns the address of the floats. Undefined for elements that are not floats. */
  decode?(core: Core, stored: StoredTile, form: F, arena: Arena): number;
  /** The codes of a whole tensor. Undefined if the API for arrays does not support them. @param parts their bytes, by role */
  codes?(shape: readonly number[], form: F, parts: Readonly<Record<Role, Uint8Array<ArrayBuffer>>>): Codes | undefined;
  /** The element type, if a tensor of this form is one part of floats or blocks, which the core reads as they are. */
  elementType?(form: F): string | undefined;
  /** Checks for bits that are not allowed in a part. Undefined if all bits are allowed. */
  checks?(shape: readonly number[], form: F, role: Role): readonly BitCheck[];
  /** The rest of an error message that begins `tensor X holds V at I`, for a value that overflows. */
  overflow?(form: F): string;
  /** Notes for the user about tensors of this form. */
  notes?(
    tensors: readonly { readonly name: string; readonly shape: readonly number[]; readonly form: F }[],
  ): readonly Note[];
}

/** Elements of a tile: 4 MiB as float32. A multiple of every block, and of the 512 elements over which error sums are blocked. */
export const tileElements = 1 << 20;

/** Elements of a piece of a tile. */
export const pieceElements = tileElements / 2;

/** Elements of a tile of some columns of all rows. Their runs in the file are short, and longer in larger tiles. */
export const columnTileElements = 4 * tileElements;

// ------------------------------------------------------------------------------------------------------------------------- memory

/**
 * Wasm memory for the inputs, the results and the temporary values of one task after the other. It grows as they need and is used again. The
 * core takes from it, too. Addresses stay the same until the next `start`, but wasm memory may grow with each piece, and then has new views.
 */
export class Arena {
  readonly core: Core;
  /** The address that calls of the core take. */
  readonly address: number;

  /** @throws ScalepointError `OUT_OF_MEMORY` */
  constructor(core: Core) {
    this.core = core;
    this.address = core.models.makeArena();
    if (this.address === 0) throw outOfMemory('an arena');
  }

  /** Bytes that it occupies. */
  get capacity(): number {
    return this.core.models.arenaCapacity(this.address);
  }

  /**
   * Frees all pieces for a new task, then takes its first piece, which `rewind` keeps. Returns its address as `take` does.
   * @throws ScalepointError `OUT_OF_MEMORY`
   */
  start(bytes: number): number {
    const address = this.core.models.startInArena(this.address, bytes);
    if (address === 0 && bytes > 0) throw outOfMemory(`${bytes} more bytes`);
    return address;
  }

  /** The address of the next piece, a multiple of 16; 0 for a piece of 0 bytes. @throws ScalepointError `OUT_OF_MEMORY` */
  take(bytes: number): number {
    const address = this.core.models.takeFromArena(this.address, bytes);
    if (address === 0 && bytes > 0) throw outOfMemory(`${bytes} more bytes`);
    return address;
  }

  /** Copies floats into the next piece. Returns its address. @throws ScalepointError `OUT_OF_MEMORY` */
  place(values: Float32Array): number {
    const at = this.take(4 * values.length);
    this.core.module.HEAPF32.set(values, at / 4);
    return at;
  }

  /**
   * Frees all pieces but that of `start`. If then pieces of the same sizes are taken in the same order, they have the same addresses and
   * contents as before.
   */
  rewind(): void {
    this.core.models.rewindArena(this.address);
  }

  /** Returns the memory. The arena can be used further. */
  release(): void {
    this.core.models.releaseArena(this.address);
  }
}
