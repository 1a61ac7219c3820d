/** Calls of the core that codecs share. Addresses are in bytes of wasm memory. */
import { blockTypeInfo, isBlockType } from '../../core/blocks.js';
import {
  DecodedTileRecord,
  ElementTypeId,
  EncodedRecord,
  ErrorSumsRecord,
  type Heaps,
  type ModelsModule,
  MomentsRecord,
  ObservedSetsRecord,
  ObservedTileRecord,
  ProblemKindId,
  type ProblemRecord,
  type RecordType,
  RoleId,
  StatusId,
  StoredRecord,
  TileRecord,
} from '../../core/door.js';
import { outOfMemory, ScalepointError } from '../../core/errors.js';
import { addSums, type Sums } from '../../core/measure.js';
import type { Core } from '../../core/memory.js';
import type { Arena, Bytes, Codec, Encoded, Form, Problem, Role, StoredTile, Tile, ValueRange } from './codec.js';
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
export function inArena<R>(
  arena: Arena,
  type: { readonly bytes: number; read(heaps: Heaps, at: number): R },
  call: CoreCall,
): R {
  const { core } = arena;
  const at = core.pushRecord(type);
  try {
    checkCall(call(arena.address, at));
    return type.read(core.module, at);
  } finally {
    core.popRecord(at);
  }
}

/** True if a tile needs its elements. Otherwise its parts follow from the ranges of its sets alone. */
export function readsElements({ ranges, roles }: Pick<Tile, 'ranges' | 'roles'>): boolean {
  return ranges === undefined || ranges.length === 0 || roles.includes('data');
}

/** Elements in wasm memory. */
type Elements = Pick<Tile, 'type' | 'rows' | 'columns' | 'source'>;

/** Runs a call on a tile. Returns its result. */
function onTile<R>(
  arena: Arena,
  tile: Elements & Partial<Tile> & ElementChange & Pick<Form, 'importance'>,
  result: Parameters<typeof inArena<R>>[1],
  call: TileCall,
): R {
  const { rows, columns, type, source, roles = [], measures = false, ranges } = tile;
  const { add = 0, negativeExp = false, ternary = 0, factor = 1, rowFactors, columnFactors, importance } = tile;
  let wanted = 0;
  for (const role of roles) {
    const number = (RoleId as Readonly<Record<string, number | undefined>>)[role];
    if (number === undefined)
      throw new Error(`scalepoint: the core makes no part '${role}'; see Role in cpp/codecs/codec.h`);
    wanted |= 1 << number;
  }
  const record = {
    rows,
    columns,
    type: isBlockType(type) ? blockTypeInfo(type).id : ElementTypeId[type as keyof typeof ElementTypeId],
    wanted,
    measure: measures,
    add,
    negativeExp,
    ternary,
    factor,
    rowFactors: rowFactors === undefined ? 0 : arena.place(rowFactors),
    columnFactors: columnFactors === undefined ? 0 : arena.place(columnFactors),
    source: { data: source, size: readsElements({ ranges, roles }) ? bytesOfElements(type, rows * columns) : 0 },
    ranges: ranges === undefined ? 0 : arena.place(ranges),
    importance: importance === undefined ? 0 : arena.place(importance),
  };
  return arena.core.withRecord(TileRecord, record, (at) => inArena(arena, result, (...rest) => call(at, ...rest)));
}

const problemKinds = {
  [ProblemKindId.none]: undefined,
  [ProblemKindId.nonFinite]: 'non-finite',
  [ProblemKindId.beyondFloat32]: 'beyond float32',
  [ProblemKindId.overflow]: 'overflow',
} as const;

function tileProblem({ kind, index, value }: ProblemRecord): { problem?: Problem } {
  const name = problemKinds[kind];
  return name === undefined ? {} : { problem: { kind: name, index, value } };
}

/** The parts that a call made. */
export function encodedParts(
  { roles, measures }: Pick<Tile, 'roles' | 'measures'>,
  { problem, sums, ...bytes }: EncodedRecord,
): Encoded {
  const parts: Record<Role, Bytes> = {};
  for (const role of roles) {
    const { data, size } = bytes[role as keyof typeof bytes];
    parts[role] = { address: data, bytes: size };
  }
  if (problem.kind !== ProblemKindId.none) return { parts, ...tileProblem(problem) };
  return measures ? { parts, sums: Object.values(sums) } : { parts };
}

/** Encodes a tile with a call. @param form gives the importance of columns, the weights of their squared errors */
export function encodeTile(
  arena: Arena,
  tile: Tile,
  { importance }: Pick<Form, 'importance'>,
  call: TileCall,
): Encoded {
  const weighed = importance === undefined ? tile : { ...tile, importance };
  return encodedParts(tile, onTile(arena, weighed, EncodedRecord, call));
}

// --------------------------------------------------------------------------------------------------------- codecs by their calls

type CallName = Extract<keyof ModelsModule, string>;

