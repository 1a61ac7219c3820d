/**
 * Microscaled floats: blocks of a row share a scale of eight bits, with a scale of the whole matrix besides where blocks have float8 scales.
 *
 * `X` is stored as
 *   X_packed or X            4-bit codes, two a byte; 8-bit codes as they are
 *   X_scale                  one byte for each block: E4M3, or an exponent (E8M0)
 *   X_global_scale           of compressed-tensors: a float32 by which the scales are divided
 *   X_scale_2                of ModelOpt: a float32 by which the scales are multiplied
 * MLX stores `X.weight` as uint32 words with the same bytes and `X.scales`, without a scale of the matrix. Its matrices may be stacked.
 * The arithmetic is in cpp/codecs/microscales.cpp.
 */
import {
  GlobalScaleFormId,
  MicroscaledRecord,
  MicroscaleRuleId,
  MicroscaleTypeId,
  MinifloatId,
  StoredRecord,
} from '../../core/door.js';
import { decodeTile, encodeTile, storedRecord } from './calls.js';
import { type BitCheck, floatsFinite } from './checks.js';
import {
  type Codec,
  type Cuts,
  type Form,
  type Grid,
  type Part,
  type Rectangle,
  type Role,
  type StoredTile,
  tileElements,
  type ValueRange,
} from './codec.js';
import { byteRuns, elementsOf, rectanglesOf } from './elements.js';

/** Kinds of microscaled floats. */
export type MicroscaledKind = 'nvfp4' | 'mxfp4' | 'mxfp8';

export interface MicroscaledForm extends Form {
  readonly codec: 'microscaled' | 'mlx-floats';
  readonly kind: MicroscaledKind;
  /** Names of the parts, and use of the global scale. */
  readonly tool: 'compressed-tensors' | 'modelopt' | 'gpt-oss' | 'mlx';
  /** Type of the floats that it was made of. */
  readonly floats: 'F32' | 'F16' | 'BF16';
  /** True: searches for the scales with the smallest errors. */
  readonly search?: boolean;
  /** Weights of the squared errors of each column; rows have to fit into tiles. */
  readonly importance?: Float32Array<ArrayBuffer>;
}

/** Facts of each kind. */
const kinds = {
  nvfp4: { label: 'NVFP4', bits: 4, block: 16, element: 'kFloat4E2M1', scale: 'F8_E4M3' },
  mxfp4: { label: 'MXFP4', bits: 4, block: 32, element: 'kFloat4E2M1', scale: 'U8' },
  mxfp8: { label: 'MXFP8', bits: 8, block: 32, element: 'kFloat8E4M3FN', scale: 'U8' },
} as const;

/** Elements of a row that share a scale. */
export function microscaledBlock(kind: MicroscaledKind): number {
  return kinds[kind].block;
}

/** True if importance can weigh the columns: tiles hold whole rows of a matrix. */
export function canWeighMicroscaled(shape: readonly number[]): boolean {
  return shape.length === 2 && elementsOf(shape) > 0 && (shape[1] as number) <= tileElements;
}

/** The byte of a scale of zeros: 0.125 in compressed-tensors; in MLX 0, or the power 2^0. */
function zeroScaleOf(tool: MicroscaledForm['tool'], isFloat8: boolean): number {
  if (tool === 'mlx') return isFloat8 ? 0 : 127;
  return isFloat8 ? 0x20 : 0;
}

/** True for forms with a scale of the whole matrix. */
const hasGlobal = ({ kind, tool }: MicroscaledForm) => kind === 'nvfp4' && tool !== 'mlx';

/** The record of a form for the core. */
export function microscaledRecord(form: MicroscaledForm): MicroscaledRecord {
  const { kind, tool, search = false } = form;
  const { element, block, scale } = kinds[kind];
  const isFloat8 = scale === 'F8_E4M3';
  return {
    form: {
      element: element === 'kFloat4E2M1' ? MinifloatId.float4E2M1 : MinifloatId.float8E4M3FN,
      scale: isFloat8 ? MicroscaleTypeId.float8 : MicroscaleTypeId.powerOfTwo,
      // MLX's CUDA kernels round up. Those for Metal round to the nearest power of two.
      rule: tool === 'mlx' ? MicroscaleRuleId.ceiling : MicroscaleRuleId.nearFloor,
      block,
      zeroScale: zeroScaleOf(tool, isFloat8),
      search,
    },
    global: hasGlobal(form)
      ? tool === 'modelopt'
        ? GlobalScaleFormId.multiplies
        : GlobalScaleFormId.divides
      : GlobalScaleFormId.none,
  };
}

function bytesOf(role: Role, elements: number, { kind }: MicroscaledForm): number {
  const { bits, block } = kinds[kind];
  return role === 'data' ? (elements * bits) / 8 : role === 'scale' ? elements / block : 4;
}

/** The parts of MLX. */
function wordParts(shape: readonly number[], { kind }: MicroscaledForm): Part[] {
  const { bits, block } = kinds[kind];
  const rows = shape.slice(0, -1);
  const columns = shape.at(-1) ?? 0;
  const elements = elementsOf(shape);
  const scale = { role: 'scale', suffix: '.scales', replaces: '.weight', dtype: 'U8' } as const;
  return [
    { role: 'data', suffix: '', dtype: 'U32', shape: [...rows, (columns * bits) / 32], bytes: (elements * bits) / 8 },
    { ...scale, shape: [...rows, columns / block], bytes: elements / block },
  ];
}

