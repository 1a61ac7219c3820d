/** Calls of the core that codecs share. Addresses are in bytes of wasm memory. */
import { blockTypeInfo, isBlockType } from '../../core/blocks.js';
import {
  DecodedTileRecord,
  ElementTypeId,
  EncodedRecord,
  ErrorSumsRecord,
  type Heaps,
  MomentsRecord,
  ObservedSetsRecord,
  ObservedTileRecord,
  ProblemKindId,
  type ProblemRecord,
  RoleId,
  StatusId,
  TileRecord,
} from '../../core/door.js';
import { outOfMemory, ScalepointError } from '../../core/errors.js';
import { addSums, type Sums } from '../../core/measure.js';
import type { Core } from '../../core/memory.js';
import type { Arena } from './arena.js';
import type { Bytes, Encoded, Observed, Problem, Role, Tile, ValueRange } from './codec.js';
import { bytesOfElements, type ElementChange } from './elements.js';

/** A call, with the addresses of the arena of the core and of its result. */
type CoreCall = (arena: number, result: number) => StatusId;

/** A call on a tile, with the addresses of the tile, of the arena and of its result. */
type TileCall = (tile: number, ...addresses: Parameters<CoreCall>) => StatusId;

/** Checks the status of a call whose arguments are right. A failure is a bug of this package, except for scales from a file and full memory. */
export function checkCall(status: StatusId): void {
  if (status === StatusId.badScale)
    throw new ScalepointError('BAD_FILE', 'a scale is not a positive and finite number');
  if (status === StatusId.badRange) throw new ScalepointError('BAD_FILE', 'the index of a group exceeds their number');
  if (status === StatusId.outOfMemory) throw outOfMemory('the results of a tile');
  if (status !== StatusId.ok) throw new Error(`the core refused a tile with status ${status}`);
}

/** The error for moments that no numbers can have. */
export function wrongMoments(): ScalepointError {
  return new ScalepointError('BAD_FILE', 'the second moments of its inputs are not those of numbers');
}

/** Runs a call that takes its memory from the arena. Returns its result. */
function inArena<R>(
  core: Core,
  arena: Arena,
  type: { readonly bytes: number; read(heaps: Heaps, at: number): R },
  call: CoreCall,
): R {
  const at = core.pushRoom(type.bytes);
  try {
    checkCall(call(arena.address, at));
    return type.read(core.module, at);
  } finally {
    core.popRecord(at);
  }
}

/** The core's number of an element type. */
function numberOf(type: string): number {
  return isBlockType(type) ? blockTypeInfo(type).id : ElementTypeId[type as keyof typeof ElementTypeId];
}

const noRanges = new Float32Array(0);

/** Copies floats into the arena. Returns the address. */
function placeFloats({ module }: Core, values: Float32Array, arena: Arena): number {
  const at = arena.take(4 * values.length);
  module.HEAPF32.set(values, at / 4);
  return at;
}

/** Copies the known ranges of a tile's sets into the arena. Returns the address; 0 for unknown ranges. */
function placeRanges(core: Core, { ranges = noRanges }: Tile, arena: Arena): number {
  return ranges.length === 0 ? 0 : placeFloats(core, ranges, arena);
}

/** The bit of a part that the core makes. */
function bitOf(role: string): number {
  const number = (RoleId as Readonly<Record<string, number | undefined>>)[role];
  if (number === undefined)
    throw new Error(`scalepoint: the core makes no part '${role}'; see Role in cpp/codecs/codec.h`);
  return 1 << number;
}

/** True if a tile needs its elements. Otherwise its parts follow from the ranges of its sets alone. */
export function readsElements({ ranges, roles }: Tile): boolean {
  return ranges === undefined || ranges.length === 0 || roles.includes('data');
}

/** The bits of the parts that the core makes. */
function bitsOf(roles: readonly string[]): number {
  let bits = 0;
  for (const role of roles) bits |= bitOf(role);
  return bits;
}

