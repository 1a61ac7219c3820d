/**
 * NVFP4 in GGUF: blocks of ggml, and a scale of each matrix in a tensor of its own.
 *
 * `X.weight` is stored as
 *   X.weight   blocks of 64 elements along the last dimension: 4 scales (E4M3) and 64 codes (E2M1)
 *   X.scale    a float32 for each matrix, by which the scales are multiplied
 * The arithmetic is in cpp/codecs/nvfp4_blocks.cpp.
 */
import { MicroscaledRecord, Nvfp4BlocksRecord, StoredRecord } from '../../core/door.js';
import { listedTypes } from '../../core/listed-types.js';
import { decodeTile, encoded, encodeTile, movedRows, storedRecord } from './calls.js';
import { floatsFinite } from './checks.js';
import type { ByteRuns, Codec, Cuts, Form, Grid, Part, Rectangle, Role, ValueRange } from './codec.js';
import { byteRuns, elementRuns, elementsOf, rectanglesOf } from './elements.js';
import { type MicroscaledForm, microscaledRecord, storedMicroscaled } from './microscaled.js';

export interface Nvfp4BlocksForm extends Form {
  readonly codec: 'nvfp4-blocks';
  /** True: searches for the scales of blocks with the smallest errors. @defaultValue false */
  readonly search?: boolean;
  /** The weights of the squared errors, one for each column of each matrix, one matrix after the other. Only with `search`. */
  readonly importance?: Float32Array<ArrayBuffer>;
  /** True: takes over the codes of a source in NVFP4. @defaultValue false */
  readonly takesCodes?: boolean;
}

const facts = listedTypes.find(({ name }) => name === 'NVFP4') as (typeof listedTypes)[number];

const bytesOf = (elements: number) => (elements / facts.elements) * facts.bytes;

/** Rows of a matrix, and the number of matrices. */
function matricesOf(shape: readonly number[]): { readonly rows: number; readonly count: number } {
  return { rows: shape.at(-2) ?? 1, count: elementsOf(shape.slice(0, -2)) };
}

function partsOf(shape: readonly number[]): Part[] {
  const { count } = matricesOf(shape);
  return [
    { role: 'data', suffix: '', dtype: 'NVFP4', shape, bytes: bytesOf(elementsOf(shape)) },
    { role: 'globalScale', suffix: '.scale', replaces: '.weight', dtype: 'F32', shape: [count], bytes: 4 * count },
  ];
}

const gridOf = (shape: readonly number[]): Grid => ({
  rows: elementsOf(shape.slice(0, -1)),
  rowUnit: 1,
  columnUnit: facts.elements,
  matrixRows: matricesOf(shape).rows,
});

function runsOf(shape: readonly number[], role: Role, rectangle: Rectangle): ByteRuns {
  if (role === 'data') return elementRuns(bytesOf, rectangle);
  return byteRuns(4 * Math.floor(rectangle.row / matricesOf(shape).rows), 4, 1, 4);
}

/** The importance of the columns of a matrix. A tensor that is a sample may have fewer matrices, from the middle. */
function importanceOf(
  { importance }: Nvfp4BlocksForm,
  matrix: number,
  count: number,
  width: number,
): Float32Array<ArrayBuffer> | undefined {
  if (importance === undefined) return undefined;
  const each = importance.length / width;
  const skipped = Math.max(0, Math.floor((each - count) / 2));
  const from = ((skipped + matrix) % each) * width;
  return importance.slice(from, from + width);
}

function* cutsOf(shape: readonly number[], form: Nvfp4BlocksForm, roles: readonly Role[], source?: Grid): Cuts {
  const elements = elementsOf(shape);
  const { rows, count } = matricesOf(shape);
  const width = shape.at(-1) ?? 1;
  const grids = [gridOf(shape), ...(source?.rows === undefined ? [] : [source])];
  const rectangles = [...rectanglesOf(elements, grids)];
  const data = roles.filter((role) => role !== 'globalScale');
  const isSingle = data.length < roles.length;
  for (let matrix = 0; matrix < count; matrix++) {
    const within = rectangles.filter(({ row }) => Math.floor(row / rows) === matrix);
    const [first] = within as [Rectangle];
    const importance = importanceOf(form, matrix, count, width);
    const own: Nvfp4BlocksForm = importance === undefined ? form : { ...form, importance };
    if (form.takesCodes === true) {
      // Each tile reads the scale of the matrix; the first one writes it.
      const written = data.length === 0 ? [first] : within;
      for (const rectangle of written) {
        const all = rectangle === first && isSingle ? roles : data;
        yield { kind: 'tile', rectangle, roles: all, form: own };
      }
      continue;
    }
    // The scale of the matrix follows from its largest magnitude.
    const ranges = Float32Array.from((yield { kind: 'range', rectangles: within }) as ValueRange);
    if (isSingle) yield { kind: 'tile', rectangle: first, roles: ['globalScale'], ranges, form: own, reads: false };
    if (data.length === 0) continue;
    for (const rectangle of within) yield { kind: 'tile', rectangle, roles: data, ranges, form: own };
  }
}

export const nvfp4Blocks: Codec<Nvfp4BlocksForm> = {
  id: 'nvfp4-blocks',
  label: () => 'NVFP4',
  parts: partsOf,
  grid: gridOf,
  runs: (shape, _form, role, rectangle) => runsOf(shape, role, rectangle),

  *cuts(shape, form, roles, source) {
    if (elementsOf(shape) > 0) yield* cutsOf(shape, form, roles, source);
  },

  encode(core, whole, { search = false, importance }, arena) {
    // Without elements, a tile needs no memory for its columns.
    const tile = whole.roles.includes('data') ? whole : { ...whole, rows: 1, columns: facts.elements };
    return core.withRecord(Nvfp4BlocksRecord, { search }, (blocks) =>
      encodeTile(core, tile, arena, (at, ...rest) => core.models.encodeNvfp4Blocks(at, blocks, ...rest), importance),
    );
  },

  recodes: ({ takesCodes = false }) => takesCodes,

  recode(core, stored, from, tile, arena) {
    const form = from as MicroscaledForm;
    const made = core.withRecord(MicroscaledRecord, microscaledRecord(form), (codes) =>
      core.withRecord(StoredRecord, storedMicroscaled(stored, form), (at) =>
        encoded(core, tile, arena, (...addresses) =>
          core.models.recodeNvfp4Blocks(at, codes, tile.measures, ...addresses),
        ),
      ),
    );
    const data = made.parts.data;
    if (form.headRows === undefined || data === undefined) return made;
    const bytes = bytesOf(stored.columns);
    const address = movedRows(core, arena, data.address, stored.rows, bytes, form.headRows);
    return { ...made, parts: { ...made.parts, data: { ...data, address } } };
  },

  decode(core, { rows, columns, parts }, _form, arena) {
    const stored = storedRecord(rows, columns, parts, (role) => (role === 'data' ? bytesOf(rows * columns) : 4));
    return core.withRecord(Nvfp4BlocksRecord, { search: false }, (blocks) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeNvfp4Blocks(at, blocks, ...addresses)),
      ),
    );
  },

  checks: (_shape, _form, role) => (role === 'globalScale' ? floatsFinite('F32', 'scale') : []),
};