/** A codec whose numbers are made by calls that take a record of its form. */
interface CodecInCore<F extends Form, T> extends Omit<Codec<F>, 'encode' | 'observe' | 'decode'> {
  /** The record of a form, for a tile to be made or a stored one. */
  record(form: F, tile: { readonly columns: number; readonly piece?: Tile['piece']; readonly isStored: boolean }): T;
  /** Names of the calls. `feedback` encodes with the error feedback of GPTQ. */
  readonly calls: {
    readonly encode?: Exclude<
      Extract<CallName, `encode${string}`>,
      'encodeCopy' | 'encodeVectors' | `${string}Feedback`
    >;
    readonly feedback?: Extract<CallName, `encode${string}Feedback`>;
    readonly observe?: 'observeDequantizeLinear';
    readonly decode?: Exclude<Extract<CallName, `decode${string}`>, 'decodeElements'>;
  };
  /** The tile that the core takes, if it can be smaller because elements are not read. */
  tileIn?(tile: Tile, form: F): Tile;
  /** Bytes of a part of a stored tile, if `runs` does not give them for a matrix of its rows and columns. */
  storedBytes?(tile: Pick<StoredTile, 'rows' | 'columns'>, form: F, role: Role): number;
}

/** Makes a codec from its calls. */
export function codecInCore<F extends Form, T>(type: RecordType<T>, table: CodecInCore<F, T>): Codec<F> {
  const { record, calls, tileIn, storedBytes, ...codec } = table;
  const { encode, feedback, observe, decode } = calls;
  return {
    ...codec,
    ...(encode && {
      encode(core, whole, form, arena) {
        const tile = tileIn?.(whole, form) ?? whole;
        const { columns, piece, moments } = tile;
        return core.withRecord(type, record(form, { columns, piece, isStored: false }), (codes) => {
          if (moments === undefined || feedback === undefined)
            return encodeTile(arena, tile, form, (at, ...rest) => core.models[encode](at, codes, ...rest));
          return core.withRecord(MomentsRecord, moments, (fed) =>
            encodeTile(arena, tile, form, (at, ...rest) => {
              const status = core.models[feedback](at, codes, fed, ...rest);
              if (status === StatusId.nonFinite) throw wrongMoments();
              return status;
            }),
          );
        });
      },
    }),
    ...(observe && {
      observe(core, tile, form, arena) {
        const { rows, columns, piece } = tile;
        return core.withRecord(type, record(form, { columns, piece, isStored: false }), (codes) => {
          const { ranges, count, problem } = onTile(arena, tile, ObservedSetsRecord, (at, ...rest) =>
            core.models[observe](at, codes, ...rest),
          );
          // For a tile in pieces, the last piece has the result.
          if (piece !== undefined && piece.row + rows < piece.of) return tileProblem(problem);
          const sets = core.module.HEAPF32.slice(ranges / 4, ranges / 4 + 2 * count) as Float32Array<ArrayBuffer>;
          return { sets, ...tileProblem(problem) };
        });
      },
    }),
    ...(decode && {
      decode(core, tile, form, arena) {
        const stored = storedRecord(tile, (role) => {
          if (storedBytes !== undefined) return storedBytes(tile, form, role);
          const { rows, columns } = tile;
          const whole = { row: 0, rows, column: 0, columns, width: columns };
          const { bytes, count } = codec.runs([rows, columns], form, role, whole);
          return bytes * count;
        });
        return core.withRecord(type, record(form, { columns: tile.columns, isStored: true }), (codes) =>
          core.withRecord(StoredRecord, stored, (at) =>
            inArena(arena, DecodedTileRecord, (...rest) => core.models[decode](at, codes, ...rest)),
          ),
        ).x;
      },
    }),
  };
}

/** The record of a stored rectangle. @param size gives the bytes of a part */
export function storedRecord({ rows, columns, parts }: StoredTile, size: (role: Role) => number): StoredRecord {
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

// ---------------------------------------------------------------------------------------------------------------------- elements

/** Converts elements to floats, in place if they are float32 without a change. Returns their address. */
export function elementFloats(arena: Arena, elements: Elements & ElementChange): number {
  return onTile(arena, elements, DecodedTileRecord, (...call) => arena.core.models.decodeElements(...call)).x;
}

/**
 * The range of elements, or the problem of one of them.
 * @param call `sumMagnitudesOfTile` gives two floats in place of the range, whose sum is that of all magnitudes
 */
export function observeElements(
  arena: Arena,
  elements: Elements,
  call: 'observeTile' | 'sumMagnitudesOfTile' = 'observeTile',
): { readonly range: ValueRange; readonly problem?: Problem } {
  const observe: TileCall = (...rest) => arena.core.models[call](...rest);
  const { range, problem } = onTile(arena, elements, ObservedTileRecord, observe);
  return { range: [range.min, range.max], ...tileProblem(problem) };
}

/** Copies rows of `bytes` bytes to their places in heads of `head` rows: see `headRows` of a form. Returns the address of the copy. */
export function movedRows(
  arena: Arena,
  from: number,
  { rows, bytes, head }: Readonly<Record<'rows' | 'bytes' | 'head', number>>,
): number {
  const to = arena.take(rows * bytes);
  const { HEAPU8 } = arena.core.module;
  for (let row = 0; row < rows; row++) {
    const i = row % head;
    const at = from + (row - i + (i % 2) * (head / 2) + (i >> 1)) * bytes;
    HEAPU8.copyWithin(to + row * bytes, at, at + bytes);
  }
  return to;
}

/** Sums with the errors of the outputs of a matrix: rows at y against those at x, by the second moments of their inputs. */
export function withOutputErrors(
  arena: Arena,
  sums: Sums,
  { x, y, rows, columns, moments }: Record<'x' | 'y' | 'rows' | 'columns' | 'moments', number>,
): Sums {
  const found = inArena(arena, ErrorSumsRecord, (...addresses) =>
    arena.core.models.sumOutputErrors(x, y, rows, columns, moments, ...addresses),
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