/** Calls f with the address of a tile whose ranges are at an address. */
function withTile<T>(
  core: Core,
  tile: Tile,
  ranges: number,
  f: (tile: number) => T,
  { add = 0, negativeExp = false, ternary = 0, factor = 1 }: ElementChange = {},
  importance = 0,
  rowFactors = 0,
): T {
  const { rows, columns, type, source, roles, measures } = tile;
  const reads = readsElements(tile);
  const record = {
    rows,
    columns,
    type: numberOf(type),
    wanted: bitsOf(roles),
    measure: measures,
    add,
    negativeExp,
    ternary,
    factor,
    rowFactors,
    source: { data: source, size: reads ? bytesOfElements(type, rows * columns) : 0 },
    ranges,
    importance,
  };
  return core.withRecord(TileRecord, record, f);
}

const problemKinds = {
  [ProblemKindId.none]: undefined,
  [ProblemKindId.nonFinite]: 'non-finite',
  [ProblemKindId.beyondFloat32]: 'beyond float32',
  [ProblemKindId.overflow]: 'overflow',
} as const;

function problemOf({ kind, index, value }: ProblemRecord): { problem?: Problem } {
  const name = problemKinds[kind];
  return name === undefined ? {} : { problem: { kind: name, index, value } };
}

/** Encodes a tile with the call of a codec. @param importance the weights of the squared errors, one for each column */
export function encodeTile(core: Core, tile: Tile, arena: Arena, call: TileCall, importance?: Float32Array): Encoded {
  const ranges = placeRanges(core, tile, arena);
  const weights = importance === undefined ? 0 : placeFloats(core, importance, arena);
  const encode = (at: number) => encoded(core, tile, arena, (...addresses) => call(at, ...addresses));
  return withTile(core, tile, ranges, encode, {}, weights);
}

/** The result of a call that makes the parts of a tile. */
export function encoded(
  core: Core,
  { roles, measures }: Pick<Tile, 'roles' | 'measures'>,
  arena: Arena,
  call: CoreCall,
): Encoded {
  const { problem, sums, ...bytes } = inArena(core, arena, EncodedRecord, call);
  const parts: Record<Role, Bytes> = {};
  for (const role of roles) {
    const { data, size } = bytes[role as keyof typeof bytes];
    parts[role] = { address: data, bytes: size };
  }
  if (problem.kind !== ProblemKindId.none) return { parts, ...problemOf(problem) };
  return measures ? { parts, sums: Object.values(sums) } : { parts };
}

/** Calls of a codec that looks at the inputs of a matrix. */
interface InputCalls {
  readonly plain: TileCall;
  /** Encodes with the error feedback of GPTQ. */
  readonly fed: (tile: number, moments: number, ...addresses: Parameters<CoreCall>) => StatusId;
}

/** Encodes a tile, with the error feedback of GPTQ if it has moments. @param importance that of the inputs */
export function encodeTileByInputs(
  core: Core,
  tile: Tile,
  importance: Float32Array | undefined,
  arena: Arena,
  { plain, fed }: InputCalls,
): Encoded {
  const { moments } = tile;
  if (moments === undefined) return encodeTile(core, tile, arena, plain, importance);
  return core.withRecord(MomentsRecord, moments, (record) =>
    encodeTile(
      core,
      tile,
      arena,
      (at, ...rest) => {
        const status = fed(at, record, ...rest);
        if (status === StatusId.nonFinite) throw wrongMoments();
        return status;
      },
      importance,
    ),
  );
}

/** Decodes a tile with the call of a codec. Returns the address of the floats. */
export function decodeTile(core: Core, arena: Arena, call: CoreCall): number {
  return inArena(core, arena, DecodedTileRecord, call).x;
}

/** A tile of elements without any parts to make. */
function elements(type: string, rows: number, columns: number, source: number): Tile {
  return { rows, columns, type, source, roles: [], measures: false, ranges: undefined };
}

/** Converts elements to floats, in place if they are float32 without a change. Returns their address. */
export function floats(
  core: Core,
  arena: Arena,
  type: string,
  rows: number,
  columns: number,
  source: number,
  change?: ElementChange,
): number {
  const decode = (tile: number) =>
    decodeTile(core, arena, (...addresses) => core.models.decodeElements(tile, ...addresses));
  const rowFactors = change?.rowFactors === undefined ? 0 : placeFloats(core, change.rowFactors, arena);
  return withTile(core, elements(type, rows, columns, source), 0, decode, change, 0, rowFactors);
}