function partsOf(shape: readonly number[], form: MicroscaledForm): Part[] {
  if (form.tool === 'mlx') return wordParts(shape, form);
  const { bits, block, scale } = kinds[form.kind];
  const [rows = 0, columns = 0] = shape;
  const isPacked = bits === 4;
  const data = isPacked
    ? { suffix: form.tool === 'modelopt' ? '' : '_packed', dtype: 'U8', shape: [rows, columns / 2] }
    : { suffix: '', dtype: 'F8_E4M3', shape: [rows, columns] };
  const parts: Part[] = [
    { role: 'data', ...data, bytes: (rows * columns * bits) / 8 },
    { role: 'scale', suffix: '_scale', dtype: scale, shape: [rows, columns / block], bytes: (rows * columns) / block },
  ];
  if (!hasGlobal(form)) return parts;
  const global = form.tool === 'modelopt' ? { suffix: '_scale_2', shape: [] } : { suffix: '_global_scale', shape: [1] };
  return [...parts, { role: 'globalScale', ...global, dtype: 'F32', bytes: 4 }];
}

function partRuns(form: MicroscaledForm, role: Role, { row, rows, column, columns, width }: Rectangle) {
  if (role === 'globalScale') return byteRuns(0, 4, 1, 4);
  const size = (n: number) => bytesOf(role, n, form);
  return byteRuns(size(row * width + column), size(columns), rows, size(width));
}

const gridOf = (shape: readonly number[], { kind }: MicroscaledForm): Grid => ({
  // gpt-oss has matrices of several experts in one weight.
  rows: elementsOf(shape.slice(0, -1)),
  rowUnit: 1,
  columnUnit: kinds[kind].block,
});

function* cutsOf(shape: readonly number[], form: MicroscaledForm, roles: readonly Role[], source?: Grid): Cuts {
  const elements = elementsOf(shape);
  if (elements === 0) return;
  const grids = [gridOf(shape, form), ...(source?.rows === undefined ? [] : [source])];
  const rectangles = [...rectanglesOf(elements, grids)];
  const width = shape.at(-1) ?? 1;
  let ranges: Float32Array<ArrayBuffer> | undefined;
  let others = roles;
  if (hasGlobal(form)) {
    // The scale of the matrix follows from its largest magnitude.
    ranges = Float32Array.from((yield { kind: 'range', rectangles }) as ValueRange);
    others = roles.filter((role) => role !== 'globalScale');
    if (others.length < roles.length) {
      const rectangle = { row: 0, rows: shape[0] as number, column: 0, columns: width, width };
      yield { kind: 'tile', rectangle, roles: ['globalScale'], ranges, reads: false };
    }
  }
  if (others.length === 0) return;
  for (const rectangle of rectangles) {
    yield {
      kind: 'tile',
      rectangle,
      roles: others,
      ...(ranges === undefined ? {} : { ranges }),
    };
  }
}

function checksOf({ kind }: MicroscaledForm, role: Role): readonly BitCheck[] {
  if (role === 'globalScale') return floatsFinite('F32', 'scale');
  if (role === 'scale') return floatsFinite(kinds[kind].scale === 'U8' ? 'F8_E8M0' : 'F8_E4M3', 'scale');
  if (kinds[kind].bits === 4) return [];
  // No quantizer writes NaN codes.
  return floatsFinite('F8_E4M3', 'element').map((check) => ({ ...check, isProblem: true }));
}

/** The record of a stored rectangle. */
export function storedMicroscaled({ rows, columns, parts }: StoredTile, form: MicroscaledForm): StoredRecord {
  return storedRecord(rows, columns, parts, (role) => bytesOf(role, rows * columns, form));
}

export const microscaled: Codec<MicroscaledForm> = {
  id: 'microscaled',
  label: ({ kind }) => kinds[kind].label,
  parts: partsOf,
  grid: gridOf,
  runs: (_shape, form, role, rectangle) => partRuns(form, role, rectangle),
  cuts: cutsOf,

  overflow: () => ', too large for the scale',

  encode(core, whole, form, arena) {
    const readsAll = whole.roles.some((role) => role !== 'globalScale');
    // Scales need the elements, as codes do. Without elements, a tile needs no memory for its columns.
    const tile = readsAll
      ? { ...whole, roles: [...new Set(['data', ...whole.roles])] }
      : { ...whole, rows: 1, columns: microscaledBlock(form.kind) };
    return core.withRecord(MicroscaledRecord, microscaledRecord(form), (codes) =>
      encodeTile(
        core,
        tile,
        arena,
        (at, ...addresses) => core.models.encodeMicroscaled(at, codes, ...addresses),
        form.importance,
      ),
    );
  },

  decode(core, tile, form, arena) {
    const stored = storedMicroscaled(tile, form);
    return core.withRecord(MicroscaledRecord, microscaledRecord(form), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeMicroscaled(at, codes, ...addresses)),
      ),
    );
  },

  checks: (_shape, form, role) => checksOf(form, role),
};

/** Small floats in blocks, in the layout of MLX. */
export const mlxFloats: Codec<MicroscaledForm> = { ...microscaled, id: 'mlx-floats' };
