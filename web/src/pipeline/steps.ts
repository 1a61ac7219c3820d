/**
 * Cuts the tensors of a plan into tiles, and says where each result goes. How a tensor is cut depends on its conversion alone, so that
 * the same sums are added in the same order whoever does the work and wherever it goes.
 */
import type { CodesConversion, FilePlan, PlannedPart, PlannedTensor, Role } from './plan.js';
import {
  bytesOf,
  type ConvertTask,
  type InputRange,
  packedRowBytes,
  type TileResult,
  type TileTask,
  tileElements,
} from './tile.js';

/** Bytes that are known. */
export interface BytesStep {
  readonly kind: 'bytes';
  readonly position: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** A tile, and where its parts go. */
export interface TileStep {
  readonly kind: 'tile';
  readonly tensor: PlannedTensor;
  readonly task: TileTask;
  readonly positions: Partial<Record<Role, number>>;
  /** Bytes of the source that this tile finishes. */
  readonly sourceBytes: number;
  /** Of the element with an index in the tile: its index in the tensor. */
  elementAt(index: number): number;
}

export type Step = BytesStep | TileStep;

/** Carries out a task out of turn. */
export type Ask = (tensor: PlannedTensor, task: TileTask, elementAt: (index: number) => number) => Promise<TileResult>;

const sum = (list: readonly number[]) => list.reduce((a, b) => a + b, 0);

/** Number of elements. */
export function elementsOf(shape: readonly number[]): number {
  return shape.reduce((product, dimension) => product * dimension, 1);
}

/** Zeros from a position up to another, in pieces: the alignment of a GGUF file may be anything. */
function* padding(from: number, to: number): Generator<BytesStep> {
  for (let position = from; position < to; ) {
    const bytes = new Uint8Array(Math.min(to - position, tileElements));
    yield { kind: 'bytes', position, bytes };
    position += bytes.length;
  }
}

/** One stretch of bytes. */
function stretch(file: number, begin: number, bytes: number): InputRange {
  return { file, begin, bytes, count: 1, stride: bytes };
}

/** A tile of neighbouring elements, as one row or as whole rows. */
function flatTile(
  tensor: PlannedTensor,
  begin: number,
  rows: number,
  columns: number,
  roles: readonly Role[],
  positions: TileStep['positions'],
  range?: readonly [number, number],
): TileStep {
  const { source, conversion } = tensor;
  const from = bytesOf(source.dtype, begin);
  const sourceBytes = bytesOf(source.dtype, rows * columns);
  const task: ConvertTask = {
    kind: 'convert',
    inputs: [stretch(source.file, source.byteOffset + from, sourceBytes)],
    dtype: source.dtype,
    rows,
    columns,
    conversion,
    roles,
    measure: roles.includes('data'),
    ...(range === undefined ? {} : { range }),
  };
  return {
    kind: 'tile',
    tensor,
    task,
    positions,
    sourceBytes: roles.includes('data') ? sourceBytes : 0,
    elementAt: (index) => begin + index,
  };
}

/** Tiles of a copy of bytes that are no floats. */
function* byteTiles(tensor: PlannedTensor, position: number): Generator<TileStep> {
  const { source, conversion } = tensor;
  const size = tileElements * 4;
  for (let begin = 0; begin < source.bytes; begin += size) {
    const bytes = Math.min(size, source.bytes - begin);
    const task: ConvertTask = {
      kind: 'convert',
      inputs: [stretch(source.file, source.byteOffset + begin, bytes)],
      dtype: source.dtype,
      rows: 0,
      columns: 0,
      conversion,
      roles: ['data'],
      measure: false,
    };
    yield {
      kind: 'tile',
      tensor,
      task,
      positions: { data: position + begin },
      sourceBytes: bytes,
      elementAt: (i) => i,
    };
  }
}

/** How the codes of a tensor are cut. */
interface Cut {
  readonly rows: number;
  readonly columns: number;
  /** Scales in each row. */
  readonly perRow: number;
  /** Rows whose zero points share a word. */
  readonly rowsPerWord: number;
  /** Rows of a tile that holds whole rows; 0 if rows are cut. */
  readonly rowsPerTile: number;
  /** Elements of a part of a row, where rows are cut. */
  readonly segment: number;
}

function cutOf(tensor: PlannedTensor, conversion: CodesConversion): Cut {
  const { shape } = tensor.source;
  const rows = shape[0] as number;
  const columns = elementsOf(shape.slice(1));
  const { groupSize, packed, symmetric, bits } = conversion;
  const rowsPerWord = packed && !symmetric ? 32 / bits : 1;
  const rowsPerTile = Math.floor(tileElements / columns / rowsPerWord) * rowsPerWord;
  const unit = groupSize ?? 512;
  return {
    rows,
    columns,
    perRow: groupSize === undefined ? 1 : columns / groupSize,
    rowsPerWord,
    rowsPerTile,
    // A single group may be larger than a tile.
    segment: Math.max(1, Math.floor(tileElements / rowsPerWord / unit)) * unit,
  };
}

/** Whether rows with one scale each are cut, as they are longer than a tile. */
export function cutsRows(tensor: PlannedTensor, conversion: CodesConversion): boolean {
  return conversion.groupSize === undefined && cutOf(tensor, conversion).rowsPerTile === 0;
}

/** Bytes of a scale. */
function scaleBytes({ scale }: CodesConversion): number {
  return scale === 'F32' ? 4 : 2;
}

/** Where the parts of [row, column] on begin. Zero points in words: of the word that holds the row. */
function positionsAt(
  parts: readonly PlannedPart[],
  conversion: CodesConversion,
  cut: Cut,
  row: number,
  column: number,
  roles: readonly Role[],
): TileStep['positions'] {
  const { packed, bits, groupSize } = conversion;
  const group = row * cut.perRow + (groupSize === undefined ? 0 : column / groupSize);
  const inWords = Math.floor(row / cut.rowsPerWord) * cut.perRow + (groupSize === undefined ? 0 : column / groupSize);
  const offsets: Record<Role, number> = {
    data: packed ? row * packedRowBytes(cut.columns, bits) + (column * bits) / 8 : row * cut.columns + column,
    scale: group * scaleBytes(conversion),
    zeroPoint: packed ? inWords * 4 : group,
    shape: 0,
  };
  const positions: Partial<Record<Role, number>> = {};
  for (const { role, byteOffset } of parts) if (roles.includes(role)) positions[role] = byteOffset + offsets[role];
  return positions;
}

/** Tiles of a tensor that becomes codes. */
async function* codeTiles(
  tensor: PlannedTensor,
  conversion: CodesConversion,
  roles: readonly Role[],
  ask: Ask,
): AsyncGenerator<TileStep> {
  const { source, parts } = tensor;
  const cut = cutOf(tensor, conversion);
  const { rows, columns, rowsPerTile, rowsPerWord, segment } = cut;
  const at = (row: number, column: number, wanted: readonly Role[]) =>
    positionsAt(parts, conversion, cut, row, column, wanted);

  if (rowsPerTile > 0) {
    for (let row = 0; row < rows; row += rowsPerTile) {
      const count = Math.min(rowsPerTile, rows - row);
      yield flatTile(tensor, row * columns, count, columns, roles, at(row, 0, roles));
    }
    return;
  }

  for (let block = 0; block < rows; block += rowsPerWord) {
    const blockRows = Math.min(rowsPerWord, rows - block);
    const segments: [column: number, count: number][] = [];
    for (let column = 0; column < columns; column += segment) {
      segments.push([column, Math.min(segment, columns - column)]);
    }
    const ranges: (readonly [number, number] | undefined)[] = Array.from({ length: blockRows });
    if (conversion.groupSize === undefined) {
      // One scale for a row that is longer than a tile: its range comes first.
      for (let r = 0; r < blockRows; r++) {
        const asked = segments.map(([column, count]) => {
          const begin = (block + r) * columns + column;
          const bytes = bytesOf(source.dtype, count);
          const inputs = [stretch(source.file, source.byteOffset + bytesOf(source.dtype, begin), bytes)] as const;
          const task = { kind: 'range', inputs, dtype: source.dtype, elements: count } as const;
          return ask(tensor, task, (index) => begin + index);
        });
        const found = (await Promise.all(asked)).map(({ range }) => range as readonly [number, number]);
        ranges[r] = [Math.min(...found.map(([min]) => min)), Math.max(...found.map(([, max]) => max))];
      }
      const parameterRoles = roles.filter((role) => role === 'scale' || role === 'zeroPoint');
      if (parameterRoles.length > 0) {
        yield {
          kind: 'tile',
          tensor,
          task: {
            kind: 'parameters',
            inputs: [],
            ranges: ranges as [number, number][],
            conversion,
            roles: parameterRoles,
          },
          positions: at(block, 0, parameterRoles),
          sourceBytes: 0,
          elementAt: (index) => index,
        };
      }
    } else if (rowsPerWord > 1 && roles.includes('zeroPoint')) {
      // Zero points of several rows share words: tiles over these rows.
      for (const [column, count] of segments) {
        const begin = block * columns + column;
        const inputs = [
          {
            file: source.file,
            begin: source.byteOffset + bytesOf(source.dtype, begin),
            bytes: bytesOf(source.dtype, count),
            count: blockRows,
            stride: bytesOf(source.dtype, columns),
          },
        ] as const;
        yield {
          kind: 'tile',
          tensor,
          task: {
            kind: 'convert',
            inputs,
            dtype: source.dtype,
            rows: blockRows,
            columns: count,
            conversion,
            roles: ['zeroPoint'],
            measure: false,
          },
          positions: at(block, column, ['zeroPoint']),
          sourceBytes: 0,
          elementAt: (index) => begin + Math.floor(index / count) * columns + (index % count),
        };
      }
    }
    const others = roles.filter(
      (role) =>
        role === 'data' ||
        (role === 'scale' && conversion.groupSize !== undefined) ||
        (role === 'zeroPoint' && rowsPerWord === 1 && conversion.groupSize !== undefined),
    );
    if (others.length === 0) continue;
    for (let r = 0; r < blockRows; r++) {
      for (const [column, count] of segments) {
        const row = block + r;
        yield flatTile(tensor, row * columns + column, 1, count, others, at(row, column, others), ranges[r]);
      }
    }
  }
}

/** The tiles of a tensor that give the parts of some roles. */
async function* tilesOf(tensor: PlannedTensor, roles: readonly Role[], ask: Ask): AsyncGenerator<TileStep> {
  const { source, conversion, parts } = tensor;
  const elements = elementsOf(source.shape);
  if (elements === 0) return;
  if (conversion.kind === 'codes') {
    yield* codeTiles(tensor, conversion, roles, ask);
    return;
  }
  const position = (parts[0] as PlannedPart).byteOffset;
  // Floats that are copied are looked into, to count NaN and infinities.
  if (conversion.kind === 'copy' && !['F32', 'F16', 'BF16'].includes(source.dtype)) {
    yield* byteTiles(tensor, position);
    return;
  }
  for (let begin = 0; begin < elements; begin += tileElements) {
    const count = Math.min(tileElements, elements - begin);
    const to = conversion.kind === 'copy' ? source.dtype : conversion.to;
    yield flatTile(tensor, begin, 1, count, ['data'], { data: position + bytesOf(to, begin) });
  }
}

/**
 * Everything that has to be written, each byte once. In the order of positions if `sequential`; otherwise tensor by tensor, all parts
 * of a tile at once. What the parts leave free is filled with zeros.
 */
export async function* stepsOf(plan: FilePlan, sequential: boolean, ask: Ask): AsyncGenerator<Step> {
  yield { kind: 'bytes', position: 0, bytes: plan.header };
  const parts = plan.tensors
    .flatMap((tensor) => tensor.parts.map((part) => ({ tensor, part })))
    .sort((a, b) => a.part.byteOffset - b.part.byteOffset || a.part.bytes - b.part.bytes);
  let end = plan.header.length;
  for (const { tensor, part } of parts) {
    yield* padding(end, part.byteOffset);
    end = part.byteOffset + part.bytes;
    if (part.constant !== undefined) yield { kind: 'bytes', position: part.byteOffset, bytes: part.constant };
    else if (sequential) yield* tilesOf(tensor, [part.role], ask);
    else if (part.role === 'data') {
      const roles = tensor.parts.filter(({ constant }) => constant === undefined).map(({ role }) => role);
      yield* tilesOf(tensor, roles, ask);
    }
  }
  yield* padding(end, plan.size);
}

/** Bytes of the sources that the steps of a plan read for their data. */
export function sourceBytesOf(plan: FilePlan): number {
  return sum(plan.tensors.map(({ source }) => source.bytes));
}
