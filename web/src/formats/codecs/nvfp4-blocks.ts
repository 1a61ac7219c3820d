/**
 * NVFP4 in GGUF: blocks of ggml, and a scale of each matrix in a tensor of its own.
 *
 * `X.weight` is stored as
 *   X.weight   blocks of 64 elements along the last dimension: 4 scales (E4M3) and 64 codes (E2M1)
 *   X.scale    a float32 for each matrix, by which the scales are multiplied
 * The arithmetic is in cpp/codecs/nvfp4_blocks.cpp.
 */
import { EncodedRecord, MicroscaledRecord, Nvfp4BlocksRecord, StoredRecord } from '../../core/door.js';
import { listedTypes } from '../../core/listed-types.js';
import { codecInCore, encodedParts, inArena, movedRows, storedRecord } from './calls.js';
import { floatsFinite } from './checks.js';
import type { Codec, Form, Grid, Rectangle } from './codec.js';
import {
  byteRuns,
  cutByRange,
  elementPart,
  elementRuns,
  elementsOf,
  matrixImportance,
  rectanglesOf,
  rowGrid,
} from './elements.js';
import { type MicroscaledForm, microscaledBytes, microscaledRecord } from './microscaled.js';

/** Importance only takes part in the search. */
export interface Nvfp4BlocksForm extends Form {
  readonly codec: 'nvfp4-blocks';
  /** True: searches for the scales of blocks with the smallest errors. @defaultValue false */
  readonly search?: boolean;
  /** True: takes over the codes of a source in NVFP4. @defaultValue false */
  readonly takesCodes?: boolean;
}

const facts = listedTypes.find(({ name }) => name === 'NVFP4') as (typeof listedTypes)[number];

const blockBytesOf = (elements: number) => (elements / facts.elements) * facts.bytes;

/** Rows of a matrix, and the number of matrices. */
function matricesOf(shape: readonly number[]): { readonly rows: number; readonly count: number } {
  return { rows: shape.at(-2) ?? 1, count: elementsOf(shape.slice(0, -2)) };
}

const matrixGrid = (shape: readonly number[]): Grid => ({
  ...rowGrid(shape, facts.elements),
  matrixRows: matricesOf(shape).rows,
});

export const nvfp4Blocks: Codec<Nvfp4BlocksForm> = codecInCore(Nvfp4BlocksRecord, {
  id: 'nvfp4-blocks',
  label: () => 'NVFP4',

  parts: (shape) => [
    { role: 'data', suffix: '', dtype: 'NVFP4', shape, bytes: blockBytesOf(elementsOf(shape)) },
    elementPart('globalScale', '.scale', 'F32', [matricesOf(shape).count], '.weight'),
  ],

  grid: matrixGrid,
  runs: (shape, _form, role, rectangle) =>
    role === 'data'
      ? elementRuns(blockBytesOf, rectangle)
      : byteRuns(4 * Math.floor(rectangle.row / matricesOf(shape).rows), 4),

  *cuts(shape, form, roles, source) {
    const elements = elementsOf(shape);
    if (elements === 0) return;
    const { rows, count } = matricesOf(shape);
    const width = shape.at(-1) ?? 1;
    const rectangles = [...rectanglesOf(elements, [matrixGrid(shape), ...(source === undefined ? [] : [source])])];
    const data = roles.filter((role) => role !== 'globalScale');
    const isSingle = data.length < roles.length;
    for (let matrix = 0; matrix < count; matrix++) {
      const within = rectangles.filter(({ row }) => Math.floor(row / rows) === matrix);
      const [first] = within as [Rectangle];
      const { importance } = form;
      const own =
        importance === undefined ? form : { ...form, importance: matrixImportance(importance, matrix, count, width) };
      if (form.takesCodes === true) {
        // Each tile reads the scale of the matrix; the first one writes it.
        const written = data.length === 0 ? [first] : within;
        for (const rectangle of written) {
          const all = rectangle === first && isSingle ? roles : data;
          yield { kind: 'tile', rectangle, roles: all, form: own };
        }
        continue;
      }
      yield* cutByRange(within, roles, 'globalScale', own);
    }
  },

  checks: (_shape, _form, role) => (role === 'globalScale' ? floatsFinite('F32', 'scale') : []),

  feedbackGroups: () => ({ group: 16, outer: 0 }),

  // Without elements, a tile needs no memory for its columns.
  tileIn: (tile) => (tile.roles.includes('data') ? tile : { ...tile, rows: 1, columns: facts.elements }),
  record: ({ search = false }: Nvfp4BlocksForm) => ({ search }),
  calls: { encode: 'encodeNvfp4Blocks', feedback: 'encodeNvfp4BlocksWithFeedback', decode: 'decodeNvfp4Blocks' },

  recodes: ({ takesCodes = false }) => takesCodes,

  recode(core, tile, from, made, arena) {
    const form = from as MicroscaledForm;
    const { rows, columns } = tile;
    const stored = storedRecord(tile, (role) => microscaledBytes(role, rows * columns, form));
    const record = core.withRecord(MicroscaledRecord, microscaledRecord(form), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        inArena(arena, EncodedRecord, (...rest) => core.models.recodeNvfp4Blocks(at, codes, made.measures, ...rest)),
      ),
    );
    const encoded = encodedParts(made, record);
    const { data } = encoded.parts;
    if (form.headRows === undefined || data === undefined) return encoded;
    const address = movedRows(arena, data.address, { rows, bytes: blockBytesOf(columns), head: form.headRows });
    return { ...encoded, parts: { ...encoded.parts, data: { ...data, address } } };
  },
});