/**
 * The range of elements, or the problem of one of them.
 * @param call `sumMagnitudesOfTile` gives two floats in place of the range, whose sum is that of all magnitudes
 */
export function observe(
  core: Core,
  arena: Arena,
  type: string,
  rows: number,
  columns: number,
  source: number,
  call: 'observeTile' | 'sumMagnitudesOfTile' = 'observeTile',
): { readonly range: ValueRange; readonly problem?: Problem } {
  const result = withTile(core, elements(type, rows, columns, source), 0, (tile) =>
    inArena(core, arena, ObservedTileRecord, (...addresses) => core.models[call](tile, ...addresses)),
  );
  const { range, problem } = result;
  return { range: [range.min, range.max], ...problemOf(problem) };
}

/** Observes the sets of a tile. For a tile in pieces, the last piece has the result. */
export function observeSets(core: Core, tile: Tile, arena: Arena, call: TileCall): Observed {
  const result = withTile(core, tile, 0, (at) =>
    inArena(core, arena, ObservedSetsRecord, (...addresses) => call(at, ...addresses)),
  );
  const { ranges, count, problem } = result;
  const { piece } = tile;
  if (piece !== undefined && piece.row + tile.rows < piece.of) return problemOf(problem);
  const sets = core.module.HEAPF32.slice(ranges / 4, ranges / 4 + 2 * count) as Float32Array<ArrayBuffer>;
  return { sets, ...problemOf(problem) };
}

/** Copies rows of `bytes` bytes to their places in heads of `head` rows: see `headRows` of a form. Returns the address of the copy. */
export function movedRows(core: Core, arena: Arena, from: number, rows: number, bytes: number, head: number): number {
  const to = arena.take(rows * bytes);
  const { HEAPU8 } = core.module;
  for (let row = 0; row < rows; row++) {
    const i = row % head;
    const at = from + (row - i + (i % 2) * (head / 2) + (i >> 1)) * bytes;
    HEAPU8.copyWithin(to + row * bytes, at, at + bytes);
  }
  return to;
}

/** The record of a stored rectangle. `size` gives the bytes of its parts. */
export function storedRecord(
  rows: number,
  columns: number,
  parts: Readonly<Record<Role, number>>,
  size: (role: Role) => number,
) {
  const part = (role: Role) => {
    const data = parts[role];
    return data === undefined ? { data: 0, size: 0 } : { data, size: size(role) };
  };
  return {
    rows,
    columns,
    data: part('data'),
    scale: part('scale'),
    zeroPoint: part('zeroPoint'),
    globalScale: part('globalScale'),
    group: part('group'),
    outerScale: part('outerScale'),
    table: part('table'),
  };
}

/** Sums with the errors of the outputs of a matrix: rows at y against those at x, by the second moments of their inputs. */
export function withOutputErrors(
  core: Core,
  arena: Arena,
  sums: Sums,
  { x, y, rows, columns, moments }: Record<'x' | 'y' | 'rows' | 'columns' | 'moments', number>,
): Sums {
  const found = inArena(core, arena, ErrorSumsRecord, (...addresses) =>
    core.models.sumOutputErrors(x, y, rows, columns, moments, ...addresses),
  );
  const all = [...sums];
  addSums(all, Object.values(found));
  return all;
}

/** The sums of the errors of n floats at y against those at x. */
export function errorsOf({ module, scratch }: Core, x: number, y: number, n: number): Float64Array<ArrayBuffer> {
  const [begin, end] = [scratch.sums / 8, (scratch.sums + ErrorSumsRecord.bytes) / 8];
  module.HEAPF64.fill(0, begin, end);
  checkCall(module._accumulateError(x, y, n, scratch.sums));
  return module.HEAPF64.slice(begin, end) as Float64Array<ArrayBuffer>;
}
